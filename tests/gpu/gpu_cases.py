"""The cases of the one-GPU scenarios, set up and audited as a worker does, but without its clocks and processes."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aiperf.plan.cases import expand
from aiperf.scenario.load import load_scenario
from aiperf.worker import arrays
from aiperf.worker.audit import Snapshot
from aiperf.worker.compare import Rule, compare
from aiperf.worker.load import set_up
from aiperf.workloads.contract import Context, Workload

ROOT = Path(__file__).parents[2]
SEEDS = (11, 12)


@dataclass(frozen=True)
class OneCase:
    """A scenario at one point of its axes, as a test sets it up."""

    name: str
    sides: tuple[tuple[str, dict[str, Any]], ...]
    rule: Rule


def cases_of(path: Path) -> Iterator[OneCase]:
    """Every case of a scenario file, as it is planned on a GPU."""
    for case in expand(load_scenario(path), on_gpu=True):
        check = case.check
        rule = Rule(check.kind, check.rtol, check.atol, check.name, check.bound)
        sides = tuple((side.workload, dict(side.params)) for side in case.sides)
        yield OneCase(case.id, sides, rule)


def one_gpu_cases(*names: str) -> Iterator[OneCase]:
    """Every case of these scenarios of scenarios/gpu, and of the controls."""
    paths = [ROOT / f"scenarios/gpu/{name}.yaml" for name in names] or ROOT.glob("scenarios/controls-gpu/*.yaml")
    for path in sorted(paths):
        yield from cases_of(path)


def gpu_context(folder: Path) -> Context:
    """The first GPU; these tests are collected only when asked for."""
    assert torch.cuda.is_available(), "tests/gpu needs a GPU"
    return Context(device="cuda:0", seed=5, scratch=folder, shared_scratch=folder, pad=768, gpus=1)


def audited(workload: Workload) -> list[Snapshot]:
    """Outputs of a step after inputs were redrawn and outputs poisoned, once for each seed; inputs must not change."""
    if workload.prepare is not None:
        workload.prepare()
    workload.step()
    return [_audit(workload, seed) for seed in SEEDS]


def _audit(workload: Workload, seed: int) -> Snapshot:
    inputs = workload.inputs or (lambda: {})
    if workload.redraw is not None:
        workload.redraw(seed)
    torch.cuda.synchronize()
    unchanged = {name: arrays.digest(array) for name, array in inputs().items()}
    for array in workload.outputs().values():
        arrays.poison(array)
    if workload.prepare is not None:
        workload.prepare()
    torch.cuda.synchronize()
    workload.step()
    torch.cuda.synchronize()
    assert {name: arrays.digest(array) for name, array in inputs().items()} == unchanged
    snapshot = Snapshot()
    for name, array in workload.outputs().items():
        snapshot.digests[name] = arrays.digest(array)
        found, snapshot.dtypes[name] = arrays.to_numpy(array)
        snapshot.arrays[name] = found.copy()  # of host memory it is a view, and the next audit poisons that
    return snapshot


def check_case(case: OneCase, context: Context) -> dict[str, float]:
    """All sides agree with the first, leave their inputs alone, and can be told from a side that does nothing.

    Returns the seconds of a step of each, the median of a few: for a first look only. May raise SkipSide.
    """
    (first_name, first_params), *others = case.sides
    first = set_up(first_name, context, first_params)
    theirs = audited(first)
    seconds = {"before": step_seconds(first)}
    idle = audited(replace(first, step=lambda: None))
    assert not compare(idle, theirs, case.rule, first.checks, ("before", "idle")).passed, "the check passes idleness"
    _close(first)
    for number, (name, params) in enumerate(others):
        other = set_up(name, context, params)
        ours = audited(other)
        found = compare(ours, theirs, case.rule, other.checks, ("before", f"after {number}"))
        assert found.passed, found.detail
        assert other.work.items == first.work.items, f"items {other.work.items} and {first.work.items}"
        seconds[f"after {number}"] = step_seconds(other)
        _close(other)
    return seconds


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


def _close(workload: Workload) -> None:
    if workload.close is not None:
        workload.close()
    gc.collect()
    torch.cuda.empty_cache()
