"""From a path to a Scenario, or to all the faults of the file at once.

What must not live here: the rules themselves, finding files, hosts.
"""

from __future__ import annotations

import hashlib
import json
import os.path
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aiperf.errors import Fault, UserError
from aiperf.records import Check, Measure, Needs
from aiperf.scenario.check_rules import check_kind
from aiperf.scenario.citations import citations
from aiperf.scenario.document import Document, KeyPath
from aiperf.scenario.expectations import expectations
from aiperf.scenario.model import Layer, Scenario, SideSpec
from aiperf.scenario.outline import Outline, outline
from aiperf.scenario.parameters import Resolved, parameter_faults, resolve_all
from aiperf.scenario.program_metrics import DEFAULT_GPU_METRIC, side_metrics
from aiperf.scenario.rules import case_faults, rule_faults
from aiperf.scenario.schema import RESERVED, VERDICTS, ScenarioFile, SharedFile, SideFile
from aiperf.scenario.short_forms import read_scenario
from aiperf.scenario.translate import schema_faults
from aiperf.scenario.wording import arranged


def load_scenario(path: Path) -> Scenario:
    """Read, check and type one scenario file.

    Raises UserError with every fault of the file, by line: YAML, keys, types, units, rules, workload parameters.
    """
    document = read_scenario(path)
    parts = outline(document)
    faults: list[Fault] = []
    file = None
    try:
        file = ScenarioFile.model_validate(document.data)
    except ValidationError as error:
        faults += schema_faults(document, error)
    gpu, gpu_faults = _gpu_block(document, parts)
    resolved, workload_faults = resolve_all(document, parts)
    parts = replace(parts, given=tuple(m.name for each in list(resolved.values())[:1] for m in each.metrics))
    ruled = rule_faults(document, parts)
    swept = parameter_faults(document, parts, resolved)
    if not _axes_are_wrong(document, [*faults, *gpu_faults, *ruled, *swept]):
        ruled += case_faults(document, parts)
    # Where a rule refuses a value, its type does not matter.
    faults = [fault for fault in faults if fault.where not in {each.where for each in ruled}]
    faults += [*gpu_faults, *ruled, *workload_faults, *swept]
    # A value that cannot even be read has one fault: nothing else about it can be known.
    unreadable = {fault.where for fault in document.faults}
    faults = [*document.faults, *(fault for fault in faults if fault.where not in unreadable)]
    if faults or file is None:
        raise UserError(arranged(faults))
    return _scenario(document, file, gpu, resolved)


def _axes_are_wrong(document: Document, faults: Iterable[Fault]) -> bool:
    """Whether a fault lies in an axis, by whose values cases are named."""
    located = (*document.keys.items(), *document.values.items())
    places = {place for path, place in located if path[:1] in (("axes",), ("gpu",))}
    return any((fault.line, fault.column) in places for fault in (*document.faults, *faults))


def load_scenarios(paths: Iterable[Path]) -> list[Scenario]:
    """Every scenario of ``paths``. Raises UserError with the faults of all files."""
    loaded: list[Scenario] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            loaded.append(load_scenario(path))
        except UserError as error:
            faults += error.faults
    if faults:
        raise UserError(faults)
    return loaded


def _gpu_block(document: Document, parts: Outline) -> tuple[SharedFile, list[Fault]]:
    block = {k: v for k, v in parts.gpu.items() if k not in parts.axes}
    try:
        return SharedFile.model_validate(block), []
    except ValidationError as error:
        return SharedFile(), schema_faults(document, error, below=("gpu",))


def _scenario(
    document: Document, file: ScenarioFile, gpu: SharedFile, resolved: Mapping[KeyPath, Resolved]
) -> Scenario:
    sides: dict[KeyPath, SideFile] = {("before",): file.before}
    if "after" in file.model_fields_set:
        sides[("after",)] = file.after
    sides |= {("ladder", name): side for name, side in file.ladder.items()}
    axes = {k: _swept(document, ("axes", k), v) for k, v in file.axes.items()}
    has_gpu, hashes = "gpu" in file.model_fields_set, _hashes(document.data)
    return Scenario(
        name=document.path.stem,
        path=document.path.resolve(),
        hash=hashes[0],
        hashes=hashes,
        title=file.title or document.path.stem,
        why=file.why,
        sides=tuple(_side(document, path, side, resolved.get(path)) for path, side in sides.items()),
        book=tuple(cited.row for cited in file.book),
        citations=citations(document.data),
        tags=tuple(file.tags),
        workload=file.workload,
        shared=_layer(document, ("params",), file.params),
        axes=axes,
        gpu=_layer(document, ("gpu",), gpu) if has_gpu else None,
        gpu_axes={k: _swept(document, ("gpu", k), v) for k, v in file.gpu.items() if k in axes},
        needs=Needs(**(file.needs.model_dump() | {"programs": tuple(file.needs.programs)})),
        measure=_measure(file),
        check=_check(file),
        moves=dict(file.moves),
        expect=expectations(document.data),
    )


def _measure(file: ScenarioFile) -> Measure:
    stated: dict[str, Any] = {k: getattr(file.measure, k) for k in file.measure.model_fields_set}
    # Who asks for the GPU's time of programs means that one, unless they say otherwise.
    about = {"metric": DEFAULT_GPU_METRIC} if file.measure.clock == "gpu" else {}
    return Measure(**{**about, **stated})


def _swept(document: Document, path: KeyPath, values: list[Any]) -> tuple[Any, ...]:
    if not str(path[-1]).startswith("env."):
        return tuple(values)
    return tuple(document.texts[(*path, i)] for i in range(len(values)))


def _side(document: Document, path: KeyPath, side: SideFile, resolved: Resolved | None) -> SideSpec:
    return SideSpec(
        name=str(path[-1]),
        own=_layer(document, path, side),
        workload=resolved.name if resolved else "",
        signature=resolved.signature if resolved else None,
        setup=resolved.setup if resolved else "",
        setup_signature=resolved.setup_signature if resolved else None,
        command=side.command,
        prepare=("sh", "-c", side.prepare) if side.prepare else (),
        metrics=resolved.metrics if resolved else side_metrics(document.data, side.metrics),
    )


def _layer(document: Document, path: KeyPath, block: SharedFile) -> Layer:
    return Layer(
        params={k: v for k, v in (block.model_extra or {}).items() if k not in RESERVED},
        # Texts as written: a variable 010 must not arrive as 10.
        env={k: document.texts.get((*path, "env", k), v) for k, v in block.env.items()},
        ranks=block.ranks if "ranks" in block.model_fields_set else None,
        nodes=block.nodes if "nodes" in block.model_fields_set else None,
        python=interpreter(block.python, block.venv, document.path.parent),
        ref=block.ref,
    )


def interpreter(python: str, venv: str, base: Path) -> str:
    """The interpreter that ``python:`` or ``venv:`` means; a path is taken from the scenario's folder."""
    text = os.path.join(venv, "bin", "python") if venv else python
    if os.sep not in text:
        return text
    # Not resolved: a virtual environment's interpreter is a link, and what it links to is another environment.
    return os.path.abspath(os.path.join(base, os.path.expanduser(text)))


def _check(file: ScenarioFile) -> Check:
    if "check" not in file.model_fields_set:
        return Check("none") if file.before.command else Check()
    stated: dict[str, Any] = {k: getattr(file.check, k) for k in file.check.model_fields_set}
    return Check(**{**stated, "kind": check_kind(stated), "files": tuple(file.check.files)})


_PROSE = ("title", "why", "book")
"""What nothing that is measured or judged depends on; tags say which findings about the host concern a case."""


def _hashes(data: dict[str, Any]) -> tuple[str, ...]:
    """Of a file without its prose and of all of it, as it is and as it would be with another expectation or none.

    What a scenario expects is judged and not measured: a record that expected something else still is one of this file.
    """
    # Which side answers a row changes nothing that is measured: records of before stay those of this file.
    measured = {**data, "book": [cited.row for cited in citations(data)]} if "book" in data else data
    rest = {key: value for key, value in measured.items() if key != "expect"}
    others = [measured, rest, *({**rest, "expect": verdict} for verdict in VERDICTS)]
    bare = [{key: value for key, value in other.items() if key not in _PROSE} for other in others]
    return tuple(dict.fromkeys(map(_hash, (*map(_without_words, bare), *bare, *others))))


def _without_words(data: dict[str, Any]) -> dict[str, Any]:
    """A file that keeps of its check's reason that there is one, which decides what is compared; records of before
    count its words."""
    check = data.get("check")
    return {**data, "check": {**check, "reason": True}} if isinstance(check, dict) and check.get("reason") else data


def _hash(data: dict[str, Any]) -> str:
    canonical = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:16]
