"""The model of a survey that is fitted to the readings of one part: rounds, nodes and links.

Numbers in, numbers out. What must not live here: several parts (survey.py), verdicts (survey_verdict.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from aiperf.analysis.robust import hodges_lehmann
from aiperf.records.surveyed import SurveyReading

if TYPE_CHECKING:
    from numpy.typing import NDArray

_QUIET = 0.3
"""Share of a node's own readings in a launch that lie below the one which stands for it."""
_PASSES = 20
_POLISHES = 6


def _quiet(values: Sequence[float]) -> float:
    """A low quantile of a node's own readings: what disturbs them makes them longer, and may last for half of a launch.

    Not for pairs: of five partners it leaves the intervals too narrow.
    """
    ranked, place = sorted(values), _QUIET * (len(values) - 1)
    below, above = ranked[math.floor(place)], ranked[math.ceil(place)]
    return below + place % 1 * (above - below)


def fit_nodes(readings: Sequence[SurveyReading]) -> dict[int, float]:
    """Log time of each node over the fleet's middle, by medians of rounds and low quantiles of nodes in turns.

    A round's middle is that of what its nodes leave: else the node in the middle of it would measure itself, and look
    nearer to the others than it is.
    """
    logs = [(reading.round, reading.nodes[0], math.log(reading.seconds)) for reading in readings]
    effect: dict[int, float] = dict.fromkeys((node for _, node, _ in logs), 0.0)
    for _ in range(_POLISHES):
        rounds: dict[int, list[float]] = defaultdict(list)
        for turn, node, log in logs:
            rounds[turn].append(log - effect[node])
        middle = {turn: median(values) for turn, values in rounds.items()}
        own: dict[int, list[float]] = defaultdict(list)
        for turn, node, log in logs:
            own[node].append(log - middle[turn])
        effect = {node: _quiet(values) for node, values in own.items()}
        reference = median(effect.values())
        effect = {node: value - reference for node, value in effect.items()}
    return effect


def design(readings: Sequence[SurveyReading], present: Sequence[int]) -> tuple[NDArray[Any], int]:
    """What the pairs that met say of the ``present`` nodes: the covariance of their effects in that of one link, and
    the degrees of freedom that are left."""
    import numpy as np

    links, matrix = design_matrix(readings, present)
    covariance = np.linalg.pinv(matrix.T @ matrix)[: len(present), : len(present)]
    return covariance, len(links) - int(np.linalg.matrix_rank(matrix))


def design_matrix(
    readings: Sequence[SurveyReading], present: Sequence[int]
) -> tuple[list[tuple[int, int]], NDArray[Any]]:
    """The links that met, in order, and a row for each: its nodes of ``present``, then its rounds.

    Pairs that always met in the same round share what the round adds, however often they met: that is not told from
    their links.
    """
    import numpy as np

    company: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for reading in readings:
        company[reading.round].add((reading.nodes[0], reading.nodes[1]))
    shared = sorted({tuple(sorted(links)) for links in company.values() if len(links) > 2})
    links = sorted({link for own in company.values() for link in own})
    matrix = np.zeros((len(links), len(present) + max(1, len(shared))))
    for row, link in enumerate(links):
        for node in link:
            matrix[row, present.index(node)] = 1.0
        own = [place for place, each in enumerate(shared) if link in each]
        for place in own or [0]:
            matrix[row, len(present) + place] = 1.0 / len(own or [0])
    return links, matrix


def fit_pairs(readings: Sequence[SurveyReading], nodes: int) -> tuple[list[float], dict[tuple[int, int], list[float]]]:
    """The effect of every node, and by link the log times less those of their rounds and ends.

    Rounds and nodes are found in turns: a round's middle over what its nodes leave, so that slow nodes do not count as
    a slow round, and a node's over its partners.
    """
    logs = [(reading.round, (reading.nodes[0], reading.nodes[1]), math.log(reading.seconds)) for reading in readings]
    effect, left = [0.0] * nodes, dict[tuple[int, int], list[float]]()
    for _ in range(_PASSES):
        rounds: dict[int, list[float]] = defaultdict(list)
        for turn, (one, two), log in logs:
            rounds[turn].append(log - effect[one] - effect[two])
        # A round of one or two pairs has no middle of its own.
        common = median(value for own in rounds.values() for value in own)
        middle = {turn: median(own) if len(own) > 2 else common for turn, own in rounds.items()}
        left = defaultdict(list)
        for turn, link, log in logs:
            left[link].append(log - middle[turn] - effect[link[0]] - effect[link[1]])
        links = {link: median(values) for link, values in left.items()}
        for node in range(nodes):
            own = [value for link, value in links.items() if node in link]
            # Half of a step: two nodes that explain each other's times would otherwise take turns for ever.
            effect[node] += 0.5 * hodges_lehmann(own) if own else 0.0
        centre = median(effect)
        effect = [value - centre for value in effect]
    return effect, left
