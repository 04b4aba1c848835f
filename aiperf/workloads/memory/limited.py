"""A request that keeps a part of what each of its rounds computes, under a limit on GPU memory.

As a program: a process that forks another for each such request, and never touches a GPU itself, since no CUDA context
survives a fork. What must not live here: which requests come and what follows when memory is out (requests.py), imports
of aiperf (the program runs by its path, outside the package).
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import torch

WORDS = 1 << 19
"""Words of a row, and of the input."""
ANSWER = 1024
"""Numbers of an answer."""
FIRST_ROWS, MORE_ROWS = 64, 8
"""Rows of the first round's block, and by how many each later block is larger."""
FACTORS = 8
"""Different rows of a block, which repeat."""
_WEIGHTS = 64
OUT_OF_MEMORY = 3
"""Exit status of a process whose request met the limit."""


def limit_memory(device: Any, limit: int) -> None:
    """Let this process's allocator hold at most ``limit`` bytes of the device."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)


def factor(number: int, index: int, row: int) -> int:
    """What row ``row`` of the block of round ``index`` of request ``number`` multiplies the input by."""
    return 2 * ((number * 64 + index) * FACTORS + row % FACTORS) + 1


def weight(index: int, row: int) -> int:
    """The weight of a kept row in the answer."""
    return 2 * ((index + row) % _WEIGHTS) + 1


def blocks(source: Any, *, number: int, rounds: int) -> Iterator[Any]:
    """What a request keeps of each round: a block of 32-bit words, a little larger than the one before, in 16 bits."""
    for index in range(rounds):
        rows = FIRST_ROWS + MORE_ROWS * index
        factors = [factor(number, index, row) for row in range(rows)]
        wide = source * torch.tensor(factors, dtype=torch.int32, device=source.device)[:, None]
        narrow = wide.to(torch.int16)
        del wide
        yield narrow
        del narrow


def answer(source: Any, *, number: int, rounds: int, offload: bool) -> Any:
    """The answer [ANSWER] int64 to request ``number``: a weighted sum over all rows that it keeps until its last round,
    on the device or, with ``offload``, in host memory. Raises torch.OutOfMemoryError."""
    kept = []
    for narrow in blocks(source, number=number, rounds=rounds):
        kept.append(narrow.cpu() if offload else narrow)
        del narrow
    sums = torch.zeros(len(source), dtype=torch.int64, device=source.device)
    for index in range(rounds):
        block = kept[index].to(source.device)
        for row, words in enumerate(block):
            sums.add_(words, alpha=weight(index, row))
        del block, words
    return sums.view(-1, ANSWER).sum(0)


def _answer_once(area: mmap.mmap, number: int, rounds: int, spec: dict[str, Any]) -> int:
    """In a new process: exit status."""
    torch.set_num_threads(1)
    try:
        if "cuda" in spec["device"]:
            limit_memory(torch.device(spec["device"]), spec["limit"])
        source = torch.frombuffer(area, dtype=torch.int32, count=WORDS).to(spec["device"])
        result = torch.frombuffer(area, dtype=torch.int64, count=ANSWER, offset=4 * WORDS)
        result.copy_(answer(source, number=number, rounds=rounds, offload=False))
    except torch.OutOfMemoryError:
        return OUT_OF_MEMORY
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(spec: dict[str, Any]) -> None:
    """Answer each line (number and rounds of a request) with the exit status of a new process that answers it, whose
    answer then is in shared memory, behind the input; end with the input."""
    area = mmap.mmap(spec["descriptor"], 4 * WORDS + 8 * ANSWER)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        number, rounds = map(int, line.split())
        process = os.fork()
        if not process:
            # Without clean-up: the pipes are the parent's.
            os._exit(_answer_once(area, number, rounds, spec))
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
