import os
import time
from itertools import pairwise

import pytest
from host_recorded import machine, write

from aiperf.errors import UserError
from aiperf.host.placement import (
    CpuProbe,
    format_cpus,
    on_same_nodes,
    others,
    parse_cpus,
    place,
    probe_cpus,
    quiet_cpus,
)


def test_a_cpu_list_is_read_as_the_kernel_writes_it():
    assert parse_cpus("0-3,5", allowed=range(8)) == (0, 1, 2, 3, 5)
    assert parse_cpus(" 5, 1 ,5", allowed=range(8)) == (1, 5)


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1,", "0-", "1;2", "0x1", "0-99999999999"])
def test_a_bad_cpu_list_is_one_clear_mistake(text):
    with pytest.raises(UserError) as caught:
        parse_cpus(text, allowed=(0, 1))
    fault = caught.value.faults[0]
    assert fault.where == "--pin"
    assert f'"{text}"' in fault.what
    assert "0-3,5" in fault.hint


def test_a_cpu_that_may_not_be_used_is_named_beside_those_that_may():
    with pytest.raises(UserError, match=r"CPU 2,9 is not among the CPUs this process may use \(0-1,4\)"):
        parse_cpus("1,2,9", allowed=(0, 1, 4))


@pytest.mark.parametrize("cpus", [(), (3,), (0, 1, 2), (0, 2, 3, 7)])
def test_cpu_lists_survive_writing_and_reading(cpus):
    text = format_cpus(cpus)
    assert (parse_cpus(text, allowed=range(8)) if cpus else ()) == cpus


def test_cpus_of_the_same_nodes_are_those_that_the_kernel_lists_beside_them(tmp_path):
    folder = "sys/devices/system/node"
    lists = {f"{folder}/node0/cpulist": "0-3\n", f"{folder}/node1/cpulist": "4-7\n", f"{folder}/node2/cpulist": "\n"}
    root = machine(tmp_path, **lists)
    assert on_same_nodes((5,), range(8), root=root) == (4, 5, 6, 7)
    assert on_same_nodes((5,), (0, 4, 1), root=root) == (4,)
    assert on_same_nodes((2, 5), range(8), root=root) == tuple(range(8))
    assert on_same_nodes((5,), (0, 1), root=root) == (0, 1)
    assert on_same_nodes((9,), range(8), root=root) == tuple(range(8))
    assert on_same_nodes((5,), range(8), root=machine(tmp_path / "other")) == tuple(range(8))


def test_none_pins_nothing():
    assert place("none") is None


def test_a_list_is_taken_as_it_is():
    assert place("0-3", allowed=range(8)) == (0, 1, 2, 3)


def test_a_case_that_wants_all_or_more_than_all_gets_the_cpus_unprobed():
    begin = time.perf_counter()
    assert place("auto", cpus_wanted=0, allowed=(0, 1, 2, 3), probe_seconds=30) == (0, 1, 2, 3)
    assert place("auto", cpus_wanted=8, allowed=(0, 1, 2, 3), probe_seconds=30) == (0, 1, 2, 3)
    assert time.perf_counter() - begin < 30


def test_auto_gives_one_of_the_allowed_cpus_and_restores_the_affinity():
    home = os.sched_getaffinity(0)
    placed = place("auto", probe_seconds=0.02)
    assert os.sched_getaffinity(0) == home
    assert placed is not None
    assert len(placed) == 1
    assert set(placed) <= home


def test_aiperf_itself_stays_off_the_chosen_cpus_where_it_can():
    assert others((0, 2), (0, 1, 2, 3)) == (1, 3)
    assert others((0, 1), (0, 1)) == (0, 1)
    assert others((), (0, 1)) == (0, 1)


def test_cpus_are_ranked_by_score_and_measured_in_units_of_the_best_chunk():
    probes = probe_cpus(sorted(os.sched_getaffinity(0)), probe_seconds=0.05)
    measured = [probe for probe in probes if probe.loss is not None]
    assert measured
    assert all(a.score <= b.score for a, b in pairwise(measured))
    assert all(probe.loss >= 0 for probe in measured)


def test_a_cpu_that_serves_the_interrupts_scores_worse_than_an_equal_one_that_does_not():
    quiet = CpuProbe(0, loss=0.01, jitter=0.01, busy=0.0, interrupts=0.0)
    serving = CpuProbe(1, loss=0.01, jitter=0.01, busy=0.0, interrupts=1.0)
    assert quiet.score < serving.score


def test_hardware_threads_of_one_core_are_not_taken_together(tmp_path):
    # CPUs that this machine has not: they refuse the thread, so they are watched only and keep their order.
    ghost = max(os.sched_getaffinity(0)) + 1000
    pairs = {ghost: ghost, ghost + 1: ghost, ghost + 2: ghost + 2, ghost + 3: ghost + 2}
    folder = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    root = write(machine(tmp_path), {folder.format(cpu): f"{core}-{core + 1}\n" for cpu, core in pairs.items()})
    assert quiet_cpus(2, candidates=range(ghost, ghost + 4), probe_seconds=0.01, root=root) == (ghost, ghost + 2)


def test_hardware_threads_of_one_core_are_taken_together_where_whole_cores_are_asked_for(tmp_path):
    ghost = max(os.sched_getaffinity(0)) + 1000
    folder = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    cores = {ghost + cpu: f"{ghost + cpu % 4},{ghost + cpu % 4 + 4}\n" for cpu in range(8)}
    root = write(machine(tmp_path), {folder.format(cpu): text for cpu, text in cores.items()})

    def chosen(count: int, candidates: range) -> list[int]:
        found = quiet_cpus(count, candidates=candidates, whole_cores=True, probe_seconds=0.01, root=root)
        return [cpu - ghost for cpu in found]

    assert chosen(4, range(ghost, ghost + 8)) == [0, 1, 4, 5]
    assert chosen(3, range(ghost, ghost + 8)) == [0, 1, 4, 5], "a CPU more than asked for, not half a core"
    assert chosen(2, range(ghost, ghost + 4)) == [0, 1], "threads that aiperf may not use are left out"


def test_as_many_candidates_as_wanted_are_taken_unprobed():
    assert quiet_cpus(2, candidates=(4, 9), probe_seconds=30) == (4, 9)
