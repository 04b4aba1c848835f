"""The command line of every profiler pass, as an argv that a user can run by hand.

What must not live here: starting processes, finding tools, reading reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aiperf.profilers.tools import Tool

NCU_SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats")
"""Named sections, not a set: what a set holds, and what the default set is called, changes between releases."""
_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
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
NOT_NCCL = "regex:^(?!nccl)"
"""Kernels of collectives wait for other ranks, which ncu stops meanwhile: it would hang."""
PERF_EVENTS = (
    *("task-clock", "context-switches", "cpu-migrations", "page-faults", "minor-faults", "major-faults"),
    *("cycles", "instructions", "cache-references", "cache-misses", "dTLB-loads", "dTLB-load-misses"),
    *("branches", "branch-misses"),
)


def nsys_profile(nsys: Tool, argv: Sequence[str], *, output: Path, gpu: bool, storage: bool = False) -> list[str]:
    """Trace a program and all it starts into ``output``.nsys-rep, ranks of a gang on one clock.

    CUDA and NVTX on a GPU, calls of the operating system and NVTX on a CPU, and no sampling or context switches on
    either: they need rights, make reports of gigabytes, and with them the agent of nsys 2022.4 often never ends (it
    spins on the closed perf events of a program that is gone). perf samples. CUDA graphs are traced node by node: only
    so are their kernels visible. ``storage`` also traces the operating system's calls on a GPU, and those of GPUDirect
    Storage where this nsys can.
    """
    command = [str(nsys.path), "profile", "-o", str(output), "--force-overwrite=true"]
    traced = ["cuda", "nvtx"] if gpu else ["nvtx", "osrt"]
    if gpu and storage:
        traced += ["osrt", *(["gds"] if nsys.can("gds") else [])]
    command += [f"--trace={','.join(traced)}", *(["--cuda-graph-trace=node"] if gpu else [])]
    command += ["--sample=none", "--cpuctxsw=none", "--backtrace=none", "--resolve-symbols=false"]
    return [*command, *(["--wait=primary"] if nsys.can("--wait") else []), *argv]


def nsys_export(nsys: Tool, report: Path, *, output: Path) -> list[str]:
    """Export a report as sqlite: the tables are the same over releases, those of ``nsys stats`` are not."""
    return [
        *(str(nsys.path), "export", "--type", "sqlite", "--quiet", "true", "--force-overwrite", "true"),
        *("--output", str(output), str(report)),
    ]


def ncu_profile(
    ncu: Tool,
    argv: Sequence[str],
    *,
    output: Path,
    side: str,
    domain: str = "aiperf",
    ranks: int = 1,
    launches: int = 50,
    cold: bool = True,
    arithmetic: Sequence[str] = (),
    claimed: Sequence[str] = (),
) -> list[str]:
    """Read counters of the kernels inside one side's start/end range, at most ``launches`` of them.

    Without a domain the range is selected by its bare name. Clocks are left alone, so the durations are no timing
    result. ``cold`` flushes the caches before each pass. ``arithmetic`` are counters of instructions, ``claimed`` those
    that the case's own claims name, both of what this ncu offers here: each may replay every kernel once more.
    """
    selected = f"{domain}@{side}" if domain else side
    command = [
        *(str(ncu.path), "--export", str(output), "--force-overwrite", "--target-processes", "all"),
        *("--nvtx", "--nvtx-include", selected, "--replay-mode", "kernel", "--clock-control", "none"),
        *("--cache-control", "all" if cold else "none", "--launch-count", str(launches)),
    ]
    for section in NCU_SECTIONS:
        command += ["--section", section]
    command += ["--metrics", ",".join(dict.fromkeys((*NCU_METRICS, *arithmetic, *claimed)))]
    if ncu.can("--import-sass"):
        # Reports embed the machine code otherwise: 77 MB for 47 kernels.
        command += ["--import-sass", "no"]
    if ncu.can("--graph-profiling"):
        command += ["--graph-profiling", "node"]
    if ranks > 1:
        command += ["--kernel-name", NOT_NCCL]
    return [*command, *argv]


def perf_stat(perf: Tool, argv: Sequence[str], *, output: Path, control: tuple[Path, Path]) -> list[str]:
    """Count events of a program and all it starts, while the FIFOs of ``control`` say so."""
    events = [word for event in PERF_EVENTS for word in ("-e", event)]
    command = [str(perf.path), "stat", "-x", ";", "--no-big-num", "-o", str(output), *events]
    return [*command, *_controlled(control), "--", *argv]


def perf_record(perf: Tool, argv: Sequence[str], *, output: Path, control: tuple[Path, Path]) -> list[str]:
    """Sample where a program and all it starts spend CPU time, while the FIFOs of ``control`` say so.

    By the clock, not by cycles: virtual machines often have no counter of cycles.
    """
    command = [str(perf.path), "record", "-q", "-e", "cpu-clock", "-F", "997", "-o", str(output)]
    return [*command, *_controlled(control), "--", *argv]


def perf_report(perf: Tool, data: Path) -> list[str]:
    """Print the hottest symbols of a recording, one a line, below how many samples were lost: -q would hide that."""
    return [
        *(str(perf.path), "report", "-i", str(data), "--stdio", "--sort", "dso,symbol", "-g", "none"),
        *("--percent-limit", "0.5"),
    ]


def _controlled(control: tuple[Path, Path]) -> list[str]:
    return ["--delay=-1", f"--control=fifo:{control[0]},{control[1]}"]
