"""Nsight Systems: traces calls to CUDA, kernels, copies and ranges of a program and all that it starts.

What must not live here: what its export holds (nsys_read.py), making one of what it left behind (nsys_export.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.host.facts import HostFacts
from aiperf.launch.scratch import Scratch
from aiperf.profilers.environment import profiled_environment, with_libraries
from aiperf.profilers.external import DOMAIN, ProgramLaunch, Range, own_ranges, range_passes
from aiperf.profilers.nsys_export import exported, nsys_sqlite
from aiperf.profilers.nsys_read import nsys_ranges, read_nsys
from aiperf.profilers.profiler import PassRequest, Profiler, ToolPass, ToolStatus, locate
from aiperf.profilers.reading import NoReport, Reading
from aiperf.profilers.tool_errors import complaint
from aiperf.profilers.tools import FoundTool, importers, missing_libraries, packages_of

PLACES = (
    "{cuda}/bin/nsys",
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "{cuda}/nsight-systems*/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
    "/usr/lib/*/nsight-systems/target-linux-*/nsys",
    # The copy inside Nsight Compute: complete but for libraries.
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "{cuda}/nsight-compute*/host/target-linux-*/nsys",
)
HELP_WORDS = (("profile", "--help"), ("export", "--help"))
_STORAGE = ("storage.", "gds.")
"""Families of workloads whose time goes into calls of the operating system or of GPUDirect Storage."""


def nsys_profile(nsys: FoundTool, argv: Sequence[str], *, output: Path, gpu: bool, storage: bool = False) -> list[str]:
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


def _status(host: HostFacts, env: Mapping[str, str], root: Path) -> ToolStatus:
    install = "Install Nsight Systems (package nsight-systems)"
    tool = locate("nsys", PLACES, env, install, help_words=HELP_WORDS)
    if isinstance(tool, ToolStatus):
        return tool
    supplied = with_libraries(env, [tool.libraries])
    complete = [missing_libraries(path, env=supplied) for path in importers(tool.path)]
    if complete and all(complete):
        lacking = min(complete, key=len)
        reason = f"its importer lacks {', '.join(lacking)}"
        return ToolStatus("nsys", False, tool.where, reason, packages_of(lacking), tool)
    what = "CUDA calls, kernels, copies and ranges" if host.gpus else "system calls and ranges; no GPU here"
    return ToolStatus("nsys", True, tool.where, f"traces {what}", found=tool)


def _passes(request: PassRequest) -> list[ToolPass]:
    # What warms up is traced as well: a thousand launches an iteration make a report that takes long to export.
    standalone, nsys = request.launch("nsys", warmup_seconds=0.3), request.program
    output = standalone.folder / "nsys"
    gpu, storage = bool(request.case.needs.gpus), request.side.workload.startswith(_STORAGE)
    return [
        ToolPass(
            standalone,
            lambda argv: nsys_profile(nsys, argv, output=output, gpu=gpu, storage=storage),
            lambda launched, env: read_nsys(nsys_sqlite(nsys, output, env=env), [launched]),
            lambda: [output.with_name("nsys.nsys-rep")],
        )
    ]


def _import_report(path: Path, ranges: Sequence[Range], tool: FoundTool | None) -> list[Reading]:
    if path.suffix == ".sqlite":
        return [_read_export(path, ranges)]
    if tool is None:
        raise NoReport("nsys was not found, and nothing else opens its reports")
    with Scratch(None, "profile") as folder:
        return [_read_export(exported(tool, path, output=folder / "nsys.sqlite", env=profiled_environment()), ranges)]


def _read_export(sqlite: Path, ranges: Sequence[Range]) -> Reading:
    return read_nsys(sqlite, range_passes(ranges or own_ranges(nsys_ranges(sqlite, DOMAIN))))


def _profile_program(
    launch: ProgramLaunch, tool: FoundTool, ranges: tuple[Range, ...]
) -> tuple[list[Reading], tuple[Range, ...]]:
    output = launch.folder / "nsys"
    env, printed = launch.run(nsys_profile(tool, launch.command, output=output, gpu=launch.gpu), tool)
    try:
        sqlite = nsys_sqlite(tool, output, env=env)
    except NoReport as error:
        raise NoReport(f"{error}; nsys said: {complaint(printed)}") from None
    known = ranges or own_ranges(nsys_ranges(sqlite, DOMAIN))
    return [read_nsys(sqlite, range_passes(known))], known


NSYS = Profiler(
    "nsys", "trace", _status, _passes,
    endings=(".nsys-rep", ".sqlite"), import_report=_import_report, profile_program=_profile_program,
)  # fmt: skip
