"""memory.alloc, memory.placement, memory.requests: how memory is got, where a buffer lies, what follows when it is out.

What must not live here: their code, which has a module each.
"""

from aiperf.workloads.memory.allocation import alloc
from aiperf.workloads.memory.placements import placement
from aiperf.workloads.memory.requests import requests

__all__ = ["alloc", "placement", "requests"]
