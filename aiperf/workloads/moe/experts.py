"""The experts of moe.layer: their weights, the ways to run them over sorted rows, and the exchange between ranks.

What must not live here: routing (routing.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from aiperf.workloads.contract import Context
from aiperf.workloads.quant import few_bits
from aiperf.workloads.shared.queues import Queues, fork, join
from aiperf.workloads.shared.seeded import empty, fill_normal
from aiperf.workloads.shared.triton_gemm import need_triton

_STREAMS = 8
_FP8_MOST = 448.0
"""The largest number of float8_e4m3fn."""


@dataclass(frozen=True)
class Seats:
    """Which rank holds which experts: equal runs of them, and on the last rank the first ``copies`` experts again. All
    ranks have as many seats, their own experts' before those of copies; only the last one's copies are filled."""

    experts: int
    ranks: int
    copies: int = 0

    @property
    def each(self) -> int:
        """Experts that a rank owns."""
        return self.experts // self.ranks

    @property
    def count(self) -> int:
        """Seats of all ranks."""
        return self.ranks * (self.each + self.copies)

    def of(self, chosen: Any) -> Any:
        """The seat to which each row goes, given its expert; of a copied expert every second row goes to the copy.
        Without a host synchronisation."""
        if not self.copies:
            return chosen
        seats = chosen + chosen // self.each * self.copies
        for expert in range(self.copies):
            here = chosen == expert
            seats = torch.where(here & (here.cumsum(0) % 2 == 0), self.count - self.copies + expert, seats)
        return seats


@dataclass(frozen=True)
class Bank:
    """SwiGLU experts: y = (silu(x up') * (x gate')) down', weights [experts, outputs, inputs]."""

    up: Any
    gate: Any
    down: Any

    @classmethod
    def draw(cls, context: Context, *, experts: int, hidden: int, inner: int, dtype: Any, host: bool = False) -> Bank:
        """Weights that depend on the seed alone, scaled so that rows keep their size; on ``host`` or device."""

        def weights(name: str, outputs: int, inputs: int) -> Any:
            drawn = empty(context, (experts, outputs, inputs), dtype, host=host, pinned=host and context.on_gpu)
            fill_normal(drawn, seed=context.seed, name=name)
            return drawn.mul_(inputs**-0.5)

        return cls(weights("up", inner, hidden), weights("gate", inner, hidden), weights("down", hidden, inner))

    @property
    def count(self) -> int:
        """How many experts there are."""
        return len(self.up)

    def share(self, rank: int, seats: Seats) -> Bank:
        """The experts of one rank: an equal run of them; and on the last rank the copies, in memory of their own."""
        mine = slice(rank * seats.each, (rank + 1) * seats.each)
        own = Bank(self.up[mine], self.gate[mine], self.down[mine])
        if not seats.copies or rank != seats.ranks - 1:
            return own
        kinds = ((own.up, self.up), (own.gate, self.gate), (own.down, self.down))
        return Bank(*(torch.cat([held, every[: seats.copies]]) for held, every in kinds))

    def run_one(self, expert: int, rows: Any) -> Any:
        """Rows through one expert."""
        inner = functional.silu(rows @ self.up[expert].t()) * (rows @ self.gate[expert].t())
        return inner @ self.down[expert].t()

    def mixed(self, x: Any, chosen: Any, weights: Any) -> Any:
        """Rows [tokens, hidden] through the experts chosen for each, [tokens, n], mixed by ``weights``; in float64."""
        x, chosen, weights = (array.to(self.up.device) for array in (x, chosen, weights))
        total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for expert in chosen.unique().tolist():
            wide = Bank(*(weight[expert : expert + 1].double() for weight in (self.up, self.gate, self.down)))
            share = (weights.double() * (chosen == expert)).sum(1, keepdim=True)
            took = share[:, 0] != 0
            total[took] += share[took] * wide.run_one(0, x[took].double())
        return total


class Swapped:
    """The first ``resident`` experts of a bank on the device; the others stay in host memory, and each of them that has
    rows is copied into the one place on the device that they share."""

    def __init__(self, bank: Bank, *, resident: int, device: Any) -> None:
        self._far, self._resident = bank, resident
        weights = (bank.up, bank.gate, bank.down)
        self._near = Bank(*(weight[:resident].to(device) for weight in weights))
        self._place = Bank(*(torch.empty_like(weight[:1], device=device) for weight in weights))
        self.count, self.fetched = bank.count, 0

    def run_one(self, expert: int, rows: Any) -> Any:
        """Rows through one expert."""
        if expert < self._resident:
            return self._near.run_one(expert, rows)
        for name in ("up", "gate", "down"):
            getattr(self._place, name)[0].copy_(getattr(self._far, name)[expert], non_blocking=True)
        self.fetched += 1
        return self._place.run_one(0, rows)


class FewBits:
    """All experts of a bank on the device in 4 bits, with a scale for each 128 neighbours of a row; a Triton kernel
    multiplies rows as they are by the codes. Raises SkipSide where Triton cannot run."""

    def __init__(self, bank: Bank, *, device: Any) -> None:
        need_triton(str(device))
        self._kept = [
            [few_bits.packed(weight[expert].to(device)) for weight in (bank.up, bank.gate, bank.down)]
            for expert in range(bank.count)
        ]
        self.count = bank.count

    def run_one(self, expert: int, rows: Any) -> Any:
        """Rows through one expert."""
        up, gate, down = (partial(self._times, *kept) for kept in self._kept[expert])
        return down(functional.silu(up(rows)) * gate(rows))

    @staticmethod
    def _times(codes: Any, scale: Any, rows: Any) -> Any:
        return few_bits.product(rows.contiguous(), None, codes, scale, dtype=rows.dtype)

    @property
    def nbytes(self) -> int:
        """Of codes and scales."""
        return sum(int(part.nbytes) for expert in self._kept for kept in expert for part in kept)


@dataclass(frozen=True)
class Whole:
    """All experts side by side as one dense SwiGLU layer, weights [outputs, inputs]."""

    up: Any
    gate: Any
    down: Any
    experts: int

    @classmethod
    def of(cls, bank: Bank) -> Whole:
        """The same parameters; those of ``down`` in another order."""
        return cls(bank.up.flatten(0, 1), bank.gate.flatten(0, 1), bank.down.transpose(0, 1).flatten(1), bank.count)

    def run(self, rows: Any, shares: Any) -> Any:
        """Rows [tokens, hidden] through all of it; ``shares`` [tokens, experts] multiply each expert's hidden units."""
        inner = functional.silu(rows @ self.up.t()) * (rows @ self.gate.t())
        inner.view(len(rows), self.experts, -1).mul_(shares.unsqueeze(2))
        return inner @ self.down.t()


Run = Callable[[Any, Any, Any], Any]
"""(rows sorted by expert, rows per expert, experts) -> results, row for row."""


def runner(execution: str, device: str) -> Run:
    """The way to run experts that is called ``execution``."""
    if execution != "streams":
        return _grouped if execution == "grouped" else _loop
    queues = Queues(device)
    streams = queues.streams(_STREAMS)

    def by_streams(rows: Any, counts: Any, bank: Bank) -> Any:
        out = torch.empty_like(rows)
        parts = _slices(counts)
        fork(queues, streams)
        for number, (expert, part) in enumerate(parts):
            with torch.cuda.stream(streams[number % len(streams)]):
                out[part] = bank.run_one(expert, rows[part])
        join(queues, streams)
        return out

    return by_streams


def _slices(counts: Any) -> list[tuple[int, slice]]:
    """(expert, its rows) of every expert that has any; the host waits for the counts."""
    ends = counts.cumsum(0).tolist()
    return [(e, slice(a, b)) for e, (a, b) in enumerate(zip([0, *ends], ends, strict=False)) if b > a]


def _loop(rows: Any, counts: Any, bank: Bank) -> Any:
    out = torch.empty_like(rows)
    for expert, part in _slices(counts):
        out[part] = bank.run_one(expert, rows[part])
    return out


def _grouped(rows: Any, counts: Any, bank: Bank) -> Any:
    """Three products over all experts, their borders read on the device, so that the host waits for nothing."""
    multiply = getattr(functional, "grouped_mm", None) or torch._grouped_mm
    ends = counts.cumsum(0).to(torch.int32)
    up = multiply(rows, bank.up.transpose(-2, -1), offs=ends)
    gate = multiply(rows, bank.gate.transpose(-2, -1), offs=ends)
    return multiply(functional.silu(up) * gate, bank.down.transpose(-2, -1), offs=ends)


@dataclass(frozen=True)
class Wire:
    """How rows travel between the ranks: as they are, or ``fp8``: each scaled to that format's range and sent with its
    scale, in a fourth (float32) or half (bfloat16) of the bytes and four more."""

    fp8: bool = False

    def pack(self, rows: Any) -> Any:
        """What is sent for rows, one row each."""
        if not self.fp8:
            return rows
        scales = rows.abs().amax(1, keepdim=True).float().clamp_min(1e-12) / _FP8_MOST
        small = (rows.float() / scales).to(torch.float8_e4m3fn)
        return torch.cat([small.view(torch.uint8), scales.view(torch.uint8)], dim=1)

    def unpack(self, sent: Any, like: Any) -> Any:
        """The rows again, of the type of ``like``."""
        if not self.fp8:
            return sent
        scales = sent[:, -4:].contiguous().view(torch.float32)
        return (sent[:, :-4].contiguous().view(torch.float8_e4m3fn).float() * scales).to(like.dtype)

    def bytes_of(self, rows: Any) -> int:
        """Bytes that a row takes."""
        return int(rows.shape[1] + 4 if self.fp8 else rows.shape[1] * rows.element_size())


class _RowsOnTheWay:
    """Rows of one part of the tokens on their way to the experts' ranks and back."""

    def __init__(self, rows: Any, counts: Any, arriving: Any, *, ranks: int, wire: Wire) -> None:
        self.rows, self._wire, self._counts = rows, wire, counts
        self._by_source = arriving.view(ranks, -1)
        self._sent = counts.view(ranks, -1).sum(1)
        self._received = self._by_source.sum(1)
        self._work: Any = None

    def totals(self) -> list[Any]:
        """How many rows go to each rank and come from each, on the device still."""
        return [self._sent, self._received]

    def leave(self, sent: list[int], received: list[int]) -> None:
        """Send the rows, without waiting."""
        self.sent, self.received = sent, received
        self._packed = self._wire.pack(self.rows)
        self._inbox = self._packed.new_empty(sum(received), self._packed.shape[1])
        self._work = dist.all_to_all_single(self._inbox, self._packed, received, sent, async_op=True)

    def run(self, mine: Bank, run: Run) -> Any:
        """Run the rows that arrived through the experts, and send the results back without waiting. The rows that each
        seat of this rank handled."""
        self._work.wait()
        arrived = self._wire.unpack(self._inbox, self.rows)
        # They arrive source by source, each sorted by expert; the experts want them expert by expert.
        seats = torch.arange(self._by_source.shape[1], device=self.rows.device)
        expert_of = seats.repeat(len(self._by_source)).repeat_interleave(
            self._by_source.flatten(), output_size=len(arrived)
        )
        order = expert_of.argsort(stable=True)
        load = self._by_source.sum(0)
        results = torch.empty_like(arrived)
        results[order] = run(arrived[order], load, mine)
        self._outbox = self._wire.pack(results)
        self._back = torch.empty_like(self._packed)
        self._work = dist.all_to_all_single(self._back, self._outbox, self.sent, self.received, async_op=True)
        return load

    def returned(self) -> Any:
        """The results of this rank's rows, in their order."""
        self._work.wait()
        return self._wire.unpack(self._back, self.rows)

    def crossed(self, rank: int) -> int:
        """Rows that this rank sent to others, there and back."""
        return sum(self.sent) - self.sent[rank] + sum(self.received) - self.received[rank]


def exchanged(
    parts: list[tuple[Any, Any]], mine: Bank, run: Run, *, ranks: int, wire: Wire
) -> tuple[list[Any], Any, int]:
    """Parts of a rank's rows, each (rows sorted by seat, rows for each seat), sent to the ranks of their seats, run
    there and sent back; the rows that each seat of this rank handled; and how many rows this rank sent to others, there
    and back. The rows of a part travel while those of the part before are run."""
    counts = torch.stack([counts for _, counts in parts])
    arriving = torch.empty_like(counts.view(len(parts), ranks, -1).transpose(0, 1).contiguous())
    dist.all_to_all_single(arriving, counts.view(len(parts), ranks, -1).transpose(0, 1).contiguous())
    on_way = [
        _RowsOnTheWay(rows, own, arriving[:, number].contiguous(), ranks=ranks, wire=wire)
        for number, (rows, own) in enumerate(parts)
    ]
    # The host waits once, for the sizes of all parts.
    sizes = torch.stack([total for part in on_way for total in part.totals()]).tolist()
    for part, sent, received in zip(on_way, sizes[::2], sizes[1::2], strict=True):
        part.leave(sent, received)
    load = sum(part.run(mine, run) for part in on_way)
    rank = dist.get_rank()
    return [part.returned() for part in on_way], load, sum(part.crossed(rank) for part in on_way)
