"""SQL that does more than read, or that is wrong: refused in a line, with a way out."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from factory_of_runs import make_measured, write_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_questions import refused, rows

from aiperf.errors import UserError
from aiperf.store import query
from aiperf.store.query_sql import only_select


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run with samples."""
    folder = tmp_path_factory.mktemp("store") / "results"
    write_run(folder, [make_measured("copy[size=1MiB]")])
    return folder


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
        ("", "this is nothing", "Write one SELECT over the views runs, cases"),
        ("SELECT 1; SELECT 2", "this is 2 statements", "one SELECT"),
        ("DELETE FROM runs", "DELETE is not allowed", "one SELECT"),
        ("SELECT $a", "the parameter $a has no value", "Write the value"),
        ("SELECT '\ud800'", "not text in UTF-8", "one SELECT"),
        ("SELEC 1", 'Parser Error: syntax error at or near "SELEC".', "aiperf query --schema"),
        ("SELECT * FROM sampels", "Table with name sampels does not exist", "Nearest: samples;"),
        ("SELECT wal_s FROM samples", 'Referenced column "wal_s" not found', "Nearest: samples.wall_s"),
        ("SELECT verdct FROM comparisons", 'Referenced column "verdct" not found', "comparisons.verdict"),
        (
            "SELECT sid FROM comparisons",
            'Referenced column "sid" not found',
            "Nearest: comparisons.side, comparisons.sd;",
        ),
        ("SELECT verdct FROM mechanisms", 'Referenced column "verdct" not found', "Nearest: comparisons.verdict;"),
        ("SELECT c.verdct FROM comparisons c", 'named "verdct"', "Nearest: comparisons.verdict;"),
        ("SELECT 'ä', x.run FROM runs", 'Referenced table "x" not found', "aiperf query --schema"),
        ("WITH a AS (DELETE FROM runs RETURNING *) SELECT * FROM a", "Binder Error", "A query can only read."),
        ("SELECT case FROM cases", "Parser Error", 'write the column as "case" in double quotes'),
        ("SELECT * FROM read_csv('/etc/hostname')", "Permission Error", "only the stored runs"),
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


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(repeat('x', 4000000000))",
        "SELECT list_sum(range(1000000000))",
        pytest.param("SELECT repeat('x', 10000000) FROM range(900)", marks=pytest.mark.long),
    ],
)
def test_a_query_that_takes_too_much_memory_is_refused(results, sql, monkeypatch) -> None:
    monkeypatch.setattr(query, "_ROOM", 1 << 30)  # of the usual room each page is written before it is used up
    before = resource.getrlimit(resource.RLIMIT_AS)
    _, hint = refused(sql, results)
    assert hint == "Select fewer columns or rows, or aggregate in SQL."
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_query_that_takes_too_long_is_ended(results) -> None:
    with pytest.raises(UserError, match="timed out"):
        rows("SELECT count(*) FROM range(100000000000)", results, seconds=0.3)
