from __future__ import annotations

from dataclasses import replace

import pytest
from factory_of_profiles import LONG, made
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from aiperf.records.profiled import Artefact, CounterRow, HotSpot, Profile, ProfileNote, SideProfile
from aiperf.report.layout.text import middle_cut, plain
from aiperf.report.profile_match import matched, pairs_of
from aiperf.report.profile_text import MOST_ROWS, profile_lines

GOLDEN = """\
launches-vs-graph[n=300]
 nsys 2025.3.2: before read; after read
 ncu: before read; after read
 perf: skipped: perf is not installed. apt install linux-perf

 mechanism    claimed  before  after  read by             result
 launches        down      60      1     nsys         as claimed
 kernels         down      61     61     nsys       did not move
 tensor_pipe       up       –      –        –  not readable here
     tensor_pipe was not readable here: it takes ncu
 a counter counts as moved from 2 % on, a share from 2 points, a perf event from 10 %

 Sides, by nsys; times and counts are per iteration (profiled: before 5, after 10)
                         before   after   change
 wall                   2.00 ms  400 µs  −80.0 %
 GPU span               1.60 ms  300 µs  −81.2 %
 GPU busy                400 µs  290 µs  −27.5 %
 GPU idle, of its span     75 %   3.3 %
 launches                    60       1  −98.3 %
 kernels                     61      30  −50.8 %
 waiting calls                1       –        –
 before: launch-bound: a launch every 15.2 µs, kernels of 0.903 µs
   rule: the GPU is busy for less than 50 % of its span, with at least 10 launches at most 30 µs
     apart, each with less kernel time than that
 Lost: before: 12 records
 after: gpu-bound: the GPU is busy for 97 % of its span
   rule: the GPU is busy for at least 50 % of its span

 Activities, by nsys; per iteration (profiled: before 5, after 10)
                                n before  n after  time before  time after       change  rate before
 HtoD pageable                         1        –      1.00 ms           –  only before    1.05 GB/s
 void at::nativ…y<char*, 3ul>>        60       30      60.0 µs     30.0 µs      −50.0 %            –
 gone_kernel                           1        –      20.0 µs           –  only before            –
 graph new_graph                       –        1            –     20.0 µs   only after            –
 no room for bytes: widen the terminal or export

 Counters, by ncu; before → after; means over the profiled launches
                                DRAM %      SM %  sector %        bytes           a launch  launches
 void at::nativ…<char*, 3ul>>  24 → 88  20 → 8.1    12 → –  977 KiB → –  2.00 µs → 1.00 µs     2 → 1
     before: latency-bound: SM 20 %, memory 24 %, both below 60 %; NVIDIA says: Long Scoreboard
 no room for rate, registers: widen the terminal or export
 of peak; sector: share of each loaded sector that was asked for; occ.: achieved occupancy
 rules: latency: SM and memory are both below 60 %

 events per iteration, by perf  before  after   change
 context-switches                 3.50  0.500  −85.7 %
 page-faults                         0      –        –

 host hot spots, by perf  before  after
 interpreter (python)       40 %   20 %
 memcpy (libc)              10 %      –
 –: not among the spots listed for that side

 Note: kernels outside every side's range: 3
"""


def text(profile: Profile, *, width: int = 100, every_row: bool = False) -> str:
    return plain(profile_lines(profile, width=width, every_row=every_row))


def row_of(said: str, start: str) -> list[str]:
    """Cells of the first line that begins with ``start``."""
    line = next(line for line in said.splitlines() if line.strip().startswith(start))
    return line.strip().removeprefix(start).split("  ")


def cells(said: str, start: str) -> list[str]:
    return [cell.strip() for cell in row_of(said, start) if cell.strip()]


def test_a_profile_is_laid_out_to_the_character() -> None:
    assert text(made()) == GOLDEN


def test_what_was_not_read_is_a_dash_and_what_is_zero_is_zero() -> None:
    one = CounterRow("before", "nsys", "kernel", "k", count=0, time_s=None)
    side = SideProfile("before", "nsys", 1, wall_s=0.5, launches=0, syncs=None)
    other = SideProfile("after", "nsys", 1, wall_s=0.25, launches=None, syncs=3)
    full = CounterRow("before", "nsys", "kernel", "z", count=2, time_s=1.0)
    rows = (one, replace(one, side="after", count=None, time_s=0.0), full, replace(full, side="after"))
    said = text(Profile("c", rows=rows, sides=(side, other)))
    assert cells(said, "launches") == ["0", "–", "–"]
    assert cells(said, "waiting calls") == ["–", "3", "–"]
    assert cells(said, "k  ") == ["0", "–", "–", "0 ns", "–"]


def test_a_quantity_that_no_side_has_is_not_listed() -> None:
    said = text(Profile("c", sides=(SideProfile("before", "torch", 1, wall_s=0.5),)))
    assert "wall" in said
    assert not {"GPU", "launches", "communication", "peak memory"} & set(said.replace("  ", " ").split())


def test_totals_are_divided_by_the_iterations_of_their_own_side_and_tool() -> None:
    rows = (
        CounterRow("before", "torch", "op", "add", count=60, time_s=0.6),
        CounterRow("after", "torch", "op", "add", count=60, time_s=0.6),
    )
    sides = (SideProfile("before", "torch", 6), SideProfile("after", "torch", 20), SideProfile("after", "nsys", 3))
    said = text(Profile("c", rows=rows, sides=sides))
    assert cells(said, "op add") == ["10", "3", "100 ms", "30.0 ms", "−70.0 %"]
    assert "per iteration (profiled: before 6, after 20)" in said


def test_totals_stay_totals_where_the_iterations_of_one_side_are_not_known() -> None:
    rows = tuple(CounterRow(side, "torch", "op", "add", count=60, time_s=0.6) for side in ("before", "after"))
    said = text(Profile("c", rows=rows, sides=(SideProfile("before", "torch", 6),)))
    assert cells(said, "op add")[:4] == ["60", "60", "600 ms", "600 ms"]
    assert "totals over everything profiled" in said


def test_rows_match_by_tool_kind_and_name() -> None:
    rows = (
        CounterRow("before", "nsys", "kernel", "x", time_s=2.0),
        CounterRow("after", "nsys", "graph", "x", time_s=1.0),
        CounterRow("after", "torch", "kernel", "x", time_s=1.0),
        CounterRow("before", "nsys", "kernel", "same", time_s=0.2),
        CounterRow("after", "nsys", "kernel", "same", time_s=0.1),
    )
    profile = Profile("c", rows=rows)
    found = matched(profile, "nsys", "before", "after")
    assert [(m.kind, m.name, m.before is None, m.after is None) for m in found] == [
        ("kernel", "x", False, True),
        ("graph", "x", True, False),
        ("kernel", "same", False, False),
    ]
    said = text(profile)
    assert cells(said, "graph x")[-1] == "only after"
    assert cells(said, "same")[-1] == "−50.0 %"


def test_ranks_are_folded_into_means_and_told_apart_when_every_row_is_asked_for() -> None:
    rows = tuple(
        CounterRow("after", "nsys", "collective", "nccl", rank=rank, device=rank, count=4, time_s=1.0 + rank)
        for rank in (0, 1)
    )
    single = CounterRow("before", "nsys", "collective", "nccl", count=4, time_s=1.0)
    profile = Profile("c", rows=(single, *rows))
    folded = text(profile)
    assert cells(folded, "collective nccl") == ["4", "4", "1.00 s", "1.50 s", "+50.0 %"]
    assert "means over 2 GPUs or ranks" in folded
    apart = text(profile, every_row=True)
    assert cells(apart, "collective nccl rank 0")[-1] == "0 %"
    assert cells(apart, "collective nccl rank 1")[-1] == "only after"


def test_calls_of_the_host_have_a_table_of_their_own_with_the_time_of_each() -> None:
    rows = (
        CounterRow("before", "nsys", "kernel", "add", count=300, time_s=0.3e-3),
        CounterRow("after", "nsys", "kernel", "add", count=300, time_s=0.3e-3),
        CounterRow("before", "nsys", "call", "cudaLaunchKernel", count=300, time_s=1.8e-3),
        CounterRow("after", "nsys", "call", "cudaGraphLaunch", count=1, time_s=0.2e-3),
        CounterRow("before", "nsys", "call", "cudaFree", count=4, time_s=8e-6),
        CounterRow("after", "nsys", "call", "cudaFree", count=2, time_s=6e-6),
    )
    said = text(Profile("c", rows=rows))
    activities, _, calls = said.partition("Calls on the host, by nsys; totals over everything profiled")
    assert "cuda" not in activities
    assert "add" not in calls
    assert cells(calls, "cudaLaunchKernel") == ["300", "–", "1.80 ms", "–", "only before", "6.00 µs"]
    assert cells(calls, "cudaFree") == ["4", "2", "8.00 µs", "6.00 µs", "−25.0 %", "2.00 µs → 3.00 µs"]
    assert "Calls" not in text(Profile("c", rows=rows[:2]))


def test_calls_of_ranks_are_told_apart_when_every_row_is_asked_for() -> None:
    rows = tuple(CounterRow("before", "nsys", "call", "cudaFree", rank=rank, count=4, time_s=1.0) for rank in (0, 1))
    assert "cudaFree rank 1" in text(Profile("c", rows=rows), every_row=True)
    assert "rank 1" not in text(Profile("c", rows=rows))


def test_more_rows_than_fit_are_counted_with_their_time() -> None:
    rows = tuple(CounterRow("before", "nsys", "kernel", f"k{n:02}", time_s=0.1 * (n + 1)) for n in range(MOST_ROWS + 3))
    said = text(Profile("c", rows=rows))
    assert "k14" in said
    assert "k02" not in said
    assert "3 more not shown; together before 600 ms" in said
    assert "k02" in text(Profile("c", rows=rows), every_row=True)


def test_each_side_of_a_ladder_is_held_against_the_first() -> None:
    rows = tuple(CounterRow(side, "nsys", "kernel", "k", time_s=0.1) for side in ("before", "half", "after"))
    profile = Profile("c", rows=rows)
    assert pairs_of(profile) == [("before", "half"), ("before", "after")]
    assert "time half" in text(profile)


def test_a_profile_of_one_side_compares_nothing() -> None:
    row = CounterRow("program", "ncu", "kernel", "k", count=1, time_s=0.1, dram_pct=50.0)
    said = text(Profile("c", rows=(row, replace(row, tool="nsys"))))
    assert "only" not in said
    assert "change" not in said
    assert "→" not in said


def test_every_pass_that_was_not_read_says_why() -> None:
    artefacts = (
        Artefact("ncu", "", "skipped", "counters are closed. Run as root"),
        Artefact("nsys", "before", "failed", "no end\nwithin 300 s"),
        Artefact("nsys", "after", "empty", "nothing was recorded"),
    )
    said = text(Profile("c", artefacts=artefacts))
    assert " nsys: before failed: no end within 300 s\n nsys: after empty: nothing was recorded\n" in said
    assert " ncu: skipped: counters are closed. Run as root\n" in said


def kernel(side: str = "before", **told: object) -> CounterRow:
    return CounterRow(**{"side": side, "tool": "ncu", "kind": "kernel", "name": "k", "dram_pct": 50.0, **told})  # type: ignore[arg-type]


def test_bytes_and_times_of_several_launches_are_of_one_and_stand_before_the_occupancy() -> None:
    rows = (
        kernel(count=4, time_s=8e-6, median_s=1e-6, bytes=4 * 2**20, occupancy_pct=70.0),
        kernel("after", count=1, time_s=2e-6, median_s=2e-6, bytes=2**20, occupancy_pct=70.0),
    )
    said = text(Profile("c", rows=rows, sides=(SideProfile("before", "ncu", 1), SideProfile("after", "ncu", 1))))
    title = next(line for line in said.splitlines() if "DRAM %" in line).split("  ")
    assert [word.strip() for word in title if word.strip()] == [
        "DRAM %", "bytes", "occ. %", "a launch", "launches", "median", "rate"
    ]  # fmt: skip
    assert cells(said, "k  ")[1:-1] == ["1 MiB → 1 MiB", "70 → 70", "2.00 µs → 2.00 µs", "4 → 1", "1.00 µs → –"]


@pytest.mark.parametrize(
    ("flops", "work", "width", "said"),
    [
        (5.0, {"before": {"flops": 0.0}}, 100, "including any of address arithmetic; before declares none"),
        (5.0, {"before": {"flops": 0.0}, "after": {"flops": 0}}, 100, "arithmetic; before and after declare none"),
        (5.0, {"before": {"flops": 7.0}}, 100, "including any of address arithmetic\n"),
        (5.0, {}, 100, "including any of address arithmetic\n"),
        (0.0, {"before": {"flops": 0.0}}, 100, ""),
        (5.0, {"before": {"flops": 0.0}}, 30, ""),
    ],
)
def test_counted_operations_are_said_to_be_just_that_where_they_are_shown(
    flops: float, work: dict[str, object], width: int, said: str
) -> None:
    rows = tuple(kernel(side, count=1, time_s=1e-6, metrics={"flops": flops}) for side in ("before", "after"))
    told = text(Profile("c", rows=rows, facts={"work": work}), width=width)
    joined = " ".join(told.split("\n   ")).replace("  ", " ")
    assert (said in joined) if said else "address arithmetic" not in joined


def test_of_nvidias_words_the_first_sentence_is_shown() -> None:
    said = text(Profile("c", rows=(kernel(tool_says="Small Grid: Only 0.2 full waves. Look elsewhere."),)))
    assert "NVIDIA says: Small Grid: Only 0.2 full waves.\n" in said


def test_lost_records_are_told_even_where_a_side_has_no_quantity() -> None:
    side = SideProfile("before", "perf", 1, hot=(HotSpot("f", 1.0),), lost="7 samples")
    assert "Lost: before (perf): 7 samples" in text(Profile("c", sides=(side,)))


def test_names_that_the_cut_makes_alike_are_told_in_full() -> None:
    names = [
        f"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize{n}x128x8_stage3_execute_kernel__5x_cublas" for n in (64, 96)
    ]
    rows = tuple(CounterRow("before", "nsys", "kernel", name, count=1, time_s=1.0) for name in names)
    said = "".join(text(Profile("c", rows=rows), width=70).split())
    assert all(name in said for name in names)


def test_colour_only_underlines_the_result_of_a_mechanism() -> None:
    lines = [line for line in profile_lines(made(), width=100) if line.style and line.start]
    styled = {line.text[line.start :]: line.style for line in lines}
    assert styled == {"as claimed": "green", "did not move": "yellow", "not readable here": "dim"}


@pytest.mark.parametrize("size", [1, 2, 4, 5, 9, 20])
def test_a_cut_name_keeps_its_ends_and_its_width(size: int) -> None:
    assert cell_len(middle_cut(LONG, size)) <= size
    assert middle_cut("short", 5) == "short"
    assert middle_cut("abcdefghij", 5) == "ab…ij"


names = st.text(min_size=1, max_size=120)
amounts = st.none() | st.floats(0, 1e12, allow_nan=False)


@pytest.mark.long
@given(
    width=st.integers(60, 140),
    found=st.lists(st.tuples(st.sampled_from(["before", "after"]), names, amounts, amounts), max_size=6),
    reason=names,
    every_row=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_no_line_is_wider_than_the_terminal(
    width: int, found: list[tuple[str, str, float | None, float | None]], reason: str, every_row: bool
) -> None:
    base = made()
    more = tuple(
        CounterRow(
            side, tool, "kernel", name, count=3, time_s=a, bytes=b, bytes_per_s=b, dram_pct=a, sm_pct=b, l2_pct=a,
            occupancy_pct=b, why=name, bound="latency", tool_says=name, grid=10**9, metrics={name: 1.0},
        )
        for side, name, a, b in found
        for tool in ("nsys", "ncu", "perf")
    )  # fmt: skip
    profile = replace(
        base,
        rows=base.rows + more,
        notes=(ProfileNote("text", {"text": reason}),),
        artefacts=(*base.artefacts, Artefact("ncu", "", "failed", reason)),
    )
    lines = profile_lines(profile, width=width, every_row=every_row)
    assert max(cell_len(line.text) for line in lines) <= width
    assert not any(c in line.text for line in lines for c in "\n\r\t\x1b")
