"""Judges the few facts of a host that spoil a measurement now.

What must not live here: changing anything, and stopping a run: what a finding means is the caller's choice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aiperf.host import keep, proc
from aiperf.host.datasheets import FAR_BELOW, compared, shortfalls
from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import is_secret
from aiperf.host.nvml import open_nvml
from aiperf.host.peaks import load_peaks
from aiperf.host.placement import format_cpus
from aiperf.host.probes.memory import unwritten
from aiperf.host.stale import stale_workers
from aiperf.units import format_bytes

Level = Literal["ok", "warn", "unfit", "unreadable"]

_BUSY_WARN = 0.10
_BUSY_UNFIT = 0.50
_WATCH_S = 0.2
_VARIABLES = {
    "debug_env": (
        "TORCH_DISTRIBUTED_DEBUG",
        "TORCH_CPP_LOG_LEVEL",
        "TORCH_LOGS",
        "TORCH_COMPILE_DEBUG",
        "TORCH_SHOW_CPP_STACKTRACES",
        "PYTHONDEVMODE",
        "PYTHONASYNCIODEBUG",
        "PYTHONTRACEMALLOC",
        "PYTHONPROFILEIMPORTTIME",
    ),
    "compile_env": ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"),
    "gpu_env": (
        "TORCH_USE_CUDA_DSA",
        "TORCH_NCCL_BLOCKING_WAIT",
        "TRITON_INTERPRET",
        "CUDA_CACHE_DISABLE",
        "CUDA_COREDUMP_ENABLE",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_MODULE_LOADING",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
    ),
    "probed_env": ("CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG"),
}
"""Kind of finding -> variables left from debugging or tuning. Of ``probed_env`` a probe tells which case it touches."""
ROOF_ADVICE = "Look at clocks, power cap, MIG and PCIe width with aiperf doctor, then measure again: aiperf peaks"
_HARMLESS = {"", "0", "OFF", "FALSE", "WARN", "VERSION", "ERROR", "NONE"}
_DEFAULTS = {"CUDA_MODULE_LOADING": {"LAZY", "DEFAULT"}, "CUDA_DEVICE_MAX_CONNECTIONS": {"8"}}
"""Variable -> values in capitals that change nothing (CUDA programming guide, environment variables)."""
PASSING = ("stale_workers", "page_cache", "gpu_processes")
"""Kinds of finding that come and go while a run measures."""


@dataclass(frozen=True)
class Finding:
    """One fact of the host, judged."""

    kind: str
    level: Level
    sentence: str
    advice: str = ""


def findings(
    facts: HostFacts,
    *,
    cpus: Sequence[int] = (),
    host_id: str = "",
    root: Path = proc.ROOT,
    environ: Mapping[str, str] | None = None,
    library: Any = None,
) -> tuple[Finding, ...]:
    """Every finding, good ones too, for sides that will run on ``cpus`` (all allowed ones when none are given).

    Watches the CPUs for a fifth of a second. ``library`` stands in for pynvml.
    """
    chosen = tuple(cpus) or facts.cpus
    env = os.environ if environ is None else environ
    return (
        _governor(chosen, root),
        _load(chosen, root),
        _quota(len(facts.cpus), root),
        _swap(root),
        _page_cache(root),
        _stale(root),
        *_variables(env),
        *_gpu_processes(facts, root, library),
        *_kept(host_id),
        *_roofs(facts, host_id),
    )


def passing(facts: HostFacts, *, root: Path = proc.ROOT, library: Any = None) -> tuple[Finding, ...]:
    """The findings of the kinds ``PASSING``, as they stand now."""
    return (_stale(root), _page_cache(root), *_gpu_processes(facts, root, library))


def _governor(cpus: Sequence[int], root: Path) -> Finding:
    governors = {g for cpu in cpus if (g := proc.governor(cpu, root))}
    if not governors:
        return Finding("governor", "unreadable", "This machine shows no CPU frequency governor.")
    if governors == {"performance"}:
        return Finding("governor", "ok", "The CPU frequency governor is performance.")
    names = ", ".join(sorted(governors))
    return Finding(
        "governor",
        "warn",
        f"The CPU frequency governor is {names}: clocks follow the load.",
        "Set it to performance for the time of the measurement: cpupower frequency-set -g performance (root).",
    )


def _load(cpus: Sequence[int], root: Path) -> Finding:
    before = proc.cpu_times(root)
    time.sleep(_WATCH_S)
    after = proc.cpu_times(root)
    seen = [cpu for cpu in cpus if cpu in before and cpu in after]
    total = sum(after[cpu].total - before[cpu].total for cpu in seen)
    if total <= 0:
        return Finding("load", "unreadable", "How busy the CPUs are cannot be read from /proc/stat.")
    busy = sum(after[cpu].busy - before[cpu].busy for cpu in seen) / total
    level: Level = "unfit" if busy > _BUSY_UNFIT else "warn" if busy > _BUSY_WARN else "ok"
    sentence = f"CPU {format_cpus(cpus)} is {busy:.0%} busy with other work."
    return Finding(
        "load", level, sentence, "" if level == "ok" else "Wait until the machine is idle, or choose with --pin."
    )


def _quota(cpus: int, root: Path) -> Finding:
    """A cgroup's CPU quota stops every thread for the rest of a period once it is used up."""
    allowed = proc.cpu_quota(root)
    if allowed is None:
        return Finding("cpu_quota", "ok", "No cgroup quota limits the CPU time.")
    if allowed >= cpus:
        return Finding("cpu_quota", "ok", f"The cgroup's quota of {allowed:g} CPUs covers all {cpus}.")
    return Finding(
        "cpu_quota",
        "warn",
        f"The cgroup may use {allowed:g} of {cpus} CPUs: sides that use more are stopped in every period.",
        "Raise the quota, or limit the sides' threads to it.",
    )


def _swap(root: Path) -> Finding:
    info = proc.memory_info(root)
    if "SwapTotal" not in info:
        return Finding("swap", "unreadable", "Swap cannot be read from /proc/meminfo.")
    used = info["SwapTotal"] - info.get("SwapFree", 0)
    if used < 64 * 1024**2:
        return Finding("swap", "ok", "Swap is not in use.")
    advice = "Free memory, or switch swap off while measuring."
    return Finding("swap", "warn", f"{format_bytes(used)} of swap is in use: pages may come from disk.", advice)


def _page_cache(root: Path) -> Finding:
    waits = unwritten(root)
    if not waits:
        return Finding("page_cache", "ok", "The page cache is written to disk.")
    return Finding("page_cache", "warn", f"{waits}.", "Wait for it, or write it now: sync")


def _stale(root: Path) -> Finding:
    stale = stale_workers(root=root)
    if not stale:
        return Finding("stale_workers", "ok", "No worker of an earlier run is left.")
    numbers = " ".join(str(pid) for pid, _, _ in stale)
    sentence = f"{len(stale)} worker(s) of an earlier aiperf still run: {numbers}."
    return Finding("stale_workers", "warn", sentence, f"End them if they are yours: kill {numbers}")


def _variables(env: Mapping[str, str]) -> list[Finding]:
    found = [_left(kind, names, env) for kind, names in _VARIABLES.items()]
    left = [finding for finding in found if finding is not None]
    return left or [Finding("debug_env", "ok", "No variables of debugging are set.")]


def _left(kind: str, names: Sequence[str], env: Mapping[str, str]) -> Finding | None:
    left = [name for name in names if env.get(name, "").upper() not in _HARMLESS | _DEFAULTS.get(name, set())]
    if not left:
        return None
    told = ", ".join(name if is_secret(name, env[name]) else f"{name}={env[name]}" for name in left)
    advice = f"unset {' '.join(left)}"
    return Finding(kind, "warn", f"Variables are set that change what is measured: {told}.", advice)


def _gpu_processes(facts: HostFacts, root: Path, library: Any) -> list[Finding]:
    if not facts.gpus:
        return []
    nvml, problem = open_nvml(library)
    if nvml is None:
        return [Finding("gpu_processes", "unreadable", f"Processes on the GPUs cannot be read: {problem}.")]
    wanted = {gpu.uuid for gpu in facts.gpus}
    seen = {pid for handle in nvml.devices() if nvml.uuid(handle) in wanted for pid in nvml.compute_pids(handle)}
    nvml.close()
    foreign = proc.strangers(seen, root)
    if not foreign:
        return [Finding("gpu_processes", "ok", "No other process uses the GPUs.")]
    sentence = f"Other processes use the GPUs: {', '.join(map(str, foreign))}."
    return [
        Finding("gpu_processes", "unfit", sentence, "Wait for them, or choose free GPUs with CUDA_VISIBLE_DEVICES.")
    ]


def _kept(host_id: str) -> list[Finding]:
    """Stored facts of this host that had to be set aside."""
    aside = [path for kind in ("peaks", "calibration") for path in (keep.set_aside(kind, host_id) if host_id else ())]
    return [
        Finding("state", "warn", f"{path} could not be read and was set aside.", "Measure again, then delete the file.")
        for path in aside
    ]


def _roofs(facts: HostFacts, host_id: str) -> list[Finding]:
    """Measured roofs that stay far behind the datasheet of the GPU: something holds it down, or it is another GPU."""
    peaks = load_peaks(host_id) if host_id and facts.gpus else {}
    if far := shortfalls(facts, peaks):
        return [Finding("roofs", "warn", sentence, f"{ROOF_ADVICE} {name}") for name, sentence in far]
    if count := compared(facts, peaks):
        return [Finding("roofs", "ok", f"{count} measured roofs reach {FAR_BELOW:.0%} of the datasheet or more.")]
    return []
