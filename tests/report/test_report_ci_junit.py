"""JUnit XML: word for word on every outcome, within the schema that Jenkins holds it against, whatever the names."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ci_made import NASTY, STANDINGS, every_entry, gate_entries, gate_row, nasty_entry

from aiperf.errors import Exit
from aiperf.report.ci.junit import render_junit

GOLDEN = Path(__file__).parent / "golden_ci" / "junit.xml"
TOTALS = {"tests", "failures", "errors", "time"}
ALLOWED = {
    "testsuites": ({"name", *TOTALS}, {"testsuite"}),
    "testsuite": ({"name", "skipped", *TOTALS}, {"properties", "testcase"}),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "classname", "time"}, {"failure", "error", "skipped", "system-out"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message", "type"}, set()),
    "system-out": (set(), set()),
}
"""Of junit-10.xsd of the Jenkins xUnit plugin: attributes (all that we write are always there) and children."""


def conforms(text: str) -> ElementTree.Element:
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = ALLOWED[element.tag]
        assert set(element.attrib) == attributes
        assert {child.tag for child in element} <= children
        assert re.fullmatch(r"\d+\.\d{3}", element.get("time", "0.000"))
    for suite in (root, *root):
        cases = list(suite.iter("testcase"))
        assert int(suite.get("tests")) == len(cases)
        assert int(suite.get("failures")) == len(list(suite.iter("failure")))
        assert int(suite.get("errors")) == len(list(suite.iter("error")))
        assert float(suite.get("time")) == pytest.approx(sum(float(c.get("time")) for c in cases), abs=0.01)
    for suite in root:
        assert int(suite.get("skipped")) == len(list(suite.iter("skipped")))
        assert len({child.tag for child in suite if child.tag == "properties"}) <= 1
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(names)) == len(names)
    return root


def test_the_document_is_this_one() -> None:
    assert render_junit(every_entry(), title="aiperf run") == GOLDEN.read_text(encoding="utf-8")


def test_it_is_within_the_schema() -> None:
    root = conforms(render_junit(every_entry(), title="aiperf run"))
    assert [suite.get("name") for suite in root][:2] == ["command", "pageable-vs-pinned-copy"]
    conforms(render_junit(gate_entries(*map(gate_row, STANDINGS), exit_=Exit.REGRESSION), title="aiperf gate"))
    conforms(render_junit((), title="nothing"))


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("wrong-output", ["failure"]),
        ("time-slicing-vs-mps", ["error"]),
        ("hot-host", ["error"]),
        ("host-bounce-vs-gpudirect-storage", ["skipped", "system-out"]),
        ("tip-that-may-help", ["skipped", "system-out"]),
        ("slower-now[n=1]", ["system-out"]),
    ],
)
def test_each_outcome_has_its_element(name, tags) -> None:
    root = conforms(render_junit(every_entry(), title="aiperf run"))
    (case,) = [case for case in root.iter("testcase") if case.get("name") == name]
    assert [child.tag for child in case] == tags
    assert f"All of {name}." in "".join(case.itertext())


@pytest.mark.parametrize("outcome", ["passed", "failed", "error", "skipped", "undecided"])
def test_no_name_or_text_makes_it_ill_formed(outcome) -> None:
    text = render_junit([nasty_entry(outcome=outcome, text=f"one\n{NASTY}\n  two")], title=NASTY)
    root = conforms(text)
    assert not re.search("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    (case,) = root.iter("testcase")
    assert case.get("name") == "q\"uote'<&> %25 a,b:c #1 red ``` second line | 😀 ]]> \\ end"
    body = "".join(case.itertext())
    if outcome != "skipped":
        assert "\n  two" in body
    assert "\x1b" not in body
    assert "[31m" not in body
