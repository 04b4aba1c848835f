"""memory.alloc and memory.placement: how memory is got, and where a buffer lies.

What must not live here: their code, which has a module each.
"""

from aiperf.workloads._memory_alloc import alloc
from aiperf.workloads._memory_placement import placement

__all__ = ["alloc", "placement"]
