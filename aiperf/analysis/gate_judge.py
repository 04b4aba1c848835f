"""One session of a case held against its bound: a row for each gated metric, before any confirmation.

What must not live here: several sessions, the correction for many rows, exit codes, reading baselines.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiperf.analysis import gate_wording, wording
from aiperf.analysis.calibration import effective_threshold
from aiperf.analysis.estimates import (
    FEWEST_SESSIONS,
    LogEstimate,
    change,
    expectation,
    ratio_estimate,
    regression_p,
    value_estimate,
    value_log,
)
from aiperf.analysis.gate import GateRow, Level, Status
from aiperf.analysis.gate_base import Baseline, BaselineEntry, stored_logs, stored_noise, stored_ratio
from aiperf.analysis.metrics import compared_metric, metric_of
from aiperf.analysis.notes import note_sentence
from aiperf.analysis.outliers import two_groups
from aiperf.analysis.pair_fit import Fit, pairs_needed
from aiperf.analysis.pairs import positions, valid
from aiperf.analysis.verdict import Reason
from aiperf.plan.gates import MetricRule
from aiperf.records import Case, CaseRecord, Comparison, Result

_WEAK = (Reason.TOO_FEW_PAIRS, Reason.NO_SPREAD, Reason.UNSTEADY, Reason.TOO_FEW_UNITS, Reason.TWO_GROUPS)
"""Reasons of the run's own verdict for which its interval supports nothing, whatever it is held against."""


@dataclass(frozen=True)
class GateReference:
    """What the cases of a session are held against."""

    level: Level = "rebuild"
    baseline: Baseline | None = None
    """Of the levels ratio and absolute."""
    side: str = ""
    """Only this side is gated; empty: every side that is compared with the first."""


@dataclass(frozen=True)
class _Bound:
    """How much worse a metric of a case may become, as ratios minus 1."""

    threshold: float
    """The effective one: never below what A/A has shown."""
    allow: float

    @property
    def loss(self) -> float:
        """The loss that is still no regression."""
        return max(self.threshold, self.allow)


@dataclass(frozen=True)
class _Shift:
    """Head against base by the rule of the level."""

    ratio: float
    """Above 1 is better; so are its ends."""
    low: float
    high: float
    p: float
    base_value: float
    """Value of the metric; at the level ratio the speedups of then and now."""
    head_value: float


def judge_case(
    record: CaseRecord, rules: Sequence[MetricRule], *, against: GateReference, tau: float = 0.0
) -> tuple[GateRow, ...]:
    """Rows of one case, one for each gated metric that it has; a case without results has a single row.

    ``tau`` is the noise between sessions of times that calibration knows (log-ratio). A row "regressed" has only been
    flagged: its ``p`` is not adjusted yet and nothing has confirmed it.

    A gate asks one question of the run's interval: is it worse than allowed? With the bound B = 1 / (1 + loss) a row
    is regressed when the interval lies below B, has passed when it lies above, and is inconclusive when it holds B. So
    an interval that is only open upwards passes, though the run's own verdict is inconclusive.
    """
    if (bare := _without_results(record, rules)) is not None:
        return (bare,)
    base = record.case.sides[0].name
    side = against.side if against.level != "rebuild" else ""
    results = [r for r in record.results if r.against == base and r.side == (side or r.side)]
    found = [(result, rule) for rule in rules for result in results if result.comparison.metric == rule.metric]
    if not found:
        sentence = f"none of the gated metrics is measured here: {', '.join(rule.metric for rule in rules)}"
        return (replace(blank_row(record.case, rules[0].metric, "inconclusive", sentence), seconds=record.seconds),)
    return tuple(_row(record, result, rule, against, tau) for result, rule in found)


def missing_metrics(record: CaseRecord, rules: Sequence[MetricRule]) -> tuple[str, ...]:
    """Gated metrics that a measured case does not have."""
    has = {r.comparison.metric for r in record.results}
    return tuple(r.metric for r in rules if r.metric not in has) if record.results else ()


def _without_results(record: CaseRecord, rules: Sequence[MetricRule]) -> GateRow | None:
    """The row of a case that was skipped, failed, or ended before there was anything to judge."""
    status: Status
    if record.status == "skipped":
        fix = f"; {record.skip_fix}" if record.skip_fix else ""
        status, sentence = "skipped", record.skip_reason + fix
    elif record.stop == "unfit":
        causes = [note_sentence(note) for note in record.notes if note.code in ("voided", "host_unfit")]
        causes += [record.failure.message] if record.failure is not None else []
        status, sentence = "unfit", next(iter(causes), "the host disturbed too many pairs")
    elif record.status == "failed":
        status, sentence = "failed", gate_wording.failure(record.failure)
    elif not record.results:
        status, sentence = "inconclusive", f"nothing was concluded: {record.stop or record.status}"
    else:
        return None
    return replace(blank_row(record.case, rules[0].metric, status, sentence), seconds=record.seconds)


def refuse_case(case: Case, rules: Sequence[MetricRule], *, against: GateReference) -> GateRow | None:
    """The row of a case that the baseline cannot be held against, whatever would be measured; None when it can."""
    if against.baseline is None:
        return None
    sides = [side.name for side in case.sides[1:] if side.name == (against.side or side.name)]
    asked = [(side, rule.metric) for rule in rules for side in sides]
    found = [_refusal(case, side, metric, against.baseline, level=against.level) for side, metric in asked]
    if not found or None in found:
        return None
    return blank_row(case, rules[0].metric, *(found[0] or ("no_baseline", "")))


def blank_row(case: Case, metric: str, status: Status, sentence: str) -> GateRow:
    """A row without a number."""
    known = metric_of(case, metric)
    return GateRow(
        case=case.id, scenario=case.scenario, metric=metric, unit=known.unit, better=known.better, status=status,
        sentence=sentence, path=case.path,
    )  # fmt: skip


def _row(record: CaseRecord, result: Result, rule: MetricRule, against: GateReference, tau: float) -> GateRow:
    metric = result.comparison.metric
    tau = tau if compared_metric(result.comparison).is_time else 0.0
    own = rule.threshold if rule.threshold is not None else record.threshold
    bound = _Bound(effective_threshold(own, tau), rule.allowed(record.case.scenario, record.case.id))
    row = replace(
        blank_row(record.case, metric, "inconclusive", result.verdict.sentence),
        seconds=record.seconds,
        side=against.side if against.level == "rebuild" else result.side,
        threshold=bound.loss,
        pairs=result.comparison.pairs,
    )
    if result.verdict.word == "invalid":
        return replace(row, status="invalid")
    entry = None
    if against.baseline is not None:
        entry = against.baseline.entry(record.case.id, result.side, metric)
        if refusal := _refusal(record.case, result.side, metric, against.baseline, level=against.level):
            return replace(row, status=refusal[0], sentence=refusal[1])
    shift = _shift(result, entry, level=against.level, loss=bound.loss, tau=tau)
    return row if shift is None else _judged(row, record, result, shift, bound, against)


def _refusal(case: Case, side: str, metric: str, baseline: Baseline, *, level: Level) -> tuple[Status, str] | None:
    """Why there is nothing to hold a metric against; None when there is."""
    stored, entry = baseline.hash_of(case.id), baseline.entry(case.id, side, metric)
    if stored is not None and stored != case.scenario_hash:
        return "not_comparable", gate_wording.other_scenario(stored, case.scenario_hash)
    if entry is None:
        return "no_baseline", gate_wording.no_entry(case.id, metric)
    if level == "absolute" and len(entry.sessions) < FEWEST_SESSIONS:
        return "no_baseline", gate_wording.too_few_sessions(len(entry.sessions), FEWEST_SESSIONS)
    return None


def _shift(result: Result, entry: BaselineEntry | None, *, level: Level, loss: float, tau: float) -> _Shift | None:
    """Head against base by the level's own rule (METHOD 10); None when the interval has no end."""
    c = result.comparison
    now = ratio_estimate(c)
    if now is None:
        return None
    if entry is None:
        p = regression_p(now, delta=loss)
        return _Shift(c.ratio, c.low, c.high, p, c.before.value, c.after.value)
    if level == "ratio":
        base, noise = stored_ratio(entry), max(tau, stored_noise(entry))
        held = change(now, base, alpha=c.alpha, delta=loss, tau=noise)
        return _Shift(held.ratio, held.low, held.high, held.p, math.exp(base.log), c.ratio)
    known = value_estimate(c.after, pairs=c.pairs, better=c.better)
    value = known or LogEstimate(value_log(c.after.value, c.better), 0.0, 1)
    held = expectation(value, stored_logs(entry), alpha=c.alpha, delta=loss)
    typical = statistics.geometric_mean(s.value for s in entry.sessions)
    return _Shift(held.ratio, held.low, held.high, held.p, typical, c.after.value)


def _judged(
    row: GateRow, record: CaseRecord, result: Result, shift: _Shift, bound: _Bound, against: GateReference
) -> GateRow:
    view = _view(record, result, shift, loss=bound.loss, level=against.level)
    row = replace(
        row, ratio=shift.ratio, low=shift.low, high=shift.high, alpha=result.comparison.alpha,
        before=shift.base_value, after=shift.head_value,
    )  # fmt: skip
    edge = 1 / (1 + bound.loss)
    status: Status = "regressed" if view.high < edge else "passed" if view.low > edge else "inconclusive"
    if doubt := _doubt(record, result, view, status, loss=bound.loss, level=against.level):
        return replace(row, sentence=doubt)
    row, loss = replace(row, status=status, p=shift.p), bound.loss
    speedups = (shift.base_value, shift.head_value) if against.level == "ratio" else None
    if status == "regressed":
        said = gate_wording.regressed(view, loss=loss, allow=bound.allow, speedups=speedups)
        return replace(row, sentence=said)
    if status == "passed":
        said = gate_wording.passed(view, threshold=bound.threshold, loss=loss, speedups=speedups)
        return replace(row, sentence=said)
    more = against.level != "rebuild"
    said = gate_wording.undecided(view, loss=loss, more_sessions=more, speedups=speedups)
    return replace(row, sentence=said, pairs_needed=view.pairs_needed)


def _view(record: CaseRecord, result: Result, shift: _Shift, *, loss: float, level: Level) -> Comparison:
    """The result as a comparison of head with base, for the sentences that comparisons have."""
    c = result.comparison
    base = "base" if level == "rebuild" else "the baseline"
    return replace(
        c,
        before=replace(c.before, side=base),
        after=replace(c.after, side="head"),
        ratio=shift.ratio,
        low=shift.low,
        high=shift.high,
        pairs_needed=_needed(record, c, loss=loss) if level == "rebuild" else None,
    )


def _needed(record: CaseRecord, c: Comparison, *, loss: float) -> int | None:
    """Pairs that would decide on which side of the bound the ratio lies; METHOD 6 with the gap to this one bound."""
    sd = c.sd * record.scale
    unused = dict.fromkeys(("position", "low", "high", "position_low", "position_high"), 0.0)
    spread = Fit(mu=0.0, sd=sd, se=sd / math.sqrt(c.pairs), df=c.pairs - 2, **unused)
    gap = abs(math.log(c.ratio) + math.log1p(loss))
    return pairs_needed(spread, threshold=gap, width=record.width, alpha=c.alpha, pairs=c.pairs)


def _doubt(record: CaseRecord, result: Result, view: Comparison, status: Status, *, loss: float, level: Level) -> str:
    """Why the interval supports nothing, besides holding the bound; empty when it does."""
    orders = positions(valid(record.pairs), side=result.side, against=result.against)
    groups = compared_metric(view).is_time and two_groups(view.log_ratios, orders)
    if groups or result.verdict.reason in _WEAK:
        return wording.odd_spread(result.comparison, same=False) if groups else result.verdict.sentence
    other_side = view.second_ratio >= 1 / (1 + loss) if status == "regressed" else view.second_ratio <= 1 / (1 + loss)
    if level == "rebuild" and status != "inconclusive" and other_side:
        return wording.unstable(view, loss)
    return ""
