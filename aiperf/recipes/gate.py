"""The recipe of `aiperf gate`: measure, measure again what looks worse, settle.

What must not live here: judging, git, files, printing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiperf.analysis.gate import GateOutcome, GateRow
from aiperf.analysis.gate_judge import judge_case, missing_metrics
from aiperf.analysis.gate_settle import flagged, gate_exit, gate_sentence, settle
from aiperf.analysis.gate_wording import HEAD_IS_BASE, only_in
from aiperf.host.calibration import load_calibration
from aiperf.launch.git import WORKING_TREE, resolve, same_tree
from aiperf.plan.gates import gate_command
from aiperf.plan.plan import Plan
from aiperf.recipes.gate_base import (
    Gate,
    GateBase,
    arrange_cases,
    check_side,
    find_base,
    incomparable_rows,
    only_documentation,
    rules_of,
    unmeasured_rows,
)
from aiperf.records import Case
from aiperf.records.calibration import Calibration, of_case

_FIRST_SHARE = 2 / 3
"""Share of a budget that the first session may spend; the rest is kept for the fresh one."""


def check_gate(gate: Gate) -> None:
    """Raise the UserError that run_gate would raise before it measures: unknown refs, sides, baselines."""
    check_side(gate)
    find_base(gate)


def run_gate(gate: Gate) -> GateOutcome:
    """Measure, measure again what looks worse, settle. Raises UserError before anything is measured."""
    began = time.monotonic()
    check_side(gate)
    base = find_base(gate)
    if base.differences:
        return _outcome(gate, base, incomparable_rows(gate), began=began)
    if files := only_documentation(gate, base):
        told = replace(base, notes=(*base.notes, only_in(files)))
        return _outcome(gate, told, unmeasured_rows(gate, files), began=began)
    if _is_own_base(base):
        base = replace(base, notes=(*base.notes, HEAD_IS_BASE))
    cases, refused = arrange_cases(gate, base)
    first = _measure(gate, base, Plan(cases, gate.plan.skips), again=False, left=gate.settings.budget)
    suspects = {row.case for row in flagged(first.rows)}
    again = _SessionResult()
    if suspects and not first.interrupted and gate.config.confirm:
        again = _measure_again(gate, base, tuple(c for c in cases if c.id in suspects), began)
    rows = [*settle(first.rows, again.rows, level=gate.level), *refused]
    return _outcome(gate, base, rows, began=began, sessions=(first, again))


def _is_own_base(base: GateBase) -> bool:
    """Whether base and head are one commit in every repository, without files beside it."""
    return bool(base.commits) and all(commits.base == commits.head for commits in base.commits.values())


@dataclass(frozen=True)
class _SessionResult:
    """The result of one session."""

    rows: tuple[GateRow, ...] = ()
    folder: str = ""
    interrupted: bool = False
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _measure(gate: Gate, base: GateBase, plan: Plan, *, again: bool, left: float | None) -> _SessionResult:
    if not plan.cases and not plan.skips:
        return _SessionResult()
    share = 1.0 if again or not gate.config.confirm else _FIRST_SHARE
    # Another seed: other orders, inputs and offsets. New processes and new checkouts come with every run.
    settings = replace(
        gate.settings, budget=None if left is None else left * share, seed=gate.settings.seed + (1 if again else 0)
    )
    progress = gate.progress()
    if not again and HEAD_IS_BASE in base.notes:
        progress.note(HEAD_IS_BASE)
    if again:
        progress.note(f"{_count(plan.cases)} worse than allowed: measuring again in a fresh session")
    # A text is a line for the shell.
    build = {"build": gate.config.build} if gate.config.build and gate.level == "rebuild" else {}
    done = gate.measure(
        plan,
        host=gate.host,
        settings=settings,
        progress=progress,
        invocation=gate.invocation,
        host_check=gate.host_check,
        **build,
    )
    # Whoever does it again has the whole budget, not what a session had of it.
    asked = replace(settings, budget=gate.settings.budget)
    known = load_calibration(done.run.host_id)
    stored = base.against.baseline.tau if base.against.baseline is not None else {}
    rows = [
        replace(
            row,
            reproduce=gate_command(gate.config, record.case, base=base.commit_of(record.case), settings=asked),
        )
        for record in done.records
        for row in judge_case(
            record,
            rules_of(gate, record.case),
            against=base.against,
            tau=max(tau_of(record.case, known), stored.get(record.case.id, 0.0)),
        )
    ]
    absent = sorted({(m, r.case.id) for r in done.records for m in missing_metrics(r, rules_of(gate, r.case))})
    notes = tuple(f"{metric} is not measured in {case}, so it is not gated there" for metric, case in absent)
    return _SessionResult(
        tuple(rows), str(done.folder), done.run.status == "interrupted", done.problems, () if again else notes
    )


def _measure_again(gate: Gate, base: GateBase, cases: tuple[Case, ...], began: float) -> _SessionResult:
    """Measure the flagged cases once more, unless what they would run is no longer what was flagged.

    Untracked files may change meanwhile, as does the one that the gate's own answer is written to.
    """
    trees = {commits.repo: commits.head for commits in base.commits.values() if not gate.config.head}
    now = {repo: resolve(repo, WORKING_TREE) for repo in trees}
    if moved := [repo for repo, head in trees.items() if not same_tree(repo, head, now[repo])]:
        return _SessionResult(notes=(f"{moved[0]} was changed during the first session: nothing could be confirmed",))
    budget = gate.settings.budget
    left = None if budget is None else max(1.0, budget - (time.monotonic() - began))
    return _measure(gate, base, Plan(cases, ()), again=True, left=left)


def _count(cases: Sequence[Case]) -> str:
    return "1 case looks" if len(cases) == 1 else f"{len(cases)} cases look"


def _outcome(
    gate: Gate, base: GateBase, rows: Sequence[GateRow], *, began: float, sessions: Sequence[_SessionResult] = ()
) -> GateOutcome:
    problems = [problem for each in sessions for problem in each.problems]
    doubt = gate.config.on_inconclusive
    code = gate_exit(
        rows,
        on_inconclusive=doubt,
        level=gate.level,
        interrupted=any(s.interrupted for s in sessions),
        unsaved=bool(problems),
    )
    return GateOutcome(
        level=gate.level,
        rows=tuple(rows),
        exit=code,
        sentence=gate_sentence(rows, code, on_inconclusive=doubt),
        base=base.name,
        head=base.head,
        differences=base.differences,
        runs=tuple(s.folder for s in sessions if s.folder),
        on_inconclusive=doubt,
        seconds=time.monotonic() - began,
        notes=(*base.notes, *(note for s in sessions for note in s.notes), *problems),
    )


def tau_of(case: Case, known: Sequence[Calibration]) -> float:
    """Noise between sessions that a gate must allow for: calibration's upper bound (METHOD 9)."""
    found = of_case(case, known)
    return max(found.tau, found.tau_upper) if found else 0.0
