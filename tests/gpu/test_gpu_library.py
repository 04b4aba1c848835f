"""Every scenario of one GPU: its first case is set up, its sides agree, and sides that are broken are caught."""

from __future__ import annotations

import pytest
from library import check_all, names

from tests.library_check.children import Outcome


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return check_all(names())


@pytest.mark.parametrize("name", names())
def test_the_sides_of_a_scenario_agree_and_broken_ones_are_caught(name: str, outcomes: dict[str, Outcome]) -> None:
    found = outcomes[name]
    assert found.status == "passed" or (found.status == "skipped" and found.detail), found.detail
