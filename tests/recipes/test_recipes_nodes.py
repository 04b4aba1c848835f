"""A pair whose ranks lie on two nodes, the second one played by another process of this host."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from patience import PATIENCE_S

from aiperf.host.read import read_host
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.nodes.place import read_place
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Case, Check, Measure, Side
from tests.recipes.recipes_made import make_settings

pytestmark = pytest.mark.long
PARAMS = {"op": "all_reduce", "size": 4096}
SIDES = tuple(Side(name, workload="comm.collective", params=PARAMS, ranks=2, nodes=2) for name in ("before", "after"))
CASE = Case("s", "s", "t", "w", SIDES, measure=Measure(clock="wall"), check=Check("tolerance", rtol=1e-5))


def variables(rank: int) -> dict[str, str]:
    job = {"MASTER_ADDR": "h", "MASTER_PORT": str(os.getpid()), "AIPERF_NODE": f"n{rank + 1}"}
    return {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", **job}


@pytest.mark.usefixtures("ranks_meet")
def test_a_pair_over_two_nodes_is_measured_and_checked_and_tells_its_nodes_apart(tmp_path):
    argv = [sys.executable, "-m", "aiperf", "run", "--launcher", "env", "--results", str(tmp_path)]
    settings = make_settings(tmp_path, nodes=2)
    settings = replace(settings, precision=replace(settings.precision, side_seconds=0.02, warmup_seconds=0.1))
    with subprocess.Popen(argv, env={**os.environ, **variables(1)}) as agent:
        with Nodes(read_place(variables(0)), tmp_path) as nodes:
            with MeasurementSession(read_host(), settings, nodes) as session:
                pair = session.measure(CASE, 0, ("before", "after"), 1)
                shared = list((tmp_path / ".nodes").iterdir())
            (facts,) = nodes.facts
        assert agent.wait(PATIENCE_S) == 0
    assert [run.node_skew.keys() for run in pair.runs] == [{"n1", "n2"}] * 2
    assert all(run.facts["ranks"] == 2 and run.slowest_rank in (0, 1) for run in pair.runs)
    assert [check.passed for check in pair.checks] == [True]
    assert (facts["node"], facts["hostname"]) == ("n2", os.uname().nodename)
    assert len(shared) == 1, "the outputs of both nodes went through the folder that both see"
    assert list((tmp_path / ".nodes").iterdir()) == []
