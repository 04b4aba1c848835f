"""Makes a results folder of many runs through the store's own writer: the bench's history to open and to ask.

What must not live here: figures; and nothing here is measured: every number is drawn from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiperf.analysis.recompute import conclude
from aiperf.records import Case, CaseRecord, CheckResult, Pair, Result, RunRecord, Sample, Side, SideRun, Warmup
from aiperf.store.write import RunWriter

_SIDES = ("before", "after")
_BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
_FACTS = {"python": "3.11.7", "torch": "2.13.0", "device": "a device of some name", "threads": 2, "cpus": [0, 1]}


def make_history(results: Path, *, runs: int, cases: int, pairs: int, samples: int) -> int:
    """Write ``runs`` runs of ``cases`` cases with ``samples`` samples each; the number of samples written."""
    templates = [_record(number, pairs=pairs, samples=samples) for number in range(cases)]
    for number in range(runs):
        began = _BEGUN + timedelta(hours=number)
        writer = RunWriter.create(results, hostname="bench", now=began)
        run = RunRecord(
            run=writer.name,
            argv=("aiperf", "run", "all"),
            started=began.isoformat(),
            finished=began.isoformat(),
            status="finished",
            host={"hostname": "bench", "libraries": {f"library-{i}": f"{i}.{number}" for i in range(150)}},
            host_id="bench-host",
            planned=tuple(record.case.id for record in templates),
        )
        writer.write_run(run)
        for record in templates:
            writer.write_case(replace(record, results=_moved(record.results, number), started=began.isoformat()))
    return runs * sum(len(pair.samples) for record in templates for pair in record.pairs)


def _record(number: int, *, pairs: int, samples: int) -> CaseRecord:
    draw = random.Random(number)
    size = f"{2**number}KiB"
    name = f"copy-{number // 4}"
    case = Case(
        scenario=name,
        id=f"{name}[direction=h2d,size={size}]",
        title="Host-to-device copy, pageable vs pinned memory",
        why="The copy engine reads page-locked memory directly; pageable memory is staged through a buffer.",
        sides=tuple(Side(side, "transfer.copy", {"size": 2**number, "pinned": side == "after"}) for side in _SIDES),
        axes={"direction": "h2d", "size": size},
        tags=("memory", "transfer"),
        path=f"scenarios/transfer/{name}.yaml",
    )
    taken = tuple(_pair(draw, index, samples=samples // pairs) for index in range(pairs))
    found = conclude(case, taken, alpha=0.0158, delta=0.02, width=0.01)
    return CaseRecord(case, "measured", found, taken, stop="verdict", host_id="bench-host", seconds=30.0, seed=number)


def _pair(draw: random.Random, index: int, *, samples: int) -> Pair:
    order = _SIDES if index % 2 else _SIDES[::-1]
    taken = tuple(_samples(draw, order, samples))
    runs = tuple(
        SideRun(
            side,
            (1000 + index,),
            Warmup(400, draw.uniform(0.1, 0.2), draw.uniform(0.01, 0.02), True, "steady"),
            draw.uniform(0.1, 0.2),
            3,
            work={"bytes": 2**20, "flops": 0, "items": 0, "item": "", "peaks": {"h2d": 2**20}},
            counters={"launches": 1.0, "copies": 2.0, "synchronisations": 1.0},
            peak_bytes=draw.randrange(2**27, 2**28),
            facts=_FACTS,
        )
        for side in order
    )
    telemetry = {side: {"sm_clock_mhz": 1980.0, "power_w": draw.uniform(300, 400)} for side in order}
    checks = (CheckResult(True, "after with before, bitwise", max_error=0.0, audits=3),)
    return Pair(index, order, index, taken, runs, checks, telemetry=telemetry, started=1.7e9 + index, seconds=3.0)


def _samples(draw: random.Random, order: tuple[str, ...], count: int) -> Iterator[Sample]:
    for place in range(count):
        side = order[place % 2]
        wall = draw.lognormvariate(-8 if side == "before" else -8.5, 0.02)
        yield Sample(
            side, place // 2, place // 2, 10, 10 * wall, 9.9 * wall, 8 * wall, wall, 2**27 + place, audit=place < 2
        )


def _moved(results: tuple[Result, ...], number: int) -> tuple[Result, ...]:
    """The results a little slower from run to run, so that no two records are the same bytes."""
    share = 1 + number / 1000
    moved = []
    for result in results:
        comparison = result.comparison
        after = replace(comparison.after, value=comparison.after.value * share)
        moved.append(replace(result, comparison=replace(comparison, after=after, ratio=comparison.ratio / share)))
    return tuple(moved)
