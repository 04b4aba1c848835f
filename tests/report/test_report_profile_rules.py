"""The rules that stand below a profile: those of the classes and the finer words that it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiperf.profilers.classify import kernel_bound
from aiperf.records.profiled import CounterRow
from aiperf.report.profile_rules import kernel_rules, side_rule


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
