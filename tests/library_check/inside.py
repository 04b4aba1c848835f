"""A case set up and audited in one process as a worker does, without its clocks; then its sides are broken.

What must not live here: how outputs are made wrong (spoils.py), processes, and what belongs to one kind of device.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aiperf.launch.rank_replies import work_differs
from aiperf.launch.wide import varied_fault, wide_fault
from aiperf.plan.cases import expand
from aiperf.protocol.claims import AuditClaims
from aiperf.protocol.messages import WideReply
from aiperf.records import Case, Check, Side
from aiperf.scenario.load import load_scenario
from aiperf.worker import arrays, raw
from aiperf.worker.audit import Auditor, Snapshot
from aiperf.worker.compare import compare
from aiperf.worker.load import set_up
from aiperf.worker.named_check import named_check
from aiperf.worker.octets import Handed
from aiperf.workloads.contract import Context, Work, Workload
from tests.library_check import spoils

SEEDS = (11, 12)
MANY = 16
"""Outputs of a named check that are made wrong one by one, at most."""
_KEEP_BYTES = 1 << 40
"""Of outputs: all. A worker keeps less, but what it does not keep it compares by digest, which is stricter."""
_IN_A_ROW_S = 1.0
"""Seconds that steps in a row may take: longer than a worker gives them, so that those of every scenario are seen."""
_UNUSUAL = 7
"""Seed of the inputs that are far from the usual ones, and of those that are varied."""


@dataclass(frozen=True)
class OneCase:
    """A scenario at one point of its axes, as it is checked here."""

    name: str
    sides: tuple[Side, ...]
    rule: Check
    by_design: bool = False
    """Whether the answers differ for a reason that the scenario gives."""


@dataclass(frozen=True)
class Place:
    """What a kind of device needs around steps and between sides."""

    settle: Callable[[], object]
    """Waits until the device is idle."""
    release: Callable[[], object]
    """Gives the memory of a closed side back."""


@dataclass
class Seen:
    """What the broken forms of a case's sides came to."""

    caught: dict[str, int] = field(default_factory=dict)
    """Kind of break -> how often the check noticed it."""
    missed: list[str] = field(default_factory=list)
    """Breaks that passed, in words."""
    unusual: list[str] = field(default_factory=list)
    """What sides were asked beside their usual inputs and was compared, in words."""

    def note(self, kind: str, where: str, *, caught: bool) -> None:
        """Count a break."""
        if caught:
            self.caught[kind] = self.caught.get(kind, 0) + 1
        else:
            self.missed.append(f"{where}: {kind} passes")


def one_case(case: Case) -> OneCase:
    """A planned case with its rule as it crosses the worker's pipe."""
    check = case.check
    rule = Check(check.kind, check.rtol, check.atol, check.name, check.bound, check.reference)
    return OneCase(case.id, case.sides, rule, check.kind == "named" or bool(check.reason))


def cases_of(path: Path, *, on_gpu: bool) -> Iterator[OneCase]:
    """Every case of a scenario file."""
    yield from map(one_case, expand(load_scenario(path), on_gpu=on_gpu))


class Subject:
    """One side, set up, with a step that can be exchanged; one auditor for all its forms, as in a worker."""

    def __init__(self, workload: Workload, settle: Callable[[], object], *, pattern: int) -> None:
        self.honest, self._settle, self._step = workload, settle, workload.step
        self._pattern = pattern

    @functools.cached_property
    def _auditor(self) -> Auditor:
        """What inputs are redrawn like it reads from them when it is made, so a second one would draw others."""
        return Auditor(replace(self.honest, step=lambda: self._step()), keep_bytes=_KEEP_BYTES, pattern=self._pattern)

    def first(self, step: Callable[[], object]) -> None:
        """A step before any audit, as every worker makes one."""
        self._prepare()
        step()
        self._settle()

    def audited(self, step: Callable[[], object], *, reference: bool, seeds: Sequence[int] = SEEDS) -> list[Snapshot]:
        """For each seed: inputs redrawn, outputs poisoned, ``step``. Adds to ``faults``."""
        self._step = step
        for seed in seeds:
            self._auditor.run(seed, self._timed, want_reference=reference)
        found = list(self._auditor.snapshots)
        self._auditor.snapshots.clear()
        return found

    def unusual(self) -> WideReply:
        """What a worker asks of a side after its rounds: steps in a row, large inputs, and others where audits leave
        them alone. To be asked after audits, which show what these leave alone."""

        def step() -> None:
            self._prepare()
            self.honest.step()
            self._settle()

        row = WideReply()
        with suppress(arrays.LazyOutput):  # which an audit has found
            row = self._auditor.in_a_row(step, seconds=_IN_A_ROW_S)
        reply = replace(self._auditor.wide(_UNUSUAL, step), steps=row.steps, left_out=row.left_out)
        return replace(reply, other=self._auditor.varied(_UNUSUAL, step))

    @property
    def faults(self) -> list[str]:
        """What its audits found wrong so far, whatever the other sides say."""
        return self._auditor.faults

    def _prepare(self) -> None:
        if self.honest.prepare is not None:
            self.honest.prepare()

    def _timed(self, before: Callable[[], object], after: Callable[[], object]) -> float:
        self._prepare()
        before()
        self._settle()
        self._step()
        self._settle()
        after()
        return 0.0


class Bench:
    """One case on one device: sets sides up, compares them, lets them go."""

    def __init__(self, case: OneCase, context: Context, place: Place) -> None:
        self.rule, self._base = case.rule, case.sides[0].name
        self._context, self._place = context, place
        self.settle = place.settle
        self._checks: Mapping[str, Any] = {}
        """Named checks of the first side, which judge every other one."""

    def set_up(self, side: Side) -> Subject:
        """A side as its worker sets it up. May raise SkipSide."""
        import numpy as np
        import torch

        scratch = self._context.scratch / side.name
        scratch.mkdir(exist_ok=True)
        random.seed(self._context.seed)
        np.random.seed(self._context.seed)
        torch.manual_seed(self._context.seed)
        workload = set_up(side.workload, replace(self._context, scratch=scratch), dict(side.params))
        if side.name == self._base:
            self._checks = workload.checks
        return Subject(workload, self._place.settle, pattern=arrays.PATTERN + (side.name != self._base))

    def honest(self, subject: Subject, name: str) -> list[Snapshot]:
        """Its audits as it is. Raises AssertionError for a fault of its own."""
        subject.first(subject.honest.step)
        before = len(subject.faults)
        found = subject.audited(subject.honest.step, reference=self.rule.reference)
        assert not (faults := subject.faults[before:]), f"{name}: {faults[0]}"
        return found

    def idleness(self, subject: Subject, theirs: list[Snapshot], name: str) -> str:
        """What the check says against the side with a step that does nothing; empty when it passes.

        One audit will do, but not the last one's inputs: what an honest step left of those would be right.
        """
        lazy = subject.audited(lambda: None, reference=self.rule.reference, seeds=SEEDS[:1])
        return self.disagreement(lazy, theirs[:1], name)

    def disagreement(self, ours: list[Snapshot], theirs: list[Snapshot], name: str, *, prove: bool = False) -> str:
        """What the scenario's own check says against a side; empty when it passes. ``prove``: the side is as it should
        be, so a named check must also refuse what spoils it."""
        found = compare(_handed(ours), _handed(theirs), self.rule, (self._base, name))
        if found.passed and self.rule.kind == "named":
            found = named_check(_outputs(theirs), _outputs(ours), self.rule, self._checks, prove=prove)
        return "" if found.passed else found.detail or "failed"

    def close(self, subject: Subject) -> None:
        """Let a side go."""
        if subject.honest.close is not None:
            subject.honest.close()
        self._place.release()


Look = Callable[[str, Workload], object]
"""Told each side's name and workload after it passed, before it is closed."""


def check_case(case: OneCase, context: Context, place: Place, *, look: Look, broken: bool) -> Seen:
    """All sides agree with the first, leave their inputs alone, and can be told from a side that does nothing; steps in
    a row, large inputs and inputs that are varied accuse none of them.

    With ``broken`` every other side is broken in every way that its check has to notice. May raise SkipSide.
    """
    bench, seen = Bench(case, context, place), Seen()
    first_side, *others = case.sides
    first = bench.set_up(first_side)
    theirs = bench.honest(first, first_side.name)
    look(first_side.name, first.honest)
    assert bench.idleness(first, theirs, "idle"), "the check passes idleness"
    unusual = {first_side.name: first.unusual()}
    bench.close(first)
    for side in others:
        other = bench.set_up(side)
        if broken:
            _never_step(bench, other, theirs, side.name, seen)
        ours = bench.honest(other, side.name)
        assert not (told := bench.disagreement(ours, theirs, side.name, prove=True)), f"{side.name}: {told}"
        assert not (told := _unequal(first.honest.work, other.honest.work, side.name)), told
        look(side.name, other.honest)
        if broken:
            _break(bench, other, (ours, theirs), side.name, seen)
            more = replace(other.honest.work, items=other.honest.work.items + 1)
            seen.note("an item too many", side.name, caught=bool(_unequal(first.honest.work, more, side.name)))
        unusual[side.name] = other.unusual()
        bench.close(other)
    assert not (told := accused(case, unusual)), told
    seen.unusual += compared(case, unusual)
    return seen


def accused(case: OneCase, replies: Mapping[str, WideReply]) -> str:
    """What is said against a side after its rounds (side -> what it answered, the base side first); empty where there
    is nothing, as of honest sides."""
    for name, reply in replies.items():
        if reply.left_out:
            return f"{name}: {reply.left_out} of {reply.steps} steps in a row are taken for left out"
    first, *others = replies
    pairs = [([replies[first]], [replies[other]], (first, other)) for other in others if not case.by_design]
    found = (fault(a, b, case.rule, names=names) for a, b, names in pairs for fault in (wide_fault, varied_fault))
    return next(filter(None, found), "")


def compared(case: OneCase, replies: Mapping[str, WideReply]) -> list[str]:
    """Which answers to large inputs, and to which varied ones, of the sides could be held against each other."""
    first, *others = replies.values()
    if case.by_design or not others:
        return []
    large = ["large inputs"] if first.outputs and any(first.inputs == other.inputs != "" for other in others) else []
    met = (first.other.varied, first.other.inputs)
    same = first.other.varied and any((other.other.varied, other.other.inputs) == met for other in others)
    return large + ([f"{' and '.join(first.other.varied)} varied"] if same else [])


def _unequal(want: Work, got: Work, name: str) -> str:
    return work_differs(asdict(want), asdict(got), ("before", name))


def _never_step(bench: Bench, other: Subject, theirs: list[Snapshot], name: str, seen: Seen) -> None:
    """The side as it was set up, idle. Outputs that cannot be read yet fail a case by themselves: counted apart."""
    try:
        told, kind = bench.idleness(other, theirs, name), "no step at all"
    except Exception as error:  # whatever reading them raises
        told, kind = str(error) or "no outputs", f"no step at all ({type(error).__name__})"
    seen.note(kind, name, caught=bool(told))


Audits = tuple[list[Snapshot], list[Snapshot]]
"""Ours, theirs."""


def _break(bench: Bench, other: Subject, audits: Audits, name: str, seen: Seen) -> None:
    """Break a side that passed: each output wrong by itself, outputs wrong in every step, idle from now on."""
    workload, rule, theirs = other.honest, bench.rule, audits[1]
    outputs = workload.outputs()
    for output in to_spoil(outputs, rule.kind):
        array = outputs[output]
        kind, told = _wrong_output(bench, audits, array, output, name)
        seen.note(kind, f"{name}.{output}", caught=bool(told))

    def spoiling() -> None:
        workload.step()
        bench.settle()  # else a copy that is still under way would undo it
        spoils.together(rule.kind, workload.outputs())

    wrong = other.audited(spoiling, reference=rule.reference, seeds=SEEDS[-1:])
    told = bench.disagreement(wrong, theirs[-1:], name)
    seen.note("a step that spoils its outputs", name, caught=bool(told))
    seen.note("idle after one step", name, caught=bool(bench.idleness(other, theirs, name)))


def to_spoil(outputs: Mapping[str, Any], rule: str) -> list[str]:
    """Names of the outputs to make wrong one by one: all, but of very many of a named check some.

    A named check reads all outputs each time, of a model's gradients a hundred times as many elements as an output
    has. Taken are the smallest, the largest, the first, the last and others at even distances.
    """
    names = sorted(outputs)
    if rule != "named" or len(names) <= MANY:
        return names
    by_size = sorted(names, key=lambda name: math.prod(outputs[name].shape))
    spread = [names[round(k * (len(names) - 1) / (MANY - 3))] for k in range(MANY - 2)]
    return sorted({by_size[0], by_size[-1], *spread})


def _wrong_output(bench: Bench, audits: Audits, array: Any, output: str, name: str) -> tuple[str, str]:
    """(kind of break, what the check says) of the last audit with one output made wrong."""
    ours, theirs = audits
    kind, spoil = spoils.alone(bench.rule.kind, array)
    wrong = arrays.clone(array)
    spoil(wrong)
    mine, base = _with(ours[-1], output, wrong), theirs[-1]
    if bench.rule.kind != "named":
        mine, base = _only(mine, output), _only(base, output)
    return kind, bench.disagreement([mine], [base], name)


def _with(snapshot: Snapshot, output: str, array: Any) -> Snapshot:
    """The snapshot that an auditor would have made, had this output been so."""
    octets = arrays.host_octets(arrays.octets(array))
    claim = replace(snapshot.claims.outputs[output], digest=arrays.digest(array), worst=arrays.worst_value(array))
    claims = replace(snapshot.claims, outputs={**snapshot.claims.outputs, output: claim})
    return replace(snapshot, claims=claims, kept={**snapshot.kept, output: octets})


def _only(snapshot: Snapshot, output: str) -> Snapshot:
    kept = {output: snapshot.kept[output]} if output in snapshot.kept else {}
    claims = AuditClaims({output: snapshot.claims.outputs[output]}, snapshot.claims.references)
    return replace(snapshot, kept=kept, claims=claims)


def _handed(side: Sequence[Snapshot]) -> list[Handed]:
    """What the judge would hold, had a side shown everything."""
    return [Handed(s.claims, s.pattern, whole=s.kept, references=s.references) for s in side]


def _outputs(side: Sequence[Snapshot]) -> list[Callable[[], dict[str, Any]]]:
    def made(snapshot: Snapshot) -> dict[str, Any]:
        claims = snapshot.claims.outputs
        return {n: raw.decode(o.copy(), claims[n].dtype, claims[n].shape) for n, o in snapshot.kept.items()}

    return [functools.partial(made, snapshot) for snapshot in side]
