"""What torch.compile has done in this process so far.

What must not live here: compiling, and importing the compiler.
"""

from __future__ import annotations

import sys


def compiler_counts(*names: str) -> dict[str, float]:
    """The counts called ``names``, all zero before the compiler is imported: graphs traced, cut_graphs (compiled after
    cuts at DDP's buckets), compiles of frames, graph_breaks, cache_hits, graph_skips (compiled
    code that could not be replayed as a CUDA graph)."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return dict.fromkeys(names, 0.0)
    counters = dynamo.counters
    found = {
        "graphs": counters["stats"]["unique_graphs"],
        "cut_graphs": counters["aot_autograd"]["total"],
        "compiles": counters["frames"]["total"],
        "graph_skips": counters["inductor"]["cudagraph_skips"],
        "graph_breaks": sum(counters["graph_break"].values()),
        "cache_hits": counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"],
    }
    return {name: float(found[name]) for name in names}
