"""A decoder whose queries that share keys and values go through attention as one head when a single token is decoded.

What must not live here: layouts, joining a process group, timing.
"""

from __future__ import annotations

from typing import Any

from aiperf.workloads.decoder.model import Decoder, Spot


class Grouped(Decoder):
    """The same results. Kernels that take a mask, as a graph's cache needs, would copy keys and values for each query
    head otherwise."""

    @staticmethod
    def mix(q: Any, k: Any, v: Any, spot: Spot) -> Any:
        """Attention; of one token all query heads of a KV head are the queries of one head."""
        if q.shape[2] > 1:
            return Decoder.mix(q, k, v, spot)
        return Decoder.mix(q.reshape(len(q), k.shape[1], -1, q.shape[3]), k, v, spot).reshape(q.shape)
