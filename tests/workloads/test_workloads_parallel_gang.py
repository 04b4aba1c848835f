"""Two Gloo ranks: every strategy yields the gradient of the whole batch, collectives bring what they promise, and
accumulation, compression, sharding, skew, local SGD, experts and process groups keep their word."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from cpu_pairs import differences
from gang_of_two import ddp_buckets, gathered_early, run_gang

from aiperf.workloads.comm import workload as comm
from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.moe import workload as moe
from aiperf.workloads.parallel import duties
from aiperf.workloads.parallel import gradient_exchange as exchange
from aiperf.workloads.parallel import workload as parallel
from aiperf.workloads.shared import agreement, models
from aiperf.workloads.shared.seeded import draw_normal, own_seed

_TRAIN = {"workload": "parallel.train", "model": "tiny", "batch": 2, "seq": 4}
_WALK = {**_TRAIN, "samples": 4, "learning_rate": 0.01}
_MOE = {"workload": "moe.layer", "tokens": 48, "hidden": 16, "expert_hidden": 24, "experts": 8, "exchange": "blocking"}
_COMM = {"workload": "comm.collective", "size": 64, "calls": 3}
_MLP = {"workload": "parallel.train", "model": "mlp:small", "batch": 4}
_CALL = {"workload": "comm.collective", "size": 4096}
_SIDES = {
    "init": {**_COMM, "setup": "each_call"},
    "plain": {**_TRAIN, "accumulate": 2},
    "quiet": {**_TRAIN, "accumulate": 2, "no_sync": True},
    "whole": {**_TRAIN, "batch": 4},
    "skewed": {**_TRAIN, "batch": 4, "skew": 0.5},
    "fp16": {**_TRAIN, "batch": 4, "hook": "fp16"},
    "bf16": {**_TRAIN, "batch": 4, "hook": "bf16"},
    "rows": {**_TRAIN, "batch": 4, "part": "rank"},
    "full": {**_TRAIN, "batch": 4, "strategy": "fsdp"},
    "grad_op": {**_TRAIN, "batch": 4, "strategy": "fsdp", "shard": "grad_op", "wrap": "model"},
    "late": {**_TRAIN, "batch": 4, "strategy": "fsdp", "prefetch": "none"},
    "far": {**_TRAIN, "batch": 4, "strategy": "fsdp", "offload": "cpu"},
    "walk": {**_WALK, "batch": 1},
    "leap": {**_WALK, "batch": 4},
    "drift": {**_WALK, "batch": 1, "strategy": "local_sgd", "sync_every": 4},
    "steady": {**_WALK, "batch": 1, "strategy": "local_sgd"},
    "uneven": {**_WALK, "batch": 2, "strategy": "local_sgd", "skew": 0.5, "skew_turns": True},
    "uneven_late": {
        **_WALK,
        "batch": 2,
        "strategy": "local_sgd",
        "skew": 0.5,
        "skew_turns": True,
        "sync_every": 2,
    },
    "uneven_ddp": {**_WALK, "batch": 2, "skew": 0.5, "skew_turns": True},
    "even": {**_WALK, "batch": 2, "strategy": "local_sgd"},
    "dutiful": {**_TRAIN, "batch": 4, "duties": "rank0"},
    "shared": {**_TRAIN, "batch": 4, "duties": "shared"},
    "free": {**_MOE, "skew": 1.2},
    "roomy": {**_MOE, "skew": 1.2, "capacity": 8.0},
    "capped": {**_MOE, "skew": 1.2, "capacity": 1.25},
    "copied": {**_MOE, "skew": 1.2, "replicas": 2},
    "heeding": {**_MOE, "skew": 1.2, "tokens": 192, "gate_bias": 2.0},
    "unheeding": {**_MOE, "skew": 1.2, "tokens": 192},
    "alone": {**_MOE, "skew": 1.2, "top_k": 1},
    "once": _COMM,
    "cached": {**_COMM, "groups": "cached"},
    "anew": {**_COMM, "groups": "new_each_call"},
    "buckets": {**_MLP, "strategy": "after_backward", "bucket_mb": 0.5},
    "parameters": {**_MLP, "strategy": "after_backward", "bucket_mb": 0},
    "ddp": {**_MLP, "strategy": "ddp", "bucket_mb": 0.5},
    "all_reduce": {**_CALL, "calls": 3},
    "all_gather": {**_CALL, "op": "all_gather"},
    "broadcast": {**_CALL, "op": "broadcast", "backend": "gloo"},
}
_COMPILED = [
    {**_TRAIN, "batch": 4, "bucket_mb": 1},
    {**_TRAIN, "batch": 4, "bucket_mb": 1, "compile": "default"},
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """found[rank][side name] -> outputs."""
    both = run_gang(list(_SIDES.values()), tmp_path_factory.mktemp("gang"))
    return [dict(zip(_SIDES, sides, strict=True)) for sides in both]


def _outputs(side):
    return {name: array for name, array in side.items() if not name.startswith(("count.", "value."))}


def _truth(model="tiny", *, seq=4, **part):
    task = models.build(model, seed=3, device="cpu", batch=8, seq=seq, **part)
    task.redraw(9)
    task.loss(task.module(task.batch), task.targets).backward()
    return {name: grad.numpy() for name, grad in models.gradients(task.module).items()}


@pytest.mark.parametrize("side", ["plain", "quiet", "whole", "skewed"])
def test_every_way_of_cutting_a_batch_yields_the_gradient_of_one_process(found, side):
    for rank in (0, 1):
        assert differences(_outputs(found[rank][side]), _truth(), rtol=1e-4, atol=1e-6) == []


@pytest.mark.parametrize("side", ["buckets", "parameters", "ddp"])
def test_every_strategy_yields_the_gradient_of_one_process_with_the_whole_batch(found, side):
    assert differences(_outputs(found[0][side]), _truth("mlp:small", seq=1), rtol=1e-5, atol=1e-7) == []


def test_gradients_that_were_never_averaged_would_be_noticed(found):
    alone = _truth("mlp:small", seq=1, part=0, parts=2)
    assert differences(_outputs(found[0]["ddp"]), alone, rtol=1e-5, atol=1e-7) == sorted(alone)


@pytest.mark.long
def test_a_compiled_model_is_cut_into_a_graph_for_each_bucket_and_yields_the_same_gradient(tmp_path):
    eager, compiled = run_gang(_COMPILED, tmp_path)[0]
    assert [float(side["count.graphs"]) for side in (eager, compiled)] == [0, 3]
    assert [float(side["count.exchanges"]) for side in (eager, compiled)] == [1, 1]
    assert differences(_outputs(eager), _outputs(compiled), rtol=1e-3, atol=1e-6) == []


@pytest.mark.parametrize(("cap", "buckets"), [pytest.param(4, 6, marks=pytest.mark.long), (8, 3), (1000, 1)])
def test_the_buckets_that_ddp_made_are_counted_from_its_third_step_on(cap, buckets):
    # Six layers of a little more than 1 MiB, a quarter of what the caps are written for.
    assert ddp_buckets(cap / 4) == ({"ddp_buckets": buckets}, {})


def test_the_share_of_the_exchange_is_read_where_nothing_hides_it(found):
    assert 0 < float(found[0]["buckets"]["value.exchange_share"]) < 1
    assert "value.exchange_share" not in found[0]["ddp"]


def test_sharded_ranks_hold_together_what_each_replica_holds(found):
    replica, shards = (sum(float(f[side]["value.state_bytes"]) for f in found) for side in ("rows", "full"))
    # Weights and gradients in float32: plain SGD keeps nothing.
    task = models.build("tiny", seed=3, device="cpu", batch=1, seq=4)
    assert replica / 2 == shards == 2 * 4 * sum(p.numel() for p in task.module.parameters())


def test_the_share_is_that_of_the_all_reduces_in_the_steps_since_it_was_last_asked(monkeypatch):
    asked = SimpleNamespace(
        strategy="after_backward",
        parts=2,
        bucket_mb=25,
        skew=0,
        per_rank=2,
        updates=2,
        accumulate=1,
        no_sync=False,
        skew_turns=False,
        duties="none",
        context=SimpleNamespace(on_gpu=False),
    )
    task = models.build("tiny", seed=3, device="cpu", batch=2, seq=4)
    step = parallel._Step(task, task.module, torch.optim.SGD(task.module.parameters(), lr=0.1), asked)
    monkeypatch.setattr(parallel.exchange.Averaging, "average", lambda *_: None)
    monkeypatch.setattr(parallel, "perf_counter", itertools.count().__next__)
    weights = 4 * sum(p.numel() for p in task.module.parameters())
    assert step.values() == {"state_bytes": weights}
    for _ in range(2):
        # Six looks at the clock: five ticks from first to last, of which two lie in the exchanges of two updates.
        step.run()
        # Plain SGD has no state of its own: weights and gradients.
        assert step.values() == {
            "exchange_share": 2 / 5, "exchange_rate": 2 * weights / 5, "state_bytes": 2 * weights,
        }  # fmt: skip


def test_averages_pass_through_a_buffer_that_is_kept_and_holds_shares(monkeypatch):
    seen = []

    def all_reduce(flat):
        seen.append((flat.data_ptr(), flat.tolist()))
        flat.mul_(2)

    monkeypatch.setattr(exchange.dist, "all_reduce", all_reduce)
    parameters = [torch.nn.Parameter(torch.tensor(values)) for values in ([[1.0, 2.0]], [3.0])]
    for p in parameters:
        p.grad = -p.detach().clone()
    for gradients, sign in ((True, -1.0), (False, 1.0)):
        averaging = exchange.Averaging(parameters, 4, gradients=gradients)
        before = len(seen)
        averaging.average()
        averaging.average()
        (first, shares), (second, _) = seen[before:]
        assert first == second
        assert shares == [sign * 0.25, sign * 0.5, sign * 0.75]
    assert [p.grad.tolist() for p in parameters] == [[[-0.25, -0.5]], [-0.75]]
    assert [p.detach().tolist() for p in parameters] == [[[0.25, 0.5]], [0.75]]


def test_both_strategies_report_equal_work(found):
    names = ("count.bytes", "count.flops", "count.items")
    assert [float(found[0]["buckets"][n]) for n in names] == [float(found[0]["ddp"][n]) for n in names]
    assert float(found[0]["buckets"]["count.items"]) == 8


def _payload(rank):
    drawn = np.empty(1024, np.float32)
    draw_normal(drawn, seed=own_seed(9, f"payload-{rank}"))
    return drawn


def test_three_all_reduces_sum_the_ranks_and_then_double_twice(found):
    expected = 4 * (_payload(0) + _payload(1))
    assert np.allclose(found[0]["all_reduce"]["out"][0], expected, rtol=1e-6)
    assert str(found[0]["all_reduce"]["count.backend"]) == "gloo"


def test_bus_bytes_of_an_all_reduce_are_twice_n_minus_one_nths(found):
    assert float(found[0]["all_reduce"]["count.all_reduce_gloo"]) == 3 * 4096 * 2 * 1 / 2
    assert "count.all_reduce_gloo" not in found[0]["all_gather"]


def test_all_gather_brings_every_rank_and_broadcast_the_first(found):
    assert np.array_equal(found[0]["all_gather"]["out"], np.stack([_payload(0), _payload(1)]))
    for rank in (0, 1):
        assert np.array_equal(found[rank]["broadcast"]["out"][0], _payload(0))


def test_no_sync_exchanges_once_and_plain_accumulation_each_time(found):
    assert (float(found[0]["plain"]["count.exchanges"]), float(found[0]["quiet"]["count.exchanges"])) == (2, 1)


@pytest.mark.parametrize(("hook", "least", "most"), [("fp16", 1e-6, 2e-3), ("bf16", 1e-4, 2e-2)])
def test_a_hook_rounds_gradients_and_no_more_than_its_format_does(found, hook, least, most):
    told = agreement.gradients_close(_outputs(found[0]["whole"]), _outputs(found[0][hook]))
    assert told.passed
    assert least < told.value < most


@pytest.mark.parametrize("side", ["full", "grad_op", "late", "far"])
def test_each_rank_of_a_sharded_model_holds_its_rows_of_the_averaged_gradient(found, side):
    whole = _truth()
    for rank in (0, 1):
        mine = _outputs(found[rank][side])
        assert differences(mine, _outputs(found[rank]["rows"]), rtol=1e-4, atol=1e-6) == []
        assert mine["head.weight"].shape[0] == whole["head.weight"].shape[0] // 2
    halves = [found[rank][side]["head.weight"] for rank in (0, 1)]
    assert np.allclose(np.concatenate(halves), whole["head.weight"], rtol=1e-4, atol=1e-6)


def test_ways_of_walking_through_the_same_samples_end_close_and_standing_still_is_noticed(found):
    module = models.build("tiny", seed=3, device="cpu", batch=1, seq=4).module
    check = agreement.update_close(module)
    walk = _outputs(found[0]["walk"])
    for side in ("leap", "drift", "steady"):
        told = check(walk, _outputs(found[0][side]))
        assert told.passed
        assert told.value < 0.05
    assert not np.array_equal(walk["head.weight"], found[0]["leap"]["head.weight"])
    still = {name: p.detach().numpy() for name, p in module.named_parameters()}
    assert check(walk, still).value == pytest.approx(1.0)
    exchanges = [float(found[0][side]["count.exchanges"]) for side in ("walk", "leap", "drift", "steady")]
    assert exchanges == [4, 1, 1, 4]


def test_local_sgd_leaves_the_ranks_with_equal_weights(found):
    assert np.array_equal(found[0]["drift"]["head.weight"], found[1]["drift"]["head.weight"])


def test_a_capacity_that_never_binds_changes_nothing_and_one_that_does_evens_out_the_ranks(found):
    for rank in (0, 1):
        assert differences(_outputs(found[rank]["free"]), _outputs(found[rank]["roomy"]), rtol=0, atol=0) == []
    rows = {side: [float(found[rank][side]["count.own_rows"]) for rank in (0, 1)] for side in ("free", "capped")}
    assert sum(rows["free"]) == sum(rows["capped"]) == 2 * 48 * 2
    assert max(rows["capped"]) <= 2 * 4 * 15 < max(rows["free"])


def _rows(found, side):
    return [float(found[rank][side]["count.own_rows"]) for rank in (0, 1)]


def test_copies_of_the_hottest_experts_take_half_of_their_rows_and_change_no_result(found):
    hot = 0
    for rank in (0, 1):
        free, copied = _outputs(found[rank]["free"]), _outputs(found[rank]["copied"])
        assert differences(free, copied, rtol=1e-5, atol=1e-6) == []
        hot += sum(int((free["experts"] == expert).sum()) // 2 for expert in (0, 1))
    moved = [a - b for a, b in zip(_rows(found, "free"), _rows(found, "copied"), strict=True)]
    assert moved == [hot, -hot]
    assert hot > 20


def test_a_gate_that_heeds_the_load_evens_out_the_ranks(found):
    assert sum(_rows(found, "heeding")) == sum(_rows(found, "unheeding")) == 2 * 192 * 2
    assert max(_rows(found, "heeding")) < 0.9 * max(_rows(found, "unheeding"))


def test_one_expert_to_a_token_halves_the_rows_and_is_the_first_of_two(found):
    check = _on_one_rank().checks["first_choices"]
    for rank in (0, 1):
        two, one = _outputs(found[rank]["free"]), _outputs(found[rank]["alone"])
        told = check(two, one)
        assert told.passed, told.detail
        assert 0.1 < told.value < 1
        assert float(found[rank]["alone"]["count.sent_bytes"]) < float(found[rank]["free"]["count.sent_bytes"])
        assert not check(two, {**one, "experts": two["experts"][:, 1:]}).passed
        assert not check(two, {**one, "out": 1.1 * one["out"]}).passed
        assert not check(two, {**one, "out": one["out"] * np.nan}).passed
    assert sum(_rows(found, "alone")) == sum(_rows(found, "free")) / 2


def test_what_a_rank_sends_is_counted_there_and_back(found):
    # Rank 0 sends out what its tokens want of experts 4 to 7, and sends back what rank 1 wants of the others.
    away = (_outputs(found[0]["free"])["experts"] >= 4).sum() + (_outputs(found[1]["free"])["experts"] < 4).sum()
    assert float(found[0]["free"]["count.sent_bytes"]) == away * 16 * 4


def test_overflow_is_counted_and_a_lost_or_doubled_token_is_noticed(found):
    free, capped = _outputs(found[0]["free"]), _outputs(found[0]["capped"])
    check = _on_one_rank().checks["conserved"]
    told = check(free, capped)
    assert told.passed, told.detail
    assert 0 < told.value < 1
    lost = {**capped, "handled": capped["handled"] - (np.arange(48) == 7)}
    doubled = {**capped, "experts": np.repeat(capped["experts"][:, :1], 2, axis=1)}
    wrong = {**free, "out": free["out"] + 1}
    assert not any(check(free, side).passed for side in (lost, doubled, wrong))


def _on_one_rank():
    """The same layer without an exchange."""
    own = {k: v for k, v in _MOE.items() if k not in ("workload", "exchange")}
    return moe.layer(Context(seed=3), **own, skew=1.2)


def test_the_exchange_brings_every_row_back_to_where_it_came_from(found):
    workload = _on_one_rank()
    workload.redraw(9)
    workload.step()
    assert np.allclose(found[0]["free"]["out"], workload.outputs()["out"].numpy(), rtol=1e-4, atol=1e-6)


def test_groups_made_anew_reduce_the_same_and_are_counted(found):
    for side in ("init", "cached", "anew"):
        assert np.array_equal(found[1][side]["out"], found[0]["once"]["out"])
    made = [float(found[0][side]["count.groups_made"]) for side in ("init", "once", "cached", "anew")]
    assert made == [3, 0, 0, 3]


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"strategy": "after_backward", "no_sync": True}, "need strategy: ddp"),
        ({"strategy": "after_backward", "accumulate": 2}, "accumulate needs"),
        ({"batch": 3, "samples": 4}, "cannot be cut into updates of 3"),
        ({"sync_every": 2}, "local_sgd"),
        ({"strategy": "local_sgd"}, "how many samples"),
        ({"skew": 0.3}, "whole samples"),
        ({"strategy": "fsdp", "model": "mlp:small"}, "has no blocks"),
        ({"batch": 0}, "1 or more"),
        ({"strategy": "after_backward", "compile": "default"}, "over DDP"),
        ({"model": "mlp:small", "compile": "default"}, "captures nothing"),
        ({"bucket_mb": 0.5, "compile": "default"}, "from bucket_mb: 1 on"),
        ({"accumulate": 2, "no_sync": True, "compile": "default"}, "over DDP"),
        ({"prefetch": "none"}, "strategy: fsdp"),
        ({"offload": "cpu"}, "strategy: fsdp"),
        ({"strategy": "fsdp", "graph": True}, "graph captures"),
        ({"compile": "default", "graph": True}, "graph captures"),
        ({"optimizer": "adamw", "graph": True}, "optimizer: sgd"),
    ],
)
def test_impossible_training_is_refused_before_any_rank_is_asked(asked, fault):
    with pytest.raises(ValueError, match=fault):
        parallel.train(Context(world_size=2), **asked)


def test_a_captured_step_lets_its_graph_go_when_it_is_closed(monkeypatch):
    # NCCL waits for the graphs that hold its calls before it lets go of a communicator.
    done = []
    graph = SimpleNamespace(replay=lambda: done.append("replay"), reset=lambda: done.append("reset"))
    monkeypatch.setattr(Context, "on_gpu", True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: "side")
    monkeypatch.setattr(exchange, "all_on", contextlib.nullcontext)
    monkeypatch.setattr(exchange, "captured", lambda step, side: graph)
    workload = parallel.train(Context(seed=3), scaling="strong", model="tiny", batch=1, seq=4, graph=True)
    workload.step()
    assert done == ["replay"]
    workload.close()
    assert done == ["replay", "reset"]


def test_a_sharded_side_holds_no_copy_of_its_weights_on_the_device_beside_them():
    module = torch.nn.Linear(2, 2, device="meta")
    with pytest.raises(NotImplementedError, match="meta"):
        models.snapshot(module, on_host=True)
    models.snapshot(module)


def test_a_graph_is_skipped_on_cpus():
    with pytest.raises(SkipSide, match="needs a GPU"):
        parallel.train(Context(world_size=2), graph=True)


@pytest.mark.parametrize(("prefetch", "early"), [("next", True), ("none", False)])
def test_units_are_gathered_before_their_turn_in_the_backward_pass_only_with_prefetch(prefetch, early):
    assert any(gathered_early(prefetch)) == early


def test_strong_scaling_lets_one_rank_run_alone_on_the_whole_batch():
    alone = parallel.train(Context(seed=3), scaling="strong", model="tiny", batch=8, seq=4)
    alone.redraw(9)
    alone.step()
    assert (alone.facts["backend"], alone.counters()["exchanges"]) == ("none", 0)
    found = {name: grad.numpy() for name, grad in alone.outputs().items()}
    assert differences(found, _truth(), rtol=1e-4, atol=1e-6) == []


def test_weak_scaling_lets_one_rank_run_alone_without_an_exchange():
    workload = parallel.train(Context(seed=3), scaling="weak", model="tiny", batch=1, seq=4)
    workload.step()
    assert (workload.facts["backend"], workload.facts["threads"]) == ("none", 1)
    with pytest.raises(ValueError, match="needs ranks"):
        parallel.train(Context(seed=3), model="tiny")


def test_a_group_for_each_call_holds_no_subgroup():
    with pytest.raises(ValueError, match="groups: default"):
        comm.collective(Context(world_size=2), setup="each_call", groups="cached")


def test_duties_are_the_same_whoever_has_them_and_what_was_read_back_are_the_weights_after_the_update(found):
    start = models.build("tiny", seed=3, device="cpu", batch=8, seq=4).module
    for rank in (0, 1):
        plain, alone, shared = (_outputs(found[rank][side]) for side in ("whole", "dutiful", "shared"))
        assert differences(alone, shared, rtol=1e-5, atol=1e-7) == []
        gradients = {name: array for name, array in shared.items() if name != "norms"}
        assert differences(plain, gradients, rtol=1e-4, atol=1e-6) == []
        named = {name: weight.detach().numpy() for name, weight in start.named_parameters()}
        moved = [np.linalg.norm(weight - 1e-5 * gradients[name]) for name, weight in named.items()]
        assert np.allclose(shared["norms"], [[np.linalg.norm(gradients[name]) for name in named], moved], rtol=1e-4)
    saved = [[float(found[rank][side]["count.saved_bytes"]) for rank in (0, 1)] for side in ("dutiful", "shared")]
    assert saved[0][1] == 0
    assert sum(saved[0]) == sum(saved[1]) == float(found[0]["shared"]["count.bytes"])
    assert saved[1][0] == pytest.approx(saved[1][1], rel=0.01)


def test_a_log_has_the_hash_of_the_bytes_that_were_written_this_time(tmp_path, monkeypatch):
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: None)
    named = dict(torch.nn.Linear(3, 2).named_parameters())
    for parameter in named.values():
        parameter.grad = torch.ones_like(parameter)
    kept = duties.Duties(named, tmp_path, rank=0, shares=1)
    for _ in range(2):
        with torch.no_grad():
            named["weight"].add_(1)
        kept.fulfil()
        content = b"".join(parameter.detach().numpy().tobytes() for parameter in named.values())
        assert (tmp_path / "weights.bin").read_bytes() == content
        assert hashlib.sha256(content).hexdigest() in (tmp_path / "weights.log").read_text(encoding="utf-8")
        assert kept.norms[1, 0] == pytest.approx(float(named["weight"].detach().norm()))


def test_ranks_take_turns_at_the_larger_update_and_walk_the_same_way_as_with_even_ones(found):
    start = models.build("tiny", seed=3, device="cpu", batch=8, seq=4).module
    close = agreement.update_close(start)
    even, uneven, late, ddp = (_outputs(found[0][side]) for side in ("even", "uneven", "uneven_late", "uneven_ddp"))
    assert 0 < close(even, uneven).value < 0.1, "the same samples in other updates"
    assert 0 < close(uneven, late).value < 0.05
    assert close(uneven, ddp).value < 1e-4, "gradients averaged are weights averaged after each update"
    assert float(found[0]["uneven_ddp"]["count.exchanges"]) == 2
    assert differences(uneven, _outputs(found[1]["uneven"]), rtol=0, atol=1e-6) == []
    assert [float(found[0][side]["count.exchanges"]) for side in ("uneven", "uneven_late")] == [2, 1]
    for rank, sizes in ((0, [3, 1, 3, 1]), (1, [1, 3, 1, 3])):
        asked = SimpleNamespace(skew=0.5, batch=2, updates=4, skew_turns=True, context=Context(rank=rank))
        step = SimpleNamespace(_asked=asked, _task=SimpleNamespace(batch=torch.arange(8), targets=torch.arange(8)))
        micro = parallel._Step._micro(step)
        assert [len(x) for x, _ in micro] == sizes
        assert torch.cat([x for x, _ in micro]).tolist() == list(range(8))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"strategy": "after_backward", "skew": 0.5, "skew_turns": True, "samples": 8}, "ddp or local_sgd"),
        ({"skew": 0.5, "skew_turns": True}, "even number of updates"),
        ({"strategy": "local_sgd", "skew_turns": True, "samples": 8}, "needs a skew"),
        ({"strategy": "local_sgd", "skew": 0.5, "skew_turns": True, "samples": 4}, "even number of updates"),
        ({"duties": "rank0", "samples": 8}, "one update of strategy: ddp"),
        ({"duties": "shared", "strategy": "after_backward"}, "one update of strategy: ddp"),
    ],
)
def test_turns_and_duties_that_cannot_be_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        parallel.train(Context(world_size=2), **params)
