"""Captured graphs: what their kernels read lives as long as they can be replayed."""

from __future__ import annotations

import contextlib
import gc
import weakref
from functools import partial
from typing import Any

import pytest
import torch

from aiperf.workloads.shared import queues

pytestmark = pytest.mark.long


class Graph:
    """A captured graph that counts its replays."""

    replays = 0

    def replay(self) -> None:
        self.replays += 1


class Side:
    """A stream."""

    def wait_stream(self, other: Any) -> None:
        """Nothing runs here."""


def test_what_a_captured_step_holds_lives_as_long_as_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", Side)
    monkeypatch.setattr(torch.cuda, "current_stream", Side)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    weights = torch.ones(3)
    runs = []

    seen, replay = weakref.ref(weights), queues.replay_of(partial(lambda x: runs.append(float(x.sum())), weights))
    assert runs == [3.0] * 4
    del weights
    gc.collect()
    assert seen() is not None
    replay()
    del replay
    gc.collect()
    assert seen() is None
