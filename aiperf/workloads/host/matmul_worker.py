"""A worker of host.task's matmul: started as a program, multiplies its share of the matrices at each line of input.

What must not live here: imports of aiperf (the program runs by its path, outside the package).
"""

from __future__ import annotations

import mmap
import sys

import torch


def main(descriptor: int, units: int, n: int, first: int, share: int, *, threads: str) -> None:
    """Answer the number of threads in force, then ``done`` after each round; end with the input."""
    if threads != "default":
        torch.set_num_threads(int(threads))
    area = mmap.mmap(descriptor, 3 * units * n * n * 4)
    left, right, products = torch.frombuffer(area, dtype=torch.float32).view(3, units, n, n)[:, first : first + share]
    sys.stdout.write(f"{torch.get_num_threads()}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        for a, b, out in zip(left, right, products, strict=True):
            torch.mm(a, b, out=out)
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:6]), threads=sys.argv[6])
