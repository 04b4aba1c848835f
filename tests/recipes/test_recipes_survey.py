"""A survey over groups of processes of this host, one of them slowed on purpose, and what is stored of it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from aiperf.analysis.survey import survey_verdicts
from aiperf.errors import UserError
from aiperf.host.read import read_host
from aiperf.plan import survey as survey_plans
from aiperf.recipes import survey as survey_module
from aiperf.recipes.survey import SurveyRequest, run_survey
from aiperf.records import Side
from aiperf.records.surveyed import PAIR_METRIC, SurveyReading
from aiperf.store.surveys import read_survey
from tests.recipes.recipes_made import make_settings, survey_in_small

pytestmark = pytest.mark.usefixtures("ranks_meet")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    survey_in_small(monkeypatch)


HOST = replace(read_host(), gpus=())


def kill_rank(rank: int) -> None:
    """End a rank of the gang that this process has started."""
    children = [pid for each in Path("/proc/self/task").glob("*/children") for pid in each.read_text().split()]
    workers = [pid for pid in children if b"aiperf.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    mine = [pid for pid in workers if f"\0RANK={rank}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()]
    os.kill(int(mine[0]), signal.SIGKILL)


@pytest.mark.long
def test_a_survey_reads_every_group_and_pair_three_times_and_names_the_slowed_one(tmp_path):
    asked = SurveyRequest(1, 0.03, groups=3, slow=((1,), 3.0))
    said = []
    survey, file = run_survey(asked, host=HOST, settings=make_settings(tmp_path), cluster=None, note=said.append)
    alone = [reading for reading in survey.readings if reading.metric == "gemm"]
    together = [reading.nodes for reading in survey.readings if reading.metric == PAIR_METRIC]
    assert {reading.nodes for reading in alone} == {(0,), (1,), (2,)}
    assert sorted(together) == [(0, 1)] * 3 + [(0, 1, 2)] * 3 + [(0, 2)] * 3 + [(1, 2)] * 3
    slowest = max(("copy", "gemm"), key=lambda m: next(
        one.deficit for one in survey_verdicts(survey) if (one.metric, one.nodes) == (m, (1,))
    ))  # fmt: skip
    deficits = {one.nodes: one.deficit for one in survey_verdicts(survey) if one.metric == slowest}
    assert max(deficits, key=deficits.get) == (1,)
    assert deficits[(1,)] > 0.5
    assert (survey.nodes, survey.drill) == (("group0", "group1", "group2"), "group1 +300 %")
    assert repr(survey_verdicts(read_survey(file))) == repr(survey_verdicts(survey))
    assert said[-1] == "round 12 of 12"
    assert (survey.ended, survey.rounds, survey.planned) == ("", 12, 12)
    # Forwards in one round and backwards in the next, so that a drift of the host cancels.
    order = [[one.nodes for one in alone if one.round == turn] for turn in sorted({one.round for one in alone})]
    assert all(sorted(turn) == [(0,), (1,), (2,)] for turn in order)
    assert order[0] == order[1][::-1] != order[1]
    assert survey.seconds.keys() == survey_plans.PLAN_SECONDS | {"batches"}
    assert survey.seconds["start"] > survey.seconds["pairs"] > 0
    disk = [reading for reading in survey.readings if reading.metric == "disk"]
    assert {reading.nodes for reading in disk} == {(0,), (1,), (2,)} or survey.skipped[0].startswith("disk: ")
    assert survey.skipped[-1] == "GPUs: no node has any"
    assert list((tmp_path / ".nodes").iterdir()) == []


@pytest.mark.long
def test_a_link_that_is_slowed_is_slow_where_its_two_ends_meet_and_nowhere_else(tmp_path):
    asked = SurveyRequest(1, 0.03, groups=3, slow_link=((0, 2), 3.0))
    survey, _ = run_survey(asked, host=HOST, settings=make_settings(tmp_path), cluster=None, note=print)
    times = {pair: [one.seconds for one in survey.readings if one.nodes == pair] for pair in ((0, 1), (0, 2), (1, 2))}
    middle = {pair: median(found) for pair, found in times.items()}
    assert middle[0, 2] > 2 * max(middle[0, 1], middle[1, 2])
    assert survey.drill == "group0 – group2 +300 %"


def test_a_node_that_dies_in_mid_survey_is_unreachable_and_the_others_go_on(tmp_path):
    said = []

    def kill_one(line: str) -> None:
        said.append(line)
        if line == "round 2 of 12":
            kill_rank(1)

    asked = SurveyRequest(1, 0.03, groups=3)
    survey, file = run_survey(asked, host=HOST, settings=make_settings(tmp_path), cluster=None, note=kill_one)
    (lost,) = survey.lost
    assert (lost.node, lost.round) in {(1, 3), (1, 4)}
    assert any(line.startswith("group1 was lost in round") and "continuing with 2 nodes" in line for line in said)
    after = {
        reading.nodes for reading in survey.readings if reading.metric == PAIR_METRIC and reading.round >= lost.round
    }
    assert after == {(0, 2)}
    words = {one.word for one in survey_verdicts(survey) if one.nodes == (1,)}
    assert words == {"unreachable"}
    assert all(one.word != "unreachable" for one in survey_verdicts(survey) if one.nodes != (1,))
    assert read_survey(file) == survey


def test_an_interrupted_survey_is_stored_with_its_complete_rounds_and_leaves_no_process(tmp_path):
    def interrupt(line: str) -> None:
        if line == "round 2 of 12":
            raise KeyboardInterrupt

    asked = SurveyRequest(1, 0.03, groups=3)
    survey, file = run_survey(asked, host=HOST, settings=make_settings(tmp_path), cluster=None, note=interrupt)
    assert (survey.ended, survey.rounds, survey.planned, survey.lost) == ("interrupted", 2, 12, ())
    assert {one.round for one in survey.readings} == {0, 1}
    assert read_survey(file) == survey
    assert {one.word for one in survey_verdicts(survey)} <= {"undecided", "unreachable"}
    with pytest.raises(IndexError):
        kill_rank(0)
    assert list((tmp_path / ".nodes").iterdir()) == []


def test_a_survey_that_is_interrupted_in_a_round_keeps_nothing_of_that_round():
    def rounds():
        yield [SurveyReading("gemm", 0, (0,), 1.0)]
        raise KeyboardInterrupt

    assert survey_module._read(rounds(), planned=3) == ([[SurveyReading("gemm", 0, (0,), 1.0)]], "interrupted")
    assert survey_module._read(iter([[], []]), planned=3) == ([[], []], "nodes_lost")
    assert survey_module._read(iter([[]] * 3), planned=3) == ([[]] * 3, "")


def test_a_survey_that_is_interrupted_before_a_round_is_complete_stores_nothing(tmp_path):
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    asked = SurveyRequest(1, 0.03, groups=3)
    with pytest.raises(KeyboardInterrupt):
        run_survey(asked, host=HOST, settings=make_settings(tmp_path), cluster=None, note=interrupt)
    assert not (tmp_path / "surveys").exists()


@pytest.mark.long
def test_what_a_node_cannot_run_is_left_out_with_its_reason_and_the_rest_is_measured(tmp_path, monkeypatch):
    broken = Side("disk", workload="peaks.h2d", params={"size": 1 << 20})
    monkeypatch.setattr(survey_module, "_ALONE", (*survey_module._ALONE[:2], broken))
    said = []
    asked = SurveyRequest(1, 0.03, groups=2)
    survey, file = run_survey(asked, host=HOST, settings=make_settings(tmp_path), cluster=None, note=said.append)
    assert survey.skipped == ("GPUs: no node has any", "disk: no GPU was given to this side")
    assert "disk is not measured: no GPU was given to this side" in said
    assert {reading.metric for reading in survey.readings} == {"copy", "gemm", PAIR_METRIC}
    assert read_survey(file) == survey


def test_every_card_that_all_nodes_have_is_measured_and_the_others_are_named(tmp_path):
    battery = survey_module._Battery(
        SurveyRequest(1, 0.03), (((0, 1),),), ("n1", "n2"), make_settings(tmp_path), tmp_path
    )
    battery.count_cards([8, 2])
    metrics = [side.name for side in battery._own[3:]]
    assert metrics == [f"gpu{card}_{what}" for card in (0, 1) for what in ("copy", "gemm", "h2d")]
    assert battery._devices == {name: f"cuda:{name[3]}" for name in metrics}
    assert battery.skipped == {"GPU 2 and on": "n2 has 2, others up to 8"}
    assert [(side.name, side.params["backend"]) for side in battery._joint_sides(0)] == [
        ("all_reduce-0", "gloo"), ("gpu_all_reduce-0", "nccl"),
    ]  # fmt: skip


def test_groups_that_would_share_a_gpu_have_no_all_reduce_between_gpus_and_it_says_why(tmp_path):
    asked = SurveyRequest(1, 0.03, groups=2)
    battery = survey_module._Battery(asked, (((0, 1),),), ("group0", "group1"), make_settings(tmp_path), tmp_path)
    battery.count_cards([1])
    assert [side.name for side in battery._joint_sides(0)] == ["all_reduce-0"]
    assert battery.skipped == {
        "gpu_all_reduce": "each group needs a GPU of its own, but this host has 1 for 2 groups",
    }  # fmt: skip


@pytest.mark.long
def test_what_nodes_cannot_do_together_is_left_out_as_a_whole(tmp_path):
    """A host that says it has GPUs, and a torch that has none."""
    told = replace(HOST, gpus=(object(), object()))
    asked = SurveyRequest(1, 0.03, groups=2)
    survey, _ = run_survey(asked, host=told, settings=make_settings(tmp_path), cluster=None, note=print)
    assert {reading.metric for reading in survey.readings} >= {"copy", "gemm", PAIR_METRIC}
    assert not any(reading.metric.startswith("gpu") for reading in survey.readings)
    assert {reason.partition(":")[0] for reason in survey.skipped} >= {"gpu0_copy", "gpu1_gemm", "gpu_all_reduce"}


def test_one_node_cannot_be_surveyed(tmp_path):
    with pytest.raises(UserError, match="needs at least 2 nodes"):
        run_survey(SurveyRequest(1, 0.03), host=HOST, settings=make_settings(tmp_path), cluster=None, note=print)
