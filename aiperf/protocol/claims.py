"""What workers say of audited outputs, and which bytes of them are handed over.

What must not live here: messages, and any opinion on what was said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class AuditedOutput:
    """What a worker says of one output, or of its reference, right after an audit."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: str = ""
    """Of type, shape and bytes; empty for a reference."""
    worst: Literal["finite", "infinite", "nan"] = "finite"
    """The worst value that is in it."""
    kept: bool = False
    """Whole in the worker's memory until the end of the pair, so that it can be handed over."""


@dataclass(frozen=True)
class VariedAnswer:
    """What one step made of inputs that no audit redraws, after they were varied; or of extreme values."""

    varied: tuple[str, ...] = ()
    """Names of these; none where nothing may be varied, or where the step refuses it."""
    inputs: str = ""
    """Digest of all inputs: answers to other ones are not compared."""
    digests: dict[str, str] = field(default_factory=dict)
    """Output of whole numbers or booleans -> digest of its type, shape and bytes."""
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Output of real numbers -> some of its elements, the same of every side; where they are finite."""
    extreme: bool = False
    """Whether audits do redraw the inputs, but moved no output, so that these got values beyond every bound."""


@dataclass(frozen=True)
class UnannouncedAnswer:
    """What steps did that nothing announced."""

    inputs: str = ""
    """Digest of what they were in turn; empty where they stayed as they were."""
    steps: int = 0
    left: dict[str, int] = field(default_factory=dict)
    """Output that was overwritten before each step with what could be a result -> the steps that left it so."""
    still: dict[str, int] = field(default_factory=dict)
    """Output that was not -> the steps that left it as it was, on inputs that were others than before each."""
    known: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Output of real numbers -> some of its elements before the inputs changed; where they are finite."""
    new: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """The same elements after that."""
    digests: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Output of whole numbers or booleans -> its digests before and after."""
    read: tuple[str, ...] = ()
    """Outputs that lay there otherwise before somebody asked for them."""


@dataclass(frozen=True)
class AuditClaims:
    """What a worker says of everything that one audit left."""

    outputs: dict[str, AuditedOutput] = field(default_factory=dict)
    references: dict[str, AuditedOutput] = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """Bytes that a worker hands over: of one output of one audit, in a file that holds them one after the other."""

    audit: int
    name: str
    kind: Literal["whole", "parts", "reference"]
    nbytes: int
    """How many bytes these are."""
    offsets: tuple[int, ...] = ()
    """kind parts: where in the output each part begins."""
    length: int = 0
    """kind parts: bytes of each, except where the output ends."""


@dataclass(frozen=True)
class OutputChange:
    """An output that has another type or number of elements than the same one of the side it is compared with."""

    name: str
    dtypes: tuple[str, ...]
    """Of the side it is compared with, and its own."""
    elements: tuple[int, ...]
    """Likewise."""
    max_error: float | None = None
    """Largest relative error between the two; None where none was computed."""
