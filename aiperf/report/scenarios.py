"""One scenario explained: what it asks, how it is measured, checked and run.

What must not live here: loading scenarios, hosts, one stored case (explain.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiperf.analysis.metrics import DEFAULT_METRIC, METRICS
from aiperf.paths import scenario_folder
from aiperf.records import Check, Measure, Needs, ProgramMetric
from aiperf.report.book_words import citation_sentences
from aiperf.report.layout.formats import Printed, document_json
from aiperf.report.layout.page import Block, Sentences
from aiperf.report.measured import measured_plain, measured_sentences
from aiperf.report.numbers import counted
from aiperf.scenario.model import Layer, Scenario, SideSpec
from aiperf.scenario.text import point_text
from aiperf.scenario.wording import shown_path
from aiperf.store.codec import to_plain
from aiperf.store.reference import Measurement
from aiperf.units import format_bytes, format_percent

_LANES = {"cpu": "CPU", "gpu": "GPU", "either": "CPU, or GPU if there is one"}
_COUNTS = {"gpus": "GPU", "cpus": "CPU", "ranks": "rank"}
_BYTES = ("memory", "gpu_memory", "disk")


def scenario_plain(scenario: Scenario, measurements: Sequence[Measurement] = ()) -> dict[str, Any]:
    """Return a scenario as JSON types: the file's content with every default filled in, and its latest measurement."""
    plain: dict[str, Any] = to_plain(scenario)
    del plain["hashes"]
    if not any(entry.case for entry in scenario.expect):
        plain["expect"] = _expectation(scenario)
    measured = measured_plain(measurements, hashes=scenario.hashes)
    return {**plain, "lane": scenario.lane, "cases": case_count(scenario), "measured": measured}


def run_command(scenario: Scenario) -> str:
    """The command that runs it: by its name when it is shipped, else by its file."""
    shipped = Path(scenario.path).resolve().is_relative_to(scenario_folder().resolve())
    return f"aiperf run {scenario.name if shipped else shlex.quote(shown_path(Path(scenario.path)))}"


def case_count(scenario: Scenario) -> int:
    """Count the points of the scenario's axes."""
    count = 1
    for values in scenario.axes.values():
        count *= len(values)
    return count


def scenarios_view(
    measured: Sequence[tuple[Scenario, Sequence[Measurement]]],
    *,
    lacking: Mapping[str, str] = MappingProxyType({}),
    nodes: Mapping[str, int] = MappingProxyType({}),
) -> Printed:
    """What each scenario asks, what was measured last, how its sides differ and how it is judged; ``lacking`` is why
    this host skips the one of a name, ``nodes`` over how many its largest case is spread."""
    return Printed(
        [
            paragraph
            for scenario, found in measured
            for paragraph in _paragraphs(
                scenario, found, lacking=lacking.get(scenario.name, ""), nodes=nodes.get(scenario.name, 1)
            )
        ],
        json=lambda: document_json([scenario_plain(scenario, found) for scenario, found in measured]),
    )


def _paragraphs(
    scenario: Scenario, measurements: Sequence[Measurement], *, lacking: str, nodes: int
) -> Iterator[Sequence[Block]]:
    alone = run_command(scenario)
    command = f"{alone} --slurm -N {nodes}" if nodes > 1 else alone
    launched = [f"Or on each node, by a launcher: {alone} --launcher env"] if nodes > 1 else []
    title = "" if scenario.title == scenario.name else f": {scenario.title}"
    yield [Sentences([f"{scenario.name}{title}"], indent="    ", mark="## ")]
    yield [Sentences([f"Why: {scenario.why}"] if scenario.why else [], indent="    ")]
    for title, lines in {
        "Latest measurement": measured_sentences(measurements, hashes=scenario.hashes, command=command),
        "What runs": _sides(scenario),
        "How it is measured": measure_sentences(
            scenario.measure, gpus=scenario.needs.gpus, programs=scenario.is_command, metrics=scenario.sides[0].metrics
        ),
        "How it is checked": [check_sentence(scenario.check)],
        "What it needs": [
            needs_sentence(scenario.needs, nodes=nodes),
            *([f"Skipped on this host: {lacking}."] if lacking else []),
        ],
        "Beside it": _beside(scenario),
        "To run it": [command, *launched],
    }.items():
        yield [Sentences([title], mark="### "), Sentences(lines, lead="  ", indent="    ", mark="- ")]


def settings_text(values: Mapping[str, Any]) -> str:
    """``direction h2d, pinned false``: parameters as people read them."""
    return ", ".join(f"{key} {value_text(value)}" for key, value in values.items())


def value_text(value: Any) -> str:
    """Write one parameter's value as YAML would: ``true``, ``[1, 2]``, ``nothing`` for None."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(v) for v in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k}: {value_text(v)}' for k, v in value.items())}}}"
    return str(value)


def measure_sentences(
    measure: Measure, *, gpus: int, programs: bool = False, metrics: Sequence[ProgramMetric] = ()
) -> list[str]:
    """Say how a case with so many ``gpus`` is timed; ``programs`` when its sides are whole programs, which give
    ``metrics`` of their own."""
    if programs:
        where = "Each side is a whole program, timed from start to exit"
    elif measure.isolation == "in_process":
        where = "Both sides in one process for each pair, in alternating rounds"
    elif measure.exclusive:
        where = "A fresh process for each side of each pair, one after the other"
    else:
        where = "A fresh process for each side of each pair, both alive at once, measured in alternating rounds"
    clock = {
        "auto": "device clock" if gpus else "wall clock",
        "device": "device clock",
        "wall": "wall clock",
        "gpu": "",
    }
    caches = (
        "CPU and GPU caches as the previous call left them"
        if measure.cache == "hot"
        else "caches flushed before each call"
    )
    how = f"{clock[measure.clock]}; {caches}; {measure.statistic} over the iterations"
    said = [f"{where}; {measure.statistic} over its starts." if programs else f"{where}; {how}."]
    said += [metric_sentence(metric) for metric in metrics]
    if measure.clock == "gpu":
        said.append("Its kernels and copies are timed by the GPU's activity records (CUPTI), in addition to wall time.")
    if measure.metric != DEFAULT_METRIC:
        about = METRICS.get(measure.metric)
        label = "peak memory of the device it runs on" if measure.metric == "memory" else measure.metric
        said.append(f"The primary metric is {about.label if about else label}; time is shown, too.")
    if measure.delta is not None:
        said.append(f"Differences within {format_percent(measure.delta)} count as equivalent.")
    if measure.max_pairs is not None:
        said.append(f"At most {measure.max_pairs} pairs.")
    return said


def metric_sentence(metric: ProgramMetric) -> str:
    """Say where a metric of a program's own comes from."""
    if metric.range:
        parts = {"mean": "time of one", "total": "time of all", "count": "number"}
        return f"{metric.name}: {parts[metric.part]} of the NVTX ranges {metric.range} in a run."
    place = f'the last match of "{metric.pattern}"' if metric.pattern else f"{metric.path} of the last line of JSON"
    unit = f" in {metric.unit}" if metric.unit else ""
    if not (metric.pattern or metric.path):
        return f"{metric.name}{unit} ({metric.better} is better): as reported by the workload, mean over its turns."
    return f"{metric.name}{unit} ({metric.better} is better): {place} in what a run prints."


def check_sentence(check: Check) -> str:
    """Say how the outputs of the sides are compared."""
    reason = f" The sides differ by design: {check.reason}" if check.reason and check.kind != "none" else ""
    if check.kind == "bitwise":
        said = "The outputs of the sides must be equal bit for bit."
    elif check.kind == "named":
        bound = f", at most {check.bound:.6g}" if check.bound is not None else ""
        said = f"The workload's own check {check.name}{bound}."
    elif check.kind == "none":
        said = (
            f"The outputs are not compared: {check.reason}"
            if check.reason
            else "The outputs of timed runs are not compared."
        )
    else:
        rtol = "that of before's dtype" if check.rtol is None else f"{check.rtol:g}"
        atol = "the same times the root mean square" if check.atol is None else f"{check.atol:g}"
        said = f"Floats must agree within a relative tolerance ({rtol}) and an absolute one ({atol}), all else exactly."
    if check.files:
        named = f"What each run writes to {', '.join(check.files)} must be equal bit for bit."
        printed = f"What the programs print is not compared: {check.reason}" if check.reason else ""
        said = f"{named} {said if check.kind == 'bitwise' else printed}".rstrip()
    reference = " Both sides are also compared with the float64 reference of before." if check.reference else ""
    return said + reference + reason


def needs_sentence(needs: Needs, *, nodes: int = 1) -> str:
    """Say what a host must have, or each of several nodes; or that any will do."""
    said = [_need(f, getattr(needs, f.name)) for f in fields(Needs) if getattr(needs, f.name) != _default(f)]
    if nodes > 1:
        return f"{nodes} nodes, each with {', '.join(said)}." if said else f"{nodes} nodes."
    return f"{', '.join(said)}." if said else "Any host will do."


def _need(need: Field[Any], value: Any) -> str:
    name = need.name.replace("_", " ")
    if need.name in _COUNTS:
        return counted(value, _COUNTS[need.name])
    if need.name in _BYTES:
        return f"{name} {format_bytes(value)}"
    if isinstance(value, dict):
        return f"{name} {', '.join(f'{k} {v}'.strip() for k, v in value.items())}"
    return name if value is True else f"{name} {value}"


def _default(need: Field[Any]) -> Any:
    return need.default if need.default_factory is MISSING else need.default_factory()


def _sides(scenario: Scenario) -> list[str]:
    lines = [_side(side, scenario) for side in scenario.sides]
    if shared := _layer(scenario.shared):
        lines.append(f"Both sides: {shared}.")
    if scenario.axes:
        swept = "; ".join(f"{k} in {value_text(v)}" for k, v in scenario.axes.items())
        lines.append(f"Swept: {swept} ({case_count(scenario)} cases).")
    if scenario.gpu is not None or scenario.gpu_axes:
        on_gpu = [_layer(scenario.gpu) if scenario.gpu else ""]
        on_gpu += [f"{k} in {value_text(v)}" for k, v in scenario.gpu_axes.items()]
        lines.append(f"On a GPU instead: {'; '.join(p for p in on_gpu if p)}.")
    return lines


def _side(side: SideSpec, scenario: Scenario) -> str:
    runs = shlex.join(side.command) if side.command else side.workload or scenario.workload
    own = _layer(side.own)
    prepared = f", prepared by {shlex.join(side.prepare)}" if side.prepare else ""
    return f"{side.name}: {runs}{' with ' + own if own else ''}{prepared}"


def _layer(layer: Layer) -> str:
    said = [settings_text(layer.params)] if layer.params else []
    said += [f"{name}={value} in its environment" for name, value in layer.env.items()]
    said += [f"{layer.ranks} ranks"] if layer.ranks is not None else []
    said += [f"python {layer.python}"] if layer.python else []
    said += [f"git ref {layer.ref}"] if layer.ref else []
    return ", ".join(said)


def _expectation(scenario: Scenario) -> str:
    """``improved with size=4KiB, else equivalent``."""
    said = [f"{e.verdict} with {point_text(e.case)}" if e.case else f"else {e.verdict}" for e in scenario.expect]
    return ", ".join(said) if len(said) > 1 else "".join(said).removeprefix("else ")


def _beside(scenario: Scenario) -> list[str]:
    said = [f"Runs on: {_LANES[scenario.lane]}.", f"File: {scenario.path}"]
    if scenario.expect:
        said.append(f"Expected: {_expectation(scenario)}.")
    if scenario.moves:
        said.append(f"Counters that should move: {', '.join(f'{k} {v}' for k, v in scenario.moves.items())}.")
    if scenario.tags:
        said.append(f"Tags: {', '.join(scenario.tags)}.")
    if scenario.book:
        said += [f"Book: {sentence}" for sentence in citation_sentences(scenario.citations)]
    return said
