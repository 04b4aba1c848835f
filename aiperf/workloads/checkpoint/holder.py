"""The process of suspension.py: started as a program, holds GPU memory and uses it at each line of input.

It waits for a line whenever it is suspended, so it ends with its input then, too. What must not live here: imports of
aiperf (the program runs by its path, outside the package).
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from typing import Any

import torch

WEIGHTS = 64
"""Different weights of rows in a sum, which repeat."""


class Holder:
    """``rows`` rows of words, made of one row that lies in shared memory, and what was computed from them last."""

    def __init__(self, row: Any, digest: Any, passed: Any, *, rows: int, blocks: int, device: Any, trim: str) -> None:
        """``row`` [words] int32, ``digest`` and ``passed`` [words] float64: in host memory, shared with the parent."""
        self._row, self._shared = row, {"digest": digest, "passed": passed}
        self._kept = torch.empty(rows, len(row), dtype=torch.int32, device=device)
        self._sum = torch.empty(len(row), dtype=torch.int64, device=device)
        self._blocks, self._trim = blocks, trim

    def load(self) -> int:
        """Make the kept rows of the shared one, each another multiple of it."""
        row = self._row.to(self._kept.device)
        for number, kept in enumerate(self._kept):
            torch.mul(row, 2 * number + 1, out=kept)
        return self._held()

    def run_pass(self) -> int:
        """Compute with temporary blocks of the size of the kept rows, all of which are alive at once, and free them;
        then empty the allocator's cache, where that was asked for."""
        temporaries = [self._kept + number for number in range(self._blocks)]
        self._sum.zero_()
        for number, block in enumerate(temporaries):
            self._sum.add_(block[number % len(block)])
        self._shared["passed"].copy_(self._sum)
        del temporaries[:]
        block = None
        if self._trim == "empty_cache":
            torch.cuda.empty_cache()
        return self._held()

    def take_digest(self) -> int:
        """Sum the kept rows, each with an odd weight of its own, so that any one changed word changes the sum."""
        self._sum.zero_()
        for number, kept in enumerate(self._kept):
            self._sum.add_(kept, alpha=2 * (number % WEIGHTS) + 1)
        self._shared["digest"].copy_(self._sum)
        return self._held()

    def _held(self) -> int:
        """Bytes of GPU memory that the allocator holds, cached ones included."""
        if not self._kept.is_cuda:
            return 0
        torch.cuda.synchronize(self._kept.device)
        return torch.cuda.memory_reserved(self._kept.device)


def main(spec: dict[str, Any]) -> None:
    """Answer each line (load, pass, digest) with the bytes that are held after it; end with the input."""
    words = spec["words"]
    area = mmap.mmap(spec["descriptor"], 20 * words)
    digest, passed = torch.frombuffer(area, dtype=torch.float64, count=2 * words).view(2, words)
    row = torch.frombuffer(area, dtype=torch.int32, offset=16 * words)
    device = torch.device(spec["device"])
    holder = Holder(row, digest, passed, rows=spec["rows"], blocks=spec["blocks"], device=device, trim=spec["trim"])
    work = {"load": holder.load, "pass": holder.run_pass, "digest": holder.take_digest}
    for line in sys.stdin:
        sys.stdout.write(f"{work[line.strip()]()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    # Without clean-up, whose calls of CUDA would block where the process is suspended.
    sys.stderr.flush()
    os._exit(0)
