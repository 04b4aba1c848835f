"""Roles stay. What must not live here: other rules."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.cluster.router import WorkerView


def fixed(workers: Sequence[WorkerView]) -> None:
    """Whatever is under way."""
