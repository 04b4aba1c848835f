"""One row of the bench's table, and the counting behind the rows: numbers in, rows out.

What must not live here: running anything, reading files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.analysis.calibration import CalibrationStatistics, Power, Rate, rate

ANSWERS = {True: "ok", False: "MISS", None: "-"}


@dataclass(frozen=True)
class Figure:
    """What was promised, what was seen."""

    name: str
    target: str
    measured: str
    ok: bool | None = None
    """None: shown for comparison, or not measured here."""


def under(name: str, value: float, limit: float, show: Callable[[float], str]) -> Figure:
    """A figure that must lie below ``limit``."""
    return Figure(name, f"< {show(limit)}", show(value), value < limit)


def at_least(name: str, count: int, of: int, need: int) -> Figure:
    """A count that must reach ``need``."""
    return Figure(name, f">= {need} of {of}", f"{count} of {of}", count >= need)


def seconds(value: float) -> str:
    """A time as people read it."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def percent(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.3g} %"


def mebibytes(value: float) -> str:
    """Bytes in MiB."""
    return f"{value / 2**20:.0f} MiB"


def table(figures: Sequence[Figure]) -> str:
    """The rows under their four headings, aligned."""
    rows = [("figure", "target", "measured", ""), *((f.name, f.target, f.measured, ANSWERS[f.ok]) for f in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


# ---- peers ---------------------------------------------------------------------------------------------------------

CONTRADICTIONS = {
    "equal": frozenset({"improved", "regressed", "invalid"}),
    "plus2": frozenset({"regressed", "invalid"}),
    "plus5": frozenset({"equivalent", "regressed", "invalid"}),
}
"""Kind of pair -> verdicts that its true ratio forbids. At 2 % the truth is the threshold itself: neither
``equivalent`` nor ``improved`` contradicts it, each is within the error that the verdict grants itself."""


def turns_for(ratio: float, *, base: int, start_s: float, turn_s: float) -> int:
    """Turns of a loop for which start-up and loop together take ``ratio`` times as long as with ``base`` turns.

    start + M turn = ratio (start + N turn), hence M = ratio N + (ratio - 1) start / turn.
    """
    return round(ratio * base + (ratio - 1) * start_s / turn_s)


def true_ratio(slow: int, fast: int, *, start_s: float, turn_s: float) -> float:
    """Ratio of the whole programs' times: start-up counts on both sides."""
    return (start_s + slow * turn_s) / (start_s + fast * turn_s)


def is_false(kind: str, word: str) -> bool:
    """Whether the verdict contradicts what is known about this pair."""
    return word in CONTRADICTIONS[kind]


def holds(row: dict[str, Any]) -> bool:
    """Whether the row's interval holds the row's true ratio; a row without an interval does not."""
    low, high = row.get("low"), row.get("high")
    return low is not None and high is not None and low <= row["truth"] <= high


def aiperf_figures(rows: Sequence[dict[str, Any]], *, sessions: int) -> list[Figure]:
    """The promises about aiperf's sessions with programs of known ratio; fewer rows than promised are never ok."""
    own = [r for r in rows if r["tool"] == "aiperf"]
    if not own:
        return [Figure("aiperf against peers", "measured", "no session yet")]
    total, complete = 3 * sessions, len(own) >= 3 * sessions
    wrong = [f"{r['kind']} {r['word']}" for r in own if is_false(r["kind"], r["word"])]
    unfinished = sum(r["word"] == "failed" for r in own)
    plus5 = [r for r in own if r["kind"] == "plus5"]
    found = sum(r["word"] == "improved" for r in plus5)
    held, longest = sum(map(holds, own)), max(r["seconds"] for r in own)
    return [
        Figure(
            "aiperf ab: false verdicts",
            f"0 of {total}",
            f"{len(wrong)} of {len(own)}" + (f" ({', '.join(wrong)})" if wrong else ""),
            not wrong and complete and not unfinished,
        ),
        Figure(
            "aiperf ab: interval holds the true ratio",
            f">= {_share(34, 36, total)} of {total}",
            f"{held} of {len(own)}",
            complete and held >= _share(34, 36, total),
        ),
        Figure(
            "aiperf ab: +5 % called improved",
            f">= {_share(9, 12, sessions)} of {sessions}",
            f"{found} of {len(plus5)}",
            complete and found >= _share(9, 12, sessions),
        ),
        Figure(
            "aiperf ab: longest session", "< 90 s", f"{longest:.0f} s", longest < 90 and complete and not unfinished
        ),
    ]


def _share(count: int, of: int, total: int) -> int:
    """``count`` of ``of`` scaled to ``total``, rounded up."""
    return -(-count * total // of)


def words(rows: Sequence[dict[str, Any]], tool: str, kind: str) -> dict[str, int]:
    """How often the tool said what about this kind."""
    said: dict[str, int] = {}
    for row in rows:
        if (row["tool"], row["kind"]) == (tool, kind):
            said[row["word"]] = said.get(row["word"], 0) + 1
    return said


def peer_figures(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    """What each tool said about each kind of pair, for comparison."""
    figures = []
    for kind in CONTRADICTIONS:
        for tool in ("aiperf", "hyperfine", "pyperf"):
            own = [r for r in rows if (r["tool"], r["kind"]) == (tool, kind)]
            ratios = sorted(r["ratio"] for r in own if r["ratio"] is not None)
            if not ratios:
                continue
            said = ", ".join(f"{count} {word}" for word, count in sorted(words(own, tool, kind).items()))
            spent = sum(r["seconds"] for r in own) / len(own)
            figures.append(
                Figure(
                    f"{kind}, {tool}",
                    f"true {own[0]['truth']:.3f}",
                    f"{ratios[0]:.3f} to {ratios[-1]:.3f}; {said}; {holds_text(own)}{spent:.0f} s each",
                )
            )
    return figures


def holds_text(rows: Sequence[dict[str, Any]]) -> str:
    """How many intervals hold the true ratio; empty for a tool that gives none."""
    given = [r for r in rows if r.get("low") is not None]
    return f"interval holds it {sum(map(holds, given))} of {len(given)}; " if given else ""


# ---- calibration ---------------------------------------------------------------------------------------------------


def bounded(found: Rate) -> str:
    """k of m with the one-sided 95 % Clopper-Pearson upper bound."""
    return f"{found.count} of {found.of} (at most {percent(found.high)})"


def calibration_figures(name: str, judged: CalibrationStatistics) -> list[Figure]:
    """What equal sides promise."""
    covered = judged.coverage
    return [
        Figure(f"{name}: false verdicts", "0", bounded(judged.beyond_threshold), judged.beyond_threshold.count == 0),
        Figure(f"{name}: intervals hold 1", ">= 93 %", _counted(covered), covered.share >= 0.93),
        Figure(
            f"{name}: noise between sessions",
            "shown",
            f"tau {percent(judged.noise.tau)}, threshold {percent(judged.threshold)}",
        ),
    ]


def power_figure(name: str, found: Power) -> Figure:
    """What an injected slowdown promises: 5 % and more always beyond zero, less in four of five sessions."""
    need = 1.0 if found.slowdown >= 0.05 else 0.8
    return Figure(
        f"{name}: +{percent(found.slowdown)} found",
        ">= 80 %" if need < 1 else "all",
        f"{_counted(found.beyond_zero)}; {found.beyond_threshold.count} called regressed, "
        f"{found.covered.count} hold it",
        found.beyond_zero.share >= need,
    )


def _counted(found: Rate) -> str:
    return f"{found.count} of {found.of}"


def sessions_figure(count: int, flags: int) -> Figure:
    """All A/A sessions together: the number from which no flag shows a rate of at most 5 %."""
    if not count:
        return Figure("A/A sessions in all", ">= 59", "none yet")
    return Figure(
        "A/A sessions in all", ">= 59, no false verdict", bounded(rate(flags, count)), count >= 59 and not flags
    )
