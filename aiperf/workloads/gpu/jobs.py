"""The independent jobs that share a GPU inside one process: what each of them queues, reads and writes.

What must not live here: streams, threads and processes, which decide how the jobs share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aiperf.workloads.contract import Context
from aiperf.workloads.shared.chain import WORD, Chain, fill_words
from aiperf.workloads.shared.queues import replay_of
from aiperf.workloads.shared.seeded import own_seed

NAMES = ("tiny", "small", "filling", "gemm", "copy", "h2d", "decode", "prefill")
CHAINED = {"tiny": (1, 32), "small": (16, 256), "filling": (128, 256)}
"""Job -> blocks and threads of its kernel, each thread with a word of its own: a small part of a GPU, but for filling,
which has a block for each multiprocessor of a large one."""
GEMM = 4096
COPY = 256 << 20
H2D = 8 << 20
DECODE_WIDTH = 2048
DECODE_LAYERS = 12
TOKENS = {"decode": 1, "prefill": 4096}
"""Job -> rows that go through the layers."""


@dataclass(frozen=True)
class Job:
    """One job with arrays of its own."""

    run: Callable[[], object]
    """Queue the job on torch's current stream."""
    source: Any
    result: Any
    redraw: Callable[[int], None]
    """Draw the source in place."""
    bytes: float = 0
    flops: float = 0
    done: Any = None
    """How often it has run, a 64-bit number on the GPU that each run raises; None: it is not counted."""


def make_jobs(
    context: Context, names: Sequence[str], *, rounds: int, priorities: Sequence[int] = ()
) -> tuple[list[Job], Chain | None]:
    """One job for each name, and the compiled kernels when one of them needs them. ``priorities``: of the streams that
    the jobs will be queued on, in turn; runs of ``decode`` and ``prefill`` are counted then."""
    device = torch.device(context.device)
    chain = Chain(context.device) if any(n in CHAINED for n in names) else None
    weights = _weights(context.seed, device) if set(TOKENS) & set(names) else []

    def chained(name: str) -> Job:
        assert chain is not None
        kernels, (grid, block) = chain, CHAINED[name]
        words = grid * block
        x, y = (torch.zeros(words, dtype=torch.int32, device=device) for _ in range(2))

        def run() -> None:
            kernels.queue("spin", x.data_ptr(), y.data_ptr(), n=words, rounds=rounds, grid=grid, block=block)

        return Job(run, x, y, lambda seed: fill_words(x, seed=seed), bytes=2.0 * words * WORD)

    def layered(name: str, index: int) -> Job:
        priority = priorities[index] if priorities else 0
        return _layers(weights, device, tokens=TOKENS[name], priority=priority, counted=bool(priorities))

    makers: dict[str, Callable[[Any], Job]] = {"gemm": _gemm, "copy": _copy, "h2d": _h2d}
    jobs = [
        layered(name, index) if name in TOKENS else makers[name](device) if name in makers else chained(name)
        for index, name in enumerate(names)
    ]
    for index, job in enumerate(jobs):
        job.redraw(own_seed(context.seed, str(index)))
    return jobs, chain


def _gemm(device: Any) -> Job:
    a, c = (torch.zeros(GEMM, GEMM, dtype=torch.bfloat16, device=device) for _ in range(2))
    return Job(lambda: torch.mm(a, a, out=c), a, c, _normal(a), bytes=2.0 * a.nbytes, flops=2.0 * GEMM**3)


def _copy(device: Any) -> Job:
    x, y = (torch.zeros(COPY // WORD, dtype=torch.int32, device=device) for _ in range(2))
    return Job(lambda: y.copy_(x), x, y, lambda seed: fill_words(x, seed=seed), bytes=float(COPY))


def _h2d(device: Any) -> Job:
    x = torch.zeros(H2D // WORD, dtype=torch.int32, pin_memory=True)
    y = torch.zeros(H2D // WORD, dtype=torch.int32, device=device)
    run = lambda: y.copy_(x, non_blocking=True)  # noqa: E731
    return Job(run, x, y, lambda seed: fill_words(x, seed=seed), bytes=float(H2D))


def _weights(seed: int, device: Any) -> list[Any]:
    generator = torch.Generator(device=device).manual_seed(own_seed(seed, "weights"))
    shape = (DECODE_WIDTH, DECODE_WIDTH)
    drawn = [torch.empty(shape, dtype=torch.bfloat16, device=device) for _ in range(DECODE_LAYERS)]
    return [w.normal_(std=(2 / DECODE_WIDTH) ** 0.5, generator=generator) for w in drawn]


def _layers(weights: Sequence[Any], device: Any, *, tokens: int, priority: int, counted: bool) -> Job:
    """``tokens`` rows through the shared weights, as a captured graph: launching must not be what is timed."""
    x, y = (torch.zeros(tokens, DECODE_WIDTH, dtype=torch.bfloat16, device=device) for _ in range(2))

    done = torch.zeros(1, dtype=torch.int64, device=device) if counted else None

    def forward() -> None:
        hidden = x
        for weight in weights:
            hidden = torch.relu(hidden @ weight)
        y.copy_(hidden)
        if done is not None:
            done.add_(1)

    # A stream of its own, so that no two graphs share the matrix library's workspace while they run side by side. torch
    # instantiates graphs so that their kernels keep the priority of the stream of the capture, wherever they are
    # replayed.
    replay = replay_of(forward, stream=torch.cuda.Stream(device, priority=priority))
    size = float(sum(w.nbytes for w in weights))
    return Job(replay, x, y, _normal(x), bytes=size, flops=tokens * size, done=done)


def _normal(tensor: Any) -> Callable[[int], None]:
    generator = torch.Generator(device=tensor.device)

    def redraw(seed: int) -> None:
        tensor.normal_(generator=generator.manual_seed(seed))

    return redraw
