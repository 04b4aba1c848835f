"""attention.ragged: how sequences are cut into parts, and what is refused; its kernels run in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest

from aiperf.workloads.attention import workload as attention
from aiperf.workloads.attention.ragged import divided
from aiperf.workloads.contract import Context, SkipSide

GIVEN: dict[str, Any] = {"lengths": [70, 3], "heads": 4, "kv_heads": 2, "head_dim": 32, "splits": 2}


def test_a_sequence_is_cut_into_so_many_parts_of_whole_blocks_and_a_short_one_into_fewer() -> None:
    cut = divided([70, 3, 16], splits=3, part_keys=0, block_kv=16)
    assert cut.items == [(0, 0, 32), (0, 32, 64), (0, 64, 70), (1, 70, 73), (2, 73, 89)]
    assert cut.firsts == [0, 3, 4, 5]
    assert cut.most == 3


def test_parts_of_so_many_keys_are_alike_but_for_the_last_of_each_sequence() -> None:
    cut = divided([70, 3, 64], splits=0, part_keys=32, block_kv=16)
    assert [stop - start for _, start, stop in cut.items] == [32, 32, 6, 3, 32, 32]
    assert cut.firsts == [0, 3, 4, 6]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": [5, 0]}, "1 or more"),
        ({"lengths": []}, "1 or more"),
        ({"heads": 5}, "multiple of kv_heads"),
        ({"head_dim": 24}, "must be a power of 2, at least 16"),
        ({"part_keys": 64}, "either splits or part_keys"),
        ({"splits": 0}, "either splits or part_keys"),
        ({"splits": 0, "part_keys": 65}, "multiple of block_kv"),
    ],
)
def test_what_cannot_be_cut_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention.ragged(Context(), **{**GIVEN, **changes})


def test_without_a_gpu_the_side_is_skipped() -> None:
    with pytest.raises(SkipSide, match=r"GPU|Triton"):
        attention.ragged(Context(), **GIVEN)
