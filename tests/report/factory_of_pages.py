"""Runs for the HTML page: with real samples and conclusions, with many cases, with texts that nobody should trust.

What must not live here: tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from factory_of_records import make_case, make_comparison, make_pair, make_result, make_run, measured

from aiperf.analysis.recompute import conclude
from aiperf.records import (
    Case,
    CaseRecord,
    Failure,
    HostFinding,
    Limit,
    Measure,
    Pair,
    RunRecord,
    Sample,
    Side,
    text_notes,
)
from aiperf.report.html.page import render_html

Reader = Callable[[CaseRecord], tuple[Pair, ...]]
EVIL = "<script>alert(1)</script></style><img src=x onerror=alert(2)> \"quoted\" 'so' & \x1b[31mred\x1b[0m \x00 🚀"
"""What a worker or a scenario may write; the page must show it and do nothing of it."""


def sampled(case: Case, *, pairs: int = 6, samples: int = 12, times: dict[str, float], seed: int = 1) -> list[Pair]:
    """Pairs with samples in three rounds around the given seconds an iteration of each side."""
    noise = random.Random(seed)
    sides = tuple(s.name for s in case.sides)
    made = []
    for index in range(pairs):
        order = sides if index % 2 else tuple(reversed(sides))
        taken = tuple(
            Sample(side, number * 3 // samples, number, 10, 10 * times[side] * noise.lognormvariate(0, 0.02))
            for number in range(samples)
            for side in order
        )
        made.append(replace(make_pair(index, order=order), samples=taken))
    return made


def concluded(case: Case, pairs: list[Pair], **changes: Any) -> CaseRecord:
    """The record that a run would have stored of these pairs."""
    case = replace(case, measure=Measure(clock="wall"))
    results = conclude(case, pairs, alpha=0.0158, delta=0.02, width=0.01)
    stripped = tuple(replace(p, samples=()) for p in pairs)
    return measured(case, *results, **({"pairs": stripped} | changes))


def reader(**kept: list[Pair]) -> Reader:
    """Give the pairs of a case by its scenario's name; none for others."""
    return lambda record: tuple(kept.get(record.case.scenario.replace("-", "_"), ()))


def nothing(_: CaseRecord) -> tuple[Pair, ...]:
    """Give no samples at all."""
    return ()


def ladder(*names: str) -> Case:
    """A case with these steps after before."""
    return make_case(
        "ladder", sides=tuple(Side(n, workload="gemm.gemm", params={"step": n}) for n in ("before", *names))
    )


def many(count: int) -> tuple[RunRecord, list[CaseRecord]]:
    """A run with every outcome among ``count`` cases, in scenarios of 25 with two axes."""
    noise = random.Random(5)
    records = [_one(number, noise) for number in range(count)]
    planned = tuple(r.case.id for r in records)
    return make_run(planned=planned), records


def _one(number: int, noise: random.Random) -> CaseRecord:
    sizes, threads = ("16KiB", "64KiB", "256KiB", "1MiB", "4MiB"), (1, 2, 4, 8, 16)
    case = make_case(
        f"a-scenario-with-a-name-of-some-length-{number // 25:03d}",
        axes={"size": sizes[number % 5], "threads": threads[number // 5 % 5]},
        tags=("memory", f"tag{number % 7}"),
        expect="",
    )
    drawn = noise.random()
    if drawn < 0.02:
        return CaseRecord(
            case=case, status="skipped", skip_reason="GPUDirect Storage is not active", skip_fix="mount it"
        )
    if drawn < 0.03:
        failure = Failure("before", "set-up", "oom_device", "CUDA out of memory", stderr_tail="Traceback\n  boom")
        return CaseRecord(case=case, status="failed", failure=failure)
    word, middle = _outcome(drawn, noise)
    logs = tuple(noise.gauss(0.0, 0.01) for _ in range(6))
    found = make_comparison(middle / 100, 0.01, interval=(middle * 0.99, middle * 1.01), ratio=middle, log_ratios=logs)
    return measured(case, make_result(found, word), limits=(Limit("after", "h2d", 55e9, "B/s", noise.random()),))


def _outcome(drawn: float, noise: random.Random) -> tuple[str, float]:
    if drawn < 0.5:
        return "improved", 1.05 + 3 * noise.random() ** 3
    if drawn < 0.55:
        return "regressed", 0.9 - 0.2 * noise.random()
    if drawn < 0.9:
        return "equivalent", 1 + noise.uniform(-0.008, 0.008)
    return ("inconclusive", 1.02) if drawn < 0.98 else ("invalid", 2.0)


def evil() -> str:
    """A page whose every text of a record tries to get out of its place."""
    case = make_case(
        f"evil {EVIL}",
        axes={"text": EVIL},
        title=EVIL,
        why=EVIL,
        tags=(EVIL,),
        book=(EVIL,),
        moves={EVIL: EVIL},
        path="evil.yaml",
        sides=(Side("before", command=("echo", EVIL)), Side("after", command=("echo", "x"), env={EVIL: EVIL})),
    )
    failure = Failure("before", "set-up", "error", EVIL, stderr_tail=f"{EVIL}\n</pre>{EVIL}")
    failed = CaseRecord(case=case, status="failed", failure=failure, notes=text_notes((EVIL,)))
    skipped = CaseRecord(case=replace(case, id=f"skipped {EVIL}"), status="skipped", skip_reason=EVIL, skip_fix=EVIL)
    result = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), verdict={"sentence": EVIL})
    compared = measured(replace(case, id=f"measured {EVIL}"), result)
    run = make_run(
        run=f"run {EVIL}", argv=("aiperf", EVIL), findings=(HostFinding(EVIL, "warn", EVIL, EVIL),),
        planned=(f"gone {EVIL}",),
        host={"hostname": EVIL, "libraries": {EVIL: EVIL}, EVIL: {EVIL: EVIL}}, git={"sha": EVIL},
    )  # fmt: skip
    return render_html(run, [failed, skipped, compared], pairs=nothing, warnings=[EVIL])
