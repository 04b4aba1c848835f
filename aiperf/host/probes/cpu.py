"""Probes of the CPUs: clocks, load, isolation, hardware threads, priority, balance with the GPUs.

What must not live here: memory, quotas of a container (container.py).
"""

from __future__ import annotations

import math

from aiperf.host import proc
from aiperf.host.placement import format_cpus
from aiperf.host.probes.probe import Finding, Level, Probe, percent, worst
from aiperf.host.probes.reader import HostReader, Unreadable
from aiperf.host.read import memory
from aiperf.units import format_bytes

_CALM_LOAD = 0.5
_FULL_LOAD = 1.0
_PRESSURE = 10.0
_BUSY_UNFIT, _BUSY_WARN = 0.5, 0.1
"""Shares of the CPUs' time that other work may take."""
_FEW_CPUS = 8
"""On a host with fewer CPUs there are none to spare for the system."""
_LOADER_CPUS = 4
_POLICIES = {0: "normal", 1: "FIFO", 2: "round robin", 3: "batch", 5: "idle", 6: "deadline"}


def _governor(reader: HostReader) -> Finding:
    found = sorted({g for cpu in reader.cpus if (g := proc.governor(cpu, reader.root))})
    where = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor, intel_pstate/no_turbo, cpufreq/boost"
    turbo = _turbo(reader)
    said = f"turbo {turbo}, " if turbo else ""
    kernel = f"{said}kernel {reader.maybe('proc/sys/kernel/osrelease') or 'unknown'}"
    if not found:
        virtual = "hypervisor" in reader.maybe("proc/cpuinfo")
        owner = "the hypervisor owns the clocks of this virtual machine" if virtual else "the kernel shows no cpufreq"
        raise Unreadable(f"there is no governor to read: {owner} ({kernel})", where)
    good = found == ["performance"]
    note = "with turbo on, the clock follows heat and the number of busy cores" if turbo == "on" else ""
    return Finding("ok" if good else "warn", f"{', '.join(found)}, {kernel}", where, note)


def _turbo(reader: HostReader) -> str:
    """``on`` or ``off``; empty where the kernel does not say (its Documentation/admin-guide/pm)."""
    base = "sys/devices/system/cpu"
    stopped, boost = reader.maybe(f"{base}/intel_pstate/no_turbo"), reader.maybe(f"{base}/cpufreq/boost")
    if stopped in ("0", "1"):
        return "off" if stopped == "1" else "on"
    return {"0": "off", "1": "on"}.get(boost, "")


def _load(reader: HostReader) -> float:
    words = reader.text("proc/loadavg").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        raise Unreadable("/proc/loadavg says no number", "/proc/loadavg") from None


def _machine_cpus(reader: HostReader) -> int:
    """CPUs of the whole machine: the load average counts the work on all of them."""
    return len(proc.cpu_times(reader.root)) or len(reader.cpus)


def _services(reader: HostReader) -> Finding:
    load, cpus = _load(reader), _machine_cpus(reader)
    level: Level = "ok" if load / cpus < _CALM_LOAD else "warn"
    note = "the services that run cannot be counted: systemctl does not answer"
    listed = reader.command(("systemctl", "list-units", "--type=service", "--state=running", "--no-legend", "--plain"))
    if listed is not None and listed.code == 0:
        note = f"{len(listed.out.splitlines())} services run"
    return Finding(level, f"load {load:.2f} on {cpus} CPUs", "/proc/loadavg", note)


def _oversubscription(reader: HostReader) -> Finding:
    busy = reader.watch.busy(reader.cpus)
    level: Level = "ok"
    if busy is not None:
        level = "unfit" if busy > _BUSY_UNFIT else "warn" if busy > _BUSY_WARN else "ok"
    said = []
    if reader.phase == "measuring":
        if busy is None:
            raise Unreadable("/proc/stat does not show how busy the CPUs are", "/proc/stat")
    else:
        load, cpus, some = _load(reader), _machine_cpus(reader), _pressure(reader)
        crowded = load / cpus >= _FULL_LOAD or (some or 0) >= _PRESSURE
        level = worst([level, "warn" if crowded else "ok"])
        said += [f"load {load:.2f} on {cpus} CPUs"]
        said += [f"pressure {some:g} %"] if some is not None else []
    said += [f"CPU {format_cpus(reader.cpus)} {percent(busy)} busy with other work"] if busy is not None else []
    return Finding(level, ", ".join(said))


def _pressure(reader: HostReader) -> float | None:
    """Per cent of the last ten seconds in which some task waited for a CPU; None where the kernel does not count it."""
    text = reader.maybe("proc/pressure/cpu").partition("avg10=")[2].split(" ")[0]
    return float(text) if text else None


def _isolation(reader: HostReader) -> Finding:
    base = "sys/devices/system/cpu"
    isolated, tickless = reader.maybe(f"{base}/isolated"), reader.maybe(f"{base}/nohz_full")
    asked = [w for w in reader.maybe("proc/cmdline").split() if w.startswith(("isolcpus=", "nohz_full="))]
    where = f"/{base}/isolated, nohz_full, /proc/cmdline"
    said = [f"isolated {isolated}"] if isolated else []
    said += [f"tickless {tickless}"] if tickless not in ("", "(null)") else []
    said += asked
    if said:
        return Finding("ok", ", ".join(said), where)
    cpus, mine = _machine_cpus(reader), len(reader.cpus)
    if mine < cpus:
        return Finding(
            "ok", f"this process may use {mine} of {cpus} CPUs", "/proc/self/status", "the rest is left over"
        )
    if cpus < _FEW_CPUS:
        return Finding("ok", "none isolated", where, f"{cpus} CPUs have none to spare")
    fix = f"taskset -c 2-{cpus - 1} COMMAND, or at boot: isolcpus=2-{cpus - 1} nohz_full=2-{cpus - 1}"
    return Finding("warn", f"none of {cpus} CPUs is kept free for the system", where, fix=fix)


def _smt(reader: HostReader) -> Finding:
    where = "/sys/devices/system/cpu/smt/active, cpu*/topology/thread_siblings_list"
    cores = {proc.siblings(cpu, reader.root) for cpu in reader.cpus}
    shared = [core for core in cores if len(set(core) & set(reader.cpus)) > 1]
    active = reader.maybe("sys/devices/system/cpu/smt/active")
    listed = f"sys/devices/system/cpu/cpu{reader.cpus[0]}/topology/thread_siblings_list"
    if not active and not any(len(core) > 1 for core in cores) and not reader.maybe(listed):
        raise Unreadable("the kernel shows no topology of its CPUs", where)
    if not shared:
        return Finding("ok", "off" if active != "1" else "on, but no two of the allowed CPUs share a core", where)
    return Finding("warn", f"on: {len(reader.cpus)} CPUs on {len(cores)} cores", where)


def _priority(reader: HostReader) -> Finding:
    text = reader.text("proc/self/stat")
    words = text[text.rindex(")") + 1 :].split() if ")" in text else []
    if len(words) < 39:
        raise Unreadable("/proc/self/stat is cut short", "/proc/self/stat")
    nice, policy = int(words[16]), _POLICIES.get(int(words[38]), words[38])
    limit = proc.limit("Max nice priority", reader.root)
    capable = proc.has_capability(proc.CAP_SYS_NICE, reader.root)
    rights = capable or (limit is not None and limit[0].isdigit() and int(limit[0]) > 20)
    may = "loaders may be raised" if rights else "loaders may not be raised (no CAP_SYS_NICE, no nice limit)"
    level: Level = "warn" if nice > 0 or policy == "idle" else "ok"
    return Finding(level, f"nice {nice}, {policy} policy; {may}", "/proc/self/stat, limits, status")


def _balance(reader: HostReader) -> Finding:
    gpus, cpus = reader.gpus, len(reader.cpus)
    infos = [gpu.need("nvmlDeviceGetMemoryInfo") for gpu in gpus]
    on_gpus, on_host = sum(int(info.total) for info in infos), memory(reader.root)[0]
    each = cpus / len(gpus)
    quota = proc.cpu_quota(reader.root)
    each = min(each, quota / len(gpus)) if quota is not None else each
    level: Level = "ok" if each >= _LOADER_CPUS and on_host >= on_gpus else "warn" if each >= 1 else "unfit"
    value = (
        f"{math.floor(each * 10) / 10:g} CPUs a GPU, {format_bytes(on_host)} for {format_bytes(on_gpus)} of GPU memory"
    )
    return Finding(level, value, "/proc/self/status, /proc/meminfo, cgroup, nvmlDeviceGetMemoryInfo")


PROBES = (
    Probe(
        "hpc-kernel-governor",
        "CPU",
        "Frequency governor and kernel",
        "cpufreq/scaling_governor of every allowed CPU, turbo, kernel release",
        "performance on every CPU",
        "Any other governor lets the clock follow the load, and the first milliseconds of a step run slower.",
        "sudo cpupower frequency-set -g performance",
        _governor,
    ),
    Probe(
        "background-services",
        "CPU",
        "Background services",
        "/proc/loadavg, running systemd services",
        "load below 0.5 a CPU",
        "Unneeded services take CPU time and cache from data loading.",
        "systemctl list-units --type=service --state=running; sudo systemctl disable --now NAME",
        _services,
        steady=False,
    ),
    Probe(
        "cpu-oversubscription",
        "CPU",
        "Work of others on the CPUs",
        "/proc/loadavg, /proc/pressure/cpu, /proc/stat over half a second",
        "load below 1 a CPU, pressure below 10 %, at most 10 % of the CPU time taken by others",
        "More runnable threads than CPUs starve the loaders and the launching thread: the GPU waits.",
        "top -o %CPU; stop or move the other work, or choose idle CPUs with --pin",
        _oversubscription,
        steady=False,
    ),
    Probe(
        "isolate-system-tasks",
        "CPU",
        "CPUs kept free for the system",
        "isolated, nohz_full, /proc/cmdline, allowed CPUs",
        "on a large host, some CPUs are reserved for the system",
        "Interrupts and daemons that share the job's CPUs show up as slow iterations.",
        "taskset -c LIST COMMAND, or isolcpus= and nohz_full= at boot",
        _isolation,
    ),
    Probe(
        "hyperthreading",
        "CPU",
        "Hardware threads (SMT)",
        "smt/active and the siblings of every allowed CPU",
        "one thread a core for CPU-bound pipelines that need steady threads",
        "Two threads on a core share its units and caches: each slows down the other by an amount that varies.",
        "echo off | sudo tee /sys/devices/system/cpu/smt/control, or choose one thread a core with --pin",
        _smt,
    ),
    Probe(
        "thread-priority",
        "CPU",
        "Priority of this process",
        "nice value and policy of /proc/self/stat, CAP_SYS_NICE, RLIMIT_NICE",
        "nice 0 or lower, normal policy",
        "Low-priority loaders leave the GPU without input; child processes inherit the priority.",
        "sudo renice -n 0 -p $$ (then start again from that shell)",
        _priority,
    ),
    Probe(
        "cpu-gpu-balance",
        "CPU",
        "CPUs and memory for each GPU",
        "allowed CPUs, cgroup quota, memory of host and GPUs",
        "at least one CPU a GPU, four with data loaders; as much host memory as GPU memory",
        "Too few CPUs cannot keep the GPU fed; too little host memory cannot stage its data.",
        "give the job more CPUs (Slurm: --cpus-per-gpu=8; Docker: --cpus) and memory, or fewer GPUs",
        _balance,
    ),
)
