"""A case whose sides need processes of their own (ranks, an environment), measured with cheats among its sides.

What must not live here: the cheats (see cheat.py), and any statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from aiperf.host.facts import HostFacts
from aiperf.launch.gang import LaunchSkipped
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
    with MeasurementSession(host, Settings(precision=_PRECISION, results=folder, pin="none")) as session:
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
