"""A case whose sides need processes of their own (ranks, an environment), measured with cheats among its sides; of
several nodes, each beside the first is played by another process of this host.

What must not live here: the cheats (see cheat.py), and any statistics.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from aiperf.host.facts import HostFacts
from aiperf.launch.gang import LaunchSkipped
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.nodes.place import read_place
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Case, CheckResult, Pair, Side
from aiperf.settings import Precision, Settings
from aiperf.workloads.contract import SkipSide
from tests.library_check.inside import Seen

_IDLE, _SPOILS = "idle", "spoils"
_PRECISION = Precision(
    rounds=2, round_seconds=0.002, side_seconds=0.02, warmup_seconds=0.05, warmup_window=3, audits=2, looks=(3,)
)


def needs_processes(case: Case) -> bool:
    """Whether the sides cannot share a process."""
    return any(side.ranks > 1 or side.env or side.python or side.ref for side in case.sides)


def check_gang(case: Case, host: HostFacts, folder: Path) -> Seen:
    """One pair with every side and every other side's cheats; the sides agree and each cheat is told of.

    Raises AssertionError when honest sides disagree, SkipSide when a worker finds that the host cannot run a side.
    """
    victims = case.sides[1:]
    whole = replace(case, sides=(*case.sides, *(cheat for side in victims for cheat in _cheats(case, side))))
    settings = Settings(precision=_PRECISION, results=folder, pin="none", nodes=case.nodes)
    with _nodes(case.nodes, folder) as cluster, MeasurementSession(host, settings, cluster) as session:
        try:
            pair = session.measure(whole, 0, tuple(side.name for side in whole.sides), 1)
        except LaunchSkipped as reason:
            raise SkipSide(str(reason)) from None
    for side in case.sides:
        assert not (told := list(_failed(pair, side.name))), told[0].detail
    seen = Seen()
    for side in victims:
        idle, spoilt = ([c.kind == "work" for c in _failed(pair, _name(side, how))] for how in (_IDLE, _SPOILS))
        seen.note("no step at all", side.name, caught=False in idle)
        seen.note("an item too many", side.name, caught=True in idle)
        seen.note("a rank that spoils its outputs", side.name, caught=False in spoilt)
    return seen


@contextmanager
def _nodes(count: int, folder: Path) -> Iterator[Nodes | None]:
    """A job of ``count`` nodes, as torchrun would start it; nothing for one."""
    if count == 1:
        yield None
        return

    def variables(rank: int) -> dict[str, str]:
        job = {"MASTER_ADDR": folder.name, "MASTER_PORT": str(os.getpid()), "AIPERF_NODE": f"n{rank + 1}"}
        own = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": "1"}
        return {**os.environ, **job, **own}

    argv = [sys.executable, "-m", "aiperf", "run", "--launcher", "env", "--results", str(folder)]
    others = [subprocess.Popen(argv, env=variables(rank)) for rank in range(1, count)]
    try:
        with Nodes(read_place(variables(0)), folder) as cluster:
            yield cluster
    finally:
        for other in others:
            other.terminate()
            other.wait()


def _name(victim: Side, how: str) -> str:
    return f"{victim.name}-{how}"


def _cheats(case: Case, victim: Side) -> Iterator[Side]:
    """Two copies of a side: one does nothing and counts an item too many, of the other one rank's outputs are wrong."""
    function = f"{Path(__file__).with_name('cheat.py')}:side"
    for how in (_IDLE, _SPOILS):
        told = {"workload": victim.workload, "params": victim.params, "idle": how == _IDLE, "rule": case.check.kind}
        yield replace(victim, name=_name(victim, how), workload=function, params=told)


def _failed(pair: Pair, side: str) -> Iterator[CheckResult]:
    """The failed checks that judge a side."""
    return (check for check in pair.checks if not check.passed and side in check.sides)
