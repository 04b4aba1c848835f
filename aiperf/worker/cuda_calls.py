"""The calls of torch that measuring on a GPU rests on, taken before a side's code can replace them.

What must not live here: what is timed with them (clocks.py), and importing torch before somebody asks for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CudaCalls:
    """Functions of ``torch.cuda`` as they were when they were first asked for; events are passed to them."""

    event: Callable[..., Any]
    synchronize: Callable[[Any], None]
    sleep: Callable[[int], None]
    """Keeps the current stream busy for so many cycles."""
    record: Callable[[Any], None]
    elapsed_ms: Callable[[Any, Any], float]
    wait: Callable[[Any], None]


_taken: dict[int, CudaCalls] = {}


def cuda_calls() -> CudaCalls:
    """The calls of the torch that is imported, which is imported if it was not."""
    import torch

    if id(torch) not in _taken:
        cuda = torch.cuda
        kind: Any = cuda.Event
        _taken[id(torch)] = CudaCalls(
            kind, cuda.synchronize, cuda._sleep, kind.record, kind.elapsed_time, kind.synchronize
        )
    return _taken[id(torch)]
