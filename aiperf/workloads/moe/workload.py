"""moe.layer: one mixture-of-experts layer, its tokens routed, run through their experts and put back in order.

What must not live here: the router (routing.py), the experts and the exchange (experts.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload
from aiperf.workloads.moe import experts as running
from aiperf.workloads.moe import routing
from aiperf.workloads.shared.seeded import empty, fill_normal, gemm_peak

_RTOL, _ATOL = 1e-3, 1e-4
_PROBES = 32
_OFF = {"float32": 1e-3, "bfloat16": 3e-2}
"""Distance of a probed row from its own experts' result, over that result's length."""

Truth = Callable[[Any, Any], Any]
"""(rows, their experts) -> results in float64."""


def _fault(sides: Mapping[str, Mapping[str, Any]], *, truth: Truth, off: float) -> str:
    """Of sides by name: that one lost tokens, or gave probed ones other results than those of their experts."""
    for which, side in sides.items():
        ids = np.sort(side["experts"], axis=1)
        if (ids < 0).any() or (np.diff(ids, axis=1) == 0).any() or (side["handled"] != ids.shape[1]).any():
            return f"{which} lost tokens, or gave one twice to an expert"
        probed = slice(None, None, _stride(len(ids)))
        want = truth(side["probed"], side["experts"][probed])
        apart = np.linalg.norm(side["out"][probed] - want, axis=1)
        # Written so that what is no number is no agreement.
        if not (apart <= off * np.linalg.norm(want, axis=1)).all():
            return f"{which} has results that are not those of the experts that it chose"
    return ""


def _first_choices(before: Mapping[str, Any], after: Mapping[str, Any], *, truth: Truth, off: float) -> Outcome:
    """No side lost a token, probed tokens have the results of their experts, and the side with fewer experts to a token
    took the first of the other's. The value is how far apart the results are, over those of before."""
    if fault := _fault({"before": before, "after": after}, truth=truth, off=off):
        return Outcome(False, fault)
    fewer = min(before["experts"].shape[1], after["experts"].shape[1])
    if not np.array_equal(before["experts"][:, :fewer], after["experts"][:, :fewer]):
        return Outcome(False, "the sides do not agree on the experts that suit a token best")
    apart = float(np.linalg.norm(after["out"] - before["out"]) / np.linalg.norm(before["out"]))
    return Outcome(True, f"the results are {100 * apart:.1f} % of their length apart", apart)


def _conserved(before: Mapping[str, Any], after: Mapping[str, Any], *, truth: Truth, off: float) -> Outcome:
    """Every token went to its number of different experts, tokens with the same experts on both sides have the same
    results, and probed tokens have those of their experts. The value is the share of tokens that went elsewhere."""
    if fault := _fault({"before": before, "after": after}, truth=truth, off=off):
        return Outcome(False, fault)
    same = (np.sort(before["experts"], axis=1) == np.sort(after["experts"], axis=1)).all(axis=1)
    if not np.allclose(before["out"][same], after["out"][same], rtol=_RTOL, atol=_ATOL):
        return Outcome(False, "tokens with the same experts got different results")
    return Outcome(True, f"{100 * np.mean(~same):.1f} % of the tokens went elsewhere", float(np.mean(~same)))


def _rounded(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Both sides had the same tokens, sent each to the same experts, and all of these handled it. The value is how far
    apart the results are, over the length of before's; no token's may be half of its own length away."""
    if not np.array_equal(before["probed"], after["probed"]):
        return Outcome(False, "the sides had different tokens")
    if not all(np.array_equal(before[name], after[name]) for name in ("experts", "handled")):
        return Outcome(False, "the sides do not agree on the experts of a token")
    gaps = np.linalg.norm(after["out"] - before["out"], axis=1)
    lengths = np.linalg.norm(before["out"], axis=1)
    # Written so that what is no number is no agreement.
    if not (gaps <= 0.5 * lengths).all():
        return Outcome(False, "a token's result is more than half of its length from before's")
    apart = float(np.linalg.norm(gaps) / np.linalg.norm(lengths))
    return Outcome(True, f"the results are {100 * apart:.1f} % of their length apart", apart)


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
    gate_bias: float = 0.0,
    replicas: int = 0,
    resident: int = -1,
    expert_bits: Literal[16, 4] = 16,
    execution: Literal["loop", "streams", "grouped", "dense"] = "loop",
    exchange: Literal["none", "blocking"] = "none",
    parts: int = 1,
    wire: Literal["same", "fp8"] = "same",
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> Workload:
    """One forward pass of [tokens, hidden] per rank, each token through ``top_k`` of ``experts`` SwiGLU experts.

    The router is a seeded projection plus a bias that makes expert e about (e + 1) ** -skew as popular as the first.
    ``capacity`` limits an expert to that multiple of its equal share of a rank's tokens; overflow goes to the token's
    next-best expert. With a ``gate_bias`` a rank gates its tokens in blocks of 64; an expert's score falls by the bias
    for each equal share of the rows so far that it got. ``execution``: one expert after the other, each on one of 8
    streams (GPU), all by grouped matrix products (GPU, bfloat16), or ``dense``: every token through one layer of all
    experts' parameters, the hidden units of experts that were not chosen multiplied by zero. ``exchange: blocking``
    deals the experts out to the ranks and sends rows there and back by two all-to-alls; on the CPU a rank then computes
    on one thread. The tokens go in ``parts``, of which one travels while the experts run the one before; ``wire: fp8``
    sends rows in that format, each with a scale of its own. The last rank also holds the first ``replicas`` experts,
    the most popular ones of a skewed router, and gets every second of their rows. Only the first ``resident`` experts
    (-1: all) stay on the device; the others are copied from host memory when a token needs them. With ``expert_bits``
    4 all stay, rounded, with a scale for each 128 weights.

    Outputs: the mixed rows in order, the experts of each token, by how many each was handled, and some of the tokens,
    for the check. FLOPs: 2 x 3 x hidden x expert_hidden for each token and expert that it goes to, over all ranks.
    Items: tokens. Source: AI Systems Performance Engineering, chapters 1, 13, 15 and 20.
    """
    asked = SimpleNamespace(**locals())
    _check_exchange(asked)
    _check(asked)
    return _workload(asked, _joined(asked))


def _joined(asked: SimpleNamespace) -> int:
    """How many ranks there are, after this one has joined them."""
    context = asked.context
    if asked.exchange == "none":
        return 1
    if not context.on_gpu:
        torch.set_num_threads(1)
    context.process_group(context.gang_backend())
    return int(context.world_size)


def _workload(asked: SimpleNamespace, ranks: int) -> Workload:
    context, hidden, tokens, experts, top_k = asked.context, asked.hidden, asked.tokens, asked.experts, asked.top_k
    on_gpu, kind = context.on_gpu, getattr(torch, asked.dtype)
    x = empty(context, (tokens, hidden), kind)
    far, sizes = (
        asked.resident >= 0 or asked.expert_bits == 4,
        {"experts": experts, "hidden": hidden, "inner": asked.expert_hidden},
    )
    bank = running.Bank.draw(context, **sizes, dtype=kind, host=far)
    seats = running.Seats(experts, ranks, asked.replicas)
    mine: Any = bank.share(context.rank if ranks > 1 else 0, seats)
    if asked.expert_bits == 4:
        mine = running.FewBits(bank, device=x.device)
    elif far:
        mine = running.Swapped(bank, resident=asked.resident, device=x.device)
    places = routing.capacity_of(tokens, experts, top_k, asked.capacity)
    router = _Router.draw(asked, places)
    run = running.runner(asked.execution, context.device)
    way = _ExchangeWay(asked.parts, running.Wire(asked.wire == "fp8"))
    layer = _Pass(x, router, mine, run, seats=seats, way=way, dense=asked.execution == "dense")

    def redraw(seed: int) -> None:
        fill_normal(x, seed=seed, name=f"tokens-{context.rank}")

    def truth(rows: Any, chosen: Any) -> Any:
        x, ids = (torch.from_numpy(array).to(router.weight.device) for array in (rows, chosen))
        return bank.mixed(x, ids, router.shares(x, ids)).cpu().numpy()

    redraw(context.seed)
    flops = 6.0 * hidden * asked.expert_hidden * tokens * top_k * ranks
    return Workload(
        step=layer.step,
        work=Work(
            flops=flops,
            items=tokens * ranks,
            item="tokens",
            # Each rank has a GPU of its own.
            peaks=gemm_peak(context.device, asked.dtype, flops / ranks) if on_gpu else {},
        ),
        outputs=layer.outputs,
        inputs=lambda: {"tokens": x},
        redraw=redraw,
        reference=partial(_reference, bank, router, x) if ranks == 1 and not places and not router.by_load else None,
        counters=layer.counters,
        checks={
            "conserved": partial(_conserved, truth=truth, off=_OFF[asked.dtype]),
            "rounded": _rounded,
            "first_choices": partial(_first_choices, truth=truth, off=_OFF[asked.dtype]),
        },
        facts={
            "backend": "none" if ranks == 1 else torch.distributed.get_backend(),
            "ranks": ranks,
            "own_experts": seats.each,
            "copied_bytes": asked.replicas * 3 * hidden * asked.expert_hidden * x.element_size(),
            "places": places,
            "resident": asked.experts if asked.resident < 0 else asked.resident,
            "threads": torch.get_num_threads(),
        },
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


def _check(asked: SimpleNamespace) -> None:
    top_k, experts, capacity, exchange = asked.top_k, asked.experts, asked.capacity, asked.exchange
    if not 1 <= top_k <= experts:
        raise ValueError(f"top_k is {top_k}; it must lie between 1 and the number of experts, {experts}")
    if capacity and capacity < 1:
        raise ValueError(f"a capacity factor of {capacity} leaves too few places; it must be 1 or more, or 0 for none")
    if asked.resident != -1 and (not 0 <= asked.resident < experts or asked.execution != "loop" or exchange != "none"):
        raise ValueError("resident must be -1 (all) or below experts, with execution loop and no exchange")
    if asked.expert_bits == 4 and (asked.resident != -1 or asked.execution != "loop" or exchange != "none"):
        raise ValueError("expert_bits 4 needs resident -1, execution loop and no exchange")
    if asked.expert_bits == 4 and (asked.dtype != "bfloat16" or asked.hidden % 128 or asked.expert_hidden % 128):
        raise ValueError("expert_bits 4 needs dtype bfloat16, and hidden and expert_hidden in groups of 128")
    if asked.gate_bias < 0 or (asked.gate_bias and capacity):
        raise ValueError("gate_bias must be 0 or more, and needs capacity: 0")
    if asked.execution == "dense" and (capacity or exchange != "none"):
        raise ValueError("a dense layer has no places to fill and no ranks; it needs capacity: 0 and exchange: none")
    if asked.execution == "streams" and exchange != "none":
        raise ValueError("execution: streams runs without an exchange")
    if asked.execution in ("streams", "grouped") and not asked.context.on_gpu:
        raise SkipSide("streams and grouped matrix products need a GPU")
    if asked.execution == "grouped" and asked.dtype != "bfloat16":
        raise ValueError("the grouped matrix product takes bfloat16 only")


def _check_exchange(asked: SimpleNamespace) -> None:
    experts, exchange, ranks = asked.experts, asked.exchange, asked.context.world_size
    if exchange == "blocking" and (ranks < 2 or experts % ranks):
        raise ValueError("exchange: blocking needs ranks: 2 or more, and experts that can be dealt out equally")
    if asked.replicas and (exchange == "none" or not 0 < asked.replicas <= experts // ranks):
        raise ValueError("replicas are copies of the first rank's experts on the last: it needs exchange: blocking")
    if (
        asked.parts < 1
        or asked.tokens % asked.parts
        or (exchange == "none" and (asked.parts > 1 or asked.wire == "fp8"))
    ):
        raise ValueError("parts must divide the tokens; parts and wire: fp8 are about exchange: blocking")
    if asked.execution == "grouped" and asked.replicas:
        raise ValueError("a grouped product takes as many experts on each rank; replicas need execution: loop")


@dataclass(frozen=True)
class _Router:
    """A projection of the tokens onto the experts; a token goes to those that it scores highest for."""

    weight: Any
    bias: Any
    top_k: int
    places: int
    by_load: float

    @classmethod
    def draw(cls, asked: SimpleNamespace, places: int) -> _Router:
        weight = torch.empty(asked.hidden, asked.experts, device=asked.context.device)
        fill_normal(weight, seed=asked.context.seed, name="router")
        weight.div_(asked.hidden**0.5)
        bias = routing.skewed_bias(asked.experts, asked.skew).to(asked.context.device)
        return cls(weight, bias, asked.top_k, places, asked.gate_bias)

    def scores(self, x: Any) -> Any:
        """How well each expert suits each token, [tokens, experts]."""
        return x.float() @ self.weight + self.bias

    def shares(self, x: Any, chosen: Any) -> Any:
        """The shares in which the results of each token's experts are mixed."""
        return self.scores(x).gather(1, chosen).softmax(1)

    def choose(self, x: Any) -> tuple[Any, Any]:
        """Experts [tokens, top_k] and the shares in which their results are mixed."""
        scores = self.scores(x)
        if self.by_load:
            chosen = routing.choose_by_load(scores, top_k=self.top_k, bias=self.by_load)
        else:
            chosen = routing.choose(scores, top_k=self.top_k, capacity=self.places)
        return chosen, scores.gather(1, chosen).softmax(1)


@dataclass(frozen=True)
class _ExchangeWay:
    """How a rank's tokens go to other ranks: in how many parts, and as what."""

    parts: int
    wire: running.Wire


class _Pass:
    """A rank's tokens to their experts and back in order, into tensors that stay where they are."""

    def __init__(
        self,
        x: Any,
        router: _Router,
        mine: Any,
        run: running.Run,
        *,
        seats: running.Seats,
        way: _ExchangeWay,
        dense: bool,
    ) -> None:
        self._x, self._router, self._mine, self._run, self._seats, self._way = x, router, mine, run, seats, way
        self._whole = running.Whole.of(mine) if dense else None
        self._out = torch.empty_like(x)
        self._chosen = torch.empty(len(x), router.top_k, dtype=torch.int64, device=x.device)
        self._handled = torch.empty(len(x), dtype=torch.int64, device=x.device)
        self._probed = torch.empty_like(x[:: _stride(len(x))])
        self._load: Any = None
        self._crossed = 0

    def step(self) -> None:
        """The timed region."""
        if isinstance(self._mine, running.Swapped):
            self._mine.fetched = 0
        with torch.no_grad():
            self._mix()

    def _mix(self) -> None:
        chosen, weights = self._router.choose(self._x)
        self._chosen.copy_(chosen)
        if self._whole is None:
            self._mix_sorted(weights)
        else:
            # Every token through every expert.
            shares = self._x.new_zeros(len(self._x), self._seats.experts)
            shares.scatter_(1, self._chosen, weights.to(shares.dtype))
            self._out.copy_(self._whole.run(self._x, shares))
            self._handled.copy_((shares != 0).sum(1))
            self._load = torch.tensor(len(self._x) * self._seats.experts)
        self._probed.copy_(self._x[:: _stride(len(self._x))])

    def _mix_sorted(self, weights: Any) -> None:
        """Tokens sorted by their experts' seats, each expert over its own, and back."""
        cut = self._way.parts
        flats = self._seats.of(self._chosen.flatten()).chunk(cut)
        orders = [flat.argsort(stable=True) for flat in flats]
        sorted_rows = [
            (x[order // self._router.top_k], routing.rows_of_each(flat, self._seats.count))
            for x, flat, order in zip(self._x.chunk(cut), flats, orders, strict=True)
        ]
        if (ranks := self._seats.ranks) > 1:
            done, self._load, self._crossed = running.exchanged(
                sorted_rows, self._mine, self._run, ranks=ranks, wire=self._way.wire
            )
        else:
            ((rows, counts),) = sorted_rows
            done, self._load = [self._run(rows, counts, self._mine)], counts
        back = torch.empty(
            len(self._x) * self._router.top_k, self._x.shape[1], dtype=self._x.dtype, device=self._x.device
        )
        for into, order, rows in zip(back.chunk(cut), orders, done, strict=True):
            into[order] = rows
        back = back.view(*self._chosen.shape, -1)
        torch.sum(back * weights.to(back.dtype).unsqueeze(2), dim=1, out=self._out)
        self._handled.copy_((back != 0).any(2).sum(1))

    def outputs(self) -> dict[str, Any]:
        """Mixed rows in order, the experts of each token, by how many it was handled; some tokens, for the check."""
        return {"out": self._out, "experts": self._chosen, "handled": self._handled, "probed": self._probed}

    def counters(self) -> dict[str, float]:
        """Rows that this rank's experts handled in the last step, what it sent to other ranks, and how many experts
        were copied for it."""
        if self._load is None:
            return {}
        fetched = {"fetched_experts": float(self._mine.fetched)} if isinstance(self._mine, running.Swapped) else {}
        row = self._way.wire.bytes_of(self._x)
        sent = {"sent_bytes": float(self._crossed * row)} if self._seats.ranks > 1 else {}
        return {"own_rows": float(self._load.sum())} | sent | fetched
