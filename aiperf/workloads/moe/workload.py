"""Family moe.layer: one mixture-of-experts layer, its tokens routed, run through their experts and put back in order.

What must not live here: the router (routing.py), the experts and the exchange (experts.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload
from aiperf.workloads.moe import experts as running
from aiperf.workloads.moe import routing
from aiperf.workloads.shared.seeded import empty, fill_normal

_RTOL, _ATOL = 1e-3, 1e-4
_PROBES = 32
_OFF = {"float32": 1e-3, "bfloat16": 3e-2}
"""Distance of a probed row from its own experts' result, over that result's length."""

Truth = Callable[[Any, Any], Any]
"""(rows, their experts) -> results in float64."""


def _conserved(before: Mapping[str, Any], after: Mapping[str, Any], *, truth: Truth, off: float) -> Outcome:
    """Every token went to its number of different experts; where both sides chose alike the results agree; and probed
    tokens have the result of the experts that they went to, whichever those are.

    The value is the share of tokens that went elsewhere on this side.
    """
    for which, side in (("before", before), ("after", after)):
        ids = np.sort(side["experts"], axis=1)
        if (ids < 0).any() or (np.diff(ids, axis=1) == 0).any() or (side["handled"] != ids.shape[1]).any():
            return Outcome(False, f"{which} lost tokens, or gave one twice to an expert")
        probed = slice(None, None, _stride(len(ids)))
        want = truth(side["probed"], side["experts"][probed])
        apart = np.linalg.norm(side["out"][probed] - want, axis=1)
        # Written so that what is no number is no agreement.
        if not (apart <= off * np.linalg.norm(want, axis=1)).all():
            return Outcome(False, f"{which} has results that are not those of the experts that it chose")
    same = (np.sort(before["experts"], axis=1) == np.sort(after["experts"], axis=1)).all(axis=1)
    if not np.allclose(before["out"][same], after["out"][same], rtol=_RTOL, atol=_ATOL):
        return Outcome(False, "tokens with the same experts got different results")
    return Outcome(True, f"{np.mean(~same):.1%} of the tokens went elsewhere", float(np.mean(~same)))


def _stride(tokens: int) -> int:
    """Distance between two probed tokens."""
    return max(1, tokens // _PROBES)


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
    execution: Literal["loop", "streams", "grouped", "dense"] = "loop",
    exchange: Literal["none", "blocking"] = "none",
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> Workload:
    """One forward pass of [tokens, hidden] per rank, each token through ``top_k`` of ``experts`` SwiGLU experts.

    The router is a seeded projection plus a bias that makes expert e about (e + 1) ** -skew as popular as the first.
    ``capacity`` limits an expert to that multiple of its equal share of a rank's tokens; overflow goes to the token's
    next-best expert. ``execution``: one expert after the other, each on one of 8 streams (GPU), or all by grouped
    matrix products (GPU, bfloat16); or ``dense``, one layer of all experts' parameters, every token through all of it,
    the hidden units of experts that were not chosen multiplied by zero. ``exchange: blocking`` deals the experts out to
    the ranks in order of their number and sends rows there and back by two all-to-alls; on the CPU a rank then computes
    on one thread.

    Outputs: the mixed rows in order, the experts of each token, by how many each was handled, and some of the tokens
    themselves, by which the check knows what their experts must give. FLOPs: 2 x 3 x hidden x expert_hidden for each
    token and expert that it goes to, over all ranks; routing does not count. Items: tokens. Reference (one rank): a
    loop over experts in float64. Source: AI Systems Performance Engineering, chapters 1, 13, 15 and 20.
    """
    on_gpu = context.device.startswith("cuda")
    _check(
        context, experts=experts, top_k=top_k, capacity=capacity, execution=execution, exchange=exchange, dtype=dtype
    )
    kind = getattr(torch, dtype)
    ranks = _joined(context) if exchange == "blocking" else 1
    x = empty(context, (tokens, hidden), kind)
    bank = running.Bank.draw(context, experts=experts, hidden=hidden, inner=expert_hidden, dtype=kind)
    mine = bank.share(context.rank if ranks > 1 else 0, ranks)
    places = routing.capacity_of(tokens, experts, top_k, capacity)
    router = _Router.draw(context, hidden=hidden, experts=experts, skew=skew, top_k=top_k, places=places)
    run = _Pass(x, router, mine, running.runner(execution, context.device), ranks=ranks, dense=execution == "dense")

    def redraw(seed: int) -> None:
        fill_normal(x, seed=seed, name=f"tokens-{context.rank}")

    redraw(context.seed)
    flops = 6.0 * hidden * expert_hidden * tokens * top_k * ranks
    peak = ("gemm_" if on_gpu else "cpu_gemm_") + {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    return Workload(
        step=run.step,
        work=Work(flops=flops, items=tokens * ranks, item="tokens", peaks={peak: flops} if on_gpu else {}),
        outputs=run.outputs,
        inputs=lambda: {"tokens": x},
        redraw=redraw,
        reference=partial(_reference, bank, router, x) if ranks == 1 and not places else None,
        counters=run.counters,
        checks={"conserved": partial(_conserved, truth=_truth(bank, router), off=_OFF[dtype])},
        facts=_facts(ranks, mine, places),
    )


def _reference(bank: running.Bank, router: _Router, x: Any) -> dict[str, Any]:
    """What every output must be for the tokens as they are now, each expert over its own of them in float64."""
    chosen = router.scores(x).topk(router.top_k, dim=1).indices
    return {
        "out": bank.mixed(x, chosen, router.shares(x, chosen)),
        "experts": chosen,
        "handled": torch.full_like(chosen[:, 0], router.top_k),
        "probed": x[:: _stride(len(x))].clone(),
    }


def _truth(bank: running.Bank, router: _Router) -> Truth:
    def truth(rows: Any, chosen: Any) -> Any:
        x, ids = (torch.from_numpy(array).to(router.weight.device) for array in (rows, chosen))
        return bank.mixed(x, ids, router.shares(x, ids)).cpu().numpy()

    return truth


def _facts(ranks: int, mine: running.Bank, places: int) -> dict[str, Any]:
    return {
        "backend": "none" if ranks == 1 else torch.distributed.get_backend(),
        "ranks": ranks,
        "own_experts": mine.count,
        "places": places,
        "threads": torch.get_num_threads(),
    }


def _check(
    context: Context, *, experts: int, top_k: int, capacity: float, execution: str, exchange: str, dtype: str
) -> None:
    if not 1 <= top_k <= experts:
        raise ValueError(f"top_k is {top_k}; it must lie between 1 and the number of experts, {experts}")
    if capacity and capacity < 1:
        raise ValueError(f"a capacity factor of {capacity} leaves too few places; it must be 1 or more, or 0 for none")
    if exchange == "blocking" and (context.world_size < 2 or experts % context.world_size):
        raise ValueError("exchange: blocking needs ranks: 2 or more, and experts that can be dealt out equally")
    if execution == "dense" and (capacity or exchange != "none"):
        raise ValueError("a dense layer has no places to fill and no ranks; it needs capacity: 0 and exchange: none")
    if execution in ("streams", "grouped") and (not context.device.startswith("cuda") or exchange != "none"):
        raise SkipSide("streams and grouped matrix products need a GPU, and run without an exchange")
    if execution == "grouped" and dtype != "bfloat16":
        raise ValueError("the grouped matrix product takes bfloat16 only")


def _joined(context: Context) -> int:
    """How many ranks there are, after this one has joined them."""
    on_gpu = context.device.startswith("cuda")
    if not on_gpu:
        torch.set_num_threads(1)
    context.process_group("nccl" if on_gpu else "gloo")
    return context.world_size


@dataclass(frozen=True)
class _Router:
    """A projection of the tokens onto the experts; a token goes to those that it scores highest for."""

    weight: Any
    bias: Any
    top_k: int
    places: int

    @classmethod
    def draw(cls, context: Context, *, hidden: int, experts: int, skew: float, top_k: int, places: int) -> _Router:
        weight = torch.empty(hidden, experts, device=context.device)
        fill_normal(weight, seed=context.seed, name="router")
        weight.div_(hidden**0.5)
        return cls(weight, routing.skewed_bias(experts, skew).to(context.device), top_k, places)

    def scores(self, x: Any) -> Any:
        """How well each expert suits each token, [tokens, experts]."""
        return x.float() @ self.weight + self.bias

    def shares(self, x: Any, chosen: Any) -> Any:
        """The shares in which the results of each token's experts are mixed."""
        return self.scores(x).gather(1, chosen).softmax(1)

    def choose(self, x: Any) -> tuple[Any, Any]:
        """Experts [tokens, top_k] and the shares in which their results are mixed."""
        scores = self.scores(x)
        chosen = routing.choose(scores, top_k=self.top_k, capacity=self.places)
        return chosen, scores.gather(1, chosen).softmax(1)


class _Pass:
    """A rank's tokens to their experts and back in order, into tensors that stay where they are."""

    def __init__(
        self, x: Any, router: _Router, mine: running.Bank, run: running.Run, *, ranks: int, dense: bool
    ) -> None:
        self._x, self._router, self._mine, self._run, self._ranks = x, router, mine, run, ranks
        self._experts = len(router.bias)
        self._whole = running.Whole.of(mine) if dense else None
        self._out = torch.empty_like(x)
        self._chosen = torch.empty(len(x), router.top_k, dtype=torch.int64, device=x.device)
        self._handled = torch.empty(len(x), dtype=torch.int64, device=x.device)
        self._probed = torch.empty_like(x[:: _stride(len(x))])
        self._load: Any = None

    def step(self) -> None:
        """The timed region."""
        with torch.no_grad():
            self._mix()

    def _mix(self) -> None:
        chosen, weights = self._router.choose(self._x)
        self._chosen.copy_(chosen)
        if self._whole is None:
            self._mix_sorted(weights)
        else:
            self._mix_whole(self._whole, weights)
        self._probed.copy_(self._x[:: _stride(len(self._x))])

    def _mix_whole(self, whole: running.Whole, weights: Any) -> None:
        """Every token through every expert."""
        shares = self._x.new_zeros(len(self._x), self._experts).scatter_(1, self._chosen, weights.to(self._x.dtype))
        self._out.copy_(whole.run(self._x, shares))
        self._handled.copy_((shares != 0).sum(1))
        self._load = torch.tensor(len(self._x) * self._experts)

    def _mix_sorted(self, weights: Any) -> None:
        """Tokens sorted by expert, each expert over its own, and back."""
        flat = self._chosen.flatten()
        order = flat.argsort(stable=True)
        rows = self._x[order // self._router.top_k]
        counts = torch.bincount(flat, minlength=self._experts)
        if self._ranks > 1:
            done, self._load = running.exchanged(rows, counts, self._mine, self._run, ranks=self._ranks)
        else:
            done, self._load = self._run(rows, counts, self._mine), counts
        back = torch.empty_like(done)
        back[order] = done
        back = back.view(*self._chosen.shape, -1)
        torch.sum(back * weights.to(back.dtype).unsqueeze(2), dim=1, out=self._out)
        self._handled.copy_((back != 0).any(2).sum(1))

    def outputs(self) -> dict[str, Any]:
        """Mixed rows in order, the experts of each token, by how many it was handled; some tokens, for the check."""
        return {"out": self._out, "experts": self._chosen, "handled": self._handled, "probed": self._probed}

    def counters(self) -> dict[str, float]:
        """Rows that this rank's experts handled in the last step."""
        return {} if self._load is None else {"own_rows": float(self._load.sum())}
