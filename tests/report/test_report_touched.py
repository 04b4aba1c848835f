"""What was found of the host stands once under the table, in every dialect, with the cases that it affects."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from factory_of_records import make_case, make_run, sample_records
from printed import lines_of, markdown_of, text_of

from aiperf.records import CaseRecord, Failure, HostFinding
from aiperf.report.touched import touched_lines
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.run_table import run_csv, run_json, run_page

BUSY = HostFinding("load", "unfit", "Work of others", "CPU 0-1 97 % busy", bias="other work takes CPU time in turns")
GOVERNOR = HostFinding("governor", "warn", "Governor", "powersave", bias="clocks follow the load")
UNDER_THE_TABLE = """\
     more; aiperf show RUN CASE has its stderr

 unfit, may affect pageable-vs-pinned-copy: Work of others: CPU 0-1 97 % busy; other work takes CPU
     time in turns
 warn, may affect every case: Governor: powersave; clocks follow the load

summary
"""


def found(*findings: tuple[HostFinding, ...]) -> list[CaseRecord]:
    """The sample records, the measured ones with these findings, one after the other."""
    left = list(findings)
    return [replace(r, findings=left.pop(0)) if r.results and left else r for r in sample_records()]


RECORDS = found((GOVERNOR, BUSY), (GOVERNOR, BUSY), (GOVERNOR,), (GOVERNOR,))


def test_under_the_table_each_finding_stands_once_with_the_cases_it_affects() -> None:
    text = text_of(run_page(make_run(), build_rows(RECORDS), summary="summary"))
    assert text.endswith(UNDER_THE_TABLE)


def test_a_run_without_findings_says_nothing_of_them() -> None:
    table = build_rows(sample_records())
    assert touched_lines(table) == []
    assert "may affect" not in text_of(run_page(make_run(), table, summary="s"))
    assert "may affect" not in markdown_of(run_page(make_run(), table, summary="s"))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = lines_of(run_page(make_run(), build_rows(RECORDS), summary="s"), width=width)
    assert max(len(line.text) for line in lines) <= width


def test_a_case_is_named_by_its_id_unless_its_whole_scenario_is_touched() -> None:
    one, *_ = touched_lines(build_rows(found((GOVERNOR,))))
    assert one.startswith("warn, may affect pageable-vs-pinned-copy[direction=h2d,size=1MiB]: Governor")
    (lone,) = touched_lines(build_rows(RECORDS[3:4]))
    assert lone.startswith("warn, may affect tip-that-may-help: ")


def test_many_cases_are_counted_after_the_fourth() -> None:
    made = sample_records()[3]
    records = [replace(made, case=make_case(f"s{n}"), findings=(GOVERNOR,) if n else ()) for n in range(9)]
    (line,) = touched_lines(build_rows(records))
    assert line.startswith("warn, may affect s1, s2, s3, s4 and 4 more: ")


def test_readings_of_one_thing_at_several_times_are_one_line() -> None:
    later = replace(BUSY, value="CPU 0-1 88 % busy")
    lines = touched_lines(build_rows(found((BUSY,), (later,), (replace(later, level="warn"),))))
    assert lines == [
        "unfit, may affect pageable-vs-pinned-copy: Work of others: CPU 0-1 97 % busy; other work takes CPU time in "
        "turns (the first of 2 readings)",
        "warn, may affect all-reduce-after-backward-vs-ddp-overlap: Work of others: CPU 0-1 88 % busy; "
        "other work takes CPU time in turns",
    ]


def test_a_case_that_was_refused_says_why_in_its_own_row_only() -> None:
    told = f"the host is unfit for this case: {BUSY.text}"
    failure = Failure("", "start", "error", told)
    refused = CaseRecord(make_case("x"), "failed", stop="unfit", failure=failure, findings=(BUSY, GOVERNOR))
    table = build_rows([refused])
    assert touched_lines(table) == ["warn, may affect x: Governor: powersave; clocks follow the load"]
    assert table.rows[0].findings == (BUSY, GOVERNOR)


def test_markdown_lists_them_under_the_table() -> None:
    text = markdown_of(run_page(make_run(), build_rows(RECORDS), summary="s"))
    assert "\n\n- unfit, may affect pageable-vs-pinned-copy: Work of others: CPU 0-1 97 % busy" in text
    assert text.count("powersave") == 1


def test_programs_get_the_findings_of_each_case() -> None:
    rows = list(csv.DictReader(io.StringIO("".join(run_csv(build_rows(RECORDS))))))
    assert rows[0]["findings"] == f"{GOVERNOR} | {BUSY}"
    assert rows[-1]["findings"] == ""
    document = json.loads(run_json(make_run(), build_rows(RECORDS), records=RECORDS))
    assert [[f["id"] for f in row["findings"]] for row in document["rows"]][3:] == [["governor"], ["governor"], [], []]
