"""Which rules of trust could have spoken of a stored case: each is shown its samples with a lie put into them.

What must not live here: judging a case as it is (honest.py). A rule that stays silent of the lie lacks the numbers that
it reads, or finds so little in them that nobody could win by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aiperf.analysis.audited import reuse_note
from aiperf.analysis.fresh import batch_doubts, fresh_note
from aiperf.analysis.memory import elsewhere_notes, forgotten_note
from aiperf.analysis.outside import first_notes, outputs_fault, phase_notes
from aiperf.analysis.program_notes import program_notes
from aiperf.analysis.recompute import failed_check
from aiperf.analysis.unverified import unverified_notes
from aiperf.analysis.witness import hidden_note
from aiperf.records import Case, Coverage, Pair, SideRun

_TIMES, _SECONDS, _BYTES = 100.0, 1e4, float(1 << 40)
"""How much faster a side is made, and what is put where it is not counted: more than any rule lets pass."""


@dataclass(frozen=True)
class Rule:
    """One rule, and the lie that it is there to find."""

    code: str
    """Of its note, or the kind of its check."""
    concerns: Callable[[Case], bool]
    lie: Callable[[Pair, str], Pair]
    """A pair in which a side lies; only numbers that are there are changed, none is added."""
    speaks: Callable[[Sequence[Pair], Case, str], bool]

    def could_speak(self, pairs: Sequence[Pair], case: Case) -> bool:
        """Whether it finds the lie of one of the sides."""
        lies = {side.name: [self.lie(pair, side.name) for pair in pairs] for side in case.sides}
        return any(self.speaks(lied, case, side) for side, lied in lies.items())


def _of_functions(case: Case) -> bool:
    return not case.is_command


def _alone(case: Case) -> bool:
    return not case.is_command and all(side.ranks == 1 for side in case.sides)


def _faster_in_batches(pair: Pair, side: str) -> Pair:
    def shorter(seconds: float | None) -> float | None:
        return None if seconds is None else seconds / _TIMES

    samples = [
        replace(s, wall_s=s.wall_s / _TIMES, device_s=shorter(s.device_s)) if s.side == side and not s.audit else s
        for s in pair.samples
    ]
    return replace(pair, samples=tuple(samples))


def _run(pair: Pair, side: str, change: Callable[[SideRun], dict[str, Any]]) -> Pair:
    runs = [replace(run, **change(run)) if run.side == side else run for run in pair.runs]
    return replace(pair, runs=tuple(runs))


def _faster_on_known(pair: Pair, side: str) -> Pair:
    def known(run: SideRun) -> dict[str, Any]:
        return {name: tuple(s / _TIMES for s in getattr(run, name)) for name in ("again_s", "cold_s")}

    return _faster_in_batches(_run(pair, side, known), side)


def _in_phase(phase: str, pair: Pair, side: str) -> Pair:
    def longer(run: SideRun) -> dict[str, Any]:
        phases = {k: replace(v, call_s=v.call_s + _SECONDS * (k == phase)) for k, v in run.phases.items()}
        return {"phases": phases}

    return _run(pair, side, longer)


def _witnessed(more: float, names: Sequence[str], pair: Pair, side: str) -> Pair:
    return _run(pair, side, lambda run: {"witness": {k: v + more * (k in names) for k, v in run.witness.items()}})


def _before_first(pair: Pair, side: str) -> Pair:
    def made_in_set_up(run: SideRun) -> dict[str, Any]:
        if run.warmup is None:
            return {}
        first = run.warmup.first_iteration_s
        warmup = replace(run.warmup, first_iteration_s=first / _TIMES)
        return {"warmup": warmup, "setup_s": run.setup_s + first}

    return _run(pair, side, made_in_set_up)


def _undeclared(pair: Pair, side: str) -> Pair:
    return _run(pair, side, lambda run: {"coverage": Coverage(inputs="undeclared") if run.coverage else None})


def _wrong(pair: Pair, side: str) -> Pair:
    compared = ("outputs", "printed", "files")
    checks = [replace(c, passed=False, sides=(side,)) if c.kind in compared else c for c in pair.checks]
    return replace(pair, checks=tuple(checks))


def _first_run(pair: Pair, side: str) -> Pair:
    def more(run: SideRun) -> dict[str, Any]:
        first = {"first_run": {**run.facts["first_run"], "cpu_s": _SECONDS}} if "first_run" in run.facts else {}
        return {"facts": {**run.facts, **first}}

    return _run(pair, side, more)


def _notes(code: str, notes: Callable[[Sequence[Pair], Case], Any]) -> Callable[[Sequence[Pair], Case, str], bool]:
    def speaks(pairs: Sequence[Pair], case: Case, side: str) -> bool:
        named = [n.values.get("sides", [n.values.get("side")]) for n in notes(pairs, case) if n.code == code]
        return any(side in sides for sides in named)

    return speaks


RULES = (
    Rule("outputs", lambda case: case.check.kind != "none", _wrong,
         lambda pairs, case, side: failed_check(pairs, sides=(side,)) is not None),
    Rule("audit_time", _alone, _faster_on_known, lambda *given: reuse_note(*given) is not None),
    Rule("fresh_inputs", _alone, _faster_on_known, lambda *given: fresh_note(*given) is not None),
    Rule("batches_only", _alone, _faster_in_batches, _notes("batches_only", batch_doubts)),
    Rule("hidden_time", _of_functions, partial(_witnessed, _SECONDS, ("turn_s", "hidden_s")),
         lambda *given: hidden_note(*given) is not None),
    Rule("work_in_outputs", lambda case: _of_functions(case) and not case.needs.gpus, partial(_in_phase, "pending"),
         lambda *given: outputs_fault(*given) is not None),
    Rule("time_outside", _of_functions, partial(_in_phase, "outputs"), _notes("time_outside", phase_notes)),
    Rule("first_elsewhere", lambda case: _of_functions(case) and case.measure.metric == "first_iteration",
         _before_first, _notes("first_elsewhere", first_notes)),
    Rule("memory_forgotten", lambda case: _of_functions(case) and case.measure.metric in ("peak_memory", "gpu_memory"),
         partial(_witnessed, _BYTES, ("resident_bytes", "gpu_allocation_bytes")),
         lambda *given: forgotten_note(*given) is not None),
    Rule("memory_elsewhere", lambda case: _of_functions(case) and case.measure.metric == "peak_memory",
         partial(_witnessed, _BYTES, ("elsewhere_bytes",)), _notes("memory_elsewhere", elsewhere_notes)),
    Rule("inputs_undeclared", _of_functions, _undeclared, _notes("inputs_undeclared", unverified_notes)),
    Rule("first_run_slower", lambda case: case.is_command, _first_run, _notes("first_run_slower", program_notes)),
)  # fmt: skip
"""Of those that leave their numbers in a record. Scheduling, the functions that measure, steps in a row, large and
varied inputs are looked at while a side runs, and are stored only where something was wrong."""


def heard(pairs: Sequence[Pair], case: Case) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Codes of the rules that concern a case: those that could have spoken of it, and the others."""
    about = [(rule.code, rule.could_speak(pairs, case)) for rule in RULES if rule.concerns(case)]
    return tuple(code for code, could in about if could), tuple(code for code, could in about if not could)
