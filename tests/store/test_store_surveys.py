"""Surveys on disk: what is stored is read again, whole or not at all, and no survey takes another's place."""

from __future__ import annotations

import json

import pytest

from aiperf.errors import UserError
from aiperf.records.surveyed import LostNode, SurveyReading, SurveyRecord
from aiperf.store.surveys import read_survey, read_surveys, write_survey

WHEN = "2026-01-01T00:00:00+00:00"
SURVEY = SurveyRecord(
    ("n1", "n2"),
    1,
    0.03,
    (SurveyReading("gemm", 0, (0,), 0.1), SurveyReading("all_reduce", 1, (0, 1), 2.5e-7)),
    WHEN,
    absent=("rank 2",),
    lost=(LostNode(1, 2, WHEN, "it died"),),
)


def test_what_is_stored_is_read_again(tmp_path):
    file = write_survey(SURVEY, tmp_path)
    assert read_survey(file) == SURVEY
    assert read_surveys(tmp_path) == ([SURVEY], [])


def test_surveys_of_one_second_lie_beside_each_other(tmp_path):
    files = {write_survey(SURVEY, tmp_path) for _ in range(3)}
    assert len(files) == 3
    assert len(read_surveys(tmp_path)[0]) == 3


def test_a_survey_that_cannot_be_written_leaves_nothing_and_says_where(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aiperf.store.write.os.fsync", full)
    with pytest.raises(UserError, match="could not be stored: No space left on device"):
        write_survey(SURVEY, tmp_path)
    assert list((tmp_path / "surveys").iterdir()) == []


def test_surveys_come_in_order_of_time_without_drills_and_damaged_ones_are_named(tmp_path):
    for when, drill in (("2026-02-01T00:00:00", ""), ("2025-12-01T00:00:00", ""), ("2026-01-15T00:00:00", "n1 +10 %")):
        write_survey(SurveyRecord(("n1",), 1, 0.03, (), when, drill), tmp_path)
    bad = tmp_path / "surveys" / "x.json"
    bad.write_text("{}")
    found, damaged = read_surveys(tmp_path)
    assert [one.when for one in found] == ["2025-12-01T00:00:00", "2026-02-01T00:00:00"]
    assert [each.sentence for each in damaged] == [f"{bad} the record has no nodes; ignored"]


ONE_NODE = {"nodes": ["a"], "seed": 1, "threshold": 0.03}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        json.dumps({**ONE_NODE, "readings": [{}]}),
        json.dumps({**ONE_NODE, "readings": [{"metric": "gemm", "round": 0, "nodes": [1], "seconds": 1.0}]}),
        json.dumps({**ONE_NODE, "readings": [{"metric": "gemm", "round": 0, "nodes": [0], "seconds": 0.0}]}),
    ],
)
def test_a_file_that_is_no_survey_is_refused(tmp_path, text):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UserError, match="not a stored survey"):
        read_survey(file)
