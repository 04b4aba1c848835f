"""What makes two measurements comparable: the host's identity, the software's versions, the state of a checkout.

What must not live here: comparing fingerprints across runs, and secrets of the environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiperf.host import proc
from aiperf.host.facts import HostFacts
from aiperf.host.git import read_git
from aiperf.host.read import libraries

_GIB = 1024**3
_NAMED = 3
"""Changed files that are named."""
_MUST_MATCH = ("torch", "triton", "cupy", "numpy", "nccl", "cudnn", "cublas")
"""Libraries whose version changes what a kernel costs."""
_SOFTWARE = (
    *_MUST_MATCH,
    "aiperf-ab",
    "kvikio",
    "nvtx",
    "scipy",
    "pandas",
    "pyarrow",
    "nvidia-ml-py",
    "transformers",
)
_ENV_PREFIXES = (
    *("CUDA_", "CUBLAS_", "GLOO_", "GOMP_", "KMP_", "MALLOC_", "MKL_", "NCCL_", "NVIDIA_TF32_", "NVSHMEM_"),
    *("OMP_", "OPENBLAS_", "PYTORCH_", "SLURM_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_"),
)
_ENV_NAMES = (
    *("AIPERF_LIBS", "AIPERF_NVTX", "AIPERF_SCRATCH", "LD_PRELOAD"),
    *("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONOPTIMIZE"),
    *("PYTHONPROFILEIMPORTTIME", "PYTHONTRACEMALLOC"),
)
_OF_ONE_JOB = re.compile(r"SLURM_.*(ID|LIST|ADDR|HOST|NAME|NODES|PORT|TIME|USER|UID|GID|ACCOUNT|COMMENT|DIR|PWD)S?$")
"""Which job, not how it was given its CPUs and GPUs: different at each start and no reason for another time."""
_SECRET = ("TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL", "AUTH", "COOKIE", "JWT")
_SECRET_VALUE = re.compile(
    r"://[^/\s]*@|bearer |\b(hf_|gh[opsur]_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|eyJ)[\w-]{8}", re.IGNORECASE
)
"""A password in an address, or the beginnings by which services mark their tokens."""
_UNTRACKED_LIMIT = 1024**2


def fingerprint(facts: HostFacts, *, root: Path = proc.ROOT) -> tuple[str, dict[str, dict[str, Any]]]:
    """A short hash of this host and the fields behind it: ``{"must_match": {...}, "record_only": {...}}``.

    Only the must_match fields enter the hash (METHOD 10). They name the class of machine, not the machine, so
    equal nodes of a cluster and the same container started twice compare. Memory is in whole GiB, because the kernel
    keeps a different sliver to itself at each boot.
    """
    nodes = [n for n, cpus in proc.numa_nodes(root).items() if set(cpus) & set(facts.cpus)]
    must_match = {
        "cpu_model": facts.cpu_model,
        "cpus": len(facts.cpus),
        "numa_nodes": len(nodes),
        "governor": sorted({g for cpu in facts.cpus if (g := proc.governor(cpu, root))}),
        "memory_gib": round(facts.memory_total / _GIB),
        "gpus": [_gpu_class(gpu) for gpu in map(asdict, facts.gpus)],
        "peer_access": facts.peer_access,
        "driver": facts.driver,
        "cuda_driver": facts.cuda_driver,
        "python": facts.python,
        "libraries": {name: facts.libraries[name] for name in _MUST_MATCH if name in facts.libraries},
    }
    record_only = {
        "hostname": facts.hostname,
        "machine_id": _machine_id(root),
        "system": facts.system,
        "cpu_list": list(facts.cpus),
        "gpu_uuids": [gpu.uuid for gpu in facts.gpus],
        "container": facts.container,
        "virtual": facts.virtual,
        "gds_active": facts.gds_active,
    }
    text = json.dumps(must_match, sort_keys=True)
    host_id = hashlib.sha256(text.encode()).hexdigest()[:12]
    return host_id, {"must_match": must_match, "record_only": record_only}


def software_versions(installed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Name -> version of what can change a measurement, from installed metadata; nothing is imported."""
    found = libraries() if installed is None else installed
    return {name: found[name] for name in _SOFTWARE if name in found}


def environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that can change a measurement: an allow-list, and never one that smells of a secret."""
    env = os.environ if environ is None else environ
    names = (n for n in env if n in _ENV_NAMES or n.startswith(_ENV_PREFIXES))
    return {n: env[n] for n in sorted(names) if not (_OF_ONE_JOB.match(n) or is_secret(n, env[n]))}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable may hold what nobody else should read, by its name or by its value."""
    return any(word in name.upper() for word in _SECRET) or _SECRET_VALUE.search(value) is not None


def git_state(folder: Path) -> dict[str, str]:
    """``sha`` and, when the tree is dirty, ``diff`` and ``changed``; {} without git or repository.

    ``diff`` is a hash of staged, unstaged and untracked content (untracked files above 1 MiB by size only), ``changed``
    names the first files of it and counts the others.
    """
    sha = _git(folder, "rev-parse", "HEAD")
    if sha is None:
        return {}
    top = Path((_git(folder, "rev-parse", "--show-toplevel") or b"").decode(errors="replace").strip())
    diff = _git(top, "diff", "HEAD", "--no-ext-diff", "--no-textconv", "--binary")
    if diff is None:
        # A clone without the contents of files, say: the names of what differs, and what lies there instead.
        names = _git(top, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=no")
        diff = b"?" if names is None else names
        diff += b"".join(_content(top / os.fsdecode(entry[3:])) for entry in diff.split(b"\0") if entry)
    untracked = _git(top, "ls-files", "--others", "--exclude-standard", "-z") or b""
    state = {"sha": sha.decode().strip()}
    if diff or untracked:
        digest = hashlib.sha256(diff)
        for name in filter(None, untracked.split(b"\0")):
            digest.update(name + b"\0" + _content(top / os.fsdecode(name)))
        state["diff"] = digest.hexdigest()[:12]
        status = _git(top, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
        state["changed"] = _some_of(status or b"")
    return state


def _machine_id(root: Path) -> str:
    """A hash of systemd's machine id, which must not leave the host as it is (machine-id(5)); empty without one."""
    text = (proc.read_text(root / "etc/machine-id") or "").strip()
    return hashlib.sha256(f"aiperf {text}".encode()).hexdigest()[:12] if text else ""


def _some_of(status: bytes) -> str:
    """The first files that ``git status -z`` lists, and how many there are beside them."""
    names = [entry[3:].decode(errors="replace") for entry in status.split(b"\0") if entry]
    more = len(names) - _NAMED
    return ", ".join([*names[:_NAMED], *([f"{more} more"] if more > 0 else [])])


def _gpu_class(gpu: dict[str, Any]) -> dict[str, Any]:
    fields = ("name", "compute_capability", "power_limit_w", "max_sm_clock_mhz", "ecc", "mig", "vbios")
    return {name: gpu[name] for name in fields} | {"memory_gib": round(gpu["memory_total"] / _GIB)}


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git prints, or None when it fails."""
    done = read_git(folder, *arguments)
    return done.stdout if done is not None and done.returncode == 0 else None


def _content(path: Path) -> bytes:
    try:
        size = path.lstat().st_size
        return path.read_bytes() if size <= _UNTRACKED_LIMIT and path.is_file() else str(size).encode()
    except OSError:
        return b""
