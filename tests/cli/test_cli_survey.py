"""`aiperf survey` on stored readings: what is said, and the exit code."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from aiperf.records.surveyed import LostNode, SurveyReading, SurveyRecord
from aiperf.units import format_duration

NAMES = ("n1", "n2", "n3")


def stored(user, *, slow: float = 1.0, absent: tuple[str, ...] = (), **more: object) -> str:
    """The readings of three nodes, of which the last takes ``slow`` times as long."""
    readings = tuple(
        SurveyReading("gemm", turn, (node,), (1 + 0.001 * ((turn + node) % 3)) * (slow if node == 2 else 1.0), turn % 3)
        for turn in range(9)
        for node in range(3)
    )
    file = user.folder / "survey.json"
    file.write_text(json.dumps(asdict(SurveyRecord(NAMES, 1, 0.03, readings, absent=absent, **more))))
    return str(file)


def verdicts(user, file: str) -> tuple[int, dict[str, str]]:
    done = user.types("survey", "--from", file, "--json")
    rows = json.loads(done.out)
    rows = rows if isinstance(rows, list) else next(value for value in rows.values() if isinstance(value, list))
    return done.code, {row["node"]: row["verdict"] for row in rows}


def test_a_healthy_fleet_is_ok_and_a_slow_node_is_exit_code_6(user):
    assert verdicts(user, stored(user)) == (0, dict.fromkeys(NAMES, "ok"))
    assert verdicts(user, stored(user, slow=1.2)) == (6, {"n1": "ok", "n2": "ok", "n3": "slow"})


def slow_parts(user, *metrics: str) -> dict[str, str]:
    """What is suspected where the last of three nodes is slow by these metrics, and by no other."""
    readings = tuple(
        SurveyReading(
            metric, turn, (node,), (1 + 0.001 * ((turn + node) % 3)) * (1.2 if slow and node == 2 else 1.0), turn % 3
        )
        for metric, slow in [(metric, True) for metric in metrics] + [("copy", False)]
        for turn in range(9)
        for node in range(3)
    )
    file = user.folder / "survey.json"
    file.write_text(json.dumps(asdict(SurveyRecord(NAMES, 1, 0.03, readings, skipped=("disk: <none>",)))))
    rows = json.loads(user.types("survey", "--from", str(file), "--json").out)
    return {row["metric"]: row["part"] for row in rows if row["verdict"] == "slow"}


def test_what_is_suspected_is_the_card_its_bus_or_the_disk_and_the_node_only_where_parts_are_slow_together(user):
    assert slow_parts(user, "disk") == {"disk": "disk"}
    assert slow_parts(user, "gpu3_gemm", "gpu3_copy") == {"gpu3_gemm": "GPU 3", "gpu3_copy": "GPU 3"}
    assert slow_parts(user, "gpu1_h2d") == {"gpu1_h2d": "PCIe of GPU 1"}
    assert slow_parts(user, "gpu0_copy", "gpu1_copy") == {"gpu0_copy": "node", "gpu1_copy": "node"}
    assert "not measured: disk: <none>" in user.types("survey", "--from", str(user.folder / "survey.json")).out


def test_a_node_that_did_not_come_is_unreachable_and_the_others_are_judged_without_it(user):
    file = stored(user, absent=("rank 3",))
    assert verdicts(user, file) == (6, {**dict.fromkeys(NAMES, "ok"), "rank 3": "unreachable"})
    assert "4 nodes" in user.types("survey", "--from", file).out


def test_an_unreachable_node_has_its_reason_in_the_rows_and_below_the_table(user):
    lost = (LostNode(1, 4, "2026-01-01T00:00:00+00:00", "its process has ended"),)
    file = stored(user, absent=("n9",), absent_because=("did not join within 60 s",), lost=lost)
    rows = json.loads(user.types("survey", "--from", file, "--json").out)
    assert {row["node"]: row["reason"] for row in rows} == {
        "n1": "", "n2": "lost in round 4: its process has ended", "n3": "", "n9": "did not join within 60 s",
    }  # fmt: skip
    said = " ".join(user.types("survey", "--from", file).out.split())
    assert "n9 did not join within 60 s" in said
    assert "its process has ended" in said


def test_history_keeps_a_node_that_the_last_survey_lost_or_did_not_reach(user):
    folder = user.folder / "results" / "surveys"
    folder.mkdir(parents=True)
    (folder / "2026-01-01.json").write_text(Path(stored(user, slow=1.2)).read_text())
    lost = (LostNode(2, 4, "", "its process has ended"),)
    last = Path(stored(user, lost=lost, absent=("n9",), when="2026-01-02")).read_text()
    (folder / "2026-01-02.json").write_text(last)
    done = user.types("survey", "--history", "--json", "--results", str(folder.parent))
    rows = {row["node"]: (row["since"], row["surveys"], row["last"]) for row in json.loads(done.out)}
    assert rows["n3"] == ("unreachable", 1, None)
    assert rows["n9"] == ("unreachable", 0, None)
    assert rows["n1"][:2] == ("no slower", 2)
    before = next(row["before"] for row in json.loads(done.out) if row["node"] == "n3")
    assert round(before, 1) == 0.2


def test_a_survey_that_ended_early_says_so_in_the_table_in_json_and_in_the_history(user):
    folder = user.folder / "results" / "surveys"
    folder.mkdir(parents=True)
    file = stored(user, ended="interrupted", rounds=9, planned=12, when="2026-01-02")
    (folder / "2026-01-02.json").write_text(Path(file).read_text())
    done = user.types("survey", "--from", file)
    assert (done.code, "interrupted after 9 of 12 rounds" in done.out) == (0, True)
    history = user.types("survey", "--history", "--results", str(folder.parent))
    assert "survey of 2026-01-02: interrupted after 9 of 12 rounds" in history.out
    for typed in (("--from", file), ("--history", "--results", str(folder.parent))):
        rows = json.loads(user.types("survey", *typed, "--json").out)
        assert {(row["ended"], row["rounds"], row["planned"]) for row in rows} == {("interrupted", 9, 12)}
    whole = user.types("survey", "--from", stored(user, rounds=12, planned=12)).out
    assert "of 12 rounds" not in whole
    lost = user.types("survey", "--from", stored(user, ended="nodes_lost", rounds=9, planned=12)).out
    assert "ended early, because too few nodes were left, after 9 of 12 rounds" in " ".join(lost.split())


def test_history_does_not_call_a_node_unreachable_that_lacks_the_readings_of_one_metric(user):
    folder = user.folder / "results" / "surveys"
    folder.mkdir(parents=True)
    survey = json.loads(Path(stored(user)).read_text())
    metric = survey["readings"][0]["metric"]
    more = [{**each, "metric": "another"} for each in survey["readings"] if each["metric"] == metric]
    survey["readings"] += [each for each in more if 1 not in each["nodes"]]
    (folder / "2026-01-01.json").write_text(json.dumps(survey))
    done = user.types("survey", "--history", "--json", "--results", str(folder.parent))
    assert "unreachable" not in {row["since"] for row in json.loads(done.out)}


def test_history_says_which_node_has_become_slower_since_the_earlier_surveys(user):
    folder = user.folder / "results" / "surveys"
    folder.mkdir(parents=True)
    for day, slow in enumerate((1.0, 1.0, 1.2)):
        (folder / f"2026-01-0{day + 1}.json").write_text(Path(stored(user, slow=slow)).read_text())
    drill = json.loads(Path(stored(user, slow=3.0)).read_text())
    (folder / "2026-01-04.json").write_text(json.dumps({**drill, "drill": "n3 +200%"}))
    (folder / "2026-01-05.json").write_text("no survey")
    done = user.types("survey", "--history", "--json", "--results", str(user.folder / "results"))
    rows = {row["node"]: row for row in json.loads(done.out)}
    assert {name: row["since"] for name, row in rows.items()} == {"n1": "no slower", "n2": "no slower", "n3": "slower"}
    assert (rows["n3"]["surveys"], round(rows["n3"]["change"], 1)) == (3, 0.2)
    assert (
        "2026-01-05.json is not JSON; ignored" in user.types("survey", "--history", "--results", str(folder.parent)).err
    )


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--from", "FILE", "--seed", "3"), "--from: cannot be combined with --seed."),
        (("--from", "FILE", "--groups", "4"), "--from: cannot be combined with --groups."),
        (("--from", "FILE", "--slurm", "-N", "2"), "--from: cannot be combined with --slurm."),
        (("--from", "FILE", "--history"), "--from: cannot be combined with --history."),
        (("--history", "--slow", "1=0.1"), "--history: cannot be combined with --slow."),
        (("--history", "--html"), "--history: cannot be combined with --html."),
        (("--plan", "64", "--groups", "4"), "--plan: cannot be combined with --groups."),
    ],
)
def test_what_says_how_to_measure_is_refused_where_stored_surveys_are_read(user, more, named):
    file = stored(user)
    done = user.types("survey", *(file if word == "FILE" else word for word in more))
    assert (done.code, named in done.err) == (2, True)


def test_a_stored_survey_can_be_judged_by_another_threshold(user):
    file = stored(user, slow=1.2)
    assert verdicts(user, file)[1]["n3"] == "slow"
    rows = json.loads(user.types("survey", "--from", file, "--threshold", "0.5", "--json").out)
    assert {row["verdict"] for row in rows} == {"ok"}


def test_a_history_without_surveys_is_a_mistake(user):
    done = user.types("survey", "--history", "--results", str(user.folder))
    assert (done.code, "no survey is stored" in done.err) == (2, True)


def test_pairs_are_a_square_of_per_cents_and_a_heat_map_on_the_page(user):
    times = {(0, 1): 1.0, (0, 2): 1.5, (0, 3): 1.0, (1, 2): 1.0, (1, 3): 1.0, (2, 3): 1.0}
    readings = tuple(SurveyReading("all_reduce", turn, pair, t) for turn in range(3) for pair, t in times.items())
    file = user.folder / "survey.json"
    file.write_text(json.dumps(asdict(SurveyRecord((*NAMES, "<n4>"), 1, 0.03, readings))))
    square = user.types("survey", "--from", str(file)).out.partition("pairs, %")[2].splitlines()
    assert [line.split() for line in square[1:3]] == [["n1", "+0", "+50", "+0"], ["n2", "+0", "+0", "+0"]]
    user.types("survey", "--from", str(file), "--html", "--results", str(user.folder))
    page = (user.folder / "survey.html").read_text()
    assert page.count("n1 – n3: +50.0 %") == 1
    assert page.count('fill-opacity="1.00"') == 2
    assert "<n4>" not in page


def test_batches_are_told_by_their_size_and_a_fleet_too_small_for_a_verdict_by_pairs_says_so(user):
    times = {(0, 1): 0.001, (0, 2): 0.001, (1, 2): 0.001, (0, 1, 2): 0.0025}
    readings = tuple(SurveyReading("all_reduce", turn, nodes, t) for turn in range(3) for nodes, t in times.items())
    file = user.folder / "survey.json"
    file.write_text(json.dumps(asdict(SurveyRecord(NAMES, 1, 0.03, readings))))
    done = user.types("survey", "--from", str(file))
    medians = "(medians; more than 2 nodes together identify none)"
    assert f"all_reduce: 2 nodes 1.00 ms, all 3 nodes 2.50 ms {medians}" in " ".join(done.out.split())
    assert "all_reduce is undecided: with 3 nodes, the slow one cannot be identified" in done.out
    assert {row["node"] for row in json.loads(user.types("survey", "--from", str(file), "--json").out)} == set(NAMES)


def test_the_plan_says_how_long_a_survey_takes_by_the_seconds_of_the_last_one(user):
    file = json.loads(Path(stored(user)).read_text())
    folder = user.folder / "results" / "surveys"
    folder.mkdir(parents=True)
    (folder / "2026-01-01.json").write_text(json.dumps(file))
    typed = ("survey", "--plan", "64", "--results", str(folder.parent))
    unknown = json.loads(user.types(*typed, "--json").out)
    assert [(row["nodes"], row["rounds"], row["seconds"]) for row in unknown] == [
        (64, 96, None), (128, 108, None), (256, 120, None),
    ]  # fmt: skip
    assert "no survey with times is stored" in user.types(*typed).out
    for day, start in ((2, 9.0), (3, 20.0)):
        seconds = {"start": start, "joining": 0.01, "pairs": 2.5, "batches": 0.5}
        when = f"2026-01-0{day}T00:00:00+00:00"
        (folder / f"{when}.json").write_text(json.dumps({**file, "seconds": seconds, "when": when}))
    # 6 starts, in each of which 16 rounds join, 66 rounds of pairs and 30 of batches.
    assert json.loads(user.types(*typed, "--json").out)[0]["seconds"] == 120 + 0.96 + 165 + 15
    said = user.types(*typed).out
    assert "5 m 01 s" in said
    assert "estimated from the survey of 2026-01-03T00:00:00+00:00, which had 3 nodes" in said


def test_the_plan_goes_by_the_survey_that_is_named_and_by_none_without_times(user):
    file = stored(user)
    done = user.types("survey", "--plan", "64", "--from", file)
    assert (done.code, f"{file}: it does not record how long its parts took." in done.err) == (2, True)
    seconds = {"start": 9.0, "joining": 0.01, "pairs": 2.5, "batches": 0.5}
    Path(file).write_text(json.dumps({**json.loads(Path(file).read_text()), "seconds": seconds}))
    rows = json.loads(user.types("survey", "--plan", "64", "--from", file, "--json").out)
    assert rows[0]["seconds"] == 54 + 0.96 + 165 + 15
    rows = json.loads(user.types("survey", "--plan", "64", "--from", file, "--parts", "24", "--json").out)
    assert (rows[0]["parts"], rows[0]["seconds"]) == (24, pytest.approx(4 * (54 + 0.96 + 165 + 15)))


def test_undecided_verdicts_are_told_how_many_parts_decide_more_and_how_long_they_take(user):
    seconds = {"start": 60.0, "joining": 0.0, "pairs": 0.0}
    undecided = stored(user, slow=1.03, seconds=seconds)
    told = " ".join(user.types("survey", "--from", undecided).out.split())
    # Stored in three parts of a minute.
    assert "1 verdict undecided; a survey with --parts 12 decides more, in about 12 m 00 s" in told
    for clear in (stored(user, seconds=seconds), stored(user, slow=1.03), stored(user, slow=1.5, seconds=seconds)):
        assert "--parts" not in user.types("survey", "--from", clear).out


BOUNDS = {"--parts": (2, 96), "--groups": (2, 64), "--plan": (2, 4096)}


def test_help_states_the_least_and_the_greatest_value_of_its_numbers_and_no_default_outside_of_them(user):
    said = " ".join(user.types("survey", "--help").out.split())
    for option, (least, greatest) in BOUNDS.items():
        own = said.partition(f" {option} ")[2]
        assert own[: own.index("]") + 1].endswith(f"[{least}<=x<={greatest}]"), option
    assert "above 0, below 100%" in said


@pytest.mark.parametrize("option", BOUNDS)
def test_a_number_beyond_its_bounds_is_refused_with_the_bound(user, option):
    least, greatest = BOUNDS[option]
    for value, why in (
        (least - 1, f"is too small: the least value is {least}."),
        (greatest + 1, f"is too large: the greatest value is {greatest}."),
    ):
        done = user.types("survey", option, str(value))
        assert done.code == 2
        assert f"Invalid value for '{option}': \"{value}\" {why}" in " ".join(done.err.split())


@pytest.mark.parametrize("share", ["0", "-0.1", "nan", "inf"])
def test_a_drill_slows_by_a_share_above_0(user, share):
    done = user.types("survey", "--groups", "4", "--slow", f"2={share}")
    assert (done.code, f'--slow: "{share}" is not a share above 0. For example: --slow 3=0.1.') == (
        2,
        " ".join(done.err.split()).removeprefix("Error: "),
    )


@pytest.mark.parametrize("day", ["2026-11-27", "2026-11-29T12-53"])
def test_by_the_seconds_of_a_survey_that_is_shipped_64_nodes_take_under_15_minutes(user, day):
    root = Path(__file__).parents[2]
    (file,) = (root / "results" / "reference" / "surveys").glob(f"{day}*.json")
    rows = json.loads(user.types("survey", "--plan", "64", "--from", str(file), "--json").out)
    assert rows[0]["seconds"] < 15 * 60
    said = [format_duration(row["seconds"]) for row in rows]
    assert f"64 nodes take {said[0]} and 256 take {said[2]}" in (root / "docs" / "nodes.md").read_text()


def test_the_survey_over_a_limited_link_that_is_shipped_names_that_link_and_nothing_else(user):
    root = Path(__file__).parents[2]
    (file,) = (root / "results" / "reference" / "surveys").glob("2026-11-29T12-08*.json")
    rows = json.loads(user.types("survey", "--from", str(file), "--json").out)
    assert [(row["node"], row["part"]) for row in rows if row["verdict"] == "slow"] == [("node2 – node5", "link")]


def said_of_reversed_readings(user, form: str, envs: tuple[dict[str, str], ...] = ({}, {})) -> set[bytes]:
    """What is said of a shipped survey, and of the same readings in the opposite order."""
    root = Path(__file__).parents[2]
    (shipped,) = (root / "results" / "reference" / "surveys").glob("2026-11-29T12-08*.json")
    plain, file, said = json.loads(shipped.read_text()), user.folder / "survey.json", set()
    for step, env in zip((1, -1), envs, strict=True):
        file.write_text(json.dumps({**plain, "readings": plain["readings"][::step]}))
        user.env |= env
        done = user.types("survey", "--from", str(file), form, "--results", str(user.folder))
        page = user.folder / "survey.html"
        said.add(page.read_bytes() if form == "--html" else done.out.encode())
    assert all(b"node2 \xe2\x80\x93 node5" in each for each in said)
    return said


@pytest.mark.parametrize("form", ["--json", "--format=table", "--html"])
def test_the_same_readings_give_the_same_output_byte_for_byte_in_any_order(user, form):
    assert len(said_of_reversed_readings(user, form)) == 1


@pytest.mark.long
def test_the_same_readings_give_the_same_output_byte_for_byte_in_another_process(user):
    envs = tuple({"PYTHONHASHSEED": number, "OPENBLAS_NUM_THREADS": number} for number in "12")
    assert len(said_of_reversed_readings(user, "--json", envs)) == 1


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--groups", "3", "--slow", "1,3=0.1"), "there is no node 3 of 3."),
        (("--groups", "3", "--slow", "1,=0.1"), '"1,=0.1" is not NODES=SHARE.'),
        (("--groups", "3", "--slow", "1-3=0.1"), "there is no node 3 of 3."),
        (("--groups", "3", "--slow", "1-1=0.1"), '"1-1=0.1" is not NODES=SHARE.'),
        (("--groups", "40", "--slow", "0-20=0.1"), "nodes 0 and 20 are never paired."),
    ],
)
def test_nodes_that_there_are_not_are_told(user, more, named):
    done = user.types("survey", *more)
    assert (done.code, named in done.err) == (2, True)
