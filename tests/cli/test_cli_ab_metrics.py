"""``aiperf ab`` and ``aiperf run`` on numbers that programs print themselves."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from aiperf.recipes import session

PROGRAM = """
import json, sys, time
turns = int(sys.argv[1])
print("step 1: tokens/s: 1")
sum(range(turns))
# Of a known size with 1 % of scatter, on a host however busy.
seconds = turns * 2e-8 * (1 + time.time_ns() // 1000 % 100 / 1e4)
print(f"step 2: tokens/s: {1000 / seconds:.1f}")
print(json.dumps({"stats": {"cpu_ms": 1000 * seconds}}), file=sys.stderr)
"""
SPEED = ("--metric", "tokens/s: ([0-9.]+)")


@pytest.fixture
def trained(user):
    """A user with a program whose second run does a 200th of the work: far beyond the threshold of fast.yaml."""
    user.write("train.py", PROGRAM)
    before, after = (f"{sys.executable} -I -S train.py {turns}" for turns in (2_000_000, 10_000))
    user.pair = ("ab", before, after, "--precision", "fast.yaml", "-q")
    return user


@pytest.mark.long
def test_what_both_programs_print_is_compared_and_primary(trained):
    done = trained.types(*trained.pair, *SPEED, "--metric", "json:stats.cpu_ms", "--json")
    assert done.code == 0, done.err
    rows = {row["metric"]: row for row in json.loads(done.out)["rows"]}
    assert rows["tokens_per_s"]["primary"]
    assert not rows["time"]["primary"]
    assert (rows["tokens_per_s"]["unit"], rows["tokens_per_s"]["better"]) == ("tokens/s", "higher")
    assert rows["tokens_per_s"]["verdict"] == "improved"
    assert (rows["cpu_ms"]["unit"], rows["cpu_ms"]["better"], rows["cpu_ms"]["verdict"]) == ("s", "lower", "improved")
    # The same work by the same clock of the program: a rate and its time say the same.
    assert rows["tokens_per_s"]["ratio"] == pytest.approx(rows["cpu_ms"]["ratio"], rel=0.01)
    record = trained.only_record()
    runs = record["pairs"][0]["runs"][0]
    assert len(runs["values"]["tokens_per_s"]) == len(runs["pids"])
    assert not runs["facts"]["sliced"]
    assert "reports its own metric" in runs["facts"]["why"]
    shown = trained.types("show", "latest").out
    assert 'tokens_per_s in tokens/s (higher is better): the last match of "tokens/s: ([0-9.]+)"' in shown
    again = trained.types("report", "latest", "--recompute")
    assert again.code == 0, again.err
    table = trained.types("query", "select metric, unit, better from comparisons where is_primary", "--format", "csv")
    assert list(csv.reader(io.StringIO(table.out)))[1] == ["tokens_per_s", "tokens/s", "higher"]


def test_another_metric_can_be_primary(trained):
    done = trained.types(*trained.pair, *SPEED, "--primary", "user", "--format", "csv")
    rows = {row["metric"]: row for row in csv.DictReader(io.StringIO(done.out))}
    assert [name for name, row in rows.items() if row["primary"].lower() == "true"] == ["user"]
    assert "tokens_per_s" in rows


def test_a_program_that_prints_no_such_line_is_a_failed_case_with_what_it_printed(trained):
    done = trained.types(*trained.pair, "--metric", "images/s: ([0-9.]+)")
    assert done.code == 5
    assert done.plain
    assert 'it printed no line for the metric images_per_s: a line that matches "images/s: ' in " ".join(
        done.out.split()
    )
    failure = trained.only_record()["failure"]
    assert (failure["side"], failure["kind"], failure["exit_status"]) == ("before", "metric", 0)
    assert failure["stdout_tail"].startswith("step 1: tokens/s: 1\nstep 2:")
    assert "printed: step 1: tokens/s: 1" in trained.types("show", "latest").out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--metric", "tokens/s: [0-9]+"), '--metric: "tokens/s: [0-9]+" has no group to capture the number.'),
        (("--metric", "loss: ([0-9.]+)"), "Add --better higher or --better lower;"),
        (("--better", "higher"), "--better: applies to --metric, but none is given."),
        ((*SPEED, "--primary", "speed"), '--primary: "speed" is not a metric of these programs. Allowed: tokens_per_s'),
    ],
)
def test_a_metric_that_makes_no_sense_is_one_mistake(here, user, flags, says):
    told = here("ab", "true", "true", *flags)
    assert told.code == 2
    assert says in " ".join(told.err.split())
    assert len([line for line in told.err.splitlines() if line.startswith("--")]) == 1
    assert not (user.folder / "results").exists()


@pytest.mark.long
def test_a_scenario_of_programs_is_about_what_they_print(trained):
    trained.write(
        "training.yaml",
        "title: Speed\nwhy: Less work.\n"
        f"before: {{command: [{sys.executable}, -I, -S, train.py, '2000000']}}\n"
        f"after: {{command: [{sys.executable}, -I, -S, train.py, '100000']}}\n"
        "metrics: {speed: 'tokens/s: ([0-9.]+)'}\nmeasure: {metric: speed}\nexpect: improved\n",
    )
    done = trained.runs("./training.yaml", "--junit", "junit.xml", "--json")
    assert done.code == 0, done.err
    (row,) = [row for row in json.loads(done.out)["rows"] if row["primary"]]
    assert (row["metric"], row["unit"], row["verdict"]) == ("speed", "tokens/s", "improved")
    assert "speed" in (trained.folder / "junit.xml").read_text()
    assert trained.types("report", "latest", "--html").code == 0
    pages = list((trained.folder / "results").rglob("*.html"))
    assert any("tokens/s" in page.read_text() for page in pages)
    history = trained.types("history", "training", "--json")
    assert history.code == 0, history.err
    assert '"speed"' in history.out


@pytest.mark.long
def test_a_run_that_was_interrupted_between_launches_goes_on_with_the_pairs_it_has(trained, monkeypatch):
    whole, calls = session.measure_command_pair, []

    def third_is_interrupted(case, **how):
        calls.append(how["index"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(case, **how)

    monkeypatch.setattr(session, "measure_command_pair", third_is_interrupted)
    stopped = trained.types(*trained.pair, *SPEED)
    assert stopped.code == 130
    assert f"continue with: aiperf ab --resume {trained.latest().name}" in stopped.out
    first = trained.only_record()
    assert (first["status"], len(first["pairs"])) == ("interrupted", 2)
    other = trained.types(*trained.pair, "--metric", "(?P<rate>1[0-9.]*) tokens/s", "--resume", "latest")
    assert other.code == 2
    assert "compared other programs or used other options (sides, measure)" in " ".join(other.err.split())
    wrong = trained.types("run", "--resume", "latest")
    assert (wrong.code, "Type: aiperf ab --resume latest" in wrong.err) == (2, True)
    done = trained.types("ab", "--resume", "latest")
    assert done.code == 0, done.err
    record = trained.only_record()
    assert [pair["started"] for pair in record["pairs"][:2]] == [pair["started"] for pair in first["pairs"]]
    assert (record["status"], calls) == ("measured", [0, 1, 2, 2])
    assert len(list((trained.folder / "results").glob("2*"))) == 1


@pytest.mark.long
def test_a_program_beyond_the_timeout_is_killed_and_a_failed_case(user):
    slow = "sh -c 'echo step 3; exec sleep 600'"
    argv = ("ab", slow, slow, "--metric", "step ([0-9]+)", "--better", "lower", "-q")
    done = user.types(*argv, "--precision", "fast.yaml", "--timeout", "3s")
    assert done.code == 5
    assert "did not end within 3 s and was killed; --timeout allows more;" in " ".join(done.out.split())
    failure = user.only_record()["failure"]
    assert (failure["side"], failure["phase"], failure["stdout_tail"]) == ("before", "warm-up", "step 3")
