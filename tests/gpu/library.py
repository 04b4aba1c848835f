"""Sets up and checks the first case of every scenario that one GPU can run, as it is and broken, several side by side.

A kernel that writes where it must not ruins its whole process, so each process takes one scenario after another and is
replaced when it dies; what it was at is then the one that failed. ``python tests/gpu/library.py [NAME ...]`` prints a
line a scenario. What must not live here: what makes a case right (see gpu_cases.py), and the processes' own manners.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from aiperf.host.read import read_host
from aiperf.plan.cases import expand
from aiperf.records import Side
from aiperf.scenario.load import load_scenario
from tests.library_check import children
from tests.library_check.children import Checked, Crew, Outcome, counts_of, serve
from tests.library_check.ledger import LEDGER, ON_GPU, keeper

SCENARIOS = Path(__file__).parents[2] / "scenarios"
JOBS = 8
LIMIT_S = 300.0


def files() -> dict[str, Path]:
    """Name -> file of every scenario of one GPU, and of those that take one where there is one."""
    either = (path for path in SCENARIOS.glob("cpu/*.yaml") if "\ngpu:" in path.read_text(encoding="utf-8"))
    alone = (path for path in either if all(side.ranks == 1 for side in expand_first(path)))
    return {path.stem: path for path in sorted([*SCENARIOS.glob("gpu/*.yaml"), *alone])}


def names() -> list[str]:
    """Those of ``files``."""
    return sorted(files())


def variables(name: str) -> dict[str, str]:
    """What a scenario's sides set in their environment. Here they share a process, where the last one's word counts:
    whether the check notices a broken side does not hang on it.
    """
    told: dict[str, str] = {}
    for side in expand_first(files()[name]):
        told |= side.env
    return told


def expand_first(path: Path) -> tuple[Side, ...]:
    """The sides of a scenario's first case."""
    return expand(load_scenario(path), on_gpu=True)[0].sides


def check_all(
    wanted: Iterable[str], jobs: int = JOBS, heard: Callable[[Outcome], None] = lambda _: None
) -> dict[str, Outcome]:
    """Name -> what came of it; every name that was asked for."""
    crew = Crew([sys.executable, __file__, "--child"], jobs, LIMIT_S, line, heard=heard, variables=variables)
    return children.check_all(wanted, crew)


def line(outcome: Outcome) -> str:
    """One line for people."""
    first = outcome.seconds.get("before")
    steps = ", ".join(f"{1e6 * s:.1f} us" for s in outcome.seconds.values())
    gain = f" {first / min(list(outcome.seconds.values())[1:]):.2f}x" if first and len(outcome.seconds) > 1 else ""
    return f"{outcome.status:7} {outcome.name}{gain} [{steps}] {outcome.took:.1f} s {outcome.detail}".rstrip()


def _child() -> None:
    import torch
    from gpu_cases import cases_of, check_case, gpu_context

    known = files()

    def check(name: str, folder: Path) -> Checked:
        try:
            return check_case(next(cases_of(known[name])), gpu_context(folder), broken=True)
        finally:
            with contextlib.suppress(Exception):
                torch.cuda.empty_cache()

    serve(check)


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        _child()
    else:
        parser = argparse.ArgumentParser(prog="python tests/gpu/library.py", description=__doc__)
        parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; all of one GPU without any")
        parser.add_argument("--keep", type=Path, metavar="FILE", help=f"enter what came of them, e.g. in {LEDGER.name}")
        options = parser.parse_args()
        outcomes = check_all(options.names or names(), heard=keeper(options.keep, ON_GPU, read_host()))
        counts = counts_of(outcomes.values())
        print(counts)
        sys.exit(1 if counts["failed"] else 0)
