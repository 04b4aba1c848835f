"""attention.forward: a window changes the result by design, so each side is held against the truth of its own mask."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_pairs import Pair, audit, set_up

_SHARED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 8, "kv_len": 96, "window": 16, "backend": "composed"}
_PAIR = Pair("attention.forward", {"mask": "causal"}, {"mask": "sliding"}, _SHARED)


@pytest.fixture
def sides(tmp_path):
    made = [set_up(_PAIR, which, tmp_path) for which in ("before", "after")]
    found = [[audit(side, seed=seed) for seed in (5, 6)] for side in made]
    # As the harness does: the first side's checks judge every other one.
    return made[0], found


def test_every_audit_is_near_the_truth_of_its_masks_and_leaves_the_inputs_as_they_were(sides):
    before, (full, windowed) = sides
    check = before.checks["each_by_its_mask"]
    kept = {name: array.clone() for name, array in before.inputs().items()}
    for one, other in zip(full, windowed, strict=True):
        outcome = check(one, other)
        assert outcome.passed
        assert outcome.value < 1e-5
    assert all((kept[name] == array).all() for name, array in before.inputs().items())


def test_a_side_that_ignores_the_window_or_mixes_inputs_is_far_from_the_truth(sides):
    before, (full, windowed) = sides
    check = before.checks["each_by_its_mask"]
    assert check(full[0], full[0]).value > 0.1
    assert check(windowed[0], windowed[0]).value > 0.1
    assert check(full[0], windowed[1]).value > 0.1
    broken = {"out": np.where(np.arange(96)[:, None] == 95, 0, windowed[0]["out"])}
    assert check(full[0], broken).value > 0.02
    assert not check(full[0], {"out": windowed[0]["out"] * np.nan}).passed
    assert not check(full[0], {"out": windowed[0]["out"][:, :2]}).passed
