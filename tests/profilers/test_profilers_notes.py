"""Every note of a profile has one sentence."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from aiperf.profilers import notes
from aiperf.profilers.notes import distinct, joined_sentences, note_sentence
from aiperf.records.profiled import ProfileNote, ProfileNoteCode


def test_every_code_has_a_sentence() -> None:
    assert set(notes._SENTENCES) == set(get_args(ProfileNoteCode))


@pytest.mark.parametrize(
    ("code", "values", "sentence"),
    [
        ("no_range", {"tool": "nsys", "side": "a"}, "nsys saw no range of a"),
        ("no_range", {"tool": "nsys", "side": "a", "seen": []}, "nsys saw no range of a: there are no ranges"),
        ("range_unended", {"side": "a"}, "a range of a never ended, so its work is left out"),
        ("no_ranges_emitted", {"reason": "no nvtx"}, "no ranges were emitted: no nvtx"),
        ("withheld", {"names": [], "secrets": 1}, "profiled without 1 variable of the environment (1 named like "
         "secrets); a side that needs one sets it under env"),
        ("not_kept", {"name": "r", "why": "size", "bytes": 2048, "most": 1024}, "r was read but not kept: 2 KiB, "
         "over 1 KiB"),
        ("text", {"text": "as it was"}, "as it was"),
    ],
)  # fmt: skip
def test_a_note_is_worded_with_its_values(code: ProfileNoteCode, values: dict[str, Any], sentence: str) -> None:
    assert note_sentence(ProfileNote(code, values)) == sentence


def test_notes_that_are_equal_stand_once() -> None:
    one, other = ProfileNote("no_kernel", {"side": "a"}), ProfileNote("no_kernel", {"side": "b"})
    assert distinct([one, other, one]) == (one, other)
    assert joined_sentences([one, one]) == "ncu profiled no kernel of a"
