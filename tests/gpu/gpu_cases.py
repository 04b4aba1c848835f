"""The cases of the one-GPU scenarios, set up and audited as a worker does, but without its clocks and processes."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from aiperf.workloads.contract import Context, Workload
from tests.library_check import inside
from tests.library_check.inside import OneCase as OneCase
from tests.library_check.inside import Place

ROOT = Path(__file__).parents[2]


def cases_of(path: Path) -> Iterator[OneCase]:
    """Every case of a scenario file, as it is planned on a GPU."""
    return inside.cases_of(path, on_gpu=True)


def one_gpu_cases(*names: str) -> Iterator[OneCase]:
    """Every case of these scenarios of scenarios/gpu, and of the controls."""
    paths = [ROOT / f"scenarios/gpu/{name}.yaml" for name in names] or ROOT.glob("scenarios/controls-gpu/*.yaml")
    for path in sorted(paths):
        yield from cases_of(path)


def gpu_context(folder: Path) -> Context:
    """The first GPU; these tests are collected only when asked for."""
    assert torch.cuda.is_available(), "tests/gpu needs a GPU"
    return Context(device="cuda:0", seed=5, scratch=folder, shared_scratch=folder, pad=768, gpus=1)


def check_case(case: OneCase, context: Context, *, broken: bool = False) -> tuple[str, dict[str, float]]:
    """All sides agree with the first, leave their inputs alone, and can be told from a side that does nothing; steps in
    a row, large inputs and inputs that are varied accuse none of them.

    With ``broken`` every other side is then broken in every way that its check has to notice. Returns what was compared
    beside the usual answers, and the seconds of a step of each, the median of a few: for a first look only. Raises
    AssertionError; may raise SkipSide.
    """
    seconds: dict[str, float] = {}

    def look(name: str, side: Workload) -> None:
        seconds[name] = step_seconds(side)

    seen = inside.check_case(case, context, Place(torch.cuda.synchronize, _release), look=look, broken=broken)
    assert not seen.missed, "; ".join(seen.missed)
    return ", ".join(seen.unusual), seconds


def step_seconds(workload: Workload, times: int = 5) -> float:
    """Median wall seconds of a step with the device synchronised around it."""
    taken = []
    for _ in range(times):
        if workload.prepare is not None:
            workload.prepare()
        torch.cuda.synchronize()
        began = time.perf_counter()
        workload.step()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _release() -> None:
    gc.collect()
    torch.cuda.empty_cache()
