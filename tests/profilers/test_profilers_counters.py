"""The table of counters: each is readable where it says, and held against a claim."""

from __future__ import annotations

from typing import Any

import pytest
from profilers_made import row, side

from aiperf.profilers.counters import COUNTERS, Observed, mechanisms
from aiperf.records.profiled import Mechanism

MIB = float(1 << 20)
QUEUES = {
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 1.0,
    "lts__t_sectors_op_atom.sum": 2.0,
    "lts__t_sectors_op_red.sum": 4.0,
}


def everything(tool: str) -> Observed:
    """A side of which every tool told everything: two iterations."""
    whole = side(
        tool=tool, iterations=2, wall_s=2.0, gpu_span_s=1.6, gpu_busy_s=1.2, host_wait_s=0.2, launches=20, kernels=40,
        syncs=6, exposed_s=0.5, overlap_pct=75.0, copy_overlap_pct=60.0, concurrency=1.5,
    )  # fmt: skip
    copies = [
        row(tool=tool, kind="memcpy", name=name, bytes=moved, time_s=seconds)
        for name, moved, seconds in (
            ("HtoD pinned", 100.0, 2.0), ("HtoD pageable", 50.0, 3.0), ("DtoH pinned", 40.0, 2.0), ("DtoD", 30.0, 0.1),
            ("PtoP", 20.0, 0.1),
        )
    ]  # fmt: skip
    kernels = [
        row(time_s=1.0, bytes=100.0, sector_use_pct=100.0, tensor_pct=10.0, dram_pct=20.0, l2_pct=30.0, sm_pct=40.0,
            occupancy_pct=50.0, metrics={"lts__t_sector_hit_rate.pct": 61.0, "flops": 10.0} | QUEUES),
        row(time_s=3.0, bytes=300.0, sector_use_pct=20.0, tensor_pct=50.0, dram_pct=60.0, l2_pct=70.0, sm_pct=80.0,
            occupancy_pct=90.0, count=3, metrics={"flops": 20.0} | QUEUES),
        row(time_s=None, bytes=None, sector_use_pct=3.0, metrics={"flops": 2.0} | QUEUES),
    ]  # fmt: skip
    names = ("context-switches", "cpu-migrations", "page-faults", "cache-misses", "dTLB-load-misses", "branch-misses")
    events = {name: float(number) for number, name in enumerate((*names, "instructions"), 1)}
    perf = row(tool="perf", kind="range", metrics=events)
    return Observed((*copies, *kernels, perf), (whole,), {"graph_breaks": 3})


EXPECTED = {
    "launches": 10, "kernels": 20, "syncs": 3, "gpu_idle": 25.0, "host_wait": 12.5, "exposed_communication": 25.0,
    "overlap": 75.0, "copy_overlap": 60.0, "concurrency": 1.5,
    "h2d_bandwidth": 30.0, "d2h_bandwidth": 20.0, "d2d_bandwidth": 300.0, "p2p_bandwidth": 200.0,
    "copied_bytes": 120.0, "dram_bytes": 200.0, "flops": 36.0, "sector_use": 40.0, "tensor_pipe": 40.0,
    "dram_throughput": 50.0,
    "l2_throughput": 60.0, "sm_throughput": 70.0, "occupancy": 80.0, "l2_atomics": 15.0, "bank_conflicts": 2.5,
    "context_switches": 1.0, "cpu_migrations": 2.0,
    "page_faults": 3.0, "cache_misses": 4.0, "dtlb_load_misses": 5.0, "branch_misses": 6.0, "instructions": 7.0,
}  # fmt: skip


def judged(name: str, claim: str, before: Observed, after: Observed) -> Mechanism:
    (mechanism,) = mechanisms({name: claim}, before, after)
    return mechanism


def test_every_counter_of_the_table_has_an_expected_value_here():
    assert set(EXPECTED) == set(COUNTERS)


@pytest.mark.parametrize(("name", "tool"), [(c.name, tool) for c in COUNTERS.values() for tool in c.tools])
def test_every_counter_is_readable_from_each_of_its_tools(name: str, tool: str):
    told = everything(tool)
    assert COUNTERS[name].read(told, tool) == pytest.approx(EXPECTED[name])
    mechanism = judged(name, "same", told, told)
    assert (mechanism.state, mechanism.before, mechanism.unit, mechanism.tool) == (
        "moved", pytest.approx(EXPECTED[name]), COUNTERS[name].unit, tool
    )  # fmt: skip


def test_a_tool_that_ran_and_did_not_tell_is_not_asked_for_again():
    told = Observed((row(tool="perf", kind="range", metrics={"context-switches": 1.0}),))
    mechanism = judged("cache_misses", "down", told, told)
    assert mechanism.sentence == "cache_misses was not readable here: perf did not read it for both sides"


def test_the_operations_of_a_side_are_not_known_while_those_of_one_kernel_are_not():
    told = everything("ncu")
    assert COUNTERS["flops"].read(Observed((*told.rows, row(name="uncounted"))), "ncu") is None


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_a_counter_of_which_nothing_was_told_is_not_readable_and_never_zero(name: str):
    mechanism = judged(name, "down", Observed(), everything(COUNTERS[name].tools[0]))
    assert (mechanism.state, mechanism.before, mechanism.after, mechanism.tool) == ("not_readable", None, None, "")
    assert mechanism.sentence == f"{name} was not readable here: it needs {' or '.join(COUNTERS[name].tools)}"


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_a_side_without_gpu_work_has_no_gpu_counters(name: str):
    blank = side(gpu_span_s=None, gpu_busy_s=None)
    assert COUNTERS[name].read(Observed((), (blank,)), "nsys") is None


def test_gpu_work_without_copies_copied_nothing():
    assert COUNTERS["copied_bytes"].read(Observed((), (side(),)), "nsys") == 0.0


def launches(number: float) -> Observed:
    return Observed((), (side(launches=number),))


@pytest.mark.parametrize(
    ("claim", "before", "after", "state", "sentence"),
    [
        ("down", 100, 1, "moved", "launches went down by at least 2 %, as claimed"),
        ("up", 100, 1, "opposite", "launches went down by at least 2 %, against the claim"),
        ("same", 100, 1, "did_not_move", "launches went down by at least 2 %, not as claimed"),
        ("up", 100, 101.9, "did_not_move", "launches stayed within 2 %, not as claimed"),
        ("up", 100, 102, "moved", "launches went up by at least 2 %, as claimed"),
        ("down", 100, 98.1, "did_not_move", "launches stayed within 2 %, not as claimed"),
        ("down", 100, 98, "moved", "launches went down by at least 2 %, as claimed"),
        ("same", 100, 101.9, "moved", "launches stayed within 2 %, as claimed"),
        ("same", 0, 0, "moved", "launches stayed within 2 %, as claimed"),
        ("up", 0, 1, "moved", "launches went up by at least 2 %, as claimed"),
        ("down", 1, 0, "moved", "launches went down by at least 2 %, as claimed"),
        ("down", 0, 1, "opposite", "launches went up by at least 2 %, against the claim"),
    ],
)
def test_a_claim_is_held_against_what_moved(claim: str, before: float, after: float, state: str, sentence: str):
    mechanism = judged("launches", claim, launches(before), launches(after))
    assert (mechanism.state, mechanism.sentence) == (state, sentence)
    assert (mechanism.before, mechanism.after, mechanism.tool) == (before, after, "nsys")


def test_both_sides_are_read_with_the_same_tool():
    before = Observed((), (side(launches=100), side(tool="torch", launches=110)))
    after = Observed((), (side(tool="torch", launches=11),))
    mechanism = judged("launches", "down", before, after)
    assert (mechanism.tool, mechanism.before, mechanism.after) == ("torch", 110, 11)


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_readable(odd: float):
    assert judged("mine", "down", Observed(own={"mine": odd}), Observed(own={"mine": 1.0})).state == "not_readable"
    assert judged("mine", "down", Observed(own={"mine": 1.0}), Observed(own={"mine": odd})).state == "not_readable"


def test_the_workloads_own_counts_stand_in_for_a_name_that_no_tool_told():
    before, after = (
        Observed(own={"launches": 12, "graph_breaks": 3}),
        Observed(own={"launches": 1, "graph_breaks": 0}),
    )
    assert judged("launches", "down", before, after).tool == "aiperf"
    own = judged("graph_breaks", "down", before, after)
    assert (own.state, own.tool, own.before, own.after) == ("moved", "aiperf", 3, 0)


@pytest.mark.parametrize(
    ("name", "value", "tool"),
    [
        ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", 40.0, "ncu"),
        ("sm__warps_active.avg.pct_of_peak_sustained_active", 80.0, "ncu"),
        ("lts__t_sector_hit_rate.pct", 61.0, "ncu"),
        ("dTLB-load-misses", 5.0, "perf"),
    ],
)
def test_a_tools_own_name_for_a_metric_is_good_too(name: str, value: float, tool: str):
    told = everything("nsys")
    mechanism = judged(name, "same", told, told)
    assert (mechanism.state, mechanism.before, mechanism.tool) == ("moved", pytest.approx(value), tool)


def test_a_name_that_nobody_knows_is_not_readable():
    told: Any = everything("nsys")
    assert judged("nonsense", "up", told, told).sentence == (
        "nonsense was not readable here: no counter has that name, and the workload does not count it; "
        "aiperf list --counters shows them"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("launchs", "launches"),
        ("graph_brakes", "graph_breaks"),
        ("cache-miss", "cache_misses"),
        ("H2D_bandwith", "h2d_bandwidth"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_counter_or_count_of_the_workload(name: str, meant: str):
    mechanism = judged(name, "down", Observed(own={"graph_breaks": 3}), Observed())
    assert mechanism.sentence == (
        f"{name} was not readable here: no counter has that name, and the workload does not count it; "
        f"did you mean {meant}? aiperf list --counters shows them"
    )


@pytest.mark.parametrize(
    ("after", "why"),
    [({}, "only one side counts it"), ({"host_waits": float("nan")}, "a side counted no finite number")],
)
def test_a_count_of_the_workload_that_one_side_lacks_is_no_unknown_name(after: dict[str, float], why: str):
    mechanism = judged("host_waits", "down", Observed(own={"host_waits": 3}), Observed(own=after))
    assert (mechanism.state, mechanism.sentence) == ("not_readable", f"host_waits was not readable here: {why}")


def test_an_event_by_perfs_own_name_takes_perf():
    assert judged("dTLB-load-misses", "down", Observed(), Observed()).sentence == (
        "dTLB-load-misses was not readable here: it needs perf"
    )


# ---- several kernels -------------------------------------------------------------------------------------------------

INSTRUCTIONS = "smsp__inst_executed.sum"
STALLS = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"


def kernels(*told: tuple[float, int, float], metric: str = INSTRUCTIONS) -> Observed:
    """Rows of ncu: mean of a launch, launches, seconds of all."""
    return Observed(
        tuple(row(name=f"k{n}", count=c, time_s=s, metrics={metric: m}) for n, (m, c, s) in enumerate(told))
    )


def test_what_a_metric_counts_is_added_up_over_all_launches_of_all_kernels():
    before, after = kernels((100.0, 10, 9.0), (900.0, 10, 1.0)), kernels((150.0, 10, 5.0))
    mechanism = judged(INSTRUCTIONS, "down", before, after)
    assert (mechanism.state, mechanism.before, mechanism.after) == ("moved", 10_000.0, 1_500.0)


def test_what_is_no_count_is_a_mean_by_the_kernels_time():
    before = kernels((8.0, 10, 3.0), (0.0, 1, 1.0), metric=STALLS)
    mechanism = judged(STALLS, "down", before, kernels((1.0, 1, 1.0), metric=STALLS))
    assert (mechanism.state, mechanism.before, mechanism.after) == ("moved", 6.0, 1.0)


def test_bytes_by_ncus_own_name_are_all_that_were_moved_and_not_a_mean():
    rows = (row(time_s=3.0, bytes=9e9, count=3), row(name="j", time_s=1.0, bytes=6e9))
    mechanism = judged("dram__bytes.sum", "down", Observed(rows), Observed(rows[1:]))
    assert (mechanism.before, mechanism.after) == (15e9, 6e9)


def test_a_count_that_one_kernel_lacks_is_not_known():
    before = kernels((100.0, 1, 1.0))
    lacking = Observed((*before.rows, row(name="uncounted", time_s=1.0)))
    assert judged(INSTRUCTIONS, "down", before, lacking).sentence == (
        f"{INSTRUCTIONS} was not readable here: ncu did not read it for both sides"
    )


@pytest.mark.parametrize(("name", "value"), [("launch__registers_per_thread", 168.0), ("launch__grid_size", 132.0)])
def test_what_is_known_of_a_launch_has_its_name_too(name: str, value: float):
    told = Observed((row(time_s=1.0, registers=168, grid=132),))
    mechanism = judged(name, "same", told, told)
    assert (mechanism.state, mechanism.before, mechanism.tool) == ("moved", value, "ncu")


def test_amounts_are_of_an_iteration_where_ncu_says_how_many_it_saw():
    three = Observed((row(time_s=1.0, bytes=30.0, count=3),), (side(tool="ncu", iterations=3),))
    one = Observed((row(time_s=1.0, bytes=10.0, count=1),))
    assert judged("dram_bytes", "same", three, one).state == "moved"


def traced(kernels: int, *, iterations: int = 50, read: int = 50) -> Observed:
    """ncu's one row of ``read`` launches beside what nsys saw."""
    rows = (
        row(time_s=1.0, count=read, bytes=100.0, occupancy_pct=50.0, metrics={INSTRUCTIONS: 1.0, "flops": 1.0}),
        row(tool="nsys", count=kernels, time_s=1.0),
        row(tool="nsys", kind="collective", name="nccl", count=10 * kernels, time_s=1.0),
    )
    return Observed(rows, (side(tool="nsys", iterations=iterations), side(tool="ncu", iterations=1)))


@pytest.mark.parametrize("name", ["dram_bytes", "flops", INSTRUCTIONS, "dram__bytes.sum"])
def test_no_sum_is_told_where_a_tracer_saw_more_kernels_than_ncu_read(name: str):
    mechanism = judged(name, "down", traced(3000), traced(2500))
    assert (mechanism.state, mechanism.before) == ("not_readable", None)
    if name != "dram__bytes.sum":
        assert mechanism.sentence.endswith(": ncu read 50 of the 60 kernels of an iteration")
    assert judged(name, "same", traced(2500), traced(2520)).state == "moved"


def test_a_mean_over_the_kernels_that_ncu_read_is_told():
    assert judged("occupancy", "same", traced(3000), traced(2500)).state == "moved"


def test_without_a_tracer_the_word_of_ncu_on_its_limit_stands():
    cut = Observed((row(time_s=1.0, count=50, bytes=1.0),), (side(tool="ncu", lost="ncu stops at 50 launches"),))
    mechanism = judged("dram_bytes", "down", cut, cut)
    assert mechanism.sentence == "dram_bytes was not readable here: ncu stops at 50 launches"


def test_a_metric_that_only_ncu_can_read_says_so():
    assert judged(STALLS, "down", Observed(), Observed()).sentence == f"{STALLS} was not readable here: it needs ncu"


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [(0.0, 1.9, "did_not_move"), (0.0, 2.0, "moved"), (50.0, 51.9, "did_not_move"), (50.0, 47.9, "opposite")],
)
def test_a_share_has_moved_from_two_points_on_and_not_because_it_was_nothing(before: float, after: float, state: str):
    first, last = (Observed((), (side(copy_overlap_pct=share),)) for share in (before, after))
    mechanism = judged("copy_overlap", "up", first, last)
    assert mechanism.state == state
    assert "2 points" in mechanism.sentence


# ---- directions, bars ------------------------------------------------------------------------------------------------


def copied(*names: str) -> Observed:
    return Observed(tuple(row(tool="nsys", kind="memcpy", name=n, bytes=1.0, time_s=1.0) for n in names), (side(),))


def test_a_direction_that_neither_side_copies_in_is_nothing_to_claim_of():
    mechanism = judged("h2d_bandwidth", "up", copied("DtoH pageable"), copied("DtoH pinned"))
    assert (mechanism.state, mechanism.tool, mechanism.before) == ("not_readable", "nsys", None)
    assert mechanism.sentence == "h2d_bandwidth: neither side copies that way"


def test_a_direction_that_one_side_copies_in_is_not_readable():
    mechanism = judged("h2d_bandwidth", "up", copied("HtoD pageable"), copied("DtoH pinned"))
    assert (mechanism.tool, mechanism.sentence) == (
        "", "h2d_bandwidth was not readable here: only one side copies that way"
    )  # fmt: skip


def test_where_no_cuda_was_traced_nothing_is_said_of_copies():
    blank = Observed((), (side(gpu_busy_s=None, launches=None),))
    assert judged("h2d_bandwidth", "up", blank, blank).sentence == (
        "h2d_bandwidth was not readable here: nsys did not read it for both sides"
    )


@pytest.mark.parametrize(
    ("after", "state"), [(91.0, "did_not_move"), (90.0, "moved"), (109.0, "did_not_move"), (110.0, "opposite")]
)
def test_events_of_perf_wander_and_have_to_move_further(after: float, state: str):
    before, last = (Observed((row(tool="perf", kind="range", metrics={"cache-misses": n}),)) for n in (100.0, after))
    mechanism = judged("cache_misses", "down", before, last)
    assert mechanism.state == state
    assert "10 %" in mechanism.sentence
