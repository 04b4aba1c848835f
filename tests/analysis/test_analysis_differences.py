"""What forbids a comparison of two runs, what is only shown, and how a field is named."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from analysis_maker import make_case

from aiperf.analysis.differences import case_differences, differing, field_differences, run_differences
from aiperf.analysis.gate import Difference
from aiperf.host.facts import Gpu, HostFacts
from aiperf.host.fingerprint import fingerprint
from aiperf.records import CaseRecord, RunRecord, Side

GPU = Gpu(0, "NVIDIA H200", "GPU-1", "9.0", 141 * 2**30, 140 * 2**30, power_limit_w=700.0, ecc=True)
FACTS = HostFacts(
    "n1", "Linux", "a cpu", (0, 1), 2**34, 2**33, gpus=(GPU, replace(GPU, index=1, uuid="GPU-2")),
    driver="580", cuda_driver="13.0", python="3.11.9", libraries={"torch": "2.11", "numpy": "2.1"},
)  # fmt: skip


def printed(facts):
    """The fingerprint as a run takes it, and as it comes back from a stored record."""
    taken = fingerprint(facts, root=Path("/nowhere"))[1]
    return taken, json.loads(json.dumps(taken))


def names(found):
    return [d.name for d in found]


def record(**changes):
    return CaseRecord(replace(make_case(), **changes), "measured")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
def test_a_stored_fingerprint_equals_the_one_it_was_written_from(first, second):
    both = printed(FACTS)
    assert differing(both[first], both[second]) == ()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"cpu_model": "another"}, Difference("cpu_model", "a cpu", "another")),
        ({"cpus": (0, 1, 2)}, Difference("cpus", "2", "3")),
        ({"driver": "590"}, Difference("driver", "580", "590")),
        ({"driver": ""}, Difference("driver", "580", "none")),
        ({"peer_access": True}, Difference("peer_access", "unknown", "yes")),
        ({"libraries": {"torch": "2.12", "numpy": "2.1"}}, Difference("libraries.torch", "2.11", "2.12")),
        ({"libraries": {"torch": "2.11"}}, Difference("libraries.numpy", "2.1", "none")),
        ({"gpus": (GPU, replace(GPU, name="NVIDIA H100"))}, Difference("gpus[1].name", "NVIDIA H200", "NVIDIA H100")),
        ({"gpus": (replace(GPU, ecc=False), GPU)}, Difference("gpus[0].ecc", "yes", "no")),
        ({"gpus": (GPU,)}, Difference("gpus[1]", "NVIDIA H200", "none")),
    ],
)
def test_every_must_match_field_is_found_and_named(change, expected):
    now = printed(replace(FACTS, **change))[1]
    assert differing(printed(FACTS)[0], now) == (expected,)
    assert differing(now, printed(FACTS)[0]) == (Difference(expected.name, expected.now, expected.then),)


def test_what_enters_the_hash_is_what_is_compared():
    """A fingerprint that differs has another host id, and the other way round, field by field."""
    for name in asdict(FACTS):
        value = getattr(FACTS, name)
        other = {int: 10**12, str: "other", tuple: (), dict: {}, bool: True}.get(type(value), True)
        if name == "gpus":
            other = (replace(GPU, power_limit_w=500.0),)
        (one, then), (two, now) = (fingerprint(f, root=Path("/x")) for f in (FACTS, replace(FACTS, **{name: other})))
        assert (one != two) == bool(differing(then, now)), name


def test_record_only_fields_are_no_must_match_difference():
    then, now = printed(FACTS)[0], printed(replace(FACTS, hostname="n2", container="docker"))[0]
    assert differing(then, now) == ()


def test_a_host_that_was_not_recorded_matches_none_not_even_another_such():
    known = printed(FACTS)[0]
    assert differing({}, known) == (Difference("fingerprint", "not recorded", "recorded"),)
    assert differing({"must_match": {}}, {"must_match": None}) == (
        Difference("fingerprint", "not recorded", "not recorded"),
    )


def test_a_field_that_is_empty_and_one_that_is_missing_are_told_apart():
    assert field_differences({"a": None}, {}) == (Difference("a", "unknown", "none"),)
    assert field_differences({"a": {"b": []}}, {"a": {"b": ["x", "y"]}}) == (Difference("a.b", "none", "x, y"),)
    assert field_differences({"a": (1, 2)}, {"a": [1, 2]}) == ()
    assert field_differences({"a": 0}, {"a": 0.0}, prefix="p") == ()


def test_runs_differ_in_software_checkout_and_precision_without_being_forbidden():
    then, now = (
        RunRecord(
            "r", (), "", host={"fingerprint": printed(facts)[1]}, precision=precision,
            software={"torch": torch, "scipy": scipy}, git={"sha": sha * 40},
        )
        for facts, precision, torch, scipy, sha in (
            (FACTS, "standard", "2.11", "1.14", "a"),
            (replace(FACTS, hostname="n2", libraries={"torch": "2.12", "numpy": "2.1"}), "quick", "2.12", "1.15", "b"),
        )
    )  # fmt: skip
    found = run_differences(then, now)
    assert names(found.must_match) == ["libraries.torch"]
    assert names(found.record_only) == ["hostname", "software.scipy", "git.sha", "precision"]
    assert Difference("git.sha", "a" * 12, "b" * 12) in found.record_only


def test_what_was_changed_in_a_checkout_is_told_by_its_contents_not_by_the_names_of_files():
    then, now = (
        RunRecord("r", (), "", git={"sha": "a", "diff": "d"} | more) for more in ({}, {"changed": "cufile.log"})
    )
    assert run_differences(then, now).record_only == ()


def test_a_damaged_run_record_is_a_host_that_was_not_recorded():
    for host in ({}, {"fingerprint": None}, {"fingerprint": {"must_match": []}}):
        assert names(run_differences(RunRecord("r", (), "", host=host), RunRecord("r", (), "")).must_match) == [
            "fingerprint"
        ]


def test_runs_without_a_fingerprint_match_by_the_id_of_their_host_and_never_without_one():
    one, same, other = (RunRecord("r", (), "", host_id=name) for name in ("imported-1", "imported-1", "imported-2"))
    assert run_differences(one, same).must_match == ()
    assert run_differences(one, other).must_match == (Difference("host id", "imported-1", "imported-2"),)
    then, now = (
        RunRecord("r", (), "", host_id="x", host={"fingerprint": printed(f)[1]})
        for f in (FACTS, replace(FACTS, driver="1"))
    )
    assert names(run_differences(then, now).must_match) == ["driver"]


def test_another_text_of_the_scenario_asks_another_question():
    then, now = record(scenario_hash="1" * 16), record(scenario_hash="2" * 16)
    assert case_differences(then, now) == (Difference("scenario_hash", "1" * 12, "2" * 12),)
    assert names(case_differences(record(), now)) == ["scenario_hash"]
    assert case_differences(then, then) == ()


def test_a_default_that_changed_in_the_workload_asks_another_question_though_the_text_is_the_same():
    sides = [
        (Side("before"), Side("after", workload=w, params={"items": n})) for w, n in (("/a.py:f", 1), ("/b.py:f", 2))
    ]
    then, now = (record(scenario_hash="1", sides=s) for s in sides)
    assert case_differences(then, now) == (Difference("sides.after.params.items", "1", "2"),)


def test_of_sides_with_other_names_only_these_are_told():
    first = record(sides=(Side("base", params={"n": 1}), Side("head", ref="main")))
    then, now = first, record(sides=(Side("before"), Side("after")))
    assert case_differences(then, now) == (Difference("sides", "base, head", "before, after"),)
    three = record(sides=(Side("base", params={"n": 1}), Side("head", ref="main"), Side("third")))
    assert case_differences(then, three) == (Difference("sides", "base, head", "base, head, third"),)


def test_where_a_checkout_and_its_repository_lie_asks_nothing_else():
    env = {"PYTHONPATH": "/a", "AIPERF_COMMIT": "1", "AIPERF_REPOSITORY": "/b", "MINE": "1"}
    moved = {name: f"{value}2" for name, value in env.items()}
    then, now = (record(sides=(Side("before", env=e, ref="main"), Side("after"))) for e in (env, moved))
    assert names(case_differences(then, now)) == ["sides.before.env.MINE"]


def test_without_a_text_it_is_what_the_sides_run_that_asks():
    then, now = (record(sides=(Side("before", command=("a", "b c")), Side("after", command=(x,)))) for x in "xy")
    assert case_differences(then, now) == (Difference("sides.after.command", "x", "y"),)


def test_another_way_of_timing_or_another_replicate_asks_another_question():
    then = record()
    timed = record(measure=replace(then.case.measure, clock="device", statistic="median", metric="user"))
    assert names(case_differences(then, timed)) == ["measure.clock", "measure.statistic", "measure.metric"]
    assert names(case_differences(then, replace(then, replicate="process"))) == ["replicate"]


def over_nodes(*classes: HostFacts | None) -> RunRecord:
    """A run with a head of FACTS and these nodes; None: of before their fingerprints were kept."""
    nodes = tuple(
        {"node": f"m{i}", "host": {"fingerprint": printed(facts)[1]} if facts else {}}
        for i, facts in enumerate(classes)
    )
    return RunRecord("r", (), "", host={"fingerprint": printed(FACTS)[0]}, nodes=nodes)


def test_the_class_of_every_node_must_match_and_its_name_is_only_shown():
    again = over_nodes(replace(FACTS, hostname="n9"))
    assert run_differences(over_nodes(FACTS), again).must_match == ()
    assert "node2.hostname" in names(run_differences(over_nodes(FACTS), again).record_only)
    other = run_differences(over_nodes(FACTS, FACTS), over_nodes(FACTS, replace(FACTS, driver="590")))
    assert other.must_match == (Difference("node3.driver", "580", "590"),)


def test_a_node_whose_class_was_not_recorded_cannot_be_said_to_match():
    assert names(run_differences(over_nodes(None), over_nodes(FACTS)).must_match) == ["node2.fingerprint"]


def test_more_nodes_than_another_run_has_are_shown_and_forbid_nothing():
    found = run_differences(over_nodes(FACTS), over_nodes(FACTS, replace(FACTS, driver="590")))
    assert (found.must_match, found.record_only) == ((), (Difference("nodes", "2", "3"),))
