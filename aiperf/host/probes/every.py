"""Every probe there is, group by group.

What must not live here: a probe's own code.
"""

from __future__ import annotations

from aiperf.host.probes import (
    container,
    cpu,
    framework,
    gpu,
    interconnect,
    memory,
    network,
    power,
    software,
    storage,
)

PROBES = (
    *cpu.PROBES,
    *memory.PROBES,
    *gpu.PROBES,
    *power.PROBES,
    *interconnect.PROBES,
    *storage.PROBES,
    *network.PROBES,
    *container.PROBES,
    *software.PROBES,
    *framework.PROBES,
)
