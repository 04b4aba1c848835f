"""The judge in this process: it takes files, compares what it took, and answers for whatever goes wrong."""

import numpy as np
import pytest
from worker_made import set_up_request

from aiperf.protocol.checking import CompareRequest, ForgetRequest, TakeRequest
from aiperf.protocol.claims import AuditClaims, AuditedOutput, Piece
from aiperf.protocol.measuring import Check
from aiperf.protocol.messages import CloseRequest, FailureReply, WorkerReply
from aiperf.worker import arrays, judge, output_exchange
from aiperf.worker.audit import Snapshot
from aiperf.worker.judge import Judge

X = np.random.default_rng(0).standard_normal(40)
CLAIMS = AuditClaims({"out": AuditedOutput("float64", (40,), 320, arrays.digest(X), kept=True)})
PIECE = Piece(0, "out", "whole", 320)


def take(tmp_path, side, array=X, *, pair="p", rank=0, leave=False):
    path = tmp_path / f"{side}-{rank}"
    path.unlink(missing_ok=True)
    snapshot = Snapshot(kept={"out": arrays.octets(array)})
    output_exchange.write_pieces([snapshot], [PIECE], path)
    return TakeRequest(pair, side, rank, str(path), (PIECE,), leave)


def ask(pair="p", rank=0, check=Check("bitwise")):  # noqa: B008
    both = {"before": (CLAIMS,), "after": (CLAIMS,)}
    return CompareRequest(pair, "before", "after", rank, check, both, {"before": 80, "after": 81})


@pytest.mark.parametrize("wrong", [None, "before", "after"])
def test_what_was_taken_is_compared(tmp_path, wrong):
    held = Judge()
    for side in ("before", "after"):
        assert held.handle(take(tmp_path, side, X + (side == wrong))) == WorkerReply()
    answer = held.handle(ask())
    assert answer.passed is (wrong is None)
    assert answer.compared.startswith("after with before, bit for bit")
    assert (answer.audits, answer.output_bytes, answer.seen_bytes) == (1, 320, 320)


def test_files_go_when_they_are_taken_unless_others_need_them(tmp_path):
    held = Judge()
    held.handle(take(tmp_path, "before"))
    held.handle(take(tmp_path, "after", leave=True))
    assert [path.name for path in tmp_path.iterdir()] == ["after-0"]


def test_ranks_are_kept_apart(tmp_path):
    held = Judge()
    for rank in (0, 1):
        held.handle(take(tmp_path, "before", X, rank=rank))
        held.handle(take(tmp_path, "after", X + rank, rank=rank))
    assert [held.handle(ask(rank=rank)).passed for rank in (0, 1)] == [True, False]


@pytest.mark.parametrize("forget", [ForgetRequest(), None])
def test_nothing_of_an_earlier_pair_is_left(tmp_path, forget):
    held = Judge()
    for side in ("before", "after"):
        held.handle(take(tmp_path, side, X + (side == "after")))
    if forget is not None:
        assert held.handle(forget) == WorkerReply()
    answer = held.handle(ask("p" if forget is not None else "q"))
    assert answer.seen_bytes == 0


def test_a_file_that_is_not_what_was_asked_for_is_a_failed_check(tmp_path):
    held = Judge()
    held.handle(take(tmp_path, "before"))
    request = take(tmp_path, "after")
    (tmp_path / "after-0").write_bytes(b"short")
    assert held.handle(request) == WorkerReply()
    answer = held.handle(ask())
    assert answer.detail.startswith("audit 0: after: its outputs were not handed over: the file has 5 bytes, not 320")


def test_what_goes_wrong_is_answered(tmp_path, monkeypatch):
    assert isinstance(Judge().handle(set_up_request("healthy", folder=tmp_path)), FailureReply)
    for error, kind in ((MemoryError("no room"), "oom_host"), (ValueError("two\nlines"), "error")):

        def fails(*_, error=error):
            raise error

        monkeypatch.setattr(judge, "compare", fails)
        answer = Judge().handle(ask())
        assert (answer.kind, answer.message) == (kind, f"{type(error).__name__}: {str(error).splitlines()[0]}")
    assert Judge().handle(CloseRequest()) == WorkerReply()
