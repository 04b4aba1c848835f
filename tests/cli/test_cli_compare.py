"""``aiperf compare`` on stored runs."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest

from aiperf.host.calibration import save_calibration
from aiperf.records.calibration import Calibration


@pytest.fixture
def stored(reader, user):
    """The measured run three times under names of their own; each as a function that edits its JSON."""
    first = reader.latest()
    for name in ("one", "two", "three"):
        shutil.copytree(first, user.folder / "results" / name)
        _edit(user.folder / "results" / name / "run.json", lambda run, name=name: run | {"run": name})
    return lambda name, file, change: _edit(user.folder / "results" / name / file, change)


def _edit(path, change):
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def other_host(run):
    run["host"]["fingerprint"]["must_match"]["cpu_model"] = "another cpu"
    return run | {"host_id": "other"}


def slower(record):
    """The same record with an after side twice as slow, and a spread that leaves no doubt."""
    for result in record["results"]:
        c = result["comparison"]
        c.update({end: c["ratio"] * x / 2 for end, x in (("low", 0.999), ("high", 1.001))}, ratio=c["ratio"] / 2)
        c["after"].update(value=c["after"]["value"] * 2, log_sd=0.001)
        result["verdict"].update(word="regressed", reason="beyond_threshold", threshold=0.02)
    return record


def sure(record):
    record = slower(record)
    for result in record["results"]:
        c = result["comparison"]
        c.update({end: c[end] * 2 for end in ("ratio", "low", "high")})
        c["after"]["value"] /= 2
        result["verdict"].update(word="equivalent", reason="within_threshold")
    return record


def test_equal_runs_are_compared_case_by_case_and_exit_with_0(here, stored) -> None:
    told = here("compare", "one", "two")
    assert (told.code, told.plain) == (0, True)
    assert "B and A: same host class, software and checkout" in told.out
    assert "B vs A speedup" in told.out
    assert "aiperf calibrate" in told.out


def test_a_run_that_became_slower_is_told_in_every_dialect(here, stored) -> None:
    stored("one", "cases/tiny.json", sure)
    stored("two", "cases/tiny.json", slower)
    told = here("compare", "one", "two")
    assert told.code == 0
    assert "B vs A: 1 regressed" in told.out
    document = json.loads(here("compare", "one", "two", "--json").out)
    assert here("compare", "one", "two", "--format", "json").out == here("compare", "one", "two", "--json").out
    (change,) = [r for r in document["rows"] if r["kind"] == "speedup" and r["primary"]]
    assert change["ratio"] == pytest.approx(0.5)
    assert change["verdict"] == "regressed"
    rows = list(csv.DictReader(io.StringIO(here("compare", "one", "two", "--format", "csv").out)))
    assert {r["kind"] for r in rows} >= {"run", "speedup", "value"}
    assert "| regressed (provisional) |" in here("compare", "one", "two", "--format", "markdown").out
    assert len(here("compare", "one", "two", "--all-metrics").out) > len(told.out)


def test_runs_of_hosts_that_differ_give_the_differences_no_number_and_exit_with_4(here, stored) -> None:
    stored("two", "run.json", other_host)
    told = here("compare", "one", "two")
    assert told.code == 4
    assert told.err == "the hosts of these runs differ in what must match: exit code 4\n"
    assert told.out.index("another cpu") < told.out.index("case / run")
    assert "B vs A speedup" not in told.out
    document = json.loads(here("compare", "one", "two", "--json").out)
    assert all(r["kind"] in ("run", "none") for r in document["rows"])


def test_forcing_gives_numbers_and_says_so(here, stored) -> None:
    stored("two", "run.json", other_host)
    told = here("compare", "one", "two", "--force")
    assert told.code == 0
    assert told.out.startswith("FORCED")
    assert "(forced)" in told.out


def test_one_run_of_three_on_another_host_is_enough_for_4(here, stored) -> None:
    stored("three", "run.json", other_host)
    told = here("compare", "one", "two", "three")
    assert told.code == 4
    assert "B vs A speedup" in told.out
    assert "C vs A speedup" not in told.out


def test_runs_without_a_case_in_common_exit_with_4(here, stored, user) -> None:
    (user.folder / "results/two/cases/tiny.json").unlink()
    told = here("compare", "one", "two")
    assert (told.code, told.err.splitlines()[-1]) == (4, "no case of these runs can be compared: exit code 4")


def test_calibration_of_the_host_enters_the_changes(here, stored, user) -> None:
    record = json.loads((user.folder / "results/one/run.json").read_text())
    known = Calibration("process+wall", "tiny", 20, 0, 0.1, 0.004, 0.02, "2026-11-01")
    stored("one", "run.json", lambda run: run | {"host_id": "calibrated"})
    stored("two", "run.json", lambda run: run | {"host_id": "calibrated"})
    assert "never measured" in here("compare", "one", "two").out
    save_calibration("calibrated", known)
    told = here("compare", "one", "two")
    assert "calibration cannot rule out here (up to 0.4 %" in " ".join(told.out.split())
    assert "never measured" not in told.out
    assert record["host_id"] != "calibrated"


def test_a_damaged_record_is_named_and_the_rest_is_compared(here, stored, user) -> None:
    (user.folder / "results/two/cases/tiny.json").write_text("{")
    told = here("compare", "one", "two")
    assert told.code == 4
    assert "tiny.json" in told.err
    assert "its record is missing or unreadable" in told.out


@pytest.mark.parametrize(("names", "letter"), [(("one", "two"), "B"), (("two", "one"), "A")])
def test_of_a_run_whose_own_record_is_damaged_no_host_is_known_to_match(here, stored, user, names, letter) -> None:
    (user.folder / "results/two/run.json").write_text("garbage")
    told = here("compare", *names)
    text = " ".join(told.out.split())
    assert told.code == 4
    assert f"{letter}: two · the run's own record is damaged: its host, software, precision and end are unknown" in text
    assert f"not compared: the host of {letter} is unknown" in text
    assert "interrupted" not in text
    assert "results/two/run.json is not JSON" in told.err
    runs = {run["run"]: run for run in json.loads(here("compare", *names, "--json").out)["runs"]}
    assert (runs["one"]["status"], runs["two"]["status"], runs["two"]["precision"]) == ("finished", "unknown", None)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["one"], "compare needs at least two runs"),
        (["one", "results/one"], "one is named twice"),
        (["one", "four"], 'no run "four"'),
    ],
)
def test_mistakes_are_told_in_a_line_and_exit_with_2(here, stored, names, fault) -> None:
    told = here("compare", *names)
    assert (told.code, told.out) == (2, "")
    assert fault in told.err
    assert told.plain


def test_the_comparison_is_a_page_with_the_same_exit_code(here, user, stored) -> None:
    stored("one", "cases/tiny.json", sure)
    stored("two", "cases/tiny.json", slower)
    told = here("compare", "one", "two", "--html")
    page = (user.folder / "results" / "compare.html").read_text()
    assert (told.code, told.out) == (0, "results/compare.html\n")
    assert "beyond 1× the later run is better" in page
    assert "▼ regressed" in page
    stored("two", "run.json", other_host)
    told = here("compare", "one", "two", "--html", "--output", "c.html")
    assert told.code == 4
    assert "<svg" not in (user.folder / "c.html").read_text()


def test_over_hosts_each_is_named_and_too_few_are_said_and_exit_with_4(here, user, stored) -> None:
    for name, host in (("one", "h-1"), ("two", "h-2"), ("three", "h-2")):
        stored(name, "run.json", lambda run, host=host: _on(host, run))
        stored(name, "cases/tiny.json", lambda record: _settled(record))
    told = here("compare", "--hosts", "tiny")
    assert (told.code, told.plain) == (4, True)
    assert "(h-1)" in told.out
    assert "(h-2)" in told.out
    assert "not possible: 2 hosts, but 3 are needed" in told.out
    page = here("compare", "--hosts", "tiny", "--html")
    assert (page.code, page.out) == (4, "results/hosts.html\n")
    assert (user.folder / "results" / "hosts.html").read_text().count("(h-2)</text>") == 1
    assert here("compare", "--hosts", "nothing").code == 2
    assert "--hosts: cannot be combined with --force." in here("compare", "--hosts", "--force").err


def _on(machine_id, run):
    run["host"]["fingerprint"]["record_only"]["machine_id"] = machine_id
    return run


def _settled(record):
    record = sure(record)
    for result in record["results"]:
        result["verdict"]["provisional"] = False
    return record
