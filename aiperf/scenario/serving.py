"""Rules of a scenario file about loads on servers: what ``serve.load`` needs on each side, numbers that make a trace.

What must not live here: types of single parameters (the workload's annotations), other workloads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from aiperf.errors import Fault
from aiperf.formats.load_clients import PLACEHOLDERS
from aiperf.scenario.document import Document, KeyPath
from aiperf.scenario.outline import Outline, RawSide, entry, head
from aiperf.scenario.wording import dotted, shown

LOAD = "serve.load"
_TINY, _MODEL = "tiny-random", "{model}"
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_NEEDED = ("rate", "requests")
"""What a trace that is drawn cannot do without; the workload has a default for everything else."""


def serving_faults(document: Document, parts: Outline) -> Iterator[Fault]:
    """Faults of the sides that are servers under load, in no order."""
    loads = [s for s in parts.sides if s.data.get("workload", document.data.get("workload")) == LOAD]
    for side in loads:
        yield from _server(document, parts, side)
        yield from _tiny(document, parts, side)
        yield from _client(document, (*side.path, "client"), side.params)
        yield from _trace(document, parts, (*side.path, "trace"), side.params.get("trace"))
    if not loads:
        return
    yield from _cpus(document, parts, loads)
    yield from _cache(document)
    yield from _trace(document, parts, ("params", "trace"), parts.params.get("trace"))
    yield from _client(document, ("params", "client"), parts.params)
    yield from _own_client(document, parts, loads)
    measure, every = document.data.get("measure"), [parts.params, *(side.params for side in loads)]
    metric = measure.get("metric") if isinstance(measure, dict) else None
    finds = any("find" in params for params in every)
    if finds and metric != "max_rate":
        what = "find: max_rate reports only max_rate, but measure.metric is not max_rate."
        yield document.fault(("measure",), what, "Write measure: {metric: max_rate}.", key=True)
    elif metric == "max_rate" and not finds:
        what = "measure.metric: max_rate is not searched."
        yield document.fault(("measure", "metric"), what, "Write find: max_rate in params.")


def _server(document: Document, parts: Outline, side: RawSide) -> Iterator[Fault]:
    swept = {head(key) for key in parts.axes}
    given = [key for key in ("server", "url") if key in side.params or key in parts.params or key in swept]
    if not given:
        hint = 'Write server: "vllm serve MODEL --port {port}", or url: of one that runs already.'
        yield document.fault(side.path, f"{dotted(side.path)} has no server.", hint, key=True)
    elif len(given) == 2:
        what = f"{dotted(side.path)} has a server and a url."
        yield document.fault(side.path, what, "Keep one of the two.", key=True)


def _tiny(document: Document, parts: Outline, side: RawSide) -> Iterator[Fault]:
    """A model that is made on the spot has no name that could be written into the command."""
    params = {**parts.params, **side.params}
    server = params.get("server")
    if params.get("model") == _TINY and isinstance(server, str) and _MODEL not in server:
        at = (*side.path, "server") if "server" in side.params else ("params", "server")
        hint = f"Write {_MODEL} where the model's name belongs: aiperf fills in the folder of {_TINY}."
        yield document.fault(at, f"{dotted(at)} has no {_MODEL}, and the model is {_TINY}.", hint)


def _cache(document: Document) -> Iterator[Fault]:
    """The caches that ``measure.cache`` means are flushed in the client's process, between calls of which one is a
    whole segment."""
    measure = document.data.get("measure")
    if isinstance(measure, dict) and "cache" in measure:
        what = "measure.cache means the caches of CPU and GPU, which serve.load leaves to the servers."
        hint = "For a server's prefix cache, write cache: cold or cache: warm under params."
        yield document.fault(("measure", "cache"), what, hint)


def _cpus(document: Document, parts: Outline, loads: Sequence[RawSide]) -> Iterator[Fault]:
    """A server that is started here leaves the client a CPU of its own."""
    needs = document.data.get("needs", {})
    if not isinstance(needs, dict | None):
        return
    cpus = needs.get("cpus", 1) if isinstance(needs, dict) else 1
    if cpus == 1 and any("server" in {*parts.params, *side.params, *map(head, parts.axes)} for side in loads):
        has = "needs.cpus is 1" if isinstance(needs, dict) and "cpus" in needs else "needs.cpus is missing"
        what = f"The client of a load needs a CPU of its own, and {has}."
        yield document.fault(("needs",) if "needs" in document.data else (), what, "Write needs: {cpus: 2}, or more.")


def _client(document: Document, at: KeyPath, params: dict[str, Any]) -> Iterator[Fault]:
    """Faults of the command of another client."""
    command = params.get("client")
    if not isinstance(command, str) or not command:
        return
    given = _PLACEHOLDER.findall(command)
    allowed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    for name in dict.fromkeys(given):
        if name not in PLACEHOLDERS:
            yield document.fault(at, f"{dotted(at)}: {{{name}}} is not known.", f"Allowed: {allowed}.")
    if "output" not in given:
        yield document.fault(at, f"{dotted(at)} has no {{output}}.", "Write it where the client's output file belongs.")
    if not {"url", "port"} & {*given}:
        yield document.fault(at, f"{dotted(at)} has no {{url}}.", "Write {url}, or {port}, of the server to load.")


def _own_client(document: Document, parts: Outline, loads: Sequence[RawSide]) -> Iterator[Fault]:
    """Faults of what only aiperf's own client can do."""
    for side in loads:
        if not ("client" in parts.params or "client" in side.params or "client" in parts.axes):
            continue
        for key in ("find", "concurrency"):
            at = (*side.path, key) if key in side.params else ("params", key)
            if key in side.params or key in parts.params:
                what = f"{dotted(at)} needs aiperf's own client, and {dotted(side.path)} has another one."
                hint = "Leave client out." if key == "find" else "Write it in the client's command."
                yield document.fault(at, what, hint, key=True)
                return


def _trace(document: Document, parts: Outline, at: KeyPath, trace: Any) -> Iterator[Fault]:
    if not isinstance(trace, dict):
        return
    swept = {entry(key) for key in parts.axes if head(key) == "trace"}
    if "load" in parts.axes or "load" in parts.params:
        swept.add("rate")
    for key in _NEEDED:
        value = trace.get(key)
        if key not in trace and key not in swept:
            hint = "For example: {rate: 8, requests: 400}."
            yield document.fault(at, f"{dotted(at)} has no {key}.", hint, key=True)
        elif isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            what = f"{dotted((*at, key))}: {shown(value)} is not above 0."
            yield document.fault((*at, key), what, "Write a number above 0.")
