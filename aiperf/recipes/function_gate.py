"""One function gated against another commit: the recipe of `aiperf gate`, without a scenario file.

What must not live here: measuring, judging, pytest.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aiperf.analysis.gate import GateOutcome
from aiperf.errors import UserError, usage
from aiperf.host.facts import HostFacts
from aiperf.launch.git import repo_of, resolve
from aiperf.plan.gates import GateConfig, MetricRule
from aiperf.plan.plan import Plan
from aiperf.recipes.functions import Functions, function_case
from aiperf.recipes.gate import run_gate
from aiperf.recipes.gate_base import Gate
from aiperf.records import Invocation
from aiperf.report.live import Progress
from aiperf.settings import Settings


def gate_function(
    functions: Functions, *, against: str, host: HostFacts, settings: Settings, reproduce: str = ""
) -> GateOutcome:
    """Hold the second function as it lies now against itself at a commit, interleaved. ``reproduce``: the command that
    does it again. Raises UserError for an unknown ref and for a function that no file of a repository holds."""
    if not functions.path:
        hint = "Gate a function of a file in your repository."
        raise usage(f"{functions.after} is not defined in a file, so no other commit has it.", hint)
    config = GateConfig(
        name="function",
        against=against,
        precision=settings.precision.name,
        metrics=(MetricRule("time", settings.precision.delta),),
    )
    with function_case(functions) as case:
        gate = Gate(config, Plan((case,), ()), host, settings, Progress, Invocation("gate"))
        outcome = run_gate(gate)
    return replace(outcome, rows=tuple(replace(row, reproduce=reproduce) for row in outcome.rows))


def check_commit(folder: Path, ref: str) -> None:
    """Raise UserError where a folder's repository has no such commit; a folder of none says nothing."""
    try:
        repo = repo_of(folder)
    except UserError:
        return
    resolve(repo, ref)
