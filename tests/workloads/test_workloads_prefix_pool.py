"""The pool of prompt pages that all workers of a host map: found by all tokens before, and as they were put in."""

from __future__ import annotations

import pytest
import torch

from aiperf.workloads.cluster.prefix_pool import PooledPrefix, SharedPages
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.engine.pages import BrokenBooks, PagePool
from aiperf.workloads.engine.prefix import page_keys

_TOKENS = list(range(13))


@pytest.fixture
def worker():
    return lambda: PagePool(PRESETS["tiny"], pages=6, page=4, device="cpu")


@pytest.fixture
def shared(worker):
    pages = SharedPages(8, worker(), rank=0, ranks=1, group=None)
    yield pages
    pages.close()


def computed(pool, cache, tokens=_TOKENS):
    """Pages of a prompt that a worker has computed and keeps."""
    pages = [pool.take() for _ in range(pool.pages_for(len(tokens)))]
    pool.kv[:, :, pages] = torch.randn(pool.kv[:, :, pages].shape)
    cache.keep(tokens, pages)
    return pages


def test_what_one_worker_has_computed_another_finds(worker, shared):
    pools = worker(), worker()
    first, second = (PooledPrefix(pool, shared) for pool in pools)
    pages = computed(pools[0], first)
    found = second.find(_TOKENS)
    assert torch.equal(pools[1].read(found, 12), pools[0].read(pages, 12))
    assert (second.hits, second.taken) == (12, 12)
    # Again: now they are its own, of two requests and of the cache.
    assert second.find(_TOKENS) == found
    assert (second.hits, second.taken) == (24, 12)
    assert [pools[1].holders(page) for page in found] == [3, 3, 3]
    assert second.find([9, *_TOKENS[1:]]) == []


def test_no_more_is_taken_in_than_the_pool_has_room_for(worker, shared):
    pools = worker(), worker()
    first, second = (PooledPrefix(pool, shared) for pool in pools)
    computed(pools[0], first)
    for _ in range(4):
        pools[1].take()
    assert len(second.find(_TOKENS)) == 2
    pools[1].check([[0, 1, 2, 3], second.pages], second.pages)


def test_a_page_that_is_not_what_was_put_in_is_noticed(worker, shared):
    pool = worker()
    computed(pool, PooledPrefix(pool, shared))
    shared._kv[shared._kv.abs().sum(dim=(1, 2, 3, 4, 5)) > 0] += 1
    with pytest.raises(BrokenBooks, match="of the shared pool is not what was put into it"):
        PooledPrefix(worker(), shared).find(_TOKENS)


def test_an_iteration_begins_without_pages_and_a_full_pool_keeps_what_it_has(worker, shared):
    kv = torch.randn(2, 2, 4, 4, 32)
    keys = page_keys(list(range(40)), 4)
    for key in keys:
        shared.put(key, kv)
    assert sum(shared.find(key) is not None for key in keys) == 8
    PooledPrefix(worker(), shared).clear()
    assert all(shared.find(key) is None for key in keys)
