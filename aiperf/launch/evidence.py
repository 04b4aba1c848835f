"""The parent's half of the check of one pair: what sides say after each audit, which bytes they must show, the judging.

What must not live here: comparing anything (the judge does), and when sides are audited.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aiperf.launch.gang import Gang
from aiperf.launch.judge import JudgeProcess
from aiperf.launch.rank_replies import worst_check
from aiperf.protocol.checking import (
    CompareReply,
    CompareRequest,
    ForgetRequest,
    HandOverRequest,
    NamedCheckRequest,
    ShownSide,
    TakeRequest,
)
from aiperf.protocol.claims import AuditClaims, AuditedOutput, Piece
from aiperf.protocol.messages import AuditReply
from aiperf.records import Case, CheckResult

_WHOLE = 16 << 20
"""Bytes of the outputs of an audit, the smallest first, that are handed over whole whatever they are."""
_PART = 64 << 10
_PARTS = 64
"""Of the outputs of an audit that are larger, so many parts of so many bytes are drawn."""
_FEWEST = 4
"""Parts of one of many large outputs."""
_FLOATING = ("float", "bfloat", "complex")

Claims = dict[str, list[list[AuditClaims]]]
"""Side -> rank -> audit."""


class Evidence:
    """What the sides of one pair say and show of their audited outputs, and what the judge finds in it."""

    def __init__(self, case: Case, judge: JudgeProcess, folder: Path, *, patterns: Mapping[str, int], limit: float):
        """``folder``: where sides write, made when the first does. ``limit``: seconds for each answer of the judge."""
        self._case, self._judge, self._folder = case, judge, folder
        self._patterns, self._limit = dict(patterns), limit
        judge.turn_to_next()
        self._base, *self._others = (side.name for side in case.sides)
        self._claims: Claims = {}
        self._shown: dict[str, list[tuple[Piece, ...]]] = {}
        """Side -> by rank what its last file holds."""
        self._drawn: dict[tuple[int, int, str, int, int], tuple[int, ...]] = {}
        self._draw = random.SystemRandom()

    def audited(self, gang: Gang, side: str, replies: Sequence[AuditReply]) -> None:
        """Remember what every rank said, and have large outputs shown in part: the parts are drawn only now, after the
        digest of the whole was said. Raises LaunchFailed."""
        ranks = self._claims.setdefault(side, [[] for _ in replies])
        for said, reply in zip(ranks, replies, strict=True):
            said += [reply.claims] if reply.claims is not None else []
        if self._case.check.kind == "none" or any(reply.claims is None for reply in replies):
            return
        pieces = tuple(tuple(self._parts(rank, len(said) - 1, said[-1])) for rank, said in enumerate(ranks))
        if any(pieces):
            self._show(gang, side, pieces, f"parts-{len(ranks[0])}", leave=False)

    def _parts(self, rank: int, audit: int, claims: AuditClaims) -> Iterator[Piece]:
        small = _small(claims)
        large = {name: output for name, output in claims.outputs.items() if name not in small and output.nbytes}
        count = max(_FEWEST, _PARTS // max(1, len(large)))
        for name, output in large.items():
            places = -(-output.nbytes // _PART)
            # The same parts of every side, but of no other audit.
            key = (audit, rank, name, output.nbytes, count)
            if key not in self._drawn:
                drawn = sorted(self._draw.sample(range(places), min(count, places)))
                self._drawn[key] = tuple(place * _PART for place in drawn)
            offsets = self._drawn[key]
            nbytes = sum(min(_PART, output.nbytes - offset) for offset in offsets)
            yield Piece(audit, name, "parts", nbytes, offsets, _PART)

    def hand_over(self, gangs: Mapping[str, Gang], names: Sequence[str], *, leaving: bool) -> Iterator[tuple[str, str]]:
        """Have sides that live together hand over what the check needs of them; the side and each fault that it found
        in itself. ``leaving``: others come after them, so all that was kept is needed. Raises LaunchFailed."""
        compared = self._case.check.kind != "none"
        pieces = {name: self._whole(name, everything=leaving) if compared else () for name in names}
        requests = {name: HandOverRequest(name, str(self._file(name, "whole")), pieces[name]) for name in names}
        if any(map(any, pieces.values())):
            self._folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            gangs[name].send(requests[name])
        # On CPUs that they share, all of them together may take as long as one after the other.
        replies = {name: gangs[name].collect(HandOverRequest, limit=self._limit * len(names)) for name in names}
        for name in names:
            self._shown[name] = list(pieces[name])
            self._take(name, requests[name], leave=self._case.check.kind == "named")
            yield from ((name, fault) for fault in dict.fromkeys(f for reply in replies[name] for f in reply.faults))

    def _whole(self, side: str, *, everything: bool) -> tuple[tuple[Piece, ...], ...]:
        return tuple(
            tuple(self._whole_of(side, rank, everything=everything or self._case.check.kind == "named"))
            for rank in range(len(self._claims.get(side, ())))
        )

    def _whole_of(self, side: str, rank: int, *, everything: bool) -> Iterator[Piece]:
        truth = self._case.check.reference and side == self._base
        for audit, claims in enumerate(self._claims[side][rank]):
            small, other = _small(claims), self._counterparts(side, rank, audit)
            for name, output in claims.outputs.items():
                wanted = name in small or everything or any(_differs(output, name, theirs) for theirs in other)
                if output.kept and (wanted or (truth and output.dtype.startswith(_FLOATING))):
                    yield Piece(audit, name, "whole", output.nbytes)
            for name, output in claims.references.items() if truth else ():
                yield Piece(audit, name, "reference", output.nbytes)

    def _counterparts(self, side: str, rank: int, audit: int) -> list[AuditClaims]:
        """What the sides that this one is compared with said of the same audit, as far as they have."""
        others = self._others if side == self._base else [self._base]
        ranks = [self._claims[other][rank] for other in others if rank < len(self._claims.get(other, ()))]
        return [audits[audit] for audits in ranks if audit < len(audits)]

    def _file(self, side: str, what: str) -> Path:
        return self._folder / f"{side}-{{rank}}-{what}"

    def _show(self, gang: Gang, side: str, pieces: tuple[tuple[Piece, ...], ...], what: str, *, leave: bool) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        request = HandOverRequest(side, str(self._file(side, what)), pieces)
        gang.command(request, limit=self._limit)
        self._take(side, request, leave=leave)

    def _take(self, side: str, request: HandOverRequest, *, leave: bool) -> None:
        """The judge takes what every rank wrote; it has done so when this returns."""
        taken = [(rank, pieces) for rank, pieces in enumerate(request.pieces) if pieces]
        for rank, pieces in taken:
            file = request.file.replace("{rank}", str(rank))
            take = TakeRequest(str(self._folder), side, rank, file, pieces, leave)
            self._judge.send(take, limit=self._limit)
        for _ in taken:
            self._judge.collect(TakeRequest, limit=self._limit)

    def ask(self) -> None:
        """Have the judge begin to compare every side with the first. Raises LaunchFailed."""
        for other in self._others:
            for rank in self._ranks(other):
                self._judge.send(self._comparison(other, rank), limit=self._limit)

    def by_name(self) -> list[NamedCheckRequest]:
        """What to ask the first side's workload, whose own check the case names, about each other side."""
        base, check = self._shown_by(self._base), self._case.check
        return [NamedCheckRequest(self._base, check, base, self._shown_by(other)) for other in self._others]

    def _shown_by(self, side: str) -> ShownSide:
        claims = tuple(tuple(said) for said in self._claims.get(side, ()))
        return ShownSide(str(self._file(side, "whole")), tuple(self._shown.get(side, ())), claims)

    def _ranks(self, other: str) -> range:
        """A rank that one of the two sides lacks is compared with nothing."""
        return range(max(1, min(len(self._claims.get(side, ())) for side in (self._base, other))))

    def _comparison(self, other: str, rank: int) -> CompareRequest:
        names = (self._base, other)
        said = {side: self._claims.get(side, []) for side in names}
        claims = {side: tuple(ranks[rank]) if rank < len(ranks) else () for side, ranks in said.items()}
        patterns = {side: self._patterns[side] for side in names}
        return CompareRequest(str(self._folder), self._base, other, rank, self._case.check, claims, patterns)

    def found(self, named: Sequence[Sequence[CompareReply]]) -> list[CheckResult]:
        """What the judge found, a result for each side; ``named``: what named checks said of each, by rank. Raises
        LaunchFailed."""
        limit = self._limit * sum(len(self._ranks(other)) for other in self._others)
        results = []
        for index, other in enumerate(self._others):
            judged = [self._judge.collect(CompareRequest, limit=limit) for _ in self._ranks(other)]
            own = named[index] if index < len(named) else ()
            both = [_together(reply, own[rank] if rank < len(own) else None) for rank, reply in enumerate(judged)]
            results.append(worst_check(both, other))
        self._judge.ask(ForgetRequest(), limit=self._limit)
        return results


def _together(judged: CompareReply, named: CompareReply | None) -> CompareReply:
    """What the judge says, and what the workload's own check does where the judge has no fault to find."""
    if named is None or not judged.passed:
        return judged
    error = named.max_error
    return replace(judged, passed=named.passed, detail=named.detail, max_error=error)


def _small(claims: AuditClaims) -> set[str]:
    """The outputs of an audit that are handed over whole: the smallest, as long as they are little together."""
    found, total = set(), 0
    for name, output in sorted(claims.outputs.items(), key=lambda item: item[1].nbytes):
        total += output.nbytes
        if total <= _WHOLE and output.kept:
            found.add(name)
    return found


def _differs(output: AuditedOutput, name: str, theirs: AuditClaims) -> bool:
    return name not in theirs.outputs or theirs.outputs[name].digest != output.digest
