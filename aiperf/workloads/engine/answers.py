"""What one iteration gave: answers as arrays, times as series, means over iterations; and whether two sides agree.

What must not live here: serving.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from aiperf.workloads.contract import Outcome
from aiperf.workloads.engine.running import Running
from aiperf.workloads.llm.agreement import same_tokens

_NONE = -1
"""In place of a token past the end of an answer."""
_MOST = 0.9
"""Share of the answers that ``tpot_p90`` is about."""
_Ended = tuple[float, float]
"""(when a unit of work ended, how long it took)."""


def answer_arrays(requests: int, longest: int, device: str) -> dict[str, Any]:
    """Empty outputs: the tokens of every request, their margins, and how often it was answered."""
    return {
        "tokens": torch.zeros(requests, longest, dtype=torch.long, device=device),
        "margins": torch.zeros(requests, longest, device=device),
        "answered": torch.zeros(requests, dtype=torch.long, device=device),
    }


def write_answers(into: Mapping[str, Any], finished: Iterable[Running]) -> None:
    """Fill the outputs anew, whole."""
    requests, longest = into["tokens"].shape
    tokens, margins = [[_NONE] * longest for _ in range(requests)], [[0.0] * longest for _ in range(requests)]
    answered = [0] * requests
    for one in finished:
        number, length = one.demand.number, one.demand.new_tokens
        tokens[number][:length], margins[number][:length] = one.answer, one.margins
        answered[number] += 1
    for name, values in (("tokens", tokens), ("margins", margins), ("answered", answered)):
        into[name].copy_(torch.tensor(values))


def same_answers(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Every request that both sides answered has before's tokens, up to the first near tie (``same_tokens``); a side
    answers a request once, or rejects it and gives no token. The value is the larger share of rejected requests."""
    served = []
    for name, side in (("before", before), ("after", after)):
        answered = side["answered"]
        # A request always asks for a token or more: one without any was not answered.
        if not (((answered == 0) | (answered == 1)) & ((side["tokens"][:, 0] != _NONE) == (answered == 1))).all():
            return Outcome(False, f"{name} has requests that are not answered exactly once, or rejected")
        served.append(answered == 1)
    both = served[0] & served[1]
    value = float(max((~side).mean() for side in served))
    if not both.any():
        return Outcome(False, "no request was answered by both sides", value)
    rows = [{name: side[name][both] for name in ("tokens", "margins")} for side in (before, after)]
    found = same_tokens(*rows)
    return Outcome(found.passed, f"{value:.1%} rejected; {found.detail}", value)


@dataclass
class ServedTimes:
    """Times of the requests of the iterations since they were last asked for."""

    ttft_limit: float
    inter_token_limit: float
    _units: dict[str, list[float]] = field(default_factory=dict)
    _sums: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.series()

    def add(self, finished: Sequence[Running], *, seconds: float) -> None:
        """The answers of an iteration, whose schedule, or which itself where all came at once, took ``seconds``."""
        ended: dict[str, list[_Ended]] = {name: [] for name in self._units}
        good, longest, urgent, paces = 0, list[float](), list[float](), list[float]()
        for one in finished:
            at, times = one.demand.at, one.times
            gaps = [after - before for before, after in pairwise(times)]
            ended["ttft"].append((times[0], times[0] - at))
            ended["end_to_end"].append((times[-1], times[-1] - at))
            ended["inter_token"] += zip(times[1:], gaps, strict=True)
            longest += [max(gaps)] if gaps else []
            paces += [sum(gaps) / len(gaps)] if gaps else []
            if one.started is not None:
                ended["queue"].append((one.started, one.started - at))
            urgent += [times[0] - at] if one.demand.urgent else []
            good += times[0] - at <= self.ttft_limit and sum(gaps) <= self.inter_token_limit * len(gaps)
        ordered = {name: [took for _, took in sorted(units)] for name, units in ended.items()}
        for name, found in ordered.items():
            self._units[name] += found
        held = [limit_held(paces, _MOST)] if paces else []
        for name, found in {**ordered, "longest_gap": longest, "tpot_p90": held, "ttft_urgent": urgent}.items():
            if found:
                self._sums.setdefault(name, []).append(sum(found) / len(found))
        self._sums.setdefault("goodput", []).append(good / seconds)

    def series(self) -> dict[str, list[float]]:
        """Series -> seconds of each unit, in the order in which they ended; asked once."""
        found, self._units = self._units, {name: [] for name in ("ttft", "inter_token", "end_to_end", "queue")}
        return found

    def means(self) -> dict[str, float]:
        """Metric -> its mean over iterations, each of them a mean over its units; asked once."""
        found, self._sums = self._sums, {}
        return {name: sum(values) / len(values) for name, values in found.items()}


def limit_held(values: Sequence[float], share: float) -> float:
    """The lowest limit that at least ``share`` of ``values`` keep."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
