"""The line under the table, and the lines above it: what came out in all, where and how it was measured.

What must not live here: layout of rows, colours, files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiperf.analysis.discoveries import Discoveries, discoveries
from aiperf.analysis.verdict import deciding_pairs
from aiperf.records import CaseRecord, Result, RunRecord
from aiperf.records.machines import later_machines, machines
from aiperf.report.numbers import clean, counted
from aiperf.settings import Precision
from aiperf.units import format_duration, format_percent

_START_S = 10.0
"""What a run takes besides its cases without a word."""
_NAMED = 5
"""As many rows as the line about discoveries names, or hosts."""
MOST_LOOKED_AT = 64
"""Pairs at the last look of the most careful shipped precision."""
_VERDICTS = ("improved", "regressed", "equivalent", "inconclusive", "invalid")
_ORDER = (*_VERDICTS, "interrupted", "unfit", "skipped", "failed", "not begun", "no record")


def count_outcomes(records: Iterable[CaseRecord], *, unread: Iterable[str] = ()) -> dict[str, int]:
    """Outcome -> how often, in the order of the summary line; each headline result counts once, zeros are left out.

    ``unread`` is the status of every planned case that has no record.
    """
    counts: Counter[str] = Counter(unread)
    for record in records:
        counts.update([record.outcome(r) for r in record.results if r.primary] or [record.status])
    known = [word for word in _ORDER if counts[word]]
    return {word: counts[word] for word in [*known, *sorted(set(counts) - set(_ORDER))]}


def summary_line(records: Sequence[CaseRecord], *, seconds: float | None = None, unread: Iterable[str] = ()) -> str:
    """``12 improved · 3 equivalent · 1 inconclusive (needs about 55 pairs) · 4 m 12 s``.

    ``unread`` is the status of every planned case that has no record.
    ``seconds`` is the wall time of the run, with the time of the cases where peaks or waiting took much of it; without
    it the cases' own times are added up.
    """
    parts = []
    for word, count in count_outcomes(records, unread=unread).items():
        aside = _needs(records) if word == "inconclusive" else ""
        parts.append(f"{count} {word}{aside}")
    judged = [r.verdict for record in records for r in record.results if record.outcome(r) == r.verdict.word]
    if any(verdict.provisional for verdict in judged):
        parts.append("verdicts provisional")
    in_cases = sum(record.seconds for record in records)
    spent = format_duration(in_cases if seconds is None else seconds)
    if records and seconds is not None and in_cases < seconds - max(_START_S, seconds / 10):
        spent += f", {format_duration(in_cases)} of it in cases"
    return " · ".join([*(parts or ["nothing measured"]), spent])


def discovery_line(run: RunRecord, records: Iterable[CaseRecord]) -> str:
    """How many verdicts hold when their number is paid for, and which do not; empty where there are too few."""
    found = found_in(run, records)
    if found is None:
        return ""
    parts = [
        f"{kept} of {count} {word}"
        for word, kept, count in (
            ("improved", found.improved_kept, found.improved),
            ("regressed", found.regressed_kept, found.regressed),
        )
        if count
    ]
    rate = f"a false discovery rate of {format_percent(found.rate)} over {found.tested} results (Benjamini-Hochberg)"
    more = f" and {len(found.lost) - _NAMED} more" if len(found.lost) > _NAMED else ""
    lost = f"; not: {clean(', '.join(found.lost[:_NAMED]))}{more}" if found.lost else ""
    return f"{' and '.join(parts)} hold at {rate}{lost}" if parts else ""


def found_in(run: RunRecord, records: Iterable[CaseRecord]) -> Discoveries | None:
    """The improvements and regressions of a run, corrected for their number; None when they are too few.

    None too where the run's own record is damaged: at how many looks each was judged is then not known.
    """
    if not run.known:
        return None
    precision = run.settings.get("precision")
    looks = precision.get("looks") if isinstance(precision, Mapping) else None
    results = [
        (_row_name(record, r), r) for record in records for r in record.results if record.outcome(r) == r.verdict.word
    ]
    return discoveries(results, looks=len(looks or Precision().looks))


def _row_name(record: CaseRecord, result: Result) -> str:
    steps = len(record.case.sides) > 2
    return f"{record.case.id} {result.side} vs {result.against}" if steps else record.case.id


def header_lines(run: RunRecord) -> list[str]:
    """Where and how a run was measured, as two lines; one that says so when its own record is damaged."""
    if not run.known:
        return ["the run's own record is damaged: its host, software, precision and end are unknown"]
    return [" · ".join(_where(run)), " · ".join(_how(run))]


def _needs(records: Iterable[CaseRecord]) -> str:
    needed = [
        pairs
        for record in records
        for r in record.results
        if r.primary and record.outcome(r) == "inconclusive" and (pairs := deciding_pairs(r))
    ]
    if not needed:
        return ""
    counted_pairs = f"needs {'up to ' if len(needed) > 1 else ''}about {max(needed)} pairs"
    # More than any precision takes: what else decides it is said.
    return f" ({counted_pairs}{'; use a quieter host or a larger threshold' if max(needed) > MOST_LOOKED_AT else ''})"


def _where(run: RunRecord) -> list[str]:
    host, software = run.host, run.software
    parts = [hosts_text(run), " and ".join(dict.fromkeys(machine_text(machine.host) for machine in machines(run)))]
    if host.get("driver"):
        parts.append(f"driver {host['driver']}")
    libraries = host.get("libraries")
    torch = software.get("torch") or (libraries.get("torch") if isinstance(libraries, Mapping) else None)
    if torch:
        parts.append(f"torch {torch}")
    count = len(run.findings)
    if count:
        parts.append(counted(count, "host finding"))
    return [clean(p) for p in parts]


def hosts_text(run: RunRecord) -> str:
    """The host that a run was measured on, or its nodes, and the machines that came later."""
    names = [machine.name or machine.host_id or "unknown" for machine in machines(run)]
    said = nodes_text(names) if len(names) > 1 else f"host {names[0]}"
    also = [machine.name or machine.host_id for machine in later_machines(run)]
    return f"{said}; also {_few(also)}" if also else said


def nodes_text(names: Sequence[str]) -> str:
    """``2 nodes: m0, m1``: how many nodes, and which."""
    return f"{len(names)} nodes: {_few(names)}"


def _few(names: Sequence[str]) -> str:
    left = len(names) - _NAMED
    return ", ".join(names if left <= 1 else [*names[:_NAMED], f"{left} more"])


def machine_text(host: Mapping[str, Any]) -> str:
    """The GPUs of a recorded host; its CPU where it has none."""
    names = [str(g.get("name")) for g in host.get("gpus") or () if isinstance(g, Mapping)]
    if names:
        counts = Counter(names)
        return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())
    cpu = host.get("cpu_model")
    return f"{cpu}, no GPU" if cpu else "no GPU"


def _how(run: RunRecord) -> list[str]:
    precision, given = run.settings.get("precision"), run.settings.get("taken")
    taken = {str(k): clean(str(v)) for k, v in given.items()} if isinstance(given, Mapping) else {}
    parts = [f"precision {taken.pop('precision', run.precision)}"]
    if isinstance(precision, Mapping):
        if precision.get("delta"):
            parts.append(f"δ {format_percent(float(precision['delta']))}")
        if precision.get("looks"):
            parts.append(f"up to {list(precision['looks'])[-1]} pairs a case")
    budget = run.settings.get("budget")
    if budget and "budget" not in taken:
        parts.append(f"budget {format_duration(float(budget))}")
    parts += [f"{option} {value}" for option, value in taken.items()]
    if run.status == "interrupted":
        parts.append("interrupted")
    return parts


def over_budget(records: Sequence[CaseRecord], budget: float | None) -> list[str]:
    """That the cases took longer than the budget that was given for them, where they did."""
    seconds = sum(record.seconds for record in records)
    if not budget or seconds <= budget:
        return []
    which, gets = ("case", "a case always completes") if len(records) == 1 else ("cases", "every case gets")
    return [
        f"the {which} took {format_duration(seconds)}, longer than the budget of {format_duration(budget)}: "
        f"{gets} its first look"
    ]
