"""compile.decode: all sides give the truth of every step, and compile as often as the number that changes asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.compile import decoding
from aiperf.workloads.compile import workload as family
from aiperf.workloads.contract import Context

SMALL: dict[str, Any] = {"kv_len": 256, "heads": 4, "kv_heads": 2, "head_dim": 16, "backend": "eager"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("held", "steps", "compiled"),
    # Past its eight compilations the module runs as it is; flex_attention then wraps itself, first for one number and
    # then for any.
    [("module", 10, [8 + 2, 1]), ("module", 3, [3, 1]), ("argument", 4, [2, 1])],
)
def test_both_sides_give_the_truth_of_every_step_and_compile_as_often_as_claimed(
    held: str, steps: int, compiled: list[int], tmp_path: Path
) -> None:
    pair = Pair("compile.decode", {"scalar": "python"}, {"scalar": "tensor"}, {**SMALL, "held": held, "steps": steps})
    found, graphs = [], []
    for which in ("before", "after"):
        side = set_up(pair, which, tmp_path)
        assert side.reference is not None
        assert side.counters is not None
        found.append(audit(side, seed=5))
        truth = {key: value.numpy() for key, value in side.reference().items()}
        assert differences(found[-1], truth, rtol=1e-4, atol=1e-5) == []
        graphs.append(side.counters()["graphs"])
    assert found[0]["out"].shape == (steps, 4, 1, 16)
    assert differences(*found, rtol=1e-4, atol=1e-5) == []
    assert graphs == compiled


def test_a_mask_that_is_one_position_late_is_further_from_the_truth_than_the_scenario_allows(tmp_path: Path) -> None:
    side = family.decode(Context(scratch=tmp_path), steps=100, backend="eager")
    assert side.inputs is not None
    q, k, v = side.inputs().values()
    truth, late = decoding._truth(q, k, v), decoding._truth(q, k[:, :, :-1], v[:, :, :-1])
    found = side.checks["relative_frobenius"]({"out": truth.numpy()}, {"out": late.numpy()})
    assert found.value is not None
    assert found.value > 0.01


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"steps": 0}, "steps 1 to 128"),
        ({"steps": 129}, "steps 1 to 128"),
        ({"kv_len": 128}, "two or more times 128"),
        ({"kv_len": 300}, "two or more times 128"),
        ({"heads": 6, "kv_heads": 4}, "multiple of kv_heads"),
        ({"compiler_files": "kept"}, "needs backend: inductor"),
    ],
)
def test_contradictions_are_refused_with_the_rule(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.decode(Context(), **(SMALL | params))
