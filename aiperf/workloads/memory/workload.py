"""memory.alloc and memory.placement: how memory is got, and where a buffer lies.

What must not live here: their code, which has a module each.
"""

from aiperf.workloads.memory.allocation import alloc
from aiperf.workloads.memory.placements import placement

__all__ = ["alloc", "placement"]
