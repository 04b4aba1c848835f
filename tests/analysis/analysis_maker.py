"""Cases and pairs of known ratio for the tests of the analysis room, and sessions drawn from METHOD's model.

What must not live here: any formula of the package; the expected values come from the tests.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from aiperf.analysis.recompute import conclude
from aiperf.analysis.stopping import Stop, next_step
from aiperf.plan.order import orders
from aiperf.records import Case, Incident, Measure, Needs, Pair, Sample, Side, SideRun, Warmup

LOOKS = (6, 10, 16, 24, 40)
ALPHA = 0.0158
SETTINGS = {"alpha": ALPHA, "delta": 0.02, "width": 0.01}


def make_case(*names, gpus=0, expect="", **measure):
    sides = tuple(Side(n, workload="x.y") for n in (names or ("before", "after")))
    return Case("s", "s", "title", "why", sides, measure=Measure(**measure), needs=Needs(gpus=gpus), expect=expect)


def make_run(side, *, steady=True, first=0.01, work=None, peak=None, gpu=None):
    warmup = Warmup(10, 0.1, first, steady, "steady" if steady else "still moving")
    return SideRun(side, (1,), warmup, 0.1, 0, work=work or {}, peak_bytes=peak, peak_gpu_bytes=gpu)


def make_pair(index, times, *, order=None, rounds=1, runs=(), void=False, checks=(), **fields):
    """One pair whose sides take ``times`` {side: seconds per iteration} in every round, 10 iterations a sample."""
    names = tuple(times)
    samples = tuple(
        Sample(name, r, 0, 10, 10 * times[name], **fields) for r in range(rounds) for name in names
    )  # fmt: skip
    incidents = (Incident("thermal", "after", "hot", voids=True),) if void else ()
    order = order or (names if index % 2 == 0 else names[::-1])
    return Pair(index, order, 0, samples, tuple(runs), tuple(checks), incidents)


def make_pairs(log_ratios, *, base=1e-3, **kwargs):
    """Pairs of before and after whose log-ratios are given; orders alternate."""
    return [make_pair(i, {"before": base * math.exp(x), "after": base}, **kwargs) for i, x in enumerate(log_ratios)]


def swap_sides(pairs):
    """The same pairs with the names before and after exchanged."""
    other = {"before": "after", "after": "before"}
    return [
        replace(
            p,
            order=tuple(other[n] for n in p.order),
            samples=tuple(replace(s, side=other[s.side]) for s in p.samples),
            runs=tuple(replace(r, side=other[r.side]) for r in p.runs),
        )
        for p in pairs
    ]


def draw_pairs(rng, *, mu, sd, position=0.005, drift=0.0, count=40, seed=0):
    """Pairs of METHOD's model: mu + position * o + noise; drift moves both sides of a pair."""
    found = []
    for i, order in enumerate(orders(("before", "after"), count=count, seed=seed)):
        o = 1 if order[0] == "before" else -1
        d = mu + position * o + sd * rng.gauss(0, 1)
        base = 1e-3 * math.exp(drift * i)
        found.append(make_pair(i, {"before": base * math.exp(d), "after": base}, order=order))
    return found


def sit(rng, case, *, looks=LOOKS, seed=0, alpha=ALPHA, **model):
    """One session through the production path: conclude at each look, stop as next_step says. (result, stop, pairs)"""
    pairs = draw_pairs(rng, count=looks[-1], seed=seed, **model)
    done = looks[0]
    while True:
        results = conclude(case, pairs[:done], **(SETTINGS | {"alpha": alpha}))
        step = next_step(
            results, looks=looks, pairs_done=done, elapsed=float(done), budget=1e6, mean_pair_seconds=1.0, width=0.01
        )
        if isinstance(step, Stop):
            return results[0], step, done
        done = step.to_pairs


def seeded(number):
    return random.Random(number)


NOISE = [0.012, -0.004, 0.006, -0.011, 0.003, -0.006, 0.008, -0.002]


def result_of(shift=0.2, *, spread=1.0, base=1e-3, one_order=False, **changes):
    """The time result of pairs whose log-ratios are ``shift`` plus a fixed noise."""
    pairs = make_pairs([shift + spread * x for x in NOISE], base=base)
    if one_order:
        pairs = [replace(p, order=("before", "after")) for p in pairs]
    result = conclude(make_case(), pairs, **(SETTINGS | changes))[0]
    c = result.comparison
    # Made pairs have an after side of always the same time; a real one scatters.
    return replace(result, comparison=replace(c, after=replace(c.after, log_sd=0.01)))
