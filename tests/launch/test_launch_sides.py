"""Where the processes of a side start: on the node they are measured on, each with as many CPUs as it will have."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.launch.sides import rank_cpus, start_cpus

ALL = (0, 1, 2, 3, 4, 5)


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    for node, cpus in {0: "0-2", 1: "3-5"}.items():
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
    return tmp_path


@pytest.mark.parametrize(("cpu", "starts"), [(4, [3, 4, 5, 3]), (0, [0, 1, 2, 0])])
def test_sides_of_one_cpu_start_apart_but_on_the_node_of_the_cpu_that_they_will_share(two_nodes, cpu, starts) -> None:
    found = [start_cpus((cpu,), ALL, ranks=1, place=place, root=two_nodes) for place in range(4)]
    assert found == [((one,),) for one in starts]


def test_a_side_whose_cpu_is_the_only_one_of_its_node_starts_there(two_nodes: Path) -> None:
    assert [start_cpus((4,), (0, 1, 4), ranks=1, place=place, root=two_nodes) for place in range(2)] == [((4,),)] * 2


def test_on_a_machine_of_one_node_they_start_anywhere(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/node/node0").mkdir(parents=True)
    (tmp_path / "sys/devices/system/node/node0/cpulist").write_text("0-5\n")
    for root in (tmp_path, tmp_path / "tells-nothing"):
        assert [start_cpus((4,), ALL, ranks=1, place=n, root=root) for n in (0, 1, 7)] == [((0,),), ((1,),), ((1,),)]


def test_gangs_and_sides_of_several_cpus_start_where_they_stay(two_nodes: Path) -> None:
    for cpus, ranks in (((1, 4), 1), ((1, 4), 2), ((4,), 2), (None, 1)):
        assert start_cpus(cpus, ALL, ranks=ranks, place=1, root=two_nodes) == rank_cpus(cpus, ranks)
