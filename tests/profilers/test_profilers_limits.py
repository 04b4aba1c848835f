"""Kernels whose limit is known, as ncu recorded them on an H100 (fixtures/profilers/limits.py)."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from profilers_made import FIXTURES

from aiperf.profilers.counters import Observed, mechanisms
from aiperf.profilers.ncu_read import read_ncu
from aiperf.profilers.reading import Pass
from aiperf.profilers.waits import longest_wait, moved_most
from aiperf.records.profiled import CounterRow, SideProfile


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CounterRow]:
    path: Path = tmp_path_factory.mktemp("ncu") / "limits.ncu-rep"
    path.write_bytes(gzip.decompress((FIXTURES / "limits.ncu-rep.gz").read_bytes()))
    return {row.name: row for row in read_ncu(path, [Pass("before", 1)]).rows}


def test_a_histogram_with_global_atomics_waits_for_one_atomic_unit_and_not_for_a_larger_grid(kernels):
    slow, fast = kernels["histogram_global"], kernels["histogram_shared"]
    assert slow.time_s / fast.time_s == pytest.approx(127, abs=1)
    assert (slow.bound, slow.why) == (
        "atomics",
        "the busiest atomic unit of the L2 is busy for 80 %, all of them for 2 % on average; SM 0 %, memory 3 %",
    )
    # Nsight Compute's own rules see latency only.
    assert slow.tool_says.startswith("Latency Issue")
    assert (fast.bound, fast.why) == ("memory", "DRAM 60 %, SM 18 %")
    moved = moved_most([slow], [fast])
    assert (moved.reason, round(moved.before), round(moved.after)) == ("long_scoreboard", 8211, 71)


def test_a_transpose_whose_reads_meet_in_one_bank_is_told_from_the_padded_one(kernels):
    conflicts, padded = kernels["transpose_conflict"], kernels["transpose_padded"]
    assert (conflicts.bound, conflicts.why) == (
        "memory",
        "memory 83 % (nearest: L1 and shared memory 86 %; DRAM 40 %; L2 45 %), SM 10 %; "
        "bank conflicts: 93 % of shared memory's wavefronts",
    )
    assert (padded.bound, padded.why) == ("memory", "DRAM 80 %, SM 21 %")
    moved = moved_most([conflicts], [padded])
    assert (moved.reason, round(moved.before), round(moved.after)) == ("mio_throttle", 81, 1)


def test_atomics_and_conflicts_have_short_names_that_a_scenario_may_claim(kernels):
    def read(name: str) -> Observed:
        # As one iteration of a side that the tool followed from end to end.
        return Observed((kernels[name],), (SideProfile("before", "ncu", 1),))

    (fewer,) = mechanisms({"l2_atomics": "down"}, read("histogram_global"), read("histogram_shared"))
    assert (fewer.state, fewer.before, fewer.after) == ("moved", 35589125.0, 50688.0)
    (fewer,) = mechanisms({"bank_conflicts": "down"}, read("transpose_conflict"), read("transpose_padded"))
    assert (fewer.state, fewer.before, fewer.after) == ("moved", 16411770.0, 31849.0)


def test_few_warps_that_follow_pointers_wait_for_memory(kernels):
    assert (kernels["chase"].bound, kernels["chase"].why) == (
        "latency",
        "SM 0 %, memory 30 %, both below 60 %: the grid is smaller than one wave (0.031); "
        "warps wait for global or local memory (long_scoreboard) in 97 % of their cycles",
    )


def test_a_kernel_of_barriers_waits_at_them_though_its_pipe_is_busy(kernels):
    assert kernels["barriers"].bound == "compute"
    assert longest_wait(kernels["barriers"].metrics) == ("barrier", pytest.approx(56, abs=1))
