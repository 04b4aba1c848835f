"""Workloads and counters as people and programs read of them, to the character."""

from __future__ import annotations

import json

import pytest
from printed import lines_of, text_of

from aiperf.profilers.counters import COUNTERS
from aiperf.report.counters import counter_rows
from aiperf.report.layout.formats import document_json
from aiperf.report.views.listings import counters_view, workloads_view
from aiperf.report.workloads import workload_view
from aiperf.scenario.workloads import Parameter, WorkloadListing

LIST = """\
 workload       scenarios  what a step does
 memory.alloc           0  Take it.
 transfer.copy          7  Copy `size` bytes from a source into a
                           destination.

aiperf show WORKLOAD lists its parameters; workload:
  ./my-file.py:function runs one of yours.
"""
SHOW = """\
transfer.copy: Copy `size` bytes from a source into a
    destination. Then wait.

More is said here, in two lines.

 parameter  default   takes
 size       256MiB    size
 way        required  one of h2d, d2h
A size needs a unit, such as 256MiB.

Scenarios that use it
  s0, s1, s2, s3, s4 and 2 more.
"""
BARE = """\
memory.alloc: Take it.

It takes no parameters.

Scenarios that use it
  None of the shipped ones.
"""
DOC = "Copy ``size`` bytes from a source into a destination. Then wait.\n\nMore is said here,\nin two lines."
COPY = WorkloadListing(
    "transfer.copy",
    "Copy ``size`` bytes from a source into a\x1b[1m destination.",
    DOC,
    (
        Parameter("size", "Size", "size", None, False, 1 << 28, "256MiB"),
        Parameter("way", "Literal['h2d', 'd2h']", "one of h2d, d2h", ("h2d", "d2h"), True),
    ),
    tuple(f"s{n}" for n in range(7)),
)
ALLOC = WorkloadListing("memory.alloc", "Take it.", "Take it.", (), ())


def test_the_list_of_workloads_is_this_to_the_character():
    assert text_of(workloads_view([ALLOC, COPY]), width=66) == LIST


def test_a_workload_is_explained_to_the_character():
    assert text_of(workload_view(COPY), width=60) == SHOW
    assert text_of(workload_view(ALLOC)) == BARE


def test_a_few_scenarios_are_all_named():
    few = WorkloadListing("a.b", "", "", (), ("x", "y"))
    told = text_of(workload_view(few)).splitlines()
    assert (told[0], told[-1]) == ("a.b: It has no docstring.", "  x, y.")


def test_a_workload_is_json_with_what_is_required_and_allowed():
    (document,) = json.loads(document_json([COPY]))
    size, way = document["parameters"]
    assert (size["default"], size["required"], size["allowed"]) == (1 << 28, False, None)
    assert (way["default"], way["required"], way["allowed"]) == (None, True, ["h2d", "d2h"])
    assert len(document["scenarios"]) == 7


def test_every_counter_is_listed_with_its_unit_its_tools_and_a_meaning():
    rows = counter_rows(COUNTERS.values())
    text = text_of(counters_view(rows)).splitlines()
    assert text[:2] == [
        " counter                read by        meaning (unit)",
        " launches               nsys or torch  launches of kernels and graphs, per iteration",
    ]
    assert " dram_bytes             ncu            bytes to and from DRAM, per iteration (B)" in text
    assert [line.split()[0] for line in text[1 : 1 + len(COUNTERS)]] == list(COUNTERS)
    assert all(len(row.meaning.split()) > 1 for row in rows)
    assert text[-2:] == [
        "", "moves: also accepts the workload's own counters and any metric of Nsight Compute (smsp__...)."
    ]  # fmt: skip


def test_counters_are_json_with_the_preferred_tool_first():
    rows = json.loads(document_json(counter_rows(COUNTERS.values())))
    assert rows[0] == {
        "name": "launches", "unit": "", "meaning": COUNTERS["launches"].meaning, "tools": ["nsys", "torch"]
    }  # fmt: skip


@pytest.mark.parametrize("width", [60, 100])
def test_the_listings_fit_the_terminal(width):
    views = (workloads_view([ALLOC, COPY]), workload_view(COPY), counters_view(counter_rows(COUNTERS.values())))
    lines = [line for view in views for line in lines_of(view, width=width)]
    assert max(len(line.text) for line in lines) <= width
