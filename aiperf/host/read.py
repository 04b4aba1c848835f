"""Reads what this host is into HostFacts: /proc, /sys, NVML, installed metadata.

What must not live here: judging, measuring, importing what it reports, and changing anything.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aiperf.host import proc
from aiperf.host.facts import Gpu, HostFacts
from aiperf.host.nvml import Nvml, open_nvml

_IMPORT_NAMES = {
    "cuda-bench": "cuda.bench",
    "cuda-bindings": "cuda.bindings",
    "cuda-core": "cuda.core",
    "nvidia-cutlass": "cutlass_library",
    "nvidia-ml-py": "pynvml",
    "opencv-python": "cv2",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
}
"""Distributions whose import name cannot be guessed from their own."""
_FAMILIES = ("cupy", "kvikio", "nvidia-nccl", "nvidia-cudnn", "nvidia-cublas")
"""Distributions that carry the CUDA version in their name: ``cupy-cuda13x``, ``kvikio-cu13``."""
_FAMILY = re.compile(rf"^({'|'.join(_FAMILIES)})-(?:cuda|cu)\d+x?$")
_CGROUP_MEMORY = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Files of the limit and of what is used, and the field of reclaimable pages: cgroup version 2, then 1."""
_INFO = re.compile(r"^(?P<name>[A-Za-z0-9._-]+?)-(?P<version>\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info$")


def read_host(*, root: Path = proc.ROOT, environ: Mapping[str, str] | None = None, library: Any = None) -> HostFacts:
    """One reading of this host; what cannot be read is empty, None or a sentence, never an exception.

    ``root`` is where proc, sys and etc lie, ``library`` stands in for pynvml.
    """
    env = os.environ if environ is None else environ
    total, available = memory(root)
    nvml, problem = open_nvml(library)
    gpus: tuple[Gpu, ...] = ()
    driver = cuda = ""
    peer = None
    if nvml is not None:
        handles = nvml.visible(env.get("CUDA_VISIBLE_DEVICES"))
        gpus = tuple(_gpu(nvml, handle, index) for index, handle in enumerate(handles))
        problem = "" if gpus else _no_gpus(nvml, env)
        driver = str(nvml.ask("nvmlSystemGetDriverVersion") or "")
        cuda = _cuda_version(nvml)
        peer = _peer_access(nvml, handles)
        nvml.close()
    gds_problem = _gds_problem(root, problem)
    return HostFacts(
        hostname=platform.node(),
        system=_system(root),
        cpu_model=_cpu_model(root),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        memory_total=total,
        memory_available=available,
        gpus=gpus,
        gpu_problem=problem,
        driver=driver,
        cuda_driver=cuda,
        peer_access=peer,
        gds_active=not gds_problem,
        gds_problem=gds_problem,
        root=os.geteuid() == 0,
        compiler=_compiler(env),
        python=platform.python_version(),
        libraries=libraries(),
        container=_container(root, env),
        virtual=_virtual(root),
    )


def memory(root: Path = proc.ROOT) -> tuple[int, int]:
    """Bytes in all and bytes still available to this process: the machine's, or less where a cgroup says less."""
    info = proc.memory_info(root)
    total = info.get("MemTotal", 0)
    available = info.get("MemAvailable", info.get("MemFree", 0))
    for limit, used in _cgroup_limits(root):
        if 0 < limit < total or not total:
            total = limit
        available = min(available, max(0, limit - used)) if available else max(0, limit - used)
    return total, available


def libraries(folders: Iterable[str] | None = None) -> dict[str, str]:
    """Distribution and import names (lower case) -> version, for all that is installed on the search path.

    Read from the names of the metadata folders: opening some hundred METADATA files would cost more than the rest.
    """
    found: dict[str, str] = {}
    for folder in sys.path if folders is None else folders:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for match in filter(None, map(_INFO.match, names)):
            for key in _keys(match["name"]):
                found.setdefault(key, match["version"])
    return dict(sorted(found.items()))


def _keys(name: str) -> set[str]:
    normal = re.sub(r"[-_.]+", "-", name).lower()
    keys = {normal, normal.replace("-", "_")}
    if match := _FAMILY.match(normal):
        keys.add(match[1].removeprefix("nvidia-"))
    if normal in _IMPORT_NAMES:
        keys.add(_IMPORT_NAMES[normal].lower())
    return keys


def _cgroup_limits(root: Path) -> list[tuple[int, int]]:
    """(limit, used without reclaimable file pages) of every cgroup above this process; version 1 and 2."""
    folders = proc.cgroup_folders("memory", root)
    found = (_cgroup_limit(folder, *names) for folder in folders for names in _CGROUP_MEMORY)
    return [pair for pair in found if pair is not None]


def _cgroup_limit(folder: Path, limit_name: str, used_name: str, file_field: str) -> tuple[int, int] | None:
    limit, used = proc.read_int(folder / limit_name), proc.read_int(folder / used_name)
    # Version 1 writes "no limit" as the largest number of pages that fits.
    if limit is None or limit >= 1 << 60:
        return None
    reclaimable = 0
    for line in (proc.read_text(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == file_field and value.strip().isdigit():
            reclaimable = int(value)
    return limit, max(0, (used or 0) - reclaimable)


def _gpu(nvml: Nvml, handle: Any, index: int) -> Gpu:
    memory_info = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)
    limit = nvml.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    ecc, mig = nvml.ask("nvmlDeviceGetEccMode", handle), nvml.ask("nvmlDeviceGetMigMode", handle)
    return Gpu(
        index=index,
        name=str(nvml.ask("nvmlDeviceGetName", handle) or ""),
        uuid=nvml.uuid(handle),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else "",
        memory_total=int(memory_info.total) if memory_info else 0,
        memory_free=int(memory_info.free) if memory_info else 0,
        power_limit_w=None if limit is None else limit / 1000,
        max_sm_clock_mhz=nvml.ask("nvmlDeviceGetMaxClockInfo", handle, nvml.constant("NVML_CLOCK_SM", 1)),
        ecc=None if ecc is None else bool(ecc[0]),
        mig=None if mig is None else bool(mig[0]),
        vbios=nvml.ask("nvmlDeviceGetVbiosVersion", handle),
    )


def _no_gpus(nvml: Nvml, env: Mapping[str, str]) -> str:
    count = len(nvml.devices())
    if count == 0:
        return "NVML sees no GPU"
    return f'CUDA_VISIBLE_DEVICES="{env.get("CUDA_VISIBLE_DEVICES", "")}" leaves none of {count} GPUs'


def _cuda_version(nvml: Nvml) -> str:
    number = nvml.ask("nvmlSystemGetCudaDriverVersion_v2") or nvml.ask("nvmlSystemGetCudaDriverVersion")
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def _peer_access(nvml: Nvml, handles: tuple[Any, ...]) -> bool | None:
    """Whether the first two GPUs can read each other, both ways; None when NVML does not say."""
    if len(handles) < 2:
        return None
    read, good = nvml.constant("NVML_P2P_CAPS_INDEX_READ", 0), nvml.constant("NVML_P2P_STATUS_OK", 0)
    ways = [nvml.ask("nvmlDeviceGetP2PStatus", a, b, read) for a, b in (handles[:2], handles[1::-1])]
    return None if None in ways else all(way == good for way in ways)


def _gds_problem(root: Path, gpu_problem: str) -> str:
    if gpu_problem:
        return f"no GPU: {gpu_problem}"
    modules = proc.read_text(root / "proc/modules") or ""
    loaded = (root / "proc/driver/nvidia-fs").exists() or any(m.startswith("nvidia_fs ") for m in modules.splitlines())
    return "" if loaded else "the kernel module nvidia-fs is not loaded"


def _system(root: Path) -> str:
    names = dict(
        line.split("=", 1) for line in (proc.read_text(root / "etc/os-release") or "").splitlines() if "=" in line
    )
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    distribution = names.get("PRETTY_NAME", "").strip().strip('"')
    return f"{kernel}, {distribution}" if distribution else kernel


def _cpu_model(root: Path) -> str:
    fields = _cpu_fields(root)
    # ARM kernels give part numbers instead of a model name.
    return fields.get("model name") or fields.get("Model") or fields.get("CPU part") or platform.machine()


def _cpu_fields(root: Path) -> dict[str, str]:
    first = (proc.read_text(root / "proc/cpuinfo") or "").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _compiler(env: Mapping[str, str]) -> str:
    names = (env.get("CXX", ""), "c++", "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name, path=env.get("PATH")))), "")


def _container(root: Path, env: Mapping[str, str]) -> str:
    if "KUBERNETES_SERVICE_HOST" in env:
        return "kubernetes"
    if env.get("APPTAINER_CONTAINER") or env.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    groups = proc.read_text(root / "proc/1/cgroup") or ""
    hints = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc", "containerd": "containerd"}
    return next((name for hint, name in hints.items() if hint in groups), "")


def _virtual(root: Path) -> str:
    if "hypervisor" not in _cpu_fields(root).get("flags", "").split():
        return ""
    dmi = root / "sys/class/dmi/id"
    names = [(proc.read_text(dmi / field) or "").strip() for field in ("sys_vendor", "product_name")]
    hypervisor = (proc.read_text(root / "sys/hypervisor/type") or "").strip()
    return " ".join(filter(None, names)) or hypervisor or "virtual machine"
