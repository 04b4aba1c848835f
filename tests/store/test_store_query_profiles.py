"""SQL over stored profiles: what their views hold, that nothing else is read for them, and they for nothing else."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from factory_of_runs import make_measured, write_run
from factory_of_stored_records import any_of, make_case
from hypothesis import given, settings
from store_questions import rows

from aiperf.records.profiled import Artefact, CounterRow, HotSpot, Mechanism, Profile, SideProfile
from aiperf.report.numbers import clean
from aiperf.store.export import profile_cells
from aiperf.store.profiles import write_profile
from aiperf.store.query import ask
from aiperf.store.tables.catalogue import QUERY_TABLES
from aiperf.store.tables.columns import DataTable
from aiperf.store.tables.profiled import (
    MECHANISMS,
    PROFILE_METRICS,
    PROFILE_PASSES,
    PROFILE_ROWS,
    PROFILE_SIDES,
    PROFILED,
)

CASE = make_case("copy[size=1MiB]")
COUNTED = CounterRow(
    *("before", "ncu", "kernel", "k<float>"),
    rank=1,
    device=0,
    count=4,
    time_s=2e-6,
    dram_pct=24.5,
    registers=32,
    bound="memory",
    why="DRAM 24 %, SM 20 %",
    metrics={"dram__bytes_read.sum": 4.5, "flops": 100.0},
)
BARE = CounterRow("after", "perf", "range", "after", count=10, metrics={"page-faults": 0.0})
PROFILE = Profile(
    case=CASE.id,
    artefacts=(
        Artefact("ncu", "before", "read", version="2025.1", seconds=2.5, files=("a.ncu-rep",), command=("ncu", "a b")),
        Artefact("nsys", "", "skipped", "nsys was not found"),
    ),
    rows=(COUNTED, BARE),
    sides=(
        SideProfile("before", "ncu", 5, lost="12 records"),
        SideProfile("after", "perf", 10, wall_s=0.5, launches=0, hot=(HotSpot("aten::mm", 0.25),)),
    ),
    mechanism=(
        Mechanism("launches", "down", "moved", 300.0, 0.0, "", "nsys", "launches went down, as claimed"),
        Mechanism("h2d_bandwidth", "up", "not_readable", sentence="h2d_bandwidth was not readable here"),
    ),
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """One measured run with a profile of its only case."""
    folder = write_run(tmp_path / "results", [make_measured(CASE.id)])
    write_profile(folder, CASE, PROFILE)
    return tmp_path / "results"


def cells(view: DataTable, results: Path) -> list[dict[str, Any]]:
    """Every row of a view, by column."""
    with ask(f"FROM {view.name}", results=results) as answer:
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def spoil(folder: Path, text: str = '{"case": "x", "schema_') -> Path:
    """A profile that cannot be read."""
    path = folder / "profiles" / "cut.json"
    path.write_text(text)
    return path


# ---- what they hold --------------------------------------------------------------------------------------------------


def test_an_activity_is_a_row_with_what_was_read_of_it_and_null_for_the_rest(results: Path) -> None:
    counted, bare = cells(PROFILE_ROWS, results)
    (run,) = (path.name for path in results.glob("2026*"))
    assert (counted["run"], counted["case"], counted["scenario"], counted["side"]) == (run, CASE.id, "copy", "before")
    assert (counted["rank"], counted["device"], counted["count"], counted["iterations"]) == (1, 0, 4, 5)
    assert (counted["time_s"], counted["dram_pct"], counted["registers"]) == (2e-6, 24.5, 32)
    assert (counted["bound"], counted["tool_says"], counted["sm_pct"]) == ("memory", None, None)
    told = {name for name, value in bare.items() if value is not None}
    assert told == {"run", "case", "scenario", "side", "tool", "kind", "name", "iterations", "count", "metrics"}


def test_counters_by_the_tools_own_name_are_rows_of_their_own_and_a_zero_is_one(results: Path) -> None:
    assert rows("SELECT side, rank, device, tool, name, metric, value FROM profile_metrics", results) == [
        ("before", 1, 0, "ncu", "k<float>", "dram__bytes_read.sum", 4.5),
        ("before", 1, 0, "ncu", "k<float>", "flops", 100.0),
        ("after", None, None, "perf", "after", "page-faults", 0.0),
    ]
    assert rows("SELECT metrics->>'dram__bytes_read.sum' FROM profile_rows", results) == [("4.5",), (None,)]


def test_a_side_is_a_row_for_each_tool(results: Path) -> None:
    first, second = cells(PROFILE_SIDES, results)
    assert (first["iterations"], first["wall_s"], first["launches"], first["lost"]) == (5, None, None, "12 records")
    assert (second["iterations"], second["wall_s"], second["launches"], second["lost"]) == (10, 0.5, 0, None)
    assert (first["hot"], json.loads(second["hot"])) == (None, [{"name": "aten::mm", "share": 0.25}])


def test_a_claim_is_a_row_with_both_values_or_null_where_it_was_not_readable(results: Path) -> None:
    assert rows("SELECT counter, claimed, before, after, unit, state, tool FROM mechanisms", results) == [
        ("launches", "down", 300.0, 0.0, None, "moved", "nsys"),
        ("h2d_bandwidth", "up", None, None, None, "not_readable", None),
    ]


def test_a_tool_that_did_not_run_says_why(results: Path) -> None:
    named = "tool, side, status, reason, version, seconds, files, command"
    assert rows(f"SELECT {named} FROM profile_passes", results) == [
        ("ncu", "before", "read", None, "2025.1", 2.5, ["a.ncu-rep"], "ncu 'a b'"),
        ("nsys", None, "skipped", "nsys was not found", None, None, [], None),
    ]


def test_a_verdict_stands_beside_what_proves_its_mechanism(results: Path) -> None:
    sql = """SELECT c.scenario, c.ratio, m.counter, m.state FROM comparisons c JOIN mechanisms m USING (run, "case")
        WHERE c.is_primary AND m.state = 'moved'"""
    assert rows(sql, results) == [("copy", 2.0, "launches", "moved")]


def test_every_field_of_the_records_is_a_column() -> None:
    records = {PROFILE_ROWS: CounterRow, PROFILE_SIDES: SideProfile, PROFILE_PASSES: Artefact, MECHANISMS: Mechanism}
    for view, record in records.items():
        assert {field.name for field in fields(record)} <= {column.name for column in view.columns}


@pytest.mark.parametrize("table", PROFILED, ids=lambda table: table.name)
def test_names_and_values_are_those_of_an_export(table: DataTable, results: Path) -> None:
    columns, exported = profile_cells([PROFILE], table, clean=clean)
    lists = {column.name for column in table.columns if column.kind == "texts"}
    asked = cells(table, results)
    assert [["run", *columns]] * len(asked) == [list(row) for row in asked]
    for row, other in zip(asked, exported, strict=True):
        wanted = [", ".join(row[name]) if name in lists else row[name] for name in columns]
        assert wanted == other
    if table == PROFILE_ROWS:
        assert [(row["flops"], row["flops_per_s"]) for row in asked] == [(400, 2e8), (None, None)]


def test_numbers_that_are_none_are_null_and_iterations_that_no_tool_told_too(tmp_path: Path) -> None:
    odd = float("nan"), float("inf")
    row = replace(COUNTED, time_s=odd[0], bytes=odd[1], metrics={"flops": odd[0], "b": 1.0})
    side = SideProfile("before", "ncu", 0, wall_s=odd[1])
    claim = Mechanism("launches", "down", "opposite", odd[0], 1.0)
    profile = Profile(CASE.id, rows=(row,), sides=(side,), mechanism=(claim,))
    # Most of them are null in a file already: here and there the same has to come out.
    columns, (made,) = profile_cells([profile], PROFILE_ROWS, clean=clean)
    write_profile(write_run(tmp_path, []), CASE, profile)
    named = "time_s, bytes, iterations, flops, flops_per_s"
    assert rows(f"SELECT {named}, metrics->>'b', metrics->>'flops' FROM profile_rows", tmp_path) == [
        (None, None, None, None, None, "1.0", None)
    ]
    assert [made[columns.index(name)] for name in named.split(", ")] == [None] * 5
    assert rows("SELECT metric, value FROM profile_metrics", tmp_path) == [("flops", None), ("b", 1.0)]
    assert rows("SELECT iterations, wall_s FROM profile_sides", tmp_path) == [(None, None)]
    assert rows("SELECT before, after FROM mechanisms", tmp_path) == [(None, 1.0)]


def test_bytes_that_were_no_text_do_not_break_a_question(tmp_path: Path) -> None:
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    side = SideProfile("before", "perf", 5, hot=(HotSpot(odd, 0.5),))
    profile = Profile(CASE.id, rows=(replace(BARE, name=odd, metrics={odd: 1.0}),), sides=(side,))
    write_profile(write_run(tmp_path, []), CASE, profile)
    assert rows("SELECT name, json_keys(metrics), hot->0->>'name' FROM profile_rows, profile_sides", tmp_path) == [
        ("caf\\udce9", ["caf\\udce9"], "caf\\udce9")
    ]


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(any_of(Profile))
def test_any_profile_fills_every_view(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> None:
    results = tmp_path_factory.mktemp("any")
    write_profile(write_run(results, []), CASE, replace(profile, schema_version=2))
    counts = ", ".join(f"(SELECT count(*) FROM {view.name})" for view in PROFILED)
    metrics = sum(len(row.metrics) for row in profile.rows)
    wanted = (len(profile.rows), metrics, len(profile.sides), len(profile.artefacts), len(profile.mechanism))
    assert rows(f"SELECT {counts}", results) == [wanted]


# ---- what is read ----------------------------------------------------------------------------------------------------


def test_profiles_are_read_only_by_a_question_that_names_their_views(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(next(results.glob("2026*")))
    others = [view.name for view in QUERY_TABLES if view not in PROFILED]
    with ask(f"SELECT {', '.join(f'(SELECT count(*) FROM {name})' for name in others)}", results=results) as answer:
        assert answer.damaged == ()
    monkeypatch.setattr("aiperf.store.query_load.read_profiles", lambda folder, **_: pytest.fail(f"{folder} is read"))
    for name in others:
        rows(f"SELECT count(*) FROM {name}", results)


@pytest.mark.parametrize("view", PROFILED, ids=lambda view: view.name)
def test_of_profiles_alone_no_other_record_is_read(view: DataTable, results: Path) -> None:
    (folder,) = results.glob("2026*")
    for spoilt in (folder / "run.json", *(folder / "cases").iterdir(), *(folder / "samples").iterdir()):
        spoilt.write_bytes(b"garbage")
    with ask(f"SELECT count(*) FROM {view.name}", results=results) as answer:
        assert list(answer.rows) == [(3 if view == PROFILE_METRICS else 2,)]
        assert answer.damaged == ()
    with ask(f"SELECT count(*) FROM {view.name}, cases", results=results) as answer:
        assert {damaged.path for damaged in answer.damaged} == {folder / "run.json", *(folder / "cases").iterdir()}


def test_a_damaged_profile_is_named_and_the_rest_answers(results: Path) -> None:
    path = spoil(next(results.glob("2026*")))
    newer = path.with_name("newer.json")
    newer.write_text('{"case": "x", "schema_version": 99}')
    for view in PROFILED:
        with ask(f"SELECT count(*) > 1 FROM {view.name}", results=results) as answer:
            assert list(answer.rows) == [(True,)]
            assert [damaged.path for damaged in answer.damaged] == [path, newer]
    with ask("SELECT count(*) FROM runs, mechanisms", results=results) as answer:
        assert [damaged.path for damaged in answer.damaged] == [path, newer]
        assert answer.damaged[0].sentence.endswith("; ignored")


def test_a_run_that_was_only_profiled_answers_as_one_that_was_only_measured_has_no_rows(tmp_path: Path) -> None:
    write_run(tmp_path, [make_measured("add")])
    assert rows("SELECT count(*) FROM profile_rows", tmp_path) == [(0,)]
    write_profile(write_run(tmp_path, [], hour=1), CASE, PROFILE)
    assert rows('SELECT "case", count(*) FROM profile_rows GROUP BY 1', tmp_path) == [(CASE.id, 2)]
    assert rows(
        "SELECT count(DISTINCT r.run), count(m.counter) FROM runs r LEFT JOIN mechanisms m USING (run)", tmp_path
    ) == [(2, 2)]
