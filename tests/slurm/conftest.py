"""One Slurm of two nodes for all of these tests, and one of three for those that lose a node."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.slurm.local_slurm import LocalSlurm, missing


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    with started(tmp_path_factory.mktemp("slurm"), 2) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory):
    with started(tmp_path_factory.mktemp("slurm-of-three"), 3) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def _no_job_stays(request):
    yield
    for name in {"cluster", "three_nodes"} & set(request.fixturenames):
        request.getfixturevalue(name).cancel_all()


@contextmanager
def started(folder, nodes):
    if why := missing():
        pytest.fail(f"no Slurm can be started here: {why}", pytrace=False)
    slurm = LocalSlurm(folder, nodes=nodes)
    slurm.start()
    yield slurm
    slurm.stop()
