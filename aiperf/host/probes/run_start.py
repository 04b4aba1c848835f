"""Probes of what an earlier run, a debugging session or another user left behind: a run reads them as it starts.

What must not live here: ending or changing anything.
"""

from __future__ import annotations

from collections.abc import Callable

from aiperf.host import proc, state_file
from aiperf.host.datasheets import FAR_BELOW, shortfalls
from aiperf.host.fingerprint import fingerprint, is_secret
from aiperf.host.peaks import load_peaks
from aiperf.host.probes.memory import unwritten
from aiperf.host.probes.probe import Finding, Probe
from aiperf.host.probes.reader import HostReader
from aiperf.host.stale import stale_workers
from aiperf.units import format_percent

_DEBUG = (
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_CPP_LOG_LEVEL",
    "TORCH_LOGS",
    "TORCH_COMPILE_DEBUG",
    "TORCH_SHOW_CPP_STACKTRACES",
    "PYTHONDEVMODE",
    "PYTHONASYNCIODEBUG",
    "PYTHONTRACEMALLOC",
    "PYTHONPROFILEIMPORTTIME",
)
_COMPILER = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
_GPU = (
    "TORCH_USE_CUDA_DSA",
    "TORCH_NCCL_BLOCKING_WAIT",
    "TRITON_INTERPRET",
    "CUDA_CACHE_DISABLE",
    "CUDA_COREDUMP_ENABLE",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)
_HARMLESS = {"", "0", "OFF", "FALSE", "WARN", "VERSION", "ERROR", "NONE"}
_DEFAULTS = {"CUDA_MODULE_LOADING": {"LAZY", "DEFAULT"}, "CUDA_DEVICE_MAX_CONNECTIONS": {"8"}}
"""Variable -> values in capitals that change nothing (CUDA programming guide, environment variables)."""


def _variables(*names: str) -> Callable[[HostReader], Finding]:
    """Warn of the variables among ``names`` whose value changes something; never show what may be a secret."""

    def read(reader: HostReader) -> Finding:
        env = reader.environ
        found = [name for name in names if env.get(name, "").upper() not in _HARMLESS | _DEFAULTS.get(name, set())]
        if not found:
            return Finding("ok", "none set")
        shown = ", ".join(name if is_secret(name, env[name]) else f"{name}={env[name]}" for name in found)
        return Finding("warn", shown, ", ".join(found), fix=f"unset {' '.join(found)}")

    return read


def _page_cache(reader: HostReader) -> Finding:
    waits = unwritten(reader.root)
    return Finding("warn", waits) if waits else Finding("ok", "written to disk")


def _workers(reader: HostReader) -> Finding:
    left = " ".join(str(pid) for pid, _, _ in stale_workers(root=reader.root))
    if not left:
        return Finding("ok", "none")
    return Finding("warn", f"PID {left} still running", fix=f"kill {left}, if it is yours")


def _gpu_processes(reader: HostReader) -> Finding:
    pids = {pid for gpu in reader.gpus for pid in gpu.nvml.compute_pids(gpu.handle)}
    others = proc.strangers(pids, reader.root)
    return Finding("unfit", f"PID {', '.join(map(str, others))}") if others else Finding("ok", "none")


def _stored(reader: HostReader) -> tuple[Finding, ...]:
    host_id, _ = fingerprint(reader.facts, root=reader.root)
    aside = [path for kind in ("peaks", "calibration") for path in state_file.set_aside(kind, host_id)]
    return tuple(Finding("warn", f"{path} could not be read and was set aside", part=path.name) for path in aside)


def _peaks(reader: HostReader) -> tuple[Finding, ...]:
    """Measured peaks far below the datasheet: something holds the GPU down, or it is another GPU."""
    if not reader.facts.gpus:
        return ()
    host_id, _ = fingerprint(reader.facts, root=reader.root)
    advice = "check clocks, power cap, MIG and PCIe width with aiperf doctor, then measure again: aiperf peaks"
    found = shortfalls(reader.facts, load_peaks(host_id))
    return tuple(Finding("warn", sentence, fix=f"{advice} {name}", part=name) for name, sentence in found)


PEAKS = Probe(
    "peaks",
    "GPU",
    "Measured peak against the datasheet",
    "aiperf peaks --stored, configs/hardware",
    f"at least {format_percent(FAR_BELOW)} of the datasheet",
    "What holds a GPU below its datasheet slows the measured sides, too.",
    "aiperf peaks",
    _peaks,
    steady=False,
)
RUN_PROBES = (
    Probe(
        "debug_env",
        "framework settings",
        "Debugging variables",
        "environment variables of torch and Python",
        "none set",
        "Logging and extra checks add time to every call, on both sides.",
        "unset them",
        _variables(*_DEBUG),
    ),
    Probe(
        "compile_env",
        "framework settings",
        "Variables that disable torch.compile",
        "environment variables of torch",
        "none set",
        "A side that asks for torch.compile runs uncompiled.",
        "unset them",
        _variables(*_COMPILER),
    ),
    Probe(
        "gpu_env",
        "framework settings",
        "Variables that change how CUDA, Triton or NCCL run",
        "environment variables of CUDA, Triton and torch",
        "none set, or at their defaults",
        "They change how kernels are launched, loaded or waited for.",
        "unset them",
        _variables(*_GPU),
    ),
    Probe(
        "gpu_processes",
        "GPU",
        "Other processes on the GPUs",
        "nvmlDeviceGetComputeRunningProcesses",
        "none",
        "Kernels of another process take time slices of the GPU.",
        "wait for them, or choose free GPUs with CUDA_VISIBLE_DEVICES",
        _gpu_processes,
        steady=False,
    ),
    Probe(
        "page_cache",
        "memory",
        "Unwritten page cache",
        "Dirty and Writeback of /proc/meminfo",
        "at most 1 % of memory",
        "Writing it back takes disk bandwidth and CPU time at an arbitrary moment.",
        "sync",
        _page_cache,
        steady=False,
    ),
    Probe(
        "stale_workers",
        "CPU",
        "Workers of an earlier aiperf",
        "processes that run aiperf.worker without a living parent",
        "none",
        "They compete with the sides for CPU time and GPU memory.",
        "end them",
        _workers,
        steady=False,
    ),
    Probe(
        "state",
        "software",
        "Stored peaks and calibration of this host",
        "the state folder",
        "readable",
        "Limits and noise floor are missing until they are measured again.",
        "measure again (aiperf peaks, aiperf calibrate), then delete the file",
        _stored,
    ),
    PEAKS,
)
"""What a run reads beside the book's checklist."""
