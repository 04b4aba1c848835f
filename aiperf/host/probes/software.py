"""Probes of versions, firmware, profilers and the checkout.

What must not live here: switches of a framework (framework.py).
"""

from __future__ import annotations

from aiperf.host import proc
from aiperf.host.probes.packages import at_least
from aiperf.host.probes.probe import Finding, Level, Probe, each
from aiperf.host.probes.reader import Absent, HostReader, Unreadable

_STACK = ("torch", "triton", "cudnn", "nccl", "cupy")
_PAT = "2.23"
"""First NCCL with the PAT algorithm."""
_ENGINES = ("vllm", "sglang", "tensorrt-llm", "ai-dynamo")
_PROFILER_FOLDERS = (
    "opt/nvidia/nsight-systems",
    "opt/nvidia/nsight-compute",
    "usr/local/cuda/bin",
    "usr/local/cuda/nsight-compute",
    "usr/lib/nsight-systems",
    "usr/lib/nsight-compute",
)
_CHANGED_SHOWN = 3
_SYS_ADMIN = 21
"""Bit of the capability CAP_SYS_ADMIN (linux/capability.h), which opens the counters to a user."""


def _stack(reader: HostReader) -> Finding:
    found = reader.packages
    if "torch" not in found.versions:
        fix = "pip install torch"
        return Finding("warn", "torch is not installed", "metadata of this interpreter", fix=fix)
    said = [f"{name} {found.versions[name]}" for name in _STACK if name in found.versions]
    said += [f"built for CUDA {found.torch_cuda}" if found.torch_cuda else "a CPU build of torch"]
    old = [
        f"{name} {found.versions[name]} (wanted {least})"
        for name, least in found.minimums.items()
        if name in found.versions and not at_least(found.versions[name], least)
    ]
    fix = f"pip install --upgrade {' '.join(text.split()[0] for text in old)}" if old else ""
    note = f"older than aiperf asks for: {', '.join(old)}" if old else ""
    return Finding("warn" if old else "ok", ", ".join(said), "metadata of this interpreter", note, fix)


def _checkout(reader: HostReader) -> Finding:
    where = f"git status in {reader.data}"
    git = ("git", "--no-optional-locks", "-C", str(reader.data))
    head = reader.run(*git, "rev-parse", "--short", "HEAD")
    if head.code != 0:
        why = f" ({head.err.strip().splitlines()[0]})" if head.err.strip() else ""
        fix = "git init && git add . && git commit"
        raise Unreadable(f"{reader.data} is not a git checkout with a commit{why}", where, fix)
    status = reader.run(*git, "status", "--porcelain")
    changed = [line[3:] for line in status.out.splitlines()]
    commit = f"commit {head.out.strip()}"
    if status.code == 0 and not changed:
        return Finding("ok", f"{commit}, clean", where)
    more = f" and {len(changed) - _CHANGED_SHOWN} more" if len(changed) > _CHANGED_SHOWN else ""
    return Finding("warn", f"{commit}, changed: {', '.join(changed[:_CHANGED_SHOWN])}{more}", where)


def _driver(reader: HostReader) -> Finding:
    gpus, facts, built = reader.gpus, reader.facts, reader.packages.torch_cuda
    where = "nvmlSystemGetDriverVersion, nvmlSystemGetCudaDriverVersion_v2, torch/version.py"
    if not facts.driver or not facts.cuda_driver:
        raise Unreadable(f"NVML shows no driver version for {len(gpus)} GPUs", where)
    value = f"driver {facts.driver} for CUDA {facts.cuda_driver}"
    if not built:
        return Finding("ok", f"{value}; torch's CUDA is not known", where)
    level: Level = "ok"
    note = ""
    if not at_least(facts.cuda_driver, built):
        same_major = facts.cuda_driver.split(".")[0] == built.split(".")[0]
        level = "warn" if same_major else "unfit"
        note = (
            "an older driver of the same major version works but compiles PTX" if same_major else "torch cannot start"
        )
    return Finding(level, f"{value}, torch built for CUDA {built}", where, note)


def _firmware(reader: HostReader) -> Finding:
    dmi = "sys/class/dmi/id"
    bios = " ".join(filter(None, (reader.maybe(f"{dmi}/bios_version"), reader.maybe(f"{dmi}/bios_date"))))
    said = [f"BIOS {bios}"] if bios else []
    cards = [(n, reader.maybe(f"sys/class/infiniband/{n}/fw_ver")) for n in reader.names("sys/class/infiniband")]
    said += [f"{name} {version}" for name, version in cards if version]
    try:
        roms = [str(gpu.whole.ask("nvmlDeviceGetVbiosVersion") or "unknown") for gpu in reader.gpus]
    except (Absent, Unreadable):
        roms = []
    said += [f"VBIOS {each(roms)}"] if roms else []
    where = "/sys/class/dmi/id, /sys/class/infiniband/*/fw_ver, nvmlDeviceGetVbiosVersion"
    if not said:
        raise Unreadable(
            "no firmware versions are shown here (virtual machines and containers hide them)",
            where,
            "sudo dmidecode -t bios",
        )
    mixed = len(set(roms)) > 1
    note = "GPUs of one host have different VBIOS" if mixed else "compare hosts with aiperf doctor --diff A B"
    return Finding("warn" if mixed else "ok", ", ".join(said), where, note)


def _profilers(reader: HostReader) -> Finding:
    found = {name: reader.which(name) or _installed(reader, name) for name in ("nsys", "ncu", "perf")}
    there = [f"{name} at {path}" for name, path in found.items() if path]
    missing = [name for name in ("nsys", "ncu") if not found[name]]
    torch = ["torch.profiler with torch"] if "torch" in reader.packages.versions else []
    where = "PATH, NVIDIA's usual folders, /proc/driver/nvidia/params"
    try:
        gpus = bool(reader.gpus)
    except Absent:
        gpus = False
    if not gpus:
        value = ", ".join(there + torch) or "none"
        return Finding("ok" if there or torch else "warn", value, where, fix="apt install linux-perf")
    admin = "RmProfilingAdminOnly: 1" in reader.maybe("proc/driver/nvidia/params")
    closed = admin and not int(proc.status(reader.root).get("CapEff", "0"), 16) >> _SYS_ADMIN & 1
    said = there + torch + [f"no {name}" for name in missing] + (["counters for root only"] if admin else [])
    fix = "apt install nsight-systems nsight-compute (NVIDIA's repository)" if missing else ""
    if closed:
        fix = 'echo "options nvidia NVreg_RestrictProfilingToAdminUsers=0" | sudo tee /etc/modprobe.d/nvidia-prof.conf'
    return Finding("warn" if missing or closed else "ok", ", ".join(said), where, fix=fix)


def _installed(reader: HostReader, name: str) -> str:
    for folder in _PROFILER_FOLDERS:
        base = reader.root / folder
        patterns = (name, f"*/{name}", f"*/bin/{name}", f"*/target-linux-x64/{name}", f"*/host/target-linux-x64/{name}")
        for pattern in (*patterns, f"host/target-linux-x64/{name}"):
            hit = next(iter(sorted(base.glob(pattern))), None) if base.is_dir() else None
            if hit is not None:
                return f"/{hit.relative_to(reader.root)}"
    return ""


def _markers(reader: HostReader) -> Finding:
    found = reader.packages.versions
    said = [f"{name} {found[name]}" for name in ("nvtx", "torch") if name in found]
    return Finding("ok" if "nvtx" in found else "warn", ", ".join(said) or "none", "metadata of this interpreter")


def _engines(reader: HostReader) -> Finding:
    found = [f"{name} {reader.packages.versions[name]}" for name in _ENGINES if name in reader.packages.versions]
    if not found:
        raise Absent(f"no serving engine ({', '.join(_ENGINES)}) is installed; only serving hosts need one")
    return Finding("ok", ", ".join(found), "metadata of this interpreter")


def _collectives(reader: HostReader) -> Finding:
    count = len(reader.gpus)
    version = reader.packages.versions.get("nccl", "") or _library(reader)
    where = "metadata of this interpreter, libnccl.so.2, NCCL_ALGO"
    if not version:
        raise Unreadable("torch brings its own NCCL, and only a loaded torch shows which", where)
    chosen = [f"{n}={reader.environ[n]}" for n in ("NCCL_ALGO", "NCCL_PROTO") if reader.environ.get(n)]
    old = not at_least(version, _PAT)
    value = ", ".join([f"NCCL {version} for {count} GPU{'s' if count > 1 else ''}", *chosen])
    fix = f"unset {' '.join(c.split('=')[0] for c in chosen)}" if chosen and not old else ""
    note = "set by hand: NCCL's own choice is better unless a benchmark shows otherwise" if chosen else ""
    return Finding("warn" if old or chosen else "ok", value, where, note, fix)


def _library(reader: HostReader) -> str:
    names = (n for f in ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib/aarch64-linux-gnu") for n in reader.names(f))
    return next((n.removeprefix("libnccl.so.") for n in names if n.startswith("libnccl.so.2.")), "")


PROBES = (
    Probe(
        "framework-upgrades",
        "software",
        "Framework versions",
        "installed metadata of torch, triton, cuDNN, NCCL; torch/version.py",
        "at least what aiperf's own metadata asks for",
        "New releases bring faster kernels for the same code.",
        "pip install --upgrade torch",
        _stack,
    ),
    Probe(
        "version-control",
        "software",
        "Checkout of the code under test",
        "git status of the folder",
        "a commit, nothing changed",
        "A result from uncommitted code cannot be reproduced.",
        "git commit -a",
        _checkout,
    ),
    Probe(
        "driver-cuda-current",
        "software",
        "Driver and CUDA",
        "driver and its CUDA by NVML, torch's CUDA in torch/version.py",
        "the driver's CUDA is at least torch's",
        "An older driver compiles kernels at start or cannot run them; different nodes give different times.",
        "update the driver (package nvidia-driver), or install a torch built for the driver's CUDA",
        _driver,
    ),
    Probe(
        "firmware-maintenance",
        "software",
        "Firmware",
        "BIOS of /sys/class/dmi/id, fw_ver of the cards, VBIOS",
        "known, and the same on GPUs of one host",
        "Old firmware trains links at lower speeds; mixed firmware makes nodes differ.",
        "ask the vendor for the current version; nvidia-smi -q | grep -i bios",
        _firmware,
    ),
    Probe(
        "profile-root-cause",
        "software",
        "Profilers",
        "nsys, ncu and perf on PATH and in NVIDIA's folders, RmProfilingAdminOnly",
        "nsys and ncu on a GPU host, counters open to this user",
        "A verdict shows which side is faster; a profile shows why.",
        "apt install linux-perf; on a GPU host nsight-systems and nsight-compute",
        _profilers,
    ),
    Probe(
        "nvtx-markers",
        "software",
        "NVTX",
        "installed metadata",
        "nvtx installed",
        "In a profile, named ranges show which side and phase a kernel belongs to.",
        "pip install nvtx",
        _markers,
    ),
    Probe(
        "optimised-serving-runtime",
        "software",
        "Serving engines",
        "installed metadata of vllm, sglang, tensorrt-llm, ai-dynamo",
        "one, on a host that serves",
        "They batch, page and fuse in ways that a plain loop does not.",
        "pip install vllm",
        _engines,
    ),
    Probe(
        "modern-collectives",
        "software",
        "NCCL",
        "installed metadata, libnccl.so.2, NCCL_ALGO, NCCL_PROTO",
        "2.23 or newer, the algorithm left to NCCL",
        "Newer releases know more algorithms and choose among them by size and topology.",
        "pip install --upgrade torch (brings its NCCL)",
        _collectives,
    ),
)
