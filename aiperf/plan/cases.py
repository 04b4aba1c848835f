"""Scenario x axes -> cases: values merged, typed, named.

What must not live here: whether the host can run them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiperf.errors import Fault, UserError, usage
from aiperf.protocol.arguments import shared_out
from aiperf.records import Case, Clock, Measure, Needs, Side
from aiperf.scenario.binding import bind
from aiperf.scenario.expectations import expected_verdict
from aiperf.scenario.load import interpreter
from aiperf.scenario.model import Layer, Scenario, SideSpec
from aiperf.scenario.text import axis_text, chosen_texts, point_text
from aiperf.scenario.wording import allowed, nearest


def expand(scenario: Scenario, *, on_gpu: bool, only: Mapping[str, str] | None = None) -> list[Case]:
    """The cases of a scenario, one for each point of its axes, in the order of the file.

    ``on_gpu`` applies the gpu block. ``only`` keeps the cases whose axes have these values (as text; several of an axis
    between commas). Raises UserError for an axis or a value in ``only`` that the scenario does not have.
    """
    axes = {**scenario.axes, **scenario.gpu_axes} if on_gpu else dict(scenario.axes)
    wanted = {k: chosen_texts(v, [axis_text(own) for own in axes.get(k, ())]) for k, v in (only or {}).items()}
    _check_only(scenario, axes, wanted)
    points = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    return [
        _case(scenario, point, on_gpu=on_gpu)
        for point in points
        if all(axis_text(point[k]) in texts for k, texts in wanted.items())
    ]


def case_id(name: str, point: Mapping[str, Any]) -> str:
    """``name`` or ``name[size=1MiB,direction=h2d]``."""
    inner = point_text(point)
    return f"{name}[{inner}]" if inner else name


def _check_only(scenario: Scenario, axes: Mapping[str, tuple[Any, ...]], wanted: Mapping[str, Sequence[str]]) -> None:
    faults = []
    for key, texts in wanted.items():
        if key not in axes:
            hint = nearest(key, axes) or (
                f"Its axes: {allowed(axes)}." if axes else "It has no axes: leave --only out."
            )
            faults.append(Fault("", f"{scenario.name} has no axis {key}.", hint))
            continue
        values = [axis_text(v) for v in axes[key]]
        faults += [
            Fault("", f"{scenario.name} has no case with {key}={text}; allowed: {allowed(values)}.")
            for text in texts
            if text not in values
        ]
    if faults:
        raise UserError(faults)


def _case(scenario: Scenario, point: dict[str, Any], *, on_gpu: bool) -> Case:
    sides = tuple(_side(scenario, spec, point, on_gpu=on_gpu) for spec in scenario.sides)
    return Case(
        scenario=scenario.name,
        id=case_id(scenario.name, point),
        title=scenario.title,
        why=scenario.why,
        sides=sides,
        axes=point,
        measure=_measure(scenario, on_gpu=on_gpu),
        check=scenario.check,
        needs=_needs(scenario, sides, on_gpu=on_gpu),
        moves=dict(scenario.moves),
        expect=expected_verdict(scenario.expect, point),
        tags=scenario.tags,
        book=tuple(cited.row for cited in scenario.citations if point_text(point) in cited.cases),
        path=str(scenario.path),
        scenario_hash=scenario.hash,
    )


def _measure(scenario: Scenario, *, on_gpu: bool) -> Measure:
    device = on_gpu and not scenario.is_command and scenario.measure.clock != "wall"
    metric = scenario.measure.metric
    if metric == "memory":
        metric = "gpu_memory" if on_gpu else "peak_memory"
    clock: Clock = "gpu" if scenario.measure.clock == "gpu" else "device" if device else "wall"
    return replace(scenario.measure, clock=clock, metric=metric)


def _needs(scenario: Scenario, sides: tuple[Side, ...], *, on_gpu: bool) -> Needs:
    """On GPUs, each rank of a gang has a GPU of its own, on its node."""
    gpus = max(1, scenario.needs.gpus, *(s.ranks // s.nodes for s in sides)) if on_gpu else 0
    return replace(scenario.needs, gpus=gpus)


def _side(scenario: Scenario, spec: SideSpec, point: Mapping[str, Any], *, on_gpu: bool) -> Side:
    swept = _swept(scenario, point)
    layers = [scenario.shared, *([scenario.gpu] if on_gpu and scenario.gpu else []), swept, spec.own]
    if any(signature and "nodes" in signature.parameters for signature in (spec.signature, spec.setup_signature)):
        layers = [_own_nodes(layer) for layer in layers]
    values = _beside(_merged(layer.params for layer in layers), scenario.path.parent)
    own, made = _shared_out(spec, values)
    nodes = next((layer.nodes for layer in reversed(layers) if layer.nodes is not None), 1)
    ranks = next((layer.ranks for layer in reversed(layers) if layer.ranks is not None), nodes)
    if ranks % nodes:
        what = f"{spec.name} cannot spread ranks: {ranks} evenly over nodes: {nodes}."
        raise usage(what, "Make ranks a multiple of nodes.", str(scenario.path))
    return Side(
        name=spec.name,
        workload=spec.workload,
        params=bind(spec.signature, own) if spec.signature else {},
        plain=spec.signature.plain if spec.signature else False,
        setup=spec.setup,
        setup_params=bind(spec.setup_signature, made) if spec.setup_signature else {},
        env=dict(_merged(layer.env for layer in layers)),
        ranks=ranks,
        nodes=nodes,
        python=next((layer.python for layer in reversed(layers) if layer.python), ""),
        ref=next((layer.ref for layer in reversed(layers) if layer.ref), ""),
        # What a scenario names by a relative path lies beside it, wherever the run was started.
        folder=str(scenario.path.parent.resolve()) if spec.command else "",
        command=spec.command,
        prepare=spec.prepare,
        metrics=spec.metrics,
    )


def _own_nodes(layer: Layer) -> Layer:
    """``nodes`` of a function that takes it, like the kernels of a graph, is not where its ranks run."""
    if layer.nodes is None:
        return layer
    return replace(layer, params={**layer.params, "nodes": layer.nodes}, nodes=None)


def _shared_out(spec: SideSpec, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a side's function, and those of its set-up."""
    if spec.setup_signature is None or spec.signature is None:
        return dict(values), {}
    return shared_out(values, function=spec.signature.parameters, setup=spec.setup_signature.parameters)


def _beside(params: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Files that a scenario names by ``./`` or ``../`` lie beside it, wherever the run was started."""
    relative = {k: v for k, v in params.items() if isinstance(v, str) and v.startswith(("./", "../"))}
    return {**params, **{name: str((folder / text).resolve()) for name, text in relative.items()}}


def _swept(scenario: Scenario, point: Mapping[str, Any]) -> Layer:
    """One point of the axes as a layer; ``defines.UNROLL`` becomes an entry of ``defines``."""
    params: dict[str, Any] = {}
    env: dict[str, str] = {}
    for key, value in point.items():
        name, _, entry = key.partition(".")
        if name == "env":
            env[entry] = str(value)
        elif entry:
            params[name] = {**params.get(name, {}), entry: value}
        else:
            params[name] = value
    python, venv = params.pop("python", ""), params.pop("venv", "")
    return Layer(
        params={k: v for k, v in params.items() if k not in ("ranks", "nodes", "ref")},
        env=env,
        ranks=params.get("ranks"),
        nodes=params.get("nodes"),
        python=interpreter(python, venv, scenario.path.parent),
        ref=params.get("ref", ""),
    )


def _merged(blocks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Later blocks win, key by key; mappings are merged entry by entry."""
    result: dict[str, Any] = {}
    for block in blocks:
        for key, value in block.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = {**result[key], **value} if both else value
    return result
