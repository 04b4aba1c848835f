"""One Slurm of two nodes for all of these tests."""

from __future__ import annotations

import pytest

from tests.slurm.two_node_slurm import TwoNodes, missing


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    if why := missing():
        pytest.fail(f"no Slurm can be started here: {why}", pytrace=False)
    nodes = TwoNodes(tmp_path_factory.mktemp("slurm"))
    nodes.start()
    yield nodes
    nodes.stop()
