"""What each link of a survey adds to the times of its two nodes, over all parts together.

A fit of one part alone explains about half of a slow link by its nodes and its round, because there the link is hardly
larger than the noise. Over all parts it stands out, and can be estimated without its own readings.

Numbers in, numbers out. What must not live here: nodes (survey_fit.py), verdicts (survey.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any

from aiperf.analysis.distributions import t_quantile
from aiperf.analysis.robust import CLIP_WORTH, CLIPPED_MEAN_COST, clipped_mean, clipped_spread, joint_df
from aiperf.analysis.survey_fit import design_matrix
from aiperf.records.surveyed import SurveyReading

if TYPE_CHECKING:
    from numpy.typing import NDArray

Link = tuple[int, int]
_TURNS = 6
_SUSPECTS = 2.0
"""Healthy links that are set aside by chance before the outliers among them are chosen."""
_OUTLIER = 0.05
"""Chance that a healthy link of a session counts as an outlier."""
_MOST_ASIDE = 1 / 3
"""Of the degrees of freedom, as many as are spent on outliers."""
_ALONE = 1e-9
"""Share of a link's time that other links have to predict, for it to be estimated from them."""


@dataclass(frozen=True)
class LinkEstimate:
    """What a link adds to the log times of its nodes."""

    effect: float
    """Over what the other links predict; NaN if they predict nothing of it."""
    error: float
    """Standard error of ``effect``: the link's own noise, and what the others leave uncertain."""
    df: float
    """Degrees of freedom of ``error``; 0 with a single part."""
    parts: tuple[float, ...]
    """The effect in each reading by itself."""


@dataclass(frozen=True)
class _PairTimes:
    """Log times of pairs without what their rounds add."""

    middles: Mapping[Link, float]
    parts: Mapping[Link, Sequence[float]]
    """Of each reading, over the others of its round."""
    sd: float
    """Of one reading."""
    df: float
    """Degrees of freedom of ``sd``."""


def estimate_links(readings: Sequence[SurveyReading]) -> dict[Link, LinkEstimate]:
    """The effect of every link, by leaving it out: log time = round + node + node + link, crossed.

    The pairs that share a round are compared with each other, then nodes and rounds are fitted to the middles over
    all parts by least squares without outliers, which are the slow links.
    """
    import numpy as np

    times = _pair_times(readings)
    links, matrix = design_matrix(readings, sorted({node for link in times.middles for node in link}))
    left, hat, kept = _fitted(matrix, np.asarray([times.middles[link] for link in links]))
    df = int(kept.sum()) - round(float(np.trace(hat[np.ix_(kept, kept)])))
    variance = float((left[kept] ** 2).sum()) / df if df > 0 else 0.0
    found = {}
    for row, link in enumerate(links):
        own, rest = float(hat[row, row]), df - int(kept[row])
        # What a link of the fit adds to its own prediction is taken out again.
        share = 1 - own if kept[row] else 1.0
        known = share > _ALONE and rest > 0
        noise = CLIPPED_MEAN_COST * times.sd**2 / len(times.parts[link])
        predicted = own / share * variance if known else math.nan
        effect = float(left[row]) / share if known else math.nan
        over = effect - times.middles[link]
        freedom = joint_df([(noise, times.df), (predicted, rest)]) if known else 0.0
        parts = tuple(value + over for value in times.parts[link])
        found[link] = LinkEstimate(effect, math.sqrt(noise + predicted), freedom, parts)
    return found


def _pair_times(readings: Sequence[SurveyReading]) -> _PairTimes:
    """Rounds by medians over their pairs, and pairs by clipped means over their rounds, in turns. A round of one or two
    pairs has no middle of its own."""
    rounds: dict[int, list[tuple[Link, float]]] = defaultdict(list)
    for one in readings:
        rounds[one.round].append(((one.nodes[0], one.nodes[1]), math.log(one.seconds)))
    middles: dict[Link, float] = defaultdict(float)
    sd, common = 0.0, 0.0
    for turn in range(_TURNS):
        common = median(log - middles[link] for own in rounds.values() for link, log in own)
        over: dict[Link, list[float]] = defaultdict(list)
        for own in rounds.values():
            middle = median(log - middles[link] for link, log in own) if len(own) > 2 else common
            for link, log in own:
                over[link].append(log - middle)
        known = middles if turn else {link: median(values) for link, values in over.items()}
        deviations = [value - known[link] for link, values in over.items() for value in values]
        sd = clipped_spread(deviations, max(1, len(deviations) - len(over)))
        middles = defaultdict(float, {link: clipped_mean(values, sd) for link, values in over.items()})
    parts: dict[Link, list[float]] = defaultdict(list)
    noise: list[float] = []
    for own in rounds.values():
        errors = [log - middles[link] for link, log in own]
        for place, (link, log) in enumerate(own):
            # A reading does not count in what it is compared with.
            others = errors[:place] + errors[place + 1 :]
            parts[link].append(log - (median(others) if len(own) > 2 else common))
        wide = len(own) > 2
        noise += [(a - b) / math.sqrt(2) for a, b in combinations(errors, 2)] if wide else [e - common for e in errors]
    shared = {frozenset(link for link, _ in own) for own in rounds.values() if len(own) > 2}
    wide_rounds = sum(len(own) > 2 for own in rounds.values())
    free = len(readings) - len(middles) - wide_rounds + len(shared)
    repeats = len(readings) / len(middles)
    sd = clipped_spread(noise, len(noise) * (1 - 1 / repeats)) if free > 0 and repeats > 1 else 0.0
    return _PairTimes(middles, parts, sd, CLIP_WORTH * free if repeats > 1 else 0.0)


def _fitted(matrix: NDArray[Any], times: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Least squares without outliers: what they leave of every time, the hat matrix, and which rows count.

    More rows are set aside than are outliers, so that one does not hide another; then those that the rest predicts
    well enough come back, the best first (as Hadi and Simonoff, 1993, add rows to a subset without outliers).
    """
    import numpy as np

    hat = matrix @ np.linalg.pinv(matrix)
    left, kept = times - hat @ times, np.ones(len(times), dtype=bool)
    count, all_df = len(times), len(times) - int(np.linalg.matrix_rank(matrix))
    df = all_df
    while df - 1 >= max(2, (1 - _MOST_ASIDE) * all_df):
        share = np.maximum(1 - np.diag(hat), _ALONE)
        own = np.where(kept & (share > 2 * _ALONE), left**2 / share, 0.0)
        rest = (float((left[kept] ** 2).sum()) - own) / (df - 1)
        worst = int(np.argmax(own / np.maximum(rest, np.finfo(float).tiny)))
        if own[worst] <= t_quantile(1 - _SUSPECTS / 2 / count, df - 1) ** 2 * rest[worst]:
            break
        _switch(left, hat, kept, worst)
        df -= 1
    while not kept.all():
        ratio = np.where(kept, math.inf, left**2 / (1 + np.diag(hat)))
        best = int(np.argmin(ratio))
        variance = float((left[kept] ** 2).sum()) / df
        if ratio[best] > t_quantile(1 - _OUTLIER / 2 / count, df) ** 2 * variance:
            break
        _switch(left, hat, kept, best)
        df += 1
    return left, hat, kept


def _switch(left: NDArray[Any], hat: NDArray[Any], kept: NDArray[Any], row: int) -> None:
    """Leave a row out of the fit, or take it in again (Sherman and Morrison)."""
    import numpy as np

    own = hat[row, row]
    factor = 1 / (1 - own) if kept[row] else -1 / (1 + own)
    column = hat[:, row].copy()
    left += factor * left[row] * column
    hat += factor * np.outer(column, column)
    kept[row] = not kept[row]
