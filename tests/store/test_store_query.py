"""SQL over the stored runs: what the views hold, what is passed over, and what a question may take."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from factory_of_runs import BEGUN, make_measured, make_result, voided, write_run
from factory_of_stored_records import make_record
from store_questions import refused, rows

from aiperf.records import Failure, HostFinding, Latencies, text_notes
from aiperf.store import query as query_module
from aiperf.store.query import ask
from aiperf.store.query_sql import mentioned
from aiperf.store.tables.catalogue import QUERY_TABLES
from aiperf.store.tables.measured import SAMPLES
from aiperf.store.write import RunWriter


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: measured, void, failed and skipped cases."""
    folder = tmp_path_factory.mktemp("store") / "results"
    failure = Failure("after", "set-up", "oom_device", "out of memory")
    touched = replace(
        make_measured("copy[size=1MiB]"),
        findings=(HostFinding("cpu-oversubscription", "unfit", "Work of others", "CPU 0-1 97 % busy"),),
    )
    write_run(folder, [touched, voided(make_measured("add", ratio=1.0, pairs=4), 1)])
    skipped = replace(make_record("gds", pairs=0), status="skipped", skip_reason="no GPU", stop="skipped")
    failed = replace(make_record("fail", pairs=0), status="failed", failure=failure)
    write_run(folder, [make_measured("copy[size=1MiB]", ratio=2.5), skipped, failed], hour=1)
    return folder


# ---- the views -------------------------------------------------------------------------------------------------------


def test_runs_cases_and_comparisons_hold_what_was_stored(results: Path) -> None:
    assert rows("SELECT hostname, status, cases, planned, gpus, started FROM runs ORDER BY started", results) == [
        ("gpu-07", "finished", 2, 2, ["a GPU"], BEGUN),
        ("gpu-07", "finished", 3, 3, ["a GPU"], BEGUN.replace(hour=19)),
    ]
    found = rows(
        """SELECT "case", scenario, axes->>'size', status, skip_reason, failure_kind, pairs, void_pairs, seed
        FROM cases ORDER BY run, "case" """,
        results,
    )
    assert found == [
        ("add", "add", "1MiB", "measured", None, None, 4, 1, 7),
        ("copy[size=1MiB]", "copy", "1MiB", "measured", None, None, 6, 0, 7),
        ("copy[size=1MiB]", "copy", "1MiB", "measured", None, None, 6, 0, 7),
        ("fail", "fail", None, "failed", None, "oom_device", 0, 0, 0),
        ("gds", "gds", None, "skipped", "no GPU", None, 0, 0, 0),
    ]
    found = rows(
        "SELECT scenario, before, after, ratio, low, high, verdict, threshold, provisional FROM comparisons "
        "WHERE is_primary ORDER BY ratio",
        results,
    )
    assert found == [
        ("add", 4.0, 4.0, 1.0, 0.9, 1.1, "improved", 0.02, False),
        ("copy", 4.0, 2.0, 2.0, 1.9, 2.1, "improved", 0.02, False),
        ("copy", 4.0, 1.6, 2.5, 2.4, 2.6, "improved", 0.02, False),
    ]
    assert rows("SELECT count(*) FROM comparisons", results) == [(6,)]


def test_samples_are_those_of_the_pairs_with_run_and_scenario(results: Path) -> None:
    found = rows("SELECT scenario, count(*), count(DISTINCT run) FROM samples GROUP BY 1 ORDER BY 1", results)
    assert found == [("add", 16, 1), ("copy", 48, 2)]
    with ask('FROM samples ORDER BY run, "case", slot, "index"', results=results) as answer:
        assert answer.columns == tuple(c.name for c in SAMPLES.columns)
        first = dict(zip(answer.columns, next(answer.rows), strict=True))
    assert (first["case"], first["slot"], first["side"], first["wall_s"]) == ("add", 0, "before", 1e-3)


@pytest.mark.parametrize("hours", [(0, 1), (1, 0)])
def test_files_with_latencies_and_files_without_answer_together(tmp_path: Path, hours: tuple[int, int]) -> None:
    plain, telling = make_measured("plain"), make_measured("telling")
    pairs = tuple(
        replace(p, samples=tuple(replace(s, latencies=(Latencies((1.0,), "ttft", 3),)) for s in p.samples))
        for p in telling.pairs
    )
    for record, hour in zip((plain, replace(telling, pairs=pairs)), hours, strict=True):
        write_run(tmp_path, [record], hour=hour)
    assert rows("SELECT scenario, count(*) > 0 FROM samples GROUP BY 1 ORDER BY 1", tmp_path) == [
        ("plain", True), ("telling", True),
    ]  # fmt: skip
    flat = "SELECT scenario, unnest(latencies_s) AS seconds, unnest(latency_series) AS series FROM samples"
    found = rows(f"SELECT scenario, series, count(*) > 0, max(seconds) FROM ({flat}) GROUP BY ALL", tmp_path)
    assert found == [("telling", "ttft", True, 1.0)]


def test_samples_of_a_void_pair_are_marked(results: Path) -> None:
    found = rows(
        "SELECT slot, bool_and(void), count(*) FROM samples WHERE scenario = 'add' GROUP BY 1 ORDER BY 1", results
    )
    assert found == [(0, False, 4), (1, True, 4), (2, False, 4), (3, False, 4)]


def test_counters_and_findings_come_from_the_pairs(results: Path) -> None:
    assert rows("SELECT scenario, name, count(*), max(value) FROM counters GROUP BY ALL ORDER BY 1", results) == [
        ("add", "launches", 8, 13.0),
        ("copy", "launches", 24, 15.0),
    ]
    found = rows(
        "SELECT scenario, slot, side, kind, id, level, voids, detail FROM findings ORDER BY kind, run", results
    )
    assert found == [
        (
            "copy",
            None,
            None,
            "case",
            "cpu-oversubscription",
            "unfit",
            None,
            "unfit: Work of others: CPU 0-1 97 % busy.",
        ),
        (None, None, None, "host", "hpc-kernel-governor", "warn", None, "warn: Frequency governor: powersave."),
        (None, None, None, "host", "hpc-kernel-governor", "warn", None, "warn: Frequency governor: powersave."),
        ("add", 1, "after", "thermal", None, None, True, "hot: 91 C"),
    ]


def test_views_join(results: Path) -> None:
    found = rows(
        """SELECT c.scenario, r.hostname, avg(s.wall_s) > 0 FROM cases c JOIN runs r USING (run)
        JOIN samples s ON s.run = c.run AND s.case = c.case GROUP BY ALL ORDER BY 1""",
        results,
    )
    assert found == [("add", "gpu-07", True), ("copy", "gpu-07", True)]


@pytest.mark.parametrize("view", QUERY_TABLES, ids=lambda v: v.name)
def test_every_view_has_the_columns_that_its_declaration_says(view: Any, results: Path) -> None:
    described = rows(f"DESCRIBE {view.name}", results)
    assert [(row[0], row[1]) for row in described] == [(c.name, c.sql_type) for c in view.columns]
    assert all(c.meaning for c in view.columns)


def test_what_was_not_known_is_null_and_never_the_largest_number(tmp_path: Path) -> None:
    record = replace(make_measured(), results=(make_result(high=float("inf"), sd=float("nan")),))
    write_run(tmp_path, [record])
    assert rows("SELECT high, sd, max(high) OVER () FROM comparisons", tmp_path) == [(None, None, None)]


def test_undecodable_bytes_of_a_worker_do_not_break_a_question(tmp_path: Path) -> None:
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    failure = Failure("after", "measure", "crash", odd)
    write_run(
        tmp_path, [replace(make_record("a", pairs=0), status="failed", failure=failure, notes=text_notes((odd,)))]
    )
    assert rows("SELECT failure_message, notes FROM cases", tmp_path) == [("caf\\udce9", ["caf\\udce9"])]


def test_views_that_are_not_asked_for_are_not_read(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [v.name for v in mentioned("select * from Runs r join CASES using (run)")] == ["runs", "cases"]
    assert mentioned("SHOW TABLES") == QUERY_TABLES
    read: list[Path] = []
    monkeypatch.setattr("aiperf.store.query_load.looks_whole", lambda path: read.append(path) or "")
    assert rows("SELECT count(*) FROM runs", results) == [(2,)]
    assert read == []


def test_every_view_is_listed_when_none_is_named(results: Path) -> None:
    assert sorted(rows("SHOW TABLES", results)) == sorted((view.name,) for view in QUERY_TABLES)


def test_a_limit_ends_the_rows(results: Path) -> None:
    assert len(rows("SELECT * FROM samples", results, limit=5)) == 5
    assert len(rows("SELECT * FROM range(5000)", results)) == 5000


def test_times_with_a_zone_and_every_other_type_can_be_fetched(results: Path) -> None:
    ((now, day, nested),) = rows("SELECT now(), DATE '2026-01-02', {'a': [1, NULL]}", results)
    assert now.startswith("20")
    assert (day.isoformat(), nested) == ("2026-01-02", {"a": [1, None]})


@pytest.mark.parametrize("end", ["", ";", " ; -- done", ";; /* ; */", "\n-- a comment"])
def test_whatever_ends_a_statement_is_no_part_of_it(results: Path, end: str) -> None:
    assert rows(f"/* ; */ SELECT 'é;' AS \"a;b\"{end}", results) == [("é;",)]


def test_order_is_kept(results: Path) -> None:
    assert rows("SELECT i FROM range(4000) t(i) ORDER BY i DESC", results)[:2] == [(3999,), (3998,)]


def test_folders_with_every_odd_character_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "it's a*b?[x]{y,z}" / "size=1" / "é"
    write_run(folder, [make_measured("copy[size=1MiB]")])
    assert rows("SELECT count(*) FROM samples", folder) == [(24,)]
    monkeypatch.chdir(folder.parent)
    assert rows("SELECT count(*), count(DISTINCT run) FROM samples", Path("é")) == [(24, 1)]


def test_json_columns_hold_json(results: Path) -> None:
    ((software, axes),) = rows(
        "SELECT r.settings, c.axes FROM runs r JOIN cases c USING (run) WHERE c.scenario = 'add'", results
    )
    assert (json.loads(software), json.loads(axes)) == ({}, {"size": "1MiB"})


def test_times_that_are_no_times_are_null(tmp_path: Path) -> None:
    write_run(tmp_path, [], started="yesterday", finished="2026-11-20T18:05:03+02:00")
    assert rows("SELECT started, finished FROM runs", tmp_path) == [(None, datetime(2026, 11, 20, 16, 5, 3))]


def test_telemetry_is_a_view_of_the_pairs(tmp_path: Path) -> None:
    record = make_measured("copy[size=1MiB]", pairs=2)
    pairs = tuple(replace(p, telemetry={"before": {"power_w": 400.0 + n}}) for n, p in enumerate(record.pairs))
    folder = tmp_path / "results"
    write_run(folder, [replace(record, pairs=pairs)])
    found = rows("SELECT slot, mark, name, value FROM telemetry WHERE kind = 'median' ORDER BY slot", folder)
    assert found == [(0, "before", "power_w", 400.0), (1, "before", "power_w", 401.0)]


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_damage_of_every_kind_is_named_and_the_rest_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One damaged file in a long history must not make each question read all of it.
    monkeypatch.setattr("aiperf.store.query_load.why_unreadable", lambda path: pytest.fail("all files are read"))
    names = ("good", "cut", "text", "gone", "record", "short")
    folder = write_run(tmp_path, [make_measured(name) for name in names])
    samples = folder / "samples"
    whole = (samples / "cut.parquet").read_bytes()
    (samples / "cut.parquet").write_bytes(whole[:-20])
    (samples / "text.parquet").write_bytes(b"PAR1 no such thing, but long enough PAR1")
    (samples / "gone.parquet").unlink()
    (samples / "short.parquet").write_bytes(b"PAR")
    (folder / "cases" / "record.json").write_bytes(b"{")
    (folder / "run.json").write_bytes(b"garbage")
    with ask("SELECT scenario, count(*) FROM samples GROUP BY 1", results=tmp_path) as answer:
        assert list(answer.rows) == [("good", 24)]
        reasons = {d.path.name: d.reason for d in answer.damaged}
    assert set(reasons) == {"cut.parquet", "text.parquet", "gone.parquet", "short.parquet", "record.json", "run.json"}
    assert reasons["gone.parquet"] == "cannot be read (No such file or directory)"
    assert "is not a Parquet file of samples" in reasons["cut.parquet"]
    assert rows("SELECT cases FROM runs", tmp_path) == [(5,)]


@pytest.mark.parametrize("column", ["wall_s", "iterations"])
def test_samples_damaged_inside_are_named_and_the_rest_answers(tmp_path: Path, column: str) -> None:
    import pyarrow.parquet as pq

    folder = write_run(tmp_path, [make_measured("a"), make_measured("b")])
    path = folder / "samples" / "b.parquet"
    data = bytearray(path.read_bytes())
    chunks = pq.ParquetFile(path).metadata.row_group(0)
    chunk = next(c for c in map(chunks.column, range(chunks.num_columns)) if c.path_in_schema == column)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    data[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)
    with ask(
        "SELECT scenario, count(*), sum(wall_s), sum(iterations) FROM samples GROUP BY 1", results=tmp_path
    ) as answer:
        assert [row[:2] for row in answer.rows] == [("a", 24)]
        assert [d.path for d in answer.damaged] == [path]


def test_a_parquet_file_of_something_else_is_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = write_run(tmp_path, [make_measured("a"), make_measured("b")])
    pq.write_table(pa.table({"slot": [0], "wall_s": ["long"]}), folder / "samples" / "b.parquet")
    with ask("SELECT scenario, sum(wall_s) FROM samples GROUP BY 1", results=tmp_path) as answer:
        assert [row[0] for row in answer.rows] == ["a"]
        (damaged,) = answer.damaged
    assert damaged.reason == "holds other columns than samples have"


def test_damage_that_only_a_later_row_meets_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path, [make_measured("a"), make_measured("b")])
    path = folder / "samples" / "b.parquet"

    def spoilt(connection: Any, deadline: float) -> Any:
        import duckdb

        path.write_bytes(b"PAR1")
        raise duckdb.IOException("IO Error: too small to be a Parquet file")
        yield

    monkeypatch.setattr(query_module, "_rest", spoilt)
    what, _ = refused("SELECT wall_s FROM samples", tmp_path)
    assert "is not a Parquet file" in what


def test_samples_that_no_record_stands_for_are_invisible(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [make_measured("a", pairs=2)])
    (folder / "samples" / "b.parquet").write_bytes((folder / "samples" / "a.parquet").read_bytes())
    (folder / "samples" / ".c.parquet.99-abcd.part").write_bytes(b"PAR1")
    kept = (folder / "cases" / "a.json").read_bytes()
    RunWriter(folder).write_case(make_measured("a", pairs=4))
    (folder / "cases" / "a.json").write_bytes(kept)
    with ask("SELECT count(*), max(slot) FROM samples", results=tmp_path) as answer:
        assert list(answer.rows) == [(8, 1)]
        assert answer.damaged == ()


def test_a_history_without_any_samples_answers_with_no_rows(tmp_path: Path) -> None:
    write_run(tmp_path, [make_record("a", pairs=0)])
    assert rows("SELECT count(*) FROM samples", tmp_path) == [(0,)]
    assert rows("SELECT count(*) FROM counters", tmp_path) == [(0,)]


def test_a_folder_without_runs_is_a_mistake(tmp_path: Path) -> None:
    what, hint = refused("SELECT 1", tmp_path / "nowhere")
    assert "no run is stored in" in what
    assert "aiperf run" in hint


# ---- what a question may take ----------------------------------------------------------------------------------------


def test_a_case_that_was_cut_short_has_its_status_for_a_verdict(tmp_path: Path) -> None:
    write_run(tmp_path, [replace(make_measured(), status="interrupted", stop="interrupted")])
    found = rows("SELECT ratio, verdict, reason, sentence, provisional FROM comparisons WHERE is_primary", tmp_path)
    assert found == [(2.0, "interrupted", "interrupted", None, False)]


def test_a_question_that_takes_long_can_be_interrupted(results: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGINT, interrupt)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            rows("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b, runs", results)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, former)


def test_the_memory_that_a_question_may_take_is_bounded_and_what_is_more_spills(results: Path) -> None:
    ((limit, place),) = rows("SELECT current_setting('memory_limit'), current_setting('temp_directory')", results)
    assert limit == "256.0 MiB"
    assert "aiperf-query-" in place
    assert not Path(place).exists()
