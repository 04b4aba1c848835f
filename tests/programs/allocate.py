"""Touches the given number of MiB of memory, then ends."""

import sys

block = bytearray(int(sys.argv[1]) << 20)
for page in range(0, len(block), 4096):
    block[page] = 1
