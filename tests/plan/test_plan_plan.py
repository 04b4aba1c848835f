"""The plan: cases and skips for a host, and what it may cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.errors import UserError
from aiperf.plan.cases import expand
from aiperf.plan.plan import Plan, estimate, make_plan, too_long_loads, too_small_a_budget
from aiperf.settings import Precision, Settings


@pytest.fixture
def settings(tmp_path):
    return Settings(results=tmp_path / "results")


def test_a_scenario_that_needs_nine_gpus_is_skipped_with_reason_and_fix(scenario, host, settings):
    plan = make_plan([scenario("needs: {gpus: 9}\n")], host(), settings)
    assert plan.cases == ()
    assert [(s.case.id, s.reason, s.fix) for s in plan.skips] == [
        ("x", "needs 9 GPUs, but this host has 0 (no NVML library)", "run it on a host with 9 GPUs")
    ]


def test_a_gpu_block_is_used_where_there_is_a_gpu(scenario, host, settings):
    made = [scenario("gpu: {size: 1GiB}\n")]
    sizes = [make_plan(made, host(n), settings).cases[0].sides[0].params["size"] for n in (0, 1)]
    assert sizes == [1024**2, 1024**3]


def test_a_gang_with_a_gpu_block_stays_on_the_cpu_where_gpus_are_too_few(scenario, host, settings):
    made = [scenario("gpu: {size: 1GiB}\n", params="{size: 1, ranks: 2}")]
    assert [make_plan(made, host(n), settings).cases[0].needs.gpus for n in (0, 1, 2)] == [0, 0, 2]


def test_of_an_axis_of_ranks_the_gangs_that_fit_run_and_the_rest_is_skipped(scenario, host, settings):
    plan = make_plan([scenario("axes: {ranks: [1, 2, 4]}\n")], host(), settings)
    assert [c.id for c in plan.cases] == ["x[ranks=1]", "x[ranks=2]"]
    assert [s.reason for s in plan.skips] == ["4 ranks need a CPU each, but aiperf may use 2"]


def test_a_skip_names_all_its_reasons(scenario, host, settings):
    (skip,) = make_plan([scenario("needs: {gpus: 1, gds: true}\n")], host(), settings).skips
    assert skip.reason == "needs 1 GPU, but this host has 0 (no NVML library); GPUDirect Storage is not active"
    assert skip.fix.count(";") == 1


def test_two_scenarios_of_one_name_are_refused(scenario, host, settings, tmp_path):
    first = scenario()
    with pytest.raises(UserError, match="two scenarios have the name x"):
        make_plan([first, replace(first, path=tmp_path / "other" / "x.yaml")], host(), settings)


def test_only_reaches_the_cases(scenario, host, settings):
    plan = make_plan([scenario("axes: {n: [1, 2]}\n")], host(), settings, only={"n": "2"})
    assert [c.id for c in plan.cases] == ["x[n=2]"]


@pytest.fixture
def mixed(scenario):
    """Scenarios with other axes each: a has n and wait, b another n, c none."""
    blocks = {"a": "axes: {n: [1, 2], wait: [1s, 2s]}\n", "b": "axes: {n: [2, 3]}\n", "c": ""}
    return [replace(scenario(block), name=name) for name, block in blocks.items()]


@pytest.mark.parametrize(
    ("only", "kept", "notes"),
    [
        (
            {"wait": "2s"},
            ["a[n=1,wait=2s]", "a[n=2,wait=2s]", "b[n=2]", "b[n=3]", "c"],
            ("--only wait=2s: all cases kept, without that axis: b, c",),
        ),
        (
            {"n": "1"},
            ["a[n=1,wait=1s]", "a[n=1,wait=2s]", "c"],
            ("--only n=1: all cases kept, without that axis: c", "--only n=1: left out, without that value: b"),
        ),
        ({"n": "2", "wait": "1s"}, ["a[n=2,wait=1s]", "b[n=2]", "c"], None),
        ({"n": "3,1", "wait": "1s"}, ["a[n=1,wait=1s]", "b[n=3]", "c"], None),
    ],
)
def test_only_keeps_scenarios_without_the_axis_and_says_so(mixed, host, settings, only, kept, notes):
    plan = make_plan(mixed, host(), settings, only=only)
    assert [case.id for case in plan.cases] == kept
    assert notes in (None, plan.notes)
    assert plan.shard(1, 1).notes == plan.notes


@pytest.mark.parametrize(
    ("only", "what", "hint"),
    [
        ({"k": "1"}, "none of the 3 scenarios has an axis k.", "Their axes: n, wait."),
        ({"n": "9"}, "none of the 3 scenarios has a case with n=9; allowed: 1, 2, 3.", ""),
    ],
)
def test_an_axis_or_a_value_that_no_scenario_has_is_refused(mixed, host, settings, only, what, hint):
    with pytest.raises(UserError) as caught:
        make_plan(mixed, host(), settings, only=only)
    (fault,) = caught.value.faults
    assert (fault.where, fault.what, fault.hint) == ("--only", what, hint)


def test_an_estimate_grows_with_looks_sides_and_care_up_to_the_budget(scenario):
    (case,) = expand(scenario(), on_gpu=False)
    low, high = estimate(case, Precision())
    assert 0 < low < high <= Precision().case_seconds
    assert estimate(replace(case, sides=(*case.sides, case.sides[1])), Precision())[0] > low
    assert estimate(case, Precision(looks=(12, 24)))[0] == pytest.approx(2 * low)
    assert estimate(case, Precision(case_seconds=3)) == (3, 3)


def test_a_budget_of_programs_that_is_shorter_than_their_first_look_is_said(scenario):
    (case,) = expand(scenario(workload="", params="", before="{command: a}", after="{command: b}"), on_gpu=False)
    of_a_case = [Settings(precision=Precision(case_seconds=seconds)) for seconds in (3, 3000)]
    said, calm = (too_small_a_budget(Plan((case,), ()), settings) for settings in of_a_case)
    assert said.endswith(": a budget of 3 s does not shorten that")
    assert calm == ""
    two = Plan((case, replace(case, id="other")), ())
    assert too_small_a_budget(two, of_a_case[0]) == ""


def test_an_estimate_knows_max_pairs_commands_and_gpus(scenario):
    (case,) = expand(scenario(), on_gpu=False)
    precision = Precision(case_seconds=1e9)
    few = replace(case, measure=replace(case.measure, max_pairs=6))
    assert estimate(few, precision)[0] == estimate(case, precision)[0]
    assert estimate(few, precision)[1] == pytest.approx(estimate(case, precision)[1] * 6 / 40)
    made = scenario(workload="", params="", before="{command: a}", after="{command: b}")
    assert estimate(expand(made, on_gpu=False)[0], precision)[1] < estimate(case, precision)[1]
    on_gpu = replace(case, needs=replace(case.needs, gpus=1))
    assert estimate(on_gpu, precision)[0] > estimate(case, precision)[0]
    longer = replace(precision, gpu_side_seconds=precision.gpu_side_seconds + 1)
    assert estimate(case, longer) == estimate(case, precision)
    assert estimate(on_gpu, longer)[0] == pytest.approx(estimate(on_gpu, precision)[0] + 6 * 2)


def test_schedules_that_leave_no_time_for_the_first_look_are_named(scenario, host, settings):
    before, after = (f"{{workload: serve.load, server: 'serve --port {{port}} {more}'}}" for more in ("", "--fast"))
    trace = "{trace: {rate: 8, requests: 400, prompt_tokens: 8}}"
    made = scenario("needs: {cpus: 2}\n", workload="", before=before, after=after, params=trace)
    plan = make_plan([made], host(libraries={"aiohttp": "3.14"}), settings)
    (case,) = plan.cases
    assert estimate(case, Precision(case_seconds=1e9))[0] > 6 * 2 * 50
    assert estimate(case, Precision()) == (600, 600)
    assert too_long_loads(plan, settings) == (
        "x: the schedules of one pair last 1 m 40 s, so the 6 pairs of the first look take at least 10 m 00 s, but a "
        "case has 5 m 00 s: no further pairs will follow. Write fewer requests, a higher rate, or a longer "
        "case_seconds "
        "(docs/serving.md)"
    )
    assert too_long_loads(plan, replace(settings, precision=Precision(case_seconds=900))) == ""
    faster = replace(case, sides=tuple(replace(s, params={**s.params, "load": 80.0}) for s in case.sides))
    assert too_long_loads(replace(plan, cases=(faster,)), settings) == ""
    search = replace(case, sides=tuple(replace(s, params={**s.params, "find": "max_rate"}) for s in case.sides))
    assert estimate(search, Precision())[0] < 300
