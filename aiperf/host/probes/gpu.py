"""Probes of the GPUs: generation, load, sharing, persistence, ECC, faults.

What must not live here: clocks, heat and power (power.py), links (interconnect.py).
"""

from __future__ import annotations

import re

from aiperf.host import proc
from aiperf.host.nvml import slowdown_words
from aiperf.host.probes.probe import Finding, Level, Probe, each, worst
from aiperf.host.probes.reader import Absent, GpuSight, HostReader, Unreadable
from aiperf.units import format_bytes

_IDLE, _HALF = 10, 50
_FP8, _FP4 = (8, 9), (10, 0)
_XID = re.compile(r"NVRM: Xid \([^)]*\): (\d+)")


def capability(gpu: GpuSight) -> tuple[int, int]:
    """Compute capability. Raises Unreadable."""
    major, minor = gpu.need("nvmlDeviceGetCudaComputeCapability")
    return int(major), int(minor)


def _generation(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        found, info = capability(gpu), gpu.ask("nvmlDeviceGetMemoryInfo")
        can = "FP8 and FP4" if found >= _FP4 else "FP8" if found >= _FP8 else "no FP8"
        size = f", {format_bytes(int(info.total))}" if info else ""
        said.append(f"{gpu.ask('nvmlDeviceGetName') or 'GPU'}, sm_{found[0]}{found[1]}{size}, {can}")
        levels.append("ok" if found >= _FP8 else "warn")
    return Finding(worst(levels), each(said), "nvmlDeviceGetCudaComputeCapability")


def _utilisation(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        rates = gpu.need("nvmlDeviceGetUtilizationRates")
        clients = len(proc.strangers(gpu.nvml.compute_pids(gpu.handle), reader.root))
        said.append(f"{rates.gpu} % busy, memory {rates.memory} % busy, compute processes: {clients}")
        levels.append("unfit" if rates.gpu > _HALF else "warn" if rates.gpu > _IDLE or clients else "ok")
    return Finding(worst(levels), each(said), "nvmlDeviceGetUtilizationRates, nvmlDeviceGetComputeRunningProcesses")


def _gaps(reader: HostReader) -> Finding:
    gpus = reader.gpus
    gpus[0].need("nvmlDeviceGetUtilizationRates")
    said, levels = [], list[Level]()
    for place in range(len(gpus)):
        seen = [row[place] for row in reader.watch.gpu_busy if place < len(row) and row[place] is not None]
        busy = [share for share in seen if share is not None]
        if not busy:
            raise Unreadable("NVML reported no utilisation while watched", "nvmlDeviceGetUtilizationRates")
        said.append(f"{min(busy)} … {max(busy)} % busy" if max(busy) > _IDLE else "idle")
        levels.append("warn" if max(busy) >= _HALF > min(busy) else "ok")
    note = "an idle GPU has no gaps to show: run this while something uses it" if set(said) == {"idle"} else ""
    return Finding(worst(levels), each(said), "nvmlDeviceGetUtilizationRates, five times in half a second", note)


def _mps(reader: HostReader) -> Finding:
    gpus = reader.gpus
    pipe = reader.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    runs = "nvidia-cuda-mps-control" in reader.processes
    there = "there" if (reader.root / pipe.lstrip("/")).exists() else "missing"
    where = f"/proc/*/comm, {pipe}"
    if not runs:
        return Finding("ok", "off", where, "right for one process a GPU")
    clients = [gpu.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3") for gpu in gpus]
    count = sum(len(found) for found in clients if found)
    share = reader.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
    value = f"on, {count} clients, pipe folder {there}" + (f", {share} % of the SMs each" if share else "")
    good = count > 1 and there == "there" and not share
    note = "" if good else "a process alone on its GPU gains nothing from it, and shares its scheduling"
    return Finding("ok" if good else "warn", value, f"{where}, nvmlDeviceGetMPSComputeRunningProcesses_v3", note)


def _mig_modes(reader: HostReader) -> list[tuple[int, int]]:
    """Current and pending mode of each GPU. Raises Absent, Unreadable."""
    asked = (gpu.whole.need("nvmlDeviceGetMigMode") for gpu in reader.gpus)
    return [(int(current), int(pending)) for current, pending in asked]


def _mig(reader: HostReader) -> Finding:
    modes = _mig_modes(reader)
    said, levels = [], list[Level]()
    for gpu, (current, pending) in zip(reader.gpus, modes, strict=True):
        slice_ = f" (this is {gpu.ask('nvmlDeviceGetName') or 'a slice'})" if gpu.sliced else ""
        change = f", {'on' if pending else 'off'} after a reset" if pending != current else ""
        said.append(f"{'on' if current else 'off'}{slice_}{change}")
        levels.append("warn" if current or pending != current else "ok")
    return Finding(worst(levels), each(said), "nvmlDeviceGetMigMode")


def _with_mig(reader: HostReader) -> tuple[GpuSight, ...]:
    found = tuple(g for g, (now, _) in zip(reader.gpus, _mig_modes(reader), strict=True) if now)
    if not found:
        raise Absent("MIG is off")
    return found


def _persistence_of(gpu: GpuSight) -> bool:
    return int(gpu.whole.need("nvmlDeviceGetPersistenceMode")) == 1


def _persistence(reader: HostReader) -> Finding:
    modes = [_persistence_of(gpu) for gpu in reader.gpus]
    daemon = "nvidia-persistenced" in reader.processes
    value = each("on" if mode else "off" for mode in modes)
    note = "nvidia-persistenced runs" if daemon else ""
    return Finding("ok" if all(modes) else "warn", value, "nvmlDeviceGetPersistenceMode, /proc/*/comm", note)


def _persistence_with_mig(reader: HostReader) -> Finding:
    good = all(_persistence_of(gpu) for gpu in _with_mig(reader))
    value = f"MIG on, persistence {'on' if good else 'off'}"
    return Finding("ok" if good else "warn", value, "nvmlDeviceGetMigMode, nvmlDeviceGetPersistenceMode")


def _mig_layout(reader: HostReader) -> Finding:
    kept = all(_persistence_of(gpu) for gpu in _with_mig(reader))
    output = reader.run("systemctl", "is-enabled", "nvidia-mig-manager")
    said = output.out.strip() or output.err.strip() or "unknown"
    if "bus" in said:
        raise Unreadable(f"systemd does not answer ({said})", "systemctl is-enabled nvidia-mig-manager")
    value = f"persistence {'on' if kept else 'off'}, nvidia-mig-manager {said}"
    good = kept and said == "enabled"
    return Finding("ok" if good else "warn", value, "nvmlDeviceGetPersistenceMode, systemctl is-enabled")


def _uncorrected(gpu: GpuSight) -> int | None:
    kind = gpu.nvml.constant("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1)
    volatile = gpu.nvml.constant("NVML_VOLATILE_ECC", 0)
    found = gpu.whole.ask("nvmlDeviceGetTotalEccErrors", kind, volatile)
    return None if found is None else int(found)


def _ecc(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        current, pending = gpu.whole.need("nvmlDeviceGetEccMode")
        errors, rows = _uncorrected(gpu), gpu.whole.ask("nvmlDeviceGetRemappedRows")
        parts = [("on" if current else "off") + (" (other after a reset)" if pending != current else "")]
        parts += [] if errors is None else [f"{errors} uncorrected errors"]
        parts += ["rows wait to be remapped"] if rows and rows[2] else []
        parts += ["remapping failed"] if rows and rows[3] else []
        said.append(", ".join(parts))
        spoilt = bool(errors) or bool(rows and (rows[2] or rows[3]))
        levels.append("unfit" if spoilt else "warn" if not current or pending != current else "ok")
    fix = "sudo nvidia-smi -r (after all jobs end) remaps rows; return a GPU whose remapping failed"
    bad = worst(levels) == "unfit"
    where = "nvmlDeviceGetEccMode, nvmlDeviceGetTotalEccErrors, nvmlDeviceGetRemappedRows"
    return Finding(worst(levels), each(said), where, fix=fix if bad else "")


def _anomalies(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        errors, slowed = _uncorrected(gpu), gpu.whole.nvml.slowdowns(gpu.whole.handle)
        if errors is None and slowed is None:
            raise Unreadable("NVML shows neither ECC errors nor slowdowns of this GPU", "NVML")
        hot = [name for name in slowed or () if name != "sw_power_cap"]
        parts = [f"{errors} uncorrected errors"] if errors is not None else []
        parts += [slowdown_words(hot) or "no slowdown"] if slowed is not None else []
        said.append(", ".join(parts))
        levels.append("unfit" if errors or hot else "ok")
    output = reader.command(("dmesg",))
    if output is None or output.code != 0:
        log = "the kernel log may not be read (sudo dmesg | grep Xid)"
    else:
        events = [int(number) for number in _XID.findall(output.out)]
        log = f"{len(events)} Xid events, last {events[-1]}" if events else "no Xid event in the kernel log"
        levels.append("warn" if events else "ok")
    return Finding(worst(levels), f"{each(said)}; {log}", "NVML, dmesg")


PROBES = (
    Probe(
        "modern-accelerator",
        "GPU",
        "GPU generation",
        "nvmlDeviceGetCudaComputeCapability",
        "8.9 or newer for FP8, 9.0 for TMA and clusters, 10.0 for FP4",
        "Low-precision tensor cores double the peak for each halving of the bits.",
        "run on a newer GPU; on this one leave FP8 scenarios out",
        _generation,
    ),
    Probe(
        "monitor-utilisation",
        "GPU",
        "Utilisation now",
        "nvmlDeviceGetUtilizationRates, compute processes",
        "at rest before a measurement; above 90 % while one runs",
        "Another program's kernels void a measurement; an idle GPU during one means that the bottleneck is elsewhere.",
        "nvidia-smi (shows whose it is); wait, or choose free GPUs with CUDA_VISIBLE_DEVICES",
        _utilisation,
        steady=False,
    ),
    Probe(
        "idle-gaps",
        "GPU",
        "Gaps in the utilisation",
        "nvmlDeviceGetUtilizationRates every 100 ms for half a second",
        "no drop below 50 % while the GPU works",
        "Drops at a steady period point at checkpoints, logging or input.",
        "nvidia-smi dmon -s pucvmet -d 1; aiperf run NAME --columns energy reads each side while it runs alone",
        _gaps,
        steady=False,
    ),
    Probe(
        "mps",
        "GPU",
        "Multi-Process Service",
        "nvidia-cuda-mps-control among the processes, its pipe folder, its clients",
        "off for one process a GPU; on when several share one",
        "Without it, processes on one GPU take turns; with it, their kernels run side by side.",
        "echo quit | nvidia-cuda-mps-control (off), or nvidia-cuda-mps-control -d (on)",
        _mps,
    ),
    Probe(
        "mig",
        "GPU",
        "MIG",
        "nvmlDeviceGetMigMode",
        "off for training and several GPUs; nothing pending",
        "A slice has only part of the SMs and the bandwidth, and no peer access.",
        "sudo nvidia-smi -mig 0 (after all jobs end)",
        _mig,
    ),
    Probe(
        "persistence-mode",
        "GPU",
        "Persistence mode",
        "nvmlDeviceGetPersistenceMode, nvidia-persistenced",
        "on",
        "Without it, the driver unloads between jobs: the first call takes seconds, and settings are lost.",
        "sudo nvidia-smi -pm 1",
        _persistence,
    ),
    Probe(
        "persistence-with-mig",
        "GPU",
        "Persistence with MIG",
        "nvmlDeviceGetMigMode, nvmlDeviceGetPersistenceMode",
        "persistence on wherever MIG is on",
        "Slices vanish when the driver unloads.",
        "sudo nvidia-smi -pm 1",
        _persistence_with_mig,
    ),
    Probe(
        "persistence-for-mig",
        "GPU",
        "MIG layout after a boot",
        "nvmlDeviceGetPersistenceMode, systemctl is-enabled nvidia-mig-manager",
        "persistence on, nvidia-mig-manager enabled",
        "A layout made by hand is lost in a reboot, and jobs that ask for a slice wait forever.",
        "sudo systemctl enable --now nvidia-mig-manager",
        _mig_layout,
    ),
    Probe(
        "ecc-enabled",
        "GPU",
        "ECC",
        "nvmlDeviceGetEccMode, nvmlDeviceGetTotalEccErrors, nvmlDeviceGetRemappedRows",
        "on, no uncorrected error, no row waiting to be remapped",
        "Without ECC, a flipped bit corrupts a run silently; with errors, results cannot be trusted.",
        "sudo nvidia-smi -e 1 (takes effect after a reset)",
        _ecc,
    ),
    Probe(
        "anomaly-alerts",
        "GPU",
        "Faults in the logs and counters",
        "ECC errors, clock event reasons, Xid lines of dmesg",
        "none",
        "An Xid event, an error or a slowdown explains what no profile can.",
        "sudo dmesg | grep -i xid; look the number up in NVIDIA's Xid table; drain the node if it recurs",
        _anomalies,
        steady=False,
    ),
)
