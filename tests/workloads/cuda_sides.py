"""Every side of the shipped cuda.kernel scenarios, as its description, for tests of their sources without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aiperf.plan.cases import expand
from aiperf.scenario.load import load_scenario
from aiperf.workloads.cuda import workload as cuda

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class KernelSide:
    """One side of one case."""

    scenario: str
    case: str
    side: str
    params: dict[str, Any]
    capability: str

    def described(self, **changes: Any) -> cuda.Description:
        """What cuda.kernel makes of it."""
        return cuda.describe(**{k: v for k, v in (self.params | changes).items() if k != "backend"})


def kernel_scenarios() -> list[Path]:
    """The shipped scenarios whose workload is cuda.kernel."""
    found = sorted(ROOT.glob("scenarios/*gpu*/*.yaml"))
    return [path for path in found if "workload: cuda.kernel\n" in path.read_text(encoding="utf-8")]


@cache
def sides_of(path: Path) -> tuple[KernelSide, ...]:
    """Every side at every point of the axes, as a GPU host plans them."""
    return tuple(
        KernelSide(path.stem, case.id, side.name, side.params, case.needs.compute_capability)
        for case in expand(load_scenario(path), on_gpu=True)
        for side in case.sides
    )
