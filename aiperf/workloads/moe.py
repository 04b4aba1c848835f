"""Family moe.layer: one mixture-of-experts layer, its tokens routed, run through their experts and put back in order.

What must not live here: the router (_routing.py), the experts and the exchange (_experts.py), timing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads import _experts as running
from aiperf.workloads import _routing as routing
from aiperf.workloads._seeded import empty, fill_normal
from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload

_RTOL, _ATOL = 1e-3, 1e-4


def _conserved(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Every token went to its number of different experts, and where both sides chose alike the results agree.

    The value is the share of tokens that went elsewhere on this side.
    """
    for which, side in (("before", before), ("after", after)):
        ids = np.sort(side["experts"], axis=1)
        if (ids < 0).any() or (np.diff(ids, axis=1) == 0).any() or (side["handled"] != ids.shape[1]).any():
            return Outcome(False, f"{which} lost tokens, or gave one twice to an expert")
    same = (np.sort(before["experts"], axis=1) == np.sort(after["experts"], axis=1)).all(axis=1)
    if not np.allclose(before["out"][same], after["out"][same], rtol=_RTOL, atol=_ATOL):
        return Outcome(False, "tokens with the same experts got different results")
    return Outcome(True, f"{np.mean(~same):.1%} of the tokens went elsewhere", float(np.mean(~same)))


def layer(
    context: Context,
    *,
    tokens: int = 1024,
    hidden: int = 256,
    expert_hidden: int = 512,
    experts: int = 16,
    top_k: int = 2,
    skew: float = 0.0,
    capacity: float = 0.0,
    execution: Literal["loop", "streams", "grouped"] = "loop",
    exchange: Literal["none", "blocking"] = "none",
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> Workload:
    """One forward pass of [tokens, hidden] per rank, each token through ``top_k`` of ``experts`` SwiGLU experts.

    The router is a seeded projection plus a bias that makes expert e about (e + 1) ** -skew as popular as the first.
    ``capacity`` limits an expert to that multiple of its equal share of a rank's tokens; overflow goes to the token's
    next-best expert. ``execution``: one expert after the other, each on one of 8 streams (GPU), or all by grouped
    matrix products (GPU, bfloat16). ``exchange: blocking`` deals the experts out to the ranks in order of their number
    and sends rows there and back by two all-to-alls; on the CPU a rank then computes on one thread.

    Outputs: the mixed rows in order, the experts of each token, and by how many experts each was handled. FLOPs: 2 x 3
    x hidden x expert_hidden for each token and expert, over all ranks; routing does not count. Items: tokens.
    Reference (one rank): a dense loop over experts in float64. Source: AI Systems Performance Engineering, chapters
    13 and 15.
    """
    if not 1 <= top_k <= experts:
        raise ValueError(f"top_k is {top_k}; it must lie between 1 and the number of experts, {experts}")
    if capacity and capacity < 1:
        raise ValueError(f"a capacity factor of {capacity} leaves too few places; it must be 1 or more, or 0 for none")
    if exchange == "blocking" and (context.world_size < 2 or experts % context.world_size):
        raise ValueError("exchange: blocking needs ranks: 2 or more, and experts that can be dealt out equally")
    on_gpu = context.device.startswith("cuda")
    if execution != "loop" and (not on_gpu or exchange != "none"):
        raise SkipSide("streams and grouped matrix products need a GPU, and run without an exchange")
    if execution == "grouped" and dtype != "bfloat16":
        raise ValueError("the grouped matrix product takes bfloat16 only")
    kind = getattr(torch, dtype)
    ranks = 1
    if exchange == "blocking":
        ranks = context.world_size
        if not on_gpu:
            torch.set_num_threads(1)
        context.process_group("nccl" if on_gpu else "gloo")
    x = empty(context, (tokens, hidden), kind)
    bank = running.Bank.draw(context, experts=experts, hidden=hidden, inner=expert_hidden, dtype=kind)
    mine = bank.share(context.rank if ranks > 1 else 0, ranks)
    router = torch.empty(hidden, experts, device=context.device)
    fill_normal(router, seed=context.seed, name="router")
    router.div_(hidden**0.5)
    bias = routing.skewed_bias(experts, skew).to(context.device)
    places = routing.capacity_of(tokens, experts, top_k, capacity)
    out = torch.empty_like(x)
    chosen = torch.empty(tokens, top_k, dtype=torch.int64, device=context.device)
    handled = torch.empty(tokens, dtype=torch.int64, device=context.device)
    run_local = running.runner(execution, context.device)
    told: dict[str, Any] = {}

    def redraw(seed: int) -> None:
        fill_normal(x, seed=seed, name=f"tokens-{context.rank}")

    def mix() -> None:
        logits = x.float() @ router + bias
        chosen.copy_(routing.choose(logits, top_k=top_k, capacity=places))
        weights = logits.gather(1, chosen).softmax(1).to(kind)
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        rows = x[order // top_k]
        counts = torch.bincount(flat, minlength=experts)
        if ranks > 1:
            done, load = running.exchanged(rows, counts, mine, run_local, ranks=ranks)
        else:
            done, load = run_local(rows, counts, mine), counts
        told["load"] = load
        back = torch.empty_like(done)
        back[order] = done
        torch.sum(back.view(tokens, top_k, hidden) * weights.unsqueeze(2), dim=1, out=out)
        handled.copy_((back.view(tokens, top_k, hidden) != 0).any(2).sum(1))

    def step() -> None:
        with torch.no_grad():
            mix()

    def counters() -> dict[str, float]:
        load = told.get("load")
        return {} if load is None else {"own_rows": float(load.sum())}

    def reference() -> dict[str, Any]:
        return {"out": bank.dense(x, router, bias, top_k=top_k), "experts": chosen, "handled": handled}

    redraw(context.seed)
    flops = 6.0 * hidden * expert_hidden * tokens * top_k * ranks
    roof = ("gemm_" if on_gpu else "cpu_gemm_") + {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    return Workload(
        step=step,
        work=Work(flops=flops, items=tokens * ranks, item="tokens", roofs={roof: flops} if on_gpu else {}),
        outputs=lambda: {"out": out, "experts": chosen, "handled": handled},
        inputs=lambda: {"tokens": x},
        redraw=redraw,
        reference=reference if ranks == 1 and not places else None,
        counters=counters,
        checks={"conserved": _conserved},
        facts={
            "backend": "none" if ranks == 1 else torch.distributed.get_backend(),
            "ranks": ranks,
            "own_experts": mine.count,
            "places": places,
            "threads": torch.get_num_threads(),
        },
    )
