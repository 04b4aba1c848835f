"""What this host is, as plain frozen data. Reading it lives in the probes beside this file.

What must not live here: judging, measuring, and anything that changes the host.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML shows it; None where NVML does not answer."""

    index: int
    name: str
    uuid: str
    compute_capability: str
    """``9.0``."""
    memory_total: int
    memory_free: int
    power_limit_w: float | None = None
    max_sm_clock_mhz: int | None = None
    ecc: bool | None = None
    mig: bool | None = None
    vbios: str | None = None


@dataclass(frozen=True)
class HostFacts:
    """One reading of the host, taken at the start of a run."""

    hostname: str
    system: str
    """Kernel and distribution."""
    cpu_model: str
    cpus: tuple[int, ...]
    """CPUs that this process may use."""
    memory_total: int
    memory_available: int
    gpus: tuple[Gpu, ...] = ()
    gpu_problem: str = ""
    """Why there are no GPUs to see: no NVML library, no driver, ...; empty when there are."""
    driver: str = ""
    cuda_driver: str = ""
    """CUDA version of the driver, ``13.0``."""
    peer_access: bool | None = None
    """Whether the first two GPUs may read each other; None when there are fewer than two or it is unknown."""
    gds_active: bool = False
    gds_problem: str = ""
    root: bool = False
    compiler: str = ""
    """Path of a C++ compiler, or empty."""
    python: str = ""
    libraries: dict[str, str] = field(default_factory=dict)
    """Distribution or import name (lower case) -> version, for what aiperf and its scenarios use. Read from the
    installed metadata; nothing is imported."""
    container: str = ""
    virtual: str = ""
