"""``--launcher``: what the processes of a job over several nodes do instead of, or before, the command itself.

What must not live here: links between nodes, and starting ranks (launch/nodes/).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from aiperf.cli.options import time_of
from aiperf.errors import Exit, Fault, UserError, usage
from aiperf.host.read import read_host
from aiperf.launch.nodes.agent import HeadKnows, follow_head
from aiperf.launch.nodes.head import JOIN_S, Nodes
from aiperf.launch.nodes.place import Place, read_place
from aiperf.plan.plan import nodes_used
from aiperf.plan.suites import selected

_JOIN = "AIPERF_JOIN_TIMEOUT"
"""How long the nodes of a job wait for each other."""
LauncherOption = Annotated[
    str,
    typer.Option(
        "--launcher",
        metavar="env",
        help="Spread ranks over the nodes on which srun, torchrun, mpirun or mpiexec started this command.",
    ),
]


@contextlib.contextmanager
def joined(launcher: str, results: Path, *, all_needed: bool = True) -> Iterator[Nodes | None]:
    """The nodes of the job, in its first process; None without a launcher, or with a single node.

    ``all_needed``: whether a node that does not come is a mistake, or left out.
    Every other process serves its node here until the run is over, and does not come back. Raises UserError.
    """
    if not launcher:
        yield None
        return
    if launcher != "env":
        raise UserError(Fault("--launcher", f'invalid value "{launcher}" (allowed: env).'))
    place, wait_s = read_place(), _join_timeout()
    if not place.is_head:
        raise typer.Exit(_follow(place, results, wait_s))
    if place.nodes == 1:
        yield None
        return
    with Nodes(place, results, wait_s=wait_s, all_needed=all_needed) as nodes:
        shown = ", ".join(nodes.names)
        print(f"{len(nodes)} nodes: {shown} · head at {nodes.address} ({nodes.interface})", file=sys.stderr)
        if nodes.absent:
            left_out = "; ".join(f"{name} {why}" for name, why in nodes.absent.items())
            print(f"continuing without: {left_out}", file=sys.stderr)
        yield nodes


def nodes_needed(given: Mapping[str, Any]) -> int:
    """Nodes of the largest case that the parameters of a command name; 0 where that is not known: for a command without
    scenarios, or one whose scenarios cannot be read here, which the job itself reports."""
    selectors, suite = given.get("selectors"), given.get("suite")
    if not (selectors or suite):
        return 0
    try:
        return nodes_used(selected(selectors or (), suite or ""))
    except UserError:
        return 0


def refuse_idle_nodes(wanted: int, given: Mapping[str, Any]) -> None:
    """Raise UserError where a job would hold nodes that none of its cases uses."""
    if wanted > 1 and 0 < (needed := nodes_needed(given)) < wanted:
        hint = f"Use -N {needed}." if needed > 1 else "Leave -N out."
        raise usage(f"the job would hold {wanted} nodes, but no case uses more than {needed}.", hint, "--nodes")


def _join_timeout() -> float:
    return time_of(_JOIN, text) if (text := os.environ.get(_JOIN)) else JOIN_S


def _follow(place: Place, results: Path, wait_s: float) -> int:
    if not place.is_agent:
        return Exit.OK  # the first process of its node does what there is to do
    try:
        return Exit.OK if follow_head(place, results, read_host(), wait_s=wait_s) else Exit.INTERRUPTED
    except HeadKnows:
        return Exit.USAGE  # with its message on the head
