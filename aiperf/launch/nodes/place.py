"""Which process of a job this one is, by the variables of whoever started it: torchrun, mpirun, mpiexec or srun.

What must not live here: talking to the other processes.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.errors import usage

_HINT = "Start it with srun, torchrun, mpirun or mpiexec, or set RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE."


@dataclass(frozen=True)
class _Variables:
    """The variables by which a launcher says which process of which job this is."""

    name: str
    whose: str
    """Whose variables they are, for people."""
    place: tuple[str, str, str]
    """Rank, local rank and world size."""
    local_size: str
    """Number of processes on this node; empty where the launcher says how many nodes there are."""
    job: tuple[str, ...]
    """What is the same in all processes of a job, as far as it is set."""
    more: tuple[str, ...] = ()
    """What must be set, too."""


# The first that applies counts: torchrun may run under srun, and so may Hydra, which starts its proxies by it.
_READ = (
    _Variables(
        "torchrun", "torchrun", ("RANK", "LOCAL_RANK", "WORLD_SIZE"), "LOCAL_WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT"),
    ),
    _Variables(
        "mpirun", "Open MPI", ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
        "OMPI_COMM_WORLD_LOCAL_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID"),
    ),
    _Variables(
        "mpiexec", "MPICH, Intel MPI", ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"), "MPI_LOCALNRANKS",
        ("I_MPI_HYDRA_UUID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"),
    ),
    _Variables(
        "srun", "srun", ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"), "",
        ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"), more=("SLURM_STEP_ID",),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """One process of a job."""

    launcher: str
    """torchrun, mpirun, mpiexec or srun: whose variables were read."""
    rank: int
    local_rank: int
    """Among the processes of this node."""
    world: int
    nodes: int
    node: str
    """This node, as the scheduler calls it."""
    job: str
    """The same in all processes of the job and in no other job; part of a file's name."""

    @property
    def is_head(self) -> bool:
        """Whether it plans, measures and prints."""
        return self.rank == 0

    @property
    def is_agent(self) -> bool:
        """Whether it acts for a node other than the head's; further processes on a node have nothing to do."""
        return self.rank > 0 and self.local_rank == 0


def read_place(env: Mapping[str, str] = os.environ) -> Place:
    """The place of this process. Raises UserError where no launcher says one."""
    for launcher in _READ:
        if {*launcher.place, *launcher.more} <= env.keys():
            return _place(env, launcher)
    read = "; ".join(f"{', '.join(one.place)} ({one.whose})" for one in _READ)
    raise usage(f"no launcher's variables are set: {read}.", _HINT, "--launcher env")


def _place(env: Mapping[str, str], launcher: _Variables) -> Place:
    rank, local_rank, world = (_number(env, name) for name in launcher.place)
    local = _number(env, launcher.local_size, "1") if launcher.local_size else 0
    nodes = world // max(1, local) if local else _number(env, "SLURM_STEP_NUM_NODES")
    if not 0 <= rank < world or not 0 <= local_rank <= rank or nodes < 1 or (local and world % local):
        raise usage(
            f"the launcher's variables contradict each other: rank {rank}, local rank {local_rank}, {world} processes, "
            f"{local or '?'} on each node.",
            _HINT,
            "--launcher env",
        )
    name = env.get("SLURMD_NODENAME") or env.get("AIPERF_NODE") or platform.node()
    key = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join([launcher.name, *(env.get(part, "") for part in launcher.job)]))
    return Place(launcher.name, rank, local_rank, world, nodes, name, key)


def _number(env: Mapping[str, str], name: str, default: str = "") -> int:
    text = env.get(name, default)
    if not text.isdecimal():
        raise usage(f"{name} is {text!r}, which is not a number.", _HINT, "--launcher env")
    return int(text)
