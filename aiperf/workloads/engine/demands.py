"""The requests of one iteration: when each arrives, how long its prompt and its answer are, what it shares.

What must not live here: waiting for arrivals, what becomes of a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from aiperf.workloads.shared.seeded import generator, own_seed

_BURST = 8
"""Requests that arrive together in bursts."""
_WAVE, _QUIET, _BUSY = 8, 1.9, 0.1
"""Requests that come slowly, then so many that come fast, in waves; gaps of each, in those of the rate."""
_AGAIN_S = 0.001
"""From a request to its next repetition."""
_LONG_OF_FOUR = (False, True, False, False)
"""Which of four requests with two lengths have a long prompt, or a long answer."""
_LONG_OF_SIX = (True, False, True, False, False, False)
"""The book's six prompts that arrive together (chapter 16)."""


@dataclass(frozen=True)
class Demand:
    """One request of the schedule."""

    number: int
    at: float
    """Seconds after the start of an iteration."""
    prompt_tokens: int
    new_tokens: int
    urgent: bool = False
    standard: bool = False
    """Of the class between urgent ones and the rest."""
    text: int = -1
    """Prompts with one text begin alike, the shorter to its end; -1: a text of its own."""

    @property
    def tier(self) -> int:
        """0 where it is urgent, 1 where it is standard, else 2."""
        return 0 if self.urgent else 1 if self.standard else 2


def draw_demands(asked: SimpleNamespace, seed: int) -> tuple[Demand, ...]:
    """The schedule that ``asked`` describes (see ``serve.engine``), by arrival; equal seeds, equal schedules."""
    draw = generator(seed, "demands")
    count = asked.requests // asked.repeats
    prompts = _prompts(asked, count, draw)
    new = _spread(asked.new_tokens, count, draw)
    texts: Any = [-1] * count
    if asked.lengths == "conversations":
        prompts, texts = _turns(asked.prompt_tokens, count, asked.sessions, draw)
    elif asked.lengths == "popular":
        prompts, texts = _popular(asked.prompt_tokens, count, asked.sessions, draw)
    elif asked.lengths == "shifting":
        new = [asked.new_tokens[number >= count // 2] for number in range(count)]
    elif asked.lengths == "opposed":
        new = [asked.new_tokens[prompt == asked.prompt_tokens[0]] for prompt in prompts]
    elif asked.lengths == "tails":
        new = [asked.new_tokens[int(place < count // 4)] for place in draw.permutation(count)]
    times = _times(asked.arrivals, asked.rate / asked.repeats, count, draw)
    place = draw.permutation(count)
    urgent = place < round(asked.urgent * count)
    standard = ~urgent & (place < round((asked.urgent + asked.standard) * count))
    drawn = zip(times, prompts, new, urgent, standard, texts, strict=True)
    demands = tuple(
        Demand(number, float(at), int(prompt), int(tokens), bool(first), bool(second), int(text))
        for number, (at, prompt, tokens, first, second, text) in enumerate(drawn)
    )
    return _repeated(demands, asked.repeats) if asked.repeats > 1 else demands


def _repeated(demands: Sequence[Demand], times: int) -> tuple[Demand, ...]:
    """Each request ``times`` in all, one soon after the other."""
    return tuple(
        replace(one, number=one.number * times + again, at=one.at + again * _AGAIN_S, text=one.number * times)
        for one in demands
        for again in range(times)
    )


def _prompts(asked: SimpleNamespace, count: int, draw: np.random.Generator) -> Any:
    """Lengths of prompts that do not depend on each other."""
    low, high = asked.prompt_tokens
    patterns = {"two": _LONG_OF_FOUR, "opposed": _LONG_OF_FOUR, "six": _LONG_OF_SIX}
    patterns["shifting"] = (True,) * (count // 2) + (False,) * count
    if (pattern := patterns.get(asked.lengths)) is None:
        return _spread(asked.prompt_tokens, count, draw)
    return [high if pattern[number % len(pattern)] else low for number in range(count)]


def _turns(span: list[int], count: int, sessions: int, draw: np.random.Generator) -> tuple[Any, Any]:
    """Prompts of ``sessions`` conversations, and which each belongs to: turn after turn, in each in another order; a
    prompt is that of the turn before and as many tokens more as every turn adds."""
    texts = np.concatenate([draw.permutation(sessions) for _ in range(-(-count // sessions))])[:count]
    low, high = span
    lengths = np.rint(np.linspace(low, high, -(-count // sessions))).astype(int)
    return lengths[np.arange(count) // sessions], texts


def _popular(span: list[int], count: int, sessions: int, draw: np.random.Generator) -> tuple[Any, Any]:
    """Prompts that are asked again and again, and which each is: of ``sessions`` texts, each with a length of its own,
    drawn as 1 / rank."""
    weights = 1.0 / np.arange(1, sessions + 1)
    texts = draw.choice(sessions, count, p=weights / weights.sum())
    return _spread(span, sessions, draw)[texts], texts


def _spread(span: list[int], count: int, draw: np.random.Generator) -> Any:
    """Lengths at even steps of their logarithm, so that short ones are many and both ends are there, in any order."""
    low, high = span
    return draw.permutation(np.rint(np.geomspace(low, high, count)).astype(int))


def _times(arrivals: str, rate: float, count: int, draw: np.random.Generator) -> Any:
    """Seconds of each arrival; poisson: as such a process arrives when so many come in the time they take at this
    rate."""
    if not rate:
        return np.zeros(count)
    if arrivals == "bursty":
        return np.arange(count) // _BURST * _BURST / rate
    if arrivals == "waves":
        gaps = np.where(np.arange(count) // _WAVE % 2, _BUSY, _QUIET) / rate
        return np.cumsum(gaps) - gaps[0]
    times = np.sort(draw.uniform(0.0, count / rate, count))
    return times - times[0]


def draw_prompts(into: Any, demands: tuple[Demand, ...], *, shared: int, vocab: int, seed: int) -> None:
    """Fill [requests, longest prompt] in place with tokens, the first ``shared`` equal in all; zeros past a prompt."""
    source = torch.Generator().manual_seed(own_seed(seed, "prompts"))
    into.copy_(torch.randint(vocab, into.shape, generator=source))
    into.copy_(into[[demand.number if demand.text < 0 else demand.text for demand in demands]])
    into[:, :shared] = into[0, :shared].clone()
    for demand in demands:
        into[demand.number, demand.prompt_tokens :] = 0


def unique_tokens(demands: Sequence[Demand], shared: int) -> int:
    """Tokens of all prompts, those counted once with which several begin."""
    longest: dict[int, int] = {}
    for one in demands:
        text = one.text if one.text >= 0 else -1 - one.number
        longest[text] = max(longest.get(text, 0), one.prompt_tokens)
    return sum(longest.values()) - shared * (len(longest) - 1)
