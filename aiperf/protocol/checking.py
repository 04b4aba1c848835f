"""The messages of the check: sides hand over bytes of what they computed, and the judge compares them.

What must not live here: how the messages are written (wire.py), and what counts as equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.protocol.claims import AuditClaims, OutputChange, Piece
from aiperf.protocol.measuring import Check
from aiperf.protocol.messages import SideRequest, WorkerReply, WorkerRequest

RTOL = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 2e-2,
    "complex64": 1e-4,
    "complex128": 1e-9,
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 0.15),
}
"""Type of an output -> the relative tolerance of a check that states none."""


@dataclass(frozen=True, kw_only=True)
class HandOverReply(WorkerReply):
    """The bytes are written."""

    faults: tuple[str, ...]
    """What the audits found wrong with the side by itself."""


@dataclass(frozen=True, kw_only=True)
class CompareReply(WorkerReply):
    """Whether two sides computed the same."""

    passed: bool
    compared: str
    """What was compared with what, and how."""
    detail: str = ""
    """On failure: which output, where, by how much."""
    max_error: float | None = None
    """Largest relative error seen (tolerance), or the quality metric (named)."""
    loosened: float | None = None
    """Of a check that names a looser tolerance, or is a workload's own: the usual one of its type, which an output
    misses."""
    audits: int = 0
    """Audited outputs that were compared."""
    changes: tuple[OutputChange, ...] = ()
    output_bytes: int = 0
    """Bytes of all outputs that were to be compared, of one of the two sides."""
    seen_bytes: int = 0
    """Those of them that were looked at one by one; of the others, digests that the sides made themselves."""


@dataclass(frozen=True)
class HandOverRequest(SideRequest[HandOverReply], phase="check"):
    """Write bytes of what the audits left, and report what they found wrong with the side by itself."""

    file: str
    """Path of each rank's file; ``{rank}`` in it is the rank's number."""
    pieces: tuple[tuple[Piece, ...], ...] = ()
    """By rank: what its file is to hold. Without any it writes none."""


@dataclass(frozen=True)
class ShownSide:
    """What the ranks of a side handed over, and what they said of it."""

    file: str
    """Path of each rank's file; ``{rank}`` as above."""
    pieces: tuple[tuple[Piece, ...], ...]
    """By rank: what its file holds."""
    claims: tuple[tuple[AuditClaims, ...], ...]
    """By rank, of each audit."""


@dataclass(frozen=True)
class NamedCheckRequest(SideRequest[CompareReply], phase="check"):
    """Compare this side with another one by a check of its own workload, which must also refuse spoilt outputs."""

    check: Check
    base: ShownSide
    """What this side showed: its process may be another one by now."""
    other: ShownSide
    prove: bool = True
    """Whether to show the check spoilt outputs too."""


@dataclass(frozen=True)
class TakeRequest(WorkerRequest[WorkerReply], phase="check"):
    """To the judge: take what a rank of a side wrote. Another ``pair`` makes it forget the one before."""

    pair: str
    side: str
    rank: int
    file: str
    pieces: tuple[Piece, ...]
    leave: bool = False
    """Leave the file where it is for others; else it goes, so that no side can read it."""


@dataclass(frozen=True)
class CompareRequest(WorkerRequest[CompareReply], phase="check"):
    """To the judge: compare what a rank of two sides computed, by what it took of them."""

    pair: str
    base: str
    other: str
    rank: int
    check: Check
    claims: dict[str, tuple[AuditClaims, ...]]
    """Side -> what this rank of it said right after each audit."""
    patterns: dict[str, int]
    """Side -> the number that its first audit wrote over integers."""


@dataclass(frozen=True)
class ForgetRequest(WorkerRequest[WorkerReply], phase="check"):
    """To the judge: the pair is over, what was taken is not needed any more."""
