"""One side in this process: its turns, its warm-up and its audits."""

from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from worker_made import set_up_request

from aiperf.protocol.measuring import Check
from aiperf.protocol.messages import (
    AuditReply,
    AuditRequest,
    FirstIterationRequest,
    FreshRequest,
    RehearsalRequest,
    TurnRequest,
    WarmUpRequest,
    WideRequest,
    WorkloadCall,
)
from aiperf.worker import side_runner
from aiperf.worker.clocks import ClockReading
from aiperf.worker.load import NotAWorkload
from aiperf.worker.ranges import Ranges
from aiperf.worker.side_runner import SideRunner
from aiperf.workloads.contract import Context

FIRST = FirstIterationRequest("before")


def make_runner(function="healthy", **kwargs):
    return SideRunner(set_up_request(function, **kwargs), Context(seed=3), Ranges.open())


def warm_up(runner, **fields):
    return runner.warm_up(WarmUpRequest("before", **fields))


def turn(runner, **fields):
    return runner.turn(TurnRequest("before", **fields))


def audit(runner, seed, iterations, *, lead=0):
    return runner.audit(AuditRequest("before", seed, lead, iterations))


def test_a_workload_without_outputs_needs_a_scenario_without_a_check():
    request = set_up_request("silent")
    path = str(Path(__file__).with_name("plain_functions.py"))
    silent = replace(request, call=WorkloadCall(f"{path}:silent"))
    with pytest.raises(
        NotAWorkload, match=r'Write outputs=lambda: \{"out": out\}, or in the scenario check: \{kind: no'
    ):
        SideRunner(silent, Context(), Ranges.open())
    runner = SideRunner(replace(silent, check=Check("none", reason="r")), Context(), Ranges.open())
    runner.first(FIRST)
    audit(runner, 5, 1)
    assert (runner.auditor.faults, runner.auditor.snapshots[0].claims.outputs) == ([], {})


def test_a_turn_tells_what_it_waited_for_a_core_from_its_re_entry_to_its_last_sample(monkeypatch):
    readings = iter([2.0, 2.75])
    monkeypatch.setattr(side_runner, "queued_so_far", lambda: next(readings))
    runner = make_runner()
    runner.first(FIRST)
    assert turn(runner, reentry=1, samples=2, iterations=1, wall_too=False).queued_s == 0.75


def test_without_a_check_audits_ask_for_no_outputs():
    request = replace(set_up_request("no_data"), check=Check("none", reason="r"))
    path = str(Path(__file__).with_name("plain_functions.py"))
    call = WorkloadCall(f"{path}:no_data", plain=True, setup=f"{path}:numbers")
    runner = SideRunner(replace(request, call=call), Context(), Ranges.open())
    runner.first(FIRST)
    assert len(audit(runner, 5, 1).wall) == 1
    assert runner.auditor.faults == []


def test_prepare_runs_before_every_iteration_and_outside_the_time():
    log = []
    runner = make_runner("prepares", log=log)
    runner.first(FIRST)
    warm_up(runner, readings=2, iterations=1, window=5)
    turn(runner, reentry=2, samples=3, iterations=1, wall_too=False)
    assert log == ["prepare", "step"] * 8


def test_a_turn_has_as_many_readings_as_asked_of_as_many_iterations():
    log = []
    runner = make_runner("prepares", log=log)
    taken = turn(runner, reentry=4, samples=3, iterations=5, wall_too=True)
    assert log.count("step") == 4 + 3 * 5 + 5
    assert len(taken.wall) == 3
    assert min(taken.wall) > 0
    assert taken.device == (None,) * 3
    assert taken.wall_block > 0
    assert turn(runner, reentry=0, samples=1, iterations=1, wall_too=False).wall_block is None


def test_a_turn_holds_the_latencies_of_its_readings_and_of_nothing_before_them():
    runner = make_runner("tells")
    runner.first(FIRST)
    warm_up(runner, readings=2, iterations=3, window=5)
    assert turn(runner, reentry=2, samples=2, iterations=3, wall_too=True).latencies == {"latency": tuple(range(9, 18))}
    audit(runner, 1, 1, lead=1)
    assert turn(runner, reentry=0, samples=1, iterations=1, wall_too=False).latencies == {"latency": (20.0,)}
    assert turn(make_runner(), reentry=0, samples=1, iterations=1, wall_too=False).latencies == {}


def test_units_that_waited_behind_a_hold_have_no_latency_and_those_of_the_wall_block_do():
    runner = make_runner("tells")
    runner.clock.holds = True
    assert turn(runner, reentry=2, samples=2, iterations=3, wall_too=True).latencies == {"latency": tuple(range(8, 11))}


@pytest.mark.parametrize("odd", [-1.0, float("nan"), float("inf")])
def test_latencies_that_are_no_times_fail_the_turn(odd):
    with pytest.raises(ValueError, match=r"latencies\(\) returned (-1\.0|nan|inf)"):
        turn(make_runner("tells", odd=odd), reentry=0, samples=1, iterations=1, wall_too=False)


def test_a_cold_side_is_flushed_before_every_reading_and_wall_block():
    runner = make_runner(cache="cold")
    flushes = []
    runner.clock.flush = lambda: flushes.append(1)
    turn(runner, reentry=2, samples=3, iterations=1, wall_too=True)
    assert len(flushes) == 4
    runner.first(FIRST)
    audit(runner, 1, 1)
    assert len(flushes) == 5


def test_warm_up_reports_seconds_per_iteration():
    runner = make_runner(items=50_000)
    found = warm_up(runner, readings=3, iterations=4, window=5)
    assert len(found.seconds) == 3
    assert sum(found.seconds) * 4 <= found.reading_s * 3
    assert (found.steady, found.reason) == (False, "only 3 of 6 warm-up readings")


def test_an_audit_is_timed_and_one_without_outputs_gives_no_reading_but_a_fault():
    runner = make_runner()
    runner.first(FIRST)
    found = audit(runner, 5, 2)
    assert len(found.wall) == 1
    assert found.wall[0] > 0
    assert runner.auditor.faults == []
    broken = make_runner("lazy")
    broken.first(FIRST)
    assert audit(broken, 5, 2) == AuditReply(wall=(), device=())
    assert "builtins.list is not a torch.Tensor" in broken.auditor.faults[0]
    assert broken.wide(WideRequest("before", 5, 0.02)).steps == 0


def test_an_audit_says_how_long_it_waited_for_a_cpu_while_its_steps_were_timed(monkeypatch):
    now = [5.0]
    runner = make_runner()
    runner.first(FIRST)
    poison, step, snapshot = runner.auditor._poison, runner.workload.step, runner.auditor._snapshot

    def waits(seconds, function, *given, **named):
        now[0] += seconds
        return function(*given, **named)

    monkeypatch.setattr("aiperf.worker.usage.queued_so_far", lambda: now[0])
    monkeypatch.setattr(runner.auditor, "_poison", lambda: waits(1.0, poison))
    monkeypatch.setattr(runner.auditor, "_snapshot", lambda *given, **named: waits(1.0, snapshot, *given, **named))
    runner.workload = replace(runner.workload, step=lambda: waits(0.125, step))
    assert audit(runner, 5, 2).queued_s == 0.25


def test_what_audits_take_of_a_gpu_is_not_the_sides(monkeypatch):
    held = [100]
    monkeypatch.setattr("aiperf.worker.side_runner.gpu_peak", lambda: held[0])
    runner = make_runner()
    runner.first(FIRST)
    held[0] = 300
    assert runner.peak_gpu_bytes == 300
    for seed in (1, 2):
        audit(runner, seed, 1)
        held[0] += 1000
        assert runner.peak_gpu_bytes == 300


def test_what_a_rehearsal_takes_of_a_gpu_is_not_the_sides_and_what_its_turns_take_is(monkeypatch):
    held, log = [100], []
    monkeypatch.setattr("aiperf.worker.side_runner.gpu_peak", lambda: held[0])
    monkeypatch.setattr("aiperf.worker.side_runner.rehearse", lambda workload: held.insert(0, held[0] + 1000))
    runner = make_runner("prepares", log=log)
    runner.first(FIRST)
    assert runner.peak_gpu_bytes == 100
    runner.rehearse(RehearsalRequest("before"))
    assert runner.peak_gpu_bytes == 100
    held[0] += 300
    audit(runner, 5, 1)
    held[0] += 5000
    assert runner.peak_gpu_bytes == 400
    assert log == ["prepare", "step"] * 2


def test_a_step_finds_its_preparation_and_a_cold_cache_in_every_attempt_at_a_reading():
    log = []
    runner = make_runner("prepares", log=log)
    runner.request = set_up_request(cache="cold")
    runner.clock = Twice(log)
    turn(runner, reentry=0, samples=2, iterations=1, wall_too=False)
    assert log == ["prepare", "flush", "step"] * 4


class Twice:
    """A clock that needs two attempts for every reading."""

    holds = False
    repeated_s = 0.0

    def __init__(self, log):
        self.log = log

    def settle(self):
        pass

    def flush(self):
        self.log.append("flush")

    def read(self, step, iterations, around=None, *, ready):
        for _ in range(2):
            ready()
            step()
        return ClockReading(1.0)


def test_untimed_steps_lead_to_an_audit():
    log = []
    runner = make_runner("prepares", log=log)
    runner.first(FIRST)
    audit(runner, 5, 1, lead=1)
    assert log == ["prepare", "step"] * 3


def test_untimed_steps_have_ended_before_an_audit_poisons_outputs(monkeypatch):
    log = []
    runner = make_runner("prepares", log=log)
    runner.first(FIRST)
    log.clear()
    monkeypatch.setattr(runner.clock, "settle", lambda: log.append("settle"))
    monkeypatch.setattr(runner.auditor, "run", lambda *a, **k: log.append("audit"))
    audit(runner, 5, 1, lead=2)
    assert log == [*["prepare", "step"] * 2, "settle", "audit"]


def test_a_runner_can_slow_its_step_for_calibration():
    # Steps well below the time slice that others on the CPU get: some run without an interruption.
    plain, slow = make_runner(items=30_000), make_runner(items=30_000, slowdown=1.0)
    times = [(slow.first(FIRST).seconds, plain.first(FIRST).seconds) for _ in range(40)]
    slowest, fastest = map(min, zip(*times, strict=True))
    assert 1.5 < slowest / fastest < 2.7


def test_a_runner_reports_what_of_its_work_a_cache_may_hold():
    runner = make_runner(items=10)
    runner.workload = replace(runner.workload, work=replace(runner.workload.work, maybe_cached={"cpu_stream": 60.0}))
    assert runner.summarise().work["maybe_cached"] == {"cpu_stream": 60.0}


def test_a_runner_reports_work_counters_and_facts():
    summary = make_runner(items=10).summarise()
    assert summary.work == {
        "bytes": 160.0, "flops": 0, "items": 10, "item": "samples", "peaks": {"cpu_stream": 160.0}, "maybe_cached": {},
    }  # fmt: skip
    assert summary.counters == {"launches": 2}


def test_a_counter_that_no_column_holds_is_refused():
    runner = make_runner()
    runner.workload = replace(runner.workload, counters=lambda: {"launches": 1 << 62, "drops": -(10**400)})
    with pytest.raises(ValueError, match="a drops that 64 bits do not hold"):
        runner.summarise()


def test_values_are_asked_after_every_turn_and_a_value_that_is_none_is_refused():
    runner = make_runner()
    values = iter([{"goodput": 4, "ttft": 0.5}, {"goodput": float("nan")}])
    runner.workload = replace(runner.workload, values=lambda: next(values), faults=lambda: {"rate_off": "too slow"})
    runner.first(FIRST)
    assert turn(runner, reentry=0, samples=1, iterations=1, wall_too=False).values == {"goodput": 4.0, "ttft": 0.5}
    with pytest.raises(ValueError, match="a value must be finite and not negative"):
        turn(runner, reentry=0, samples=1, iterations=1, wall_too=False)
    assert runner.summarise().faults == {"rate_off": "too slow"}


def test_single_iterations_are_on_known_inputs_first_and_count_all_their_steps():
    runner = make_runner()
    runner.first(FIRST)
    seen = []
    step = runner.workload.step
    inputs = runner.workload.inputs
    runner.workload = replace(
        runner.workload, step=lambda: (seen.append({n: a.tobytes() for n, a in inputs().items()}), step())
    )
    before = {n: a.tobytes() for n, a in inputs().items()}
    reply = runner.fresh(FreshRequest("before", (7, 8, 7, 9, 7, 7, 10), 3, 10.0))
    assert (len(reply.again), len(reply.cold), len(reply.fresh), reply.steps) == (3, 3, 3, len(seen))
    known = [content == before for content in seen]
    assert known[:7] == [True] * 7
    assert known[7:] == [True, False] + [False, False] * 2 + [True]
    assert len({str(content) for content in seen}) == 4


def test_of_steps_that_take_the_whole_time_and_of_peaks_of_memory_nothing_is_tried_unannounced():
    def tried(step_s, metric="time"):
        runner = make_runner()
        runner.request = replace(runner.request, measure=replace(runner.request.measure, metric=metric))
        runner.first(FIRST)
        turn(runner, reentry=0, samples=1, iterations=1, wall_too=False)
        assert 0 < runner._step_s < 60, "of a turn that another process may have interrupted"
        runner._step_s = step_s
        return runner.wide(WideRequest("before", 5, 0.02)).unannounced.steps > 0

    assert (tried(0.02), tried(0.021), tried(0.02, "peak_memory")) == (True, False, False)


@pytest.mark.parametrize(("seconds", "met"), [(10.0, [7, 8, 7, 9, 7]), (0.0, [7, 7, 8, 9, 7])])
def test_a_side_that_redraws_has_known_inputs_again_after_single_iterations(seconds, met):
    """Ranks, which have no time of their own to end after, have them first, too."""
    runner, seeds = make_runner(), []
    runner.first(FIRST)
    runner.workload = replace(runner.workload, redraw=seeds.append)
    reply = runner.fresh(FreshRequest("before", (7, 8, 7, 9), 3, seconds))
    assert (seeds, reply.steps) == (met, 4)


def single_iterations(world_size, seconds):
    runner = SideRunner(set_up_request("healthy"), Context(seed=3, world_size=world_size), Ranges.open())
    step, spun = runner.workload.step, [0]

    def spins_on_new_inputs():
        spun[0] += 1
        until = process_time() + (0.03 if spun[0] > 4 else 0.0)
        while process_time() < until:
            pass
        step()

    runner.first(FIRST)
    runner.workload = replace(runner.workload, step=spins_on_new_inputs)
    return runner.fresh(FreshRequest("before", (7, 8, 7, 9, 7, 7, 10), 3, seconds))


def test_ranks_tell_the_cpu_time_of_their_single_iterations_as_well():
    """One iteration that is not timed, three on known inputs and three on new ones."""
    reply = single_iterations(2, 0.0)
    assert {name: len(seconds) for name, seconds in reply.spent.items()} == {"fresh": 3, "again": 3}
    assert max(reply.spent["again"]) < 0.03 <= min(reply.spent["fresh"])
    assert single_iterations(1, 10.0).spent == {}


@pytest.mark.parametrize(("metric", "count"), [("time", 1), ("peak_memory", None)])
def test_audits_look_for_unnamed_arrays_unless_the_case_is_about_peak_memory(metric, count):
    request = set_up_request("healthy")
    runner = SideRunner(
        replace(request, measure=replace(request.measure, metric=metric)), Context(seed=3), Ranges.open()
    )
    step, table = runner.workload.step, np.ones(9)
    runner.workload = replace(runner.workload, step=lambda: (step(), table.sum()))
    for seed in (5, 6):
        runner.audit(AuditRequest("before", seed, 0, 1))
    assert runner.summarise().coverage.unnamed == count
