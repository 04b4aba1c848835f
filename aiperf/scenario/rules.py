"""Rules between the keys of a scenario file, each giving faults with a place.

What must not live here: types of single keys (the schema's), parameters of workloads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from aiperf.errors import Fault
from aiperf.scenario.check_rules import check_faults
from aiperf.scenario.citations import Citation, citation, named_points
from aiperf.scenario.document import Document, KeyPath
from aiperf.scenario.expectations import Expectation, expectation
from aiperf.scenario.metric_rules import metric_faults
from aiperf.scenario.outline import AXIS_KEYS, OF_A_SIDE, Outline, entry, head, holds
from aiperf.scenario.schema import RESERVED, ScenarioFile
from aiperf.scenario.serving import serving_faults
from aiperf.scenario.text import axis_text, point_text
from aiperf.scenario.wording import allowed, closest, dotted, nearest, shown

MAX_CASES = 1000
_IN_A_COPY = "If this is a copy of a shipped scenario, delete book:."
_LIKE = "./file.py:function, or {key: value} with what differs."


def rule_faults(document: Document, parts: Outline) -> list[Fault]:
    """Faults of every rule, in no order."""
    rules = (
        _sides,
        _commands,
        _workloads,
        _setup,
        _interpreters,
        _axes,
        _gpu,
        _case_count,
        check_faults,
        _measure,
        _same,
        _book,
        metric_faults,
        serving_faults,
    )
    return [fault for rule in rules for fault in rule(document, parts)]


def case_faults(document: Document, parts: Outline) -> list[Fault]:
    """Faults of the cases that citations and expectations name, in no order; false ones where the axes are wrong."""
    if _is_misspelt("axes", document.data):
        return []
    return [fault for rule in (_cited_cases, _expect) for fault in rule(document, parts)]


def _is_misspelt(key: str, data: Mapping[str, Any]) -> bool:
    """Whether a key that is not known stands for this one, which is told already."""
    known = ScenarioFile.model_fields
    return any(closest(other, known) == key for other in data if other not in known)


def _sides(document: Document, parts: Outline) -> Iterator[Fault]:
    data = document.data
    if "after" in data and "ladder" in data:
        yield document.fault(("ladder",), "after and ladder are both given.", "Keep one of the two.", key=True)
    elif "before" not in data and ("after" in data or "ladder" in data):
        if not _is_misspelt("before", data):
            yield document.fault((), "before is missing.", f"Write before: {_LIKE}")
    elif "before" in data and "after" not in data and "ladder" not in data and not _is_misspelt("after", data):
        yield document.fault((), "after is missing.", f"Write after: {_LIKE}")
    ladder = data.get("ladder")
    if isinstance(ladder, dict):
        for name in {"before", "after"} & set(ladder):
            what = f"ladder.{name}: {name} is not a name for a step."
            yield document.fault(("ladder", name), what, "Name the step by what it does.", key=True)


def _commands(document: Document, parts: Outline) -> Iterator[Fault]:
    for side in parts.sides:
        if "prepare" in side.data and not side.is_command:
            hint = "Give the Workload a prepare function, or make the arguments in setup."
            what = f"{dotted((*side.path, 'prepare'))}: only a command can be prepared by a shell line."
            yield document.fault((*side.path, "prepare"), what, hint, key=True)
    if not any(s.is_command for s in parts.sides):
        return
    hint = "Write it into the command, or set a variable in env."
    for side in parts.sides:
        if not side.is_command:
            what = f"{dotted(side.path)} has no command, but another side has one."
            meant = next((key for key in side.params if closest(key, ["command"])), None)
            way = f"Did you mean command, not {meant}?" if meant else "Give every side a command, or none."
            yield document.fault(side.path, what, way, key=True)
            continue
        for key in side.params:
            what = f"{dotted((*side.path, key))}: a command takes no parameters."
            yield document.fault((*side.path, key), what, hint)
        if "workload" in side.data:
            what = f"{dotted(side.path)} has both a workload and a command."
            yield document.fault((*side.path, "workload"), what, "Keep one of the two.", key=True)
    if parts.is_command:
        for key in parts.params:
            yield document.fault(("params", key), f"params.{key}: a command takes no parameters.", hint, key=True)
        if "workload" in document.data:
            what = "workload is not used: every side is a command."
            yield document.fault(("workload",), what, "Remove it.", key=True)


def _workloads(document: Document, parts: Outline) -> Iterator[Fault]:
    if "workload" in document.data:
        return
    if not any(key in document.data for key in ("before", "after", "ladder")):
        hint = "Write workload: ./file.py:function, and what differs under before: and after:."
        yield document.fault((), "workload is missing.", hint)
        return
    lacking = [s for s in parts.sides if not s.is_command and "workload" not in s.data]
    if lacking and not any(s.is_command for s in parts.sides):
        hint = "Write workload: family.function, workload: ./file.py:function, or give every side a command."
        yield document.fault((), "workload is missing.", hint)


def _setup(document: Document, parts: Outline) -> Iterator[Fault]:
    if "setup" in document.data and any(s.is_command for s in parts.sides):
        what = "setup makes arguments for functions; a command takes none."
        yield document.fault(("setup",), what, "Write them into the command.", key=True)


def _interpreters(document: Document, parts: Outline) -> Iterator[Fault]:
    blocks = [(("params",), parts.shared), (("gpu",), parts.gpu), *((s.path, s.data) for s in parts.sides)]
    for path, block in blocks:
        if "python" in block and "venv" in block:
            what = f"{dotted(path)} has both python and venv."
            yield document.fault((*path, "venv"), what, "Keep one of the two.", key=True)


def _axes(document: Document, parts: Outline) -> Iterator[Fault]:
    for key, values in parts.axes.items():
        at = ("axes", key)
        if key in (*OF_A_SIDE, "env"):
            hint = "Sweep one variable as env.NAME." if key == "env" else "Write a ladder to compare several."
            yield document.fault(at, f"{dotted(at)}: {key} cannot be an axis.", hint, key=True)
        elif entry(key) and head(key) in AXIS_KEYS:
            yield document.fault(at, f"{dotted(at)}: {head(key)} has no entries.", f"Write {head(key)}.", key=True)
        elif parts.is_command and head(key) not in (*AXIS_KEYS, "env"):
            hint = f"Sweep {allowed(AXIS_KEYS)} or env.NAME."
            yield document.fault(at, f"{dotted(at)}: a command takes no parameters.", hint, key=True)
        for side in parts.sides:
            if holds(side.data, key):
                hint = f"Remove {key} from axes or from {dotted(side.path)}."
                yield document.fault(at, f"axis {key} is fixed by {dotted(side.path)}.", hint, key=True)
        if holds(parts.shared, key):
            yield document.fault(at, f"{key} is in both params and axes.", "Keep one of the two.", key=True)
        yield from _axis_values(document, ("axes", key), key, values)


def _axis_values(document: Document, at: tuple[str, str], key: str, values: list[Any]) -> Iterator[Fault]:
    texts: dict[str, int] = {}
    for index, value in enumerate(values):
        place = (*at, index)
        if isinstance(value, dict):
            yield document.fault(place, f"{dotted(place)} is a mapping.", "Sweep one entry as NAME.ENTRY.")
            continue
        wrong = isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1024
        if key in ("ranks", "nodes") and wrong:
            what = f"{dotted(place)}: {shown(value)} is not a valid number of {key}."
            yield document.fault(place, what, "Write 1 to 1024.")
        if head(key) in ("python", "venv", "ref") and (not isinstance(value, str) or not value):
            yield document.fault(place, f"{dotted(place)}: {shown(value)} is not text.", "Quote it.")
        if head(key) == "env" and (isinstance(value, bool | list) or value is None):
            yield document.fault(place, f"{dotted(place)}: {shown(value)} is not text.", 'Quote it, e.g. "1".')
        text = axis_text(value)
        if text in texts:
            what = f"{dotted(place)}: {shown(value)} names the same case as value {texts[text] + 1}."
            yield document.fault(place, what, "Remove it; each value of an axis must give a different case.")
        texts.setdefault(text, index)


def _gpu(document: Document, parts: Outline) -> Iterator[Fault]:
    for key, value in parts.gpu.items():
        at = ("gpu", key)
        if key in OF_A_SIDE:
            hint = "The gpu block can replace only shared parameters and axes."
            yield document.fault(at, f"{dotted(at)}: {key} cannot be replaced for a GPU.", hint, key=True)
        elif key in parts.axes:
            if not isinstance(value, list) or not value:
                what = f"{dotted(at)}: {shown(value)} is not a list of values, but {key} is an axis."
                yield document.fault(at, what, "Write [first, second].")
            else:
                yield from _axis_values(document, at, key, value)
        elif head(key) in RESERVED or not parts.sides:
            continue
        elif entry(key):
            hint = nearest(key, parts.axes) or "Name a parameter, or an axis from axes."
            yield document.fault(at, f"{dotted(at)}: {key} is not an axis.", hint, key=True)
        elif not isinstance(value, dict) and all(key in s.data for s in parts.sides):
            what = f"{dotted(at)} has no effect: every side sets {key}."
            yield document.fault(at, what, "Remove it, or set it in params instead of in the sides.", key=True)


def _case_count(document: Document, parts: Outline) -> Iterator[Fault]:
    for name, block in (("axes", {}), ("gpu", parts.gpu)):
        sizes = [len(b) if isinstance(b := block.get(k), list) else len(v) for k, v in parts.axes.items()]
        if math.prod(sizes) > MAX_CASES:
            what = f"{name} gives {math.prod(sizes):,} cases; the limit is {MAX_CASES:,}."
            yield document.fault((name,), what, "Sweep fewer values, or split the scenario.", key=True)
            return


def _measure(document: Document, parts: Outline) -> Iterator[Fault]:
    measure = document.data.get("measure")
    if not isinstance(measure, dict):
        return
    clock = measure.get("clock")
    if clock == "device" and parts.is_command:
        what = "measure.clock: a command is timed from start to exit, by wall time."
        yield document.fault(("measure", "clock"), what, "Write gpu to time its kernels, or leave it out.")
    elif clock == "device" and not parts.gpus_needed and "gpu" not in document.data:
        what = "measure.clock: device needs a GPU, but the scenario does not ask for one."
        yield document.fault(("measure", "clock"), what, "Write needs: {gpus: 1}, or a gpu: block.")
    if measure.get("isolation") != "in_process":
        return
    hint = "Leave isolation out: each side then has its own process."
    if parts.is_command:
        yield document.fault(("measure", "isolation"), "measure.isolation: commands are processes.", hint)
    for side in parts.sides:
        for key in ("env", "ranks", "nodes", "python", "venv", "ref"):
            if key in side.data:
                what = f"{dotted((*side.path, key))}: sides that share one process cannot differ in {key}."
                yield document.fault((*side.path, key), what, hint, key=True)


def _same(document: Document, parts: Outline) -> Iterator[Fault]:
    misspelt = any(_is_misspelt(key, document.data) for key in ("after", "ladder"))
    if document.data.get("expect") == "equivalent" or "ladder" in document.data or misspelt:
        return
    if ("after",) not in document.keys:
        if "expect" in document.data and "before" in document.data:
            what = f"expect: {shown(document.data['expect'])} for a single workload, which is compared with itself."
            yield document.fault(("expect",), what, "Write equivalent, or leave it out.")
    elif len(parts.sides) == 2 and parts.sides[0].data == parts.sides[1].data:
        hint = "Write what differs; or expect: equivalent to compare a side with itself."
        yield document.fault(("after",), "after is the same as before.", hint, key=True)


def _book(document: Document, parts: Outline) -> Iterator[Fault]:
    places: dict[str, int] = {}
    entries = document.data.get("book")
    for index, raw in enumerate(entries if isinstance(entries, list) else []):
        cited, at = citation(raw, parts.axes), ("book", index)
        if cited.row in places:
            what = f"{dotted(at)}: {cited.row} is already cited at {dotted(('book', places[cited.row]))}."
            yield document.fault(at, what, "Cite it once; side takes a list of names.")
        elif cited.row:
            places[cited.row] = index
        if not any(_is_misspelt(key, document.data) for key in ("before", "after", "ladder")):
            yield from _answering(document, at, cited, [side.name for side in parts.sides])


def _answering(document: Document, at: KeyPath, cited: Citation, sides: list[str]) -> Iterator[Fault]:
    """Faults of the sides that a citation names: each must be measured, and against what the citation says."""
    for name in dict.fromkeys(cited.sides):
        place = (*at, "side")
        if name not in sides[1:]:
            what = f"{dotted(place)}: {shown(name)} is not a side that can answer a row; allowed: {allowed(sides[1:])}."
            yield document.fault(place, what, nearest(name, sides[1:]) or "Name the side that is the row's after.")
        elif cited.sides.count(name) > 1:
            yield document.fault(place, f"{dotted(place)}: {shown(name)} is named twice.", "Name it once.")
        elif cited.against and cited.against not in (sides[0], previous := sides[sides.index(name) - 1]):
            what = f"{dotted((*at, 'against'))}: {name} is not compared with {shown(cited.against)}."
            yield document.fault((*at, "against"), what, f"Allowed: {allowed(dict.fromkeys((sides[0], previous)))}.")
    if cited.against and not cited.sides:
        hint = "Write side: and name the side that is the row's after."
        yield document.fault((*at, "against"), f"{dotted((*at, 'against'))} needs a side.", hint, key=True)


def _cited_cases(document: Document, parts: Outline) -> Iterator[Fault]:
    entries = document.data.get("book")
    for index, raw in enumerate(entries if isinstance(entries, list) else []):
        if citation(raw, parts.axes).row:
            yield from _answering_cases(document, parts, ("book", index), raw)


def _answering_cases(document: Document, parts: Outline, at: KeyPath, raw: Any) -> Iterator[Fault]:
    """Faults of the cases that a citation names: where there are axes, each has one value of every axis."""
    keys = [key for key in ("case", "cases") if isinstance(raw, dict) and key in raw]
    if len(keys) == 2:
        yield document.fault((*at, "cases"), f"{dotted(at)} has both case and cases.", "Keep one of the two.", key=True)
    elif keys and not parts.axes:
        what = f"{dotted((*at, keys[0]))}: the scenario has no axes, so it has one case."
        yield document.fault((*at, keys[0]), what, f"Remove {keys[0]}.", key=True)
    elif not keys and parts.axes:
        what = f"{dotted(at)} does not name the case that answers the row; axes: {_axes_text(parts)}."
        example = ", ".join(f"{key}: {allowed(values[:1])}" for key, values in parts.axes.items())
        hint = f"Write {{row: chNN/name, case: {{{example}}}}} with the values that the row is about."
        yield document.fault(at, what, hint)
    else:
        seen: set[str] = set()
        for keys_of, point in named_points(raw):
            yield from _answering_case(document, parts, (*at, *keys_of), point)
            text = ",".join(sorted(point_text({key: value}) for key, value in point.items()))
            if text in seen:
                yield document.fault((*at, *keys_of), f"{dotted((*at, *keys_of))} is named twice.", "Name it once.")
            seen.add(text)


def _answering_case(document: Document, parts: Outline, at: KeyPath, point: dict[str, Any]) -> Iterator[Fault]:
    yield from _point(document, parts, at, point)
    if lacking := [key for key in parts.axes if key not in point]:
        what = f"{dotted(at)} gives no value for {allowed(lacking)}; axes: {_axes_text(parts)}."
        hint = "Give each axis one value, or list several cases under cases."
        yield document.fault(at, what, f"{hint} {_IN_A_COPY}")


def _point(document: Document, parts: Outline, at: KeyPath, point: dict[str, Any]) -> Iterator[Fault]:
    """Faults of the axes and values by which an entry names cases."""
    copied = f" {_IN_A_COPY}" if at[0] == "book" else ""
    for key, value in point.items():
        place = (*at, key)
        if key not in parts.axes:
            what = f"{dotted(place)}: {shown(key)} is not an axis; allowed: {allowed(parts.axes)}."
            hint = nearest(key, parts.axes) or "Name an axis of the scenario."
            yield document.fault(place, what, hint + copied, key=True)
        elif axis_text(value) not in map(axis_text, values := _axis_of(parts, key)):
            what = f"{dotted(place)}: {shown(value)} is not a value of {key}; allowed: {allowed(values)}."
            yield document.fault(place, what, (nearest(value, values) or "Name a value that the axis has.") + copied)


def _expect(document: Document, parts: Outline) -> Iterator[Fault]:
    """Faults of what is expected by case: each entry must decide for a case that no earlier entry decides for."""
    entries = document.data.get("expect")
    points, earlier = _points(parts), list[Expectation]()
    for index, raw in enumerate(entries if isinstance(entries, list) else []):
        at, point = ("expect", index), raw.get("case") if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or ("case" in raw and not isinstance(point, dict)):
            continue
        if point and not parts.axes:
            what = f"{dotted((*at, 'case'))}: the scenario has no axes, so it has one case."
            yield document.fault((*at, "case"), what, "Remove case.", key=True)
            continue
        if wrong := list(_point(document, parts, (*at, "case"), point or {})):
            yield from wrong
            continue
        stated = expectation(raw)
        meant = [p for p in points if stated.fits(p)]
        if stated.case and any(stated.case == other.case for other in earlier):
            yield document.fault((*at, "case"), f"{dotted((*at, 'case'))} is named twice.", "Name it once.")
        elif points and not meant:
            what = f"{dotted(at)}: no case has {point_text(stated.case)}, on a CPU or a GPU."
            yield document.fault(at, what, "Name values that one case has.")
        elif points and all(any(other.fits(p) for other in earlier) for p in meant):
            what = f"{dotted(at)}: earlier entries already cover all its cases; the first match counts."
            yield document.fault(at, what, "Remove it, or move it before them.")
        earlier.append(stated)


def _points(parts: Outline) -> list[dict[str, Any]]:
    """The points of all cases, on a CPU or a GPU; none where there are too many."""
    on_gpu = {key: own if isinstance(own := parts.gpu.get(key), list) else v for key, v in parts.axes.items()}
    kept = [axes for axes in (parts.axes, on_gpu) if math.prod(map(len, axes.values())) <= MAX_CASES]
    if len(kept) < 2:
        return []
    return [dict(zip(axes, values, strict=True)) for axes in kept for values in itertools.product(*axes.values())]


def _axis_of(parts: Outline, key: str) -> list[Any]:
    """Every value that an axis has, on a CPU or a GPU."""
    own = parts.gpu.get(key)
    return [*parts.axes[key], *(own if isinstance(own, list) else ())]


def _axes_text(parts: Outline) -> str:
    return "; ".join(f"{key} {allowed(_axis_of(parts, key))}" for key in parts.axes)
