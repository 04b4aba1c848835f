"""JUnit XML, as Jenkins (junit-10.xsd), GitLab and GitHub's test reporters read it: a suite a scenario, a test a case.

What must not live here: outcomes being decided, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from aiperf.analysis.rows import ComparisonRow
from aiperf.report.ci.entries import CiEntry, CiFormat, counts
from aiperf.report.ci.places import legal
from aiperf.report.numbers import clean, format_interval, format_ratio, format_value

_ELEMENTS = {"failed": "failure", "error": "error", "skipped": "skipped", "undecided": "skipped"}
"""JUnit knows no doubt: what is undecided is neither green nor red there."""


def render_junit(entries: Sequence[CiEntry], *, title: str) -> str:
    """Return the document; figures stand as properties of a suite, because the schema allows a test none."""
    root = ElementTree.Element("testsuites", {"name": clean(title), **_totals(entries)})
    for group in dict.fromkeys(entry.group for entry in entries):
        root.append(_suite(group, [entry for entry in entries if entry.group == group]))
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite(group: str, entries: Sequence[CiEntry]) -> ElementTree.Element:
    found = counts(entries)
    skipped = str(found["skipped"] + found["undecided"])
    suite = ElementTree.Element("testsuite", {"name": clean(group), **_totals(entries), "skipped": skipped})
    figures = [(f"{entry.name} {m.metric}", _figures(m)) for entry in entries for m in entry.metrics]
    if figures:
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in figures:
            ElementTree.SubElement(properties, "property", {"name": clean(name), "value": clean(value)})
    for entry in entries:
        suite.append(_case(entry))
    return suite


def _case(entry: CiEntry) -> ElementTree.Element:
    given = {"classname": f"aiperf.{clean(entry.group)}", "name": clean(entry.name), "time": _time([entry])}
    case = ElementTree.Element("testcase", given)
    if tag := _ELEMENTS.get(entry.outcome):
        attributes = {"message": clean(entry.summary), "type": clean(entry.word)}
        ElementTree.SubElement(case, tag, attributes).text = legal(entry.text) if entry.red else None
    if not entry.red:
        ElementTree.SubElement(case, "system-out").text = legal(f"{entry.summary}\n\n{entry.text}")
    return case


def _totals(entries: Sequence[CiEntry]) -> dict[str, str]:
    found = counts(entries)
    return {
        "tests": str(len(entries)),
        "failures": str(found["failed"]),
        "errors": str(found["error"]),
        "time": _time(entries),
    }


def _time(entries: Sequence[CiEntry]) -> str:
    return f"{sum(entry.seconds for entry in entries):.3f}"


def _figures(metric: ComparisonRow) -> str:
    values = (f"{side} {format_value(value, metric.unit)}" for side, value in metric.values)
    ratio = format_ratio(metric.ratio, metric.low, metric.high)
    return f"{', '.join(values)}, ratio {ratio} ({format_interval(metric.low, metric.high)})"


FORMAT = CiFormat(
    "junit", "Write JUnit XML, one test a case.", lambda report: {"": render_junit(report.entries, title=report.title)}
)
