"""SQL over the stored runs: what the views hold, what is passed over, and that nothing can be done but read."""

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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiperf.errors import UserError
from aiperf.records import Failure
from aiperf.store import query as query_module
from aiperf.store.query import ask
from aiperf.store.query_sql import mentioned, only_select
from aiperf.store.view_rows import ROWS
from aiperf.store.views import SAMPLES, VIEWS
from aiperf.store.write import RunWriter


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: measured, void, failed and skipped cases."""
    folder = tmp_path_factory.mktemp("store") / "results"
    failure = Failure("after", "set-up", "oom_device", "out of memory")
    touched = replace(make_measured("copy[size=1MiB]"), findings=("unfit: CPU 0-1 97 % busy",))
    write_run(folder, [touched, voided(make_measured("add", ratio=1.0, pairs=4), 1)])
    skipped = replace(make_record("gds", pairs=0), status="skipped", skip_reason="no GPU", stop="skipped")
    failed = replace(make_record("fail", pairs=0), status="failed", failure=failure)
    write_run(folder, [make_measured("copy[size=1MiB]", ratio=2.5), skipped, failed], hour=1)
    return folder


def rows(sql: str, results: Path, **options: Any) -> list[tuple[Any, ...]]:
    with ask(sql, results=results, **options) as answer:
        return list(answer.rows)


def refused(sql: str, results: Path) -> tuple[str, str]:
    """Fault and hint of SQL that must not work."""
    with pytest.raises(UserError) as caught:
        rows(sql, results)
    (fault,) = caught.value.faults
    assert "\n" not in fault.what + fault.hint
    return fault.what, fault.hint


# ---- the views -------------------------------------------------------------------------------------------------------


def test_runs_cases_and_comparisons_hold_what_was_stored(results: Path) -> None:
    assert rows("SELECT host, status, cases, planned, gpus, started FROM runs ORDER BY started", results) == [
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
        "WHERE headline ORDER BY ratio",
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
    found = rows("SELECT scenario, slot, side, kind, voids, detail FROM findings ORDER BY kind, run", results)
    assert found == [
        ("copy", None, None, "case", None, "unfit: CPU 0-1 97 % busy"),
        (None, None, None, "host", None, "the governor is powersave"),
        (None, None, None, "host", None, "the governor is powersave"),
        ("add", 1, "after", "thermal", True, "hot: 91 C"),
    ]


def test_views_join(results: Path) -> None:
    found = rows(
        """SELECT c.scenario, r.host, avg(s.wall_s) > 0 FROM cases c JOIN runs r USING (run)
        JOIN samples s ON s.run = c.run AND s.case = c.case GROUP BY ALL ORDER BY 1""",
        results,
    )
    assert found == [("add", "gpu-07", True), ("copy", "gpu-07", True)]


@pytest.mark.parametrize("view", VIEWS, ids=lambda v: v.name)
def test_every_view_has_the_columns_that_its_declaration_says(view: Any, results: Path) -> None:
    described = rows(f"DESCRIBE {view.name}", results)
    assert [(row[0], row[1]) for row in described] == [(c.name, c.kind) for c in view.columns]
    assert all(c.meaning for c in view.columns)


def test_every_view_but_the_samples_has_its_rows() -> None:
    assert set(ROWS) == {view.name for view in VIEWS} - {"samples"}


def test_what_was_not_known_is_null_and_never_the_largest_number(tmp_path: Path) -> None:
    record = replace(make_measured(), results=(make_result(high=float("inf"), sd=float("nan")),))
    write_run(tmp_path, [record])
    assert rows("SELECT high, sd, max(high) OVER () FROM comparisons", tmp_path) == [(None, None, None)]


def test_undecodable_bytes_of_a_worker_do_not_break_a_question(tmp_path: Path) -> None:
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    failure = Failure("after", "measure", "crash", odd)
    write_run(tmp_path, [replace(make_record("a", pairs=0), status="failed", failure=failure, notes=(odd,))])
    assert rows("SELECT failure_message, notes FROM cases", tmp_path) == [("caf\\udce9", ["caf\\udce9"])]


def test_views_that_are_not_asked_for_are_not_read(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [v.name for v in mentioned("select * from Runs r join CASES using (run)")] == ["runs", "cases"]
    assert mentioned("SHOW TABLES") == VIEWS
    read: list[Path] = []
    monkeypatch.setattr("aiperf.store.query_load.looks_whole", lambda path: read.append(path) or "")
    assert rows("SELECT count(*) FROM runs", results) == [(2,)]
    assert read == []


def test_every_view_is_listed_when_none_is_named(results: Path) -> None:
    assert sorted(rows("SHOW TABLES", results)) == sorted((view.name,) for view in VIEWS)


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


@pytest.mark.parametrize("where", [0.3, 0.6])
def test_samples_damaged_inside_are_named_and_the_rest_answers(tmp_path: Path, where: float) -> None:
    folder = write_run(tmp_path, [make_measured("a"), make_measured("b")])
    path = folder / "samples" / "b.parquet"
    data = bytearray(path.read_bytes())
    begin = int(len(data) * where)
    data[begin : begin + 400] = b"\xff" * 400
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

    def spoilt(connection: Any) -> Any:
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


# ---- nothing but reading ---------------------------------------------------------------------------------------------

WRITES = [
    "DROP TABLE runs",
    "INSERT INTO runs SELECT * FROM runs",
    "CREATE TABLE x AS SELECT 1",
    "COPY runs TO '{there}/out.csv'",
    "COPY runs TO '{sample}' (FORMAT parquet, USE_TMP_FILE false)",
    "ATTACH '{there}/x.db'",
    "EXPORT DATABASE '{there}/all'",
    "SET threads = 1",
    "INSTALL httpfs",
    "PRAGMA database_list",
    "EXPLAIN ANALYZE COPY runs TO '{sample}' (FORMAT parquet, USE_TMP_FILE false)",
    "SELECT 1; DROP TABLE runs",
    "SELECT 1; COPY samples TO '{sample}' (FORMAT parquet, USE_TMP_FILE false)",
    "WITH a AS (INSERT INTO runs SELECT * FROM runs RETURNING *) SELECT * FROM a",
    "WITH a AS (COPY samples TO '{sample}' (FORMAT parquet, USE_TMP_FILE false)) SELECT * FROM a, samples",
    "WITH a AS (COPY runs TO '{there}/out.csv') SELECT * FROM a",
    "SELECT 1) TO x; COPY (SELECT 1",
]
READS_ELSEWHERE = [
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM glob('{there}/*')",
    "SELECT * FROM read_parquet('{there}/other.parquet')",
    "SELECT getenv('HOME')",
    "SELECT * FROM results",
    "SELECT * FROM sqlite_scan('{there}/x', 'y')",
]


@pytest.mark.parametrize("sql", WRITES + READS_ELSEWHERE)
def test_sql_can_neither_write_nor_read_anything_else(sql: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = write_run(tmp_path / "results", [make_measured("a", pairs=2)])
    (tmp_path / "secret.csv").write_text("user,word\nme,hidden\n")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    places = {"there": tmp_path, "secret": tmp_path / "secret.csv", "sample": folder / "samples" / "a.parquet"}
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    what, hint = refused(sql.format(**places), tmp_path / "results")
    assert "hidden" not in what
    assert hint
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("sql", "said", "way_out"),
    [
        ("", "this is nothing", "Ask one SELECT over the views runs, cases"),
        ("SELECT 1; SELECT 2", "this is 2 statements", "one SELECT"),
        ("DELETE FROM runs", "DELETE is refused", "one SELECT"),
        ("SELECT $a", "the parameter $a has no value", "Write the value"),
        ("SELECT '\ud800'", "not text in UTF-8", "one SELECT"),
        ("SELEC 1", 'Parser Error: syntax error at or near "SELEC".', "aiperf query --schema"),
        ("SELECT * FROM sampels", "Table with name sampels does not exist", "Nearest: samples;"),
        ("SELECT wal_s FROM samples", 'Referenced column "wal_s" not found', "Nearest: samples.wall_s"),
        ("SELECT verdct FROM comparisons", 'Referenced column "verdct" not found', "comparisons.verdict"),
        ("SELECT case FROM cases", "Parser Error", 'write "case" in double quotes'),
        ("SELECT * FROM read_csv('/etc/hostname')", "Permission Error", "the stored runs and nothing else"),
        ("SELECT CAST(run AS INTEGER) FROM runs", "Conversion Error", "aiperf query --schema"),
        ("SELECT error('boo') FROM runs", "boo", "aiperf query --schema"),
    ],
)
def test_sql_that_fails_is_told_in_one_line_with_a_way_out(results: Path, sql: str, said: str, way_out: str) -> None:
    what, hint = refused(sql, results)
    assert said in what
    assert way_out in hint


def test_what_only_a_later_row_shows_is_told_the_same_way(results: Path) -> None:
    sql = "SELECT CASE WHEN i > 5000 THEN error('too far') ELSE i END FROM range(100000) t(i)"
    with pytest.raises(UserError, match="too far"):
        rows(sql, results)


WORDS = [
    "SELECT",
    "FROM",
    "runs",
    "cases",
    "WHERE",
    "a",
    "(",
    ")",
    "*",
    ",",
    "1",
    "=",
    "AS",
    "WITH",
    ";",
    "'",
    '"',
    "--",
]
WORDS += ["/*", "*/", "COPY", "TO", "case", "GROUP", "BY", "ALL", "$x", "?", "::", "JSON"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(WORDS),
        max_size=12,
    ).map(" ".join)
)
def test_any_text_is_one_select_or_a_mistake(text: str) -> None:
    import duckdb

    try:
        only_select(text)
    except (UserError, duckdb.Error):
        return


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from([*WORDS[:12], "count(*)", "LIMIT", "NULL", "run"]),
        max_size=7,
    )
)
def test_any_sql_answers_or_is_a_mistake(results: Path, words: list[str]) -> None:
    try:
        rows(f"SELECT {' '.join(words)}", results)
    except UserError:
        return


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
