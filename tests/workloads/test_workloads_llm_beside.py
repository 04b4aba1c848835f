"""llm.generate: what is done beside decoding, on another core or stream, leaves what would be there if it were done at
once."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches
from aiperf.workloads.llm import beside, host_masks, kept, requantised, sides
from aiperf.workloads.llm import workload as llm
from aiperf.workloads.llm.agreement import same_when_rounded

_SMALL = {"prompt_tokens": 12, "new_tokens": 16}
_ONCE = {"feed": "forced", "kv_bits": 8, "requantise_at": 10}
_ROOM = caches.Room(2, 1, 2, 32, 16)


def _side(**params):
    return llm.generate(Context(seed=3), **{**_SMALL, **params})


@pytest.mark.parametrize("ahead", [1, *(pytest.param(ahead, marks=pytest.mark.long) for ahead in (4, 10))])
def test_a_conversion_beside_the_tokens_before_leaves_the_logits_of_one_at_once(ahead):
    at_once, beside = _side(**_ONCE), _side(**_ONCE, requantise_ahead=ahead)
    exact = _side(feed="forced")
    for seed in (11, 12, 11):
        before, after = audit(at_once, seed=seed), audit(beside, seed=seed)
        assert all(np.array_equal(before[name], after[name]) for name in ("logits", "codes_0", "scale_0", "least_0"))
        found = np.abs(before["logits"] - audit(exact, seed=seed)["logits"]).max(axis=(0, 2))
        assert found[:10].max() == 0 < found[10:].min(), "floats before that token, few bits from there on"


def test_a_conversion_that_leaves_out_the_tokens_meanwhile_shows_in_what_is_kept(monkeypatch):
    at_once = audit(_side(**_ONCE), seed=11)
    beside = _side(**_ONCE, requantise_ahead=4)
    assert same_when_rounded(at_once, audit(beside, seed=11)).value == 0
    whole = requantised.ChangedOnce._convert
    monkeypatch.setattr(
        requantised.ChangedOnce, "_convert", lambda self, begin, end: None if begin else whole(self, begin, end)
    )
    assert not same_when_rounded(at_once, audit(beside, seed=11)).passed


@torch.inference_mode()
def test_codes_after_the_change_are_those_of_a_cache_that_always_had_them():
    for ahead in (0, 3):
        changing = requantised.ChangedOnce(_ROOM, bits=4, group=32, at=9, ahead=ahead)
        rounded = caches.Quantised(_ROOM, bits=4)
        source = torch.Generator().manual_seed(1)
        for count in (5, 1, 1, 1, 1, 1, 1):
            for cache in (changing, rounded):
                cache.rows(count)
            parts = [torch.randn(2, 1, 2, count, 32, generator=source) for _ in range(2)]
            now, few = ([torch.stack(each.extend(i, *parts[i])) for i in range(2)] for each in (changing, rounded))
            assert all(map(torch.equal, now, few)) == (rounded.length >= 9)
            for cache in (changing, rounded):
                cache.advance(count)
        with pytest.raises(ValueError, match="change from position"):
            changing.truncate(10)
        changing.truncate(5)
        assert changing.rows(1) == slice(5, 6)


def test_pieces_are_done_in_their_order_and_what_fails_is_raised_where_it_is_waited_for():
    log, gate = [], threading.Event()

    def second() -> None:
        assert gate.wait(timeout=10)
        raise ArithmeticError("no such code")

    work = beside.Beside("cpu")
    work.wait()
    work.begin([lambda: log.append(1), second, lambda: log.append(3)])
    work.wait(0)
    assert log == [1]
    gate.set()
    with pytest.raises(ArithmeticError, match="no such code"):
        work.wait()
    assert log == [1]
    work.wait()


def test_layers_that_arrive_beside_a_pass_give_what_arriving_before_it_gives():
    shared = {"phase": "prefill", "sequences": 2, "batch": 1, "context_from": "host"}
    whole, layers = (_side(**shared, arrives=how) for how in ("whole", "by_layer"))
    for seed in (11, 12):
        before, after = audit(whole, seed=seed), audit(layers, seed=seed)
        assert set(before) == {"kv_0", "kv_1", "logits"}
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_layer_that_does_not_arrive_shows_in_a_cache_of_which_some_tokens_are_shown(monkeypatch):
    monkeypatch.setattr(sides, "_SHOWN", 4096)
    side = _side(phase="prefill", context_from="host", arrives="by_layer")
    arrived = audit(side, seed=11)
    assert set(arrived) == {"kv_0", "layers_0", "logits"}
    assert all(np.isfinite(array).all() for array in arrived.values())
    assert 0 < arrived["layers_0"].shape[4] < _SMALL["prompt_tokens"]

    def all_but_the_first(self, layer, fetch=kept.KeptContext._fetch_layer):
        if layer:
            fetch(self, layer)

    monkeypatch.setattr(kept.KeptContext, "_fetch_layer", all_but_the_first)
    assert np.isnan(audit(side, seed=12)["layers_0"]).all()


@torch.inference_mode()
def test_a_pass_waits_for_its_layer_and_no_other():
    room = caches.Room(2, 1, 2, 16, 9)
    source, cache = caches.Contiguous(room), beside.Arriving(room)
    source.kv.normal_(generator=torch.Generator().manual_seed(1))
    gate = threading.Event()

    def layer(number: int) -> None:
        assert not number or gate.wait(timeout=10)
        cache.kv[:, number, :, :, :8].copy_(source.kv[:, number, :, :, :8])

    cache.arrive([lambda i=i: layer(i) for i in range(2)], length=8)
    k, v = (torch.zeros(1, 2, 1, 16) for _ in range(2))
    assert torch.equal(cache.extend(0, k, v)[0][:, :, :8], source.kv[0, 0, :, :, :8])
    assert not cache.kv[:, 1, :, :, :8].any()
    gate.set()
    assert torch.equal(cache.extend(1, k, v)[1][:, :, :8], source.kv[1, 1, :, :, :8])


@pytest.mark.parametrize("when", [pytest.param("beside_pass", marks=pytest.mark.long), "after_pass"])
def test_masks_from_host_memory_allow_what_the_table_on_the_device_allows(when):
    shared = {"model": "small", "sequences": 3}
    table, host = (_side(**shared, **p) for p in ({"constraint": "compiled"}, {"constraint": "host_table"}))
    late = _side(**shared, constraint="host_table", mask_when=when)
    free = _side(**shared)
    for seed in (11, 12):
        before = audit(table, seed=seed)
        for side in (host, late):
            assert all(np.array_equal(value, audit(side, seed=seed)[name]) for name, value in before.items())
        assert not np.array_equal(before["tokens"], audit(free, seed=seed)["tokens"])


class _Chosen:
    """Tokens on a device, for which somebody waits or nobody has yet."""

    waited = False

    def cpu(self):
        self.waited = True
        return torch.tensor([1])


@pytest.mark.parametrize("late", [False, True])
def test_only_late_masks_wait_for_the_tokens_when_they_are_wanted(late):
    masks, chosen = host_masks.HostMasks([{"a": 1}, {"b": 0}], ["b", "a"], "cpu", batch=1, late=late), _Chosen()
    masks.restart(1)
    assert masks.allowed().tolist() == [[False, True]]
    masks.take(chosen)
    assert chosen.waited is not late
    assert masks.allowed().tolist() == [[True, False]]
    assert chosen.waited


class _Sending:
    """An event behind rows on their way to a device: they arrive as they are when somebody waits for it."""

    def __init__(self, rows):
        self._rows, self.arrived = rows, []

    def record(self):
        pass

    def synchronize(self):
        self.arrived.append(self._rows.tolist())


def test_rows_of_a_mask_are_not_written_again_before_they_have_arrived():
    masks = host_masks.HostMasks([{"a": 1}, {"b": 0}], ["b", "a"], "cpu", batch=1, late=True)
    masks._sent = sending = _Sending(masks._gathered)
    masks.restart(1)
    masks.allowed()
    masks.take(_Chosen())
    masks.allowed()
    masks.restart(1)
    assert masks.allowed().tolist() == [[False, True]]
    assert sending.arrived[1:] == [[[False, True]], [[True, False]]]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({**_ONCE, "requantise_at": 16}, "from 0 to below new_tokens"),
        ({**_ONCE, "requantise_ahead": 11}, "from 0 to requantise_at"),
        ({**_ONCE, "kv_bits": 0}, "needs phase decode, kv_bits"),
        ({**_ONCE, "kv_recent": 4}, "without kv_recent"),
        ({"phase": "prefill", "context_from": "wire", "arrives": "by_layer"}, "context_from host"),
        ({"arrives": "by_layer"}, "context_from host"),
        ({"constraint": "compiled", "mask_when": "after_pass"}, "needs constraint host_table"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(params, words):
    with pytest.raises(ValueError, match=words):
        _side(**params)
