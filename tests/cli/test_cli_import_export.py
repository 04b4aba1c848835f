"""``aiperf import`` and ``aiperf export`` as they are typed."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from aiperf.cli.import_ import Tool
from aiperf.store.importers.detect import FORMATS

FOREIGN = Path(__file__).resolve().parents[1] / "fixtures" / "foreign"


@pytest.fixture
def files(user) -> None:
    shutil.copytree(FOREIGN, user.folder / "old")


@pytest.mark.usefixtures("files")
def test_an_import_tells_value_spread_replicates_and_what_was_left_out(here) -> None:
    told = here("import", "old/pyperf.json")
    assert (told.code, told.err) == (0, "")
    assert told.out == (
        "pyperf.json · pyperf 2.10.0 · host imported-a041b70f2f1b · results/2026-11-21T18-03-43-vm\n"
        " case        time  spread  replicates\n"
        " sorted    894 ns  12.6 %  3 × process\n"
        " reversed  648 ns  10.2 %  3 × process\n"
        " 3 warm-up values left out\n"
        " the file names no time zone: the date is read as UTC\n"
    )


@pytest.mark.usefixtures("files")
def test_notes_of_some_cases_are_told_with_their_cases(here) -> None:
    told = here("import", "old/nvbench.json")
    assert (
        " copy[In=F16]        –       –  skipped: nvbench: Not supported on this device.              –     –\n"
        in told.out
    )
    assert " batched: the batch mean: launches back to back with warm caches\n" in told.out


@pytest.mark.usefixtures("files")
def test_figures_of_the_tool_stand_beside_those_of_aiperf_and_are_told_apart(here) -> None:
    told = here("import", "old/criterion", "--host-id", "laptop")
    assert told.out.splitlines()[1:] == [
        " case                     time  spread  replicates   criterion: mean   median   n  also",
        " fold-xor[value=10]    9.24 ns  50.8 %  10 × sample          10.5 ns  9.68 ns  10  slope 7.34 ns",
        " fold-xor[value=1000]  1.87 µs  57.6 %  10 × sample          2.23 µs  1.34 µs  10  slope 1.44 µs",
        " fold-100               164 ns  13.8 %  12 × sample           165 ns   163 ns  12  slope 175 ns",
        " the samples are from one process: their spread leaves out differences between processes",
        " the files have no date: their modification times are used",
        " time and spread are aiperf's, from the replicates; the columns after them are criterion's own",
    ]
    (row,) = json.loads(here("import", "old/jmh.json", "--json").out)
    own = row["cases"][0]["own"]
    assert (own["tool"], own["mean"], own["n"], own["unit"]) == ("jmh", pytest.approx(1.3), 6, "us/op")


@pytest.mark.usefixtures("files")
def test_an_import_is_not_latest_where_nothing_was_measured_either(here) -> None:
    here("import", "old/pyperf.json")
    told = here("report", "latest")
    assert (told.code, "results has only imported runs" in told.err, "2026-11-21T18-03-43-vm" in told.err) == (
        2, True, True,
    )  # fmt: skip


@pytest.mark.usefixtures("files")
def test_an_import_is_a_listing_in_json_too(here, user) -> None:
    (row, other) = json.loads(
        here("import", "old/hyperfine.json", "old/pyperf.json", "--json", "--host-id", "node-7").out
    )
    assert (row["file"], row["imported_from"], row["host_id"]) == ("old/hyperfine.json", "hyperfine", "node-7")
    case = row["cases"][0]
    assert (case["case"], case["status"], case["replicate"], case["replicates"]) == ("sleep-0.01", "imported", "run", 6)
    assert case["sides"][0]["value"] == pytest.approx(0.0142, abs=1e-4)
    stored = json.loads((user.folder / other["folder"] / "run.json").read_text())
    assert stored["argv"][1:3] == ["import", "old/hyperfine.json"]


@pytest.mark.usefixtures("files")
def test_all_faults_come_at_once_and_the_good_files_are_stored(here, user) -> None:
    user.write("old/bad.json", '{"rows": 1}')
    told = here("import", "old/bad.json", "old/pyperf.json", "old/none.json")
    assert told.code == 2
    assert "sorted" in told.out
    assert "bad.json: is not a format that aiperf reads: its keys are rows." in told.err
    assert "none.json: cannot be read" in told.err
    assert told.plain
    again = here("import", "old/pyperf.json")
    assert (again.code, "was already imported, as 2026-11-21T18-03-43-vm" in again.err) == (2, True)
    assert here("import", "old/pyperf.json", "--again").code == 0


@pytest.mark.usefixtures("files")
def test_runs_that_were_imported_are_held_against_each_other(here, user) -> None:
    faster = json.loads((user.folder / "old" / "pyperf.json").read_text())
    for run in (run for benchmark in faster["benchmarks"] for run in benchmark["runs"]):
        run["values"] = [value / 4 for value in run["values"]]
        run["metadata"]["date"] = run["metadata"]["date"].replace("11-21", "11-22")
    user.write("new.json", json.dumps(faster))
    assert here("import", "old/pyperf.json", "new.json").code == 0
    told = here("compare", "2026-11-21", "2026-11-22")
    assert "−75.0 %" in told.out
    assert "3 × process" in told.out


@pytest.mark.usefixtures("files")
def test_two_benchmarks_of_a_file_can_be_held_against_each_other(here) -> None:
    told = here("import", "old/hyperfine.json", "--before", "sleep 0.02", "--after", "sleep 0.01", "--name", "half")
    assert " half        22.1 ms / 14.2 ms  4.95 % / 20.2 %  12 × run" in told.out
    assert "never interleaved" in told.out
    assert here("import", "old/pyperf.json", "--before", "sorted").code == 2


@pytest.mark.usefixtures("files")
def test_the_tools_that_can_be_named_are_the_formats_that_are_known(here) -> None:
    assert [tool.value for tool in Tool] == ["auto", *FORMATS]
    told = here("import", "old/pyperf.json", "--tool", "hyperfine")
    assert (told.code, "contains no benchmark of hyperfine" in told.err) == (2, True)


@pytest.mark.usefixtures("files")
def test_what_was_imported_is_exported_again(here, user) -> None:
    here("import", "old/pyperf.json", "old/google_benchmark.json")
    told = here("export", "--all", "--output", "all.parquet")
    assert (told.code, told.out, told.err) == (0, "", "all.parquet: 6 rows (comparisons) of 2 runs\n")
    import pandas as pd

    frame = pd.read_parquet(user.folder / "all.parquet")
    assert sorted(frame["replicate"].unique()) == ["process", "repetition"]
    assert frame.set_index("case")["after"]["sorted"] == pytest.approx(894e-9, abs=1e-9)


@pytest.mark.usefixtures("files")
def test_an_export_to_stdout_is_nothing_but_the_table(here) -> None:
    here("import", "old/pyperf.json")
    rows = list(csv.DictReader(io.StringIO(here("export", "--all", "-o", "-", "--what", "samples").out)))
    assert (len(rows), rows[0]["case"], rows[0]["iterations"]) == (18, "sorted", "2000")
    assert len(json.loads(here("export", "--all", "-o", "-", "--format", "json", "--what", "cases").out)) == 2


def test_a_measured_run_is_exported_by_its_name_or_as_the_latest(reader, user, here) -> None:
    shutil.copytree(reader.folder / "results", user.folder / "results", symlinks=True)
    assert here("export", "-o", "a.json").code == here("export", user.latest().name, "-o", "b.json").code == 0
    rows = json.loads((user.folder / "a.json").read_text())
    assert rows == json.loads((user.folder / "b.json").read_text())
    read = json.loads(here("export", "-o", "-", "--format", "json", "--what", "telemetry").out)
    assert {"before", "after"} <= {row["mark"] for row in read if row["name"] == "iterations"}
    stored = user.record()["results"]
    assert [(r["metric"], r["ratio"], r["low"], r["sd"]) for r in rows] == [
        (s["comparison"]["metric"], s["comparison"]["ratio"], s["comparison"]["low"], s["comparison"]["sd"])
        for s in stored
    ]


def test_nothing_to_export_and_nothing_to_overwrite_are_mistakes(here, user) -> None:
    assert "no run is stored" in here("export", "-o", "a.csv").err
    user.write("a.csv", "mine")
    shutil.copytree(FOREIGN, user.folder / "old")
    here("import", "old/pyperf.json")
    told = here("export", "--all", "-o", "a.csv")
    assert (told.code, "a.csv already exists" in told.err) == (2, True)
    assert here("export", "--all", "-o", "a.csv", "--force").code == 0
    assert "has no known extension" in here("export", "--all", "-o", "a.xls").err
