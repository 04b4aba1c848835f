"""What sessions of equal sides showed: false positives with their bound, coverage, noise floor, threshold, power.

What must not live here: running sessions, the statistics over them.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.analysis.calibration import CalibrationStatistics, Power, Rate, sessions_needed
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.records import CaseRecord
from aiperf.report.layout.page import Page, Sentences
from aiperf.report.layout.table import listing
from aiperf.units import format_duration, format_percent


def calibration_page(found: CalibrationStatistics, powers: Sequence[Power] = (), *, name: str, mode: str) -> Page:
    """What was found of the scenario ``name`` measured in ``mode``, then how often each injected slowdown was found."""
    title = f"{name} ({mode}): {found.coverage.of} A/A sessions"
    tau, tau_bound = (format_percent(x) for x in (found.noise.tau, found.noise.tau_upper))
    rows = [
        ["false verdicts", share(found.beyond_threshold), at_most(found.beyond_threshold)],
        ["intervals that exclude 1", share(found.beyond_zero), at_most(found.beyond_zero)],
        ["intervals that include 1", share(found.coverage), f"at least {format_percent(found.coverage.low)}"],
        ["noise between sessions (tau)", tau, f"at most {tau_bound}"],
        ["interval scale", f"× {found.scale.factor:.3g}", _scale(found)],
        ["effective threshold", format_percent(found.threshold), "verdicts at this precision use it on this host"],
    ]
    power = [
        [f"+{format_percent(p.slowdown)}", share(p.beyond_zero), share(p.beyond_threshold), share(p.covered)]
        for p in powers
    ]
    return [
        [
            Sentences([title], style="bold", mark="### "),
            listing(["", "seen", "bound"], rows),
            Sentences([_proof(found.beyond_threshold)]),
        ],
        [listing(["injected", "beyond zero", "called regressed", "interval includes it"], power)],
    ]


def session_line(what: str, number: int, of: int, record: CaseRecord) -> str:
    """Say in one line how one session of a calibration ended."""
    time = next((r for r in record.results if r.comparison.metric == DEFAULT_METRIC), None)
    result: str = record.status
    if time is not None:
        c = time.comparison
        result = f"{time.verdict.word}  {c.ratio:.4f}  [{c.low:.4f}, {c.high:.4f}]  {c.pairs} pairs"
    return f"{record.case.scenario} {what} {number}/{of}: {result}  {format_duration(record.seconds)}"


def share(rate: Rate) -> str:
    """``1 of 59``: counts, because a share of few says less than its bound."""
    return f"{rate.count} of {rate.of}"


def at_most(rate: Rate) -> str:
    """``at most 4.95 %, 95 % sure``: the Clopper-Pearson bound, never just the share."""
    return f"at most {format_percent(rate.high)} ({format_percent(rate.confidence)} confidence)"


def _scale(found: CalibrationStatistics) -> str:
    scale = found.scale
    if scale.factor > 1:
        return f"standard errors are too small by this factor ({scale.sessions} sessions)"
    return f"no wider intervals are needed ({scale.sessions} sessions)"


def _proof(false_verdicts: Rate) -> str:
    if false_verdicts.high <= 0.05:
        return "This many sessions show a false-positive rate of at most 5 %."
    needed = sessions_needed(false_verdicts.count)
    return f"To show a rate of at most 5 % with {false_verdicts.count} false verdicts takes {needed} sessions."
