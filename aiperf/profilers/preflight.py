"""What each profiler can do on this host and how to fix what it cannot: ``aiperf profile --check``.

What must not live here: changing any of it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import usage
from aiperf.host.facts import HostFacts
from aiperf.profilers.complaints import COUNTERS_LOCKED
from aiperf.profilers.environment import with_libraries
from aiperf.profilers.tools import Tool, find_tool, has_ncu_report, importers, missing_libraries, named, packages_of

TOOLS = ("nsys", "ncu", "torch", "perf")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_DCGM = "nv-hostengine"


@dataclass(frozen=True)
class Ability:
    """One profiler here."""

    tool: str
    usable: bool
    where: str
    """Path and version, or what was looked for."""
    reason: str
    """What it can do here, or why it cannot be used."""
    fix: str = ""
    found: Tool | None = None


def abilities(
    host: HostFacts, *, environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> tuple[Ability, ...]:
    """One entry for each profiler, in the order of TOOLS. ``root`` stands in for the file system of /proc."""
    env = os.environ if environ is None else environ
    return (_nsys(host, env), _ncu(host, env, root), _torch(host), _perf(env, root))


def _absent(name: str, env: Mapping[str, str], install: str) -> Ability:
    variable, path = named(name, environ=env)
    if path:
        reason = f"{variable} names {path}, which is no {name} that answers"
        return Ability(name, False, path, reason, f"Correct {variable}, or unset it to have {name} looked for.")
    fix = f"{install}, or name it in {variable}."
    return Ability(name, False, "not on PATH nor in the usual places", f"{name} was not found", fix)


def chosen(found: Sequence[Ability], wanted: str) -> tuple[Ability, ...]:
    """The tools that a flag names, usable or not; ``all`` or nothing: every usable one. Raises UserError."""
    if wanted in ("", "all"):
        return tuple(ability for ability in found if ability.usable)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in TOOLS:
            raise usage(f'"{name}" is no profiler.', f"Choose among {', '.join(TOOLS)}, or all.")
    return tuple(ability for ability in found if ability.tool in names)


def passed_over(found: Sequence[Ability], wanted: str) -> tuple[str, ...]:
    """What ``chosen`` leaves out though the user asked for all that is usable, each with the reason and the fix."""
    if wanted not in ("", "all"):
        return ()
    return tuple(f"{a.tool} is not used: {why_not(a)}" for a in found if not a.usable)


def why_not(ability: Ability) -> str:
    """Why a tool is not usable, and what helps."""
    return ability.reason + (f". {ability.fix}" if ability.fix else "")


def _nsys(host: HostFacts, env: Mapping[str, str]) -> Ability:
    tool = find_tool("nsys", environ=env)
    if tool is None:
        return _absent("nsys", env, "Install Nsight Systems (package nsight-systems)")
    where = f"{tool.path} {tool.version_text}"
    supplied = with_libraries(env, [tool.libraries])
    complete = [missing_libraries(path, env=supplied) for path in importers(tool.path)]
    if complete and all(complete):
        lacking = min(complete, key=len)
        return Ability("nsys", False, where, f"its importer lacks {', '.join(lacking)}", packages_of(lacking), tool)
    what = "CUDA calls, kernels, copies and ranges" if host.gpus else "system calls and ranges; no GPU here"
    return Ability("nsys", True, where, f"traces {what}", found=tool)


def _ncu(host: HostFacts, env: Mapping[str, str], root: Path) -> Ability:
    tool = find_tool("ncu", environ=env)
    if tool is None:
        return _absent("ncu", env, "Install Nsight Compute (it comes with the CUDA toolkit)")
    where = f"{tool.path} {tool.version_text}"
    if not host.gpus:
        return Ability("ncu", False, where, f"no GPU here ({host.gpu_problem or 'none found'})", "", tool)
    if has_ncu_report(tool) is None:
        fix = "pip install 'aiperf-ab[profile]'"
        return Ability("ncu", False, where, "its reports cannot be read: no ncu_report module", fix, tool)
    if not _may_read_counters(root):
        reason = "GPU counters are for administrators only (ERR_NVGPUCTRPERM)"
        return Ability("ncu", False, where, reason, COUNTERS_LOCKED, tool)
    what = "reads GPU counters, one kernel at a time"
    if _runs(_DCGM, root):
        # It may or may not be reading counters now, so ncu is tried.
        held = f"{what}; {_DCGM} (DCGM) runs here, and while it reads counters ncu cannot"
        return Ability("ncu", True, where, held, "dcgmi profile --pause before, dcgmi profile --resume after.", tool)
    return Ability("ncu", True, where, what, found=tool)


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
    return not restricted or _capable(_CAP_SYS_ADMIN, root)


def _capable(number: int, root: Path) -> bool:
    try:
        lines = (root / "proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return os.geteuid() == 0
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return bool(mask >> number & 1)


def _torch(host: HostFacts) -> Ability:
    version = host.libraries.get("torch", "")
    if importlib.util.find_spec("torch") is None:
        return Ability("torch", False, "torch", "torch is not installed", "pip install torch")
    what = "operators and kernels" if host.gpus else "operators on the CPU"
    return Ability("torch", True, f"torch {version}".strip(), f"torch.profiler records {what}")


def _perf(env: Mapping[str, str], root: Path) -> Ability:
    tool = find_tool("perf", environ=env)
    if tool is None:
        return _absent("perf", env, "Install the linux-perf or linux-tools package")
    where = f"{tool.path} {tool.version_text}"
    if not tool.can("--control"):
        return Ability(
            "perf", False, where, "it is too old to be switched on for the profiled part (--control)", "", tool
        )
    paranoid = _paranoid(root)
    if paranoid > 2 and not (_capable(_CAP_PERFMON, root) or _capable(_CAP_SYS_ADMIN, root)):
        fix = "As root: sysctl kernel.perf_event_paranoid=2"
        return Ability("perf", False, where, f"the kernel forbids it (perf_event_paranoid is {paranoid})", fix, tool)
    return Ability("perf", True, where, "counts events and samples the host's CPU time", found=tool)


def _paranoid(root: Path) -> int:
    try:
        return int((root / "proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
