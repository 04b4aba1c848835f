"""What a worker is asked when it sets a side up."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.launch.setup import setup_request
from aiperf.records import Case, Check, Measure, Side

SIDES = (Side("before", workload="f.w"), Side("middle", workload="f.w"), Side("after", workload="f.w"))


@pytest.mark.parametrize("asked", [True, False])
def test_every_side_computes_the_reference_or_none_does_because_it_counts_into_their_peaks_of_memory(asked: bool):
    case = Case("s", "s", "t", "w", SIDES, check=Check("tolerance", reference=asked))
    requests = [setup_request(case, side, seed=1, delta=0.02, folder=Path("/x")) for side in SIDES]
    assert [request.check for request in requests] == [Check("tolerance", reference=asked)] * 3


@pytest.mark.parametrize(("own", "used"), [(None, 0.02), (0.1, 0.1)])
def test_the_threshold_of_the_precision_is_used_where_the_case_names_none(own: float | None, used: float):
    case = Case("s", "s", "t", "w", SIDES, measure=Measure(clock="wall", delta=own))
    request = setup_request(case, SIDES[0], seed=1, delta=0.02, folder=Path("/x"))
    assert request.measure == Measure(clock="wall", delta=used)


def test_a_side_that_runs_a_checkout_gets_the_repository_that_it_must_not_import_from():
    sides = (Side("before", workload="f.w", env={"AIPERF_REPOSITORY": "/mine"}), Side("after", workload="f.w"))
    case = Case("s", "s", "t", "w", sides)
    requests = [setup_request(case, side, seed=1, delta=0.02, folder=Path("/x")) for side in sides]
    assert [request.repository for request in requests] == ["/mine", ""]


def test_the_scratch_folder_of_a_side_cannot_be_named_by_another_and_is_as_long():
    case = Case("s", "s", "t", "w", SIDES)
    names = [setup_request(case, side, seed=1, delta=0.02, folder=Path("/x")).scratch for side in (*SIDES, *SIDES)]
    assert len(set(names)) == 6
    assert {(Path(name).parent, len(name)) for name in names} == {(Path("/x"), len("/x/") + 16)}
