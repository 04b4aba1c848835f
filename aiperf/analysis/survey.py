"""Which node or link of a fleet is slow: effects of nodes and links by a robust fit, with intervals and verdicts.

Numbers in, numbers out. What must not live here: measuring, names of hosts, printing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Literal

from aiperf.analysis.distributions import sign_test_count, t_quantile
from aiperf.records.surveyed import SurveyReading, SurveyRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

SurveyWord = Literal["slow", "ok", "undecided", "unreachable"]
SurveyReason = Literal[
    "", "too_few_parts", "too_few_pairs", "spans_threshold", "parts_disagree", "no_readings", "not_joined", "lost"
]
"""Why a verdict is undecided or unreachable. A verdict needs two parts, and by a metric of pairs more pairs than nodes;
its interval must not contain the threshold, and the parts by themselves must not contradict it."""
ERROR = 0.05
"""Chance of any false verdict in a session; shared out over all of its comparisons (Bonferroni)."""
_MAD = 1.4826
"""Makes the median absolute deviation of normal values their standard deviation."""
_QUIET = 0.3
"""Share of a node's own readings in a launch that lie below the one which stands for it."""
_CENTRE_COST = math.pi / 2
"""Variance of ``_centre`` of many normal values, in that of their mean."""
_MIDDLE_COST = 1.06
"""Variance of ``_middle`` of normal values, in that of their mean."""
_CLIP = 1.5
"""Standard deviations at which a residual is clipped."""
_CLIPPED_SHARE = math.erf(_CLIP / math.sqrt(2)) - _CLIP * math.sqrt(2 / math.pi) * math.exp(-(_CLIP**2) / 2)
_CLIPPED_SHARE += _CLIP**2 * math.erfc(_CLIP / math.sqrt(2))
"""Variance of a clipped standard normal value."""
_CLIP_WORTH = 0.9
_MAD_WORTH = 0.37
"""Degrees of freedom of these estimates of a standard deviation, in those of the root mean square."""
_AGREE = 1 / 64
"""Of the sign test that the launches of a slow link must pass: of six all are beyond the threshold, of 24 eighteen."""
_LINKS_SHARE = 0.2
"""Of the chance of a false verdict, what links get: of them only slow ones are named."""
_DRAWS = 500
"""Of what the effects of nodes may be."""
_PASSES = 20
_POLISHES = 6


@dataclass(frozen=True)
class SurveyVerdict:
    """What a survey says of a node or a link by one metric."""

    metric: str
    nodes: tuple[int, ...]
    """One node, or the two ends of a link."""
    deficit: float
    """Log of its time over that of the fleet's middle: 0.1 is about 10 % slower."""
    low: float
    high: float
    word: SurveyWord
    reason: SurveyReason = ""


def survey_verdicts(survey: SurveyRecord) -> tuple[SurveyVerdict, ...]:
    """What a survey says; the same readings always say the same. Of a lost node they say what it was before."""
    gone = {(one.node,) for one in survey.lost}
    judged = judge(survey.readings, len(survey.nodes), threshold=survey.threshold)
    found = [replace(one, word="unreachable", reason="lost") if one.nodes in gone else one for one in judged]
    metrics = dict.fromkeys(one.metric for one in found)
    absent = range(len(survey.nodes), len(survey.names))
    never = [_unreachable(metric, node, "not_joined") for node in absent for metric in metrics]
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


def _verdict(
    metric: str, nodes: tuple[int, ...], middle: float, lowest: float, reach: float, delta: float
) -> SurveyVerdict:
    """``lowest``: what the launches say that find it fastest; ``reach``: of the interval, NaN where there is none."""
    low, high = middle - reach, middle + reach
    word: SurveyWord = "slow" if min(low, lowest) > delta else "ok" if high < delta else "undecided"
    reason: SurveyReason = ""
    if word == "undecided":
        reason = "too_few_parts" if math.isnan(reach) else "parts_disagree" if low > delta else "spans_threshold"
    return SurveyVerdict(metric, nodes, middle, low, high, word, reason)


def _lowest(values: Sequence[float]) -> float:
    """What all launches say at least, of six all but one: a neighbour that slows the others down for a while makes a
    node look fast in one of them."""
    return sorted(values)[len(values) // 6]


def _reach(error: float, df: float, chance: float) -> float:
    """Half of an interval about a value with the standard error ``error``, of which ``chance`` do not hold the truth;
    NaN without a second launch."""
    return t_quantile(1 - chance / 2, max(1.0, df)) * error if df > 0 else math.nan


def _unreachable(metric: str, node: int, reason: SurveyReason = "no_readings") -> SurveyVerdict:
    """The verdict on a node without readings."""
    return SurveyVerdict(metric, (node,), math.nan, math.nan, math.nan, "unreachable", reason)


def _centre(values: Sequence[float]) -> float:
    """The median of the means of all pairs of values (Hodges and Lehmann, 1963): a quarter of them cannot move it far,
    and it needs a twentieth more values than the mean."""
    return median((a + b) / 2 for i, a in enumerate(values) for b in values[i:])


def _quiet(values: Sequence[float]) -> float:
    """A low quantile of a node's own readings: what disturbs them makes them longer, and may last for half of a launch.

    Not for pairs: of five partners it leaves the intervals too narrow.
    """
    ranked, place = sorted(values), _QUIET * (len(values) - 1)
    below, above = ranked[math.floor(place)], ranked[math.ceil(place)]
    return below + place % 1 * (above - below)


def _middle(values: Sequence[float], sd: float) -> float:
    """The mean of the values of some launches, each at most ``_CLIP`` of their standard deviation from their median:
    of three, one that was disturbed from start to end moves it by half a standard deviation."""
    centre, reach = median(values), _CLIP * sd
    return fmean(min(max(value, centre - reach), centre + reach) for value in values)


def _joint_df(parts: Iterable[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances, each with its own (Welch and Satterthwaite); 0 where one has none."""
    known = list(parts)
    if any(df <= 0 for _, df in known):
        # As many unknowns as links: every time has an explanation, and none of them can be doubted.
        return 0.0
    spent = sum(variance**2 / df for variance, df in known)
    return sum(variance for variance, _ in known) ** 2 / spent if spent else min(df for _, df in known)


def _spread(values: Sequence[float]) -> float:
    """Standard deviation about 0, whatever a minority of the values is."""
    return _MAD * median(abs(value) for value in values) if values else 0.0


def _clipped_spread(values: Sequence[float], df: float) -> float:
    """Standard deviation about 0 of what a fit with ``df`` degrees of freedom leaves, whatever a fifth of it is.

    Huber's proposal 2 (1964). The median of a robust fit's residuals says nothing: of a small fleet it leaves half of
    them at 0.
    """
    import numpy as np

    squares = np.square(np.asarray(values))
    low, high = 0.0, float(np.sqrt(squares.sum() / df))
    high *= _CLIP
    for _ in range(60):
        middle = (low + high) / 2
        if np.minimum(squares, (_CLIP * middle) ** 2).sum() > df * _CLIPPED_SHARE * middle**2:
            low = middle
        else:
            high = middle
    return high


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
        return [_middle(values, sd) for values in self.by_node.values()]

    @property
    def sd(self) -> float:
        """How far a node's launches differ, whatever a fifth of them does: what comes with a launch or lasts through
        it (where memory and files lie, a neighbour), and what the readings of a launch leave open."""
        steps = [(b - a) / math.sqrt(2) for values in self.by_node.values() for a, b in combinations(values, 2)]
        return _clipped_spread(steps, len(steps) * (1 - 1 / len(self.by_node))) if self.df > 0 else 0.0

    @property
    def df(self) -> float:
        """Degrees of freedom of ``sd``."""
        repeats = sum(len(values) - 1 for values in self.by_node.values())
        return _CLIP_WORTH * repeats * (1 - 1 / len(self.by_node))

    def covariance(self) -> NDArray[Any]:
        """Of ``middles``, as far as launches differ."""
        import numpy as np

        return np.diag([self.sd**2 * _MIDDLE_COST / len(values) for values in self.by_node.values()])

    def verdicts(
        self, metric: str, nodes: int, delta: float, covariance: NDArray[Any], df: float, chance: float
    ) -> list[SurveyVerdict]:
        """On each of ``nodes`` nodes; ``covariance``: of ``middles``, with ``df`` degrees of freedom."""
        middles = self.middles
        reference = _reference(middles)
        errors = _standard_errors(middles, covariance)
        found = {
            node: _verdict(
                metric, (node,), middle - reference, _lowest(values) - reference, _reach(error, df, chance), delta
            )
            for (node, values), middle, error in zip(self.by_node.items(), middles, errors, strict=True)
        }
        return [found[node] if node in found else _unreachable(metric, node) for node in range(nodes)]


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
        for node, effect in _polished(launch).items():
            found[node].append(effect)
    effects = _Effects(dict(sorted(found.items())))
    return effects.verdicts(metric, nodes, delta, effects.covariance(), effects.df, error / nodes)


def _polished(readings: Sequence[SurveyReading]) -> dict[int, float]:
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


def _of_pairs(
    metric: str, readings: Sequence[SurveyReading], nodes: int, delta: float, *, error: float
) -> list[SurveyVerdict]:
    """Nodes and links from the times of pairs: log time = round + node + node + link + noise, crossed.

    A node's effect is the robust middle over its partners of what theirs do not explain, so neither one slow link nor a
    slow partner moves it. A link's is what is left.
    """
    found: dict[int, list[float]] = defaultdict(list)
    left: dict[tuple[int, int], list[float]] = defaultdict(list)
    for launch in _by_launch(readings):
        effect, rest = _fit(launch, nodes)
        base = median(median(values) for values in rest.values())
        for link, values in rest.items():
            left[link] += [value - base for value in values]
        for node in sorted({node for link in rest for node in link}):
            found[node].append(effect[node])
    effects = _Effects(dict(sorted(found.items())))
    covariance, df = _design(readings, list(effects.by_node))
    # Differences, for of three values one is the median, and would count as one without noise.
    noise = [(b - a) / math.sqrt(2) for values in left.values() for a, b in combinations(values, 2)]
    sd_noise = _spread(noise)
    df_noise = _MAD_WORTH * sum(len(values) - 1 for values in left.values())
    # Both are of what the fits leave, which has less of everything.
    middles = {link: _middle(values, sd_noise) for link, values in left.items()}
    of_noise = sd_noise**2 * _MIDDLE_COST
    of_middles = _clipped_spread(list(middles.values()), len(left)) ** 2
    lasting = max(0.0, of_middles - of_noise / max(map(len, left.values()))) * len(left) / max(1, df)
    of_node, of_link = (1 - _LINKS_SHARE) * error / nodes, _LINKS_SHARE * error / len(left)
    # What differs from launch to launch holds the noise already.
    of_links, of_launches = lasting * _CENTRE_COST * covariance, effects.covariance()
    shares = [(float(each.trace()), own) for each, own in ((of_links, _CLIP_WORTH * df), (of_launches, effects.df))]
    judged = effects.verdicts(metric, nodes, delta, of_links + of_launches, _joint_df(shares), of_node)
    if df <= 0:
        judged = [replace(one, reason="too_few_pairs") if one.word == "undecided" else one for one in judged]
    met = {node: sum(node in link for link in left) for node in effects.by_node}
    for link, values in left.items():
        # What the other links of its ends leave uncertain is part of it.
        own = math.sqrt(of_noise / len(values) + 2 * lasting / min(met[end] for end in link))
        reach = _reach(own, df_noise, of_link)
        lowest = sorted(values)[-sign_test_count(len(values), _AGREE)]
        verdict = _verdict(metric, link, middles[link], lowest, reach, delta)
        judged += [verdict] if verdict.word != "ok" and met[link[0]] > 2 else []
    return judged


def _design(readings: Sequence[SurveyReading], present: Sequence[int]) -> tuple[NDArray[Any], int]:
    """What the pairs that met say of the ``present`` nodes: the covariance of their effects in that of one link, and
    the degrees of freedom that are left.

    Pairs that always met in the same round share what the round adds, however often they met: that is not told from
    their links.
    """
    import numpy as np

    company: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for reading in readings:
        company[reading.round].add(reading.nodes)
    shared = sorted({tuple(sorted(links)) for links in company.values() if len(links) > 2})
    links = sorted({reading.nodes for reading in readings})
    matrix = np.zeros((len(links), len(present) + max(1, len(shared))))
    for row, link in enumerate(links):
        for node in link:
            matrix[row, present.index(node)] = 1.0
        own = [place for place, each in enumerate(shared) if link in each]
        for place in own or [0]:
            matrix[row, len(present) + place] = 1.0 / len(own or [0])
    covariance = np.linalg.pinv(matrix.T @ matrix)[: len(present), : len(present)]
    return covariance, len(links) - int(np.linalg.matrix_rank(matrix))


def _fit(readings: Sequence[SurveyReading], nodes: int) -> tuple[list[float], dict[tuple[int, int], list[float]]]:
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
            effect[node] += 0.5 * _centre(own) if own else 0.0
        centre = median(effect)
        effect = [value - centre for value in effect]
    return effect, left
