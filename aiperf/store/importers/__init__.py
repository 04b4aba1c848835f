"""Result files of other tools: recognised, read, and kept as runs of this store.

What must not live here: aiperf's own format (codec.py, samples.py), printing.
"""
