"""``aiperf history`` on stored runs."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest


@pytest.fixture
def stored(reader, user):
    """The measured run on three days, the last one by another host."""
    for day, host in ((1, "h-1"), (2, "h-1"), (3, "h-2")):
        folder = user.folder / "results" / f"2026-11-0{day}T00-00-00-{host}"
        shutil.copytree(reader.latest(), folder)
        path = folder / "run.json"
        run = json.loads(path.read_text())
        run |= {"run": folder.name, "started": f"2026-11-0{day}T00:00:00+00:00", "host_id": host}
        run["host"]["hostname"] = f"{host}-node"
        path.write_text(json.dumps(run))
    return user


def test_the_history_is_that_of_the_newest_host_and_counts_the_others(here, stored) -> None:
    told = here("history", "tiny")
    assert (told.code, told.plain) == (0, True)
    assert "host h-2 (h-2-node)" in told.out
    assert "1 run, 2026-11-03" in told.out
    assert here("history", "./tiny.yaml").out == told.out  # as it was given to aiperf run
    assert "host h-1 with 2 runs not shown; --all-hosts" in told.out


def test_without_a_name_it_lists_the_stored_runs_and_what_each_held(here, stored) -> None:
    told = here("history")
    assert (told.code, told.plain) == (0, True)
    lines = told.out.splitlines()
    assert lines[0].split() == ["run", "command", "outcome", "scenarios"]
    (line,) = [line for line in lines if line.startswith(" 2026-11-03T00-00-00-h-2")]
    assert line.split()[1] == "run"
    assert line.endswith("tiny")
    rows = list(csv.DictReader(io.StringIO(here("history", "--format", "csv").out)))
    assert [row["run"][:10] for row in rows] == ["2026-11-01", "2026-11-02", "2026-11-03"]
    assert len(json.loads(here("history", "--json").out)["runs"]) == 3


def test_an_option_without_a_name_asks_for_the_name(here, stored) -> None:
    told = here("history", "--all-hosts")
    assert (told.code, "There are runs of: tiny." in told.err) == (2, True)


def test_all_hosts_have_blocks_of_their_own_and_one_can_be_named(here, stored) -> None:
    told = here("history", "tiny", "--all-hosts")
    assert told.out.count("tiny · host") == 2
    assert "not shown" not in told.out
    for name in ("h-1", "h-1-node"):
        one = here("history", "tiny", "--host", name).out
        assert "2 runs, 2026-11-01 … 2026-11-02" in one
        assert "h-2" not in one


def test_json_holds_every_run_with_its_numbers(here, stored) -> None:
    document = json.loads(here("history", "tiny", "--all-hosts", "--json").out)
    assert [[p["run"][:10] for p in s["points"]] for s in document["series"]] == [
        ["2026-11-01", "2026-11-02"], ["2026-11-03"],
    ]  # fmt: skip
    assert all(p["ratio"] > 0 and p["after"] > 0 for s in document["series"] for p in s["points"])


def test_the_trend_is_there_as_markdown_and_as_csv(here, stored) -> None:
    rows = list(csv.DictReader(io.StringIO(here("history", "tiny", "--all-hosts", "--format", "csv").out)))
    assert [row["host_id"] for row in rows] == ["h-1", "h-1", "h-2"]
    assert all(float(row["low"]) < float(row["ratio"]) < float(row["high"]) for row in rows)
    markdown = here("history", "tiny", "--format", "markdown").out
    assert markdown.startswith("### tiny · host h-2 (h-2-node)\n")
    assert "\n| 2026-11-03 00:00 | " in markdown


def test_another_metric_and_a_single_case_can_be_asked_for(here, stored) -> None:
    assert "peak_memory" in here("history", "tiny", "--metric", "peak_memory").out
    assert here("history", "tiny", "--case", "tiny").out == here("history", "tiny").out


@pytest.mark.parametrize(
    ("words", "fault", "way_out"),
    [
        (["tinny"], 'no stored run of "tinny"', "Did you mean tiny?"),
        (["zzz"], 'no stored run of "zzz"', "There are runs of: tiny."),
        (["tiny", "--results", "elsewhere"], "no run is stored in elsewhere", "aiperf run tiny"),
        (["tiny", "--metric", "speed"], 'no run of tiny has the metric "speed"', "Available: time"),
        (["tiny", "--case", "tinny"], 'no case "tinny"', "Did you mean tiny?"),
        (["tiny", "--host", "h-9"], 'no run was measured on "h-9"', "h-1 (h-1-node), h-2 (h-2-node)"),
    ],
)
def test_mistakes_are_told_in_a_line_with_the_way_out_and_exit_with_2(here, stored, words, fault, way_out) -> None:
    told = here("history", *words)
    assert (told.code, told.out, told.plain) == (2, "", True)
    assert fault in told.err
    assert way_out in told.err


def test_a_damaged_record_is_named_and_the_others_are_shown(here, stored) -> None:
    (stored.folder / "results/2026-11-01T00-00-00-h-1/cases/tiny.json").write_text("{")
    told = here("history", "tiny", "--host", "h-1")
    assert told.code == 0
    assert "1 run, 2026-11-02" in told.out
    assert "2026-11-01T00-00-00-h-1" in told.err


def test_a_run_whose_own_record_is_damaged_stays_in_the_trend_and_says_so(here, stored) -> None:
    (stored.folder / "results/2026-11-01T00-00-00-h-1/run.json").write_text("{")
    told = here("history", "tiny", "--all-hosts")
    assert told.code == 0
    assert "this run's own record is damaged" in told.out
    assert "own record is damaged" in told.err


def test_records_that_are_all_damaged_are_not_the_same_as_none(here, stored) -> None:
    for path in (stored.folder / "results").glob("*/cases/tiny.json"):
        path.write_text("{")
    told = here("history", "tiny")
    assert told.code == 2
    assert "3 damaged record(s) of it were ignored" in told.err


def test_a_pipe_that_cannot_hold_the_picture_gets_ascii(stored) -> None:
    stored.env["PYTHONIOENCODING"] = "ascii"
    told = stored.types("history", "tiny", "--all-hosts")
    assert told.code == 0
    assert told.out.isascii()
    assert any(line.startswith("speedup  ==  ") for line in told.out.splitlines())


def test_the_trend_is_a_page_that_opens_offline(here, stored) -> None:
    told = here("history", "tiny", "--host", "h-1", "--html")
    path = stored.folder / "results" / "history.html"
    assert (told.code, told.out) == (0, f"{path.relative_to(stored.folder)}\n")
    page = path.read_text()
    assert page.count("<svg") == 2
    assert "2 runs, 2026-11-01 … 2026-11-02" in page
    other = here("history", "tiny", "--html", "--output", "mine.html", "--json")
    assert json.loads(other.out) == {"html": "mine.html"}
    assert (stored.folder / "mine.html").is_file()


def test_a_file_without_a_page_and_a_page_in_another_format_are_refused(here, stored) -> None:
    assert here("history", "tiny", "--output", "x.html").code == 2
    told = here("history", "tiny", "--html", "--format", "csv")
    assert told.code == 2
    assert "--html: cannot be combined with --format csv" in told.err
