"""The check that a program names."""

from __future__ import annotations

import pytest

from aiperf.errors import UserError
from aiperf.records import Check
from aiperf.scenario.checks import check_of


def test_a_check_is_a_word_or_the_keys_of_a_scenario():
    assert check_of("bitwise") == Check("bitwise")
    assert check_of({"rtol": 1e-3}) == Check("tolerance", rtol=1e-3)
    assert check_of({"kind": "none", "reason": "r"}) == Check("none", reason="r")


@pytest.mark.parametrize(
    "wrong",
    [
        "exact",
        "none",
        {"name": "mine"},
        {"reference": True},
        {"rtol": "a"},
        {"rtoll": 1.0},
        {"kind": "bitwise", "files": ["out"]},
    ],
)
def test_any_other_is_refused_with_what_to_write(wrong):
    with pytest.raises(UserError) as caught:
        check_of(wrong)
    assert caught.value.faults[0].hint.startswith('Write "tolerance", "bitwise"')
