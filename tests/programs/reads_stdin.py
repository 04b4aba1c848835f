"""Reads standard input to its end and says how much there was."""

import sys

print(len(sys.stdin.read()))
