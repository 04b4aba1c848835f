from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

from factory_of_profiles import LONG, made

from aiperf.records.profiled import CounterRow, Profile, SideProfile
from aiperf.report.numbers import clean
from aiperf.report.profile_text import profile_markdown
from aiperf.store.codec import to_plain
from aiperf.store.export import profile_cells
from aiperf.store.tables.columns import DataTable
from aiperf.store.tables.profiled import PROFILE_ROWS, PROFILE_SIDES

BARRIERS = (("before", 12.5), ("after", 3.0))


def rows_of(table: DataTable, *profiles: Profile) -> list[dict[str, Any]]:
    """What an export and ``aiperf profile --format csv`` have of ``profiles``."""
    columns, rows = profile_cells(profiles, table, clean=clean)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_every_field_of_a_row_is_a_column_and_every_row_has_them_all() -> None:
    rows = rows_of(PROFILE_ROWS, made(), replace(made(), case="other"))
    assert {f.name for f in fields(CounterRow)} < set(rows[0])
    assert [row["case"] for row in rows] == ["launches-vs-graph[n=300]"] * 9 + ["other"] * 9
    assert rows[0]["scenario"] == "launches-vs-graph"


def test_what_was_not_read_is_null_and_numbers_are_as_they_were_read() -> None:
    first = rows_of(PROFILE_ROWS, made())[0]
    assert (first["count"], first["time_s"], first["iterations"]) == (300, 3e-4, 5)
    unread = ("bytes", "dram_pct", "sector_use_pct", "grid", "rank", "bound", "why", "tool_says", "metrics")
    assert [first[name] for name in unread] == [None] * len(unread)


def test_operations_are_of_all_launches_and_each_second_of_their_time_and_null_where_they_were_not_counted() -> None:
    row = CounterRow("before", "ncu", "kernel", "k", count=4, time_s=2.0, metrics={"flops": 100.0})
    counted, bare = rows_of(PROFILE_ROWS, Profile("c", rows=(row, replace(row, metrics={}))))
    assert (counted["flops"], counted["flops_per_s"]) == (400.0, 200.0)
    assert (bare["flops"], bare["flops_per_s"]) == (None, None)


def test_what_warps_wait_for_is_told_where_both_sides_were_read() -> None:
    name = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
    rows = [CounterRow(side, "ncu", "kernel", "k", time_s=1.0, sm_pct=9.0, metrics={name: n}) for side, n in BARRIERS]
    said = "The wait of warps that changed most: other warps at a barrier (barrier), 12.5 → 3 of 12.5 → 3 cycles per"
    both, one = (profile_markdown(Profile("c", rows=tuple(rows[:count]))).replace("\\_", "_") for count in (2, 1))
    assert said in both
    assert "changed most" not in one


def test_counters_by_the_tools_own_name_are_one_json_object() -> None:
    row = next(row for row in rows_of(PROFILE_ROWS, made()) if row["tool"] == "perf")
    assert json.loads(row["metrics"]) == {"context-switches": 3.5, "page-faults": 0.0}


def test_a_number_that_is_none_is_null_too() -> None:
    row = CounterRow("before", "perf", "range", "x", time_s=float("nan"), metrics={"a": float("inf"), "b": 1.0})
    (made_row,) = rows_of(PROFILE_ROWS, Profile("c", rows=(row,)))
    assert made_row["time_s"] is None
    assert made_row["metrics"] == '{"b": 1.0}'


def test_iterations_are_null_where_the_tool_told_none() -> None:
    assert {row["iterations"] for row in rows_of(PROFILE_ROWS, made()) if row["tool"] == "ncu"} == {None}


def test_every_field_of_a_side_is_a_column() -> None:
    first = rows_of(PROFILE_SIDES, made())[0]
    assert {f.name for f in fields(SideProfile)} < set(first)
    assert (first["wall_s"], first["iterations"], first["lost"], first["peak_bytes"]) == (0.01, 5, "12 records", None)
    spots = rows_of(PROFILE_SIDES, made())[2]["hot"]
    assert json.loads(spots)[0] == {"name": "interpreter (python)", "share": 0.4}


def test_a_profile_is_json_through_the_codec() -> None:
    plain = to_plain(made())
    assert plain["rows"][0]["dram_pct"] is None
    assert plain["mechanism"][2]["before"] is None


def test_markdown_holds_every_table_and_marks_what_only_one_side_has() -> None:
    told = profile_markdown(made())
    assert (
        "| tensor\\_pipe | up | – | – | – | not readable here | tensor\\_pipe was not readable here: it takes ncu |"
        in told
    )
    assert "| wall | 2.00 ms | 400 µs |" in told
    assert "| gone\\_kernel | 1 | – | 20.0 µs | – | only before | – | – |" in told
    assert "| context-switches | 3.50 | 0.500 | −85.7 % |" in told
    assert "| interpreter (python) | 40 % | 20 % |" in told
    assert "- Lost: before: 12 records" in told
    assert "- perf: skipped: perf is not installed. apt install linux-perf" in told
    assert "NVIDIA says: Long Scoreboard" in told


def test_markdown_has_the_calls_of_the_host_in_a_table_of_their_own() -> None:
    rows = (
        CounterRow("before", "nsys", "kernel", "add", count=300, time_s=0.3e-3),
        CounterRow("before", "nsys", "call", "cudaFree", count=4, time_s=8e-6, rank=1),
        CounterRow("after", "nsys", "call", "cudaFree", count=2, time_s=6e-6, rank=1),
    )
    told = profile_markdown(Profile("c", rows=rows))
    assert "| cudaFree rank 1 | 4 | 2 | 8.00 µs | 6.00 µs | −25.0 % | 2.00 µs → 3.00 µs |" in told
    assert "| add rank 0 | 300 | 300 µs | only before |" in told
    assert told.index("| add rank 0 |") < told.index("**Calls on the host, by nsys; totals over everything profiled**")
    assert "| call |" not in told


def test_markdown_of_a_kernel_cannot_break_its_table() -> None:
    row = CounterRow("before", "nsys", "kernel", "a|b\n<script>`x`", count=1, time_s=1.0)
    told = profile_markdown(Profile("c|d", rows=(row,)))
    assert "a\\|b \\<script>\\`x\\`" in told
    assert "### c\\|d" in told


def test_markdown_tables_are_rectangular() -> None:
    told = profile_markdown(made())
    for block in told.split("\n\n"):
        if block.startswith("|"):
            assert len({line.replace("\\|", "").count("|") for line in block.splitlines()}) == 1
    assert LONG.split("<")[0].split("::")[0] in told


def test_markdown_has_the_rules_of_the_classes_below_their_tables_and_no_others() -> None:
    told = profile_markdown(made())
    rules = [line for line in told.splitlines() if line.startswith("- rule")]
    sides = ["- rule: the GPU", "- rule: the GPU"]
    assert [rule.partition(" is")[0] for rule in rules] == [
        *sides,
        "- rules: latency: SM and memory are both below 60 %",
    ]
    assert "- a counter counts as moved from 2 % on, a share from 2 points, a perf event from 10 %" in told
    assert "rule" not in profile_markdown(Profile("c"))
