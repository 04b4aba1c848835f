"""storage.read: cold is proven, layouts hold the same bytes, folders that cannot be cold are refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from cpu_pairs import audit, run

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.shared import page_cache
from aiperf.workloads.storage import workload as storage


def _context(folder: Path) -> Context:
    return Context(seed=3, scratch=folder, shared_scratch=folder)


def test_a_cold_step_fetches_every_byte_from_storage_and_a_warm_one_none(tmp_path):
    cold = storage.read(_context(tmp_path), bytes=1 << 20, cache="cold")
    run(cold)
    counts = cold.counters()
    assert counts["resident_share_before"] == 0
    assert counts["disk_bytes"] >= 1 << 20
    start = page_cache.disk_bytes()
    cold.step()
    assert page_cache.disk_bytes() == start


def test_the_resident_share_rises_from_zero_to_one_when_a_file_is_read(tmp_path):
    path = tmp_path / "a.bin"
    page_cache.write_synced(path, bytes(1 << 20))
    page_cache.evict([path])
    assert page_cache.resident_share([path]) == 0
    path.read_bytes()
    assert page_cache.resident_share([path]) == 1


def test_a_page_that_stays_in_the_cache_is_an_error_not_a_cold_read(tmp_path, monkeypatch):
    cold = storage.read(_context(tmp_path), bytes=1 << 20, cache="cold")
    monkeypatch.setattr(page_cache, "evict", lambda paths: None)
    cold.step()
    with pytest.raises(OSError, match="still in the page cache"):
        cold.prepare()


def test_a_file_system_in_memory_is_skipped_with_the_reason():
    folder = Path("/dev/shm") / f"aiperf-test-{os.getpid()}"
    folder.mkdir()
    try:
        with pytest.raises(SkipSide, match="cannot be dropped"):
            storage.read(_context(folder), bytes=1 << 20, cache="cold")
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


def test_files_and_shards_count_their_opens(tmp_path):
    files = storage.read(_context(tmp_path), bytes=1 << 20, samples=64, layout="files")
    shards = storage.read(_context(tmp_path), bytes=1 << 20, samples=64, layout="shards", shard_size=1 << 19)
    assert files.counters() == {"files_opened": 64, "reads": 64, "bytes_asked": 1 << 20}
    assert shards.counters() == {"files_opened": 2, "reads": 2, "bytes_asked": 1 << 20}
    assert np.array_equal(audit(files, seed=2)["bytes"], audit(shards, seed=2)["bytes"])


def test_the_buffer_holds_the_files_bytes_in_visit_order(tmp_path):
    workload = storage.read(_context(tmp_path), bytes=1 << 20, read_size=5000)
    content = np.frombuffer(next(tmp_path.rglob("*.bin")).read_bytes(), np.uint8)
    workload.redraw(0)
    workload.step()
    assert np.array_equal(workload.outputs()["bytes"], np.roll(content, -(1 << 17)))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"layout": "files"}, "samples"),
        ({"bytes": 1000}, "must divide"),
        ({"io": "direct", "read_size": 1000}, "4 KiB"),
    ],
)
def test_sizes_that_cannot_work_are_refused(tmp_path, params, message):
    with pytest.raises(ValueError, match=message):
        storage.read(_context(tmp_path), **{"bytes": 1 << 20, **params})


def test_a_writer_that_comes_second_uses_the_data_set_of_the_first(tmp_path, monkeypatch):
    folder = tmp_path / "set"

    def late(draft: Path) -> None:
        (draft / "late").touch()
        with monkeypatch.context() as other_process:
            other_process.setattr(os, "getpid", lambda: 1)
            page_cache.fill_once(folder, lambda fast: (fast / "early").touch())

    page_cache.fill_once(folder, late)
    assert [p.name for p in folder.iterdir()] == ["early"]
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_page_that_is_passed_over_at_first_is_asked_for_again(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_bytes(b"x" * (1 << 20))
    left = [0.004, 0.004, 0.0]
    asked = []
    monkeypatch.setattr(page_cache, "evict", asked.append)
    monkeypatch.setattr(page_cache, "resident_share", lambda paths: left[len(asked) - 1])
    assert page_cache.drop([file]) == 0.0
    assert len(asked) == 3
