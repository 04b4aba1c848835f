"""One pair of real workers: what both sides get, in which order they run, what is checked, and what is left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE_S

from aiperf.launch import pair as pair_module
from aiperf.launch import rank_replies
from aiperf.launch.gang import Gang, LaunchFailed, LaunchSkipped
from aiperf.launch.guardian import Guardian
from aiperf.launch.judge import JudgeProcess
from aiperf.launch.pair import Where, measure_pair
from aiperf.launch.rounds import plan_audits
from aiperf.plan.order import PairPlan
from aiperf.protocol.checking import CompareRequest, ForgetRequest, HandOverRequest, TakeRequest
from aiperf.protocol.messages import (
    CloseRequest,
    RehearsalRequest,
    SummaryRequest,
    TurnRequest,
    WarmUpRequest,
    WorkerRequest,
)
from aiperf.records import Case, Check, Coverage, Measure, Needs, Pair, Side
from aiperf.settings import Limits, Precision, Settings

SIDES = Path(__file__).with_name("launch_sides.py")
ALL = tuple(sorted(os.sched_getaffinity(0)))
PRECISION = Precision(
    name="tiny", looks=(3,), rounds=4, side_seconds=0.02, round_seconds=0.002, warmup_seconds=0.1, warmup_window=6,
    audits=2,
)  # fmt: skip
BITWISE = Check("bitwise")
SETTINGS = Settings(precision=PRECISION, limits=Limits(*(PATIENCE_S,) * 7))


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    with Guardian() as running:
        yield running


@pytest.fixture(scope="module")
def judge(guardian: Guardian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeProcess]:
    with JudgeProcess(tmp_path_factory.mktemp("judge"), guardian) as running:
        running.ask(ForgetRequest(), limit=PATIENCE_S)
        yield running


@pytest.fixture(autouse=True)
def _nothing_left(guardian: Guardian, judge: JudgeProcess, tmp_path: Path) -> Iterator[None]:
    descriptors = len(os.listdir("/proc/self/fd"))
    before = {p.pid for p in psutil.Process().children(recursive=True)} | {guardian.pid}
    yield
    assert [p.cmdline() for p in psutil.Process().children(recursive=True) if p.pid not in before] == []
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert list(tmp_path.iterdir()) == []


Measured = Callable[..., Pair]


def measuring(guardian: Guardian, judge: JudgeProcess, folder: Path) -> Measured:
    """What measures a pair, with its scratch below ``folder``."""

    def run(
        *sides: Side, order: tuple[str, ...] = (), seed: int = 3, cpus: tuple[int, ...] | None = ALL[-1:],
        check: Check = BITWISE, mark: Callable[[str | None], None] = lambda _: None,
        settings: Settings = SETTINGS, exchange: Path | None = None, needs: Needs | None = None, **measure: Any,
    ) -> Pair:  # fmt: skip
        needed, how = needs or Needs(), Measure(clock="wall", **measure)
        case = Case("s", "s", "t", "w", sides, measure=how, check=check, needs=needed)
        where = Where(cpus, ALL, folder, guardian, mark, exchange=exchange, judge=judge)
        names = order or tuple(side.name for side in sides)
        return measure_pair(PairPlan(case, 0, names, seed), settings=settings, where=where)

    return run


@pytest.fixture
def measured(guardian: Guardian, judge: JudgeProcess, tmp_path: Path) -> Measured:
    return measuring(guardian, judge, tmp_path)


@pytest.fixture(scope="module")
def healthy(guardian: Guardian, judge: JudgeProcess, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A pair of equal healthy sides by its isolation, measured once: for tests that only look at it."""

    @cache
    def pair(isolation: str) -> Pair:
        folder = tmp_path_factory.mktemp("healthy")
        found = measuring(guardian, judge, folder)(*both(), isolation=isolation)
        assert list(folder.iterdir()) == []
        return found

    return pair


@pytest.fixture(scope="module")
def twins(guardian: Guardian, judge: JudgeProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    """Two pairs of one seed and order, measured once."""
    run = measuring(guardian, judge, tmp_path_factory.mktemp("twins"))
    first, again = (run(*both(), order=("after", "before"), seed=8) for _ in range(2))
    return first, again


@pytest.fixture(scope="module")
def gangs(guardian: Guardian, judge: JudgeProcess, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Three gangs of two that serve requests, each rank with outputs of its own; rank 1 of the last spoils its own."""
    folder = tmp_path_factory.mktemp("gangs")
    sides = (*both("sharded", ranks=2), side("spoilt", "sharded", ranks=2, params={"spoil": 1}))
    found = measuring(guardian, judge, folder)(*sides)
    assert list(folder.iterdir()) == []
    return found


def side(name: str, function: str = "vector", **fields: Any) -> Side:
    params = fields.pop("params", {})
    return Side(name, workload=f"{SIDES}:{function}", params=params, **fields)


def both(function: str = "vector", **fields: Any) -> tuple[Side, Side]:
    return side("before", function, **fields), side("after", function, **fields)


def facts(pair: Pair) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = (run.facts for run in pair.runs)
    return first, second


@pytest.mark.parametrize(
    "how", [{}, {"isolation": "in_process"}, pytest.param({"exclusive": True}, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("check", [BITWISE, Check("named", name="near", bound=0.6)])
def test_what_sides_hand_over_goes_when_the_judge_has_it_or_with_the_pair(
    measured: Measured, tmp_path_factory: pytest.TempPathFactory, how: dict[str, Any], check: Check
) -> None:
    memory, named = tmp_path_factory.mktemp("memory"), check.kind == "named"
    seen: set[str] = set()

    def mark(phase: str | None) -> None:
        seen.update(path.name for path in memory.rglob("*") if path.is_file())

    sides = (side("before"), side("third"), side("after"))
    pair = measured(*sides, order=("third", "before", "after"), exchange=memory, mark=mark, check=check, **how)
    assert failed(pair) == []
    # A named check reads what others handed over; of all else no side finds a file.
    assert seen == ({f"{name}-0-whole" for name in ("before", "third", "after")} if named else set())
    assert list(memory.iterdir()) == []


def failed(pair: Pair) -> list[str]:
    return [c.detail for c in pair.checks if not c.passed]


# ---- what both sides get -------------------------------------------------------------------------------------------


def test_a_pair_of_healthy_sides_is_measured_and_passes_its_check(healthy: Callable[[str], Pair]) -> None:
    pair = healthy("process")
    assert {s.side for s in pair.samples} == {"before", "after"}
    assert all(s.wall_s > 0 and s.device_s is None for s in pair.samples)
    assert failed(pair) == []
    assert [c.compared for c in pair.checks] == ["after with before, bit for bit, whole outputs"]
    assert [run.side for run in pair.runs] == ["before", "after"]
    assert all(run.warmup is not None and run.warmup.first_iteration_s > 0 for run in pair.runs)
    assert all(run.peak_bytes is not None and run.peak_bytes > 10 << 20 for run in pair.runs)
    assert all(run.work["items"] == 2000 for run in pair.runs)
    assert pair.cpus == ALL[-1:]


def test_every_timed_step_of_every_rank_tells_its_latencies_and_no_other(gangs: Pair) -> None:
    for name in ("before", "after", "spoilt"):
        own = [s for s in gangs.samples if s.side == name and not s.audit]
        steps = sum(s.iterations for s in own)
        told: dict[tuple[str, int], list[float]] = {}
        for part in (part for s in own for part in s.latencies):
            told.setdefault((part.series, part.rank), []).extend(part.seconds)
        assert told == {
            (series, rank): [seconds * (1.0 + rank)] * 2 * steps
            for rank in (0, 1)
            for series, seconds in (("end_to_end", 1.0), ("queue", 0.1))
        }
    assert not any(s.latencies for s in gangs.samples if s.audit)


def test_sides_share_the_seed_and_the_inputs_but_no_addresses_and_no_scratch(twins: tuple[Pair, Pair]) -> None:
    before, after = facts(twins[0])
    assert before["seed"] == after["seed"] == 8
    assert before["first"] == after["first"]
    assert before["pad"] != after["pad"]
    assert before["pad"] % 256 == after["pad"] % 256 == 0
    assert before["padding"] != after["padding"]
    assert before["scratch"] != after["scratch"]
    assert before["shared"] == after["shared"]
    assert before["cpus"] == after["cpus"] == [ALL[-1]]


def test_two_pairs_of_one_seed_ask_for_inputs_that_nobody_can_compute_ahead(twins: tuple[Pair, Pair]) -> None:
    first, second = ({seed for found in facts(pair) for seed in found["audits"]} for pair in twins)
    assert first
    assert first.isdisjoint(second)


@pytest.mark.parametrize("reason", ["", "The range of numbers differs by design."])
def test_a_side_that_overflows_on_large_inputs_fails_unless_the_sides_differ_by_design(
    measured: Measured, reason: str
) -> None:
    hasty, check = {"shift": False}, Check("tolerance", reason=reason)
    pair = measured(
        side("before", "shares"), side("after", "shares", params=hasty), check=check, isolation="in_process"
    )
    wrong = "after: out has non-finite values on large inputs, where before's are finite"
    assert failed(pair) == ([] if reason else [wrong])


def test_both_sides_time_single_iterations_on_new_and_on_known_inputs(healthy: Callable[[str], Pair]) -> None:
    pair = healthy("process")
    assert all(min(len(run.fresh_s), len(run.again_s)) >= 3 and min(run.fresh_s + run.again_s) > 0 for run in pair.runs)


def test_both_sides_are_audited_with_the_planned_seeds(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_module.secrets, "token_hex", lambda _: "known")
    probed: list[int] = []
    monkeypatch.setattr(pair_module, "fresh_seeds", lambda _, pair, probes: probed.append(probes) or ())
    settings = replace(SETTINGS, precision=replace(PRECISION, probes=8))
    pair = measured(*both(), seed=5, settings=settings)
    assert probed == [8]
    planned = [a.seed for a in plan_audits(2, "known", pair=0, single=False)]
    assert [found["audits"] for found in facts(pair)] == [planned, planned]
    assert [len(run.audit_queued_s) for run in pair.runs] == [2, 2]
    lengths = {name: [s.iterations for s in pair.samples if s.audit and s.side == name] for name in ("before", "after")}
    assert (
        lengths["before"] == lengths["after"] == [a.iterations for a in plan_audits(2, "known", pair=0, single=False)]
    )


@pytest.mark.parametrize(
    ("gpus", "audits", "how", "rehearsals"),
    [
        (0, 2, {}, 0),
        (1, 0, {}, 0),
        (1, 2, {}, 2),
        (1, 2, {"isolation": "in_process"}, 0),
        pytest.param(1, 2, {"exclusive": True}, 0, marks=pytest.mark.long),
    ],
)
def test_rounds_are_told_of_a_gpu_and_sides_there_rehearse_audits_beside_each_other_once_both_are_warm(
    gpus: int,
    audits: int,
    how: dict[str, Any],
    rehearsals: int,
    measured: Measured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, told = traffic(monkeypatch), list[bool]()
    play = pair_module.play_rounds
    monkeypatch.setattr(pair_module, "play_rounds", lambda *a, **k: told.append(k["on_gpu"]) or play(*a, **k))
    for module in ("setup", "sides"):  # there is none here
        monkeypatch.setattr(f"aiperf.launch.{module}.device_of", lambda case: "cpu")
    monkeypatch.setattr("aiperf.launch.sides._modules", lambda case, workload: ())  # torch, for that GPU
    settings = replace(SETTINGS, precision=replace(PRECISION, audits=audits))
    measured(*both(), needs=Needs(gpus=gpus), settings=settings, **how)
    assert set(told) == {gpus > 0}
    assert done.count(RehearsalRequest) == rehearsals
    if rehearsals:
        begins = done.index(RehearsalRequest)
        assert done[begins : begins + 4] == [RehearsalRequest, RehearsalRequest, "collect", "collect"]
        assert begins + 4 == done.index(TurnRequest)
        assert WarmUpRequest not in done[begins:]


def test_the_same_seed_gives_the_same_order_of_turns_and_the_pairs_own_order_comes_first(
    twins: tuple[Pair, Pair],
) -> None:
    def turns(pair: Pair) -> list[tuple[str, int]]:
        return list(dict.fromkeys((s.side, s.round) for s in pair.samples if not s.audit))

    first, again = twins
    assert turns(first) == turns(again)
    assert turns(first)[:4] == [("after", 0), ("before", 0), ("before", 1), ("after", 1)]
    assert first.order == ("after", "before")
    assert [run.side for run in first.runs] == ["before", "after"]


@pytest.mark.long
def test_a_side_has_its_own_environment_before_its_interpreter_starts(measured: Measured) -> None:
    before = side("before", env={"PYTHONHASHSEED": "1", "TEST_X": "b"})
    pair = measured(before, side("after", env={"PYTHONHASHSEED": "2", "TEST_X": "a"}))
    one, two = facts(pair)
    assert one["hash"] != two["hash"]
    assert (one["env"], two["env"]) == ({"TEST_X": "b"}, {"TEST_X": "a"})
    same = facts(measured(before, replace(before, name="after")))
    assert same[0]["hash"] == same[1]["hash"] == one["hash"]
    assert "TEST_X" not in os.environ


def test_a_side_may_have_its_own_interpreter(measured: Measured, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("bin") / "python"
    other.write_text(f'#!/bin/sh\nTEST_WRAPPED=1 exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    before, after = facts(measured(side("before"), side("after", python=str(other))))
    assert (before["env"], after["env"]) == ({}, {"TEST_WRAPPED": "1"})


def test_cpus_that_are_left_free_stay_free(measured: Measured) -> None:
    pair = measured(*both(), cpus=None)
    assert [found["cpus"] for found in facts(pair)] == [list(ALL)] * 2
    assert pair.cpus == ()


# ---- isolation -----------------------------------------------------------------------------------------------------


def test_sides_live_in_processes_of_their_own(healthy: Callable[[str], Pair]) -> None:
    before, after = (run.pids for run in healthy("process").runs)
    assert len(before) == len(after) == 1
    assert before != after


def test_in_process_puts_both_sides_into_one_process(measured: Measured) -> None:
    pair = measured(side("before"), side("after", params={"offset": 1.0}), isolation="in_process")
    before, after = (run.pids for run in pair.runs)
    assert before == after
    assert {s.side for s in pair.samples if not s.audit} == {"before", "after"}
    assert len(failed(pair)) == 1
    assert failed(pair)[0].startswith("after: audit 0: out differs in 2000 of 2000 elements")


def test_exclusive_sides_never_live_at_the_same_time_and_are_compared_all_the_same(measured: Measured) -> None:
    pair = measured(*both("alone"), order=("after", "before"), exclusive=True)
    before, after = facts(pair)
    assert after["earlier"] == []
    assert len(before["earlier"]) == 1
    assert before["alive"] == []
    assert [c.passed for c in pair.checks] == [True]
    names = [s.side for s in pair.samples]
    assert names == sorted(names)
    together = facts(measured(*both("alone"), order=("after", "before")))
    assert together[0]["alive"] or together[1]["alive"] or not together[0]["earlier"] + together[1]["earlier"]


def test_preparation_on_one_side_gives_both_one_iteration_a_sample(
    measured: Measured, healthy: Callable[[str], Pair]
) -> None:
    pair = measured(side("before"), side("after", "prepares"))
    assert {s.iterations for s in pair.samples} == {1}
    batched = healthy("process")
    # Of a side whose first steps another process interrupts, a sample may hold a single iteration.
    assert max(s.iterations for s in batched.samples if not s.audit) > 1


@pytest.mark.parametrize("exclusive", [False, True])
def test_only_the_side_that_begins_anew_is_spared_its_warm_up(measured: Measured, exclusive: bool) -> None:
    pair = measured(side("before"), side("after", "begins_anew"), exclusive=exclusive)
    before, after = (run.warmup.iterations for run in pair.runs if run.warmup is not None)
    assert before > 5
    assert after == 2
    assert failed(pair) == []


def test_a_rank_that_left_the_cpus_it_was_bound_to_is_told_and_one_that_uses_fewer_is_not() -> None:
    facts: list[dict[str, Any]] = [{"cpus": [4]}, {"cpus": [2, 3]}, {}]
    found = list(rank_replies.strays("after", facts, [(4, 5), (3,), (6,)]))
    assert [(i.kind, i.side, i.voids) for i in found] == [("affinity", "after", False)]
    assert found[0].detail == "rank 1 may run on CPU 2 too, though it was bound to 3"
    assert list(rank_replies.strays("after", facts, [None, None, None])) == []


def test_memory_on_another_node_than_the_cpus_is_an_incident_unless_the_side_wants_it_so() -> None:
    nodes = {0: (0, 1), 1: (2, 3)}

    def far(*facts: dict[str, Any], cpus: tuple[int, ...] | None = (2,)) -> list[str]:
        found = list(rank_replies.far_memory("after", facts, [cpus] * len(facts), nodes))
        assert all((i.kind, i.side, i.voids) == ("affinity", "after", False) for i in found)
        return [i.detail for i in found]

    there = {"memory_nodes": {"0": 0.7, "1": 0.3}}
    assert far(there) == ["30 % of its memory is on NUMA node 1, where CPU 2 is"]
    assert far({"memory_nodes": {"1": 1.0}}, there)[0].startswith("30 % of rank 1's memory")
    assert (
        far({"memory_nodes": {"0": 0.1, "1": 0.9}}) == far({}) == far(there, cpus=None) == far(there, cpus=(0, 2)) == []
    )
    assert far(there | {"memory_policy": "none: the side chooses its node itself", "memory_node": "remote"}) == []


# ---- the check -----------------------------------------------------------------------------------------------------


def test_different_outputs_are_a_failed_check_that_names_the_side(measured: Measured) -> None:
    pair = measured(side("before"), side("after", params={"offset": 0.5}), order=("after", "before"))
    (check,) = pair.checks
    assert not check.passed
    assert check.compared.startswith("after with before")
    assert check.detail.startswith("after: audit 0: out differs in 2000 of 2000 elements")


def test_unequal_work_is_a_failed_check(measured: Measured) -> None:
    pair = measured(side("before"), side("after", params={"work": 1000}))
    assert failed(pair) == ["after does 1000 items a step, before 2000 items"]


def test_every_step_of_a_ladder_is_compared_with_the_first(measured: Measured) -> None:
    pair = measured(side("naive"), side("tiled"), side("fused", params={"offset": 1.0}))
    assert [(c.passed, c.compared.split(",")[0]) for c in pair.checks] == [
        (True, "tiled with naive"),
        (False, "fused with naive"),
    ]


def test_all_is_reported_before_anything_is_saved_and_all_are_asked_before_any_is_waited_for(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = traffic(monkeypatch)
    assert failed(measured(*both(), side("third"))) == []
    last = len(seen) - seen[::-1].index(SummaryRequest)
    assert seen[last:] == [
        "collect", *3 * [HandOverRequest], *3 * ["collect"], *3 * [TakeRequest, "collect"], *2 * [CompareRequest],
        *3 * [CloseRequest], *3 * ["collect"], *2 * ["collect"], ForgetRequest, "collect",
    ]  # fmt: skip


def traffic(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What every gang is asked from now on, as types of requests, and ``collect`` wherever replies are awaited."""
    seen: list[Any] = []
    send, collect = Gang.send, Gang.collect

    def sending(gang: Gang, request: WorkerRequest[Any]) -> None:
        seen.append(type(request))
        send(gang, request)

    def collecting(gang: Gang, *which: Any, **more: Any) -> Any:
        seen.append("collect")
        return collect(gang, *which, **more)

    monkeypatch.setattr(Gang, "send", sending)
    monkeypatch.setattr(Gang, "collect", collecting)
    return seen


@pytest.mark.parametrize("order", [("before", "after"), ("after", "before")])
@pytest.mark.parametrize("exclusive", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_named_check_is_found_whichever_side_starts(
    measured: Measured, order: tuple[str, str], exclusive: bool
) -> None:
    check = Check("named", name="near", bound=0.6)
    pair = measured(
        side("before"), side("after", params={"offset": 0.5}), order=order, check=check, exclusive=exclusive
    )
    assert [(c.passed, c.max_error) for c in pair.checks] == [(True, 0.5)]
    assert pair.checks[0].compared == "after with before, check near, bound 0.6"


@pytest.mark.parametrize("how", [{}, pytest.param({"isolation": "in_process"}, marks=pytest.mark.long)])
def test_a_named_check_is_the_first_sides_own_and_runs_in_its_process(measured: Measured, how: dict[str, Any]) -> None:
    sides = (side("before", "tells_its_process"), side("after", "accepts_anything"), side("third"))
    pair = measured(*sides, order=("after", "third", "before"), check=Check("named", name="same"), **how)
    assert failed(pair) == []
    assert [c.max_error for c in pair.checks] == [pair.runs[0].pids[0]] * 2
    assert (
        len(failed(measured(sides[0], side("after", params={"offset": 1.0}), check=Check("named", name="same")))) == 1
    )


def test_a_first_side_that_has_gone_is_set_up_once_more_for_its_named_check(measured: Measured) -> None:
    pair = measured(
        side("before", "tells_its_process"), side("after"), exclusive=True, check=Check("named", name="same")
    )
    assert failed(pair) == []
    assert pair.checks[0].max_error not in (None, *(pid for run in pair.runs for pid in run.pids))


def test_a_named_check_that_accepts_anything_fails(measured: Measured) -> None:
    pair = measured(side("before", "accepts_anything"), side("after"), check=Check("named", name="near"))
    assert failed(pair) == [
        "after: check near accepts anything: it passes with negated, shuffled, zeroed and random outputs too"
    ]


def test_a_check_that_is_left_out_compares_nothing(measured: Measured) -> None:
    assert measured(side("before"), side("after", params={"offset": 0.5}), check=Check("none", reason="x")).checks == ()


# ---- gangs ---------------------------------------------------------------------------------------------------------


def test_every_rank_is_compared_with_the_same_rank_of_the_other_side(gangs: Pair) -> None:
    assert [len(run.pids) for run in gangs.runs] == [2, 2, 2]
    assert [c.passed for c in gangs.checks] == [True, False]
    assert failed(gangs)[0].startswith("spoilt, rank 1: audit 0: out differs in")


def test_a_gang_against_a_single_process_compares_what_both_have(measured: Measured) -> None:
    pair = measured(side("before"), side("after", ranks=2), order=("after", "before"))
    assert [c.passed for c in pair.checks] == [True]
    assert [len(run.pids) for run in pair.runs] == [1, 2]


@pytest.mark.parametrize("isolation", ["process", "in_process"])
def test_what_a_side_used_is_counted_over_exactly_its_own_turns(healthy: Callable[[str], Pair], isolation: str) -> None:
    pair = healthy(isolation)
    for run in pair.runs:
        timed = sum(s.iterations for s in pair.samples if s.side == run.side and not s.audit)
        assert run.usage["iterations"] == timed + run.reentry_iterations
        spent = run.usage["user_s"] + run.usage["system_s"]
        assert 0 < spent < pair.seconds
        assert all(count >= 0 for count in run.usage.values())


def test_what_a_gang_used_is_the_sum_over_its_ranks_and_its_iterations_are_not(gangs: Pair) -> None:
    for run in gangs.runs:
        timed = sum(s.iterations for s in gangs.samples if s.side == run.side and not s.audit)
        assert run.usage["iterations"] == timed + run.reentry_iterations
    ranks = [{"iterations": 4, "minor_faults": faults} for faults in (3.0, 5.0)]
    assert rank_replies.gang_usage(ranks) == {"iterations": 4, "minor_faults": 8.0}


@pytest.mark.parametrize("isolation", ["process", "in_process"])
def test_a_pair_has_the_calls_outside_of_the_time_and_what_its_audits_reached(
    healthy: Callable[[str], Pair], isolation: str
) -> None:
    for run in healthy(isolation).runs:
        closed = {"close"} if isolation == "process" else set()
        assert set(run.phases) == {"inputs", "outputs", "pending", "redraw", *closed}
        assert run.phases["inputs"].calls == run.phases["outputs"].calls == PRECISION.audits
        assert run.phases["redraw"].calls >= PRECISION.audits
        assert run.coverage == Coverage(inputs="declared", fixed=(), unnamed=0)


# ---- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["process", "in_process"])
def test_a_failing_side_is_named_with_its_phase(measured: Measured, isolation: str) -> None:
    with pytest.raises(LaunchFailed) as caught:
        measured(side("before"), side("after", "broken"), isolation=isolation)
    failure = caught.value.failure
    assert (failure.phase, failure.kind) == ("warm-up", "error")
    assert failure.message.startswith("ValueError: broken batch (launch_sides.py:")
    assert failure.side == ("after" if isolation == "process" else "both")
    assert "broken batch" in failure.stderr_tail


def test_a_side_that_refuses_this_host_skips_the_pair(measured: Measured) -> None:
    with pytest.raises(LaunchSkipped, match="no O_DIRECT"):
        measured(side("before"), side("after", "refuses"))


def test_an_interrupt_in_the_middle_leaves_nothing_behind(measured: Measured) -> None:
    seen: list[str | None] = []

    def interrupt(name: str | None) -> None:
        seen.append(name)
        if name == "after":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(*both(), mark=interrupt)
    assert seen[:4] == ["set-up phase", "warm-up of before", "warm-up of after", None]
    assert seen[4:] in (["before", None, "after"], ["after"])
