"""Lengthens a step by a known share, so that calibration can show what the harness finds.

What must not live here: any use outside calibration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

from aiperf.workloads.contract import Workload

_PROBES = 40
_CYCLES = 20_000_000
_TRIMS = 3


def slowed(workload: Workload, share: float, clock: str) -> Workload:
    """The workload with every step lengthened by ``share`` of its own time."""
    step = workload.step
    return replace(workload, step=_on_device(step, share) if clock == "device" else _on_host(step, share))


def _on_host(step: Callable[[], object], share: float) -> Callable[[], object]:
    def longer() -> None:
        began = perf_counter()
        step()
        until = began + (perf_counter() - began) * (1 + share)
        while perf_counter() < until:
            pass

    return longer


def _on_device(step: Callable[[], object], share: float) -> Callable[[], object]:
    """A sleeping kernel behind the step, set so that both together take ``1 + share`` times the step alone."""
    import torch

    cycles_per_second = _CYCLES / _median_seconds(lambda: torch.cuda._sleep(_CYCLES), count=3)
    alone = _median_seconds(step, count=_PROBES)
    cycles = alone * share * cycles_per_second
    for _ in range(_TRIMS):
        together = _median_seconds(_followed(step, cycles), count=_PROBES)
        cycles += (alone * (1 + share) - together) * cycles_per_second
    return _followed(step, cycles)


def _followed(step: Callable[[], object], cycles: float) -> Callable[[], object]:
    import torch

    whole = max(1, int(cycles))

    def longer() -> None:
        step()
        torch.cuda._sleep(whole)

    return longer


def _median_seconds(work: Callable[[], object], *, count: int) -> float:
    import torch

    times = []
    for _ in range(count + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(100_000)
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return sorted(times[1:])[count // 2]
