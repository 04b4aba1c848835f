"""What a workload may change in its own process must not reach the next test."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def subnormal_numbers_stay_numbers() -> Iterator[None]:
    """Training sides flush them to zero, and so does loading a library that was linked with -ffast-math."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Threads that wait for each other's share of tiny products cost more than the products. Engines and their workers
    compute with the threads that they are asked for, and may leave it so."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(params=["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What torch.compile makes of its graphs: they are run as they were cut, or compiled, which takes much longer."""
    import torch

    # It keeps what earlier tests compiled, and refuses the ninth version of a function.
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=request.param))
    return request.param


@pytest.fixture
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rounds of the search for an acceptance come as near as tests ask; each round decodes the whole text."""
    from aiperf.workloads.decoder import speculation

    monkeypatch.setattr(speculation, "_ROUNDS", 7)
