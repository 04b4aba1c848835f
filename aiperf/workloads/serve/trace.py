"""The schedule of a load: when each request comes, its prompt, how many tokens it asks for; written before the start.

What must not live here: sending anything, and the keys that a scenario may write (workload.py).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

_TEXT = """
time year people way day man thing woman life child world school state family student group country problem hand
part place case week company system program question work government number night point home water room mother
area money story fact month lot right study book eye job word business issue side kind head house service friend
father power hour game line end member law car city community name president team minute idea body information
back parent face others level office door health person art war history party result change morning reason
"""
WORDS = tuple(_TEXT.split())
"""Words that common tokenizers have as one token each."""
_BLOCK = 64
"""Characters by which prompts are compared from their beginning."""


class TraceError(ValueError):
    """A trace that cannot be made or read; the text says where."""


@dataclass(frozen=True)
class Arrival:
    """One request of the schedule."""

    at: float
    """Seconds after the start of its segment."""
    prompt: str
    output_tokens: int


@dataclass(frozen=True)
class Segment:
    """A part of the schedule that is sent in one turn."""

    arrivals: tuple[Arrival, ...]
    seconds: float
    """What it lasts at the rate of the trace, whatever the server does."""

    @property
    def rate(self) -> float:
        """Requests a second, as scheduled."""
        return len(self.arrivals) / self.seconds

    def at_rate(self, rate: float) -> Segment:
        """The same requests in the same pattern at another rate."""
        factor = self.rate / rate
        return Segment(tuple(replace(a, at=a.at * factor) for a in self.arrivals), self.seconds * factor)


def make_segments(spec: Mapping[str, Any] | str, *, count: int, seed: int, load: float = 0.0) -> tuple[Segment, ...]:
    """The trace of ``spec``, keys of ``workload.Trace`` or a file, cut into ``count`` segments of as many requests.

    ``load``: requests a second in place of the trace's own rate. Raises TraceError.
    """
    if isinstance(spec, str):
        arrivals = read_trace(Path(spec), seed=seed)
        # The gap after the last one is taken to be as long as the others.
        seconds = max(arrivals[-1].at * len(arrivals) / max(1, len(arrivals) - 1), 1e-3)
        if load:
            factor, seconds = len(arrivals) / load / seconds, len(arrivals) / load
            arrivals = [replace(a, at=a.at * factor) for a in arrivals]
    else:
        arrivals = _drawn({**spec, **({"rate": load} if load else {})}, seed)
        seconds = len(arrivals) / (load or float(spec["rate"]))
    if len(arrivals) < count:
        raise TraceError(
            f"the trace has {len(arrivals)} requests for {count} segments: write segments: {len(arrivals)}"
        )
    return tuple(_cut(arrivals, count, seconds))


def known_share(prompts: Sequence[str]) -> float:
    """Share of the text of these prompts, in this order, with which an earlier one begins, too: what an empty prefix
    cache can find at most."""
    seen: set[str] = set()
    known = total = 0
    for prompt in prompts:
        heads = [prompt[: end + _BLOCK] for end in range(0, len(prompt), _BLOCK)]
        known += _BLOCK * sum(head in seen for head in heads)
        total += _BLOCK * len(heads)
        seen.update(heads)
    return known / total if total else 0.0


def words(count: int, draw: random.Random) -> str:
    """A prompt of so many words."""
    return " ".join(draw.choices(WORDS, k=max(1, count)))


# ---- drawn -----------------------------------------------------------------------------------------------------------


def _drawn(spec: Mapping[str, Any], seed: int) -> list[Arrival]:
    known = dict(spec)
    rate, requests = _above(known, "rate"), int(_above(known, "requests"))
    share = float(known.get("shared_prefix", 0.0))
    if not 0 <= share < 1:
        raise TraceError(f"trace.shared_prefix: {share:g} is not a share: write a number from 0 to below 1")
    prompts, outputs = _span(known, "prompt_tokens", 128), _span(known, "output_tokens", 32)
    draw = random.Random(f"{known.get('seed', seed)}-trace")
    times = _times(str(known.get("arrivals", "poisson")), rate, requests, int(known.get("burst", 8)), draw)
    prefix = words(prompts[1], draw).split()
    arrivals = []
    for at in times:
        length = draw.randint(*prompts)
        shared = round(share * length)
        text = " ".join([*prefix[:shared], words(length - shared, draw)])
        arrivals.append(Arrival(at, text, draw.randint(*outputs)))
    return arrivals


def _times(arrivals: str, rate: float, requests: int, burst: int, draw: random.Random) -> list[float]:
    """Seconds of each arrival. poisson: as such a process arrives when so many come in the time that they take at this
    rate, so that the rate is exactly what was asked for; bursty: so many at once."""
    if arrivals == "constant":
        return [number / rate for number in range(requests)]
    if arrivals == "bursty":
        return [burst * (number // burst) / rate for number in range(requests)]
    return sorted(draw.uniform(0.0, requests / rate) for _ in range(requests))


def _above(spec: Mapping[str, Any], key: str) -> float:
    value = float(spec.get(key, 0))
    if not value > 0:
        raise TraceError(f"trace.{key}: {spec.get(key, 'not given')}; write a number above 0")
    return value


def _span(spec: Mapping[str, Any], key: str, default: int) -> tuple[int, int]:
    given = spec.get(key, default)
    ends = given if isinstance(given, list) else [given, given]
    if len(ends) != 2 or not 1 <= ends[0] <= ends[1]:
        raise TraceError(f"trace.{key}: {given} is not a length: write a number of tokens, or [fewest, most]")
    return ends[0], ends[1]


# ---- from a file -----------------------------------------------------------------------------------------------------


def read_trace(path: Path, *, seed: int) -> list[Arrival]:
    """The requests of a file of JSON lines: ``timestamp`` in seconds, ``prompt`` or ``prompt_tokens``, and
    ``output_tokens``; a prompt of which only the length is given has words drawn from ``seed``. Raises TraceError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"the trace {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    draw = random.Random(f"{seed}-{path.name}")
    arrivals = [_arrival(line, f"{path.name}:{number}", draw) for number, line in enumerate(lines, 1) if line.strip()]
    for number, (before, after) in enumerate(pairwise(arrivals), 2):
        if after.at < before.at:
            raise TraceError(
                f"{path.name}: request {number} has timestamp {after.at:g}, before that of the one above it"
            )
    if not arrivals:
        raise TraceError(f"the trace {path} holds no request")
    return [replace(a, at=a.at - arrivals[0].at) for a in arrivals]


def _arrival(line: str, where: str, draw: random.Random) -> Arrival:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise TraceError(f"{where} is not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise TraceError(
            f'{where} is not an object: write {{"timestamp": 0.5, "prompt_tokens": 64, "output_tokens": 32}}'
        )
    at, prompt = _number(entry, "timestamp", where, least=0.0), entry.get("prompt")
    if prompt is None:
        prompt = words(int(_number(entry, "prompt_tokens", where, least=1)), draw)
    if not isinstance(prompt, str) or not prompt:
        raise TraceError(f"{where}: prompt is not text")
    return Arrival(at, prompt, int(_number(entry, "output_tokens", where, least=1)))


def _number(entry: Mapping[str, Any], key: str, where: str, *, least: float) -> float:
    value = entry.get(key)
    if value is None:
        raise TraceError(f"{where}: {key} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise TraceError(f"{where}: {key} is {json.dumps(value)}; write a number of {least:g} or more")
    return float(value)


# ---- cutting ---------------------------------------------------------------------------------------------------------


def _cut(arrivals: Sequence[Arrival], count: int, seconds: float) -> Iterator[Segment]:
    """Segments of as many requests, up to one, in ``seconds`` altogether; each begins with its first request."""
    ends = [round(len(arrivals) * place / count) for place in range(count + 1)]
    for first, end in pairwise(ends):
        own = tuple(replace(a, at=a.at - arrivals[first].at) for a in arrivals[first:end])
        yield Segment(own, seconds * len(own) / len(arrivals))
