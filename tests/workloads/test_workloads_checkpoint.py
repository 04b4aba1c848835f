"""checkpoint.save: what is loaded is the state of the save, bit for bit, however and whenever it was written."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cpu_pairs import audit, finish
from patience import PATIENCE_S

from aiperf.workloads.checkpoint import training as steps
from aiperf.workloads.checkpoint import workload as checkpoint
from aiperf.workloads.contract import Context, SkipSide

SMALL = {"state_bytes": 1 << 16, "steps": 3, "products": 1}


def _side(folder, **params):
    folder.mkdir(exist_ok=True)
    return checkpoint.save(Context(seed=3, scratch=folder, shared_scratch=folder), **{**SMALL, **params})


@pytest.mark.parametrize("params", [{"io": "direct"}, {"io": "dontneed"}, {"method": "background"}])
def test_every_way_of_saving_loads_the_state_of_the_save_to_the_bit(tmp_path, params):
    plain, other = _side(tmp_path / "a"), _side(tmp_path / "b", **params)
    before, after = audit(plain, seed=5), audit(other, seed=5)
    for name in ("loaded", "state"):
        assert np.array_equal(before[name], after[name])
        assert np.allclose(before[name], plain.reference()[name], rtol=1e-5, atol=1e-5)
    assert not np.array_equal(before["loaded"], before["state"])
    finish(plain, other)
    assert not list(tmp_path.rglob("*.bin")), "a side leaves no checkpoint behind"


@pytest.mark.parametrize("method", ["blocking", "background"])
def test_steps_read_their_batches_from_the_disk_and_the_checkpoint_stays_in_the_page_cache_or_not(tmp_path, method):
    held = {}
    for io in ("buffered", "direct", "dontneed"):
        side = _side(tmp_path / io, io=io, method=method, batch_bytes=1 << 16)
        found, truth = audit(side, seed=5), side.reference()
        assert np.allclose(found["batches"], truth["batches"], rtol=1e-5, atol=1e-5)
        assert np.allclose(found["loaded"], truth["loaded"], rtol=1e-5, atol=1e-5)
        counts = side.counters()
        assert counts["resident_share_before"] == 0
        assert counts["disk_bytes"] >= 3 << 16, "three batches"
        held[io] = counts["cached_bytes"]
        finish(side)
    assert (held["buffered"], held["direct"]) == (1 << 16, 0)
    assert held["dontneed"] < 1 << 14, "a page that another CPU has just listed may stay"


def test_a_step_that_skips_its_batch_is_found_out(tmp_path):
    side = _side(tmp_path, batch_bytes=1 << 16)
    honest = audit(side, seed=5)["batches"]
    batches = side.values.__self__.batches
    true_read = batches.read
    batches.read = lambda number: true_read(min(number, 1))
    assert not np.array_equal(audit(side, seed=5)["batches"], honest)
    finish(side)


def test_steps_after_the_save_are_timed_and_the_one_with_the_save_is_not(tmp_path, monkeypatch):
    side, clock = _side(tmp_path), [0.0]

    def step(number):
        clock[0] += (4.0, 2.0, 1.0)[number]

    monkeypatch.setattr(steps, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(side.values.__self__, "_step", step)
    for _ in range(2):
        side.step()
    assert side.values() == {"later_step": 1.5, "slowest_step": 2.0}
    assert side.values() == {}
    finish(side)


def test_a_background_save_without_a_snapshot_is_found_out(tmp_path):
    class Slow:
        """Writes when the result is asked for, as a thread that was kept waiting would."""

        def __init__(self, write, *rest):
            self.result = lambda: write(*rest)

    side = _side(tmp_path, method="background", steps=2)
    honest = audit(side, seed=5)
    saver = side.close.__self__
    saver.pool.submit = Slow
    assert np.array_equal(audit(side, seed=5)["loaded"], honest["loaded"]), "the snapshot protects a late write"
    state = side.outputs()["state"]
    saver.snapshot = SimpleNamespace(values=state, bytes=memoryview(state.numpy()).cast("B"))
    assert not np.array_equal(audit(side, seed=5)["loaded"], honest["loaded"])
    finish(side)


def test_a_write_that_fails_in_the_background_fails_the_step(tmp_path):
    side = _side(tmp_path / "gone", method="background")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        side.step()


def test_a_folder_without_direct_io_is_skipped_with_the_reason(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(checkpoint, "_read", refuse)
    with pytest.raises(SkipSide, match="O_DIRECT"):
        _side(tmp_path)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"state_bytes": 1000}, "4 KiB"),
        ({"steps": 0}, "steps"),
        ({"method": "sharded"}, "ranks: 1"),
        ({"disk": "shared"}, "several"),
        ({"batch_bytes": 6}, "whole float32"),
    ],
)
def test_parameters_that_cannot_work_are_refused(tmp_path, params, message):
    with pytest.raises(ValueError, match=message):
        _side(tmp_path, **params)


@pytest.fixture
def gang_of_threads(monkeypatch):
    """Two ranks as threads: the collectives that the workload calls, without processes."""
    meet, parts, ranks = threading.Barrier(2, timeout=PATIENCE_S), {}, threading.local()

    def gather(own, into):
        parts[ranks.number] = own
        meet.wait()
        for number, target in enumerate(into or []):
            target.copy_(parts[number])
        meet.wait()

    monkeypatch.setattr(Context, "process_group", lambda context, backend: setattr(ranks, "number", context.rank))
    monkeypatch.setattr(torch.distributed, "gather", gather)
    monkeypatch.setattr(torch.distributed, "barrier", meet.wait)


def test_two_ranks_load_their_parts_from_one_file_or_from_one_each(tmp_path, gang_of_threads):
    def rank(number):
        own = tmp_path / str(number)
        own.mkdir()
        context = Context(seed=3, scratch=own, shared_scratch=tmp_path, rank=number, world_size=2)
        sides = [checkpoint.save(context, method=m, **SMALL) for m in ("rank0", "sharded")]
        assert {side.work.bytes for side in sides} == {SMALL["state_bytes"]}
        return [audit(side, seed=5)["loaded"] for side in sides]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(rank, range(2)))
    for one, each in found:
        assert len(one) == SMALL["state_bytes"] // 8
        assert np.array_equal(one, each)
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("checkpoint-*.bin")}
    assert sizes == {
        "checkpoint-rank0-0.bin": 1 << 16,
        "checkpoint-sharded-0.bin": 1 << 15,
        "checkpoint-sharded-1.bin": 1 << 15,
    }


def test_a_part_of_the_state_goes_to_the_ranks_own_disk_or_to_the_folder_of_all(tmp_path, gang_of_threads):
    def rank(number):
        own = tmp_path / str(number)
        own.mkdir()
        context = Context(seed=3, scratch=own, shared_scratch=tmp_path, rank=number, world_size=2)
        sides = [checkpoint.save(context, method="sharded", disk=d, **SMALL) for d in ("shared", "local")]
        loaded = [audit(side, seed=5)["loaded"] for side in sides]
        assert [side.facts["folder"] for side in sides] == [str(tmp_path), str(own)]
        return loaded, [path.name for path in own.iterdir()], sides

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(rank, range(2)))
    assert [files for _, files, _ in found] == [[f"checkpoint-sharded-{number}.bin"] for number in (0, 1)]
    assert all(np.array_equal(*loaded) for loaded, _, _ in found)
    finish(*(side for _, _, sides in found for side in sides))
    assert not list(tmp_path.rglob("*.bin"))


def test_what_one_rank_writes_for_all_cannot_lie_on_its_own_disk(tmp_path):
    with pytest.raises(ValueError, match="use method sharded"):
        checkpoint.save(Context(scratch=tmp_path, shared_scratch=tmp_path, world_size=2), method="rank0", disk="local")
