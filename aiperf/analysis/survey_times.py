"""How long pairs and larger batches of a survey took together, for tables and heat maps.

Numbers in, numbers out. What must not live here: verdicts (survey.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from aiperf.records.surveyed import SurveyReading


def pair_times(readings: Iterable[SurveyReading], metric: str) -> dict[tuple[int, int], float]:
    """Log time of each pair over the middle of all: what a heat map shows. What rounds share is taken out where three
    pairs or more measured together."""
    rounds: dict[int, list[tuple[tuple[int, int], float]]] = defaultdict(list)
    for one in readings:
        if one.metric == metric and len(one.nodes) == 2:
            rounds[one.round].append(((one.nodes[0], one.nodes[1]), math.log(one.seconds)))
    common = median(log for own in rounds.values() for _, log in own) if rounds else 0.0
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for own in rounds.values():
        middle = median(log for _, log in own) if len(own) > 2 else common
        for pair, log in own:
            times[pair].append(log - middle)
    return {pair: median(values) for pair, values in sorted(times.items())}


def times_by_size(readings: Iterable[SurveyReading]) -> dict[str, dict[int, float]]:
    """Seconds of what nodes do together, in the middle of all readings, by metric and by how many nodes they were."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in readings:
        if len(one.nodes) > 1:
            found[one.metric][len(one.nodes)].append(one.seconds)
    return {
        metric: {size: median(times) for size, times in sorted(by_size.items())} for metric, by_size in found.items()
    }
