"""The requests of one iteration: when each arrives, how long its prompt and its answer are, what it shares.

What must not live here: waiting for arrivals, what becomes of a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from aiperf.workloads.shared.seeded import generator, own_seed

_BURST = 8
"""Requests that arrive together in bursts."""
_LONG = 4
"""Of so many requests with two lengths one has a long prompt."""


@dataclass(frozen=True)
class Demand:
    """One request of the schedule."""

    number: int
    at: float
    """Seconds after the start of an iteration."""
    prompt_tokens: int
    new_tokens: int
    urgent: bool = False


def draw_demands(asked: SimpleNamespace, seed: int) -> tuple[Demand, ...]:
    """The schedule that ``asked`` describes (see ``serve.engine``), by arrival; equal seeds, equal schedules."""
    draw = generator(seed, "demands")
    count = asked.requests
    prompts = _two(asked.prompt_tokens, count) if asked.lengths == "two" else _spread(asked.prompt_tokens, count, draw)
    new = _spread(asked.new_tokens, count, draw)
    times = _times(asked.arrivals, asked.rate, count, draw)
    urgent = draw.permutation(count) < round(asked.urgent * count)
    return tuple(
        Demand(number, float(at), int(prompt), int(tokens), bool(first))
        for number, (at, prompt, tokens, first) in enumerate(zip(times, prompts, new, urgent, strict=True))
    )


def _spread(span: list[int], count: int, draw: np.random.Generator) -> Any:
    """Lengths at even steps of their logarithm, so that short ones are many and both ends are there, in any order."""
    low, high = span
    return draw.permutation(np.rint(np.geomspace(low, high, count)).astype(int))


def _two(span: list[int], count: int) -> Any:
    """Short prompts, and at even distances long ones."""
    return [span[1] if number % _LONG == 1 else span[0] for number in range(count)]


def _times(arrivals: str, rate: float, count: int, draw: np.random.Generator) -> Any:
    """Seconds of each arrival; poisson: as such a process arrives when so many come in the time they take at this
    rate."""
    if not rate:
        return np.zeros(count)
    if arrivals == "bursty":
        return np.arange(count) // _BURST * _BURST / rate
    times = np.sort(draw.uniform(0.0, count / rate, count))
    return times - times[0]


def draw_prompts(into: Any, demands: tuple[Demand, ...], *, shared: int, vocab: int, seed: int) -> None:
    """Fill [requests, longest prompt] in place with tokens, the first ``shared`` equal in all; zeros past a prompt."""
    source = torch.Generator().manual_seed(own_seed(seed, "prompts"))
    into.copy_(torch.randint(vocab, into.shape, generator=source))
    into[:, :shared] = into[0, :shared].clone()
    for demand in demands:
        into[demand.number, demand.prompt_tokens :] = 0
