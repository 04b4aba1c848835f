"""What changed between pairs is told once, with where; what stood still is not."""

from __future__ import annotations

from dataclasses import replace

from analysis_maker import make_pair

from aiperf.analysis.invariants import WARMER, invariant_notes
from aiperf.analysis.notes import note_sentence
from aiperf.records import Watch

LIMIT = "power limit of GPU 0 (mW)"


def pair(index, *, void=False, heat=None, **invariants):
    made = make_pair(index, {"before": 1e-3, "after": 1e-3}, void=void)
    names = {"limit": LIMIT, "governor": "governor of the CPUs"}
    stood = {names[name]: value for name, value in invariants.items()}
    return replace(made, watch=Watch(0.001, (1,), stood, {} if heat is None else {"GPU 0": heat}))


def sentences(pairs) -> tuple[str, ...]:
    return tuple(note_sentence(note) for note in invariant_notes(pairs))


def test_a_limit_that_changed_between_two_pairs_is_told_with_the_pairs() -> None:
    pairs = [pair(i, limit="700000" if i < 3 else "500000") for i in range(6)]
    said = f"{LIMIT} went from 700000 to 500000 between the starts of pairs 2 and 3"
    assert sentences(pairs) == (said,)
    assert sentences(pairs[::-1]) == (said,)


def test_a_governor_that_goes_to_and_fro_is_told_once() -> None:
    governors = ("performance", "powersave", "performance", "powersave")
    (note,) = sentences([pair(i, governor=g) for i, g in enumerate(governors)])
    assert note == "governor of the CPUs changed 3 times during the pairs, from performance at first to powersave"


def test_a_change_in_a_pair_that_does_not_count_is_a_change_too() -> None:
    assert len(invariant_notes([pair(0, limit="1"), pair(1, limit="2", void=True)])) == 1


def test_pairs_that_do_not_tell_break_no_chain() -> None:
    older = make_pair(1, {"before": 1e-3, "after": 1e-3})
    assert invariant_notes([pair(0, limit="1"), older, pair(2, limit="1")]) == ()
    (note,) = sentences([pair(0, limit="1"), older, pair(2, limit="2")])
    assert note.endswith("between the starts of pairs 0 and 2")


def test_what_stood_still_and_older_records_say_nothing() -> None:
    assert invariant_notes([pair(i, limit="1", governor="performance", heat=40.0) for i in range(4)]) == ()
    assert invariant_notes([make_pair(i, {"before": 1e-3, "after": 1e-3}) for i in range(4)]) == ()
    assert invariant_notes([]) == ()


def test_starts_of_unequal_heat_are_told_and_near_ones_are_not() -> None:
    assert invariant_notes([pair(0, heat=40.0), pair(1, heat=40.0 + WARMER)]) == ()
    (note,) = sentences([pair(0, heat=34.0), pair(1, heat=58.0), pair(2, heat=61.0)])
    assert note == "GPU 0 was at 34 °C when pair 0 began and at 61 °C when pair 2 began"
