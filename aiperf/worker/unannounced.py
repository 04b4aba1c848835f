"""Steps that nothing announces, no call of the side and no poison: who works only on such signs changes nothing.

What must not live here: what follows from it (launch/wide.py), and steps that are timed (side_runner.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from aiperf.protocol.checking import RTOL
from aiperf.protocol.claims import UnannouncedAnswer
from aiperf.worker import arrays, contents
from aiperf.worker.redraw import Redraw, Swap
from aiperf.workloads.contract import Workload

_LEAD, _IN_A_ROW = 64, 12
"""Steps at most before anything changes, in which a side forgets that it was called; and steps after that."""
_TIMES = 2
"""Times the time that is given, which those after that may take: enough for all of them on a calm host."""
_SHORT = 8
"""Steps that must fit the time, or the answer is looked at once only."""
_MOST = 16 << 20
"""Bytes of inputs and outputs: copies of larger ones would count in the peak memory of a side, and take long to see."""
_FEW = 16
"""Elements of an output of a step with state: fewer of them may by chance become what they were overwritten with."""


def unannounced(
    workload: Workload, redraw: Redraw, seed: int, step: Callable[[], object], *, seconds: float
) -> UnannouncedAnswer:
    """What ``step`` does where an output is overwritten with what could be a result, and inputs are written where they
    lie: in turn new ones, drawn from ``seed``, and those that they had, which they have again afterwards. Inputs stay
    where steps have state or the side redraws them. Where a step writes its outputs in places of their own these are
    looked at after each of several steps, else after one. Empty on a GPU, of large arrays, and where a step raises."""
    given = [*workload.inputs().values()] if workload.inputs is not None else []
    if not all(map(arrays.on_host, given)):
        return UnannouncedAnswer()
    began = perf_counter()
    step()
    short = perf_counter() - began < seconds / _SHORT
    first = _outputs(workload, given)
    if not first or not all(map(arrays.on_host, first.values())):
        return UnannouncedAnswer()
    if sum(int(array.nbytes) for array in (*given, *first.values())) > _MOST:
        return UnannouncedAnswer()
    if (swap := redraw.swap() if workload.reset is None else None) is not None:
        swap.draw(seed)
    known, digests, held = contents.some_of(first, seed), _whole_numbers(first), dict[str, Any]()
    if short:
        step()
        held = _outputs(workload, given)
    in_place = held.keys() == first.keys() and all(arrays.same_memory(held[name], first[name]) for name in held)
    marked = {name for name in held if in_place and _may_be_marked(workload, held[name])}
    if not marked and swap is None:
        return UnannouncedAnswer()
    row = _Row(held if in_place else {}, swap, marked)
    try:
        with suppress(Exception):
            if in_place:
                row.go(step, seed, seconds=seconds)
                row.asked(_outputs(workload, given))
            elif swap is not None:
                swap.write(new=True)
                step()
                row.see(_outputs(workload, given), seed)
                row.steps = 1
            found = UnannouncedAnswer("", row.steps, row.left, read=row.read)
            if swap is not None:
                both = {name: (digest, row.digests.get(name, "")) for name, digest in digests.items()}
                found = UnannouncedAnswer(swap.digest(), row.steps, row.left, row.still, known, row.new, both, row.read)
            return found
    finally:
        if swap is not None:
            swap.write(new=False)
    return UnannouncedAnswer()


@dataclass
class _Row:
    """Steps in a row, whose outputs are looked at where they lie."""

    held: Mapping[str, Any]
    swap: Swap | None
    marked: set[str]
    """Outputs that may be overwritten."""
    steps: int = 0
    left: dict[str, int] = field(default_factory=dict)
    still: dict[str, int] = field(default_factory=dict)
    new: dict[str, tuple[float, ...]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    """Output -> its digest after the last step."""
    read: tuple[str, ...] = ()

    def go(self, step: Callable[[], object], seed: int, *, seconds: float) -> None:
        until = perf_counter() + seconds / 2
        for _ in range(_LEAD):
            if perf_counter() > until:
                break
            step()
        until = perf_counter() + _TIMES * seconds
        honest = [self._now()]
        if self.swap is not None:
            self.swap.write(new=True)
            step()
            honest.append(self._now())
            self.see(self.held, seed)
        self.last = honest[-1]
        marks = self._marks(honest)
        drawn = {name: arrays.digest(array) for name, array in marks.items()}
        self.left, self.still = dict.fromkeys(marks, 0), dict.fromkeys(self.held.keys() - marks.keys(), 0)
        while self.steps % 2 or self.steps == 0 or (self.steps < _IN_A_ROW and perf_counter() < until):
            for name, array in marks.items():
                contents.write(self.held[name], array)
            if self.swap is not None:
                self.swap.write(new=self.steps % 2 == 1)
            step()
            now = self._now()
            self.left = {name: count + (now[name] == drawn[name]) for name, count in self.left.items()}
            self.still = {name: count + (now[name] == self.last[name]) for name, count in self.still.items()}
            self.last, self.steps = now, self.steps + 1

    def see(self, outputs: Mapping[str, Any], seed: int) -> None:
        """Keep some of what is in them."""
        self.new, self.digests = contents.some_of(outputs, seed), _whole_numbers(outputs)

    def asked(self, outputs: Mapping[str, Any]) -> None:
        """What lay otherwise before ``outputs()`` was called. Of outputs that may not be overwritten nothing is said
        then: it may gather them each time."""
        lay = ((n, array) for n, array in self.held.items() if arrays.same_memory(outputs.get(n), array))
        changed = [name for name, array in lay if arrays.digest(array) != self.last[name]]
        self.read = tuple(name for name in changed if name in self.left)
        for name in set(changed) - self.left.keys():
            for said in (self.still, self.new, self.digests):
                said.pop(name, None)

    def _marks(self, honest: list[dict[str, str]]) -> dict[str, Any]:
        """What outputs are overwritten with: nothing that they were on either of the inputs, which an honest step may
        write again."""
        marks = {}
        for name in self.held.keys() & self.marked:
            with suppress(Exception):  # of a type that has no such arithmetic
                mark = contents.another(self.held[name])
                if all(arrays.digest(mark) != each[name] for each in honest):
                    marks[name] = mark
        return marks

    def _now(self) -> dict[str, str]:
        return {name: arrays.digest(array) for name, array in self.held.items()}


def _outputs(workload: Workload, given: list[Any]) -> dict[str, Any]:
    """The outputs that do not lie where an input does."""
    found = {str(name): array for name, array in workload.outputs().items()}
    return {n: a for n, a in found.items() if not any(arrays.same_memory(a, each) for each in given)}


def _may_be_marked(workload: Workload, output: Any) -> bool:
    """Whether an honest step writes an output anew and can hardly write what it was overwritten with: with state, a
    counter or a token may come there."""
    alone = workload.reset is None or (arrays.is_floating(output) and math.prod(output.shape) >= _FEW)
    return workload.poison and contents.is_writable(output) and alone


def _whole_numbers(outputs: Mapping[str, Any]) -> dict[str, str]:
    return {name: arrays.digest(a) for name, a in outputs.items() if arrays.dtype_of(a) not in RTOL}
