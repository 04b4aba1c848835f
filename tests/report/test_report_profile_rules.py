"""The rules that stand below a profile: those of the classes and the finer words that it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiperf.profilers.classify import kernel_bound
from aiperf.profilers.waits import CONFLICTS, WAVEFRONTS
from aiperf.records.profiled import CounterRow
from aiperf.report.profile_rules import kernel_rules, side_rule

_BUSIEST = "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed"
_BARRIER = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"


def classed(**counters: Any) -> CounterRow:
    """A row with the class and the reason that the counters come to."""
    row = CounterRow("before", "ncu", "kernel", "k", **counters)
    bound, why = kernel_bound(row)
    return replace(row, bound=bound, why=why)


@pytest.mark.parametrize(
    ("counters", "rules"),
    [
        ({"sm_pct": 8.0, "memory_pct": 97.0, "l2_pct": 97.0, "sector_use_pct": 12.5},
         ["memory: memory is at least 10 points above SM", "level: of DRAM, L2 and L1",
          "uncoalesced: less than 50 % of each sector used"]),
        ({"sm_pct": 70.0, "memory_pct": 72.0, "l2_pct": 72.0},
         ["balanced: SM and memory are less than 10 points apart", "level: of DRAM, L2 and L1"]),
        ({"sm_pct": 10.0, "memory_pct": 20.0, "waves": 0.5},
         ["latency: SM and memory are both below 60 %", "smaller than one wave: waves below 1"]),
        ({"sm_pct": 10.0, "memory_pct": 20.0, "waves": 2.0, "occupancy_pct": 12.0},
         ["latency: SM and memory are both below 60 %", "too few warps: occupancy below 50 %"]),
        ({"sm_pct": 93.0, "memory_pct": 95.0, "tensor_pct": 93.0, "dram_pct": 19.0},
         ["compute: SM is at least 10 points above memory", "tensor pipe: within 10 points of SM"]),
        ({"sm_pct": 90.0, "memory_pct": 50.0}, ["compute: SM is at least 10 points above memory"]),
        ({"sm_pct": 5.0, "memory_pct": 20.0, "metrics": {_BUSIEST: 97.0}},
         ["atomics: SM and memory are both below 60 %", "busiest atomic unit: named from 60 % on"]),
        ({"sm_pct": 5.0, "memory_pct": 20.0, "metrics": {_BARRIER: 3.0}},
         ["latency: SM and memory are both below 60 %", "waits: the reason that has most of the warps' cycles"]),
        ({"sm_pct": 5.0, "memory_pct": 20.0, "metrics": {CONFLICTS: 30.0, WAVEFRONTS: 32.0}},
         ["latency: SM and memory are both below 60 %", "bank conflicts: at least 50 % of the wavefronts"]),
        # Where SM and memory are even, no queue is named.
        ({"sm_pct": 70.0, "memory_pct": 72.0, "l1_pct": 72.0, "metrics": {CONFLICTS: 30.0, WAVEFRONTS: 32.0}},
         ["balanced: SM and memory are less than 10 points apart", "level: of DRAM, L2 and L1"]),
        ({}, []),
    ],
)  # fmt: skip
def test_every_word_that_a_reason_holds_has_its_rule(counters: dict[str, Any], rules: list[str]) -> None:
    found = kernel_rules([classed(**counters)])
    assert len(found) == len(rules)
    assert all(one.startswith(rule) for one, rule in zip(found, rules, strict=True))


def test_a_rule_stands_once_and_a_side_has_one_only_where_its_own_numbers_decided() -> None:
    row = classed(sm_pct=90.0, memory_pct=50.0)
    assert len(kernel_rules([row, row])) == 1
    assert side_rule("host").startswith("the GPU is busy for less than 50 %")
    assert side_rule("memory") == ""
