"""One rank in this process: every request in turn, and exceptions as replies of the right kind."""

import os
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from worker_made import make_worker, set_side

from aiperf.protocol.messages import (
    AuditRequest,
    Check,
    CloseRequest,
    CompareRequest,
    ExchangeRequest,
    FailureReply,
    FirstIterationRequest,
    LoadRequest,
    Message,
    SaveRequest,
    SideRequest,
    SkipReply,
    SummaryRequest,
    WorkerReply,
    WorkerRequest,
    WorkloadCall,
)
from aiperf.worker import dispatch
from aiperf.worker.dispatch import Worker

BITWISE = Check("bitwise")


def test_a_worker_carries_out_a_whole_pair_of_sides(tmp_path):
    worker = make_worker()
    for side in ("before", "after"):
        reply = set_side(worker, tmp_path, side=side)
        assert not reply.prepares
        assert worker.handle(FirstIterationRequest(side)).seconds > 0
        for seed in (1, 2):
            assert len(worker.handle(AuditRequest(side, seed, lead=0, iterations=1)).wall) == 1
        saved = worker.handle(SaveRequest(side, str(tmp_path / "saved"), whole=False))
        assert saved.faults == ()
    check = CompareRequest("before", "after", str(tmp_path / "saved"), BITWISE)
    answer = worker.handle(check)
    assert (answer.passed, answer.audits) == (True, 2)
    assert answer.compared == "after with before, bit for bit"
    summary = worker.handle(SummaryRequest("after"))
    assert summary.facts["cpus"] == sorted(os.sched_getaffinity(0))
    assert summary.peak_bytes > 10 << 20
    assert summary.work["items"] == 64
    assert (tmp_path / "own" / "0").is_dir()
    assert (tmp_path / "all").is_dir()
    assert type(worker.handle(CloseRequest())) is WorkerReply


def test_a_side_is_compared_with_what_another_worker_handed_over(tmp_path):
    check = CompareRequest("before", "after", str(tmp_path / "saved"), BITWISE)
    for scale, whole in ((1.0, False), (1.0, True), (1.5, False)):
        for side, of in (("before", 1.0), ("after", scale)):
            worker = make_worker()
            set_side(worker, tmp_path, side=side, scale=of)
            worker.handle(FirstIterationRequest(side))
            worker.handle(AuditRequest(side, 1, lead=0, iterations=1))
            worker.handle(SaveRequest(side, str(tmp_path / "saved"), whole=whole))
            if side == "before":
                base = worker
        exchange = ExchangeRequest("before", str(tmp_path / "saved"), ("after",), everything=False)
        assert type(base.handle(exchange)) is WorkerReply
        files = list((tmp_path / "saved" / "before" / "0").glob("*.npy"))
        assert bool(files) is (whole or scale != 1.0)
        answer = worker.handle(check)
        assert (answer.passed, "differs in" in answer.detail) == (scale == 1.0, scale != 1.0)
        shutil.rmtree(tmp_path / "saved")


def test_every_rank_saves_and_compares_its_own_outputs(tmp_path):
    check = CompareRequest("before", "after", str(tmp_path / "saved"), BITWISE)
    workers = [make_worker(rank) for rank in (0, 1)]
    for rank, worker in enumerate(workers):
        for side in ("before", "after"):
            scale = 1.0 + rank + (0.5 if (side, rank) == ("after", 1) else 0.0)
            set_side(worker, tmp_path, side=side, scale=scale)
            worker.handle(FirstIterationRequest(side))
            worker.handle(AuditRequest(side, 1, lead=0, iterations=1))
    for worker in workers:
        worker._world_size = 2
        for side in ("before", "after"):
            worker.handle(SaveRequest(side, str(tmp_path / "saved"), whole=False))
    assert [worker.handle(check).passed for worker in workers] == [True, False]


def test_rank_0_never_passes_for_lack_of_outputs(tmp_path):
    worker = make_worker()
    set_side(worker, tmp_path, side="after")
    worker.handle(FirstIterationRequest("after"))
    worker.handle(AuditRequest("after", 1, lead=0, iterations=1))
    worker.handle(SaveRequest("after", str(tmp_path / "saved"), whole=False))
    answer = worker.handle(CompareRequest("before", "after", str(tmp_path / "saved"), BITWISE))
    assert (answer.passed, answer.detail) == (False, "before has 0 audited outputs, after has 1")


def test_a_worker_with_fewer_ranks_than_the_sides_that_it_compares_looks_at_all_of_theirs(tmp_path):
    for wrong in (None, 0, 1):
        for rank in (0, 1):
            for side in ("before", "third"):
                worker = make_worker(rank)
                set_side(worker, tmp_path, side=side, scale=1.5 if (side, rank) == ("third", wrong) else 1.0)
                worker.handle(FirstIterationRequest(side))
                worker.handle(AuditRequest(side, 1, lead=0, iterations=1))
                worker.handle(SaveRequest(side, str(tmp_path / "saved"), whole=True))
        alone = make_worker()
        set_side(alone, tmp_path, side="after")
        asked = CompareRequest("before", "third", str(tmp_path / "saved"), BITWISE)
        assert alone.handle(asked).passed is (wrong is None)
        shutil.rmtree(tmp_path / "saved")


def test_a_check_that_writes_into_the_base_does_not_touch_what_the_next_side_is_compared_with(tmp_path):
    worker = make_worker()
    for side in ("before", "second", "third"):
        set_side(worker, tmp_path, "spoiling", side=side, rule="named")
        worker.handle(FirstIterationRequest(side))
        worker.handle(AuditRequest(side, 1, lead=0, iterations=1))
        worker.handle(SaveRequest(side, str(tmp_path / "saved"), whole=False))
    for other in ("second", "third"):
        check = Check("named", name="equal, then spoilt")
        asked = CompareRequest("before", other, str(tmp_path / "saved"), check)
        assert worker.handle(asked).passed


def test_a_rank_that_one_side_lacks_compares_nothing(tmp_path):
    worker = make_worker(rank=1)
    set_side(worker, tmp_path, side="after")
    worker.handle(FirstIterationRequest("after"))
    worker.handle(AuditRequest("after", 1, lead=0, iterations=1))
    worker.handle(SaveRequest("after", str(tmp_path / "saved"), whole=False))
    check = CompareRequest("before", "after", str(tmp_path / "saved"), BITWISE)
    answer = worker.handle(check)
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
        ("the batch is broken", "error", "ValueError: the batch is broken"),
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


def test_every_request_has_a_handler():
    requests = {kind for kind in Message.types.values() if issubclass(kind, WorkerRequest)}
    assert set(make_worker()._handlers) == requests - {WorkerRequest, SideRequest}


def test_a_side_that_was_never_set_up_is_a_failure_and_no_end():
    reply = make_worker().handle(FirstIterationRequest("nobody"))
    assert reply == FailureReply(message="KeyError: 'nobody'")


def test_a_reply_says_how_long_the_worker_was_busy(tmp_path):
    worker = make_worker()
    set_side(worker, tmp_path)
    assert 0 < worker.handle(FirstIterationRequest("before")).busy_s < 5


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
