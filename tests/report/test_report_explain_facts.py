"""What the sides say of themselves is told where they differ, and told once where they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from factory_of_records import make_case, make_pair, make_run, measured, voided

from aiperf.records import CaseRecord, Side
from aiperf.report.explain import explain_case
from aiperf.report.explain_facts import fact_sentences


def saying(*pairs: dict[str, dict[str, Any]]) -> CaseRecord:
    """A record of one pair for each of ``pairs``: side -> its facts."""
    made = []
    for index, by_side in enumerate(pairs):
        pair = make_pair(index)
        made.append(replace(pair, runs=tuple(replace(r, facts=by_side.get(r.side, {})) for r in pair.runs)))
    return replace(measured(make_case()), pairs=tuple(made))


def test_what_differs_is_told_by_side_and_what_does_not_is_told_once() -> None:
    before = {"registers": 56, "local_bytes": 0, "block": 256, "captured": False, "theoretical_occupancy": 0.5}
    after = {"registers": 32, "local_bytes": 2048, "block": 256, "captured": False, "theoretical_occupancy": 1.0}
    assert fact_sentences(saying({"before": before, "after": after})) == [
        "They differ in local_bytes: before 0 B, after 2 KiB; registers: before 56, after 32; theoretical_occupancy: "
        "before 0.500, after 1.00.",
        "Alike: block 256; captured false.",
    ]


def test_a_fact_of_one_side_alone_is_a_difference() -> None:
    assert fact_sentences(saying({"before": {"config": {"block_m": 64}}})) == [
        "They differ in config: before {block_m: 64}."
    ]


def test_a_fact_that_changes_from_pair_to_pair_is_told_with_its_values() -> None:
    pairs = [{"before": {"tile": n}, "after": {"tile": 9}} for n in (1, 2, 1, 3, 4)]
    assert fact_sentences(saying(*pairs)) == ["They differ in tile: before 1 or 2 or 3 and 1 more, after 9."]


def test_what_the_workload_counts_is_told_too_unless_the_scenario_claims_of_it() -> None:
    counts = {"before": {"held_bytes": 2.0**21, "launches": 3.0}, "after": {"held_bytes": 2.0**20, "launches": 3.0}}
    pair = make_pair(0)
    runs = tuple(replace(run, counters=counts[run.side]) for run in pair.runs)
    record = replace(measured(make_case()), pairs=(replace(pair, runs=runs),))
    assert fact_sentences(record) == ["They differ in held_bytes: before 2 MiB, after 1 MiB.", "Alike: launches 3."]
    claiming = replace(record, case=replace(record.case, moves={"held_bytes": "down"}))
    assert fact_sentences(claiming) == ["Alike: launches 3."]


def test_facts_of_a_pair_that_does_not_count_are_not_told() -> None:
    record = saying({"before": {"tile": 1}, "after": {"tile": 1}}, {"before": {"tile": 2}, "after": {"tile": 1}})
    first, second = record.pairs
    assert fact_sentences(replace(record, pairs=(first, replace(second, incidents=voided(0).incidents)))) == [
        "Alike: tile 1."
    ]


def test_versions_are_told_only_where_the_sides_differ_in_them() -> None:
    same = {"python": "3.12.3", "torch": "2.11"}
    assert fact_sentences(saying({"before": same, "after": same})) == []
    assert fact_sentences(saying({"before": same, "after": {**same, "torch": "2.12"}})) == [
        "They differ in torch: before 2.11, after 2.12."
    ]


def test_what_is_told_elsewhere_and_marks_for_programs_are_left_out() -> None:
    facts = {"cpus": [1], "threads": 4, "code_digest": "ab", "folder": "/tmp/x", "readings_held": 3}
    assert fact_sentences(saying({"before": facts, "after": {**facts, "cpus": [2]}})) == []


def test_programs_say_nothing_of_themselves() -> None:
    record = saying({"before": {"slices": 4}, "after": {"slices": 5}})
    sides = tuple(Side(name, command=("./it",)) for name in ("before", "after"))
    assert fact_sentences(replace(record, case=replace(record.case, sides=sides))) == []


def test_the_story_of_a_case_has_them() -> None:
    text = explain_case(make_run(), saying({"before": {"registers": 56}, "after": {"registers": 32}}))
    assert "What the sides report about themselves\n  They differ in registers: before 56, after 32.\n" in text
