"""Nsight Compute: GPU counters of the kernels inside a side's range, one kernel at a time.

What must not live here: what its report holds (ncu_read.py), which counters a case claims (claimed_metrics.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aiperf.host.facts import HostFacts
from aiperf.profilers import arithmetic, waits
from aiperf.profilers.claimed_metrics import claimed_metrics
from aiperf.profilers.external import DOMAIN, ProgramLaunch, Range, own_ranges, range_passes
from aiperf.profilers.ncu_read import NCU_METRICS, ncu_ranges, read_ncu
from aiperf.profilers.permissions import CAP_SYS_ADMIN, is_capable
from aiperf.profilers.profiler import PassRequest, Profiler, ToolPass, ToolStatus, locate
from aiperf.profilers.reading import NoReport, Pass, Reading, range_name
from aiperf.profilers.tool_errors import COUNTERS_LOCKED, complaint
from aiperf.profilers.tools import FoundTool, has_ncu_report, offered_counters
from aiperf.records.profiled import ProfileNote, SideProfile

PLACES = (
    "{cuda}/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "{cuda}/nsight-compute*/ncu",
    "/usr/lib/nsight-compute/ncu",
)
NCU_SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats")
"""Named sections, not a set: what a set holds, and what the default set is called, changes between releases."""
NOT_NCCL = "regex:^(?!nccl)"
"""Kernels of collectives wait for other ranks, which ncu stops meanwhile: it would hang."""
_MOST_LAUNCHES = 50
_DCGM = "nv-hostengine"


def ncu_profile(
    ncu: FoundTool,
    argv: Sequence[str],
    *,
    output: Path,
    selected: Range,
    ranks: int = 1,
    launches: int = 50,
    cold: bool = True,
    metrics: Sequence[str] = (),
) -> list[str]:
    """Read counters of the kernels inside one side's start/end range, at most ``launches`` of them.

    Clocks are left alone, so the durations are not a timing result. ``cold`` flushes the caches before each pass.
    ``metrics`` are further counters that this ncu offers here: each may replay every kernel once more.
    """
    places = [
        f"{domain}@{selected.name}" if domain else selected.name for domain in range_passes([selected])[0].domains
    ]
    filters = [f"{place}{end}" for place in places for end in (("", "/") if selected.push_pop else ("",))]
    command = [
        *(str(ncu.path), "--export", str(output), "--force-overwrite", "--target-processes", "all"),
        *("--nvtx", *(word for one in filters for word in ("--nvtx-include", one))),
        *("--replay-mode", "kernel", "--clock-control", "none"),
        *("--cache-control", "all" if cold else "none", "--launch-count", str(launches)),
    ]
    for section in NCU_SECTIONS:
        command += ["--section", section]
    command += ["--metrics", ",".join(dict.fromkeys((*NCU_METRICS, *metrics)))]
    if ncu.can("--import-sass"):
        # Reports embed the machine code otherwise: 77 MB for 47 kernels.
        command += ["--import-sass", "no"]
    if ncu.can("--graph-profiling"):
        command += ["--graph-profiling", "node"]
    if ranks > 1:
        command += ["--kernel-name", NOT_NCCL]
    return [*command, *argv]


def _status(host: HostFacts, env: Mapping[str, str], root: Path) -> ToolStatus:
    install = "Install Nsight Compute (it comes with the CUDA toolkit)"
    tool = locate("ncu", PLACES, env, install, help_words=(("--help",),))
    if isinstance(tool, ToolStatus):
        return tool
    where = tool.where
    if not host.gpus:
        return ToolStatus("ncu", False, where, f"no GPU here ({host.gpu_problem or 'none found'})", "", tool)
    if has_ncu_report(tool) is None:
        fix = "pip install 'aiperf-ab[profile]'"
        return ToolStatus("ncu", False, where, "its reports cannot be read: no ncu_report module", fix, tool)
    if not _may_read_counters(root):
        reason = "GPU counters are for administrators only (ERR_NVGPUCTRPERM)"
        return ToolStatus("ncu", False, where, reason, COUNTERS_LOCKED, tool)
    what = "reads GPU counters, one kernel at a time"
    if _runs(_DCGM, root):
        # It may or may not be reading counters now, so ncu is tried.
        held = f"{what}; {_DCGM} (DCGM) runs here, and ncu cannot read counters while it does"
        return ToolStatus("ncu", True, where, held, "dcgmi profile --pause before, dcgmi profile --resume after.", tool)
    return ToolStatus("ncu", True, where, what, found=tool)


def _runs(name: str, root: Path) -> bool:
    """Whether a process of this name is alive."""
    for comm in root.glob("proc/[0-9]*/comm"):
        try:
            if comm.read_text(encoding="utf-8", errors="replace").strip() == name:
                return True
        except OSError:
            continue
    return False


def _may_read_counters(root: Path) -> bool:
    """Whether the driver lets this process read counters: it does not restrict them, or this process is privileged."""
    try:
        text = (root / "proc/driver/nvidia/params").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    restricted = any(line.replace(" ", "") == "RmProfilingAdminOnly:1" for line in text.splitlines())
    return not restricted or is_capable(CAP_SYS_ADMIN, root)


def _passes(request: PassRequest) -> list[ToolPass]:
    # One iteration: counters are read per launch, and both sides' sums are then of one iteration.
    standalone, ncu = request.launch("ncu", most_iterations=1, warmup_seconds=0.3), request.program
    output = standalone.folder / "ncu"
    report = output.with_name("ncu.ncu-rep")
    offered = offered_counters(ncu)
    operations, waiting = (part.wanted(offered.__contains__) for part in (arithmetic, waits))
    claims = claimed_metrics(request.case.moves, offered)

    def read(launched: Pass, _: Mapping[str, str]) -> Reading:
        if not report.is_file():
            nameless = "" if launched.domain else " (ranges cannot have a domain here, but ncu was asked for aiperf's)"
            raise NoReport(f"ncu wrote no report: no kernel ran inside the side's range{nameless}")
        found = _read_launches(report, launched, ncu, claimed=claims.read)
        lacking = () if operations else (ProfileNote("no_arithmetic"),)
        return replace(found, notes=(*found.notes, *lacking, *claims.notes))

    def command(argv: list[str]) -> list[str]:
        return ncu_profile(
            ncu, argv, output=output, selected=Range(range_name(request.side.name)), ranks=request.side.ranks,
            launches=_MOST_LAUNCHES, cold=request.case.measure.cache == "cold",
            metrics=(*operations, *waiting, *claims.ask),
        )  # fmt: skip

    return [ToolPass(standalone, command, read, lambda: [report])]


def _read_launches(report: Path, launched: Pass, ncu: FoundTool, *, claimed: Sequence[str] = ()) -> Reading:
    """Read a report of at most ``_MOST_LAUNCHES`` launches, and note whether that limit was reached."""
    found = read_ncu(report, [launched], extras=_extras(ncu), claimed=claimed)
    read = sum(row.count or 0 for row in found.rows)
    lost = f"ncu stops at {_MOST_LAUNCHES} launches, and read {read}: there may be more"
    side = SideProfile(launched.side, "ncu", launched.iterations, lost=lost if read >= _MOST_LAUNCHES else "")
    return replace(found, sides=(side,) if found.rows else ())


def _extras(ncu: FoundTool | None) -> Path | None:
    """The folder of the module that reads reports; None where it is installed, or is missing."""
    extras = has_ncu_report(ncu)
    return extras if extras and extras.parts else None


def _import_report(path: Path, ranges: Sequence[Range], tool: FoundTool | None) -> list[Reading]:
    extras = _extras(tool)
    return [read_ncu(path, range_passes(ranges or own_ranges(ncu_ranges(path, DOMAIN, extras=extras))), extras=extras)]


def _profile_program(
    launch: ProgramLaunch, tool: FoundTool, ranges: tuple[Range, ...]
) -> tuple[list[Reading], tuple[Range, ...]]:
    return [_profile_range(launch, tool, one) for one in ranges], ranges


def _profile_range(launch: ProgramLaunch, ncu: FoundTool, one: Range) -> Reading:
    output = launch.folder / f"ncu-{one.name}"
    offers = offered_counters(ncu).__contains__
    counters = (*arithmetic.wanted(offers), *waits.wanted(offers))
    argv = ncu_profile(ncu, launch.command, output=output, selected=one, metrics=counters)
    _, printed = launch.run(argv, ncu)
    report = output.with_name(f"{output.name}.ncu-rep")
    if not report.is_file():
        no_kernel = f"no kernel ran inside {one.name}, or ncu could not read any"
        raise NoReport(f"ncu wrote no report: {no_kernel}; it said: {complaint(printed)}")
    (launched,) = range_passes([one])
    return _read_launches(report, launched, ncu)


NCU = Profiler(
    "ncu", "kernels", _status, _passes, needs_gpu=True, endings=(".ncu-rep",), import_report=_import_report,
    profile_program=_profile_program, needs_ranges=True,
)  # fmt: skip
