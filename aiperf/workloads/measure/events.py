"""A loop that computes small batches and reports each: in a text log, or by counters that another process scrapes.

What must not live here: how a batch is reported (reporters.py), other subjects (workload.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.measure.reporters import KINDS, NAMES, CounterReporter, LogReporter
from aiperf.workloads.shared.seeded import generator

_MOST_REQUESTS, _MOST_TOKENS = 64, 4096
_OUTSIDE = "prepare empties the log or asks the endpoint for its counters, and outputs reads one or the other"


class _Loop:
    """Products of two matrices, one for each batch, and the facts of each batch that are reported."""

    def __init__(self, reporter: LogReporter | CounterReporter, *, seed: int, steps: int, n: int) -> None:
        self.reporter, self._unread = reporter, False
        self.a, self.b, self.product = (torch.zeros(n, n) for _ in range(3))
        self.batches: Any = np.zeros((steps, 3), np.int64)
        self.totals: Any = np.zeros((len(NAMES), len(KINDS)), np.int64)
        self.events: list[tuple[str, int, int]] = []
        self.redraw(seed)

    def redraw(self, seed: int) -> None:
        """Other matrices, and other kinds, requests and tokens of the batches."""
        for name, matrix in (("a", self.a), ("b", self.b)):
            matrix.copy_(torch.from_numpy(generator(seed, name).standard_normal(matrix.shape, dtype=np.float32)))
        draws, count = generator(seed, "batches"), len(self.batches)
        for column, (low, high) in enumerate(((0, len(KINDS) - 1), (1, _MOST_REQUESTS), (1, _MOST_TOKENS))):
            self.batches[:, column] = draws.integers(low, high, count, endpoint=True)
        self.events = [(KINDS[kind], requests, tokens) for kind, requests, tokens in self.batches.tolist()]

    def step(self) -> None:
        """All batches once; half of the way a scrape is asked for, which goes on beside the rest."""
        report, half = self.reporter.report, len(self.events) // 2
        for number, (kind, requests, tokens) in enumerate(self.events):
            torch.mm(self.a, self.b, out=self.product)
            report(kind, requests, tokens)
            if number == half:
                self.reporter.ask()
        self.reporter.hear()
        self._unread = True

    def outputs(self) -> dict[str, Any]:
        """The last product, and the totals that the log or the endpoint gives, which are read once after a step."""
        if self._unread:
            found = self.reporter.totals()
            self.totals = np.array([[found[name, kind] for kind in KINDS] for name in NAMES])
            self._unread = False
        return {"product": self.product, "totals": self.totals}


def events(context: Context, *, count: int, report: str, n: int) -> Workload:
    """``count`` batches of one ``n`` x ``n`` product in float32 on one core, each reported to a log or to counters."""
    torch.set_num_threads(1)
    reporter = LogReporter(context.scratch) if report == "log" else CounterReporter(context.scratch)
    loop = _Loop(reporter, seed=context.seed, steps=count, n=n)
    return Workload(
        step=loop.step,
        work=Work(flops=2.0 * count * n**3, items=count, item="batches"),
        outputs=loop.outputs,
        inputs=lambda: {"a": loop.a, "b": loop.b, "batches": loop.batches},
        redraw=loop.redraw,
        prepare=reporter.begin,
        counters=reporter.counters,
        facts={"report": report, "threads": torch.get_num_threads()},
        done_outside=_OUTSIDE,
        close=reporter.close,
    )
