"""What a workload may change in its own process must not reach the next test."""

from __future__ import annotations

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
def threads_come_back() -> Iterator[None]:
    """Engines and their workers compute with the threads that they are asked for."""
    before = torch.get_num_threads() if (torch := sys.modules.get("torch")) is not None else 0
    yield
    if before and torch is not None:
        torch.set_num_threads(before)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that wait for each other's share of tiny products cost more than the products."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
