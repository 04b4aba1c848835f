"""``aiperf book``, and suites on the command line."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml


@pytest.mark.long
def test_a_chapter_is_listed_with_claim_and_answer(here) -> None:
    told = here("book", "--chapter", "ch07")
    assert told.code == 0
    assert told.out.startswith("Chapter 7\n")
    assert re.search(r"^ ch07/scalar-vs-float4-copy +impossible as printed$", told.out, re.MULTILINE)
    assert "Chapter 8" not in told.out
    assert told.err == ""
    assert told.plain


def test_a_row_is_shown_by_its_name_and_show_names_the_way_to_it(here) -> None:
    told = here("book", "ch05/random-vs-sequential-read")
    assert told.out.startswith("Chapter 5\n ch05/random-vs-sequential-read  ")
    assert "read fixed-size records at random offsets of one file, against read the same" in " ".join(told.out.split())
    assert "Did you mean ch05/random-vs-sequential-read?" in here("book", "ch05/random-vs-sequential-reed").err
    assert "cannot be combined" in here("book", "ch05/random-vs-sequential-read", "--chapter", "ch05").err
    refused = here("show", "ch05/random-vs-sequential-read")
    assert (refused.code, "aiperf book ch05/random-vs-sequential-read" in refused.err) == (2, True)


def test_a_row_says_whether_the_counters_of_its_scenario_moved(here) -> None:
    counted = "files_opened should go down: as claimed (512 before, 1 after, counted by the workload)."
    told = here("book", "ch05/many-small-files-vs-packed-shards")
    assert counted in " ".join(told.out.split())
    (row,) = json.loads(here("book", "ch05/many-small-files-vs-packed-shards", "--json").out)
    assert row["counters"] == [counted]
    profiled = here("book", "ch03/4k-vs-transparent-hugepages").out
    assert "dtlb_load_misses should go down: not profiled." in profiled
    assert "page_faults should go down: did not move (0 before, 0 after, by perf)." in profiled
    assert "Profile: perf on AMD EPYC at " in profiled
    assert "aiperf profile 4k-pages-vs-transparent-huge-pages" in profiled
    middle = " ".join(here("book", "ch09/gemm-precision-ladder").out.split())
    assert "Counters are compared between the first and the last side of a case; the answer rests on bf16" in middle


def test_damaged_counters_are_told_and_the_row_is_shown(here, tmp_path) -> None:
    shipped = Path(__file__).resolve().parents[2] / "results" / "reference"
    (row,) = json.loads(here("book", "ch05/many-small-files-vs-packed-shards", "--json").out)
    reference = tmp_path / "kept" / "reference"
    shutil.copytree(shipped / row["run"], reference / row["run"])
    (reference / "figures").mkdir()
    (reference / "figures" / "mechanisms.jsonl").write_text("{\n")
    told = here("book", row["row"], "--results", str(tmp_path / "kept"))
    assert (told.code, row["case"] in told.out) == (0, True)
    assert "mechanisms.jsonl:1: is not the JSON of one counter" in told.err


@pytest.mark.long
def test_the_listing_is_there_for_programs(here) -> None:
    rows = json.loads(here("book", "--chapter", "ch01", "--chapter", "ch10", "--json").out)
    assert {row["row"].partition("/")[0] for row in rows} == {"ch01", "ch10"}
    table = list(csv.DictReader(io.StringIO(here("book", "--chapter", "ch01", "--format", "csv").out)))
    assert table[0].keys() == rows[0].keys() - {"book"}
    assert here("book", "--chapter", "ch01", "--format", "markdown").out.startswith("## The book and this machine")


def test_what_is_missing_are_core_rows_without_a_scenario(here) -> None:
    rows = json.loads(here("book", "--missing", "--json").out)
    assert all(row["weight"] in ("core", "useful") and row["scenarios"] == [] for row in rows)
    assert "ch04/nccl-ring-vs-tree" in {row["row"] for row in rows}
    text = " ".join(here("book", "--missing").out.split())
    assert "more wait for families" not in text
    assert "core or useful rows without a scenario" in text


def test_how_a_ladder_answers_a_row_is_said_in_the_help_and_below_the_table(here) -> None:
    for argv in (("book", "--help"), ("book", "--chapter", "ch01")):
        assert "if it names none" in " ".join(here(*argv).out.split())


def test_a_row_that_gains_memory_is_judged_by_it_and_not_by_time(here) -> None:
    rows = {row["row"]: row for row in json.loads(here("book", "--chapter", "ch20", "--json").out)}
    kept = rows["ch20/no-checkpoint-vs-activation-checkpoint"]
    assert (kept["answer"], kept["verdict"]) == ("reproduced", "improved")
    assert kept["metric"] in ("gpu_memory", "peak_memory")
    assert kept["why"].startswith("Judged by memory: it buys memory")


def test_the_page_is_written_where_it_is_asked_for(here, user) -> None:
    told = here("book", "--chapter", "ch01", "--html", "--output", "page.html")
    assert (told.code, told.out) == (0, "page.html\n")
    assert '<h2 id="ch01">' in (user.folder / "page.html").read_text()
    told = here("book", "--chapter", "ch01", "--html", "--results", "not/yet")
    assert (told.code, told.out) == (0, "not/yet/book.html\n")
    missing = here("book", "--html", "--output", "nowhere/page.html", "--chapter", "ch01")
    assert missing.code == 2
    assert "cannot be written" in missing.err


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("--chapter", "ch77"), "not a chapter"),
        (("--html", "--format", "csv"), "cannot be combined with --format csv"),
        (("--output", "x.html"), "needs --html"),
    ],
)
def test_flags_that_cannot_be_heeded_are_mistakes(here, argv, why) -> None:
    told = here("book", *argv)
    assert told.code == 2
    assert why in told.err


def test_suites_are_listed(here) -> None:
    told = here("list", "--suites")
    assert told.code == 0
    assert "book-ch07" in told.out
    names = {row["name"] for row in json.loads(here("list", "--suites", "--json").out)}
    assert {"cpu", "gpu1", "gpu2", "demo", "ci", "book-app"} <= names
    assert here("list", "--suites", "demo").code == 2


def test_a_suite_is_planned_at_its_own_precision_unless_another_is_named(here, user) -> None:
    user.write("suite.yaml", "title: Mine\nscenarios: [./tiny.yaml]\nprecision: quick\nduration: not measured yet\n")
    (row,) = json.loads(here("run", "--suite", "suite.yaml", "--dry-run", "--json").out)
    (slow,) = json.loads(here("run", "--suite", "suite.yaml", "--precision", "standard", "--dry-run", "--json").out)
    assert row["case"] == slow["case"] == "tiny"
    assert row["estimate"]["most"] < slow["estimate"]["most"] if "estimate" in row else row != slow


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("run",), "no scenario given"),
        (("run", "./tiny.yaml", "--suite", "ci", "--dry-run"), "a suite already lists its scenarios"),
        (("run", "--suite", "gpu11", "--dry-run"), '"gpu11" is not a suite'),
        (("run", "./tiny.yaml", "--resume", "latest", "--dry-run"), "cannot be combined with --resume"),
        (("run", "./tiny.yaml", "--resume", "latest"), "no run is stored"),
        (("profile", "--suite", "gpu11"), '"gpu11" is not a suite'),
    ],
)
def test_a_command_that_names_nothing_or_too_much_is_a_mistake(here, argv, why) -> None:
    told = here(*argv)
    assert told.code == 2
    assert why in told.err


def test_a_suite_runs_is_resumed_and_keeps_what_it_has(user) -> None:
    user.scenario("tiny2")
    user.write("suite.yaml", "title: Mine\nscenarios: [./tiny.yaml, ./tiny2.yaml]\nduration: not measured yet\n")
    first = user.runs("./tiny.yaml")
    assert first.code == 0, first.err
    before = (user.latest() / "cases" / "tiny.json").read_bytes()
    done = user.runs("--suite", "suite.yaml", "--resume", "latest")
    assert done.code == 0, done.err
    assert (user.latest() / "cases" / "tiny.json").read_bytes() == before
    assert user.record("tiny2")["status"] == "measured"
    assert len([p for p in (user.folder / "results").iterdir() if p.is_dir() and not p.is_symlink()]) == 1
    assert "1 kept, 0 resumed, 1 to start" in done.err


def test_a_row_is_judged_by_the_case_that_its_citation_names_and_says_what_it_does_not_cover(here) -> None:
    rows = json.loads(here("book", "--chapter", "ch12", "--json").out)
    (scaling,) = [row for row in rows if row["row"] == "ch12/ngpu-scaling-without-vs-with-overlap"]
    assert scaling["case"] in ("", "scaling-without-vs-with-overlap[ranks=2]")
    file = Path(__file__).parents[2] / "scenarios" / "cpu" / "scaling-without-vs-with-overlap.yaml"
    (citation,) = yaml.safe_load(file.read_text(encoding="utf-8"))["book"]
    assert scaling["differs"] == [citation["differs"]]
    assert f"Differs: {citation['differs'][:23]}" in here("book", "--chapter", "ch12").out
