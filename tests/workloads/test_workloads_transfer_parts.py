"""transfer.copy without a GPU: scattered parts, host memory on a node, arguments."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.shared import host_memory, numa, seeded
from aiperf.workloads.transfer import peers
from aiperf.workloads.transfer import workload as transfer
from aiperf.workloads.transfer.scattered import SPREAD, Scattered

PARTS, WORDS = 10, 8


def scattered(seed: int = 4) -> tuple[Scattered, torch.Tensor, torch.Tensor]:
    pool = torch.rand(SPREAD * PARTS, WORDS, generator=torch.Generator().manual_seed(1))
    destination = torch.full((PARTS, WORDS), float("nan"))
    return Scattered(pool, destination, seed=seed, count=PARTS), pool, destination


@pytest.mark.parametrize("parts", [1, 3, 5, 10])
def test_slabs_of_any_length_carry_the_same_payload_as_the_parts(parts: int) -> None:
    one_by_one, _, payload = scattered()
    one_by_one.by_part(non_blocking=True)()
    packed, _, slabs = scattered()
    packed.by_slab(parts, pinned=False, non_blocking=True)()
    assert torch.equal(payload, slabs)
    assert torch.equal(payload.double(), one_by_one.truth())


def test_a_step_carries_what_the_pool_holds_now() -> None:
    parts, pool, payload = scattered()
    step = parts.by_slab(4, pinned=False, non_blocking=True)
    step()
    pool.mul_(2)
    step()
    assert torch.equal(payload.double(), parts.truth())


def test_the_parts_lie_apart_and_in_an_order_that_the_seed_decides() -> None:
    places = [scattered(seed)[0]._index.tolist() for seed in (4, 4, 5)]
    assert places[0] == places[1] != places[2]
    assert len(set(places[0])) == PARTS
    assert sum(b - a == 1 for a, b in zip(places[0], places[0][1:], strict=False)) < PARTS // 2


def test_host_memory_of_our_own_is_page_aligned_touched_and_its_node_read_back() -> None:
    buffer = host_memory.host_buffer(5000)
    assert buffer.words.data_ptr() % 4096 == 0
    assert buffer.words.shape == (5000,)
    assert not buffer.words.any()
    assert buffer.node in (None, *numa.nodes())


def test_the_node_of_a_mapping_is_the_one_with_most_of_its_pages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maps = tmp_path / "numa_maps"
    maps.write_text(
        "1000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4\n"
        "8000 default anon=40 dirty=40 N0=4 N1=36 kernelpagesize_kB=4\n"
        "9000 default file=/x\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(numa, "_NUMA_MAPS", maps)
    assert numa.node_of(0x1000) == 0
    assert numa.node_of(0x8010) == 1
    assert numa.node_of(0x9000) is None
    assert numa.node_of(0x10) is None
    monkeypatch.setattr(numa, "_NUMA_MAPS", tmp_path / "none")
    assert numa.node_of(0x1000) is None


def test_nodes_without_cpus_are_none_to_run_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for node, cpus in enumerate(("0-2,8", "3", "")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cpus}\n", encoding="utf-8")
    monkeypatch.setattr(numa, "_NODES", tmp_path)
    assert numa.nodes() == {0: {0, 1, 2, 8}, 1: {3}}


def test_local_is_the_gpus_node_and_remote_the_farthest_other_one() -> None:
    known = {0: {0, 1}, 1: {2, 3}, 2: {4}}
    assert numa.choose("local", 1, known, {}) == (1, {2, 3})
    assert numa.choose("remote", 1, known, {}) == (0, {0, 1})
    assert numa.choose("remote", 1, known, {0: 12, 1: 10, 2: 32}) == (2, {4})
    with pytest.raises(SkipSide, match="has 1"):
        numa.choose("remote", 0, {0: {0}}, {})
    with pytest.raises(SkipSide, match="NUMA node 3"):
        numa.choose("local", 3, known, {})


def test_the_distances_of_a_node_are_those_that_the_firmware_tells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for node, told in {0: "10 12 32", 1: "12 10 32", 10: "32 32 10"}.items():
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "distance").write_text(f"{told}\n", encoding="utf-8")
    monkeypatch.setattr(numa, "_NODES", tmp_path)
    assert numa.distances(1) == {0: 12, 1: 10, 10: 32}
    assert numa.distances(3) == {}


def test_a_thread_moves_to_cpus_of_the_farthest_node_that_it_may_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usable = sorted(os.sched_getaffinity(0))[:2]
    for node, cpus in enumerate((f"{usable[0]}", f"{usable[-1]}", f"{usable[-1]},4000", "4000-4001")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cpus}\n", encoding="utf-8")
        (tmp_path / f"node{node}" / "distance").write_text("10 20 30 40\n", encoding="utf-8")
    monkeypatch.setattr(numa, "_NODES", tmp_path)
    monkeypatch.setattr(host_memory, "node_of_gpu", lambda device: 0)
    before = os.sched_getaffinity(0)
    facts, back = host_memory.bind("remote", 0)
    assert facts == {"gpu_node": 0, "cpu_node": 2}, "node 3 is farther, and none of its CPUs is this process's"
    assert os.sched_getaffinity(0) == {usable[-1]}
    back()
    assert os.sched_getaffinity(0) == before


def two_nodes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[int, int]:
    """A host whose first usable CPU is node 0's and whose last one is node 1's."""
    usable = sorted(os.sched_getaffinity(0))
    for node, cpu in enumerate((usable[0], usable[-1])):
        (folder / f"node{node}").mkdir()
        (folder / f"node{node}" / "cpulist").write_text(f"{cpu}\n", encoding="utf-8")
    monkeypatch.setattr(numa, "_NODES", folder)
    return usable[0], usable[-1]


@pytest.mark.parametrize("where", ["local", "remote"])
def test_memory_is_touched_on_the_node_asked_for_and_the_thread_ends_on_its_own(
    where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, other = two_nodes(monkeypatch, tmp_path)
    before = os.sched_getaffinity(0)
    made, facts, back = numa.made_on(where, lambda: os.sched_getaffinity(0))
    assert made == {own if where == "local" else other}
    assert facts == {"cpu_node": 0, "asked_memory_node": int(where == "remote")}
    assert os.sched_getaffinity(0) == {own}
    back()
    assert os.sched_getaffinity(0) == before


def test_a_failure_while_memory_is_made_gives_the_thread_its_cpus_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    two_nodes(monkeypatch, tmp_path)
    before = os.sched_getaffinity(0)
    try:
        with pytest.raises(MemoryError):
            numa.made_on("remote", lambda: (_ for _ in ()).throw(MemoryError()))
        assert os.sched_getaffinity(0) == before
    finally:
        os.sched_setaffinity(0, before)


class Buffer:
    """Host memory that notes when it is registered."""

    def __init__(self, log: list[str]) -> None:
        self.register = lambda: log.append("register")
        self.unregister = lambda: log.append("unregister")


@pytest.mark.parametrize(
    ("each", "want"), [(True, ["register", "copy", "wait", "unregister"]), (False, ["copy", "wait"])]
)
def test_memory_stays_registered_until_its_copy_has_ended(
    each: bool, want: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    class Stream:
        def synchronize(self) -> None:
            log.append("wait")

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    buffer: Any = Buffer(log)
    transfer._registering(buffer, lambda: log.append("copy"), each=each)()
    assert log == want


def test_the_workload_tells_its_copies_and_its_truth_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    parts, pool, destination = scattered()
    step = parts.by_slab(4, pinned=False, non_blocking=True)
    copy = transfer._Copy(pool.view(-1), destination.view(-1), step, lambda: parts.truth().view(-1), 3)
    workload = transfer._workload(SimpleNamespace(context=Context(seed=2), direction="h2d"), copy)
    workload.outputs()["destination"].fill_(float("nan"))
    workload.step()
    assert workload.reference is not None
    assert workload.counters is not None
    assert np.array_equal(workload.outputs()["destination"].double(), workload.reference()["destination"])
    assert workload.counters() == {"copies": 3.0}
    assert workload.work.bytes == PARTS * WORDS * 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 1000, "part": 16}, "divides the size"),
        ({"size": 1024, "part": 6}, "multiple of 4"),
        ({"size": 1024, "part": 64, "slab": 100}, "multiple of part"),
        ({"size": 1024, "part": 64, "slab": 32}, "multiple of part"),
        ({"size": 1024, "slab": 64}, "multiple of part"),
        ({"size": 1024, "part": 64, "direction": "d2d"}, "h2d or d2h"),
        ({"size": 1024, "numa": "local", "direction": "d2d"}, "h2d or d2h"),
        ({"size": 1024, "part": 64, "register": "each"}, "register: none"),
    ],
)
def test_an_impossible_copy_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transfer.copy(Context(), **given)


def test_a_copy_within_the_gpu_is_charged_both_ways_but_for_what_its_l2_may_hold(monkeypatch):
    monkeypatch.setattr(seeded, "last_level_cache", lambda device: 50)
    context = Context(device="cuda:0")
    assert transfer._charge(context.device, "d2d", 60) == {"peaks": {"dram": 120.0}, "maybe_cached": {"dram": 50.0}}
    assert transfer._charge(context.device, "d2d", 50) == {}
    assert transfer._charge(context.device, "h2d", 10) == {"peaks": {"h2d": 10.0}}


def test_a_payload_on_its_way_through_the_host_leaves_it_after_it_arrived_and_before_the_next_one_comes() -> None:
    source, destination, host = (torch.full((10,), value) for value in (1.0, 2.0, 3.0))
    seen: list[tuple[float, float]] = []
    step = peers.through(host, source, destination, lambda *_: seen.append((float(host[0]), float(destination[0]))))
    step()
    assert torch.equal(destination, source)
    source.fill_(4)
    step()
    # A wait before the host's memory is written, and one before it is read.
    assert seen == [(3, 2), (1, 2), (1, 1), (4, 1)]


@pytest.mark.parametrize("asked", [{"size": 6}, {"size": 0}])
def test_a_copy_between_gpus_that_cannot_be_cut_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        transfer.peer(Context(device="cuda:0", gpus=2), **asked)


def test_a_copy_between_gpus_needs_two_of_them() -> None:
    for context in (Context(), Context(device="cuda:0", gpus=1)):
        with pytest.raises(SkipSide, match="need two"):
            transfer.peer(context, size=8)
