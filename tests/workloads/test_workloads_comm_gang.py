"""Two Gloo ranks: many, concurrent and pairwise transfers, and those beside products, bring what they promise."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gang_of_two import run_gang

from aiperf.workloads.comm import around, beside, joining
from aiperf.workloads.comm import workload as comm
from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.shared.seeded import draw_normal, fill_normal, own_seed

_MANY = {"workload": "comm.many", "count": 5, "size": 64}
_CONCURRENT = {"workload": "comm.concurrent", "count": 5, "size": 64}
_ALL_TO_ALL = {"workload": "comm.all_to_all", "size": 96}
_SLICED = {"workload": "comm.sliced", "rows": 24, "inner": 8, "cols": 6}
_HANDOVER = {"workload": "comm.handover", "size": 64, "width": 8}
_WAVES = {"workload": "comm.waves", "rows": 24, "inner": 8, "cols": 6}
_TENSOR_PARALLEL = {"workload": "comm.tensor_parallel", "tokens": 12, "width": 8, "hidden": 16}
_SIDES = {
    "one_by_one": _MANY,
    "coalesced": {**_MANY, "how": "coalesced"},
    "at_once": _CONCURRENT,
    "capped": {**_CONCURRENT, "in_flight": 2},
    "library": _ALL_TO_ALL,
    "send_recv": {**_ALL_TO_ALL, "how": "send_recv"},
    "chunked": {**_ALL_TO_ALL, "how": "send_recv", "chunks": 3},
    "bulk": _SLICED,
    "sliced": {**_SLICED, "slices": 4},
    "bare": _HANDOVER,
    "beside": {**_HANDOVER, "products": 2},
    "one_wave": _WAVES,
    "waves": {**_WAVES, "waves": 3},
    "one_slice": {"workload": "comm.phases", "size": 96},
    "phases": {"workload": "comm.phases", "size": 96, "slices": 3},
    "tensor_parallel": _TENSOR_PARALLEL,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """found[rank][side name] -> outputs."""
    both = run_gang(list(_SIDES.values()), tmp_path_factory.mktemp("gang"))
    return [dict(zip(_SIDES, sides, strict=True)) for sides in both]


def _payload(rank, *shape):
    drawn = np.empty(int(np.prod(shape)), np.float32)
    draw_normal(drawn, seed=own_seed(9, f"payload-{rank}"))
    return drawn.reshape(shape)


@pytest.mark.parametrize(("side", "calls"), [("one_by_one", 5), ("coalesced", 1)])
def test_every_one_of_many_tensors_is_the_sum_of_both_ranks(found, side, calls):
    for rank in (0, 1):
        assert np.allclose(found[rank][side]["out"], _payload(0, 5, 16) + _payload(1, 5, 16), rtol=1e-6)
        assert float(found[rank][side]["count.calls"]) == calls
        assert float(found[rank][side]["count.bytes"]) == 5 * 64


@pytest.mark.parametrize(("side", "in_flight"), [("at_once", 5), ("capped", 2)])
def test_every_broadcast_brings_the_payload_of_its_rank_to_both(found, side, in_flight):
    for rank in (0, 1):
        out = found[rank][side]["out"]
        assert np.array_equal(out[0::2], _payload(0, 3, 16))
        assert np.array_equal(out[1::2], _payload(1, 2, 16))
        assert float(found[rank][side]["count.in_flight"]) == in_flight


class _Work:
    """A transfer that is in flight until it is waited for."""

    def __init__(self, flying):
        self._flying = flying
        flying.add(self)

    def wait(self):
        self._flying.discard(self)


@pytest.mark.parametrize(("in_flight", "most"), [(0, 6), (1, 1), (4, 4)])
def test_no_more_broadcasts_than_allowed_are_in_flight_and_none_is_left(monkeypatch, in_flight, most):
    flying, seen = set(), []

    def ordered(*_, **__):
        work = _Work(flying)
        seen.append(len(flying))
        return work

    monkeypatch.setattr("aiperf.workloads.comm.several.join", lambda *_: "gloo")
    monkeypatch.setattr("torch.distributed.new_group", lambda: object())
    monkeypatch.setattr("torch.distributed.broadcast", ordered)
    workload = comm.concurrent(Context(world_size=2), count=6, size=64, in_flight=in_flight)
    assert (max(seen), len(flying)) == (most, 0)
    assert workload.counters()["in_flight"] == max(seen)


@pytest.mark.parametrize("side", ["library", "send_recv", "chunked"])
def test_every_way_of_an_all_to_all_brings_each_rank_its_part_of_both(found, side):
    sent = [_payload(rank, 2, 12) for rank in (0, 1)]
    for rank in (0, 1):
        assert np.array_equal(found[rank][side]["out"], np.stack([each[rank] for each in sent]))


def _drawn(seed, name, *shape):
    tensor = torch.empty(shape)
    fill_normal(tensor, seed=seed, name=name)
    return tensor.numpy()


@pytest.mark.parametrize(("side", "slices"), [("bulk", 1), ("sliced", 4)])
def test_the_product_is_summed_over_the_ranks_in_one_piece_or_in_slices(found, side, slices):
    parts = (_drawn(9, f"rows-{rank}", 24, 8) @ _drawn(3, f"weight-{rank}", 8, 6) / 8**0.5 for rank in (0, 1))
    expected = sum(parts)
    for rank in (0, 1):
        assert np.allclose(found[rank][side]["out"], expected, rtol=1e-4, atol=1e-5)
        assert float(found[rank][side]["count.all_reduces"]) == slices
        assert float(found[rank][side]["count.flops"]) == 2 * 2 * 24 * 8 * 6


@pytest.mark.parametrize(("side", "calls"), [("one_slice", 2), ("phases", 6)])
def test_both_phases_make_the_sum_of_all_ranks_whole_or_in_slices(found, side, calls):
    for rank in (0, 1):
        assert np.allclose(found[rank][side]["out"], _payload(0, 24) + _payload(1, 24), rtol=1e-6)
        assert float(found[rank][side]["count.calls"]) == calls
        # Sides that cut the sum otherwise do equal work.
        assert [float(found[rank][side][f"count.{name}"]) for name in ("bytes", "items")] == [96, 0]


@pytest.mark.parametrize(("side", "waves"), [("one_wave", 1), ("waves", 3)])
def test_rows_are_multiplied_where_they_arrive_whole_or_in_waves(found, side, waves):
    rows = [_drawn(9, f"rows-{rank}", 2, 12, 8) for rank in (0, 1)]
    for rank in (0, 1):
        weight = _drawn(3, f"weight-{rank}", 8, 6) / 8**0.5
        expected = np.stack([each[rank] @ weight for each in rows])
        assert np.allclose(found[rank][side]["out"], expected, rtol=1e-4, atol=1e-5)
        assert float(found[rank][side]["count.all_to_alls"]) == waves
        assert float(found[rank][side]["count.flops"]) == 2 * 2 * 24 * 8 * 6
        assert float(found[rank][side]["count.bytes"]) == 2 * 24 * 8 * 4


def test_each_wave_is_awaited_just_before_its_product_with_only_the_next_one_started(monkeypatch):
    events, bmm = [], torch.bmm

    def all_to_all(into, some, async_op):
        number = sum(event.startswith("start") for event in events)
        events.append(f"start {number}")
        into.copy_(some)
        return SimpleNamespace(wait=lambda: events.append(f"wait {number}"))

    def product(*of, out):
        events.append("product")
        bmm(*of, out=out)

    monkeypatch.setattr(around, "join", lambda *_: "gloo")
    monkeypatch.setattr(around.dist, "all_to_all_single", all_to_all)
    side = comm.waves(Context(world_size=2), rows=24, inner=8, cols=6, waves=3)
    monkeypatch.setattr(around.torch, "bmm", product)
    events.clear()
    side.step()
    order = ["start 0", "start 1", "wait 0", "product", "start 2", "wait 1", "product", "wait 2", "product"]
    assert events == order


def _feed_forward():
    """What both ranks' shares of the layer add up to, for all tokens."""
    tokens = torch.from_numpy(np.concatenate([_drawn(9, f"tokens-{rank}", 6, 8) for rank in (0, 1)]))
    total = torch.zeros(12, 8)
    for rank in (0, 1):
        up, down = (torch.from_numpy(_drawn(3, f"{name}-{rank}", 8, 8)) for name in ("up", "down"))
        total += torch.nn.functional.gelu(tokens @ up / 8**0.5) @ down / 16**0.5
    return tokens, total.numpy()


def test_a_split_feed_forward_part_gives_each_rank_its_tokens_results(found):
    _, total = _feed_forward()
    for rank in (0, 1):
        assert np.allclose(found[rank]["tensor_parallel"]["out"], total[6 * rank :][:6], rtol=1e-4, atol=1e-5)


def test_the_fused_operators_are_asked_for_the_same_layer(monkeypatch):
    tokens, _ = _feed_forward()
    seen = []

    def gathered(own, weights, dim, name, return_A):
        seen.append((len(own), dim, name, return_A))
        return None, [tokens @ weight for weight in weights]

    def scattered(inner, weight, how, dim, name):
        seen.append((how, dim, name))
        return (inner @ weight)[:6]

    group = SimpleNamespace(group_name="all")
    monkeypatch.setattr("torch.distributed.distributed_c10d._get_default_group", lambda: group)
    ops = SimpleNamespace(fused_all_gather_matmul=gathered, fused_matmul_reduce_scatter=scattered)
    monkeypatch.setattr(around, "torch", SimpleNamespace(ops=SimpleNamespace(symm_mem=ops)))
    up, down = torch.randn(8, 8), torch.randn(8, 8)
    out = around._pipelined(tokens[:6], up, down, ranks=2)()
    assert torch.allclose(out, (torch.nn.functional.gelu(tokens @ up) @ down)[:6])
    assert seen == [(6, 0, "all", False), ("sum", 0, "all")]


def test_a_hand_over_brings_the_other_ranks_payload_with_and_without_products(found):
    for rank in (0, 1):
        for side in ("bare", "beside"):
            assert np.array_equal(found[rank][side]["received"], _payload(1 - rank, 16))
        product = _drawn(9, "left", 8, 8) @ _drawn(9, "right", 8, 8)
        assert np.allclose(found[rank]["beside"]["product"], product, rtol=1e-4, atol=1e-5)
        assert "product" not in found[rank]["bare"]


@pytest.mark.parametrize(
    ("call", "asked", "fault"),
    [
        (comm.concurrent, {"in_flight": 13}, "between 0"),
        (comm.all_to_all, {"size": 100}, "equal parts"),
        (comm.all_to_all, {"size": 96, "chunks": 3}, "how: send_recv"),
        (comm.sliced, {"rows": 10, "slices": 3}, "equal slices"),
        (comm.phases, {"size": 96, "slices": 5}, "equal parts"),
        (comm.waves, {"rows": 24, "waves": 5}, "equal parts"),
        (comm.tensor_parallel, {"tokens": 7}, "multiples of 2"),
    ],
)
def test_what_cannot_be_cut_is_refused_before_any_rank_is_asked(call, asked, fault):
    with pytest.raises(ValueError, match=fault):
        call(Context(world_size=2), **asked)


def test_a_hand_over_is_between_two_ranks():
    with pytest.raises(ValueError, match="ranks: 2"):
        comm.handover(Context(world_size=3))


def test_what_only_gpus_can_do_is_skipped_on_cpus(monkeypatch):
    for file in (beside, around):
        monkeypatch.setattr(file, "join", lambda *_: "gloo")
    skipped = {
        comm.handover: {"by": "push"},
        comm.sliced: {"priority": "high"},
        comm.tensor_parallel: {"how": "pipelined"},
    }
    for call, asked in skipped.items():
        with pytest.raises(SkipSide):
            call(Context(world_size=2), **asked)


class _Memory:
    """Symmetric memory of this rank and a pretended other one: what happens to it, in order."""

    def __init__(self, words, events):
        self.remote, self._events = torch.full((words,), 7.0), events

    def barrier(self, channel):
        self._events.append(f"barrier {channel}")

    def get_buffer(self, other, sizes, dtype):
        assert (other, sizes, dtype) == (0, (16,), torch.float32)
        return self.remote


@pytest.mark.parametrize("by", ["push", "pull"])
def test_a_push_writes_into_the_other_ranks_memory_and_a_pull_reads_it_between_two_barriers(monkeypatch, by):
    events, memory = [], []
    stream = SimpleNamespace(wait_stream=lambda _: events.append("wait"))

    def rendezvous(shared, _):
        memory.append(_Memory(len(shared), events))
        return memory[0]

    def copy_(target, source, non_blocking):
        events.append("copy")
        return target.data.__setitem__(slice(None), source)

    symmetric = "torch.distributed._symmetric_memory"
    monkeypatch.setattr(f"{symmetric}.empty", lambda words, dtype, device: torch.zeros(words, dtype=dtype))
    monkeypatch.setattr(f"{symmetric}.rendezvous", rendezvous)
    monkeypatch.setattr("torch.distributed.distributed_c10d._get_default_group", lambda: None)
    monkeypatch.setattr("torch.cuda.Stream", lambda _: stream)
    monkeypatch.setattr("torch.cuda.current_stream", lambda _: stream)
    monkeypatch.setattr("torch.cuda.stream", lambda _: nullcontext())
    asked = SimpleNamespace(context=Context(rank=1, world_size=2), size=64, by=by)
    own, received, start = beside._transfer(asked)
    own.fill_(3.0)
    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    start()()
    assert events == ["wait", "barrier 0", "copy", "barrier 0", "wait"]
    if by == "push":
        assert (memory[0].remote == 3).all()
    else:
        assert (received == 7).all()


def test_an_all_reduce_is_charged_to_the_best_in_ordinary_memory_unless_it_reaches_into_other_ranks_memory():
    assert comm._peaks("all_reduce", "nccl", "ordinary", 7.0) == {"all_reduce_nccl": 7.0}
    assert comm._peaks("all_reduce", "nccl", "registered", 7.0) == {"all_reduce_nccl": 7.0}
    assert comm._peaks("all_reduce", "nccl", "symmetric", 7.0) == {}
    assert comm._peaks("broadcast", "nccl", "ordinary", 7.0) == {}


@pytest.mark.parametrize("asked", [{"backend": "gloo"}, {"backend": "gloo", "op": "broadcast"}])
@pytest.mark.parametrize("memory", ["registered", "symmetric"])
def test_only_nccl_has_memory_registered(asked, memory):
    with pytest.raises(ValueError, match=f"memory: {memory}"):
        comm.collective(Context(world_size=2), memory=memory, **asked)


def test_an_nccl_without_windows_skips_the_side(monkeypatch):
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 26, 5))
    with pytest.raises(SkipSide, match=r"NCCL 2\.27"):
        joining.registered(Context(), (1, 4), symmetric=True)


@pytest.mark.parametrize("symmetric", [False, True])
def test_registered_memory_comes_from_the_backends_pool_and_is_given_back_before_the_group_ends(monkeypatch, symmetric):
    events = []

    class Backend:
        mem_allocator = "of the backend"

        def register_mem_pool(self, pool, **how):
            events.append(("register", pool, *how.items()))

        def deregister_mem_pool(self, pool):
            events.append(("deregister", pool))

    @contextmanager
    def use(pool):
        events.append(("open", pool))
        yield
        events.append(("closed", pool))

    group = SimpleNamespace(_get_backend=lambda _: Backend())
    monkeypatch.setattr("torch.distributed.distributed_c10d._get_default_group", lambda: group)
    monkeypatch.setattr("torch.cuda.MemPool", lambda allocator: f"pool {allocator}")
    monkeypatch.setattr("torch.cuda.use_mem_pool", use)
    monkeypatch.setattr("torch.cuda.synchronize", lambda _: events.append("idle"))
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 27, 3))
    tensor, end = joining.registered(Context(), (2, 3), symmetric=symmetric)
    assert tensor.shape == (2, 3)
    end()
    pool = "pool of the backend"
    how = (("symm", True),) if symmetric else ()
    assert events == [("open", pool), ("closed", pool), ("register", pool, *how), "idle", ("deregister", pool)]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_ranks_that_sit_out_different_rounds_name_the_same_groups_of_nccl_and_use_their_own(monkeypatch, rank):
    made, used = [], []

    def new_group(ranks, *, backend, **more):
        assert (backend, more) == ("nccl", {}), "torch would name the group by how many this rank is in"
        made.append(ranks)
        return tuple(ranks)

    monkeypatch.setattr("torch.distributed.new_group", new_group)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda out, group: used.append(group))
    rounds = [[[0, 1]], [[1, 2]], [[0, 2]], [[0, 1, 2]]]
    for batches in rounds:
        for reduce in comm._nccl_batches(Context(rank=rank, world_size=3), batches):
            reduce(None)
    assert made == [batch for batches in rounds for batch in batches]
    assert used == [tuple(batch) for batches in rounds for batch in batches if rank in batch]
