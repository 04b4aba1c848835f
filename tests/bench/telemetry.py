"""What the telemetry thread costs: the share of one core that it uses while it watches this host.

What must not live here: what is read, and how often.
"""

from __future__ import annotations

import time

from aiperf.host.read import read_host
from aiperf.host.telemetry import Sampler
from tests.bench.figures import Figure, percent, under

SECONDS = 20.0
LARGEST = 0.01


def measure(seconds: float = SECONDS) -> list[Figure]:
    """Watch this host's GPUs and CPUs for so long, while nothing else runs in this process."""
    host = read_host()
    sampler = Sampler(gpus=host.gpus, cpus=host.cpus)
    sampler.start()
    time.sleep(seconds)
    seen = sampler.stop()
    readings = sum(seen.readings.values())
    what = f"telemetry, {len(host.gpus)} GPUs and {len(host.cpus)} CPUs, {readings} readings in {seconds:.0f} s"
    return [under(f"{what}: share of a core", seen.cost, LARGEST, percent)]
