"""What ``aiperf calibrate`` prints: false positives with their bound, coverage, noise floor, threshold, power.

What must not live here: running sessions, the statistics over them.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.analysis.calibration import CalibrationStatistics, Power, Rate, sessions_needed
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.records import CaseRecord
from aiperf.records.calibration import Calibration
from aiperf.report.columns import text_table
from aiperf.report.layout.text import Line, wrap
from aiperf.report.numbers import format_percent


def calibration_lines(
    found: CalibrationStatistics, powers: Sequence[Power] = (), *, name: str, mode: str, width: int = 100
) -> list[Line]:
    """Say what sessions of equal sides showed of the scenario ``name`` measured in ``mode``, then the power table."""
    count = found.coverage.of
    title = f"{name} ({mode}): {count} sessions of a side against its copy"
    tau, tau_bound = (format_percent(x) for x in (found.noise.tau, found.noise.tau_upper))
    rows = [
        ["false verdicts", share(found.beyond_threshold), at_most(found.beyond_threshold)],
        ["intervals that exclude 1", share(found.beyond_zero), at_most(found.beyond_zero)],
        ["intervals that hold 1", share(found.coverage), f"at least {format_percent(found.coverage.low)}"],
        ["noise between sessions (tau)", tau, f"at most {tau_bound}"],
        ["interval scale", f"× {found.scale.factor:.3g}", _scale(found)],
        ["effective threshold", format_percent(found.threshold), "verdicts at this precision use it on this host"],
    ]
    lines = [Line(title, "bold"), *text_table(["", "seen", "bound"], rows, width=width)]
    lines += [Line(part) for part in wrap(_proof(found.beyond_threshold), width)]
    return [*lines, Line(""), *power_lines(powers, width=width)] if powers else lines


def stored_lines(stored: Sequence[Calibration], *, width: int = 100) -> list[Line]:
    """Lay out what earlier calibrations of this host found, one line each."""
    rows = [
        [
            s.scenario,
            s.mode,
            f"{s.false_positives} of {s.sessions} (at most {format_percent(s.bound)})",
            format_percent(s.tau),
            format_percent(s.threshold),
            s.when[:16].replace("T", " "),
        ]
        for s in stored
    ]
    titles = ["scenario", "mode", "false verdicts", "tau", "threshold", "when (UTC)"]
    lines = text_table(titles, rows, width=width, right=(3, 4))
    return lines or [Line("This host has not been calibrated yet: run aiperf calibrate.")]


def session_line(what: str, number: int, of: int, record: CaseRecord) -> str:
    """Say in one line how one session of a calibration ended."""
    time = next((r for r in record.results if r.comparison.metric == DEFAULT_METRIC), None)
    result: str = record.status
    if time is not None:
        c = time.comparison
        result = f"{time.verdict.word}  {c.ratio:.4f}  [{c.low:.4f}, {c.high:.4f}]  {c.pairs} pairs"
    return f"{record.case.scenario} {what} {number}/{of}: {result}  {record.seconds:.0f} s"


def power_lines(powers: Sequence[Power], *, width: int = 100) -> list[Line]:
    """Lay out how often each injected slowdown was found."""
    rows = [
        [f"+{format_percent(p.slowdown)}", share(p.beyond_zero), share(p.beyond_threshold), share(p.covered)]
        for p in powers
    ]
    return text_table(["injected", "beyond zero", "called regressed", "interval holds it"], rows, width=width)


def share(rate: Rate) -> str:
    """``1 of 59``: counts, because a share of few says less than its bound."""
    return f"{rate.count} of {rate.of}"


def at_most(rate: Rate) -> str:
    """``at most 4.95 %, 95 % sure``: the Clopper-Pearson bound, never just the share."""
    return f"at most {format_percent(rate.high)}, {format_percent(rate.confidence)} sure"


def _scale(found: CalibrationStatistics) -> str:
    scale = found.scale
    if scale.factor > 1:
        return f"standard errors are too small by this factor ({scale.sessions} sessions)"
    return f"nothing asks for wider intervals ({scale.sessions} sessions)"


def _proof(false_verdicts: Rate) -> str:
    if false_verdicts.high <= 0.05:
        return "This many sessions show a false-positive rate of at most 5 %."
    needed = sessions_needed(false_verdicts.count)
    return f"To show a rate of at most 5 % with {false_verdicts.count} false verdicts takes {needed} sessions."
