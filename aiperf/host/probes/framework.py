"""Probes of the switches of frameworks and libraries, as far as variables and hardware show them.

What must not live here: loading a framework; a switch that only a program sets is said to be unreadable.
"""

from __future__ import annotations

from aiperf.host import proc
from aiperf.host.fingerprint import is_secret
from aiperf.host.probes.gpu import capability
from aiperf.host.probes.packages import at_least
from aiperf.host.probes.probe import Finding, Level, Probe, each
from aiperf.host.probes.reader import Absent, HostReader, Unreadable

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_RANKS = ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE")
_MANY = 4
_AMPERE = (8, 0)
_FLASH_TORCH = "2.0"
_NCCL_THREADS = ("64", "128", "256", "512")
_SWITCHED_OFF = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")
_LOUD = ("INFO", "TRACE")
_TYPO = "NCCL_COLLMET_ENABLE"
_BF16_FLAGS = ("avx512_bf16", "amx_bf16")


def _own_switch(name: str, default: str) -> Unreadable:
    reason = f"{name} is a switch of each program ({default} unless it is set): reading it needs torch to be loaded"
    return Unreadable(reason, name, f'python -c "import torch; print({name})" inside the program')


def _torch(reader: HostReader) -> str:
    """The version of torch. Raises Absent."""
    if "torch" not in reader.packages.versions:
        raise Absent("torch is not installed")
    return reader.packages.versions["torch"]


def _threads(reader: HostReader) -> Finding:
    cpus, quota = len(reader.cpus), proc.cpu_quota(reader.root)
    usable = min(float(cpus), quota) if quota is not None else float(cpus)
    ranks = next((int(t) for n in _RANKS if (t := reader.environ.get(n, "").split("(")[0]).isdigit()), 1)
    asked = {name: reader.environ[name] for name in _THREADS if reader.environ.get(name)}
    said = [f"{name}={value}" for name, value in asked.items()] or [f"not set: {cpus} threads, one for each CPU"]
    said += [f"{ranks} ranks"] if ranks > 1 else []
    said += [f"{usable:g} CPUs allowed"]
    where = ", ".join((*_THREADS, *_RANKS)) + ", cgroup quota"
    per_rank = max(1, int(usable // max(1, ranks)))
    fix = f"export {_THREADS[0]}={per_rank} {_THREADS[1]}={per_rank}"
    if any(not value.split(",")[0].isdigit() or int(value.split(",")[0]) < 1 for value in asked.values()):
        return Finding("warn", ", ".join(said), where, "no number of threads", fix)
    threads = max((int(value.split(",")[0]) for value in asked.values()), default=cpus)
    if ranks * threads > usable:
        note = f"{ranks * threads} threads share {usable:g} CPUs"
        return Finding("warn", ", ".join(said), where, note, fix)
    alone = bool(asked) and threads == 1 and per_rank >= _MANY
    note = "one thread on many CPUs, as torchrun sets it by itself" if alone else ""
    return Finding("warn" if alone else "ok", ", ".join(said), where, note, fix if alone else "")


def _autotune(reader: HostReader) -> Finding:
    _torch(reader)
    reader.require_gpu()
    workspace = reader.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
    if workspace in (":4096:8", ":16:8"):
        value = f"CUBLAS_WORKSPACE_CONFIG={workspace}"
        note = "set for deterministic algorithms, which are slower"
        return Finding("warn", value, "CUBLAS_WORKSPACE_CONFIG", note, "unset CUBLAS_WORKSPACE_CONFIG")
    raise _own_switch("torch.backends.cudnn.benchmark", "off")


def _blocking(reader: HostReader) -> Finding:
    found = reader.environ.get("CUDA_LAUNCH_BLOCKING", "")
    value = f"CUDA_LAUNCH_BLOCKING={found}" if found else "CUDA_LAUNCH_BLOCKING is not set"
    return Finding("ok" if found in ("", "0") else "unfit", value, "CUDA_LAUNCH_BLOCKING")


def _bf16(reader: HostReader) -> Finding:
    try:
        found = [capability(gpu) for gpu in reader.gpus]
    except Absent as reason:
        flags = reader.maybe("proc/cpuinfo").split()
        mine = [flag for flag in _BF16_FLAGS if flag in flags]
        raise Absent(f"{reason}; the CPU has {' and '.join(mine) if mine else 'no BF16 units'}") from None
    value = each(f"sm_{major}{minor}" for major, minor in found)
    good = min(found) >= _AMPERE
    note = "the dtype of an autocast region is the program's choice"
    return Finding("ok" if good else "warn", f"{value}, BF16 {'in' if good else 'not in'} hardware", "NVML", note)


def _tf32(reader: HostReader) -> Finding:
    found = [capability(gpu) for gpu in reader.gpus]
    if min(found) < _AMPERE:
        raise Absent("this GPU has no TF32 units")
    override, allow = reader.environ.get("NVIDIA_TF32_OVERRIDE", ""), "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    if override == "0":
        return Finding("warn", "NVIDIA_TF32_OVERRIDE=0", "NVIDIA_TF32_OVERRIDE", "it forbids TF32 everywhere")
    if override == "1" or reader.environ.get(allow) == "1":
        said = "NVIDIA_TF32_OVERRIDE=1" if override == "1" else f"{allow}=1"
        return Finding("ok", said, f"NVIDIA_TF32_OVERRIDE, {allow}")
    raise _own_switch("torch.get_float32_matmul_precision()", "highest")


def _flash(reader: HostReader) -> Finding:
    version = _torch(reader)
    found = [capability(gpu) for gpu in reader.gpus]
    good = min(found) >= _AMPERE and at_least(version, _FLASH_TORCH)
    value = f"torch {version} on {each(f'sm_{major}{minor}' for major, minor in found)}"
    note = "possible here; a profile shows which kernel a model gets" if good else "not possible here"
    return Finding("ok" if good else "warn", value, "metadata of this interpreter, NVML", note)


def _nccl(reader: HostReader) -> Finding:
    found = {n: v for n, v in sorted(reader.environ.items()) if n.startswith(("NCCL_", "SHARP_COLL_"))}
    where = "variables NCCL_* and SHARP_COLL_*"
    if not found:
        return Finding("ok", "none set", where)
    bad = {n: "disables a transport" for n in _SWITCHED_OFF if found.get(n, "0") not in ("", "0")}
    if found.get("NCCL_NTHREADS", "64") not in _NCCL_THREADS:
        bad["NCCL_NTHREADS"] = f"must be one of {', '.join(_NCCL_THREADS)}"
    if found.get("NCCL_DEBUG", "").upper() in _LOUD:
        bad["NCCL_DEBUG"] = "writes a log during measurements"
    if _TYPO in found:
        bad[_TYPO] = "is not read by NCCL; use NCCL_COLLNET_ENABLE"
    value = ", ".join(name if is_secret(name, text) else f"{name}={text}" for name, text in found.items())
    note = "; ".join(f"{name} {why}" for name, why in bad.items())
    level: Level = "warn" if bad else "ok"
    return Finding(level, value, where, note, f"unset {' '.join(bad)}" if bad else "")


PROBES = (
    Probe(
        "cpu-library-threads",
        "framework settings",
        "Threads of CPU libraries",
        "OMP_NUM_THREADS, MKL_NUM_THREADS, ranks of this host, CPUs and quota",
        "ranks times threads at most the allowed CPUs",
        "More threads than CPUs take turns and wait for each other; one thread on many CPUs leaves them idle.",
        "export OMP_NUM_THREADS=N MKL_NUM_THREADS=N, N = CPUs / ranks",
        _threads,
    ),
    Probe(
        "library-autotune",
        "framework settings",
        "Autotuning of libraries",
        "CUBLAS_WORKSPACE_CONFIG; torch.backends.cudnn.benchmark needs torch",
        "cudnn.benchmark on for fixed shapes, deterministic off unless needed",
        "cuDNN can time its convolution algorithms once and keep the fastest.",
        "torch.backends.cudnn.benchmark = True in the program",
        _autotune,
    ),
    Probe(
        "minimise-sync",
        "framework settings",
        "Blocking launches",
        "CUDA_LAUNCH_BLOCKING",
        "not set, or 0",
        "It makes every launch wait for its kernel: nothing overlaps and every time is wrong.",
        "unset CUDA_LAUNCH_BLOCKING",
        _blocking,
    ),
    Probe(
        "prefer-bf16",
        "framework settings",
        "BF16",
        "compute capability; flags of the CPU",
        "8.0 or newer",
        "BF16 has the range of FP32 and needs no loss scaling.",
        "torch.autocast('cuda', dtype=torch.float16) with a GradScaler, or run on a newer GPU",
        _bf16,
    ),
    Probe(
        "tf32",
        "framework settings",
        "TF32",
        "NVIDIA_TF32_OVERRIDE, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE; the precision itself needs torch",
        "high or medium for FP32 matrix products that allow it; NVIDIA_TF32_OVERRIDE not 0",
        "TF32 runs FP32 matrix products on tensor cores.",
        "unset NVIDIA_TF32_OVERRIDE; torch.set_float32_matmul_precision('high') in the program",
        _tf32,
    ),
    Probe(
        "flash-attention",
        "framework settings",
        "Flash attention",
        "version of torch, compute capability",
        "torch 2.0 or newer on 8.0 or newer",
        "It never writes the attention matrix to memory.",
        "pip install --upgrade torch, or run on a newer GPU",
        _flash,
    ),
    Probe(
        "nccl-env",
        "framework settings",
        "NCCL's variables",
        "NCCL_*, SHARP_COLL_*",
        "none that disables a transport, enables logging, or is misspelt",
        "A variable left over from an old experiment decides how every collective runs.",
        "env | grep NCCL_; unset what no benchmark asks for",
        _nccl,
    ),
)
