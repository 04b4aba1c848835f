"""Rules of a scenario file about metrics: which one it is about, and those that its programs give.

What must not live here: types of single keys (the schema's), what a pattern means (program_metrics.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from aiperf.errors import Fault
from aiperf.records import LatencyMetric, PrimaryMetric, ProgramMetric
from aiperf.scenario.document import Document, KeyPath
from aiperf.scenario.outline import Outline, RawSide
from aiperf.scenario.program_metrics import COMMAND_METRICS, GPU_METRICS, metric_from_keys, range_metrics
from aiperf.scenario.wording import allowed, dotted, nearest, shown
from aiperf.units import InvalidValue

_NOT_OF_COMMANDS = ("first_iteration", "gpu_memory", *get_args(LatencyMetric))
_NAMED = "Write one of them, or name a number that the programs print, under metrics:."


def metric_faults(document: Document, parts: Outline) -> Iterator[Fault]:
    """Faults of ``metrics``, ``range``, ``measure.metric`` and ``measure.clock: gpu``, in no order."""
    yield from _only_of_programs(document, parts)
    by_side = [_declared(document, side) for side in parts.sides]
    yield from (fault for _, faults in by_side for fault in faults)
    at_top = list(_declared_at_top(document))
    yield from at_top
    # A metric that is declared wrongly is lacking nowhere: its own fault is said alone.
    if not at_top and not any(faults for _, faults in by_side):
        yield from _agreement(document, parts, [metrics for metrics, _ in by_side])
    measure = document.data.get("measure")
    if isinstance(measure, dict):
        names = dict.fromkeys([*parts.given, *_named(document, parts), *(by_side[0][0] if by_side else ())])
        yield from _clock(document, parts, measure)
        yield from _primary(document, parts, measure, list(names))


def _named(document: Document, parts: Outline) -> Iterator[str]:
    """Names of all metrics that are declared, rightly or not."""
    for block in (document.data.get("metrics"), *(side.data.get("metrics") for side in parts.sides)):
        yield from (str(name) for name in block) if isinstance(block, dict) else ()


def _only_of_programs(document: Document, parts: Outline) -> Iterator[Fault]:
    if parts.is_command:
        return
    what, hint = "only programs (command:) give metrics of their own.", "Remove it, or compare whole programs."
    for key in ("metrics", "range"):
        if key in document.data:
            yield document.fault((key,), f"{key}: {what}", hint, key=True)
    for side in parts.sides:
        if "metrics" in side.data:
            at = (*side.path, "metrics")
            yield document.fault(at, f"{dotted(at)}: {what}", hint, key=True)


def _declared_at_top(document: Document) -> Iterator[Fault]:
    yield from (fault for fault in _read(document, (), document.data)[1])
    names = document.data.get("range")
    names = [names] if isinstance(names, str) else names
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        try:
            range_metrics(names)
        except InvalidValue as error:
            yield document.fault(("range",), f"range: {error.what}", error.hint)


def _declared(document: Document, side: RawSide) -> tuple[dict[str, ProgramMetric], list[Fault]]:
    top, _ = _read(document, (), document.data)
    own, faults = _read(document, side.path, side.data)
    names = document.data.get("range")
    ranges: tuple[ProgramMetric, ...]
    try:
        ranges = range_metrics([names] if isinstance(names, str) else [str(n) for n in names or ()])
    except (InvalidValue, TypeError):
        ranges = ()  # said once, of the top of the file
    return {**top, **own, **{metric.name: metric for metric in ranges}}, faults


def _read(document: Document, path: KeyPath, data: dict[str, Any]) -> tuple[dict[str, ProgramMetric], list[Fault]]:
    """The metrics of one block, and what is wrong with the others."""
    found: dict[str, ProgramMetric] = {}
    faults = []
    block = data.get("metrics")
    for name, value in block.items() if isinstance(block, dict) else ():
        at = (*path, "metrics", name)
        try:
            found[name] = metric_from_keys(str(name), value)
        except InvalidValue as error:
            faults.append(document.fault(at, f"{dotted(at)}: {error.what}", error.hint))
    return found, faults


def _agreement(document: Document, parts: Outline, metrics: list[dict[str, ProgramMetric]]) -> Iterator[Fault]:
    """Every side gives the same metrics, each in one unit and one direction."""
    for side, own in zip(parts.sides[1:], metrics[1:], strict=True):
        for name in metrics[0].keys() ^ own.keys():
            lacking = side if name in metrics[0] else parts.sides[0]
            what = f"{dotted(lacking.path)} has no metric {name}, but another side has one."
            hint = "Declare it for every side, or in metrics at the top of the file."
            yield document.fault(lacking.path, what, hint, key=True)
        for name in metrics[0].keys() & own.keys():
            first, other = metrics[0][name], own[name]
            if (first.unit, first.better) != (other.unit, other.better):
                at = (*side.path, "metrics", name)
                what = f"{dotted(at)}: {name} is in {_meaning(other)}, but in {_meaning(first)} on the first side."
                yield document.fault(at, what, "Write the same unit: and better: on both.")


def _meaning(metric: ProgramMetric) -> str:
    return f"{metric.unit or 'no unit'}, {metric.better} is better"


def _clock(document: Document, parts: Outline, measure: dict[str, Any]) -> Iterator[Fault]:
    at = ("measure", "clock")
    if measure.get("clock") != "gpu":
        return
    if not parts.is_command:
        yield document.fault(at, "measure.clock: gpu is for programs (command:).", "Write device for workloads.")
    elif not parts.gpus_needed:
        what = "measure.clock: gpu needs a GPU, but the scenario does not ask for one."
        yield document.fault(at, what, "Write needs: {gpus: 1}.")


def _primary(document: Document, parts: Outline, measure: dict[str, Any], own: list[str]) -> Iterator[Fault]:
    """What a case is about must be something that its sides report."""
    metric, at = measure.get("metric"), ("measure", "metric")
    on_gpu = GPU_METRICS if measure.get("clock") == "gpu" else ()
    known = [*get_args(PrimaryMetric), *on_gpu, *own]
    if not isinstance(metric, str) or not metric:
        return
    if metric in GPU_METRICS and not on_gpu:
        what = f"measure.metric: {metric} is measured by the GPU's clock only."
        yield document.fault(at, what, "Also write clock: gpu.")
    elif metric not in known:
        what = f"measure.metric: {shown(metric)} is not allowed; allowed: {allowed(known)}."
        yield document.fault(at, what, nearest(metric, known) or _NAMED)
    elif parts.is_command and metric in _NOT_OF_COMMANDS:
        what = f"measure.metric: a command reports no {metric}."
        yield document.fault(at, what, f"Choose {allowed(COMMAND_METRICS)}, or one of metrics.")
    elif metric in ("user", "system") and not parts.is_command:
        what = f"measure.metric: only commands report {metric} time."
        yield document.fault(at, what, "Choose time, memory, first_iteration or a latency.")
    elif metric == "gpu_memory" and not parts.gpus_needed:
        what = "measure.metric: gpu_memory needs a GPU, but the scenario does not ask for one."
        yield document.fault(at, what, "Write needs: {gpus: 1}.")
    elif metric in ("memory", "peak_memory", "gpu_memory") and measure.get("isolation") == "in_process":
        what = f"measure.metric: {metric} of sides that share one process belongs to neither."
        yield document.fault(at, what, "Leave isolation out: each side then has its own process.")
