"""perf: counts events of a side and samples where the host spends its CPU time.

What must not live here: what it prints (perf_read.py), switching it on and off (the worker's standalone.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiperf.host.facts import HostFacts
from aiperf.launch.standalone import Standalone
from aiperf.profilers.perf_read import read_samples, read_stat
from aiperf.profilers.permissions import CAP_PERFMON, CAP_SYS_ADMIN, is_capable
from aiperf.profilers.profiler import PassRequest, Profiler, ToolPass, ToolStatus, locate
from aiperf.profilers.reading import NoReport, Pass, Reading
from aiperf.profilers.tools import FoundTool, run_helper

PLACES = ("/usr/lib/linux-tools/*/perf", "/usr/lib/linux-tools-*/perf")
HELP_WORDS = (("record", "-h"), ("stat", "-h"))
PERF_EVENTS = (
    *("task-clock", "context-switches", "cpu-migrations", "page-faults", "minor-faults", "major-faults"),
    *("cycles", "instructions", "cache-references", "cache-misses", "dTLB-loads", "dTLB-load-misses"),
    *("branches", "branch-misses"),
)
_REPORT_S = 300.0


def perf_stat(perf: FoundTool, argv: Sequence[str], *, output: Path, control: tuple[Path, Path]) -> list[str]:
    """Count events of a program and all it starts, while the FIFOs of ``control`` say so."""
    events = [word for event in PERF_EVENTS for word in ("-e", event)]
    command = [str(perf.path), "stat", "-x", ";", "--no-big-num", "-o", str(output), *events]
    return [*command, *_controlled(control), "--", *argv]


def perf_record(perf: FoundTool, argv: Sequence[str], *, output: Path, control: tuple[Path, Path]) -> list[str]:
    """Sample where a program and all it starts spend CPU time, while the FIFOs of ``control`` say so.

    By the clock, not by cycles: virtual machines often have no counter of cycles.
    """
    command = [str(perf.path), "record", "-q", "-e", "cpu-clock", "-F", "997", "-o", str(output)]
    return [*command, *_controlled(control), "--", *argv]


def perf_report(perf: FoundTool, data: Path) -> list[str]:
    """Print the hottest symbols of a recording, one a line, below how many samples were lost: -q would hide that."""
    return [
        *(str(perf.path), "report", "-i", str(data), "--stdio", "--sort", "dso,symbol", "-g", "none"),
        *("--percent-limit", "0.5"),
    ]


def _controlled(control: tuple[Path, Path]) -> list[str]:
    return ["--delay=-1", f"--control=fifo:{control[0]},{control[1]}"]


def _status(host: HostFacts, env: Mapping[str, str], root: Path) -> ToolStatus:
    install = "Install the linux-perf or linux-tools package"
    tool = locate("perf", PLACES, env, install, help_words=HELP_WORDS)
    if isinstance(tool, ToolStatus):
        return tool
    where = tool.where
    if not tool.can("--control"):
        return ToolStatus("perf", False, where, "it is too old to profile only a part of the run (--control)", "", tool)
    paranoid = _paranoid(root)
    if paranoid > 2 and not (is_capable(CAP_PERFMON, root) or is_capable(CAP_SYS_ADMIN, root)):
        fix = "As root: sysctl kernel.perf_event_paranoid=2"
        return ToolStatus("perf", False, where, f"the kernel forbids it (perf_event_paranoid is {paranoid})", fix, tool)
    return ToolStatus("perf", True, where, "counts events and samples the host's CPU time", found=tool)


def _paranoid(root: Path) -> int:
    try:
        return int((root / "proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _passes(request: PassRequest) -> list[ToolPass]:
    # Two launches: counting and sampling disturb each other.
    more: dict[str, Any] = {"control": True, "target_seconds": 1.0, "most_iterations": 100_000}
    perf = request.program
    return [_counting(perf, request.launch("perf", **more)), _sampling(perf, request.launch("perf-samples", **more))]


def _counting(perf: FoundTool, standalone: Standalone) -> ToolPass:
    output = standalone.folder / "perf.stat"
    return ToolPass(
        standalone,
        lambda argv: perf_stat(perf, argv, output=output, control=standalone.fifos),
        lambda launched, _: read_stat(output.read_text(encoding="utf-8"), launched),
        lambda: [],
    )


def _sampling(perf: FoundTool, standalone: Standalone) -> ToolPass:
    output = standalone.folder / "perf.data"

    def read(launched: Pass, env: Mapping[str, str]) -> Reading:
        ended = run_helper(perf_report(perf, output), env, limit=_REPORT_S)
        if ended.status is None:
            raise NoReport(f"perf report {ended.err}")
        if ended.status:
            raise NoReport(f"perf report failed (exit status {ended.status}): {ended.err.strip()[-300:]}")
        return read_samples(ended.out, launched)

    return ToolPass(
        standalone,
        lambda argv: perf_record(perf, argv, output=output, control=standalone.fifos),
        read,
        lambda: [output],
    )


PERF = Profiler("perf", "events", _status, _passes)
