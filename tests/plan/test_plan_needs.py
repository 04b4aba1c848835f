"""Needs against hosts: every unmet one with a reason in plain words and a fix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.plan.needs import unmet
from aiperf.protocol.libraries import needs_libraries
from aiperf.records import Needs

GIB = 1024**3


def test_nine_gpus_on_a_host_without_one(host):
    assert unmet(Needs(gpus=9), host()) == [
        ("needs 9 GPUs, but this host has 0 (no NVML library)", "run it on a host with 9 GPUs")
    ]


def test_nine_gpus_on_a_host_with_eight(host):
    assert unmet(Needs(gpus=9), host(8))[0][0] == "needs 9 GPUs, but this host has 8"


def test_a_host_that_has_everything_meets_everything(host):
    rich = host(
        2, peer_access=True, gds_active=True, root=True, compiler="/usr/bin/c++", libraries={"torch": "2.11.0+cu130"}
    )
    needs = Needs(
        gpus=2,
        compute_capability=">=9.0,<10",
        peer_access=True,
        gds=True,
        libraries={"torch": ">=2.11"},
        cpus=2,
        memory=GIB,
        gpu_memory=GIB,
        disk=1,
        ranks=2,
        root=True,
        compiler=True,
        programs=("sh",),
    )
    assert unmet(needs, rich, ranks=2) == []


UNMET = {
    "capability": (
        Needs(gpus=1, compute_capability=">=10.0"),
        "needs compute capability >=10.0, but NVIDIA H200 has 9.0",
    ),
    "gpu memory": (Needs(gpus=1, gpu_memory=120 * GIB), "needs 120 GiB of free GPU memory, but 100 GiB is free"),
    "peers unknown": (
        Needs(gpus=2, peer_access=True),
        "needs peer access between GPUs, which this host does not report",
    ),
    "gds": (Needs(gds=True), "GPUDirect Storage is not active (nvidia-fs not loaded)"),
    "library": (Needs(libraries={"cupy": ""}), "needs cupy: pip install 'aiperf-ab[gpu]'"),
    "library version": (Needs(libraries={"torch": ">=3"}), "needs torch >=3, but 2.11.0+cu130 is installed"),
    "cpus": (Needs(cpus=3), "needs 3 CPUs, but aiperf may use 2"),
    "memory": (Needs(memory=21 * GIB), "needs 21 GiB of free memory, but 20 GiB is free"),
    "ranks": (Needs(ranks=3), "3 ranks need a CPU each, but aiperf may use 2"),
    "root": (Needs(root=True), "needs root privileges"),
    "program": (Needs(programs=("sh", "no-such-server")), "needs the program no-such-server, which is not on PATH"),
    "compiler": (Needs(compiler=True), "needs a C++ compiler, but none is on PATH"),
}


@pytest.mark.parametrize("case", UNMET)
def test_one_unmet_need_gives_one_reason_and_a_fix(host, case):
    needs, reason = UNMET[case]
    found = unmet(needs, host(2, gds_problem="nvidia-fs not loaded", libraries={"torch": "2.11.0+cu130"}))
    assert [r for r, _ in found] == [reason]
    assert all(fix or "pip install" in why for why, fix in found)


def test_peer_access_that_the_host_denies(host):
    needs = Needs(gpus=2, peer_access=True)
    assert "does not allow" in unmet(needs, host(2, peer_access=False))[0][0]
    assert "has fewer" in unmet(replace(needs, gpus=1), host(1))[0][0]


def test_a_gang_on_gpus_needs_a_gpu_a_rank(host):
    assert unmet(Needs(gpus=1), host(1), ranks=2) == [
        ("2 ranks need a GPU each, but this host has 1", "run it on a host with 2 GPUs")
    ]
    assert unmet(Needs(gpus=1), host(4), ranks=4) == []


def test_a_gang_on_cpus_needs_a_cpu_a_rank(host):
    assert unmet(Needs(), host(), ranks=2) == []
    assert unmet(Needs(), host(), ranks=4)[0][0] == "4 ranks need a CPU each, but aiperf may use 2"


def test_several_unmet_needs_are_all_told_gpus_first(host):
    found = unmet(Needs(gpus=1, gds=True, cpus=64), host())
    assert [r.split(",")[0] for r, _ in found] == [
        "needs 1 GPU",
        "GPUDirect Storage is not active",
        "needs 64 CPUs",
    ]


def test_capability_of_no_gpu_is_told_once_by_the_gpu_itself(host):
    assert len(unmet(Needs(gpus=1, compute_capability=">=9.0", gpu_memory=GIB), host())) == 1


def test_disk_is_asked_of_the_results_folder_even_before_it_exists(host, tmp_path):
    folder = tmp_path / "not" / "yet"
    assert unmet(Needs(disk=1), host(), folder=folder) == []
    (reason, fix), *rest = unmet(Needs(disk=900 * 2**40), host(), folder=folder)
    assert reason.startswith(f"needs 900 TiB of free disk, but {tmp_path} has ")
    assert (fix, rest) == ("free some space, or move the results", [])
    assert not folder.exists()


@pytest.mark.parametrize(
    ("version", "meets"), [("2.11.0+cu130", True), ("2.11.0a0+git", True), ("2.10", False), ("?", False)]
)
def test_local_and_early_versions_count_by_their_release(host, version, meets):
    assert (unmet(Needs(libraries={"Torch": ">=2.11"}), host(libraries={"torch": version})) == []) is meets


def test_a_case_of_two_nodes_needs_a_run_of_two(host):
    assert unmet(Needs(), host(), nodes=2) == [("needs 2 nodes, but this run has 1", "run it with --slurm -N 2")]
    assert unmet(Needs(), host(), nodes=2, has_nodes=2) == []


def test_an_extra_is_named_once_for_all_that_it_brings():
    assert needs_libraries({"torch": "", "kvikio": "", "cupy": ">=13"}) == [
        "needs torch, kvikio and cupy >=13: pip install 'aiperf-ab[gpu]'"
    ]
    assert needs_libraries({"torch": "", "pandas": "", "own": ">1"}) == [
        "needs torch: pip install 'aiperf-ab[torch]'",
        "needs pandas: pip install 'aiperf-ab[data]'",
        "needs own >1: pip install 'own>1'",
    ]
    assert needs_libraries({}) == []
