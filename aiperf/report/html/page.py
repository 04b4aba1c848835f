"""The HTML page of a run: one self-contained file, with as many cases in full as its size allows.

What must not live here: what is said of a run (view.py) or of a case (case_view.py), drawing, files being written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiperf import __version__
from aiperf.records import CaseRecord, Pair, RunRecord
from aiperf.records.profiled import Profile
from aiperf.report.break_even import break_even_lines
from aiperf.report.html.case_view import CaseView, case_view
from aiperf.report.html.load import load_curves
from aiperf.report.html.outcome import GLYPHS, need, outcome_class
from aiperf.report.html.speedups import MOST_NAMED, speedup_chart
from aiperf.report.html.sweep import sweeps
from aiperf.report.html.templates import source, templates
from aiperf.report.html.view import NUMBERS, Overview, command, facts, libraries, overview, page_columns, sort_keys
from aiperf.report.summary import discovery_line, header_lines, summary_line
from aiperf.report.views.run_rows import RunTable

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_BYTES = 2_950_000
"""Of the whole file; the table of all cases is never cut, details of cases are."""
_LINK_BYTES = 24
"""What a row grows by when its case is shown in full."""


@dataclass(frozen=True)
class _Detail:
    """A case in full, as HTML, and the scenario that it stands under."""

    anchor: str
    scenario: str
    html: str


@dataclass(frozen=True)
class _Section:
    """A scenario's curves over its axes, as HTML, and its cases in full."""

    scenario: str
    sweeps: str
    details: tuple[str, ...]


def render_html(
    run: RunRecord,
    records: Sequence[CaseRecord],
    *,
    pairs: Callable[[CaseRecord], tuple[Pair, ...]],
    warnings: Sequence[str] = (),
    only: Collection[str] = (),
    profiles: Sequence[Profile] = (),
    most_bytes: int = MOST_BYTES,
) -> str:
    """Return the page of ``run``, which needs nothing but itself.

    ``pairs`` reads the samples of a case and is called for those that are shown in full: in the order of need, until
    ``most_bytes`` are used up. ``only`` names the ids of the cases to show in full instead.
    ``profiles`` are those of its cases.
    """
    environment = templates()
    found = overview(run, records, warnings=warnings)
    base = _page(environment, run, records, found, warnings=warnings, only=only, details={}, curves={})
    room = most_bytes - len(base.encode("utf-8", "replace"))
    by_case = {profile.case: profile for profile in profiles}

    def view(record: CaseRecord) -> CaseView:
        return case_view(run, record, pairs=pairs, profile=by_case.get(record.case.id))

    details, curves = _details(environment, _in_need(records, only, found), records, view=view, room=room)
    return _page(environment, run, records, found, warnings=warnings, only=only, details=details, curves=curves)


def _in_need(records: Sequence[CaseRecord], only: Collection[str], found: Overview) -> list[CaseRecord]:
    """The cases to show in full: the worst outcomes first, the rest in plan order."""
    words: dict[str, set[str]] = {}
    for row in found.rows:
        words.setdefault(row.case, set()).add(row.outcome)
    wanted = [r for r in records if not only or r.case.id in only]
    # Of cases that are skipped for one reason the table has one row, and nothing more is to be said of each.
    wanted = [r for r in wanted if only or r.case.id in words]
    return sorted(wanted, key=lambda r: need(words.get(r.case.id, set())))


def _details(
    environment: Environment,
    wanted: Sequence[CaseRecord],
    records: Sequence[CaseRecord],
    *,
    view: Callable[[CaseRecord], CaseView],
    room: int,
) -> tuple[dict[str, _Detail], dict[str, str]]:
    """Cases in full by id and curves by scenario, until the room is used up."""
    places = {r.case.id: place for place, r in enumerate(records)}
    by_scenario: dict[str, list[CaseRecord]] = {}
    for record in records:
        by_scenario.setdefault(record.case.scenario, []).append(record)
    details: dict[str, _Detail] = {}
    curves: dict[str, str] = {}
    for record in wanted:
        scenario, anchor = record.case.scenario, f"c{places[record.case.id]}"
        html = environment.get_template("case.html.j2").render(case=view(record), anchor=anchor)
        curve = "" if scenario in curves else _curves(environment, by_scenario[scenario])
        room -= len(html.encode("utf-8", "replace")) + len(curve.encode("utf-8", "replace")) + _LINK_BYTES
        if room < 0:
            break
        details[record.case.id] = _Detail(anchor, scenario, html)
        curves.setdefault(scenario, curve)
    return details, curves


def _curves(environment: Environment, records: Sequence[CaseRecord]) -> str:
    found = [*sweeps(records), *load_curves(records)]
    sides = list(dict.fromkeys(s.name for r in records for s in r.case.sides))
    return environment.get_template("sweep.html.j2").render(sweeps=found, sides=sides) if found else ""


def _page(
    environment: Environment,
    run: RunRecord,
    records: Sequence[CaseRecord],
    found: Overview,
    *,
    warnings: Sequence[str],
    only: Collection[str],
    details: dict[str, _Detail],
    curves: dict[str, str],
) -> str:
    table = RunTable(found.rows)
    anchors = {case_id: detail.anchor for case_id, detail in details.items()}
    return environment.get_template("page.html.j2").render(
        run=run,
        host_findings=[str(finding) for finding in run.findings],
        version=__version__,
        header=header_lines(run),
        summary=summary_line(records, unread=table.unread),
        discoveries=discovery_line(run, records),
        crossings=break_even_lines(records),
        found=found,
        columns=page_columns(found.rows),
        numbers=NUMBERS,
        sort_keys=sort_keys,
        outcome_class=outcome_class,
        speedups=speedup_chart(found.rows),
        most_named=MOST_NAMED,
        anchors=anchors,
        sections=_sections(records, details, curves),
        left_out=len(_in_need(records, only, found)) - len(details),
        not_named=len(records) - len([r for r in records if r.case.id in only]) if only else 0,
        command=command(run),
        facts=facts(run),
        libraries=libraries(run),
        warnings=warnings,
        style=source("style.css"),
        script=source("script.js"),
        glyphs={outcome_class(word): shape for word, shape in GLYPHS.items()},
    )


def _sections(
    records: Sequence[CaseRecord], details: dict[str, _Detail], curves: dict[str, str]
) -> tuple[_Section, ...]:
    by_scenario: dict[str, list[str]] = {}
    for record in records:
        if record.case.id in details:
            by_scenario.setdefault(record.case.scenario, []).append(details[record.case.id].html)
    return tuple(_Section(name, curves.get(name, ""), tuple(html)) for name, html in by_scenario.items())
