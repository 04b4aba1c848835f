"""``aiperf survey`` on a GPU machine: two groups stand for nodes and read every card, and each other's over NCCL."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.analysis.survey import survey_verdicts
from aiperf.host.read import read_host
from aiperf.recipes.survey import SurveyRequest, run_survey
from aiperf.records.surveyed import CARD_PAIR_METRIC, PAIR_METRIC, SurveyRecord
from aiperf.settings import Settings

WORK = {"copy": 2 * (256 << 20), "gemm": 2 * 4096**3, "h2d": 64 << 20}
LEAST = {"copy": 1e11, "gemm": 1e13, "h2d": 1e9}
MOST = {"copy": 2e13, "gemm": 1e16, "h2d": 1e12}
"""Bytes or operations a second that no card is below or above: a clock that stops early reads more."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> SurveyRecord:
    results: Path = tmp_path_factory.mktemp("results")
    asked = SurveyRequest(1, 0.03, groups=2)
    survey, _ = run_survey(asked, host=read_host(), settings=Settings(results=results), cluster=None, note=print)
    return survey


def test_every_card_is_read_by_both_groups_at_a_rate_that_can_be(found: SurveyRecord) -> None:
    cards = len(read_host().gpus)
    readings = {(one.metric, one.nodes): one.seconds for one in found.readings}
    for card in range(cards):
        for what, work in WORK.items():
            for group in (0, 1):
                seconds = readings[f"gpu{card}_{what}", (group,)]
                assert LEAST[what] < work / seconds < MOST[what], (card, what, group, seconds)
    judged = {one.metric for one in survey_verdicts(found)}
    assert {f"gpu{card}_{what}" for card in range(cards) for what in WORK} <= judged


def test_groups_with_a_card_each_meet_over_nccl_and_others_say_why_not(found: SurveyRecord) -> None:
    together = {one.metric for one in found.readings if len(one.nodes) == 2}
    if len(read_host().gpus) > 1:
        assert together == {PAIR_METRIC, CARD_PAIR_METRIC}, found.skipped
        times = [one.seconds for one in found.readings if one.metric == CARD_PAIR_METRIC]
        assert all((64 << 20) / seconds < 2e12 for seconds in times), times
    else:
        assert together == {PAIR_METRIC}
        (reason,) = (one for one in found.skipped if one.startswith(CARD_PAIR_METRIC))
        assert "each group needs a GPU of its own" in reason
