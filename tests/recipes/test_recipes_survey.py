"""A survey over groups of processes of this host, one of them slowed on purpose, and what is stored of it."""

from __future__ import annotations

import json

import pytest

from aiperf.errors import UserError
from aiperf.host.read import read_host
from aiperf.recipes.survey import PAIRS, SurveyRequest, read_survey, run_survey
from tests.recipes.recipes_made import make_settings


def test_a_survey_reads_every_group_and_pair_three_times_and_names_the_slowed_one(tmp_path):
    asked = SurveyRequest(1, 0.03, groups=3, slow=(1, 3.0))
    said = []
    survey, file = run_survey(asked, host=read_host(), settings=make_settings(tmp_path), cluster=None, note=said.append)
    alone = [reading for reading in survey.readings if reading.metric == "gemm"]
    pairs = [reading.nodes for reading in survey.readings if reading.metric == PAIRS]
    assert {reading.nodes for reading in alone} == {(0,), (1,), (2,)}
    assert sorted(pairs) == [(0, 1)] * 3 + [(0, 2)] * 3 + [(1, 2)] * 3
    slowest = max(("copy", "gemm"), key=lambda m: next(
        one.deficit for one in survey.verdicts() if (one.metric, one.nodes) == (m, (1,))
    ))  # fmt: skip
    deficits = {one.nodes: one.deficit for one in survey.verdicts() if one.metric == slowest}
    assert max(deficits, key=deficits.get) == (1,)
    assert deficits[(1,)] > 0.5
    assert (survey.nodes, survey.drill) == (("group0", "group1", "group2"), "group1 +300%")
    assert read_survey(file).verdicts() == survey.verdicts()
    assert said[-1] == "round 9 of 9"
    assert list((tmp_path / ".nodes").iterdir()) == []


def test_one_node_cannot_be_surveyed(tmp_path):
    with pytest.raises(UserError, match="compares nodes, and there is one"):
        run_survey(SurveyRequest(1, 0.03), host=read_host(), settings=make_settings(tmp_path), cluster=None, note=print)


def test_a_file_that_is_no_survey_is_refused(tmp_path):
    file = tmp_path / "x.json"
    for text in ("", "[]", json.dumps({"nodes": ["a"], "readings": [{}]})):
        file.write_text(text)
        with pytest.raises(UserError, match="not a stored survey"):
            read_survey(file)
