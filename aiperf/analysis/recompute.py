"""From the pairs of a case to its results and limits: one function for the run and for the recomputation.

What must not live here: reading pairs or records from anywhere, deciding when to stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiperf.analysis.audited import reuse_note
from aiperf.analysis.calibration import effective_threshold
from aiperf.analysis.compare import compare, summarise
from aiperf.analysis.fresh import fresh_note
from aiperf.analysis.latencies import units_missing
from aiperf.analysis.limits import PeakRate, binding, impossible, limits
from aiperf.analysis.memory import forgotten_note
from aiperf.analysis.metrics import DEFAULT_METRIC, MEMORY, case_metrics
from aiperf.analysis.outliers import two_groups
from aiperf.analysis.outside import outputs_fault
from aiperf.analysis.pairs import has_metric, positions, reading, side_run, valid
from aiperf.analysis.unverified import doubted, doubts, refused, unused_note, unverified_notes
from aiperf.analysis.verdict import Fault, decide, statistical_word
from aiperf.analysis.witness import hidden_note
from aiperf.records import Case, CaseRecord, CheckResult, Limit, Note, Pair, Result

Peaks = Mapping[str, PeakRate | tuple[float, str]]
"""Peak -> (amount per second, unit)."""


def recompute(
    record: CaseRecord, pairs: Sequence[Pair], *, width: float, scale: float = 1.0, provisional: bool | None = None
) -> tuple[Result, ...]:
    """Conclude a stored case again from its raw pairs, samples included: equal to those of the run.

    ``width`` and ``scale`` are the run's settings, which a case's record does not hold; the peaks are those its limits
    were held against. Raises ComparisonError as ``conclude`` does.
    """
    if provisional is None:
        provisional = any(r.verdict.provisional for r in record.results)
    return conclude(
        record.case,
        pairs,
        alpha=record.alpha,
        delta=record.threshold,
        width=width,
        scale=scale,
        provisional=provisional,
        peaks={x.peak_name: PeakRate(x.peak, x.unit) for x in record.limits},
        strict=record.strict,
    )


def conclude(
    case: Case,
    pairs: Sequence[Pair],
    *,
    alpha: float,
    delta: float,
    width: float,
    tau: float = 0.0,
    scale: float = 1.0,
    provisional: bool = False,
    peaks: Peaks | None = None,
    strict: bool = False,
) -> tuple[Result, ...]:
    """Every result of a case: primary, time, what else the pairs hold; each ladder step also against the previous.

    ``delta`` is the threshold asked for and ``tau`` the noise between sessions; ``width`` and ``scale`` as in
    ``compare``; ``strict`` refuses what could not be checked and has no reason. Raises ComparisonError when no pair
    counts or the primary metric is missing or zero somewhere; other metrics are left out then.
    """
    threshold, primary = effective_threshold(delta, tau), case.measure.metric
    found = _all_limits(case, pairs, peaks or {})
    notes = against_sides(case, pairs)

    unverified, open_doubts = unverified_notes(pairs, case) if strict else (), doubts(pairs, case, strict=strict)

    def fault_of(*sides: str, metric: str) -> Fault | None:
        """The first that holds: a side is wrong, its time cannot be what the work took, no machine is so fast, strict
        mode refuses it."""
        wrong = failed_check(pairs, sides=sides)
        note = next((note for note in notes if note.values["side"] in sides), None)
        beyond = impossible([x for x in found if x.side in sides])
        return wrong or note or beyond or refused(unverified, sides=sides, metric=metric)

    results = []
    for side, against in comparisons(case):
        for metric in _metrics(case, pairs, sides=(side, against)):
            comparison = compare(
                pairs, case, metric=metric, side=side, against=against,
                alpha=alpha, delta=threshold, width=width, scale=scale,
            )  # fmt: skip
            declared = case_metrics(case)[metric]
            word = statistical_word(comparison.low, comparison.high, threshold=threshold)
            winner = {"improved": side, "regressed": against}.get(word, "") if metric == primary else ""
            o = positions(valid(pairs), side=side, against=against)
            verdict = decide(
                comparison,
                threshold=threshold,
                unsteady_share=unsteady_share(pairs, sides=(side, against)) if declared.steady else 0.0,
                cap=units_missing(pairs, metric=metric, sides=(side, against))
                or not_launched(pairs, sides=(against, side))
                or counted_apart(pairs, metric=metric, sides=(against, side)),
                fault=fault_of(side, against, metric=metric) or doubted(open_doubts, winner=winner, metric=metric),
                two_groups=declared.is_time and two_groups(comparison.log_ratios, o),
                provisional=provisional,
                expect=case.expect if metric == primary and against == case.sides[0].name else "",
            )
            results.append(Result(side, against, comparison, verdict, primary=metric == primary))
    return tuple(results)


_BETWEEN_TOKENS = "inter_token"
"""What the names of such metrics begin with."""


def not_launched(pairs: Sequence[Pair], *, sides: Sequence[str]) -> Note | None:
    """Which of the sides are servers that ran already, so that no launch was repeated; None where none is."""
    found = {run.side for pair in valid(pairs) for run in pair.runs if run.facts.get("launched") is False}
    ran = [side for side in sides if side in found]
    return Note("not_launched", {"sides": ran}) if ran else None


def counted_apart(pairs: Sequence[Pair], *, metric: str, sides: Sequence[str]) -> Note | None:
    """From when the requests of two sides count, where that is not the same moment; None where it is, and for what
    lies between tokens, which does not hang on it."""
    if metric.startswith(_BETWEEN_TOKENS):
        return None
    found = {run.side: run.facts["counted_from"] for p in valid(pairs) for run in p.runs if "counted_from" in run.facts}
    since = {side: str(found.get(side, "schedule")) for side in sides}
    return Note("counted_apart", {"sides": since}) if len({*since.values()}) > 1 else None


def comparisons(case: Case) -> tuple[tuple[str, str], ...]:
    """(side, against) of every comparison: each side with the first, and with the previous one of a ladder."""
    names = [s.name for s in case.sides]
    found = []
    for number, name in enumerate(names[1:], start=1):
        found.append((name, names[0]))
        if number > 1 and not case.alternatives:
            found.append((name, names[number - 1]))
    return tuple(found)


def case_limits(case: Case, pairs: Sequence[Pair], *, peaks: Peaks) -> tuple[Limit, ...]:
    """Find the limit that binds each side, in the case's order; sides without a known peak are left out."""
    found = _all_limits(case, pairs, peaks)
    bound = (binding([x for x in found if x.side == s.name]) for s in case.sides)
    return tuple(x for x in bound if x is not None)


def _all_limits(case: Case, pairs: Sequence[Pair], peaks: Peaks) -> tuple[Limit, ...]:
    used = valid(pairs)
    if not used or not peaks:
        return ()
    how = reading(used, case, metric=DEFAULT_METRIC)
    # A cold device sample is one event pair around one step, so it cannot be shorter than an empty launch; batches can.
    launches = 1 if how.field == "device_s" and case.measure.cache == "cold" else 0
    found: list[Limit] = []
    for side, nodes in ((s.name, s.nodes) for s in case.sides):
        run = side_run(used[0], side)
        work, seconds = run.work if run else {}, summarise(used, side, how=how).value
        found += limits(work, seconds=seconds, peaks=peaks, side=side, launches=launches, nodes=nodes)
    return tuple(found)


def failed_check(pairs: Sequence[Pair], *, sides: Sequence[str]) -> CheckResult | None:
    """Find the first failed check that judges one of ``sides``; None when all passed."""
    failed = (c for p in valid(pairs) for c in p.checks if not c.passed)
    return next((c for c in failed if not c.sides or set(c.sides) & set(sides)), None)


def against_sides(case: Case, pairs: Sequence[Pair]) -> tuple[Note, ...]:
    """What recorded times say against a side, by which its comparisons are invalid, in the case's order."""
    rules = (reuse_note, fresh_note, hidden_note, outputs_fault, forgotten_note, unused_note)
    found = (rule(pairs, case, side.name) for rule in rules for side in case.sides)
    return tuple(note for note in found if note is not None)


def unsteady_share(pairs: Sequence[Pair], *, sides: Sequence[str]) -> float:
    """Share of launches that never became steady, of the worse side; launches without warm-up do not count."""
    shares = [0.0]
    for side in sides:
        runs = [side_run(p, side) for p in valid(pairs)]
        warmups = [r.warmup for r in runs if r is not None and r.warmup is not None]
        if warmups:
            shares.append(sum(not w.steady for w in warmups) / len(warmups))
    return max(shares)


def _metrics(case: Case, pairs: Sequence[Pair], *, sides: Sequence[str]) -> list[str]:
    """List the primary, time, then every other metric that all pairs hold and that says something of its own."""
    first = dict.fromkeys((case.measure.metric, DEFAULT_METRIC))
    left_out = set(first)
    if reading(valid(pairs), case, metric=DEFAULT_METRIC).field == "wall_s":
        left_out.add("wall")
    if case.measure.isolation == "in_process":
        # Both sides share one process: its peaks belong to neither.
        left_out |= set(MEMORY)
    others = (m for m in case_metrics(case) if m not in left_out)
    return [*first, *(m for m in others if has_metric(pairs, case, metric=m, sides=sides))]
