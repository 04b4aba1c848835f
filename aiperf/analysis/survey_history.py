"""A node's deficit over stored surveys: whether it has become slower since.

Numbers in, numbers out. What must not live here: judging one survey (survey.py), files, printing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from aiperf.analysis.survey import survey_verdicts
from aiperf.analysis.survey_verdict import SurveyVerdict
from aiperf.records.surveyed import SurveyRecord

Since = Literal["slower", "no slower", "undecided", "new", "unreachable"]


@dataclass(frozen=True)
class NodeHistory:
    """A node by one metric in the latest survey, against the surveys before it."""

    node: str
    metric: str
    surveys: int
    """Those that have its deficit, the latest one included unless the node was unreachable in it."""
    before: float
    """Log deficit in the middle of the earlier surveys; NaN where there is none."""
    last: float
    low: float
    high: float
    """Ends of the interval of ``last - before``."""
    since: Since


def verdicts_by_node(survey: SurveyRecord) -> dict[tuple[str, str], SurveyVerdict]:
    """What a survey says of each node, by its name and the metric."""
    single = (one for one in survey_verdicts(survey) if len(one.nodes) == 1)
    # Of a node that was reached, a metric without readings says nothing of the node.
    known = (one for one in single if one.word != "unreachable" or one.nodes[0] in survey.unreachable)
    return {(survey.names[one.nodes[0]], one.metric): one for one in known}


def node_histories(
    surveys: Sequence[Mapping[tuple[str, str], SurveyVerdict]], *, threshold: float
) -> list[NodeHistory]:
    """Every node of the last survey by every metric; ``surveys`` are in order of time, by node and metric.

    A deficit is over the middle of the fleet that was surveyed with it, so that what makes all nodes slower makes none
    of them slower here. The change has both intervals' uncertainty, that of the earlier surveys being the middle of
    theirs: how far a node moves from day to day is not in it.
    """
    known: dict[tuple[str, str], list[SurveyVerdict]] = defaultdict(list)
    for survey in surveys:
        for key, one in survey.items():
            if not math.isnan(one.deficit) and one.word != "unreachable":
                known[key].append(one)
    last = surveys[-1] if surveys else {}
    found = []
    for key, one in sorted(last.items()):
        if one.word == "unreachable":
            before = median(each.deficit for each in known[key]) if known[key] else math.nan
            found.append(NodeHistory(*key, len(known[key]), before, math.nan, math.nan, math.nan, "unreachable"))
        elif known[key]:
            found.append(_history(key, known[key], math.log1p(threshold)))
    return found


def _history(key: tuple[str, str], found: Sequence[SurveyVerdict], delta: float) -> NodeHistory:
    *earlier, last = found
    if not earlier:
        return NodeHistory(*key, 1, math.nan, last.deficit, math.nan, math.nan, "new")
    before = median(one.deficit for one in earlier)
    reach = math.hypot(last.high - last.deficit, median(one.high - one.deficit for one in earlier))
    low, high = last.deficit - before - reach, last.deficit - before + reach
    since: Since = "slower" if low > delta else "no slower" if high < delta else "undecided"
    return NodeHistory(*key, len(found), before, last.deficit, low, high, since)
