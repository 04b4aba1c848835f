"""Which node or link of a fleet is slow: effects of nodes and links by a robust fit, with intervals and verdicts.

Numbers in, numbers out. What must not live here: the fit of one part (survey_fit.py), links over all parts
(survey_links.py), the shape of a verdict and its reasons (survey_verdict.py), measuring, names of hosts, printing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any

from aiperf.analysis.distributions import sign_test_count
from aiperf.analysis.robust import (
    CLIP_WORTH,
    CLIPPED_MEAN_COST,
    HODGES_LEHMANN_COST,
    clipped_mean,
    clipped_spread,
    joint_df,
    spread,
)
from aiperf.analysis.survey_fit import design, fit_nodes, fit_pairs
from aiperf.analysis.survey_links import LinkEstimate, estimate_links
from aiperf.analysis.survey_verdict import SurveyVerdict, lowest_of, reach_of, unreachable, verdict_of
from aiperf.records.surveyed import SurveyReading, SurveyRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

ERROR = 0.05
"""Chance of any false verdict in a session; shared out over all of its comparisons (Bonferroni)."""
_AGREE = 1 / 64
"""Of the sign test that the launches of a slow link must pass: of six all are beyond the threshold, of 24 eighteen."""
_LINKS_SHARE = 0.2
"""Of the chance of a false verdict, what links get: of them only slow ones are named."""
_TOO_FEW = 3
"""Nodes that have a pair for each of them, and no more."""
_DRAWS = 500
"""Of what the effects of nodes may be."""


def survey_verdicts(survey: SurveyRecord) -> tuple[SurveyVerdict, ...]:
    """What a survey says; the same readings always say the same. Of a lost node they say what it was before."""
    gone = {(one.node,) for one in survey.lost}
    judged = judge(survey.readings, len(survey.nodes), threshold=survey.threshold)
    found = [replace(one, word="unreachable", reason="lost") if one.nodes in gone else one for one in judged]
    metrics = dict.fromkeys(one.metric for one in found)
    absent = range(len(survey.nodes), len(survey.names))
    never = [unreachable(metric, node, "not_joined") for node in absent for metric in metrics]
    return (*found, *never)


def judge(readings: Iterable[SurveyReading], nodes: int, *, threshold: float) -> tuple[SurveyVerdict, ...]:
    """A verdict on each of ``nodes`` nodes by every metric, and on the links that are not ok by metrics of pairs; none
    on a link of fewer than four nodes.

    ``threshold``: the deficit that matters, as a share. slow: the whole interval lies beyond it, and so does what its
    launches say by themselves (of six of a node all but one; of a link see ``_AGREE``); ok: the interval lies below it.
    A node without a reading is unreachable. The intervals hold for all verdicts of a session together. Batches of more
    than two nodes say nothing of one of them: each node is in too few for that.
    """
    by_metric: dict[str, list[SurveyReading]] = defaultdict(list)
    # In one order: sums of the same values in another one differ in their last digits.
    for reading in sorted(readings, key=lambda one: (one.metric, one.launch, one.round, one.nodes, one.seconds)):
        if len(reading.nodes) <= 2:
            by_metric[reading.metric].append(reading)
    delta = math.log1p(threshold)
    found: list[SurveyVerdict] = []
    for metric, own in by_metric.items():
        count = len(by_metric)
        if len(own[0].nodes) == 1:
            found += _of_nodes(metric, own, nodes, delta, error=ERROR / count)
        else:
            found += _of_pairs(metric, own, nodes, delta, error=ERROR / count)
    return tuple(found)


def _reference(values: Sequence[float]) -> float:
    """The fleet's middle, which a minority cannot move; of two nodes the faster one, for neither is a majority."""
    return median(values) if len(values) > 2 else min(values)


def _standard_errors(effects: Sequence[float], covariance: NDArray[Any]) -> list[float]:
    """Of each effect less the middle of all, whose own error counts too: by drawing what the effects may be.

    The draws are the same every time.
    """
    import numpy as np

    if len(effects) == 2:
        return [math.sqrt(np.trace(covariance))] * 2
    sizes, ways = np.linalg.eigh(covariance)
    root = (ways * np.sqrt(np.maximum(sizes, 0.0))) @ ways.T
    drawn = np.random.RandomState(0).standard_normal((_DRAWS, len(effects))) @ root
    moved = np.median(np.asarray(effects) + drawn, axis=1) - median(effects)
    return [float(error) for error in np.sqrt(np.square(drawn - moved[:, None]).mean(axis=0))]


@dataclass(frozen=True)
class _Effects:
    """What every node adds to a time, in each launch on its own."""

    by_node: Mapping[int, Sequence[float]]
    """Node -> log time over the middle of the fleet in each launch that it was in."""

    @property
    def middles(self) -> list[float]:
        """By node its middle over the launches."""
        sd = self.sd
        return [clipped_mean(values, sd) for values in self.by_node.values()]

    @property
    def sd(self) -> float:
        """How far a node's launches differ, whatever a fifth of them does: what comes with a launch or lasts through
        it (where memory and files lie, a neighbour), and what the readings of a launch leave open."""
        steps = [(b - a) / math.sqrt(2) for values in self.by_node.values() for a, b in combinations(values, 2)]
        return clipped_spread(steps, len(steps) * (1 - 1 / len(self.by_node))) if self.df > 0 else 0.0

    @property
    def df(self) -> float:
        """Degrees of freedom of ``sd``."""
        repeats = sum(len(values) - 1 for values in self.by_node.values())
        return CLIP_WORTH * repeats * (1 - 1 / len(self.by_node))

    def covariance(self) -> NDArray[Any]:
        """Of ``middles``, as far as launches differ."""
        import numpy as np

        return np.diag([self.sd**2 * CLIPPED_MEAN_COST / len(values) for values in self.by_node.values()])

    def verdicts(
        self, metric: str, nodes: int, delta: float, covariance: NDArray[Any], df: float, chance: float
    ) -> list[SurveyVerdict]:
        """On each of ``nodes`` nodes; ``covariance``: of ``middles``, with ``df`` degrees of freedom."""
        middles = self.middles
        reference = _reference(middles)
        errors = _standard_errors(middles, covariance)
        found = {
            node: verdict_of(
                metric, (node,), middle - reference, lowest_of(values) - reference, reach_of(error, df, chance), delta
            )
            for (node, values), middle, error in zip(self.by_node.items(), middles, errors, strict=True)
        }
        return [found[node] if node in found else unreachable(metric, node) for node in range(nodes)]


def _by_launch(readings: Iterable[SurveyReading]) -> list[list[SurveyReading]]:
    found: dict[int, list[SurveyReading]] = defaultdict(list)
    for reading in readings:
        found[reading.launch].append(reading)
    return [own for _, own in sorted(found.items())]


def _of_nodes(
    metric: str, readings: Sequence[SurveyReading], nodes: int, delta: float, *, error: float
) -> list[SurveyVerdict]:
    """Each node against what its rounds add for all of them."""
    found: dict[int, list[float]] = defaultdict(list)
    for launch in _by_launch(readings):
        for node, effect in fit_nodes(launch).items():
            found[node].append(effect)
    effects = _Effects(dict(sorted(found.items())))
    return effects.verdicts(metric, nodes, delta, effects.covariance(), effects.df, error / nodes)


def _of_pairs(
    metric: str, readings: Sequence[SurveyReading], nodes: int, delta: float, *, error: float
) -> list[SurveyVerdict]:
    """Nodes and links from the times of pairs: log time = round + node + node + link + noise, crossed.

    A node's effect is the robust middle over its partners of what theirs do not explain, so neither one slow link nor a
    slow partner moves it. Links are estimated over all parts together (survey_links.py).
    """
    found: dict[int, list[float]] = defaultdict(list)
    left: dict[tuple[int, int], list[float]] = defaultdict(list)
    for launch in _by_launch(readings):
        effect, rest = fit_pairs(launch, nodes)
        base = median(median(values) for values in rest.values())
        for link, values in rest.items():
            left[link] += [value - base for value in values]
        for node in sorted({node for link in rest for node in link}):
            found[node].append(effect[node])
    effects = _Effects(dict(sorted(found.items())))
    covariance, df = design(readings, list(effects.by_node))
    # Differences, for of three values one is the median, and would count as one without noise.
    noise = [(b - a) / math.sqrt(2) for values in left.values() for a, b in combinations(values, 2)]
    sd_noise = spread(noise)
    # Both are of what the fits leave, which has less of everything.
    middles = {link: clipped_mean(values, sd_noise) for link, values in left.items()}
    of_noise = sd_noise**2 * CLIPPED_MEAN_COST
    of_middles = clipped_spread(list(middles.values()), len(left)) ** 2
    lasting = max(0.0, of_middles - of_noise / max(map(len, left.values()))) * len(left) / max(1, df)
    of_node, of_link = (1 - _LINKS_SHARE) * error / nodes, _LINKS_SHARE * error / len(left)
    # What differs from launch to launch holds the noise already.
    of_links, of_launches = lasting * HODGES_LEHMANN_COST * covariance, effects.covariance()
    shares = [(float(each.trace()), own) for each, own in ((of_links, CLIP_WORTH * df), (of_launches, effects.df))]
    judged = effects.verdicts(metric, nodes, delta, of_links + of_launches, joint_df(shares), of_node)
    if df <= 0:
        judged = [replace(one, reason="too_few_pairs") if one.word == "undecided" else one for one in judged]
    if len(effects.by_node) > _TOO_FEW:
        for link, one in estimate_links(readings).items():
            judged += _of_link(metric, link, one, middles[link], delta, of_link)
    return judged


def _of_link(
    metric: str, link: tuple[int, int], found: LinkEstimate, robust: float, delta: float, chance: float
) -> list[SurveyVerdict]:
    """The verdict on a link that is not ok; ``robust`` is its deficit where other links predict nothing of it."""
    if math.isnan(found.effect):
        return [SurveyVerdict(metric, link, robust, math.nan, math.nan, "undecided", "too_few_pairs")]
    lowest = sorted(found.parts)[-sign_test_count(len(found.parts), _AGREE)]
    reach = reach_of(found.error, found.df, chance)
    verdict = verdict_of(metric, link, found.effect, lowest, reach, delta)
    return [verdict] if verdict.word != "ok" else []
