"""Writes 1 MB of lines and some undecodable bytes to stderr, and garbage to stdout."""

import sys

sys.stdout.buffer.write(bytes(range(256)) * 100)
for line in range(10_000):
    sys.stderr.write(f"line {line:05d} {'x' * 88}\n")
sys.stderr.flush()
sys.stderr.buffer.write(b"\xff\xfe the end\n")
