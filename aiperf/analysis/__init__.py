"""Samples -> comparison -> verdict. Numbers in, numbers out: no I/O, no torch, no printing."""
