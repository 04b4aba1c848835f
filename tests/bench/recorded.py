"""Figures that follow from the reference runs, one small file each in results/reference/figures.

What must not live here: measuring anything. A file names the runs that it rests on: later ones do not change it.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import scipy

from aiperf.records import CaseRecord
from aiperf.store.read import StoredRun, find_runs, open_run
from tests.bench.figures import Figure, percent

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "results" / "reference"
FOLDER = RUNS / "figures"
COMMAND = "python -m tests.bench recorded"
TENTH = 0.10
"""Of a case's time: what aiperf may add to its workers' own."""


@dataclass(frozen=True)
class Recorded:
    """One figure, with what it takes to work it out again."""

    name: str
    what: str
    said: str
    """As documents quote it."""
    value: float
    low: float
    high: float
    """The ends of its 95 % interval: of a share by Clopper and Pearson, of a median by the ranks of a binomial."""
    n: int
    runs: tuple[str, ...]
    commits: tuple[str, ...]
    hosts: tuple[str, ...]
    command: str = COMMAND


@dataclass(frozen=True)
class Number:
    """What a figure comes to."""

    said: str
    value: float
    low: float
    high: float
    n: int


def share(count: int, of: int) -> Number:
    """``count`` of ``of`` with its interval."""
    low = float(scipy.stats.beta.ppf(0.025, count, of - count + 1)) if count else 0.0
    high = float(scipy.stats.beta.ppf(0.975, count + 1, of - count)) if count < of else 1.0
    return Number(f"{count} of {of}", count / of, low, high, of)


def middle(values: Sequence[float]) -> Number:
    """The median, and the values whose ranks enclose it in 95 of 100 samples."""
    ordered = sorted(values)
    off = 0.98 * math.sqrt(len(ordered))
    low, high = (round(len(ordered) / 2 + sign * off) for sign in (-1, 1))
    ends = ordered[max(low, 0)], ordered[min(high, len(ordered) - 1)]
    value = statistics.median(ordered)
    return Number(percent(value), value, *ends, len(ordered))


def measured(records: Sequence[CaseRecord], *, gpus: bool) -> list[CaseRecord]:
    """The cases with pairs, of GPUs or of CPUs alone."""
    return [r for r in records if r.pairs and r.seconds and bool(r.case.needs.gpus) == gpus]


def added(records: Sequence[CaseRecord]) -> list[float]:
    """The share of each case's time that aiperf added to its workers' own."""
    return [r.harness_seconds / r.seconds for r in records]


_SM_CLOCK = re.compile(r"(gpu\d+_)?sm_clock_mhz")


def _clocked(records: Sequence[CaseRecord]) -> Number:
    """With several GPUs the number of each stands before the name, and every one must have been read."""
    pairs = [(r.case.needs.gpus, p) for r in measured(records, gpus=True) for p in r.pairs]
    read = [{name for seen in p.telemetry.values() for name in seen if _SM_CLOCK.fullmatch(name)} for _, p in pairs]
    return share(sum(len(names) >= gpus for (gpus, _), names in zip(pairs, read, strict=True)), len(pairs))


def _told(records: Sequence[CaseRecord], kind: str) -> Number:
    pairs = [p for r in measured(records, gpus=True) for p in r.pairs]
    return share(sum(any(incident.kind == kind for incident in p.incidents) for p in pairs), len(pairs))


def _over(records: Sequence[CaseRecord]) -> Number:
    shares = added(records)
    return share(sum(one > TENTH for one in shares), len(shares))


def _decided(records: Sequence[CaseRecord]) -> Number:
    words = [record.outcome(r) for record in records for r in record.results if r.primary]
    return share(sum(word in ("improved", "equivalent", "regressed") for word in words), len(words))


FIGURES: dict[str, tuple[str, Callable[[Sequence[CaseRecord]], Number]]] = {
    "harness-share-cpu": (
        "median share of a case's time that aiperf adds to its workers' own, cases on CPUs",
        lambda records: middle(added(measured(records, gpus=False))),
    ),
    "harness-share-gpu": ("the same, cases on GPUs", lambda records: middle(added(measured(records, gpus=True)))),
    "harness-over-tenth-cpu": (
        "cases on CPUs to whose time aiperf adds more than a tenth",
        lambda records: _over(measured(records, gpus=False)),
    ),
    "harness-over-tenth-gpu": ("the same, cases on GPUs", lambda records: _over(measured(records, gpus=True))),
    "sm-clock-read": ("pairs on GPUs during which the SM clock was read", _clocked),
    "telemetry-noted": (
        "pairs on GPUs with the note that reading clocks and counters took more than 1 % of a core that no side uses",
        lambda records: _told(records, "sampling_cost"),
    ),
    "power-cap-noted": (
        "pairs on GPUs during which the GPU was seen at its power limit",
        lambda records: _told(records, "power_cap"),
    ),
    "verdicts-decided": (
        "comparisons that are improved, equivalent or regressed, of all that the cases are about",
        _decided,
    ),
}
"""Name -> what it says, and how it follows from the records."""


def opened(names: Sequence[str]) -> list[StoredRun]:
    """Reference runs by their names."""
    return [open_run(name, results=RUNS) for name in names]


def worked_out(names: Sequence[str], *, only: Sequence[str] = ()) -> list[Recorded]:
    """The figures, or ``only`` some, as they follow from these runs."""
    runs = opened(names)
    records = [record for run in runs for record in run.read_cases()[0]]
    commits = tuple(sorted({str(run.record.git["sha"])[:8] for run in runs}))
    hosts = tuple(sorted({_host(run) for run in runs}))
    return [
        Recorded(name, what, *asdict(how(records)).values(), tuple(names), commits, hosts)
        for name, (what, how) in FIGURES.items()
        if not only or name in only
    ]


def _host(run: StoredRun) -> str:
    gpus = [str(gpu["name"]) for gpu in run.record.host.get("gpus", ())]
    return " + ".join([str(run.record.host["cpu_model"]), *gpus])


def measure() -> list[Figure]:
    """Work all of them out from every reference run, and write them."""
    found = worked_out([run.name for run in find_runs(RUNS)])
    FOLDER.mkdir(exist_ok=True)
    for one in found:
        text = json.dumps(asdict(one), indent=1, ensure_ascii=False)
        (FOLDER / f"{one.name}.json").write_text(f"{text}\n", encoding="utf-8")
    return [Figure(f"{one.name}: {one.what}", "shown", f"{one.said} [{one.low:.4g}, {one.high:.4g}]") for one in found]
