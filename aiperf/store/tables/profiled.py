"""The tables of what profilers read: activities, their further counters, sides, passes, and claimed mechanisms.

What must not live here: what was measured (measured.py), DuckDB, files.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from aiperf.profilers.ncu_read import FLOPS
from aiperf.records.profiled import CounterRow
from aiperf.store.tables.columns import DataColumn, DataRow, DataTable, RunSource, column
from aiperf.store.tables.measured import CASE as MEASURED_CASE
from aiperf.store.tables.measured import RUN

# ---- reading ---------------------------------------------------------------------------------------------------------


def _scenario(row: DataRow) -> str:
    assert row.profile is not None
    return row.profile.case.partition("[")[0]


def _iterations(row: DataRow) -> int | None:
    """Iterations that the totals of a row are of, where its tool reported the side as a whole."""
    assert row.profile is not None
    key = (row.item.side, row.item.tool)
    return next((side.iterations for side in row.profile.sides if (side.side, side.tool) == key), None) or None


def _metrics(row: DataRow) -> dict[str, float] | None:
    return {name: value for name, value in sorted(row.item.metrics.items()) if math.isfinite(value)} or None


def _flops(row: DataRow) -> float | None:
    each = row.item.metrics.get(FLOPS)
    return None if each is None else each * (row.item.count or 1)


def _flops_per_s(row: DataRow) -> float | None:
    flops = _flops(row)
    return flops / row.item.time_s if flops is not None and row.item.count and row.item.time_s else None


# ---- rows ------------------------------------------------------------------------------------------------------------


def _activity_rows(run: RunSource) -> Iterator[DataRow]:
    return (DataRow(run, item, profile=profile) for profile in run.profiles for item in profile.rows)


class _FurtherCounter(NamedTuple):
    activity: CounterRow
    metric: str
    value: float


def _metric_rows(run: RunSource) -> Iterator[DataRow]:
    for row in _activity_rows(run):
        for name, value in row.item.metrics.items():
            yield row._replace(item=_FurtherCounter(row.item, name, value))


def _side_rows(run: RunSource) -> Iterator[DataRow]:
    return (DataRow(run, item, profile=profile) for profile in run.profiles for item in profile.sides)


def _pass_rows(run: RunSource) -> Iterator[DataRow]:
    return (DataRow(run, item, profile=profile) for profile in run.profiles for item in profile.artefacts)


def _mechanism_rows(run: RunSource) -> Iterator[DataRow]:
    return (DataRow(run, item, profile=profile) for profile in run.profiles for item in profile.mechanism)


# ---- the tables ------------------------------------------------------------------------------------------------------

_CASE = column("case", "text", MEASURED_CASE.meaning, "profile.case")
_SCENARIO = column("scenario", "text", "name of the scenario", _scenario)
_OF_A_PROFILE = (RUN, _CASE, _SCENARIO)
_SIDE = column("side", "text", "before, after, or a step of a ladder")
_TOOL = column("tool", "text", "nsys, ncu, torch, perf; aiperf: the workload's own counts")


def _of_activity(item: str) -> tuple[DataColumn, ...]:
    """The columns that say which activity a row is of; ``item``: the path to the activity."""
    return (
        column("side", "text", _SIDE.meaning, f"{item}.side"),
        column("rank", "whole", "rank of a gang", f"{item}.rank"),
        column("device", "whole", "number of the GPU", f"{item}.device"),
        column("tool", "text", _TOOL.meaning, f"{item}.tool"),
        column(
            "kind", "text", "kernel, graph, memcpy, memset, collective; op, call: on the host; range", f"{item}.kind"
        ),
        column("name", "text", "the kernel, the direction of the copy, the operator, ...", f"{item}.name"),
    )


PROFILE_ROWS = DataTable(
    "profile_rows",
    "one row for each activity that a profiler saw under a side: all calls of one kernel, all copies in one "
    "direction; null: not read",
    (
        *_OF_A_PROFILE,
        *_of_activity("item"),
        column("iterations", "whole", "profiled iterations that totals cover", _iterations),
        column("count", "whole", "calls in all iterations"),
        column("time_s", "number", "time of all calls: on the device; for an op, its own time on the host", unit="s"),
        column("median_s", "number", "median call", unit="s"),
        column("bytes", "number", "bytes of all calls: copied, or to and from DRAM", unit="B"),
        column("bytes_per_s", "number", "bytes per second of that time", unit="B/s"),
        column("dram_pct", "number", "DRAM throughput, share of its peak", unit="%"),
        column("sm_pct", "number", "SM throughput, share of its peak", unit="%"),
        column("memory_pct", "number", "throughput of the busiest level of memory, share of its peak", unit="%"),
        column("tensor_pct", "number", "tensor pipe, share of its peak", unit="%"),
        column("l2_pct", "number", "L2 throughput, share of its peak", unit="%"),
        column("l1_pct", "number", "L1 throughput, share of its peak", unit="%"),
        column("sector_use_pct", "number", "used share of each loaded sector: 100 is coalesced", unit="%"),
        column("occupancy_pct", "number", "active warps, share of what an SM can hold", unit="%"),
        column("occupancy_limit_pct", "number", "highest occupancy that the launch allows", unit="%"),
        column("waves", "number", "waves of blocks on each SM"),
        column("grid", "whole", "blocks"),
        column("block", "whole", "threads per block"),
        column("registers", "whole", "registers per thread"),
        column("shared_bytes", "whole", "shared memory per block", unit="B"),
        column("bound", "text", "bottleneck class: memory, compute, latency, balanced, ..."),
        column("why", "text", "the rule and the numbers that decided it"),
        column("tool_says", "text", "the tool's own verdict"),
        column("metrics", "json", "further counters, as in profile_metrics", _metrics),
        column("flops", "number", "floating-point operations of all calls, counted", _flops, unit="FLOP"),
        column("flops_per_s", "number", "FLOP per second of that time", _flops_per_s, unit="FLOP/s"),
    ),
    _activity_rows,
    level="profile",
)
PROFILE_METRICS = DataTable(
    "profile_metrics",
    "one row for each further counter of a row of profile_rows, by the tool's own name",
    (
        *_OF_A_PROFILE,
        *_of_activity("item.activity"),
        column("metric", "text", "dram__bytes_read.sum, context-switches, flops, ..."),
        column("value", "number", "mean over the calls; for perf, per iteration"),
    ),
    _metric_rows,
    level="profile",
)
PROFILE_SIDES = DataTable(
    "profile_sides",
    "one row for each side as a whole by each tool, ranks merged: totals of all iterations; null: not read",
    (
        *_OF_A_PROFILE,
        _SIDE,
        _TOOL,
        column("iterations", "whole", "profiled iterations that totals cover", lambda row: row.item.iterations or None),
        column("wall_s", "number", "wall time of the range, of the slowest rank", unit="s"),
        column("gpu_span_s", "number", "from the first GPU operation to the last; mean over devices", unit="s"),
        column("gpu_busy_s", "number", "part of the span with work on the GPU", unit="s"),
        column("host_wait_s", "number", "part of the span idle because of late launches", unit="s"),
        column("other_wait_s", "number", "part of the span idle for other reasons", unit="s"),
        column("compute_s", "number", "kernels and graphs", unit="s"),
        column("copy_s", "number", "copies and fills", unit="s"),
        column("copy_overlap_pct", "number", "share of copies (without fills) hidden by computation", unit="%"),
        column("concurrency", "number", "GPU operations at a time, while any runs; mean over devices"),
        column("streams", "whole", "streams that ran kernels on a device"),
        column("kernel_concurrency", "number", "kernels at a time, while any runs; mean over devices and ranks"),
        column("launches", "whole", "launches by the host; like all counts, of the slowest rank"),
        column("launch_interval_s", "number", "wall time per launch", unit="s"),
        column("kernels", "whole", "kernels, graphs and collectives that ran"),
        column("mean_kernel_s", "number", "mean time of a kernel", unit="s"),
        column("syncs", "whole", "times that the host waited for the GPU"),
        column("sync_s", "number", "time in these waits", unit="s"),
        column("communication_s", "number", "collectives, smallest over the ranks", unit="s"),
        column("exposed_s", "number", "communication not hidden by computation", unit="s"),
        column("overlap_pct", "number", "share of communication hidden by computation", unit="%"),
        column("skew_s", "number", "largest minus smallest communication over the ranks", unit="s"),
        column("threads", "whole", "host threads that launched GPU work"),
        column("ranks", "whole", "ranks merged"),
        column("peak_bytes", "whole", "peak memory of all ranks, on GPUs if there are any", unit="B"),
        column(
            "hot", "json", "where the host spent its time: name and share of each", lambda row: row.item.hot or None
        ),
        column("bound", "text", "bottleneck class: launch, transfer, communication, host, gpu, ..."),
        column("why", "text", "the rule and the numbers that decided it"),
        column("lost", "text", "what the tool dropped or could not attribute"),
    ),
    _side_rows,
    level="profile",
)
PROFILE_PASSES = DataTable(
    "profile_passes",
    "one row for each pass of a tool over a case, read or not, and why not",
    (
        *_OF_A_PROFILE,
        column("side", "text", "null: one pass over all sides"),
        _TOOL,
        column("status", "text", "read, empty, failed, skipped"),
        column("reason", "text", "why it was not read, and what would fix it"),
        column("code", "text", "no_kernel: a tracer saw no kernel of the side"),
        column("version", "text", "version of the tool"),
        column(
            "seconds",
            "number",
            "time that the pass took; null: no pass was made",
            lambda row: row.item.seconds or None,
            unit="s",
        ),
        column("files", "texts", "raw reports kept in the run's folder"),
        column("command", "text", "the command line", lambda row: shlex.join(row.item.command)),
    ),
    _pass_rows,
    level="profile",
)
MECHANISMS = DataTable(
    "mechanisms",
    "one row for each counter that a scenario claims to move, compared with what was profiled",
    (
        *_OF_A_PROFILE,
        column("counter", "text", "the counter claimed"),
        column("claimed", "text", "up, down, same"),
        column("before", "number", "value under the first side"),
        column("after", "number", "value under the last side"),
        column("unit", "text", "unit of both, if the counter has one"),
        column("state", "text", "moved, did_not_move, opposite, not_readable"),
        column("tool", "text", "tool that read it"),
        column("sentence", "text", "the outcome in words"),
    ),
    _mechanism_rows,
    level="profile",
)
PROFILED = (PROFILE_ROWS, PROFILE_METRICS, PROFILE_SIDES, PROFILE_PASSES, MECHANISMS)
