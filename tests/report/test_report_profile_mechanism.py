from __future__ import annotations

from dataclasses import replace

import pytest
from factory_of_profiles import made
from factory_of_records import make_case, make_comparison, make_pair, make_result, measured, voided

from aiperf.records import CaseRecord, Side
from aiperf.records.profiled import Mechanism, Profile
from aiperf.report.mechanism import flag, mechanism_cell, mechanism_sentences, own_counts
from aiperf.report.views.run_rows import build_rows


def record(moves: dict[str, str], word: str = "improved") -> CaseRecord:
    return measured(make_case(moves=moves), make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), word))


def profile(*found: Mechanism) -> Profile:
    return Profile("c", mechanism=found)


MOVED = Mechanism("launches", "down", "moved", 60.0, 1.0)
STAYED = Mechanism("kernels", "down", "did_not_move", 61.0, 61.0)
AGAINST = Mechanism("syncs", "down", "opposite", 1.0, 5.0)
UNREAD = Mechanism("tensor_pipe", "up", "not_readable")
UNCONCERNED = Mechanism("h2d_bandwidth", "up", "not_readable", tool="nsys")
CLAIMS = {"launches": "down", "kernels": "down", "syncs": "down", "tensor_pipe": "up", "h2d_bandwidth": "up"}


@pytest.mark.parametrize(
    ("found", "cell"),
    [
        ((MOVED,), "as claimed"),
        ((STAYED,), "did not move"),
        ((AGAINST,), "against the claim"),
        ((UNREAD,), "not readable here"),
        ((MOVED, UNREAD), "as claimed (1 of 2)"),
        ((MOVED, STAYED, UNREAD), "did not move (1 of 3)"),
        ((MOVED, STAYED, AGAINST), "against the claim (1 of 3)"),
        ((MOVED, UNCONCERNED), "as claimed"),
        ((MOVED, UNREAD, UNCONCERNED), "as claimed (1 of 2)"),
        ((UNCONCERNED,), "not readable here"),
        ((), "not profiled"),
    ],
)
def test_a_cell_says_the_most_telling_that_came_of_the_claims(found: tuple[Mechanism, ...], cell: str) -> None:
    assert mechanism_cell(record(CLAIMS), profile(*found)) == cell


def test_a_case_without_a_claim_has_an_empty_cell_and_one_without_a_profile_says_so() -> None:
    assert mechanism_cell(record({}), made()) == ""
    assert mechanism_cell(record(CLAIMS), None) == "not profiled"


def test_a_claim_that_the_scenario_no_longer_makes_counts_for_nothing() -> None:
    assert mechanism_cell(record({"kernels": "up"}), profile(STAYED)) == "not profiled"
    assert flag(record({"kernels": "up"}), profile(STAYED)) == ""


def test_a_win_whose_counter_did_not_move_is_flagged_with_its_numbers() -> None:
    assert flag(record(CLAIMS), profile(MOVED, STAYED, AGAINST, UNREAD)) == (
        "improved, but not by the claimed mechanism: kernels should go down and did not move "
        "(61 before, 61 after); syncs should go down and went up (1 before, 5 after)"
    )


@pytest.mark.parametrize("word", ["equivalent", "regressed", "inconclusive", "invalid"])
def test_only_a_win_is_flagged(word: str) -> None:
    assert flag(record(CLAIMS, word), profile(STAYED)) == ""


def test_a_win_that_moved_or_could_not_be_read_is_not_flagged() -> None:
    assert flag(record(CLAIMS), profile(MOVED, UNREAD)) == ""
    assert flag(record(CLAIMS), None) == ""


def test_a_win_of_another_side_than_the_last_is_not_flagged() -> None:
    """A profile's mechanism holds the last side against the first."""
    rung = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), side="half")
    assert flag(measured(make_case(moves=CLAIMS), rung), profile(STAYED)) == ""


def test_a_metric_that_only_informs_flags_nothing() -> None:
    aside = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), primary=False)
    assert flag(measured(make_case(moves=CLAIMS), aside), profile(STAYED)) == ""


def test_a_counter_that_should_have_stayed_is_told_with_its_direction() -> None:
    moved = Mechanism("copied_bytes", "same", "did_not_move", 2**20, 2**21, "B")
    assert flag(record({"copied_bytes": "same"}), profile(moved)).endswith(
        "copied_bytes should stay the same and went up (1 MiB before, 2 MiB after)"
    )


# ---- what the workload counts itself ---------------------------------------------------------------------------------


def counting(record: CaseRecord, *counts: dict[str, dict[str, float]]) -> CaseRecord:
    """The record with one pair for each of ``counts``: side -> what its workload counted."""
    pairs = []
    for index, by_side in enumerate(counts):
        pair = make_pair(index)
        runs = tuple(replace(run, counters=by_side.get(run.side, {})) for run in pair.runs)
        pairs.append(replace(pair, runs=runs))
    return replace(record, pairs=tuple(pairs))


HELD = {"before": {"held_bytes": 2.0 * 2**20, "calls": 7.0}, "after": {"held_bytes": 1.0 * 2**20, "calls": 7.0}}
SAME = {"before": {"held_bytes": 2.0 * 2**20}, "after": {"held_bytes": 2.0 * 2**20}}


def test_of_a_ladder_only_the_last_side_against_the_first_is_flagged() -> None:
    won = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), side="after", against="rung")
    equal = make_result(make_comparison(1.0, 1.0, interval=(0.99, 1.01)), "equivalent")
    sides = tuple(Side(name, workload="a.b") for name in ("before", "rung", "after"))
    found = measured(make_case(moves={"kernels": "down"}, sides=sides), equal, won)
    assert flag(found, profile(STAYED)) == ""
    both = replace(found, results=(replace(equal, verdict=won.verdict), won))
    rows = build_rows([both], profiles={both.case.id: profile(STAYED)}).rows
    assert [(row.against, bool(row.mechanism_note)) for row in rows] == [("before", True), ("rung", False)]


def test_a_claim_of_what_the_workload_counts_needs_no_profile() -> None:
    assert mechanism_cell(counting(record({"held_bytes": "down"}), HELD), None) == "as claimed"
    assert mechanism_cell(counting(record({"held_bytes": "down", "syncs": "down"}), HELD), None) == "as claimed"
    assert mechanism_cell(counting(record({"held_bytes": "up"}), HELD), None) == "against the claim"


def test_a_win_that_the_workloads_own_count_speaks_against_is_flagged_in_a_run_that_profiled_nothing() -> None:
    found = counting(record({"held_bytes": "down"}), SAME)
    (row,) = build_rows([found]).rows
    assert row.mechanism_note == (
        "improved, but not by the claimed mechanism: held_bytes should go down and did not move "
        "(2 MiB before, 2 MiB after)"
    )
    assert row.mechanism == ""
    assert build_rows([counting(record({"held_bytes": "down"}), HELD)]).rows[0].mechanism_note == ""


def test_a_tool_that_looked_from_outside_goes_before_the_workloads_own_word() -> None:
    found = counting(record({"kernels": "down"}), {"before": {"kernels": 9.0}, "after": {"kernels": 1.0}})
    assert mechanism_cell(found, profile(STAYED)) == "did not move"
    blind = Mechanism("kernels", "down", "not_readable", sentence="kernels was not readable here")
    assert mechanism_cell(found, profile(blind)) == "as claimed"


def test_own_counts_are_medians_over_the_pairs_that_count() -> None:
    three = counting(record({}), *({"before": {"n": n}, "after": {"n": 1.0}} for n in (1.0, 5.0, 2.0)))
    assert own_counts(three) == {"before": {"n": 2.0}, "after": {"n": 1.0}}
    first, *others = three.pairs
    assert own_counts(replace(three, pairs=(replace(first, incidents=voided(0).incidents), *others)))["before"] == {
        "n": 3.5
    }
    assert own_counts(measured(make_case())) == {"before": {}, "after": {}}


def test_every_claim_is_told_with_what_came_of_it() -> None:
    found = counting(record({"held_bytes": "down", "kernels": "down", "syncs": "down"}), HELD)
    unread = Mechanism("syncs", "down", "not_readable", sentence="syncs was not readable here: it takes nsys or torch")
    stayed = replace(STAYED, tool="nsys")
    assert mechanism_sentences(found, profile(stayed, unread)) == [
        "held_bytes should go down: as claimed (2 MiB before, 1 MiB after, counted by the workload).",
        "kernels should go down: did not move (61 before, 61 after, by nsys).",
        "syncs should go down: syncs was not readable here: it takes nsys or torch.",
    ]


def test_a_claim_that_nobody_looked_at_comes_with_the_command_that_does() -> None:
    found = counting(record({"kernels": "down"}), {"before": {"n": 2.0}, "after": {}})
    assert mechanism_sentences(found, None) == [
        "kernels should go down: not profiled.",
        "To read the missing counters: aiperf profile pageable-vs-pinned-copy",
    ]
    assert mechanism_sentences(replace(found, pairs=()), None) == ["kernels should go down: not profiled."]
    assert mechanism_sentences(measured(make_case()), None) == []
