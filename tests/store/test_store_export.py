"""An export holds the numbers of the records, in one tidy table, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory_of_stored_records import make_record
from foreign_files import take_fixture

from aiperf.errors import UserError
from aiperf.records import CaseRecord, Comparison, Failure, Latencies, Result, RunRecord, Summary, Verdict, Watch
from aiperf.report.numbers import clean
from aiperf.store import export
from aiperf.store.export import Exported, choose_runs, export_table
from aiperf.store.read import find_runs, open_run
from aiperf.store.tables.catalogue import TABLES, exported_columns, table_named
from aiperf.store.write import RunWriter

COMPARISON = Comparison(
    metric="time",
    unit="s",
    better="lower",
    before=Summary("before", 0.3000000000000001, 0.29, 0.31, 60, 1, 0.01, 0.02),
    after=Summary("after", 0.1, 0.09, 0.11, 60, 0, 0.0, 0.03),
    pairs=6,
    ratio=3.0000000000000013,
    low=2.9,
    high=math.inf,
    alpha=0.0158,
    sd=0.0123,
    position=0.0,
    position_low=-0.1,
    position_high=0.1,
    mde=0.01,
    pairs_needed=None,
    second_ratio=3.0,
    second_low=None,
    second_high=None,
    log_ratios=(1.0,) * 6,
)
NASTY = 'a "quote", a comma;\n\x1b[31mred\x1b[0m \x00 \ud800 é'


def measured(case_id: str, **axes: Any) -> CaseRecord:
    record = make_record(case_id)
    result = Result("after", "before", COMPARISON, Verdict("improved", "beyond_threshold", NASTY, threshold=0.02))
    memory = replace(COMPARISON, metric="peak_memory", unit="B")
    other = Result("after", "before", memory, Verdict("equivalent", "within_threshold", "x"), primary=False)
    return replace(record, case=replace(record.case, axes=axes), results=(result, other))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: two measured ones with different axes, an imported one."""
    base = tmp_path_factory.mktemp("written")
    folder = base / "results"
    skipped = replace(make_record("none", pairs=0), status="skipped", skip_reason="no GPU")
    failed = replace(make_record("bad", pairs=0), status="failed", failure=Failure("after", "measure", "crash", NASTY))
    lots = ([measured("copy[size=1MiB]", size="1MiB"), skipped], [measured("sum[n=3]", n=3, deep=[1, 2]), failed])
    for records in lots:
        writer = RunWriter.create(folder, hostname="node-1")
        git, host = {"sha": "a" * 40, "diff": "b" * 12}, {"hostname": "node-1"}
        run = RunRecord(
            writer.name, ("aiperf",), "2026-11-21T18:00:00+00:00", host_id="0123456789ab", git=git, host=host
        )
        writer.write_run(run)
        for record in records:
            writer.write_case(record)
    take_fixture("pyperf.json", base)
    return folder


@pytest.fixture
def results(written: Path, tmp_path: Path) -> Path:
    """A copy of the runs for each test, because writing them takes as long as most tests do."""
    return shutil.copytree(written, tmp_path / "results", symlinks=True)


def exported(results: Path, name: str, what: str = "comparisons", **more: Any) -> Path:
    runs, problems = choose_runs([], every=True, results=results)
    assert problems == ()
    path = results.parent / name
    export_table(runs, table_named(what, where=""), path, clean=clean, **more)
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    import pandas as pd

    frame = pd.read_parquet(path).astype(object)
    return frame.where(frame.notna(), None).to_dict("records")


# ---- comparisons -----------------------------------------------------------------------------------------------------


def test_the_parquet_file_has_the_numbers_of_the_records_to_the_last_bit(results: Path) -> None:
    rows = rows_of(exported(results, "all.parquet"))
    row = next(r for r in rows if r["case"] == "copy[size=1MiB]" and r["metric"] == "time")
    assert (row["before"], row["after"], row["ratio"]) == (0.3000000000000001, 0.1, 3.0000000000000013)
    assert (row["low"], row["high"], row["sd"], row["mde"]) == (2.9, None, 0.0123, 0.01)
    assert (row["pairs"], row["alpha"], row["threshold"]) == (6, 0.0158, 0.02)
    assert (row["verdict"], row["reason"], row["provisional"]) == ("improved", "beyond_threshold", False)
    assert (row["side"], row["against"], row["is_primary"], row["better"]) == ("after", "before", True, "lower")
    assert (row["git_sha"], row["git_diff"], row["hostname"]) == ("a" * 40, "b" * 12, "node-1")
    assert (row["host_id"], row["status"], row["replicate"]) == ("0123456789ab", "measured", "launch pair")
    assert row["run"] in {p.name for p in results.iterdir()}


def test_every_metric_and_every_case_has_its_row(results: Path) -> None:
    found = [(r["case"], r["metric"], r["status"]) for r in rows_of(exported(results, "all.parquet"))]
    assert sorted(found, key=str) == sorted(
        [
            ("copy[size=1MiB]", "time", "measured"),
            ("copy[size=1MiB]", "peak_memory", "measured"),
            ("none", None, "skipped"),
            ("sum[n=3]", "time", "measured"),
            ("sum[n=3]", "peak_memory", "measured"),
            ("bad", None, "failed"),
            ("sorted", "time", "imported"),
            ("reversed", "time", "imported"),
        ],
        key=str,
    )


def test_each_axis_of_any_run_is_a_column_of_text(results: Path) -> None:
    rows = rows_of(exported(results, "all.parquet"))
    axes = {r["case"]: {k: v for k, v in r.items() if k.startswith("axis.")} for r in rows}
    assert axes["copy[size=1MiB]"] == {"axis.size": "1MiB", "axis.n": None, "axis.deep": None}
    assert axes["sum[n=3]"] == {"axis.size": None, "axis.n": "3", "axis.deep": "1x2"}


def test_a_case_without_a_verdict_says_why(results: Path) -> None:
    rows = {r["case"]: r for r in rows_of(exported(results, "all.parquet"))}
    assert rows["none"]["reason"] == "no GPU"
    assert rows["bad"]["reason"].startswith('after, measure, a "quote"')
    assert rows["none"]["ratio"] is None


def test_an_imported_case_has_its_value_spread_and_unit_and_no_ratio(results: Path) -> None:
    row = next(r for r in rows_of(exported(results, "all.parquet")) if r["case"] == "sorted")
    record = next(r for r in open_run(row["run"], results=results).read_cases()[0] if r.case.id == "sorted")
    (summary,) = record.summaries
    assert (row["after"], row["sd"], row["pairs"]) == (summary.value, summary.log_sd, 3)
    assert (row["before"], row["ratio"], row["against"], row["verdict"]) == (None, None, None, None)
    assert (row["replicate"], row["unit"], row["side"]) == ("process", "s", "after")


def test_csv_and_json_say_what_parquet_says(results: Path) -> None:
    parquet = rows_of(exported(results, "all.parquet"))
    as_json = json.loads(exported(results, "all.json").read_text())
    assert as_json == parquet
    with exported(results, "all.csv").open(newline="") as file:
        as_csv = list(csv.DictReader(file))
    for row, other in zip(as_csv, parquet, strict=True):
        assert list(row) == list(other)
        for name, value in other.items():
            if isinstance(value, float):
                assert float(row[name]) == value
            else:
                assert row[name] == (
                    "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
                )


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_no_control_character_of_a_worker_gets_into_a_file(form: str, results: Path) -> None:
    path = exported(results, f"all.{form}")
    texts = (
        [v for r in rows_of(path) for v in r.values() if isinstance(v, str)]
        if form == "parquet"
        else [path.read_text()]
    )
    assert any("red" in t and "é" in t for t in texts)
    assert all(c.isprintable() or (c == "\n" and form != "parquet") for t in texts for c in t)


# ---- samples, readings and cases -------------------------------------------------------------------------------------


def test_every_raw_sample_is_a_row(results: Path) -> None:
    rows = [r for r in rows_of(exported(results, "s.parquet", "samples")) if r["case"] == "copy[size=1MiB]"]
    record = make_record()
    taken = [(p.index, s) for p in record.pairs for s in p.samples]
    assert len(rows) == len(taken) == 24
    for row, (pair, sample) in zip(rows, taken, strict=True):
        assert (row["pair"], row["side"], row["round"], row["index"]) == (pair, sample.side, sample.round, sample.index)
        assert (row["iterations"], row["wall_s"], row["device_s"]) == (
            sample.iterations,
            sample.wall_s,
            sample.device_s,
        )
        assert (row["audit"], row["void"]) == (sample.audit, False)
    assert [r["position"] for r in rows] == [p.order.index(s.side) for p in record.pairs for s in p.samples]
    assert rows[0]["pair_started"] == 1.7e9


def test_a_wall_time_that_was_never_read_is_empty(tmp_path: Path) -> None:
    from foreign_files import take, with_side_files

    take(with_side_files(tmp_path), tmp_path)
    rows = [r for r in json.loads(exported(tmp_path / "results", "s.json", "samples").read_text()) if r["device_s"]]
    assert len(rows) == 5
    assert {r["wall_s"] for r in rows} == {None}


def test_every_unit_of_work_is_a_row_of_latencies_and_a_case_without_any_has_none(tmp_path: Path) -> None:
    record = make_record("copy", pairs=1)
    pair = record.pairs[0]
    first = replace(pair.samples[0], latencies=(Latencies((0.25, 1e-9)), Latencies((0.5,), "queue", 1)))
    writer = RunWriter.create(tmp_path / "results")
    writer.write_run(RunRecord(writer.name, (), ""))
    writer.write_case(replace(record, pairs=(replace(pair, samples=(first, *pair.samples[1:])),)))
    writer.write_case(make_record("silent", pairs=1))
    rows = json.loads(exported(tmp_path / "results", "l.json", "latencies").read_text())
    assert {(r["case"], r["side"], r["round"], r["index"]) for r in rows} == {
        ("copy", first.side, first.round, first.index)
    }
    assert [(r["series"], r["rank"], r["unit"], r["latency_s"]) for r in rows] == [
        ("latency", 0, 0, 0.25), ("latency", 0, 1, 1e-9), ("queue", 1, 0, 0.5),
    ]  # fmt: skip
    assert {(r["slot"], r["pair"], r["void"], r["audit"]) for r in rows} == {(0, pair.index, pair.void, first.audit)}


def test_every_reading_of_a_pair_is_a_row_with_its_mark_and_needs_no_samples(tmp_path: Path) -> None:
    record = make_record("copy", pairs=2)
    readings = {"before": {"sm_clock_mhz": 1980.0}, "": {"load": math.nan}}
    quiet = replace(record.pairs[1], telemetry={}, watch=Watch(), runs=())
    watched = replace(record.pairs[0], telemetry=readings, watch=Watch(temperatures={"GPU 0": 41.0}), runs=())
    writer = RunWriter.create(tmp_path / "results")
    writer.write_run(RunRecord(writer.name, (), ""))
    writer.write_case(replace(record, pairs=(quiet, watched)))
    for samples in (tmp_path / "results").glob("*/samples/*.parquet"):
        samples.unlink()
    rows = json.loads(exported(tmp_path / "results", "t.json", "telemetry").read_text())
    assert [(r["slot"], r["pair"], r["void"], r["mark"], r["kind"], r["name"], r["value"]) for r in rows] == [
        (1, 0, False, "before", "median", "sm_clock_mhz", 1980.0),
        (1, 0, False, "all readings", "median", "load", None),
        (1, 0, False, "all readings", "start", "temperature_c of GPU 0", 41.0),
    ]
    assert {(r["run"], r["case"], r["status"]) for r in rows} == {(writer.name, "copy", "measured")}


def test_cases_are_told_with_their_reasons(results: Path) -> None:
    rows = {r["case"]: r for r in rows_of(exported(results, "c.parquet", "cases"))}
    assert len(rows) == 6
    assert (rows["copy[size=1MiB]"]["pairs"], rows["copy[size=1MiB]"]["seconds"]) == (6, 12.5)
    assert rows["none"]["reason"] == "no GPU"
    assert "warm-up" in rows["sorted"]["notes"]
    assert (rows["sorted"]["threshold"], rows["sorted"]["alpha"]) == (None, None)


def test_types_do_not_depend_on_what_the_rows_hold(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    writer = RunWriter.create(tmp_path / "results")
    writer.write_run(RunRecord(writer.name, (), ""))
    writer.write_case(replace(make_record(pairs=0), status="skipped"))
    for table in TABLES:
        schema = pq.read_schema(exported(tmp_path / "results", f"{table.name}.parquet", table.name))
        assert list(schema.names) == [column.name for column in exported_columns(table, ())]
        assert {"string", "int64", "double", "bool"} >= {str(field.type) for field in schema}
    assert json.loads(exported(tmp_path / "results", "s.json", "samples").read_text()) == []


# ---- files -----------------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_without_force(results: Path) -> None:
    path = exported(results, "all.csv")
    path.write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        exported(results, "all.csv")
    assert path.read_text() == "mine"
    assert exported(results, "all.csv", force=True).read_text().startswith("run,started")


@pytest.mark.parametrize("name", ["all", "all.xlsx", "no/such/folder/all.csv"])
def test_a_name_without_a_known_ending_or_folder_is_a_mistake(name: str, results: Path) -> None:
    with pytest.raises(UserError):
        exported(results, name)


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_failure_midway_leaves_the_old_file_and_nothing_else(
    form: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = results.parent / f"all.{form}"
    path.write_text("old")
    before = sorted(results.parent.iterdir())

    def broken(rows: Any) -> Any:
        yield [next(rows)]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_batches", broken)
    with pytest.raises(UserError, match="No space left"):
        exported(results, path.name, force=True)
    assert path.read_text() == "old"
    assert sorted(results.parent.iterdir()) == before


def test_damage_is_named_once_and_the_rest_is_written(results: Path) -> None:
    runs, _ = choose_runs([], every=True, results=results)
    next(results.glob("*/cases/none.json")).write_text("{")
    next(p for p in results.glob("*/samples/*.parquet") if p.name == "sum[n=3].parquet").unlink()
    out = io.StringIO()
    done = export_table(runs, table_named("samples", where=""), out, form="csv", clean=clean)
    assert sorted(("none.json" in p, "sum[n=3]" in p) for p in done.problems) == [(False, True), (True, False)]
    assert done.rows == 24 + 18
    assert done.rows == len(out.getvalue().splitlines()) - 1


def test_of_a_run_whose_own_record_is_damaged_only_its_name_is_written(results: Path) -> None:
    runs, _ = choose_runs([], every=True, results=results)
    spoilt = [run.folder for run in runs]
    for folder in spoilt:
        (folder / "run.json").write_text("{")
    out = io.StringIO()
    again, _ = choose_runs([], every=True, results=results)
    done = export_table(again, table_named("cases", where=""), out, form="json", clean=clean)
    rows = json.loads(out.getvalue())
    assert {row["run"] for row in rows} == {folder.name for folder in spoilt}
    assert {row[name] for row in rows for name in ("started", "host_id", "hostname", "git_sha", "git_diff")} == {None}
    assert sum("own record is damaged" in problem for problem in done.problems) == len(spoilt)


def test_rows_are_written_in_portions(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = exported(results, "a.parquet", "samples")
    monkeypatch.setattr(export, "_BATCH", 5)
    small = exported(results, "b.parquet", "samples")
    assert len(rows_of(whole)) > 5
    assert rows_of(small) == rows_of(whole)


def test_runs_are_chosen_by_name_or_all_and_never_twice(results: Path) -> None:
    names = sorted(p.name for p in find_runs(results))
    assert [r.folder.name for r in choose_runs([], every=True, results=results)[0]] == names
    latest = choose_runs([], every=False, results=results)[0]
    assert [r.folder for r in latest] == [open_run("latest", results=results).folder]
    twice = choose_runs([names[0], str(results / names[0])], every=False, results=results)[0]
    assert len(twice) == 1
    with pytest.raises(UserError, match="every run"):
        choose_runs([names[0]], every=True, results=results)
    with pytest.raises(UserError, match="no run is stored"):
        choose_runs([], every=True, results=results / "nowhere")


def test_a_run_of_a_newer_aiperf_is_named_and_passed_over(results: Path) -> None:
    path = find_runs(results)[0] / "run.json"
    path.write_text(path.read_text().replace('"schema_version": ', '"schema_version": 9'))
    runs, problems = choose_runs([], every=True, results=results)
    assert (len(runs), len(problems)) == (2, 1)
    assert "schema version 9" in problems[0]


def test_the_answer_counts_what_was_written(results: Path) -> None:
    runs, _ = choose_runs([], every=True, results=results)
    assert export_table(runs, table_named("cases", where=""), io.StringIO(), form="json", clean=clean) == Exported(3, 6)
