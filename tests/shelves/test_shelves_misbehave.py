"""Every misbehaving side of the shelf, through the command: the failure is recorded as expected, the run goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S
from shelf_runs import CPU, PRECISION, Ran, of_parent, run_scenarios, shelf

from aiperf.errors import Exit
from aiperf.host.read import read_host
from aiperf.launch.gang import Gang
from aiperf.plan.plan import make_plan
from aiperf.plan.precision import load_precision
from aiperf.recipes.case import advance, new_state
from aiperf.recipes.case_progress import Noise, to_record
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Case, CaseRecord
from aiperf.scenario.load import load_scenario
from aiperf.settings import Limits, Settings

FOLDER, SHELF = shelf("misbehave")
QUICK = [entry for entry in SHELF if not entry.hangs]
HANGS = [entry for entry in SHELF if entry.hangs]
FAILS = [entry for entry in QUICK if entry.phase and entry.kind != "check"]
MEASURED = [entry for entry in QUICK if not entry.phase]
WRONG = [entry for entry in QUICK if entry.kind == "check"]
LAST_WORDS = {
    "set-up-raises.yaml": "RuntimeError: no such model",
    "step-raises.yaml": "ValueError: the fifth batch is broken",
    "out-of-memory.yaml": "Unable to allocate",
    "out-of-device-memory.yaml": "CUDA out of memory",
    "outputs-raise.yaml": "KeyError: 'logits'",
    "no-workload.yaml": "NotAWorkload",
}
"""What the tail of stderr must end with, where the side had anything to say."""
_SHORT = 1.0


def stem(entry) -> str:
    return Path(entry.scenario).stem


def _hanging(entry):
    """One phase of work and one in which nobody waits for results; the others run in make test-long."""
    marks = [] if stem(entry) in ("hangs-in-step", "hangs-in-close") else [pytest.mark.long]
    return pytest.param(entry, id=stem(entry), marks=marks)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    paths = [FOLDER / entry.scenario for entry in QUICK]
    return run_scenarios(paths, tmp_path_factory.mktemp("misbehave"))


def test_every_scenario_file_is_on_the_shelf() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} == {entry.scenario for entry in SHELF}
    assert (len(FAILS), len(HANGS), len(MEASURED), len(WRONG)) == (11, 4, 3, 1)
    assert set(LAST_WORDS) <= {entry.scenario for entry in FAILS}


@pytest.mark.parametrize("entry", FAILS, ids=stem)
def test_a_side_that_goes_wrong_is_a_failed_case_with_its_reason(ran: Ran, entry) -> None:
    record = ran.records[stem(entry)]
    failure = record.failure
    assert failure is not None
    assert (record.status, record.stop, record.results) == ("failed", "failure", ())
    assert (failure.side, failure.phase, failure.kind) == ("after", entry.phase, entry.kind)
    assert entry.message in failure.message
    assert LAST_WORDS.get(entry.scenario, "") in (failure.stderr_tail.splitlines() or [""])[-1]
    assert record.failures == (failure,)
    assert stem(entry) in ran.output


@pytest.mark.parametrize("entry", MEASURED, ids=stem)
def test_a_side_that_is_merely_untidy_is_measured(ran: Ran, entry) -> None:
    record = ran.records[stem(entry)]
    assert (record.status, record.failures, len(record.pairs)) == ("measured", (), 3)
    assert {r.verdict.word for r in record.results} <= {"improved", "regressed", "equivalent", "inconclusive"}
    assert all(check.passed for pair in record.pairs for check in pair.checks)


@pytest.mark.parametrize("entry", WRONG, ids=stem)
def test_a_wrong_result_is_an_invalid_verdict_and_no_failure(ran: Ran, entry) -> None:
    record = ran.records[stem(entry)]
    assert record.status == "measured"
    assert {r.verdict.word for r in record.results} == {"invalid"}
    assert all(any(entry.message in c.detail for c in pair.checks if not c.passed) for pair in record.pairs)


def test_every_case_of_the_run_has_a_record_whatever_happened_before_it(ran: Ran) -> None:
    assert sorted(ran.records) == sorted(stem(entry) for entry in QUICK)
    statuses = [record.status for record in ran.records.values()]
    assert "measured" in statuses[statuses.index("failed") : len(statuses) - statuses[::-1].index("failed")]


def test_the_command_ends_well_and_leaves_nothing_behind(ran: Ran) -> None:
    assert ran.status == Exit.WRONG
    assert "Traceback" not in ran.output
    assert (ran.alive, ran.scratch) == ([], [])
    orphans = [
        p.pid for p in psutil.process_iter(["cmdline"]) if "orphan-of-a-misbehaving-side" in (p.info["cmdline"] or ())
    ]
    assert orphans == []


# ---- sides that end only by a limit: only theirs of their own phase is short ----------------------------------------


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("hangs")
    (folder / "tiny.yaml").write_text(PRECISION, encoding="utf-8")
    return Settings(precision=load_precision(str(folder / "tiny.yaml")), pin=str(CPU), results=folder)


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the host is, the healthy side ends by no limit."""
    collect = Gang._collect

    def collected(gang: Gang, kind, phase: str, limit: float):
        return collect(gang, kind, phase, limit if gang.plan.name == "after" else PATIENCE_S)

    monkeypatch.setattr(Gang, "_collect", collected)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert of_parent(os.getpid()) == []


def limits_for(phase: str) -> Limits:
    name = {"set-up": "setup", "warm-up": "warmup"}.get(phase, phase)
    return replace(Limits(*(PATIENCE_S,) * 7), **{name: _SHORT})


def case_of(entry, settings: Settings) -> Case:
    (case,) = make_plan([load_scenario(FOLDER / entry.scenario)], read_host(), settings).cases
    return case


def measured(entry, settings: Settings) -> CaseRecord:
    settings = replace(settings, limits=limits_for(entry.phase))
    with MeasurementSession(read_host(), settings) as session:
        state = new_state(case_of(entry, settings), settings, host_id="here", noise=Noise(), seed=1)
        advance(state, session.measure, lambda _: None)
    return to_record(state)


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("entry", [_hanging(entry) for entry in HANGS])
def test_a_hanging_side_ends_by_the_limit_of_its_phase(bare: Settings, entry) -> None:
    began = time.monotonic()
    record = measured(entry, bare)
    assert time.monotonic() - began >= _SHORT
    failure = record.failure
    assert failure is not None
    assert (record.status, failure.side, failure.phase, failure.kind) == ("failed", "after", entry.phase, "hang")
    assert failure.message == f"no answer within {_SHORT:g} s"
    assert failure.exit_status is None
