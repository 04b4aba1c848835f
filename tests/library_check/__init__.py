"""Whether each scenario's check can fail: its sides are broken on purpose. ``python -m tests.library_check [NAME ...]``

What must not live here: how outputs are compared (aiperf/worker/compare.py); GPUs' own manners (tests/gpu).
"""
