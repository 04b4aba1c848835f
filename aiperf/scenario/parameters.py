"""Every parameter of a scenario file held against the signature of the workload that will receive it.

What must not live here: reading signatures, merging values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.errors import Fault, UserError, usage
from aiperf.records import ProgramMetric, Signature
from aiperf.scenario.binding import convert, entry_annotation, missing
from aiperf.scenario.document import Document, KeyPath
from aiperf.scenario.outline import AXIS_KEYS, OF_A_SIDE, Outline, RawSide, entry, head
from aiperf.scenario.schema import RESERVED
from aiperf.scenario.signature import read_signature, resolve_workload
from aiperf.scenario.wording import allowed, dotted, nearest, shown
from aiperf.units import InvalidValue

SEED = "seed"
"""What a set-up function calls the parameter that gets the seed."""


@dataclass(frozen=True)
class Resolved:
    """A workload as one side names it."""

    name: str
    """Full name."""
    text: str
    """As the file has it."""
    signature: Signature
    setup: str = ""
    """Full name of the function that makes the arguments; empty without one."""
    setup_signature: Signature | None = None
    """Without the seed."""

    @property
    def metrics(self) -> tuple[ProgramMetric, ...]:
        """What it gives besides times of steps."""
        return tuple(ProgramMetric(name, unit, better) for name, (unit, better) in self.signature.metrics.items())

    @property
    def takes(self) -> Signature:
        """What a scenario may give to the workload and its set-up together.

        The latter may make any argument of the former, but not one that it takes itself.
        """
        if self.setup_signature is None:
            return self.signature
        own, made = self.signature, self.setup_signature
        return Signature(
            {**own.parameters, **made.parameters},
            {name: own.defaults.get(name) for name in own.parameters if name not in made.parameters} | made.defaults,
            plain=True,
            open=own.open or made.open,
        )


def resolve_all(document: Document, parts: Outline) -> tuple[dict[KeyPath, Resolved], list[Fault]]:
    """The workload of every side that is no command, by the side's path, and what is wrong with them."""
    found: dict[KeyPath, Resolved] = {}
    faults: list[Fault] = []
    setup = document.data.get("setup")
    for side in parts.sides:
        at = (*side.path, "workload") if "workload" in side.data else ("workload",)
        text = side.data.get("workload", document.data.get("workload"))
        if side.is_command or not isinstance(text, str) or not text:
            continue
        try:
            found[side.path] = _resolve(text, document.path.parent)
            at = ("setup",)
            if isinstance(setup, str) and setup:
                found[side.path] = _with_setup(found[side.path], setup, document.path.parent)
        except UserError as error:
            faults += [document.fault(at, f"{dotted(at)}: {f.what}", f.hint) for f in error.faults]
    return found, faults


def _resolve(text: str, base: Path) -> Resolved:
    return Resolved(resolve_workload(text, base=base)[0], text, read_signature(text, base=base))


def _with_setup(workload: Resolved, text: str, base: Path) -> Resolved:
    if not workload.signature.plain:
        hint = "Leave setup out: it makes arguments for plain functions only."
        raise usage(f"{workload.text} takes a context and makes its own inputs.", hint)
    signature = read_signature(text, base=base)
    if not signature.plain:
        name = text.rpartition(":")[2]
        raise usage(f"{shown(text)} makes a Workload, not arguments.", f"Write def {name}(seed, ...): return text")
    known = {name: kind for name, kind in signature.parameters.items() if name != SEED}
    return replace(
        workload,
        setup=resolve_workload(text, base=base)[0],
        setup_signature=replace(signature, parameters=known),
    )


def parameter_faults(document: Document, parts: Outline, resolved: Mapping[KeyPath, Resolved]) -> list[Fault]:
    """Unknown names, wrong values and missing parameters, for every side whose workload is known."""
    faults: dict[KeyPath, Fault] = {}
    known = [(s, resolved[s.path]) for s in parts.sides if s.path in resolved]
    for side, workload in known:
        for path, fault in (
            *_block(document, workload, side.path, side.params),
            *_block(document, workload, ("params",), parts.params),
            *_block(document, workload, ("axes",), parts.axes, swept=parts.axes),
            *_block(document, workload, ("gpu",), parts.gpu, swept=parts.axes),
        ):
            # Sides that share a value would each complain about it: the first one is enough.
            faults.setdefault(path, fault)
    return [*faults.values(), *_missing(document, parts, known)]


def _block(
    document: Document,
    workload: Resolved,
    path: KeyPath,
    block: Mapping[str, Any],
    swept: Mapping[str, Any] | None = None,
) -> Iterator[tuple[KeyPath, Fault]]:
    """Each wrong value's path, and what is wrong with it."""
    for key, value in block.items():
        is_axis = swept is not None and key in swept
        if head(key) in RESERVED and swept is not None:
            continue
        annotation = _annotation(workload.takes, key if is_axis else "", key)
        if annotation is None:
            yield (*path, key), _unknown(document, workload, (*path, key), key)
        elif is_axis and isinstance(value, list):
            for index, item in enumerate(value):
                yield from _value(document, (*path, key, index), item, annotation)
        elif not is_axis:
            yield from _value(document, (*path, key), value, annotation)


def _annotation(signature: Signature, axis: str, key: str) -> str | None:
    if signature.open and head(key) not in signature.parameters:
        return "Any"
    if not axis or not entry(axis):
        return signature.parameters.get(key)
    whole = signature.parameters.get(head(axis))
    return None if whole is None else entry_annotation(whole, entry(axis))


def _unknown(document: Document, workload: Resolved, at: KeyPath, key: str) -> Fault:
    names = list(workload.takes.parameters)
    if entry(key) and head(key) in names:
        what = f"{dotted(at)}: {head(key)} of {workload.text} is not a mapping and has no entries."
        return document.fault(at, what, f"Sweep {head(key)} itself.", key=True)
    side_keys = [k for k in RESERVED if k not in OF_A_SIDE] if at[0] == "params" else list(RESERVED)
    if at[0] in ("axes", "gpu"):
        side_keys = list(AXIS_KEYS)
    what = f"{dotted(at)}: {workload.text} has no parameter {shown(key)}; allowed: {allowed(names) or 'none'}."
    return document.fault(at, what, nearest(key, [*names, *side_keys]), key=True)


def _value(document: Document, at: KeyPath, value: Any, annotation: str) -> Iterator[tuple[KeyPath, Fault]]:
    try:
        convert(value, annotation)
    except InvalidValue as error:
        yield at, document.fault(at, f"{dotted(at)}: {error.what}", error.hint)


def _missing(document: Document, parts: Outline, known: list[tuple[RawSide, Resolved]]) -> Iterator[Fault]:
    shared = {*parts.params, *(head(k) for k in parts.axes), *(parts.gpu if parts.gpus_needed else ())}
    lacking = {side.path: missing(r.takes, {*shared, *side.data}) for side, r in known}
    common: set[str] = set()
    if len(known) > 1 and len({r.name for _, r in known}) == 1:
        common = set.intersection(*(set(names) for names in lacking.values()))
    if common:
        what = f"workload: {known[0][1].text} needs {_sentence(sorted(common))} not given."
        yield document.fault(("workload",), what, _giving(known[0][1], "each side"))
    for side, workload in known:
        names = [n for n in lacking[side.path] if n not in common]
        if names:
            what = f"{dotted(side.path)}: {workload.text} needs {_sentence(names)} not given."
            yield document.fault(side.path, what, _giving(workload, "this side"), key=True)


def _giving(workload: Resolved, side: str) -> str:
    """How a missing argument is given."""
    if not workload.signature.plain or workload.setup:
        return f"Write it in params, or in {side}."
    return (
        "Write setup: ./file.py:function (it makes the arguments from a seed), or params: {...}; a function that "
        "makes a Workload takes context first."
    )


def _sentence(names: list[str]) -> str:
    return f"{' and '.join(names)}, which {'is' if len(names) == 1 else 'are'}"
