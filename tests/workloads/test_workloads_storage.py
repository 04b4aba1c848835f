"""storage.read in its further ways: requests in flight, memory and several passes deliver the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_pairs import audit, finish, run

from aiperf.workloads import _page_cache as page_cache
from aiperf.workloads import storage
from aiperf.workloads.contract import Context

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
        {"advice": "willneed", "cache": "cold"},
        {"epochs": 2, "io": "direct"},
    ],
)
def test_every_way_of_reading_delivers_the_same_bytes(tmp_path, params):
    plain, other = _side(tmp_path), _side(tmp_path, **params)
    for seed in (5, 6):
        assert np.array_equal(audit(plain, seed=seed)["bytes"], audit(other, seed=seed)["bytes"])
    assert not np.array_equal(audit(plain, seed=5)["bytes"], audit(other, seed=6)["bytes"])
    finish(plain, other)


def test_requests_in_flight_are_as_many_as_asked(tmp_path, monkeypatch):
    side = _side(tmp_path, depth=4, read_size=4096)
    shares = []
    true_read = storage._read_all
    monkeypatch.setattr(storage, "_read_all", lambda *a: (shares.append(len(a[2])), true_read(*a))[1])
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
    assert side.work.roofs == {}


def test_every_direct_pass_goes_to_the_disk_and_counts(tmp_path):
    direct, once = _side(tmp_path, io="direct", epochs=3), _side(tmp_path, io="direct")
    before = page_cache.disk_bytes()
    run(direct)
    assert page_cache.disk_bytes() - before >= 3 * SIZE
    assert direct.work.bytes == direct.work.roofs["disk_read"] == 3 * once.work.bytes


@pytest.mark.parametrize(
    ("params", "message"),
    [({"depth": 0}, "1 or more"), ({"read_size": 0}, "1 or"), ({"source": "ram", "depth": 2}, "depth")],
)
def test_parameters_that_cannot_work_are_refused(tmp_path, params, message):
    with pytest.raises(ValueError, match=message):
        _side(tmp_path, **params)
