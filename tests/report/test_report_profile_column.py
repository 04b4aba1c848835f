"""The mechanism beside the verdict, in every dialect of the table."""

from __future__ import annotations

import csv
import json

import pytest
from factory_of_records import make_case, make_comparison, make_result, make_run, measured, sample_records
from printed import markdown_of

from aiperf.records import CaseRecord
from aiperf.records.profiled import Mechanism, Profile
from aiperf.report.layout.table import table_lines
from aiperf.report.layout.text import plain
from aiperf.report.views.run_rows import RunTable, build_rows
from aiperf.report.views.run_table import run_csv, run_json, run_page, run_table

CLAIM = {"kernels": "down"}


def record(**changes: object) -> CaseRecord:
    result = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)))
    return measured(make_case(moves=CLAIM, **changes), result)  # type: ignore[arg-type]


def table(state: str = "did_not_move") -> RunTable:
    found = record()
    mechanism = Mechanism("kernels", "down", state, 61.0, 61.0)  # type: ignore[arg-type]
    silent = measured(make_case("other"), make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1))))
    return build_rows([found, silent], profiles={found.case.id: Profile(found.case.id, mechanism=(mechanism,))})


def test_the_column_is_shown_only_where_a_row_has_a_mechanism() -> None:
    assert "mechanism" in plain(table_lines(run_table(table()), width=100))
    assert "mechanism" not in plain(table_lines(run_table(build_rows(sample_records())), width=100))
    assert "mechanism" not in plain(table_lines(run_table(build_rows([record()])), width=100))
    assert "| mechanism |" in markdown_of(run_page(make_run(), table(), summary="s"))
    assert "mechanism" not in markdown_of(run_page(make_run(), build_rows([record()]), summary="s"))


@pytest.mark.parametrize("width", range(40, 141, 5))
def test_the_column_never_pushes_out_the_verdict_nor_the_flag(width: int) -> None:
    text = plain(table_lines(run_table(table()), width=width))
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.endswith("improved") for line in lines) == 2
    assert "improved, but not by the claimed mechanism" in " ".join(text.split())


def test_the_mechanism_outlives_the_change_in_a_narrow_terminal() -> None:
    head = plain(table_lines(run_table(table()), width=90)).splitlines()[0]
    assert "mechanism" in head
    assert "change" not in head


def test_a_win_that_moved_as_claimed_is_not_flagged() -> None:
    text = plain(table_lines(run_table(table("moved")), width=100))
    assert "as claimed" in text
    assert "but not by" not in text


def test_a_case_that_was_not_profiled_says_so_where_others_were() -> None:
    other = record()
    found = build_rows([other], profiles={"another": Profile("another")})
    assert found.rows[0].mechanism == "not profiled"


def test_csv_json_and_markdown_have_the_word_and_the_flag() -> None:
    first = next(csv.DictReader("".join(run_csv(table())).splitlines()))
    assert first["mechanism"] == "did not move"
    row = json.loads(run_json(make_run(), table(), records=[record()]))["rows"][0]
    assert row["mechanism"] == "did not move"
    assert row["mechanism_note"].startswith("improved, but not by the claimed mechanism")
    told = markdown_of(run_page(make_run(), table(), summary="s"))
    assert "| did not move |" in told
    assert "| improved |" in told
    assert "but not by the claimed mechanism" in told


def test_a_rung_between_has_no_mechanism() -> None:
    rung = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), side="half")
    last = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)))
    found = measured(make_case(moves=CLAIM), rung, last)
    mechanism = Mechanism("kernels", "down", "did_not_move", 61.0, 61.0)
    rows = build_rows([found], profiles={found.case.id: Profile("c", mechanism=(mechanism,))}).rows
    assert [row.mechanism for row in rows] == ["", "did not move"]


def test_a_case_that_an_interrupted_run_profiled_is_not_called_unbegun() -> None:
    run = make_run(status="interrupted", planned=("profiled[n=1]", "left-out[n=2]"), command="profile")
    profiles = {"profiled[n=1]": Profile("profiled[n=1]")}
    table = build_rows([], run=run, profiles=profiles)
    assert [(row.case, row.status) for row in table.rows] == [("left-out[n=2]", "not begun")]
    assert "profiled" not in "".join(run_csv(table))
    done = make_run(status="finished", planned=run.planned, command="profile")
    assert build_rows([], run=done, profiles=profiles).rows == ()


def test_a_run_that_measured_and_profiled_tells_the_records_that_it_lost() -> None:
    run = make_run(status="finished", planned=("profiled[n=1]",))
    rows = build_rows([], run=run, profiles={"profiled[n=1]": Profile("profiled[n=1]")}).rows
    assert [(row.case, row.status) for row in rows] == [("profiled[n=1]", "no record")]
