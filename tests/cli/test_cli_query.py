"""``aiperf query``: SQL over the stored runs, in every dialect, and every way to get it wrong."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S, until

from aiperf.records import Case
from aiperf.records.profiled import Mechanism, Profile
from aiperf.store.profiles import write_profile

PER_SIDE = "SELECT side, count(*) AS n, min(wall_s) > 0 AS fine FROM samples GROUP BY side ORDER BY side"


@pytest.fixture
def run(reader, user, here):
    """A copy of the measured run, to ask or to spoil."""
    shutil.copytree(reader.folder / "results", user.folder / "results", symlinks=True)
    return here


def test_a_table_fits_and_says_what_was_stored(run, user) -> None:
    told = run("query", "SELECT scenario, verdict, ratio FROM comparisons WHERE is_primary")
    assert (told.code, told.err) == (0, "")
    head, row = told.out.splitlines()
    assert head.split() == ["scenario", "verdict", "ratio"]
    stored = user.record()["results"][0]
    assert row.split() == ["tiny", stored["verdict"]["word"], f"{stored['comparison']['ratio']:.6g}"]


def test_every_dialect_holds_the_same_rows(run) -> None:
    rows = json.loads(run("query", PER_SIDE, "--json").out)
    assert [row["side"] for row in rows] == ["after", "before"]
    assert all(row["n"] > 3 and row["fine"] is True for row in rows)
    assert run("query", PER_SIDE, "--format", "json").out == run("query", PER_SIDE, "--json").out
    (head, *found) = csv.reader(io.StringIO(run("query", PER_SIDE, "--format", "csv").out))
    assert head == ["side", "n", "fine"]
    assert found == [[row["side"], str(row["n"]), "true"] for row in rows]
    lines = run("query", PER_SIDE, "--format", "markdown").out.splitlines()
    assert lines[:2] == ["| side | n | fine |", "| --- | ---: | --- |"]
    assert lines[2] == f"| after | {rows[0]['n']} | true |"


def test_numbers_are_exact_where_programs_read_them(run, user) -> None:
    sql = "SELECT ratio FROM comparisons WHERE is_primary"
    ratio = user.record()["results"][0]["comparison"]["ratio"]
    assert json.loads(run("query", sql, "--json").out) == [{"ratio": ratio}]
    assert run("query", sql, "--format", "csv").out == f"ratio\n{ratio!r}\n"


def test_a_limit_ends_the_rows_and_a_long_table_says_so(run) -> None:
    assert len(run("query", "FROM samples", "--limit", "3", "--format", "csv").out.splitlines()) == 4
    long = run("query", "SELECT i FROM range(1500) t(i)")
    assert len(long.out.splitlines()) == 1001
    assert "only the first 1000 rows" in long.err
    whole = run("query", "SELECT i FROM range(1500) t(i)", "--limit", "1500")
    assert (len(whole.out.splitlines()), whole.err) == (1501, "")
    assert len(json.loads(run("query", "SELECT i FROM range(1500) t(i)", "--json").out)) == 1500
    assert run("query", "SELECT 1", "--limit", "0").code == 2


def test_no_rows_are_told(run) -> None:
    assert run("query", "SELECT run FROM runs WHERE false").out == " no rows (run)\n"
    assert run("query", "SELECT run FROM runs WHERE false", "--json").out == "[]\n"
    assert run("query", "SELECT run FROM runs WHERE false", "--format", "csv").out == "run\n"


def test_the_schema_lists_every_view_and_column_without_a_run(here, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    told = here("query", "--schema")
    assert told.code == 0
    assert max(map(len, told.out.splitlines())) <= 100
    measured = ("runs", "cases", "comparisons", "samples", "counters", "findings")
    for view in (*measured, "profile_rows", "profile_metrics", "profile_sides", "profile_passes", "mechanisms"):
        assert f"\n{view}: " in f"\n{told.out}"
    listed = json.loads(here("query", "--schema", "--json").out)
    assert [c["name"] for c in listed[3]["columns"]][:3] == ["run", "case", "scenario"]


@pytest.mark.parametrize("argv", [(), ("",), ("  ",)])
def test_no_sql_is_a_mistake_with_an_example(here, argv) -> None:
    told = here("query", *argv)
    assert told.code == 2
    assert "no SQL statement given" in told.err
    assert "aiperf query" in told.err


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT verdct FROM comparisons", "comparisons.verdict"),
        ("DROP TABLE runs", "DROP is not allowed"),
        ("COPY runs TO 'out.csv'", "COPY is not allowed"),
        ("SELECT * FROM read_text('tiny.yaml')", "only the stored runs"),
        ("SELECT '\udce9'", "UTF-8"),
        ("SELECT CASE WHEN i > 5000 THEN error('too far') ELSE i END FROM range(9000) t(i)", "too far"),
    ],
)
def test_bad_sql_is_a_mistake_in_a_line_and_a_way_out(run, user, sql, said) -> None:
    told = run("query", sql, "--format", "csv")
    assert (told.code, told.plain) == (2, True)
    assert said in told.err
    assert len(told.err.splitlines()) == 2
    assert not (user.folder / "out.csv").exists()


def test_damaged_files_are_named_on_stderr_and_passed_over(run, user) -> None:
    (user.latest() / "run.json").write_bytes(b"garbage")
    (user.latest() / "samples" / "tiny.parquet").write_bytes(b"PAR1")
    told = run("query", "SELECT (SELECT count(*) FROM samples), count(*) FROM cases", "--format", "csv")
    assert told.code == 0
    assert told.out.splitlines()[1] == "0,1"
    assert sorted(line.split(" ")[0].rsplit("/")[-1] for line in told.err.splitlines()) == ["run.json", "tiny.parquet"]
    assert (told.err.count("ignored"), told.err.count("own record is damaged")) == (1, 1)
    found = run("query", "SELECT * FROM runs", "--format", "json")
    (row,) = json.loads(found.out)
    assert {name for name, value in row.items() if value is not None} == {"run", "status", "cases", "folder"}
    assert (row["status"], row["cases"]) == ("unknown", 1)


def test_profiles_answer_beside_what_was_measured_and_a_damaged_one_is_named(run, user) -> None:
    claim = Mechanism("page-faults", "down", "moved", 2.5, 0.0, tool="perf")
    write_profile(user.latest(), Case("tiny", "tiny", "", "", ()), Profile("tiny", mechanism=(claim,)))
    (user.latest() / "profiles" / "cut.json").write_text("{")
    sql = """SELECT scenario, status, counter, m.before, m.after, unit, state
        FROM cases JOIN mechanisms m USING (run, "case", scenario)"""
    told = run("query", sql, "--json")
    found = {"counter": "page-faults", "before": 2.5, "after": 0.0, "unit": None, "state": "moved"}
    assert json.loads(told.out) == [{"scenario": "tiny", "status": "measured", **found}]
    assert (told.err.count("cut.json"), told.err.count("ignored"), len(told.err.splitlines())) == (1, 1, 1)
    assert run("query", "SELECT count(*) FROM cases, samples").err == ""


def test_a_folder_without_runs_is_a_mistake(here) -> None:
    told = here("query", "SELECT 1", "--results", "elsewhere")
    assert (told.code, "no run is stored in elsewhere" in told.err) == (2, True)


def test_a_long_question_ends_at_once_on_a_signal(run, marked) -> None:
    sql = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b, runs"
    with marked.start("query", sql) as process:
        # By then it has read the runs and left for DuckDB's own threads.
        assert until(lambda: len(list_threads(process.pid)) > 1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, "", "")


def list_threads(pid: int) -> list[str]:
    """Threads of a process."""
    folder = Path(f"/proc/{pid}/task")
    return [p.name for p in folder.iterdir()] if folder.is_dir() else []


@pytest.mark.long
def test_help_and_schema_load_no_database(user) -> None:
    for argv in (("query", "--help"), ("query", "--schema")):
        code = (
            f"import sys; sys.argv = ['aiperf', *{argv!r}]; from aiperf.cli.main import entry; code = entry(); "
            "print(sorted({'duckdb', 'pyarrow', 'numpy'} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=user.environment())
        assert (done.returncode, done.stderr.strip()) == (0, "[]")
