"""What a side is told when it is set up."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.launch.setup import setup_of
from aiperf.records import Case, Check, Side

SIDES = (Side("before", workload="f.w"), Side("middle", workload="f.w"), Side("after", workload="f.w"))


@pytest.mark.parametrize("asked", [True, False])
def test_every_side_computes_the_reference_or_none_does_because_it_counts_into_their_peaks_of_memory(asked: bool):
    case = Case("s", "s", "t", "w", SIDES, check=Check("tolerance", reference=asked))
    told = [setup_of(case, side, seed=1, delta=0.02, folder=Path("/x"))["order"] for side in SIDES]
    assert [order["reference"] for order in told] == [asked] * 3
    assert [order["rule"] for order in told] == ["tolerance"] * 3


def test_a_side_that_runs_a_checkout_is_told_the_repository_that_it_must_not_import_from():
    sides = (Side("before", workload="f.w", env={"AIPERF_REPOSITORY": "/mine"}), Side("after", workload="f.w"))
    case = Case("s", "s", "t", "w", sides)
    told = [setup_of(case, side, seed=1, delta=0.02, folder=Path("/x"))["order"] for side in sides]
    assert [order["repository"] for order in told] == ["/mine", ""]
