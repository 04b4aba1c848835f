"""The judge: a process that runs nobody's code and compares what sides hand over, as bytes.

What must not live here: imports of a side's code or libraries, and what counts as equal (compare.py).

``python -P -m aiperf.worker.judge READ_FD WRITE_FD ...``, with a worker's arguments.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiperf.protocol.checking import CompareReply, CompareRequest, ForgetRequest, TakeRequest
from aiperf.protocol.claims import Piece
from aiperf.protocol.messages import CloseRequest, FailureReply, WorkerReply, WorkerRequest
from aiperf.worker.channel import Channel
from aiperf.worker.compare import compare
from aiperf.worker.octets import Handed
from aiperf.worker.output_exchange import NotHandedOver, read_pieces


class Judge:
    """Holds what the ranks of one pair handed over, until the next pair."""

    def __init__(self) -> None:
        self._pair = ""
        self._taken: dict[tuple[str, int], list[tuple[Piece, Any]]] = {}
        self._faults: dict[tuple[str, int], str] = {}

    def handle(self, request: WorkerRequest[Any]) -> WorkerReply:
        """Carry out one request; an exception becomes a reply that says what went wrong."""
        try:
            if isinstance(request, TakeRequest):
                return self._take(request)
            if isinstance(request, CompareRequest):
                return self._compare(request)
            if isinstance(request, ForgetRequest | CloseRequest):
                self._turn_to("")
                return WorkerReply()
            return FailureReply(kind="protocol", message=f"the judge takes no {type(request).__name__}")
        except Exception as error:
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]
            return FailureReply(kind="oom_host" if isinstance(error, MemoryError) else "error", message=message)

    def _take(self, request: TakeRequest) -> WorkerReply:
        self._turn_to(request.pair)
        whose, path = (request.side, request.rank), Path(request.file)
        try:
            octets = read_pieces(path, request.pieces)
        except NotHandedOver as reason:
            self._faults[whose] = f"its outputs were not handed over: the file {reason}"
            return WorkerReply()
        self._taken.setdefault(whose, []).extend(zip(request.pieces, octets, strict=True))
        if not request.leave:
            with suppress(OSError):
                path.unlink()
        return WorkerReply()

    def _compare(self, request: CompareRequest) -> CompareReply:
        self._turn_to(request.pair)
        names = (request.base, request.other)
        theirs, ours = (self._handed(side, request) for side in names)
        return compare(ours, theirs, request.check, names)

    def _handed(self, side: str, request: CompareRequest) -> list[Handed]:
        whose = (side, request.rank)
        audits = [
            Handed(claims, request.patterns[side] ^ (index & 1), fault=self._faults.get(whose, ""))
            for index, claims in enumerate(request.claims[side])
        ]
        for piece, octets in self._taken.get(whose, ()):
            audits[piece.audit].add(piece, octets)
        return audits

    def _turn_to(self, pair: str) -> None:
        if pair != self._pair:
            self._pair, self._taken, self._faults = pair, {}, {}


def main() -> int:
    """Answer requests until one of them is to close, or until the parent is gone."""
    channel = Channel(*(int(a) for a in sys.argv[1:3]))
    os.dup2(2, 1)
    with suppress(BrokenPipeError):  # the parent is gone
        channel.serve(Judge().handle)
    return 1


if __name__ == "__main__":
    sys.exit(main())
