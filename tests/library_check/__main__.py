"""``python -m tests.library_check [NAME ...]``: every scenario that needs no GPU, its sides as they are and broken.

A scenario passes when its sides agree and its own check notices every break (see inside.py and gangs.py). Exit: 1 when
one failed. What must not live here: the breaks, and processes.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from aiperf.host.facts import HostFacts
from aiperf.host.read import read_host
from aiperf.plan.plan import make_plan
from aiperf.records import Case
from aiperf.scenario.load import load_scenario
from aiperf.settings import Settings
from aiperf.workloads.contract import Context, SkipSide
from tests.library_check.children import Checked, Crew, Outcome, check_all, counts_of, serve
from tests.library_check.gangs import check_gang, needs_processes
from tests.library_check.inside import Place, Seen, check_case, one_case
from tests.library_check.ledger import BROKEN, LEDGER, keeper

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FOLDERS = ("cpu", "controls", "nodes")
_NODES = 2
"""Groups of workers on this host, for scenarios over nodes."""
LIMIT_S = 600.0
HERE = Place(settle=lambda: None, release=lambda: None)


def names() -> list[str]:
    """Every scenario that needs no GPU."""
    return sorted(path.stem for folder in FOLDERS for path in (SCENARIOS / folder).glob("*.yaml"))


def file_of(name: str) -> Path:
    """Where a scenario lies."""
    return next(path for folder in FOLDERS if (path := SCENARIOS / folder / f"{name}.yaml").is_file())


def here() -> HostFacts:
    """This host without its GPUs: scenarios that also have sizes for one are checked at those for the CPU."""
    return replace(read_host(), gpus=())


def cases_of(name: str) -> list[Case]:
    """The first case that one process can hold, and the first that needs several. Raises SkipSide."""
    plan = make_plan([load_scenario(file_of(name))], here(), Settings(nodes=_NODES))
    if not plan.cases:
        raise SkipSide(plan.skips[0].reason)
    return list({needs_processes(case): case for case in reversed(plan.cases)}.values())


def check(name: str, folder: Path) -> Checked:
    """One scenario. Raises AssertionError for a break that its check does not notice."""
    told = []
    for case in cases_of(name):
        assert case.check.kind != "none", f"nothing is compared: {case.check.reason}"
        assert not case.is_command, "a command has no outputs that could be compared"
        seen = _seen(case, folder)
        assert not seen.missed, f"{case.id}: {'; '.join(seen.missed)}"
        caught = [f"{count} x {kind}" for kind, count in seen.caught.items()]
        told.append(", ".join(caught + [f"compared: {' and '.join(seen.unusual)}"] * bool(seen.unusual)))
    return "caught " + "; ".join(told), {}


def _seen(case: Case, folder: Path) -> Seen:
    if needs_processes(case):
        return check_gang(case, here(), folder)
    context = Context(seed=5, scratch=folder, shared_scratch=folder, pad=768)
    return check_case(one_case(case), context, HERE, look=lambda *_: None, broken=True)


def line(outcome: Outcome) -> str:
    """One line for people."""
    return f"{outcome.status:7} {outcome.name} {outcome.took:.1f} s {outcome.detail}".rstrip()


def main() -> int:
    """Check the scenarios asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.library_check", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; all that need no GPU without any")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--keep", type=Path, metavar="FILE", help=f"enter what came of them, e.g. in {LEDGER.name}")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        serve(check)
        return 0
    if unknown := sorted(set(options.names) - set(names())):
        parser.error(f"no scenario {', '.join(unknown)}")
    # Each process would start a thread for every core, and they would wait for each other spinning.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // options.jobs)))
    own = [sys.executable, "-m", "tests.library_check", "--child"]
    heard = keeper(options.keep, BROKEN, here())
    crew = Crew(own, jobs=options.jobs, limit_s=LIMIT_S, line=line, fresh=True, heard=heard)
    outcomes = check_all(options.names or names(), crew)
    counts = counts_of(outcomes.values())
    print(counts)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
