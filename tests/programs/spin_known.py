"""Runs a pure-Python loop of the given number of turns: its time grows in proportion."""

import sys


def spin(turns: int) -> int:
    total = 0
    for i in range(turns):
        total += i & 7
    return total


if __name__ == "__main__":
    spin(int(sys.argv[1]))
