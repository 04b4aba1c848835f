from __future__ import annotations

import pytest
from factory_of_profiles import made
from factory_of_records import make_case, make_comparison, make_result, measured

from aiperf.records import CaseRecord
from aiperf.records.profiled import Mechanism, Profile
from aiperf.report.mechanism import flag, mechanism_cell


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
        "improved, but not by the mechanism that it claims: kernels should go down and did not move "
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
    aside = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), headline=False)
    assert flag(measured(make_case(moves=CLAIMS), aside), profile(STAYED)) == ""


def test_a_counter_that_should_have_stayed_is_told_with_its_direction() -> None:
    moved = Mechanism("copied_bytes", "same", "did_not_move", 2**20, 2**21, "B")
    assert flag(record({"copied_bytes": "same"}), profile(moved)).endswith(
        "copied_bytes should stay the same and went up (1 MiB before, 2 MiB after)"
    )
