"""Messages as lines: what comes back, and what is refused with which words."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from aiperf.protocol.checking import CompareReply, CompareRequest, HandOverRequest, NamedCheckRequest, ShownSide
from aiperf.protocol.claims import AuditClaims, AuditedOutput, OutputChange, Piece
from aiperf.protocol.measuring import Check, Measure
from aiperf.protocol.messages import (
    AuditReply,
    CloseRequest,
    FailureReply,
    LoadRequest,
    Message,
    SetUpRequest,
    SummaryReply,
    TurnReply,
    WorkerReply,
    WorkerRequest,
    WorkloadCall,
    reply_of,
)
from aiperf.protocol.standalone import StandaloneReport, StandaloneSpec
from aiperf.protocol.wire import ProtocolError, decode, encode

SET_UP = SetUpRequest(
    "before", WorkloadCall("a.b", {"n": 1, "x": [0.5]}), Measure(clock="wall", delta=0.02), Check("named", name="near"),
    "cpu", seed=3, scratch="/a", shared_scratch="/b", repository="/c",
)  # fmt: skip
SUMMARY = SummaryReply(
    work={"bytes": 1.0}, counters={}, facts={"many": [1, "x", None]}, usage={"user_s": 0.5}, peak_bytes=3,
    peak_gpu_bytes=None,
)  # fmt: skip
CLAIMS = AuditClaims({"out": AuditedOutput("bfloat16", (2, 3), 12, "ab", "nan", kept=True)}, {})
SHOWN = ShownSide("/f-{rank}", ((Piece(0, "out", "parts", 8, (0, 4), 4),), ()), ((CLAIMS,), ()))


@pytest.mark.parametrize(
    "message",
    [
        SET_UP,
        LoadRequest(("torch",), (WorkloadCall("a.b"), WorkloadCall("c.d", {"e": {}})), "cuda", open_gpu=True),
        CompareRequest("p", "before", "after", 1, Check("tolerance", rtol=1e-3), {"before": (CLAIMS,)}, {"before": 9}),
        CompareReply(passed=True, compared="x", changes=(OutputChange("out", ("float32", "int8"), (3, 4), 0.5),)),
        NamedCheckRequest("before", Check("named", name="near"), SHOWN, SHOWN),
        HandOverRequest("before", "/f-{rank}", SHOWN.pieces),
        AuditReply(wall=(1.0,), device=(None,), claims=CLAIMS),
        TurnReply(wall=(1.0, 2.0), device=(None, 0.5), wall_block=3.0, latencies={"ttft": (0.1,)}, busy_s=0.2),
        AuditReply(wall=(), device=()),
        FailureReply(kind="oom_host", message="two\nlines, é"),
        SUMMARY,
        StandaloneSpec(SET_UP, 2, 1.0, 0.3, 50, "/r-{rank}", control=("/x", "/y")),
        StandaloneReport(rank=1, pid=7, iterations=5, summary=SUMMARY),
    ],
)
def test_a_message_comes_back_as_it_was(message):
    line = encode(message)
    assert line.count("\n") == 1
    assert decode(line, type(message)) == message
    assert decode(line.encode(), type(message)) == message


def test_whole_numbers_are_times_too_and_times_may_be_infinite():
    line = '{"type": "TurnReply", "wall": [1, Infinity], "device": [null, 2]}'
    assert decode(line, WorkerReply) == TurnReply(wall=(1, float("inf")), device=(None, 2))


def test_a_reply_may_hold_what_workloads_like_to_report():
    facts = {
        "numpy": np.float32(2.5), "many": np.arange(3), "torch": torch.tensor(7), "path": Path("/x"),
        "dtype": torch.bfloat16, "complex": np.complex64(1j), "none": None,
    }  # fmt: skip
    line = encode(SummaryReply(work={}, counters={}, facts=facts, usage={}, peak_bytes=None, peak_gpu_bytes=None))
    assert json.loads(line)["facts"] == {
        "numpy": 2.5, "many": [0, 1, 2], "torch": 7, "path": "/x", "dtype": "torch.bfloat16", "complex": "1j",
        "none": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("dance", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "not an object"),
        ("{}", "unknown message type None"),
        ('{"type": "DanceReply"}', "unknown message type 'DanceReply'"),
        ('{"type": ["x"]}', r"unknown message type \['x'\]"),
        ('{"type": "CloseRequest"}', "CloseRequest instead of WorkerReply"),
        ('{"type": "TurnReply"}', "TurnReply lacks device, wall"),
        ('{"type": "ReadyReply", "a": 1}', "ReadyReply has no field a"),
        ('{"type": "TurnReply", "wall": [true], "device": []}', "TurnReply.wall must be float, not True"),
        ('{"type": "TurnReply", "wall": 3, "device": []}', "TurnReply.wall must be tuple, not 3"),
        ('{"type": "FailureReply", "message": "m", "kind": "bad"}', "FailureReply.kind must be Literal, not 'bad'"),
    ],
)
def test_a_line_that_is_no_reply_is_refused_with_what_is_wrong(line, why):
    with pytest.raises(ProtocolError, match=why):
        decode(line, WorkerReply)


def test_a_fault_deep_in_a_message_is_named_by_its_place():
    broken = encode(SET_UP).replace('"wall"', '"sundial"')
    with pytest.raises(ProtocolError, match=r"SetUpRequest\.measure\.clock must be Literal, not 'sundial'"):
        decode(broken, WorkerRequest)


def test_a_request_names_its_reply():
    assert reply_of(CloseRequest) is WorkerReply
    phases = {getattr(kind, "phase", "") for kind in Message.types.values()}
    assert phases - {""} == {"set-up", "warm-up", "measure", "check", "close"}
