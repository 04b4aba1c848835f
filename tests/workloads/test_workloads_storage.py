"""storage.read in its further ways: requests in flight, memory and several passes deliver the same bytes."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from cpu_pairs import audit, finish, run
from patience import PATIENCE_S

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.shared import page_cache
from aiperf.workloads.shared.cold import Cold, Fetched
from aiperf.workloads.storage import files
from aiperf.workloads.storage import workload as storage

SIZE = 1 << 20


def _side(folder, **params):
    return storage.read(Context(seed=3, scratch=folder, shared_scratch=folder), bytes=SIZE, **params)


@pytest.mark.parametrize(
    "params",
    [
        {"depth": 3, "order": "random", "read_size": 4096, "io": "direct"},
        {"depth": 2, "read_size": 10000},
        {"source": "ram", "read_size": 5000},
        {"source": "ram", "layout": "files", "samples": 64, "order": "random"},
        {"order": "preshuffled", "read_size": 8192, "cache": "cold"},
        {"advice": "willneed", "cache": "cold"},
        {"advice": "ahead", "window": 1 << 18, "read_size": 5000, "cache": "cold"},
        {"epochs": 2, "io": "direct"},
        {"source": "http", "read_size": 70000},
        {"source": "http", "read_size": 5000, "depth": 3, "order": "random"},
    ],
)
def test_every_way_of_reading_delivers_the_same_bytes(tmp_path, params):
    plain, other = _side(tmp_path), _side(tmp_path, **params)
    for seed in (5, 6):
        assert np.array_equal(audit(plain, seed=seed)["bytes"], audit(other, seed=seed)["bytes"])
    assert not np.array_equal(audit(plain, seed=5)["bytes"], audit(other, seed=6)["bytes"])
    finish(plain, other)


def test_some_requests_are_blocks_of_the_file_each_another_one(tmp_path):
    some = {"requests": 10, "order": "random", "read_size": 4096}
    plain, direct = _side(tmp_path, **some), _side(tmp_path, **some, io="direct")
    content = np.fromfile(next(tmp_path.rglob("*.bin")), np.uint8).reshape(-1, 4096)
    for seed in (5, 6):
        blocks = audit(plain, seed=seed)["bytes"].reshape(10, 4096)
        assert len({int((content == block).all(axis=1).argmax()) for block in blocks}) == 10
        assert all((content == block).all(axis=1).any() for block in blocks)
        assert np.array_equal(audit(direct, seed=seed)["bytes"], blocks.ravel())
    assert plain.work.bytes == plain.counters()["bytes_asked"] == 10 * 4096
    finish(plain, direct)


def test_a_preshuffled_file_is_read_from_its_start_and_holds_the_blocks_in_the_order_of_a_shuffled_epoch(tmp_path):
    plain, copy = (_side(tmp_path, order=order, read_size=8192) for order in ("random", "preshuffled"))
    first = audit(plain, seed=6)["bytes"]
    files_of = {path.parent.name.split("-")[2] == "preshuffled": path for path in tmp_path.rglob("*.bin")}
    content, shuffled = (np.fromfile(files_of[which], np.uint8).reshape(-1, 8192) for which in (False, True))
    assert not np.array_equal(content, shuffled)
    assert sorted(map(bytes, content)) == sorted(map(bytes, shuffled))
    reader = copy.redraw.__closure__[0].cell_contents
    for seed in (0, 6):
        copy.redraw(seed)
        ((_, requests),) = reader.visits
        assert [at for _, at, _ in requests] == list(range(0, SIZE, 8192))
    assert np.array_equal(audit(copy, seed=6)["bytes"], first)
    finish(plain, copy)


@pytest.mark.parametrize("mounted", ["once", "anew"])
def test_files_are_read_through_the_mount_that_was_asked_for(tmp_path, mounted):
    plain = _side(tmp_path, layout="files", samples=64)
    expected = audit(plain, seed=5)["bytes"]
    for mount in ("bind", "overlay"):
        try:
            side = _side(tmp_path, layout="files", samples=64, mount=mount, mounted=mounted)
        except SkipSide as reason:
            told = str(reason)
        else:
            told = ""
        if told:
            assert "it takes CAP_SYS_ADMIN" in told
            assert any(f"[Errno {code}]" in told for code in (errno.EPERM, errno.ENOSYS, errno.ENODEV)), told
            continue
        assert side.facts["overlay"] is (mount == "overlay")
        for _ in range(2):
            assert np.array_equal(audit(side, seed=5)["bytes"], expected)
        assert side.facts["overlay"] is (mount == "overlay")
        finish(side)
    finish(plain)


def test_what_is_read_ahead_stays_a_window_before_the_reading_and_is_asked_for_once(tmp_path, monkeypatch):
    side = _side(tmp_path, advice="ahead", window=1 << 18, read_size=1 << 16)
    asked, leads = [], []
    true_read = files._read_all
    monkeypatch.setattr(files.os, "posix_fadvise", lambda fd, at, size, how: asked.append((at, size, how)))
    monkeypatch.setattr(
        files, "_read_all", lambda *a: (leads.append(sum(asked[-1][:2]) - a[2][0][1]), true_read(*a))[1]
    )
    side.step()
    assert asked[0] == (0, 0, files.os.POSIX_FADV_RANDOM), "the kernel's own read-ahead is off"
    pieces = [at for at, size, how in asked[1:] if (size, how) == (files.PIECE, files.os.POSIX_FADV_WILLNEED)]
    assert len(pieces) == len(set(pieces)) == len(asked) - 1
    assert set(range(0, SIZE, files.PIECE)) <= set(pieces)
    assert all((1 << 18) - files.PIECE < lead <= 1 << 18 for lead in leads)
    finish(side)


def test_requests_in_flight_are_as_many_as_asked(tmp_path, monkeypatch):
    side = _side(tmp_path, depth=4, read_size=4096)
    shares = []
    true_read = files._read_all
    monkeypatch.setattr(files, "_read_all", lambda *a: (shares.append(len(a[2])), true_read(*a))[1])
    run(side)
    assert shares == [64] * 4
    finish(side)


def test_a_short_read_in_a_thread_fails_the_step(tmp_path):
    side = _side(tmp_path, depth=2, read_size=4096)
    next(tmp_path.rglob("*.bin")).write_bytes(bytes(SIZE // 2))
    with pytest.raises(OSError, match="short read"):
        side.step()
    finish(side)


def test_memory_is_read_without_the_disk_and_says_so(tmp_path):
    side = _side(tmp_path, source="ram", cache="cold")
    assert side.prepare is None
    page_cache.evict(tmp_path.rglob("*.bin"))
    before = page_cache.disk_bytes()
    run(side)
    assert page_cache.disk_bytes() == before
    assert "memory" in side.facts["held"]
    assert side.work.peaks == {}


def test_every_direct_pass_goes_to_the_disk_and_counts(tmp_path):
    direct, once = _side(tmp_path, io="direct", epochs=3), _side(tmp_path, io="direct")
    before = page_cache.disk_bytes()
    run(direct)
    assert page_cache.disk_bytes() - before >= 3 * SIZE
    assert direct.work.bytes == direct.work.peaks["disk_read"] == 3 * once.work.bytes
    assert [side.counters()["reads"] for side in (direct, once)] == [3 * SIZE / (1 << 20), SIZE / (1 << 20)]


def test_a_side_that_reads_a_cached_file_tells_that_it_fetched_none_of_it(tmp_path):
    cached = _side(tmp_path)
    assert "disk_bytes" not in cached.counters(), "no step yet"
    run(cached)
    assert cached.counters()["disk_bytes"] < SIZE / 10
    cold = _side(tmp_path, cache="cold")
    run(cold)
    assert cold.counters()["disk_bytes"] >= SIZE


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"depth": 0}, "1 or more"),
        ({"order": "preshuffled", "read_size": 10000}, "an eighth of it in whole requests"),
        ({"order": "preshuffled", "source": "ram"}, "of one file"),
        ({"mount": "bind", "source": "ram"}, "a way to files"),
        ({"mounted": "anew"}, "needs a mount"),
        ({"read_size": 0}, "1 or"),
        ({"source": "ram", "depth": 2}, "depth"),
        ({"source": "http", "cache": "cold"}, "cache warm"),
        ({"source": "http", "layout": "files", "samples": 64}, "layout single"),
        ({"assign": "all"}, "2 or more"),
        ({"assign": "round_robin", "samples": 64}, "2 or more"),
        ({"layout": "per_reader", "samples": 64}, "for assign round_robin"),
        ({"requests": 4}, "order random"),
        ({"requests": 4, "order": "random", "read_size": 5000}, "whole blocks"),
        ({"requests": 257, "order": "random", "read_size": 4096}, "257 requests"),
        ({"advice": "ahead", "order": "random"}, "order sequential"),
        ({"advice": "ahead", "window": 4096}, "128KiB"),
    ],
)
def test_parameters_that_cannot_work_are_refused(tmp_path, params, message):
    with pytest.raises(ValueError, match=message):
        _side(tmp_path, **params)


@pytest.fixture
def gang_of_threads(monkeypatch):
    """Two ranks as threads: the collectives that the workload calls, without processes."""
    meet = threading.Barrier(2, timeout=PATIENCE_S)
    monkeypatch.setattr(Context, "process_group", lambda context, backend: None)
    monkeypatch.setattr(torch.distributed, "barrier", meet.wait)
    yield meet
    assert not meet.broken


def _sides(folder, **params):
    """The sides of both ranks."""
    context = Context(seed=3, scratch=folder, shared_scratch=folder, world_size=2)
    with ThreadPoolExecutor(2) as pool:
        contexts = [replace(context, rank=rank, local_rank=rank) for rank in (0, 1)]
        return list(pool.map(lambda context: storage.read(context, bytes=SIZE, **params), contexts))


def _stepped(sides):
    """What each rank holds after a step that both begin at the second eighth of their parts."""
    for side in sides:
        side.redraw(1)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda side: side.step(), sides))
    finish(*sides)
    return [side.outputs()["bytes"].copy() for side in sides]


@pytest.mark.parametrize(
    "params", [{"read_size": 5000}, {"order": "random", "read_size": 4096, "depth": 2}, {"layout": "files"}]
)
def test_ranks_end_with_the_same_parts_whether_they_read_all_or_their_own(tmp_path, gang_of_threads, params):
    everything, own = (_sides(tmp_path, samples=64, assign=assign, **params) for assign in ("all", "slice"))
    content = np.frombuffer(b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*.bin"))), np.uint8)
    parts, of_all = _stepped(own), _stepped(everything)
    if "order" not in params:
        assert np.array_equal(parts, [np.roll(half, -SIZE // 8) for half in np.split(content, 2)])
    assert np.array_equal(np.sort(np.concatenate(parts)), np.sort(content))
    assert np.array_equal(of_all, parts)
    assert [side.counters()["bytes_asked"] for side in (*everything, *own)] == [SIZE, SIZE, SIZE / 2, SIZE / 2]
    assert {(side.work.bytes, side.work.items) for side in (*everything, *own)} == {(SIZE, 64)}


def test_ranks_take_the_same_samples_in_turn_from_one_file_as_from_files_of_their_own(tmp_path, gang_of_threads):
    together, apart = (
        _sides(tmp_path, samples=64, assign="round_robin", read_size=10000, layout=layout)
        for layout in ("single", "per_reader")
    )
    (whole,) = tmp_path.rglob("read-single-*/*.bin")
    turns = np.frombuffer(whole.read_bytes(), np.uint8).reshape(32, 2, SIZE // 64)
    parts = _stepped(together)
    assert np.array_equal(parts, [np.roll(turns[:, rank].ravel(), -SIZE // 8) for rank in (0, 1)])
    assert np.array_equal(_stepped(apart), parts)
    # From the third eighth on, the last sample is followed by the first one.
    counts = {"files_opened": 1, "reads": 64, "bytes_asked": SIZE / 2}
    assert [side.counters() for side in together] == [{**counts, "jumps": 31}] * 2
    assert [side.counters() for side in apart] == [{**counts, "jumps": 1}] * 2


@pytest.mark.parametrize("params", [{}, {"samples": 64, "layout": "files"}, {"samples": 64, "source": "ram"}])
def test_turns_without_samples_or_over_other_layouts_are_refused(tmp_path, params):
    context = Context(seed=3, scratch=tmp_path, shared_scratch=tmp_path, world_size=2)
    with pytest.raises(ValueError, match="layout single or per_reader"):
        storage.read(context, bytes=SIZE, assign="round_robin", **params)


def test_the_set_is_written_once_by_the_first_rank(tmp_path, gang_of_threads, monkeypatch):
    written = []
    true_write = page_cache.write_synced
    monkeypatch.setattr(page_cache, "write_synced", lambda path, c: (written.append(path.name), true_write(path, c)))
    finish(*_sides(tmp_path))
    assert written == ["000000.bin"]


def test_ranks_together_are_held_to_one_reading_of_the_set(tmp_path, gang_of_threads, monkeypatch):
    monkeypatch.setattr(page_cache, "require_evictable", lambda paths: None)
    sides = _sides(tmp_path, cache="cold")
    assert [dict(side.work.peaks) for side in sides] == [{"disk_read": SIZE}] * 2
    finish(*sides)
    alone = _side(tmp_path, cache="cold")
    assert alone.work.peaks == {"disk_read": SIZE}


def test_a_rank_waits_for_the_other_before_its_step(tmp_path, gang_of_threads):
    one, other = _sides(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(one.step)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.2)
        other.step()
        waiting.result(timeout=PATIENCE_S)


class _Ranks:
    """Two ranks as the first sees them: the other fetched 100 bytes in every step."""

    def __init__(self, rank, local_rank=None):
        self.rank, self.met = rank, 0
        self.first_here = (rank if local_rank is None else local_rank) == 0

    def total(self, value):
        return value + 100

    def meet(self):
        self.met += 1


def test_one_rank_evicts_and_all_tell_what_they_fetched_together(tmp_path):
    file = tmp_path / "a.bin"
    page_cache.write_synced(file, bytes(SIZE))
    first = Cold([file], _Ranks(0))
    first.prepare()
    assert "disk_bytes" not in first.counters()
    assert page_cache.resident_share([file]) == 0
    before = page_cache.disk_bytes()
    file.read_bytes()
    fetched = page_cache.disk_bytes() - before
    first.prepare()
    assert fetched >= SIZE
    assert first.counters() == {"disk_bytes": fetched + 100, "resident_share_before": 0}


def test_other_ranks_leave_the_eviction_to_the_first_and_wait_for_it(tmp_path):
    file, ranks = tmp_path / "a.bin", _Ranks(1)
    page_cache.write_synced(file, bytes(SIZE))
    file.read_bytes()
    Cold([file], ranks).prepare()
    assert page_cache.resident_share([file]) == 1
    assert ranks.met == 1


def test_the_first_rank_of_every_node_evicts_for_its_page_cache_is_another_one(tmp_path):
    file = tmp_path / "a.bin"
    page_cache.write_synced(file, bytes(SIZE))
    file.read_bytes()
    Cold([file], _Ranks(2, local_rank=0)).prepare()
    assert page_cache.resident_share([file]) == 0


def test_steps_over_cached_files_tell_the_mean_of_what_they_fetched(tmp_path):
    file = tmp_path / "a.bin"
    page_cache.write_synced(file, bytes(SIZE))
    page_cache.bring_in([file])
    cached = Fetched()
    assert cached.counters() == {}
    for _ in range(2):
        cached.steps += 1
        file.read_bytes()
    assert cached.counters() == {"disk_bytes": 0}
    page_cache.drop([file])
    before = page_cache.disk_bytes()
    file.read_bytes()
    assert cached.counters() == {"disk_bytes": (page_cache.disk_bytes() - before) / 2}
    assert cached.counters()["disk_bytes"] >= SIZE / 2


def test_a_shared_file_system_is_not_held_to_the_peak_of_the_nodes_own_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "require_evictable", lambda paths: None)
    monkeypatch.setattr(page_cache, "same_disk", lambda one, other: False)
    assert _side(tmp_path, cache="cold").work.peaks == {}


def test_a_set_that_is_to_be_warm_lies_in_the_page_cache_whoever_looked_whether_it_can_be_evicted(tmp_path):
    side = _side(tmp_path, io="direct", cache="warm")
    (path,) = tmp_path.rglob("*.bin")
    assert page_cache.resident_share([path]) == 1
    finish(side)
