"""Baseline files: promoted on purpose, reviewable, and refused where a number would mean nothing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from factory_of_stored_records import make_case

from aiperf.errors import UserError
from aiperf.records import CaseRecord, Comparison, Result, RunRecord, Side, Summary, Verdict
from aiperf.store.baseline import PromotedRun, encode_baseline, promote, read_baseline, write_baseline

HOST = {"must_match": {"cpus": 2, "cpu_model": "c", "libraries": {"numpy": "2.0"}}, "record_only": {"hostname": "h"}}
TOLD = {"who": "Ada", "why": "first numbers", "when": "2026-01-02T03:04:05+00:00"}


def record(case_id="copy", *, ratio=2.0, value=0.01, word="improved", **case):
    """A case measured once: its after takes ``value`` seconds, its before ``ratio`` times as long."""
    sides = (Summary(n, v, v, v, 9, 0, 0.0, 0.01) for n, v in (("before", ratio * value), ("after", value)))
    found = Comparison(
        "time", "s", "lower", *sides, 6, ratio, ratio / 1.01, ratio * 1.01, 0.0158, 0.01, 0.0, -0.01, 0.01, 0.01, None,
        ratio, None, None, (math.log(ratio),) * 6,
    )  # fmt: skip
    result = Result("after", "before", found, Verdict(word, "beyond_threshold", "said", threshold=0.02))
    return CaseRecord(make_case(case_id, **({"scenario_hash": "abcd"} | case)), "measured", (result,), stop="verdict")


def session(*records, name="r1", host=HOST, tau=None, **run):
    given = {"host": {"fingerprint": host}, "git": {"sha": "0123456789abcdef"}, "status": "finished"}
    found = RunRecord(name, (), "2026-01-01", host_id="h-1", **(given | run))
    return PromotedRun(found, records or (record(),), tau or {})


def refusals(*sessions, into=None, **told):
    with pytest.raises(UserError) as caught:
        promote(sessions, into=into, **(TOLD | told))
    return [f"{fault.where}: {fault.what}" for fault in caught.value.faults]


def test_what_was_promoted_is_read_back_and_written_the_same_again(tmp_path):
    made = promote([session(tau={"copy": 0.0123456789})], into=None, **TOLD)
    path = tmp_path / "gates" / "base.json"
    write_baseline(path, made)
    found = read_baseline(path)
    assert encode_baseline(found) == path.read_bytes()
    assert found.host_id == "h-1"
    assert found.must_match == HOST["must_match"]
    (entry,) = found.entries
    assert (entry.case, entry.side, entry.metric, entry.scenario_hash) == (
        "copy", "after", "time", "abcd",
    )  # fmt: skip
    (kept,) = entry.sessions
    assert (kept.run, kept.ratio, kept.value, kept.pairs) == ("r1", 2.0, 0.01, 6)
    assert kept.se == pytest.approx(math.log(1.01) / 4.1, rel=0.2)
    assert found.tau == {"copy": 0.01234568}


def test_a_file_of_version_1_which_called_sessions_sittings_reads_the_same(tmp_path):
    made = promote([session(tau={"copy": 0.0123456789})], into=None, **TOLD)
    path = tmp_path / "base.json"
    old = encode_baseline(made).replace(b'"sessions"', b'"sittings"').replace(b'_version": 2', b'_version": 1')
    path.write_bytes(old)
    assert b"sittings" in old
    assert encode_baseline(read_baseline(path)) == encode_baseline(made)


def test_the_file_says_who_promoted_what_and_why_and_ends_with_a_newline():
    made = promote([session(git={"sha": "0123", "diff": "beef"})], into=None, **TOLD)
    text = encode_baseline(made).decode()
    assert text.endswith("}\n")
    assert json.loads(text)["promotions"] == [
        {
            "who": "Ada", "why": "first numbers", "when": "2026-01-02T03:04:05+00:00", "commit": "0123",
            "changed": "beef", "runs": ["r1"],
        }
    ]  # fmt: skip


def test_the_order_of_cases_and_fields_does_not_change_the_file():
    one, other = record("a"), record("b")
    turned = {"must_match": dict(reversed(HOST["must_match"].items()))}
    made = [
        promote([session(one, other)], into=None, **TOLD),
        promote([session(other, one, host=turned)], into=None, **TOLD),
    ]
    assert encode_baseline(made[0]) == encode_baseline(made[1])


def test_further_runs_of_the_same_host_are_further_sessions():
    first = promote([session(tau={"a": 0.02})], into=None, **TOLD)
    grown = promote([session(name="r2", tau={"a": 0.01}), session(name="r3")], into=first, **(TOLD | {"why": "more"}))
    assert [s.run for s in grown.entries[0].sessions] == ["r1", "r2", "r3"]
    assert [(p.why, p.runs) for p in grown.promotions] == [("first numbers", ("r1",)), ("more", ("r2", "r3"))]
    assert grown.tau == {"a": 0.02}


def test_all_that_speaks_against_a_promotion_is_told_at_once():
    failed = CaseRecord(make_case("f", scenario_hash="x"), "failed")
    invalid = record("i", word="invalid")
    found = refusals(session(failed, invalid, status="interrupted"), why=" ", who="")
    assert found == [
        "--why: is empty.",
        "--who: is empty.",
        "r1: the run is interrupted, not finished.",
        "r1: f is failed.",
        "r1: i is invalid.",
    ]


def test_a_skipped_case_is_left_out_and_a_run_of_nothing_is_refused():
    skipped = CaseRecord(make_case("g"), "skipped")
    made = promote([session(record(), skipped)], into=None, **TOLD)
    assert [entry.scenario for entry in made.entries] == ["copy"]
    assert refusals(session(skipped)) == ["r1: the run has no result."]


def test_runs_of_other_hosts_are_refused_with_what_differs():
    other = {"must_match": {**HOST["must_match"], "libraries": {"numpy": "2.1"}}}
    (told,) = refusals(session(), session(name="r2", host=other))
    assert (
        "r2: was not measured on the same kind of host as the first run: libraries.numpy: 2.0 there, 2.1 here" in told
    )
    into = promote([session()], into=None, **TOLD)
    (told,) = refusals(session(name="r2", host=other), into=into)
    assert "kind of host as the baseline" in told
    assert refusals(session(name="r2", host={}), into=into)


def test_a_run_counts_once():
    assert refusals(session(), session()) == ["r1: is already in the baseline."]
    into = promote([session()], into=None, **TOLD)
    assert refusals(session(), into=into) == ["r1: is already in the baseline."]


def test_a_scenario_that_changed_is_refused():
    into = promote([session()], into=None, **TOLD)
    (told,) = refusals(session(record(scenario_hash="other"), name="r2"), into=into)
    assert "copy differs from the scenario in the baseline" in told


def test_runs_that_no_gate_could_ask_for_again_are_refused():
    sides = (Side("before", ref="main"), Side("after", ref="working-tree"))
    found = refusals(session(record("a", sides=sides), record("b", scenario_hash="")))
    assert found == [
        "r1: a compares commits, not the sides of its scenario.",
        "r1: b has no scenario file, so no gate can measure it again.",
    ]


def test_a_case_that_the_host_disturbed_is_refused():
    assert refusals(session(replace(record(), stop="unfit"))) == ["r1: copy was measured on a host that disturbed it."]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "does not exist"),
        ("{", "is not a baseline"),
        ("[]", "has no baseline_version"),
        ('{"baseline_version": 99}', "was written as version 99; this aiperf reads up to 2"),
        ('{"baseline_version": 1}', "has no host_id"),
        ('{"baseline_version": 1, "host_id": 3, "must_match": {}}', "host_id is '3', not text"),
        ('{"baseline_version": 1, "host_id": "", "must_match": {}, "entries": [{}]}', "entries[0] has no case"),
    ],
)
def test_a_file_that_is_no_baseline_is_told(tmp_path, text, told):
    path = tmp_path / "base.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_baseline(path)
    assert told in caught.value.faults[0].what
    assert caught.value.faults[0].where == str(path)


def test_a_folder_that_cannot_be_written_is_told():
    with pytest.raises(UserError) as caught:
        write_baseline(Path("/proc/nowhere/base.json"), promote([session()], into=None, **TOLD))
    assert "cannot be written" in caught.value.faults[0].what
