"""The trend of a case: one block a host, one line a run, what changed between them; for people and as JSON.

What must not live here: finding change points, choosing series, files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from aiperf.analysis.gate import Difference
from aiperf.analysis.notes import note_sentences
from aiperf.analysis.trend import FEWEST_POINTS, SHORTEST, Point, Series, Step
from aiperf.records import SCHEMA_VERSION
from aiperf.report.compare_table import aligned
from aiperf.report.layout.text import STYLES, Line, wrap
from aiperf.report.numbers import (
    DASH,
    clean,
    confidence,
    format_change,
    format_change_interval,
    format_interval,
    format_ratio,
    format_value,
)
from aiperf.report.views.run_rows import build_rows
from aiperf.store.codec import dump_json

_BLOCKS, _PLAIN = "▁▂▃▄▅▆▇█", "_.-~=+*#"
_LOST = ("commit", "after", "interval")
"""What a narrow terminal loses, in this order; never the ratio or the verdict."""
_SHOWN = 32
"""Characters of a value that changed between two runs that are shown."""
_LEAST_SPARK = 10


def sparkline(
    values: Sequence[float | None], *, begins: Collection[int] = (), room: int = 60, ascii_only: bool = False
) -> str:
    """Draw values as one character each, lowest to highest; a gap is a blank, a bar stands before each of ``begins``.

    What does not fit into ``room`` is lost at the old end, which then begins with an ellipsis.
    """
    levels = _PLAIN if ascii_only else _BLOCKS
    known = [v for v in values if v is not None]
    if not known:
        return ""
    low, span = min(known), max(known) - min(known)
    drawn = ""
    for place, value in enumerate(values):
        bar = ("|" if ascii_only else "│") if place in begins else ""
        height = round((value - low) / span * (len(levels) - 1)) if value is not None and span > 0 else len(levels) // 2
        drawn += bar + (" " if value is None else levels[height])
    if len(drawn) <= room:
        return drawn
    mark = "..." if ascii_only else "…"
    return mark + drawn[len(drawn) - room + len(mark) :]


def can_draw(encoding: str | None) -> bool:
    """Whether a stream of this encoding can hold the sparkline's blocks."""
    try:
        f"{_BLOCKS}│".encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def history_lines(
    found: Sequence[Series], *, hidden: Sequence[Series] = (), width: int = 100, ascii_only: bool = False
) -> list[Line]:
    """Lay out every series in at most ``width`` cells; ``hidden`` are those of other hosts, which are only counted."""
    lines: list[Line] = []
    for series in found:
        lines += [*_block(series, width=width, ascii_only=ascii_only), Line("")]
    return lines + [Line(part) for text in history_notes(found, hidden=hidden) for part in wrap(text, width)]


def history_json(found: Sequence[Series], *, hidden: Sequence[Series] = (), warnings: Sequence[str] = ()) -> str:
    """Return the series as one JSON document; what was not measured is null."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "series": [_plain(series) for series in found],
        "notes": history_notes(found, hidden=hidden),
        "warnings": list(warnings),
    }
    return dump_json(document).decode("utf-8")


def history_notes(found: Sequence[Series], *, hidden: Sequence[Series] = ()) -> list[str]:
    """What the lines hold and what they do not."""
    said = []
    if hidden:
        hosts = list(dict.fromkeys(series.host for series in hidden))
        runs = {point.run.run for series in hidden for point in series.points}
        one = f"host {hosts[0]}" if len(hosts) == 1 else f"{len(hosts)} other hosts"
        said.append(f"{one} with {_count(len(runs), 'run')} not shown: --all-hosts, each in a block of its own")
    alphas = {p.result.comparison.alpha for s in found for p in s.points if p.result}
    if len(alphas) == 1:
        said.append(f"intervals: {confidence(alphas.pop())} within a run")
    steps = [step for series in found for step in (*series.ratio_steps, *series.value_steps)]
    if steps:
        level = confidence(steps[0].alpha)
        said.append(
            f"step: from that run on, for at least {SHORTEST} runs, another level; its interval ({level}) takes the "
            "place as given. It is a reason to look, not a verdict"
        )
    if any(series.value_steps for series in found):
        said.append("a side's own value moves with the machine and the day too; in the speedup they cancel")
    if any(_longest(series) < FEWEST_POINTS for series in found):
        said.append(f"steps are looked for among at least {FEWEST_POINTS} runs that ask the same question")
    return said


def _block(series: Series, *, width: int, ascii_only: bool) -> list[Line]:
    heading = [series.case]
    if series.side not in ("", "after") or series.against not in ("", "before"):
        heading.append(f"{series.side} vs {series.against}" if series.against else series.side)
    if series.metric != "time":
        heading.append(series.metric)
    heading.append(f"host {series.host} ({', '.join(series.hostnames)})")
    days = [point.run.started[:10] for point in series.points if point.run.started]
    span = f", {days[0]} … {days[-1]}" if days and days[0] != days[-1] else f", {days[0]}" if days else ""
    lines = [Line(part, "bold") for part in wrap(clean(" · ".join(heading)), width, indent="  ")]
    lines += [Line(f"{_count(len(series.points), 'run')}{span}")]
    lines += _sparks(series, width=width, ascii_only=ascii_only)
    return lines + _run_lines(series, width)


def _sparks(series: Series, *, width: int, ascii_only: bool) -> list[Line]:
    unit = _unit(series)
    points = series.points
    ratios = [p.log_ratio for p in points], series.ratio_steps, [_ratio_text(p) for p in points]
    values = [p.log_value for p in points], series.value_steps, [_value_text(p, unit) for p in points]
    rows = [(_ratio_name(series), *ratios), (series.side, *values)]
    names = max(len(name) for name, *_ in rows)
    lines = []
    for name, logs, steps, texts in rows:
        known = [(log, text) for log, text in zip(logs, texts, strict=True) if log is not None]
        if len(known) < 2:
            continue
        ends = f"{min(known)[1]} … {max(known)[1]}"
        room = max(_LEAST_SPARK, width - names - len(ends) - 4)
        drawn = sparkline(logs, begins={s.index for s in steps}, room=room, ascii_only=ascii_only)
        lines.append(Line(f"{name:<{names}}  {drawn}  {ends}"))
    return lines


def _run_lines(series: Series, width: int) -> list[Line]:
    unit = _unit(series)
    titles = (" when (UTC)", "commit", _ratio_name(series), "interval", "after", "verdict")
    told = [p for p in series.points if p.value is not None]
    title, *texts = aligned(titles, [_cells(p, unit) for p in told], width=width, lost=_LOST) if told else [""]
    lines = [Line(title, "bold")] if told else []
    ready = iter(texts)
    for place, point in enumerate(series.points):
        lines += [Line(part) for text in _before(point) for part in wrap(f"     {text}", width, indent="       ")]
        if point.value is not None:
            text, word = next(ready), _word(point)
            lines.append(Line(text, STYLES.get(word.split(" ")[0], ""), max(0, len(text) - len(word))))
        else:
            status = f" {_when(point)}  {_word(point)}: {_why(point)}"
            lines += [Line(part, "dim") for part in wrap(status, width, indent="     ")]
        lines += [
            Line(part, "bold")
            for text in _after(series, place, point)
            for part in wrap(f"     {text}", width, indent="       ")
        ]
    return lines


def _cells(point: Point, unit: str) -> list[str]:
    c = point.result.comparison if point.result else None
    interval = format_interval(c.low, c.high) if c else DASH
    return [f" {_when(point)}", _commit(point), _ratio_text(point), interval, _value_text(point, unit), _word(point)]


def _before(point: Point) -> list[str]:
    """What changed since the run above."""
    said = []
    if point.breaks:
        said.append(f"another question from here on, so the trend begins anew: {_changes(point.breaks)}")
    # The commit has a column of its own.
    changed = [d for d in point.changed if not d.name.startswith("git.")]
    if changed:
        said.append(f"changed: {_changes(changed)}")
    return said


def _after(series: Series, place: int, point: Point) -> list[str]:
    """What has to be known of this run."""
    said = [_step_text(_ratio_name(series), s) for s in series.ratio_steps if s.index == place]
    said += [_step_text(f"{series.side}'s own value", s) for s in series.value_steps if s.index == place]
    if said:
        said[-1] += f"; this run: {clean(point.run.run)}"
    if not point.run.known:
        said.append("this run's own record is damaged: when it began, its host and its commit are unknown")
    if point.run.status == "running":
        said.append("this run is not finished: still going on, or killed")
    if point.value is not None and not point.counts and point.result:
        said.append(f"not in the trend: {_sentence(point)}")
    return said


def _step_text(name: str, step: Step) -> str:
    ends = format_change_interval(step.low - 1, step.high - 1)
    return f"step: {name} {format_change(step.ratio - 1)} ({ends})"


def _changes(found: Iterable[Difference]) -> str:
    return ", ".join(clean(f"{d.name} {_short(d.then)} → {_short(d.now)}") for d in found)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _when(point: Point) -> str:
    """``2026-11-20 18:05``, or the run's name where it does not say."""
    started = point.run.started
    return f"{started[:10]} {started[11:16]}" if len(started) >= 16 else clean(point.run.run)


def _commit(point: Point) -> str:
    sha = point.run.git.get("sha", "")
    return f"{clean(sha[:8])}{'+' if point.run.git.get('diff') else ''}" if sha else DASH


def _word(point: Point) -> str:
    if point.result is None:
        return point.record.status if point.record.status != "measured" else "no number"
    word, verdict = point.record.outcome(point.result), point.result.verdict
    return f"{word} (provisional)" if verdict.provisional and word == verdict.word else word


def _sentence(point: Point) -> str:
    """What is to be said of a run's result, as its own table says it."""
    told = build_rows([replace(point.record, results=(point.result,))]) if point.result else None
    return told.rows[0].sentence if told else ""


def _why(point: Point) -> str:
    """Why a run has no number."""
    record = point.record
    if record.results or record.summaries:
        return "it does not hold this metric"
    if record.status == "imported":
        return "; ".join(map(clean, note_sentences(record))) or "the file holds no readings of it"
    return build_rows([record]).rows[-1].sentence


def _ratio_text(point: Point) -> str:
    c = point.result.comparison if point.result else None
    return format_ratio(c.ratio, c.low, c.high) if c else DASH


def _value_text(point: Point, unit: str) -> str:
    return format_value(point.value.summary.value if point.value else None, unit)


def _unit(series: Series) -> str:
    return next((point.value.unit for point in series.points if point.value is not None), "")


def _ratio_name(series: Series) -> str:
    return "speedup" if _unit(series) == "s" else "ratio"


def _longest(series: Series) -> int:
    """Most runs with a number between two changes of the question."""
    longest = count = 0
    for point in series.points:
        count = (0 if point.breaks else count) + point.counts
        longest = max(longest, count)
    return longest


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _plain(series: Series) -> dict[str, Any]:
    steps = [("speedup", step) for step in series.ratio_steps] + [("value", step) for step in series.value_steps]
    return {
        "case": series.case,
        "scenario": series.scenario,
        "host_id": series.host,
        "hostnames": series.hostnames,
        "metric": series.metric,
        "unit": _unit(series),
        "side": series.side,
        "against": series.against,
        "points": [_point_plain(point) for point in series.points],
        "steps": [
            {
                "of": of,
                "index": s.index,
                "run": series.points[s.index].run.run,
                "ratio": s.ratio,
                "low": s.low,
                "high": s.high,
                "alpha": s.alpha,
            }
            for of, s in steps
        ],
    }


def _point_plain(point: Point) -> dict[str, Any]:
    c = point.result.comparison if point.result else None
    return {
        "run": point.run.run,
        "started": point.run.started,
        "run_status": point.run.status,
        "status": point.record.status,
        "precision": point.record.precision,
        "git": point.run.git,
        "before": c.before.value if c else None,
        "after": point.value.summary.value if point.value else None,
        "ratio": c.ratio if c else None,
        "low": c.low if c else None,
        "high": c.high if c else None,
        "alpha": c.alpha if c else None,
        "verdict": point.record.outcome(point.result) if point.result else None,
        "provisional": _word(point).endswith(" (provisional)"),
        "sentence": _sentence(point) or (_why(point) if point.value is None else ""),
        "replicate": point.record.replicate,
        "in_trend": point.counts,
        "changed": point.changed,
        "breaks": point.breaks,
    }
