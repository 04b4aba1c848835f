"""Operations from instruction counters: a small table made by hand, because no recorded report holds such counters."""

from __future__ import annotations

import pytest

from aiperf.profilers.arithmetic import INSTRUCTIONS, TENSOR, operations, wanted

NONE = dict.fromkeys(INSTRUCTIONS, 0.0)
IDLE = {name: 0.0 for alternatives in TENSOR.values() for name in alternatives[0]}
BF16, FP8 = "sm__ops_path_tensor_src_bf16_dst_fp32", "sm__ops_path_tensor_src_fp8"


def thread(op: str) -> str:
    return f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"


def counted(*tables: dict[str, float], tensor_pct: float | None = 0.0) -> float | None:
    told = {name: number for table in tables for name, number in table.items()}
    return operations(told.get, tensor_pct=tensor_pct)


@pytest.mark.parametrize(
    ("op", "each"),
    [
        ("fadd", 1), ("fmul", 1), ("ffma", 2), ("dadd", 1), ("dmul", 1), ("dfma", 2), ("hadd", 2), ("hmul", 2),
        ("hfma", 4),
    ],
)  # fmt: skip
def test_an_instruction_counts_by_its_operations_and_lanes(op: str, each: int):
    assert counted(NONE, {thread(op): 1000.0}) == 1000.0 * each


def test_instructions_and_the_tensor_path_are_added_up():
    assert counted(NONE, IDLE, {thread("fadd"): 5.0, f"{BF16}.sum": 4096.0}, tensor_pct=80.0) == 4101.0


def test_parts_stand_in_for_a_total_that_this_release_does_not_have():
    parts = {f"{BF16}_sparsity_off.sum": 30.0, f"{BF16}_sparsity_on.sum": 4.0}
    assert counted(NONE, parts, tensor_pct=50.0) == 34.0
    # Beside the total the parts are the same operations once more.
    assert counted(NONE, parts, {f"{BF16}.sum": 34.0}, tensor_pct=50.0) == 34.0


@pytest.mark.parametrize("absent", sorted(INSTRUCTIONS))
def test_without_one_of_the_counters_nothing_is_known_and_never_zero(absent: str):
    assert counted({name: 1.0 for name in INSTRUCTIONS if name != absent}, IDLE) is None


@pytest.mark.parametrize(
    ("tensor", "pct", "flops"),
    [
        ({}, 0.0, 0.0),
        ({}, None, None),
        ({}, 40.0, None),
        # Half of a total is no total.
        ({f"{BF16}_sparsity_off.sum": 30.0}, 40.0, None),
        # Busy with something that the counters at hand do not count.
        ({f"{BF16}.sum": 0.0}, 40.0, None),
        # All of them are at hand: busy with integers.
        (IDLE, 40.0, 0.0),
    ],
)
def test_a_tensor_path_that_was_not_counted_is_not_an_idle_one(
    tensor: dict[str, float], pct: float | None, flops: float | None
):
    assert counted(NONE, tensor, tensor_pct=pct) == flops


def test_only_what_a_profiler_offers_is_asked_of_it_and_totals_before_their_parts():
    everything = wanted(lambda name: True)
    assert len(everything) == len(set(everything)) == len(INSTRUCTIONS) + len(TENSOR)
    parts = wanted(lambda name: name not in (BF16, FP8))
    assert f"{BF16}.sum" not in parts
    assert {f"{BF16}_sparsity_off.sum", f"{BF16}_sparsity_on.sum", f"{FP8}_sparsity_off.sum"} < set(parts)
    assert wanted(lambda name: name == f"{BF16}_sparsity_off") == ()
    assert wanted(lambda name: False) == ()
