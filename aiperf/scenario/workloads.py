"""The shipped workloads for somebody who writes a scenario: what each says of itself, takes, and is used by.

What must not live here: parsing source files (signature.py), checking a scenario, layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiperf.paths import workload_folder
from aiperf.records import Signature
from aiperf.scenario.annotation import choices, in_words, written
from aiperf.scenario.find import Listing
from aiperf.scenario.signature import read_signature, shipped_workloads

_SENTENCE = re.compile(r".+?(?<!e\.g)(?<!i\.e)[.!?](?=\s|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a workload."""

    name: str
    type: str
    """Its annotation."""
    takes: str
    """What may be written, in words."""
    allowed: tuple[Any, ...] | None
    """The values that may be written; None where they are not listed."""
    required: bool
    default: Any = None
    """The value that the workload receives when none is given: bytes, seconds."""
    written: str = ""
    """The default as a scenario writes it."""


@dataclass(frozen=True)
class WorkloadListing:
    """One line of ``aiperf list --workloads``, and all that ``aiperf show`` says of it."""

    name: str
    summary: str
    """First sentence of its docstring."""
    doc: str
    parameters: tuple[Parameter, ...]
    scenarios: tuple[str, ...]
    """Names of the scenarios that use it."""


def list_workloads(scenarios: Iterable[Listing]) -> list[WorkloadListing]:
    """All shipped workloads by name, each with those of the ``scenarios`` that use it."""
    known = list(scenarios)
    return [describe_workload(name, known) for name in shipped_workloads()]


def describe_workload(name: str, scenarios: Iterable[Listing]) -> WorkloadListing:
    """A shipped workload with those of the ``scenarios`` that use it. Raises UserError where there is none."""
    signature = read_signature(name, base=workload_folder())
    return WorkloadListing(
        name=name,
        summary=_first_sentence(signature.doc),
        doc=signature.doc,
        parameters=tuple(_parameter(key, signature) for key in signature.parameters),
        scenarios=tuple(entry.name for entry in scenarios if name in entry.workloads),
    )


def _first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    found = _SENTENCE.match(paragraph)
    return found[0] if found else paragraph


def _parameter(name: str, signature: Signature) -> Parameter:
    annotation = signature.parameters[name]
    kind = (name, annotation, in_words(annotation), choices(annotation))
    if name not in signature.defaults:
        return Parameter(*kind, required=True)
    default = signature.defaults[name]
    return Parameter(*kind, required=False, default=default, written=written(default, annotation))
