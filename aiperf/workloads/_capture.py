"""Capturing a pass over the GPU as a CUDA graph.

What must not live here: what is captured, captures over several streams (stream.py, _gpu_jobs.py).
"""

from __future__ import annotations

from collections.abc import Callable


def replay_of(step: Callable[[], None]) -> Callable[[], None]:
    """Replay of a captured ``step``, which ran three times on a side stream first, as torch asks of a capture."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay
