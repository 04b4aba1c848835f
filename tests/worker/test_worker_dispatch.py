"""One rank in this process: every request in turn, and exceptions as replies of the right kind."""

import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from worker_made import make_worker, set_side

from aiperf.protocol.checking import (
    CompareRequest,
    ForgetRequest,
    HandOverReply,
    HandOverRequest,
    NamedCheckRequest,
    ShownSide,
    TakeRequest,
)
from aiperf.protocol.claims import Piece
from aiperf.protocol.measuring import Check
from aiperf.protocol.messages import (
    AuditRequest,
    CloseRequest,
    FailureReply,
    FirstIterationRequest,
    LoadRequest,
    Message,
    SideRequest,
    SkipReply,
    SummaryRequest,
    WorkerReply,
    WorkerRequest,
    WorkloadCall,
)
from aiperf.worker import dispatch
from aiperf.worker.dispatch import Worker
from aiperf.workloads.contract import ProgramEnded, ProgramNotReady


def audited(folder, *, side="before", function="healthy", seeds=(1,), rank=0, **how):
    """A worker whose side was audited, and what it said of each audit."""
    worker = make_worker(rank)
    set_side(worker, folder, function, side=side, **how)
    worker.handle(FirstIterationRequest(side))
    replies = [worker.handle(AuditRequest(side, seed, lead=0, iterations=1)) for seed in seeds]
    return worker, [reply.claims for reply in replies]


def whole(claims):
    """A request for everything."""
    outputs = [(i, name, output) for i, claim in enumerate(claims) for name, output in claim.outputs.items()]
    return tuple(Piece(audit, name, "whole", output.nbytes) for audit, name, output in outputs)


def test_a_worker_carries_out_a_whole_pair_of_sides(tmp_path):
    worker = make_worker()
    for side in ("before", "after"):
        reply = set_side(worker, tmp_path, side=side)
        assert not reply.prepares
        assert worker.handle(FirstIterationRequest(side)).seconds > 0
        replies = [worker.handle(AuditRequest(side, seed, lead=0, iterations=1)) for seed in (1, 2)]
        assert [len(reply.wall) for reply in replies] == [1, 1]
        pieces = whole([reply.claims for reply in replies])
        request = HandOverRequest(side, str(tmp_path / f"{side}-{{rank}}"), (pieces,))
        assert worker.handle(request).faults == ()
        assert (tmp_path / f"{side}-0").stat().st_size == sum(piece.nbytes for piece in pieces)
    assert (tmp_path / "before-0").read_bytes() == (tmp_path / "after-0").read_bytes()
    summary = worker.handle(SummaryRequest("after"))
    assert summary.facts["cpus"] == sorted(os.sched_getaffinity(0))
    assert summary.peak_bytes > 10 << 20
    assert summary.work["items"] == 64
    assert (tmp_path / "own" / "0").is_dir()
    assert (tmp_path / "all").is_dir()
    assert type(worker.handle(CloseRequest())) is WorkerReply


def test_a_side_without_anything_to_hand_over_writes_no_file(tmp_path):
    worker, _ = audited(tmp_path)
    assert worker.handle(HandOverRequest("before", str(tmp_path / "f-{rank}"))).faults == ()
    assert not list(tmp_path.glob("f-*"))


def test_each_rank_hands_over_what_was_asked_of_it(tmp_path):
    for rank in (0, 1):
        worker, claims = audited(tmp_path, rank=rank, scale=1.0 + rank)
        asked = whole(claims)
        request = HandOverRequest("before", str(tmp_path / "f-{rank}"), (asked, asked[:1]))
        assert worker.handle(request).faults == ()
    assert (tmp_path / "f-0").read_bytes()[:8] != (tmp_path / "f-1").read_bytes()[:8]


def test_parts_can_be_had_once_right_after_their_audit(tmp_path):
    worker, (claims,) = audited(tmp_path)
    name = next(iter(claims.outputs))
    request = HandOverRequest("before", str(tmp_path / "f-{rank}"), ((Piece(0, name, "parts", 16, (8,), 16),),))
    assert isinstance(worker.handle(request), HandOverReply)
    assert len((tmp_path / "f-0").read_bytes()) == 64
    (tmp_path / "f-0").unlink()
    assert isinstance(worker.handle(request), FailureReply)


def named(tmp_path, base, other, check, **how):
    """What the worker of ``base`` says by its own check, both being (worker, claims)."""
    sides = []
    for (worker, claims), side in ((base, "before"), (other, "after")):
        file = str(tmp_path / f"{side}-{{rank}}")
        (tmp_path / f"{side}-0").unlink(missing_ok=True)
        worker.handle(HandOverRequest(side, file, (whole(claims),)))
        sides.append(ShownSide(file, (whole(claims),), (tuple(claims),)))
    return base[0].handle(NamedCheckRequest("before", check, *sides, **how))


def test_a_check_that_writes_into_what_it_is_given_does_not_touch_what_the_next_side_is_compared_with(tmp_path):
    check = Check("named", name="equal, then spoilt")
    base, other = (audited(tmp_path, function="spoiling", rule="named", side=side) for side in ("before", "after"))
    for _ in range(2):
        assert named(tmp_path, base, other, check).passed


def test_a_rank_that_one_side_lacks_compares_nothing(tmp_path):
    worker, claims = audited(tmp_path, rank=1, rule="named")
    side = ShownSide(str(tmp_path / "f-{rank}"), ((), whole(claims)), ((), tuple(claims)))
    answer = worker.handle(NamedCheckRequest("before", Check("named", name="x"), side, replace(side, claims=((),))))
    assert (answer.passed, answer.compared) == (True, "")


def test_the_seed_reaches_the_workload_and_the_global_generators(tmp_path):
    drawn = []
    for seed in (7, 7, 8):
        worker = make_worker()
        set_side(worker, tmp_path, seed=seed)
        drawn.append(worker.handle(SummaryRequest("before")).facts["drawn"])
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    ("fail", "kind", "message"),
    [
        ("memory", "oom_host", "MemoryError: no room"),
        ("numpy", "oom_host", "Unable to allocate"),
        ("torch", "oom_device", "OutOfMemoryError: CUDA out of memory"),
        ("the batch is broken", "error", "ValueError: the batch is broken (benches.py:"),
        ("skip", "skip", "this disk has no O_DIRECT"),
    ],
)
def test_an_exception_becomes_a_reply_of_its_kind(tmp_path, capfd, fail, kind, message):
    worker = make_worker()
    set_side(worker, tmp_path, fail=fail)
    reply = worker.handle(FirstIterationRequest("before"))
    assert isinstance(reply, SkipReply) if kind == "skip" else reply.kind == kind
    said = reply.reason if isinstance(reply, SkipReply) else reply.message
    assert message in said
    assert "\n" not in said
    assert ("Traceback" in capfd.readouterr().err) == (kind != "skip")


def test_an_out_of_memory_of_cupy_is_known_by_its_name():
    error = type("OutOfMemoryError", (Exception,), {"__module__": "cupy.cuda.memory"})("out of memory")
    assert dispatch._kind(error) == "oom_device"
    assert dispatch._kind(type("OutOfMemoryError", (Exception,), {"__module__": "mine"})()) == "error"
    assert dispatch._kind(torch.OutOfMemoryError("full")) == "oom_device"


JUDGED = {TakeRequest, CompareRequest, ForgetRequest}
"""What only the judge is asked."""


def test_every_request_has_a_handler():
    requests = {kind for kind in Message.types.values() if issubclass(kind, WorkerRequest)}
    assert set(make_worker()._handlers) == requests - {WorkerRequest, SideRequest, *JUDGED}


def test_a_side_that_was_never_set_up_is_a_failure_and_no_end():
    reply = make_worker().handle(FirstIterationRequest("nobody"))
    assert reply == FailureReply(message="KeyError: 'nobody'")


def test_a_reply_says_how_long_the_worker_was_busy(tmp_path):
    worker = make_worker()
    set_side(worker, tmp_path)
    assert 0 < worker.handle(FirstIterationRequest("before")).busy_s < 60


def test_close_lets_every_side_go(tmp_path):
    log = []
    worker = make_worker()
    for side in ("before", "after"):
        set_side(worker, tmp_path, "closes", side=side, log=log)
    worker.handle(CloseRequest())
    assert log == ["close", "close"]


@pytest.mark.parametrize(
    ("there", "open_gpu", "calls"),
    [(True, True, ["set_device", 1, "synchronize", 1]), (True, False, []), (False, True, [])],
)
def test_a_waiting_worker_opens_the_gpu_of_its_rank_where_asked(monkeypatch, there, open_gpu, calls):
    done: list[object] = []
    cuda = SimpleNamespace(
        is_available=lambda: there,
        set_device=lambda device: done.extend(["set_device", device]),
        synchronize=lambda device: done.extend(["synchronize", device]),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    worker = Worker(rank=1, world_size=2, store_port=0, listen_fd=-1)
    assert type(worker.handle(LoadRequest((), (), device="cpu", open_gpu=open_gpu))) is WorkerReply
    assert done == []
    assert type(worker.handle(LoadRequest((), (), device="cuda", open_gpu=open_gpu))) is WorkerReply
    assert done == calls


def test_a_gpu_that_cannot_be_opened_is_left_to_set_up(monkeypatch):
    def fail() -> bool:
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=fail)))
    assert type(make_worker().handle(LoadRequest((), (), device="cuda", open_gpu=True))) is WorkerReply


def test_what_a_side_will_compile_with_is_imported_ahead_and_what_is_missing_is_left_to_set_up(monkeypatch):
    asked: list[str] = []

    def hash_itself():
        asked.append("hashed")

    def take(name):
        asked.append(name)
        if name == "not_here":
            raise ImportError(name)
        # As if this release of torch had no such function.
        return SimpleNamespace(triton_key=hash_itself) if name == "triton.runtime.cache" else SimpleNamespace()

    monkeypatch.setattr(dispatch.importlib, "import_module", take)
    sides = tuple(WorkloadCall("tensor.op", {"impl": impl}) for impl in ("torch", "compiled"))
    assert (
        type(make_worker().handle(LoadRequest(("not_here", "json"), sides, device="cpu", open_gpu=False)))
        is WorkerReply
    )
    compiler = ["torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache", "triton.runtime.cache"]
    assert asked == ["not_here", "json", *compiler, "hashed"]


def test_a_side_gets_the_gpu_of_its_rank_or_the_one_that_is_named(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(str(device)))
    monkeypatch.setattr(dispatch, "cuda_calls", lambda: None)
    worker = make_worker(1)
    assert [worker._device(kind) for kind in ("cpu", "cuda", "cuda:3")] == ["cpu", "cuda:1", "cuda:3"]
    assert chosen == ["cuda:1", "cuda:3"]


def test_a_program_that_runs_but_is_not_ready_in_time_has_a_kind_of_its_own() -> None:
    reply = dispatch._failure(ProgramNotReady("not ready within 2 s\nlog"))
    assert (reply.kind, reply.message) == ("not_ready", "not ready within 2 s")


@pytest.mark.parametrize(("said", "message"), [("the server ended\nlog", "the server ended"), ("", "ProgramEnded:")])
def test_a_program_that_ended_is_told_in_its_own_words_or_by_the_name_of_the_error(said: str, message: str) -> None:
    reply = dispatch._failure(ProgramEnded(said))
    assert (reply.kind, reply.message) == ("ended", message)
