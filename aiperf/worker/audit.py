"""Audits: iterations timed like the others, with redrawn inputs and poisoned outputs; and their rehearsal.

What must not live here: comparing two sides (compare.py), and how bytes of a snapshot get there (output_exchange.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import sub
from time import perf_counter
from typing import Any, Literal

from aiperf.protocol.checking import RTOL
from aiperf.protocol.claims import AuditClaims, AuditedOutput, VariedAnswer
from aiperf.protocol.messages import WideReply
from aiperf.protocol.reported import Coverage
from aiperf.worker import arrays, contents
from aiperf.worker.redraw import Redraw
from aiperf.worker.unnamed import UnnamedArrays, fingerprint_of
from aiperf.workloads.contract import Work, Workload

_LITTLE = 1 << 20
"""Bytes of each type of array that a rehearsal looks at: as many as take the way that large ones take."""

_IN_A_ROW = 12
"""Steps in a row at most: more than the ten of which somebody leaves out one."""


@dataclass
class Snapshot:
    """What an audited iteration left: outputs right after it, as bytes."""

    pattern: int = arrays.PATTERN
    """What the audit wrote over integers before it."""
    claims: AuditClaims = field(default_factory=AuditClaims)
    kept: dict[str, Any] = field(default_factory=dict)
    """Output -> all of its bytes, as a numpy array."""
    references: dict[str, Any] = field(default_factory=dict)
    """Likewise, of the truth."""
    held: dict[str, Any] = field(default_factory=dict)
    """Output -> all of its bytes where they were made, until the next audit: parts of them may be asked for."""


Timed = Callable[[Callable[[], object], Callable[[], object]], float]
"""Times the audited iterations: calls the first argument just before them, the second at once after them; returns
the seconds that the device went on working after the timed stream had ended."""


_FEWEST_STRAYS = 2


class Auditor:
    """Audits one side and keeps its snapshots."""

    def __init__(self, workload: Workload, *, keep_bytes: int, pattern: int = arrays.PATTERN, looks: int = 2) -> None:
        """``keep_bytes``: of all outputs together, the smallest of each audit first. ``pattern``: number that the first
        audit writes over integers, with its lowest bit turned from audit to audit. ``looks``: audits, the first ones,
        after which it looks for arrays that the step can use and the workload does not name."""
        self._workload = workload
        self._keep_bytes = keep_bytes
        self.redraw = Redraw(workload)
        self._pattern = pattern
        self._kept = 0
        self.snapshots: list[Snapshot] = []
        self._faults: list[str] = []
        self._strays: list[float] = []
        self._drawn: list[dict[str, str]] = []
        self._varied: tuple[str, ...] = ()
        self._unmoved_values = 0
        self._unnamed, self._looks = UnnamedArrays(workload.step), looks

    def run(self, seed: int, timed: Timed, *, want_reference: bool) -> Snapshot | None:
        """One audit. A step that cannot be audited becomes a fault, not an exception, and leaves no snapshot."""
        for former in self.snapshots:
            former.held = {}
        self._reset()
        self.redraw(seed)
        before = self._input_digests()
        self._drawn.append(before)
        try:
            self._poison()
            self._see_poison()
            clones: dict[str, Any] = {}
            given: dict[str, Any] = {}

            def take() -> None:
                given.update(self._workload.outputs())
                clones.update({name: arrays.clone(array) for name, array in given.items()})

            stray = timed(self._poison, take)
            snapshot = self._snapshot(clones, want_reference)
        except arrays.LazyOutput as error:
            self._faults.append(f"an output may not have been computed when the step ended: {error}")
            return None
        finally:
            self._pattern ^= 1
        if self._input_digests() != before:
            self._faults.append("the step changed its inputs, which the next call will see: let it work on a copy")
        self._strays.append(stray)
        self.snapshots.append(snapshot)
        if before and self._unnamed.looks < self._looks:
            self._unnamed.look([*given.values(), *self._inputs().values()])
        return snapshot

    def in_a_row(self, step: Callable[[], object], *, seconds: float) -> WideReply:
        """How many of a few steps in a row, on the same inputs, leave an output as it was poisoned: so shows a step
        that is left out by its number, whichever number a single audit meets, and one whose work outputs() does. A bool
        may be what poison writes."""
        steps = left = 0
        began = perf_counter()
        while self._workload.poison and steps < _IN_A_ROW and perf_counter() - began < seconds:
            held = self._own_outputs()
            self._poison()
            step()
            steps += 1
            # Before anybody asks for them: outputs() may do, or wait for, what the step did not.
            unwritten = {name for name, array in held.items() if self._is_unwritten(array)}
            own = self._own_outputs()
            left += any(
                name in unwritten if arrays.same_memory(array, held.get(name)) else self._is_unwritten(array)
                for name, array in own.items()
            )
            self._pattern ^= 1
        return WideReply(steps=steps, left_out=left)

    def _is_unwritten(self, array: Any) -> bool:
        """Whether an output is as poison left it; of a bool that cannot be told."""
        known = math.prod(array.shape) > 0 and "bool" not in arrays.dtype_of(array)
        return known and arrays.is_poisoned(array, self._pattern)

    def wide(self, seed: int, step: Callable[[], object]) -> WideReply:
        """What ``step`` makes of inputs far from the usual ones, which come back afterwards; empty where no input is
        drawn so, or where it raises: nobody promised that it bears them."""
        if not self.redraw.widens:
            return WideReply()
        found = WideReply()
        with suppress(Exception):
            outputs = self._on_wide(seed, step)
            inputs = " ".join(f"{name}={digest}" for name, digest in self._input_digests().items())
            found = WideReply(
                outputs={
                    str(name): replace(_described(array, array.nbytes), worst=arrays.worst_value(array))
                    for name, array in outputs.items()
                }
            )
            values = contents.some_of(outputs, seed)
            again = contents.some_of(self._on_wide(seed, step, moved=True), seed)
            moved = {name: max(map(abs, map(sub, again[name], own)), default=0.0) for name, own in values.items()}
            found = replace(found, inputs=inputs, values=values, moved=moved)
        self._reset()
        self.redraw(seed)
        return found

    def varied(self, seed: int, step: Callable[[], object]) -> VariedAnswer:
        """What ``step`` makes of inputs that no audit redraws, varied once and brought back; where no audit moved an
        output, of extreme values for those that audits redraw. Empty where it raises."""
        found, restored, unmoved = VariedAnswer(), _nothing, tuple[str, ...]()
        with suppress(Exception):
            draws = self.redraw.variations(self._fixed())
            if not draws and (unmoved := self._unmoved()):
                draws = self.redraw.extremes()
            if draws:
                self._reset()
                restored = self.redraw.vary(draws, seed)
                self._poison()
                inputs = " ".join(f"{name}={digest}" for name, digest in self._input_digests().items())
                step()
                outputs = self._workload.outputs()
                digests = {str(n): arrays.digest(a) for n, a in outputs.items() if arrays.dtype_of(a) not in RTOL}
                values = contents.some_of(outputs, seed)
                if not unmoved or self._moved_since(outputs):
                    self._varied = tuple(draws)
                else:
                    self._unmoved_values = max((len({*own}) for own in values.values()), default=0)
                found = VariedAnswer(tuple(draws), inputs, digests, values, extreme=bool(unmoved))
        restored()
        if found.varied:
            self._reset()
        return found

    def _moved_since(self, outputs: Mapping[str, Any]) -> bool:
        """Whether an output is another one than in the last audit."""
        last = self.snapshots[-1].claims.outputs
        return any(str(n) in last and arrays.digest(a) != last[str(n)].digest for n, a in outputs.items())

    def _fixed(self) -> tuple[str, ...]:
        """Inputs that were the same in every audit."""
        first = self._drawn[0] if len(self._drawn) > 1 else {}
        return tuple(str(name) for name, digest in first.items() if all(d.get(name) == digest for d in self._drawn))

    def _on_wide(self, seed: int, step: Callable[[], object], *, moved: bool = False) -> Mapping[str, Any]:
        self._reset()
        self.redraw(seed, wide=True)
        if moved:
            self.redraw.move()
        self._poison()
        step()
        return self._workload.outputs()

    def _reset(self) -> None:
        if self._workload.reset is not None:
            self._workload.reset()

    @property
    def faults(self) -> list[str]:
        """What the audits found wrong with the side by itself."""
        # Once may be the host, kept from looking; work that leaves the timed stream does so in every audit.
        if len(self._strays) < _FEWEST_STRAYS or min(self._strays) <= 0:
            return list(self._faults)
        shortest = min(self._strays) * 1e6
        return [*self._faults, f"the device kept working for {shortest:.0f} us after the timed stream had finished"]

    @property
    def coverage(self) -> Coverage:
        """What the audits so far could put to the test. That an input was redrawn is seen from its digests, so that it
        does not matter by whom, or whether ``redraw`` minds its seed."""
        workload, several = self._workload, len(self._drawn) > 1
        fixed = tuple(name for name in self._fixed() if name not in self._varied)
        if workload.one_input:
            fixed = ("arguments",) if all(drawn == self._drawn[0] for drawn in self._drawn) else ()
        unnamed = self._unnamed_unchanged()
        moved = workload.redraw is not None and len({str(s.claims.outputs) for s in self.snapshots}) > 1
        without: Literal["redrawn", "undeclared"] = "redrawn" if moved else "undeclared"
        return Coverage(
            inputs="declared" if self._drawn and self._drawn[0] else without,
            fixed=fixed if several else None,
            unmoved=self._unmoved() if several else (),
            unmoved_values=self._unmoved_values,
            unnamed=None if unnamed is None else len(unnamed),
            largest_unnamed=unnamed[0] if unnamed else "",
            fixed_inputs=workload.fixed_inputs,
            poisoned=workload.poison,
            kept_outputs=workload.kept_outputs,
            latencies=workload.latencies is not None,
            latency_source=workload.latency_source,
            done_outside=workload.done_outside,
        )

    def _unnamed_unchanged(self) -> list[str] | None:
        """Unnamed arrays that were the same after audits with different inputs; None without such audits."""
        drawn, looks = self._drawn, self._unnamed.looks
        return self._unnamed.unchanged() if looks > 1 and all(drawn[0] != each for each in drawn[1:looks]) else None

    def _unmoved(self) -> tuple[str, ...]:
        """Outputs with elements that every audit left the same, where it met other inputs and no output changed."""
        claims = [snapshot.claims.outputs for snapshot in self.snapshots]
        if len(claims) < len(self._drawn) or self._varied or all(d == self._drawn[0] for d in self._drawn):
            return ()
        names = [name for name, output in claims[0].items() if math.prod(output.shape)]
        same = all(len({each[n].digest if n in each else "" for each in claims}) == 1 for n in names)
        return tuple(names) if same else ()

    def _poison(self) -> None:
        if self._workload.poison:
            for array in self._own_outputs().values():
                arrays.poison(array, self._pattern)

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
        if first != again or not all(arrays.is_poisoned(a, self._pattern) for a in self._own_outputs().values()):
            self._faults.append("outputs() changed without a step: it computes, or copies, when it is read")

    def _input_digests(self) -> dict[str, str]:
        return {name: arrays.digest(array) for name, array in self._inputs().items()}

    def _inputs(self) -> Mapping[str, Any]:
        return self._workload.inputs() if self._workload.inputs is not None else {}

    def _snapshot(self, clones: dict[str, Any], want_reference: bool) -> Snapshot:
        snapshot = Snapshot(self._pattern)
        found: dict[str, AuditedOutput] = {}
        for key, array in sorted(clones.items(), key=lambda item: int(item[1].nbytes)):
            name = str(key)  # as it comes back from another worker
            whole = arrays.octets(array)
            kept = self._kept + whole.nbytes <= self._keep_bytes
            found[name] = replace(
                _described(array, whole.nbytes),
                digest=arrays.digest_of(whole, arrays.dtype_of(array), tuple(array.shape)),
                worst=arrays.worst_value(array),
                kept=kept,
            )
            if kept:
                self._kept += whole.nbytes
                whole = snapshot.kept[name] = arrays.host_octets(whole)
            if self._keep_bytes:
                snapshot.held[name] = whole
        snapshot.claims = AuditClaims({str(key): found[str(key)] for key in clones}, {})
        if want_reference and self._workload.reference is not None:
            for key, array in self._workload.reference().items():
                truth = snapshot.references[str(key)] = arrays.host_octets(arrays.octets(array))
                snapshot.claims.references[str(key)] = _described(array, truth.nbytes)
        return snapshot


def _described(array: Any, nbytes: int) -> AuditedOutput:
    return AuditedOutput(arrays.dtype_of(array), tuple(int(extent) for extent in array.shape), int(nbytes))


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
        for array in samples.values():
            fingerprint_of(array)


def _nothing() -> None:
    pass


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
