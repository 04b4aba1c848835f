"""What a Python program uses: comparing functions from code, a notebook or a test. ``import aiperf`` gives it all.

What must not live here: measuring, deciding, and anything that ``import aiperf`` would have to load.
"""
