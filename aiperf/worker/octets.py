"""What the judge holds of an audited side: its claims, and the bytes that show whether they are true.

What must not live here: what counts as equal, and how bytes get here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from aiperf.protocol.claims import AuditClaims, AuditedOutput, Piece
from aiperf.worker import arrays, raw
from aiperf.workloads.shared.parts import by_parts

_PART = 1 << 19
"""Bytes that are looked at together."""


@dataclass
class Handed:
    """One audit of one rank of a side."""

    claims: AuditClaims
    pattern: int
    """What this audit wrote over integers."""
    whole: dict[str, Any] = field(default_factory=dict)
    """Output -> all of its bytes."""
    parts: dict[str, tuple[Piece, Any]] = field(default_factory=dict)
    """Output -> which parts of it, and their bytes."""
    references: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    """Why what was to be handed over is not here."""

    def add(self, piece: Piece, octets: Any) -> None:
        """Keep what was handed over."""
        if piece.kind == "parts":
            self.parts[piece.name] = (piece, octets)
        else:
            (self.whole if piece.kind == "whole" else self.references)[piece.name] = octets

    def reference(self, name: str) -> Any:
        """The truth of an output as an array; None without one, or where its bytes do not fit what was said of it."""
        claim, octets = self.claims.references.get(name), self.references.get(name)
        if claim is None or octets is None or not raw.fits(octets.nbytes, claim.dtype, claim.shape):
            return None
        return raw.decode(octets, claim.dtype, claim.shape)


@dataclass
class Found:
    """One output of one audit."""

    claim: AuditedOutput
    whole: Any = None
    parts: tuple[Piece, Any] | None = None

    @classmethod
    def of(cls, handed: Handed, name: str) -> Found:
        """What is held of this output, which its side claims to have."""
        return cls(handed.claims.outputs[name], handed.whole.get(name), handed.parts.get(name))

    @property
    def bytes_do_not_fit(self) -> bool:
        """Whether there are more or fewer than type and shape need."""
        nbytes = self.claim.nbytes if self.whole is None else self.whole.nbytes
        return nbytes != self.claim.nbytes or not raw.fits(nbytes, self.claim.dtype, self.claim.shape)

    def values(self) -> Any:
        """The array."""
        return raw.decode(self.whole, self.claim.dtype, self.claim.shape)

    def cut(self, piece: Piece) -> Any:
        """The same parts as another one's, or None where they are not here."""
        import numpy as np

        if self.parts is not None and self.parts[0].offsets == piece.offsets and self.parts[0].nbytes == piece.nbytes:
            return self.parts[1]
        if self.whole is None:
            return None
        cuts = [self.whole[offset : offset + piece.length] for offset in piece.offsets]
        return np.concatenate(cuts) if cuts else self.whole[:0]


def seen_bytes(found: Found) -> int:
    """How many bytes of an output can be looked at."""
    if found.whole is not None:
        return int(found.whole.nbytes)
    return found.parts[1].nbytes if found.parts is not None else 0


def same_bytes(one: Found, other: Found) -> bool | None:
    """Whether all that is here of both is equal; None where nothing is."""
    if one.whole is not None and other.whole is not None:
        return _equal(one.whole, other.whole)
    piece = next((found.parts[0] for found in (one, other) if found.parts is not None), None)
    if piece is None:
        return None
    cuts = one.cut(piece), other.cut(piece)
    return None if cuts[0] is None or cuts[1] is None else _equal(*cuts)


def _equal(one: Any, other: Any) -> bool:
    import numpy as np

    if one.nbytes != other.nbytes:
        return False
    words = one.nbytes // 8 * 8
    a, b = one[:words].view(np.uint64), other[:words].view(np.uint64)
    rest = bytes(one[words:].tolist()) == bytes(other[words:].tolist())
    return rest and all(by_parts(lambda part: bool((a[part] == b[part]).all()), len(a)))


def worst_seen(found: Found) -> arrays.Worst:
    """The worst value of an output: what its side says, or worse, what its bytes show."""
    octets = found.whole if found.whole is not None else found.parts[1] if found.parts is not None else None
    if octets is None or not raw.is_floating(found.claim.dtype):
        return found.claim.worst
    shown = by_parts(
        lambda part: arrays.worst_of(raw.decode(octets[part], found.claim.dtype)), octets.nbytes, part=_PART
    )
    return max([found.claim.worst, *shown], key=arrays.WORSE.index)


def left_unwritten(handed: Handed, name: str) -> bool:
    """Whether an output, as far as it is here, is nothing but what the audit wrote over it. Of truth values nothing can
    be said."""
    if name not in handed.claims.outputs:
        return False
    found = Found.of(handed, name)
    octets = found.whole if found.whole is not None else found.parts[1] if found.parts is not None else None
    if octets is None or not octets.nbytes or found.bytes_do_not_fit or not raw.itemsize(found.claim.dtype):
        return False
    # Hardly ever more than the beginning has to be looked at.
    return all(_unwritten(raw.decode(part, found.claim.dtype), handed.pattern) for part in (octets[:_PART], octets))


def _unwritten(values: Any, pattern: int) -> bool:
    if values.dtype.kind in "fc":
        return bool((values != values).all())
    return values.dtype.kind in "iu" and bool((values == pattern).all())


def is_as_shown(found: Found) -> bool:
    """Whether the bytes handed over in the end are those that a side had right after the audit: by the parts
    that it had to show then, else by its digest."""
    if found.whole is None:
        return True
    if found.parts is not None:
        cut = replace(found, parts=None).cut(found.parts[0])
        return _equal(cut, found.parts[1])
    return arrays.digest_of(found.whole, found.claim.dtype, found.claim.shape) == found.claim.digest
