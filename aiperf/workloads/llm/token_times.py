"""When tokens were there: from the start of an iteration to each first token, and from token to token.

What must not live here: how long an iteration takes (the harness times it), tokens that arrive several at once.
"""

from __future__ import annotations

import time
from typing import Any

import torch


class TokenTimes:
    """Marks of one side, read on the host's clock, on a GPU by events of its stream, which does not wait for them."""

    def __init__(self, device: Any) -> None:
        self._mark = _event if str(device).startswith("cuda") else time.perf_counter
        self._spans: dict[str, list[tuple[Any, Any]]] = {"ttft": [], "inter_token": []}
        self.begin()

    def begin(self) -> None:
        """Mark the arrival of all requests of an iteration."""
        self._began = self._last = self._mark()

    def resume(self) -> None:
        """Sequences whose newest token was there before go on."""
        self._last = self._mark()

    def first(self) -> None:
        """Mark the first token of some sequences."""
        self._last = self._mark()
        self._spans["ttft"].append((self._began, self._last))

    def another(self) -> None:
        """Mark one more token of each of some sequences."""
        mark = self._mark()
        self._spans["inter_token"].append((self._last, mark))
        self._last = mark

    def seconds(self) -> dict[str, list[float]]:
        """Series -> seconds since this was last asked, a value for all sequences of a pass."""
        spans, self._spans = self._spans, {name: [] for name in self._spans}
        return {name: [_between(*span) for span in each] for name, each in spans.items()}


def _event() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(begin: Any, end: Any) -> float:
    if isinstance(begin, float):
        return float(end - begin)
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000
