"""Which replaced functions are noticed: those that readings, audits and replies rest on, and no others."""

import builtins
import time

import numpy as np
import pytest
import torch
from worker_made import make_worker, set_side

from aiperf.protocol.messages import FirstIterationRequest, SummaryRequest
from aiperf.worker import audit, channel, clocks, cuda_calls
from aiperf.worker.integrity import Integrity


def test_nothing_is_replaced_by_looking():
    integrity = Integrity()
    integrity.look()
    assert integrity.replaced() == ()


@pytest.mark.parametrize(
    ("owner", "name", "shown"),
    [
        (clocks, "perf_counter", "aiperf.worker.clocks.perf_counter"),
        (time, "perf_counter", "time.perf_counter"),
        (builtins, "range", "builtins.range"),
        (clocks.WallClock, "read", "aiperf.worker.clocks.WallClock.read"),
        (channel.Channel, "send", "aiperf.worker.channel.Channel.send"),
        (audit.Auditor, "run", "aiperf.worker.audit.Auditor.run"),
        (np, "isfinite", "numpy.isfinite"),
        (torch.cuda, "synchronize", "torch.cuda.synchronize"),
        (torch.cuda.Event, "elapsed_time", "torch.cuda.Event.elapsed_time"),
    ],
)
def test_a_replaced_function_is_named_until_it_is_put_back(monkeypatch, owner, name, shown):
    integrity = Integrity()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *_, **__: None)
        assert shown in integrity.replaced()
    assert integrity.replaced() == ()


@pytest.mark.parametrize("name", ["array_equal", "allclose", "abs", "nonzero", "save"])
def test_a_function_of_numpy_that_only_compares_is_a_sides_own_to_wrap(monkeypatch, name):
    integrity = Integrity()
    real = getattr(np, name)
    monkeypatch.setattr(np, name, lambda *a, **k: real(*a, **k))
    assert integrity.replaced() == ()


def test_code_that_is_exchanged_inside_a_function_is_noticed(monkeypatch):
    integrity = Integrity()

    def shorter(self, step, iterations, around=None, *, ready=None):
        return clocks.ClockReading(0.0)

    monkeypatch.setattr(clocks.WallClock.read, "__code__", shorter.__code__)
    assert integrity.replaced() == ("aiperf.worker.clocks.WallClock.read",)


def test_a_summary_reports_what_its_side_replaced_in_set_up(tmp_path):
    worker = make_worker()
    set_side(worker, tmp_path, "patches_a_function")
    try:
        worker.handle(FirstIterationRequest("before"))
        assert worker.handle(SummaryRequest("before")).replaced == ("numpy.isnan",)
    finally:
        np.isnan = np.isnan.__wrapped__


def test_calls_that_a_side_replaces_do_not_reach_the_device_clock(monkeypatch):
    calls = cuda_calls.cuda_calls()
    monkeypatch.setattr(torch.cuda.Event, "elapsed_time", lambda *_: 0.0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    assert cuda_calls.cuda_calls() is calls
    assert calls.elapsed_ms is not torch.cuda.Event.elapsed_time
    assert calls.synchronize is not torch.cuda.synchronize
