"""Audits: iterations timed like the others, with redrawn inputs and poisoned outputs; and their rehearsal.

What must not live here: comparing two sides (compare.py), and how a snapshot gets there (output_exchange.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiperf.worker import arrays
from aiperf.worker.redraw import Redraw
from aiperf.workloads.contract import Work, Workload

_LITTLE = 1 << 20
"""Bytes of each type of array that a rehearsal looks at: as many as take the way that large ones take."""


@dataclass
class Snapshot:
    """The outputs right after an audited iteration."""

    arrays: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    reference: dict[str, Any] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    """Output -> finite, infinite or nan: the worst that is in it."""


Timed = Callable[[Callable[[], object], Callable[[], object]], float]
"""Times the audited iterations: calls the first argument just before them, the second at once after them; returns
the seconds that the device went on working after the timed stream had ended."""


_FEWEST_STRAYS = 2


class Auditor:
    """Audits one side and keeps its snapshots."""

    def __init__(self, workload: Workload, *, keep_bytes: int) -> None:
        self._workload = workload
        self._keep_bytes = keep_bytes
        self.redraw = Redraw(workload)
        self._kept = 0
        self.snapshots: list[Snapshot] = []
        self._faults: list[str] = []
        self._strays: list[float] = []

    def run(self, seed: int, timed: Timed, *, want_reference: bool) -> None:
        """One audit. A step that cannot be audited becomes a fault, not an exception."""
        if self._workload.reset is not None:
            self._workload.reset()
        self.redraw(seed)
        before = self._input_digests()
        try:
            self._poison()
            self._see_poison()
            clones: dict[str, Any] = {}
            outputs = self._workload.outputs
            stray = timed(
                self._poison, lambda: clones.update({name: arrays.clone(array) for name, array in outputs().items()})
            )
            self.snapshots.append(self._snapshot(clones, want_reference))
        except arrays.LazyOutput as error:
            self._faults.append(f"an output may not have been computed when the step ended: {error}")
            return
        if self._input_digests() != before:
            self._faults.append("the step changed its inputs")
        self._strays.append(stray)

    @property
    def faults(self) -> list[str]:
        """What the audits found wrong with the side by itself."""
        # Once may be the host, kept from looking; work that leaves the timed stream does so in every audit.
        if len(self._strays) < _FEWEST_STRAYS or min(self._strays) <= 0:
            return list(self._faults)
        shortest = min(self._strays) * 1e6
        return [*self._faults, f"the device went on working for {shortest:.0f} us after the timed stream had ended"]

    def _poison(self) -> None:
        if self._workload.poison:
            for array in self._own_outputs().values():
                arrays.poison(array)

    def _own_outputs(self) -> dict[str, Any]:
        """The outputs that are not inputs at the same time: those must survive until the step."""
        inputs = {id(array) for array in self._inputs().values()}
        return {name: array for name, array in self._workload.outputs().items() if id(array) not in inputs}

    def _see_poison(self) -> None:
        """Outputs that are computed when they are read lose their poison without a step."""
        if not self._workload.poison:
            return
        first = {name: arrays.digest(a) for name, a in self._workload.outputs().items()}
        self._poison()
        again = {name: arrays.digest(a) for name, a in self._workload.outputs().items()}
        if first != again or not all(arrays.is_poisoned(a) for a in self._own_outputs().values()):
            self._faults.append("outputs() changed without a step: it computes, or copies, when it is read")

    def _input_digests(self) -> dict[str, str]:
        return {name: arrays.digest(array) for name, array in self._inputs().items()}

    def _inputs(self) -> Mapping[str, Any]:
        return self._workload.inputs() if self._workload.inputs is not None else {}

    def _snapshot(self, clones: dict[str, Any], want_reference: bool) -> Snapshot:
        snapshot = Snapshot()
        for key, array in clones.items():
            name = str(key)  # as it comes back from another worker
            snapshot.digests[name] = arrays.digest(array)
            snapshot.values[name] = arrays.worst_value(array)
            snapshot.dtypes[name] = str(array.dtype).removeprefix("torch.")
            if self._kept + array.nbytes > self._keep_bytes:
                continue
            host, _ = arrays.to_numpy(array)
            if self._kept + host.nbytes <= self._keep_bytes:
                self._kept += host.nbytes
                snapshot.arrays[name] = host
        if want_reference and self._workload.reference is not None:
            snapshot.reference = {str(k): arrays.to_numpy(v)[0] for k, v in self._workload.reference().items()}
        return snapshot


def rehearse(workload: Workload) -> None:
    """Audit a step that does nothing, on a little of every type of array that the audits of ``workload`` will meet, so
    that a GPU's driver has loaded their kernels. A failure is left to the audits to report."""
    with suppress(Exception):
        inputs = workload.inputs() if workload.inputs is not None else {}
        given, taken = {id(a) for a in inputs.values()}, workload.outputs()
        samples, outputs = _samples(inputs), _samples({k: a for k, a in taken.items() if id(a) not in given})
        nothing = Workload(
            step=lambda: None,
            work=Work(),
            outputs=lambda: outputs,
            inputs=lambda: samples,
            redraw=None if workload.redraw is None else lambda seed: None,
            poison=workload.poison,
        )
        Auditor(nothing, keep_bytes=_LITTLE).run(0, _untimed, want_reference=False)


def _untimed(before: Callable[[], object], after: Callable[[], object]) -> float:
    before()
    after()
    return 0.0


def _samples(held: Mapping[str, Any]) -> dict[str, Any]:
    """The beginning of the longest contiguous array of each type, and of each length that is looked at in another
    way."""
    met: dict[str, Any] = {}
    for array in sorted(filter(_is_contiguous, held.values()), key=lambda array: int(array.nbytes)):
        met[f"{arrays.kind(array)} {array.dtype} {array.nbytes < _LITTLE}"] = array
    return {kind: arrays.clone(a.reshape(-1)[: -(-_LITTLE // max(1, a.dtype.itemsize))]) for kind, a in met.items()}


def _is_contiguous(array: Any) -> bool:
    return bool(array.is_contiguous() if arrays.kind(array) == "torch" else array.flags.c_contiguous)
