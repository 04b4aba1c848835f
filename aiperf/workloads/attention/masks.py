"""Which keys a query sees: as a rule, a count and a dense tensor; query i is at position kv_len - q_len + i.

What must not live here: attention itself, timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Mask:
    """``none``, ``causal``, ``sliding`` (the ``window`` newest keys) or ``document`` (of ``window`` tokens each); and
    what a key's distance takes from its score, by ``slope`` for each position."""

    kind: str
    q_len: int
    kv_len: int
    window: int = 0
    slope: float = 0.0

    def __post_init__(self) -> None:
        if self.kind in ("sliding", "document") and self.window < 1:
            raise ValueError(f"mask {self.kind} needs a window of 1 or more, not {self.window}")
        if not 1 <= self.q_len <= self.kv_len:
            raise ValueError(f"q_len is {self.q_len}; it must lie between 1 and kv_len, which is {self.kv_len}")

    def allowed(self, query: Any, key: Any) -> Any:
        """Whether query number ``query`` sees key number ``key``; integers or tensors that broadcast."""
        at = query + (self.kv_len - self.q_len)
        if self.kind == "none":
            return key >= 0
        if self.kind == "causal":
            return key <= at
        if self.kind == "sliding":
            return (key <= at) & (at - key < self.window)
        return (key <= at) & (at // self.window == key // self.window)

    def pairs(self) -> int:
        """Allowed query-key pairs of one head."""
        if self.kind == "none":
            return self.q_len * self.kv_len
        at = range(self.kv_len - self.q_len, self.kv_len)
        if self.kind == "causal":
            return sum(p + 1 for p in at)
        if self.kind == "sliding":
            return sum(min(p + 1, self.window) for p in at)
        return sum(p % self.window + 1 for p in at)

    def keys_seen(self) -> int:
        """Keys that at least one query sees."""
        if self.kind in ("none", "causal"):
            return self.kv_len
        first = self.kv_len - self.q_len
        start = first - self.window + 1 if self.kind == "sliding" else first // self.window * self.window
        return self.kv_len - max(0, start)

    def distance_score(self, query: Any, key: Any) -> Any:
        """What is added to the score of key number ``key`` for query number ``query``: 0 for its own, else less."""
        return (key - query - (self.kv_len - self.q_len)) * self.slope

    def bias(self, device: str, dtype: Any) -> Any:
        """``distance_score`` of all pairs [q_len, kv_len]; None without a slope."""
        if not self.slope:
            return None
        query = torch.arange(self.q_len, device=device)[:, None]
        return self.distance_score(query, torch.arange(self.kv_len, device=device)[None, :]).to(dtype)

    def hidden(self, device: str) -> Any:
        """Boolean [q_len, kv_len], true where a query must not look; None for ``none``."""
        if self.kind == "none":
            return None
        query = torch.arange(self.q_len, device=device)[:, None]
        return ~self.allowed(query, torch.arange(self.kv_len, device=device)[None, :])
