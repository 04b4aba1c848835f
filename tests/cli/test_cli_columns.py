"""``--columns`` and ``--cost`` of ``aiperf run`` and ``aiperf report``, typed by a user."""

from __future__ import annotations

import json
import shutil

import pytest

from aiperf.host.energy import cpu_meter

PRICES = "currency: EUR\nsource: invented for a test\ndate: 2026-01-01\nhost_hour: 36\n"


@pytest.fixture
def stored(reader, user, here):
    """A copy of the measured run, beside a file of prices."""
    shutil.copytree(reader.folder / "results", user.folder / "results", symlinks=True)
    user.write("mine.yaml", PRICES)
    return here


def test_goodput_and_cost_of_a_stored_run_need_no_new_measurement(stored) -> None:
    plain = stored("report")
    told = stored("report", "--columns", "goodput,cost", "--cost", "mine.yaml")
    assert told.code == 0
    assert told.out.startswith(plain.out)
    assert "with set-up and warm-up" in told.out
    assert "mine.yaml (invented for a test, 2026-01-01)" in told.out
    (values,) = json.loads(
        stored("report", "--columns", "goodput,cost", "--cost", "mine.yaml", "--json").out
    )["columns"]  # fmt: skip
    assert 0 < values["goodput_whole_before"] < values["goodput_before"]
    # 36 an hour is 0.01 a second.
    assert values["cost_per_million_before"] == pytest.approx(0.01 * 1e6 / values["goodput_before"])


def test_energy_of_a_run_that_did_not_measure_it_is_told_as_missing(stored) -> None:
    told = stored("report", "--columns", "energy")
    assert told.code == 0
    assert "aiperf run --columns energy measures it" in told.out
    assert "energy_j_before" in stored("report", "--columns", "energy", "--format", "csv").out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--columns", "watts"], "allowed: energy, cost, goodput"),
        (["--columns", "cost"], "cost needs your prices"),
        (["--columns", "energy", "--cost", "mine.yaml"], "Add --columns cost"),
        (["--columns", "cost", "--cost", "nowhere"], 'price file "nowhere" not found'),
        (["--columns", "cost", "--cost", "tiny.yaml"], "is not a price"),
        (["--columns", "energy", "--html"], "cannot be combined with --html"),
    ],
)
def test_mistakes_are_told_in_a_line_and_exit_with_2(stored, argv, told) -> None:
    done = stored("report", *argv)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert done.plain


def test_a_dry_run_refuses_columns(here) -> None:
    done = here("run", "./tiny.yaml", "--dry-run", "--columns", "energy")
    assert (done.code, "cannot be combined with --columns" in done.err) == (2, True)


@pytest.mark.long
def test_a_run_whose_energy_cannot_be_measured_keeps_the_reason(user) -> None:
    # Cold caches have no energy on any machine, whether it has counters or not.
    done = user.runs(user.scenario("cold", measure="{cache: cold}"), "--columns", "energy,goodput")
    assert done.code == 0
    record = user.record("cold")
    (reason,) = {reading["problem"] for pair in record["pairs"] for reading in pair["energy"].values()}
    assert reason == (cpu_meter().problem or reason)
    assert "flush" in reason or cpu_meter().problem
    assert reason.split()[-1] in done.out
    assert "with set-up and warm-up" in done.out
    assert json.loads((user.latest() / "run.json").read_text())["settings"]["energy_seconds"] == 5.0
    assert reason.split()[-1] in user.types("report", "--columns", "energy").out
