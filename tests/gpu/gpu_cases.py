"""The cases of the one-GPU scenarios, set up and audited as a worker does, but without its clocks and processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aiperf.scenario.binding import bind
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


def one_gpu_cases() -> Iterator[OneCase]:
    """Every case of scenarios/gpu and scenarios/controls-gpu."""
    for path in sorted([*ROOT.glob("scenarios/gpu/*.yaml"), *ROOT.glob("scenarios/controls-gpu/*.yaml")]):
        scenario = load_scenario(path)
        check = scenario.check
        rule = Rule(check.kind, check.rtol, check.atol, check.name, check.bound)
        for values in itertools.product(*scenario.axes.values()):
            point = dict(zip(scenario.axes, values, strict=True))
            sides = []
            for side in scenario.sides:
                assert side.signature is not None
                given = {**scenario.shared.params, **point, **side.own.params}
                sides.append((side.workload, bind(side.signature, given)))
            yield OneCase("-".join([path.stem, *map(str, values)]), tuple(sides), rule)


def gpu_context(folder: Path) -> Context:
    """The first GPU; these tests are collected only when asked for."""
    assert torch.cuda.is_available(), "tests/gpu needs a GPU"
    return Context(device="cuda:0", seed=5, scratch=folder, shared_scratch=folder, pad=768, gpus=1)


def audited(workload: Workload) -> list[Snapshot]:
    """Outputs of a step after inputs were redrawn and outputs poisoned, once for each seed; inputs must not change."""
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
        snapshot.arrays[name], snapshot.dtypes[name] = arrays.to_numpy(array)
    return snapshot


def check_case(case: OneCase, context: Context) -> None:
    """Both sides agree, leave their inputs alone, and can be told from a side that does nothing. May raise SkipSide."""
    before, after = (set_up(name, context, params) for name, params in case.sides)
    theirs, ours = audited(before), audited(after)
    names = ("before", "after")
    found = compare(ours, theirs, case.rule, after.checks, names)
    assert found.passed, found.detail
    idle = audited(replace(after, step=lambda: None))
    assert not compare(idle, theirs, case.rule, after.checks, names).passed
    for side in (before, after):
        if side.close is not None:
            side.close()
