"""A decoding step of attention over keys and values kept in few bits, and how far it is from attention over exact ones.

What must not live here: the caches (workloads/decoder), the step's caller, timing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.decoder import caches
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.seeded import draw_on_device, empty, generator

_OUTLIER = 8.0
"""How many times as large the channels are that are drawn larger."""


class RoundedAttention:
    """One query a head against all keys; the newest key and value come with it and are rounded in the step."""

    def __init__(self, context: Context, asked: SimpleNamespace) -> None:
        self._asked = asked
        self._apart = (asked.batch, asked.kv_len, asked.heads, asked.head_dim)
        wide = asked.heads * asked.head_dim
        self.q = empty(context, (asked.batch, asked.heads, 1, asked.head_dim), torch.float32)
        self.k, self.v = (empty(context, (asked.batch, 1, asked.kv_len, wide), torch.float32) for _ in "kv")
        room = caches.Room(
            layers=1, batch=asked.batch, kv_heads=1, head_dim=wide, tokens=asked.kv_len, device=context.device
        )
        older = caches.Quantised(room, bits=asked.kv_bits, group=asked.kv_group or wide)
        window = asked.kv_recent + 1
        self.cache: caches.Quantised | caches.RecentExact = older
        if asked.kv_recent:
            self.cache = caches.RecentExact(older, caches.Windowed(room, window=window, spare=1))
        distance = torch.arange(asked.kv_len - 1, -1, -1, dtype=torch.float32, device=context.device)
        self._bias = -asked.recency * distance if asked.recency else None
        self._seed = context.seed
        self._out: Any = None
        self._exact: Any = None
        self.redraw(context.seed)

    def redraw(self, seed: int) -> None:
        """Other queries, keys and values; the cache holds all but the newest."""
        for name, array in self.inputs().items():
            draw_on_device(array, seed=seed, name=name)
        if self._asked.outlier_channels:
            wide = self.k.shape[-1]
            large = generator(seed, "outliers").permutation(wide)[: self._asked.outlier_channels].copy()
            self.k[..., torch.from_numpy(large).to(self.k.device)] *= _OUTLIER
        self.cache.truncate(0)
        self.cache.extend(0, self.k[:, :, :-1], self.v[:, :, :-1])
        self.cache.advance(self._asked.kv_len - 1)
        self._exact = None

    def inputs(self) -> dict[str, Any]:
        """What is drawn."""
        return {"q": self.q, "k": self.k, "v": self.v}

    def step(self) -> None:
        """The newest token is kept, all are read back as floats and attended to."""
        self.cache.truncate(self._asked.kv_len - 1)
        k, v = self.cache.extend(0, self.k[:, :, -1:], self.v[:, :, -1:])
        self.cache.advance(1)
        self._out = self._attend(self.q, k, v)

    def _attend(self, q: Any, k: Any, v: Any) -> Any:
        keys, values = (array.reshape(self._apart).transpose(1, 2) for array in (k, v))
        bias = None if self._bias is None else self._bias.to(q.dtype)[None]
        return scaled_dot_product_attention(q, keys, values, attn_mask=bias)

    def outputs(self) -> dict[str, Any]:
        """The latest result [batch, heads, 1, head_dim]."""
        return {} if self._out is None else {"out": self._out}

    def reference(self) -> dict[str, Any]:
        """Attention over the unrounded keys and values, in float64."""
        return {"out": self._attend(self.q.double(), self.k.double(), self.v.double())}

    def values(self) -> dict[str, float]:
        """How far a head's latest result is from the exact one, on average, and the memory that the cache holds."""
        if self._exact is None:
            self._exact = self.reference()["out"]
        error = (self._out.double() - self._exact).norm(dim=-1) / self._exact.norm(dim=-1)
        return {"output_error": float(error.mean()), "kv_bytes": float(self.cache.nbytes)}


def rounded_workload(context: Context, asked: SimpleNamespace) -> Workload:
    """The side that ``asked`` describes."""
    side = RoundedAttention(context, asked)
    side.step()
    pairs = asked.batch * asked.heads * asked.kv_len
    moved = float(2 * pairs * asked.head_dim * 4 + 2 * side.q.nbytes)
    return Workload(
        step=side.step,
        work=Work(bytes=moved, flops=4.0 * pairs * asked.head_dim, items=asked.batch, item="tokens"),
        outputs=side.outputs,
        inputs=side.inputs,
        redraw=side.redraw,
        reference=side.reference,
        values=side.values,
        checks={"relative_frobenius": relative_frobenius},
        facts={"bits_per_value": 8 * side.cache.nbytes / (2 * pairs * asked.head_dim)},
    )
