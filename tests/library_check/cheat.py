"""A workload that sets another one up and cheats: its step does nothing, or one rank's outputs are slightly wrong.

What must not live here: how outputs are made wrong (see spoils.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aiperf.worker.load import set_up
from aiperf.workloads.contract import Context, Workload
from tests.library_check import spoils


def side(context: Context, *, workload: str, params: dict[str, Any], idle: bool, rule: str) -> Workload:
    """``workload`` as ``params`` say: idle with an item too many, or with outputs that the last rank spoils."""
    honest = set_up(workload, context, params)
    if idle:
        return replace(honest, step=lambda: None, work=replace(honest.work, items=honest.work.items + 1))
    if context.rank != context.world_size - 1:
        return honest

    def step() -> None:
        honest.step()
        spoils.together(rule, honest.outputs())

    return replace(honest, step=step)
