"""Reads Nsight Compute reports: the counters of every kernel inside a side's range.

What must not live here: commands, and rules on what bounds a kernel (classify.py).

Needs NVIDIA's ncu_report module: an installed one, or the one in Nsight Compute's own folder. It loads a file that is
no report without complaint and without a kernel, so only kernels count as success.
"""

from __future__ import annotations

import importlib
import math
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiperf.profilers.activity import kernel_kind
from aiperf.profilers.arithmetic import operations
from aiperf.profilers.classify import kernel_bound
from aiperf.profilers.reading import Pass, Reading, UnreadableReport
from aiperf.profilers.waits import WAITS
from aiperf.records.profiled import CounterRow, Kind, ProfileNote

_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_TIME = "gpu__time_duration.sum"
FIELDS: dict[str, tuple[str, ...]] = {
    "bytes": ("dram__bytes.sum",),
    "dram_pct": (f"dram__throughput.{_ELAPSED}", f"gpu__dram_throughput.{_ELAPSED}"),
    "sm_pct": (f"sm__throughput.{_ELAPSED}",),
    "memory_pct": (f"gpu__compute_memory_throughput.{_ELAPSED}",),
    "tensor_pct": (f"sm__pipe_tensor_cycles_active.{_ELAPSED}",),
    "l2_pct": (f"lts__throughput.{_ELAPSED}",),
    "l1_pct": (f"l1tex__throughput.{_ELAPSED}", "l1tex__throughput.avg.pct_of_peak_sustained_active"),
    "sector_use_pct": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",),
    "occupancy_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "occupancy_limit_pct": ("sm__maximum_warps_per_active_cycle_pct",),
    "waves": ("launch__waves_per_multiprocessor",),
}
"""Column -> metrics that hold it, the preferred one first."""
WHOLE: dict[str, tuple[str, ...]] = {
    "grid": ("launch__grid_size",),
    "block": ("launch__block_size",),
    "registers": ("launch__registers_per_thread",),
    "shared_bytes": ("launch__shared_mem_per_block",),
    "device": ("launch__device_id",),
}
"""The same of columns that are whole numbers: what is known of a launch without a counter."""
EXTRAS = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "sm__inst_executed.sum",
)
NCU_METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    f"dram__throughput.{_ELAPSED}",
    f"lts__throughput.{_ELAPSED}",
    f"l1tex__throughput.{_ELAPSED}",
    f"sm__pipe_tensor_cycles_active.{_ELAPSED}",
    "lts__t_sector_hit_rate.pct",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
)
"""Metrics that ncu is asked for in every case."""
FLOPS = "flops"
"""Name among a row's metrics of what is worked out from others: floating-point operations of a launch."""
_SECONDS = {
    "ns": 1e-9,
    "nsecond": 1e-9,
    "us": 1e-6,
    "usecond": 1e-6,
    "ms": 1e-3,
    "msecond": 1e-3,
    "s": 1.0,
    "second": 1.0,
}


def read_ncu(
    path: Path, launched: Sequence[Pass], *, extras: Path | None = None, claimed: Sequence[str] = ()
) -> Reading:
    """One row for each kernel name of each side; its counters are means over the kernel's launches.

    ``extras``: folder of Nsight Compute that holds ncu_report, for when it is not installed. ``claimed``: metrics that
    were asked for beside those of every case. Raises UnreadableReport.
    """
    library = _library(extras)
    sides = {name: one for one in launched for name in one.names}
    try:
        found = [
            None if side is None else _row(action, side, claimed)
            for action in _actions(library.load_report(str(path)))
            for side in [_side_of(action, sides)]
        ]
    except Exception as error:
        # The module raises whatever its C++ side throws.
        raise UnreadableReport(f"{path.name} is not a report that ncu_report reads ({error})") from None
    if not found:
        raise UnreadableReport(f"{path.name} has no kernel: it is cut short, or not a report of ncu")
    groups: dict[tuple[str, str, Kind, int | None], list[CounterRow]] = {}
    for row in found:
        if row is not None:
            groups.setdefault((row.side, row.name, row.kind, row.device), []).append(row)
    sides_asked = dict.fromkeys(one.side for one in launched)
    outside = sum(row is None for row in found)
    seen = {key[0] for key in groups}
    notes = [ProfileNote("no_kernel", {"side": side}) for side in sides_asked if side not in seen]
    notes += [ProfileNote("kernels_outside", {"count": outside})] if outside else []
    rows = sorted((_mean(rows) for rows in groups.values()), key=lambda row: -(row.time_s or 0.0))
    return Reading(rows=tuple(rows), notes=tuple(notes))


def ncu_ranges(path: Path, domain: str, *, extras: Path | None = None) -> tuple[str, ...]:
    """Names of the outermost ranges of a domain that hold kernels. Raises UnreadableReport."""
    library = _library(extras)
    try:
        return tuple(
            dict.fromkeys(
                str(ranges[0])
                for action in _actions(library.load_report(str(path)))
                if (state := action.nvtx_state()) is not None
                for number in state.domains()
                if (found := state.domain_by_id(number)) is not None and found.name() == domain
                if (ranges := found.start_end_ranges())
            )
        )
    except Exception as error:
        raise UnreadableReport(f"{path.name} is not a report that ncu_report reads ({error})") from None


def _library(extras: Path | None) -> Any:
    try:
        return importlib.import_module("ncu_report")
    except ImportError:
        if extras is None or not (extras / "ncu_report.py").is_file():
            raise UnreadableReport("no ncu_report module: pip install 'aiperf-ab[profile]'") from None
    sys.path.append(str(extras))
    try:
        return importlib.import_module("ncu_report")
    except ImportError as error:
        raise UnreadableReport(f"the ncu_report of {extras} cannot be imported ({error})") from None
    finally:
        sys.path.remove(str(extras))


def _actions(context: Any) -> Iterator[Any]:
    for part in context:
        yield from part


def _side_of(action: Any, sides: dict[str, Pass]) -> str | None:
    """The side whose start/end range holds a kernel; with one side only, a report without NVTX state is that side's."""
    state = action.nvtx_state()
    if state is None:
        only = {one.side for one in sides.values()}
        return only.pop() if len(only) == 1 else None
    for number in state.domains():
        domain = state.domain_by_id(number)
        if domain is None:
            continue
        for name in (*domain.start_end_ranges(), *domain.push_pop_ranges()):
            one = sides.get(str(name))
            if one is not None and (not one.domain or domain.name() == one.domain):
                return one.side
    return None


def _row(action: Any, side: str, claimed: Sequence[str]) -> CounterRow:
    seconds = _seconds(action)
    # A range that ncu replayed as a whole is one workload with a name of its own.
    kind: Kind = "range" if action.workload_type() == 1 else kernel_kind(action.name())
    numbers = {field: _value(action, names) for field, names in FIELDS.items()}
    whole = {field: _value(action, names) for field, names in WHOLE.items()}
    if not numbers["sector_use_pct"]:
        # 0 of 0 sectors: the kernel loads nothing this way (a wgmma GEMM loads through the tensor memory accelerator).
        numbers["sector_use_pct"] = None
    moved = numbers["bytes"]
    metrics = {name: value for name in (*EXTRAS, *WAITS, *claimed) if (value := _value(action, (name,))) is not None}
    flops = operations(lambda name: _value(action, (name,)), tensor_pct=numbers["tensor_pct"])
    return CounterRow(
        side=side,
        tool="ncu",
        kind=kind,
        name=action.name(),
        count=1,
        time_s=seconds,
        median_s=seconds,
        bytes_per_s=moved / seconds if moved is not None and seconds else None,
        tool_says=_rule(action),
        metrics=metrics if flops is None else {**metrics, FLOPS: flops},
        **{field: None if value is None else int(value) for field, value in whole.items()},  # type: ignore[arg-type]
        **numbers,  # type: ignore[arg-type]
    )


def _value(action: Any, names: Sequence[str]) -> float | None:
    for name in names:
        metric = action.metric_by_name(name)
        if metric is not None and metric.has_value() and isinstance(metric.value(), int | float):
            number = float(metric.value())
            # ncu divides by zero into NaN.
            return number if math.isfinite(number) else None
    return None


def _seconds(action: Any) -> float | None:
    number = _value(action, (_TIME,))
    unit = _SECONDS.get(action.metric_by_name(_TIME).unit() or "ns") if number is not None else None
    return number * unit if number is not None and unit is not None else None


def _rule(action: Any) -> str:
    """Nsight Compute's own verdict on what limits a kernel: its title and, after a colon, its explanation."""
    for rule in action.rule_results_as_dicts():
        message = rule["rule_message"]
        if rule["rule_identifier"] == "SOLBottleneck" and message["title"]:
            # Links are for its own window: @section:Name:Label@ and @url:Label:Address@.
            text = re.sub(r"@section:[^:@]*:([^@]*)@|@url:([^:@]*):[^@]*@", r"\1\2", str(message.get("message", "")))
            return f"{message['title']}: {' '.join(text.split())}" if text.strip() else str(message["title"])
    return ""


def _mean(rows: Sequence[CounterRow]) -> CounterRow:
    """Launches of one kernel as one row: times added up, everything else a mean over those that have it."""
    times = [row.time_s for row in rows if row.time_s is not None]
    numbers = {field: _average([getattr(row, field) for row in rows]) for field in (*FIELDS, "bytes_per_s")}
    moved = [row.bytes for row in rows if row.bytes is not None]
    names = dict.fromkeys(name for row in rows for name in row.metrics)
    merged = replace(
        rows[0],
        count=len(rows),
        time_s=sum(times) if times else None,
        median_s=statistics.median(times) if times else None,
        metrics={name: statistics.fmean(row.metrics[name] for row in rows if name in row.metrics) for name in names},
        **numbers,  # type: ignore[arg-type]
    )
    merged = replace(merged, bytes=sum(moved) if moved else None)
    bound, why = kernel_bound(merged)
    return replace(merged, bound=bound, why=why)


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
