"""GitHub: annotations that its runner parses, and a summary that it accepts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from ci_made import every_entry, gate_entries, gate_row, nasty_entry

from aiperf.errors import MEANING, Exit, Fault
from aiperf.report.ci.entries import entries_of_faults
from aiperf.report.ci.github import SUMMARY_LIMIT, annotation_lines, fit_summary, step_summary

GOLDEN = Path(__file__).parent / "golden_ci"
ROOT = Path("/repo")
COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def lines(entries, code: Exit = Exit.WRONG, root: Path = ROOT) -> list[str]:
    return annotation_lines(entries, title="aiperf run", exit_code=code, root=root)


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """Read as the runner does: properties split at commas and at the first equals sign, then unescaped."""
    match = COMMAND.fullmatch(line)
    assert match, line
    level, properties, message = match.groups()
    escapes = {"%2C": ",", "%3A": ":", "%0A": "\n", "%0D": "\r", "%25": "%"}

    def plain(text: str) -> str:
        return re.sub("%2C|%3A|%0A|%0D|%25", lambda m: escapes[m[0]], text)

    pairs = (part.split("=", 1) for part in properties.split(","))
    return level, {name: plain(value) for name, value in pairs}, plain(message)


def test_the_annotations_are_these() -> None:
    said = "".join(f"{line}\n" for line in lines(every_entry(), Exit.INTERRUPTED))
    assert said == (GOLDEN / "annotations.txt").read_text(encoding="utf-8")


def test_the_summary_is_this_one() -> None:
    said = step_summary(every_entry(), title="aiperf run", exit_code=Exit.INTERRUPTED, summary="| a |\n| --- |\n")
    assert said == (GOLDEN / "summary.md").read_text(encoding="utf-8")


def test_names_of_any_kind_stay_within_their_property() -> None:
    level, properties, message = parsed(lines([nasty_entry(path="a, b/c:d%.yaml")])[0])
    assert level == "warning"
    assert properties["file"] == "a, b/c:d%.yaml"
    assert properties["line"] == "1"
    assert properties["title"].startswith("regressed: q\"uote'<&> %25 a,b:c")
    assert set(properties) == {"file", "line", "title"}
    assert "%25 a,b:c" in message
    assert "\x1b" not in message


def test_the_worst_come_first_and_no_more_of_a_level_than_are_shown() -> None:
    error, warning = gate_row("regressed"), gate_row("inconclusive")
    entries = gate_entries(*(replace(r, case=f"c{i}") for i in range(14) for r in (warning, error)), exit_=Exit(1))
    told = [parsed(line) for line in lines(entries)]
    assert [level for level, _, _ in told] == ["error"] * 10 + ["warning"] * 10
    assert told[8][1]["title"] == "regressed: c8"
    assert told[9][2] == "5 more; the summary of the step and its artefacts name them"


def test_a_scenario_outside_the_repository_is_annotated_without_a_place() -> None:
    entry = next(e for e in every_entry() if e.level == "error" and e.path)
    assert "file" in parsed(lines([entry])[0])[1]
    assert "file" not in parsed(lines([replace(entry, path="/elsewhere/a.yaml")])[0])[1]


def test_a_mistake_is_annotated_at_its_line() -> None:
    (line,) = lines(entries_of_faults("run", [Fault("s/a.yaml:14:9", "no size")]), Exit.USAGE)
    assert parsed(line)[1] == {"file": "s/a.yaml", "line": "14", "title": "failed: s/a.yaml"}


def test_all_skipped_is_said_because_the_job_ends_for_it() -> None:
    entry = next(e for e in every_entry() if e.word == "skipped")
    (line,) = lines([entry], Exit.SKIPPED)
    assert parsed(line)[2].startswith("everything was skipped: skipped: GPUDirect Storage is not active")
    assert lines([entry], Exit.OK) == []


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANING) == set(Exit)


def test_names_in_the_summary_are_code_that_no_markup_can_leave() -> None:
    said = step_summary([nasty_entry()], title="aiperf run", exit_code=Exit.OK, summary="the table")
    (line,) = [line for line in said.splitlines() if "uote" in line]
    assert line.startswith("    q")
    assert said.endswith("\n\nthe table\n\n")


def test_a_long_list_is_counted() -> None:
    rows = (gate_row("regressed", case=f"c{i}") for i in range(25))
    said = step_summary(gate_entries(*rows, exit_=Exit(1)), title="t", exit_code=Exit(1), summary="")
    assert said.count("it is regressed") == 20
    assert "    and 5 more\n" in said


@pytest.mark.parametrize("taken", [0, 1000, SUMMARY_LIMIT - 5000])
def test_a_summary_too_large_is_cut_after_a_line_and_says_so(taken) -> None:
    text = "".join(f"line {i} é😀\n" for i in range(100_000))
    kept = fit_summary(text, taken=taken)
    assert taken + len(kept.encode()) <= SUMMARY_LIMIT
    body, cut, rest = kept.partition("\n\nThe summary is cut off here")
    assert cut
    assert rest
    assert text.startswith(f"{body}\n")
    assert SUMMARY_LIMIT - taken - len(kept.encode()) < 20


def test_a_summary_that_fits_is_left_alone_and_a_full_file_gets_nothing() -> None:
    exact = "é" * (SUMMARY_LIMIT // 2)
    assert fit_summary(exact, taken=0) == exact
    assert fit_summary(exact, taken=1) != exact
    assert fit_summary("a", taken=SUMMARY_LIMIT) == ""
