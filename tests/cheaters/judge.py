"""What came of one run of an entry, read from its record: caught, told, missed or harmless.

Only codes count: the verdict's word, kinds of checks and failures, codes of notes, kinds of incidents. No sentence is
read. What must not live here: running anything, and tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from aiperf.records import CaseRecord, Pair
from tests.cheaters.entries import Entry

Word = Literal["caught", "told", "missed", "undecided", "harmless", "skipped"]
"""caught: the verdict is invalid, or there is none because every pair was void for what the side did, or the case
failed for a reason that is about the cheat. told: a note or an incident
that is about trust stands beside a verdict. missed: the cheat came out as an improvement, and nothing was said; or
the case failed for another reason, or aiperf itself did. undecided: nothing was said, and the verdict is inconclusive,
with an improvement in its interval. harmless: nothing was said, and the cheat won nothing. skipped: the host cannot run
it."""

PLAIN_NOTES = frozenset({
    "verdict_reached", "narrow_enough", "most_pairs", "budget_spent", "ended_at_look", "voided", "host_unfit", "drift",
    "invariant_moved", "invariant_changed", "temperature", "latencies_missing", "latencies_few", "latencies_zero",
    "metric_zero", "latency_bounds", "units_missing", "not_launched", "counted_apart", "one_after_another",
    "no_cpu_time", "memory_below", "text", "same_code", "same_sides", "sliced", "no_verdict_in_reach",
    "source_figures",
})  # fmt: skip
"""Codes of notes that say nothing about trust in a side."""
TRUST_NOTES = frozenset({
    "audit_time", "fresh_inputs", "hidden_time", "work_in_outputs", "time_outside", "first_elsewhere", "cpu_time_same",
    "stragglers", "uneven_runs", "first_run_slower", "unequal_gpu_work", "inputs_undeclared", "inputs_fixed",
    "outputs_unpoisoned", "latencies_reported", "doubted", "unverified", "prints_otherwise", "nothing_returned",
    "nothing_printed", "files_uncompared", "memory_forgotten", "memory_elsewhere", "tolerance_used", "batches_only",
    "suspected",
    "scheduled_apart", "outputs_unmoved", "values_reported", "first_run_files", "inputs_unnamed", "inputs_unused",
})  # fmt: skip
"""Codes of notes that do; every code of aiperf is in one of the two sets, which a test holds."""
PLAIN_INCIDENTS = frozenset({
    "thermal", "power_brake", "power_cap", "sync_boost", "foreign_gpu_process", "foreign_cpu", "clock", "xid", "steal",
    "sampling_cost", "telemetry", "leftover_process",
})  # fmt: skip
"""Kinds of incidents that are about the host; every other kind is about a side."""
PLAIN_FAILURES = frozenset({"crash", "signal", "hang", "oom_host", "oom_device", "dead_rank", "error", "store"})
"""Kinds of failures that any program may have; every other kind says that something was forged or wrong."""


@dataclass(frozen=True)
class Judged:
    """One run of one entry."""

    name: str
    seed: int
    outcome: Word
    signs: tuple[str, ...] = ()
    """What said so: ``outputs:after``, ``note:x``, ``incident:x``, ``failure:protocol``."""
    word: str = ""
    """Of the verdict on the metric that the cheat is about; ``failed``, ``skipped`` or ``no record`` without one."""
    ratio: float | None = None
    seconds: float = 0.0
    code: str = ""
    """Of aiperf and the sides, so that a row of other code is not taken for one of this."""
    host: str = ""
    strict: Word | Literal[""] = ""
    """The outcome with ``--strict``, judged from the same samples; empty in rows of before it was."""

    @property
    def key(self) -> tuple[str, int]:
        """What it is the run of."""
        return self.name, self.seed


def judge(entry: Entry, seed: int, record: CaseRecord | None, strictly: CaseRecord | None = None) -> Judged:
    """What came of a run; None: aiperf left no record of it, whatever the reason. ``strictly``: the same run as strict
    mode concludes it; None where that makes no difference."""
    found = _judge(entry, seed, record)
    return replace(found, strict=_judge(entry, seed, strictly).outcome if strictly else found.outcome)


def _judge(entry: Entry, seed: int, record: CaseRecord | None) -> Judged:
    if record is None:
        return Judged(entry.name, seed, "missed", word="no record")
    if record.status == "skipped":
        return Judged(entry.name, seed, "skipped", word="skipped", seconds=record.seconds)
    if record.failure is not None:
        kind = f"failure:{record.failure.kind}"
        outcome: Word = "missed" if record.failure.kind in PLAIN_FAILURES else "caught"
        return Judged(entry.name, seed, outcome, (kind,), "failed", seconds=record.seconds)
    result = next((r for r in record.results if r.comparison.metric == entry.metric), None)
    word, ratio = (result.verdict.word, result.comparison.ratio) if result else ("none", None)
    found, signs = _outcome(entry, record, word)
    return Judged(entry.name, seed, found, signs, word, ratio, record.seconds)


def _outcome(entry: Entry, record: CaseRecord, word: str) -> tuple[Word, tuple[str, ...]]:
    checks = {
        f"{check.kind}:{'+'.join(check.sides)}" for pair in record.pairs for check in pair.checks if not check.passed
    }
    said = tuple(sorted({*checks, *_notes(entry, record), *_incidents(entry, record)}))
    if word == "invalid":
        reasons = {r.verdict.reason for r in record.results if r.verdict.word == "invalid"}
        return "caught", said or tuple(sorted(reasons))
    if word == "none" and record.pairs and all(_voided(entry, pair) for pair in record.pairs):
        return "caught", said
    if said:
        return "told", said
    wins = "improved" if entry.cheater == "after" else "regressed"
    nothing_said: dict[str, Word] = {wins: "missed", "inconclusive": "undecided"}
    return "harmless" if _excludes_win(entry, record) else nothing_said.get(word, "harmless"), ()


def _voided(entry: Entry, pair: Pair) -> bool:
    """Whether a pair does not count for what the cheating side did in it."""
    return any(i.voids and i.kind not in PLAIN_INCIDENTS and _about(entry, [i.side]) for i in pair.incidents)


def _excludes_win(entry: Entry, record: CaseRecord) -> bool:
    """Whether the interval of an inconclusive verdict holds no improvement of the cheating side."""
    found = (r for r in record.results if r.comparison.metric == entry.metric)
    result = next((r for r in found if r.verdict.reason == "interval_straddles"), None)
    if result is None:
        return False
    most = result.comparison.high if entry.cheater == "after" else 1 / result.comparison.low
    return most < 1 + result.verdict.threshold


def _about(entry: Entry, sides: Iterable[str]) -> bool:
    """Whether what is said of these sides is said of the cheat: of the side that cheats, or of one that is harmed."""
    named = {side for side in sides if side}
    return not named or entry.honest or entry.group == "harm" or entry.cheater in named


def _notes(entry: Entry, record: CaseRecord) -> set[str]:
    notes = (note for note in record.notes if note.code not in PLAIN_NOTES)
    return {f"note:{n.code}" for n in notes if _about(entry, n.values.get("sides", [n.values.get("side", "")]))}


def _incidents(entry: Entry, record: CaseRecord) -> set[str]:
    incidents = (i for pair in record.pairs for i in pair.incidents if _about(entry, [i.side]))
    return {f"incident:{i.kind}" for i in incidents if i.kind not in PLAIN_INCIDENTS}
