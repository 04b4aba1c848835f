"""Which process of a job this one is, by the variables of whoever started it: torchrun, srun or mpirun.

What must not live here: talking to the other processes.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.errors import usage

_HINT = "Start it with srun, torchrun or mpirun, or set RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE."


@dataclass(frozen=True)
class Place:
    """One process of a job."""

    launcher: str
    """torchrun, srun or mpirun: whose variables were read."""
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
    """The place of this process. torchrun's variables come first, for it may run under srun. Raises UserError."""
    if {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= env.keys():
        local = _number(env, "LOCAL_WORLD_SIZE", "1")
        job = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")
        return _place(env, "torchrun", ("RANK", "LOCAL_RANK", "WORLD_SIZE"), job, local=local)
    if {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"} <= env.keys():
        local = _number(env, "OMPI_COMM_WORLD_LOCAL_SIZE", "1")
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")
        return _place(env, "mpirun", names, ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID"), local=local)
    if {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"} <= env.keys():
        names = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS")
        return _place(env, "srun", names, ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"))
    raise usage("no launcher's variables are set.", _HINT, "--launcher env")


def _place(
    env: Mapping[str, str], launcher: str, names: tuple[str, str, str], job: tuple[str, ...], *, local: int = 0
) -> Place:
    """``local``: processes on each node; 0 where the launcher says how many nodes there are."""
    rank, local_rank, world = (_number(env, name) for name in names)
    nodes = world // max(1, local) if local else _number(env, "SLURM_STEP_NUM_NODES")
    if not 0 <= rank < world or not 0 <= local_rank <= rank or nodes < 1 or (local and world % local):
        raise usage(
            f"the launcher's variables contradict each other: rank {rank}, local rank {local_rank}, {world} processes, "
            f"{local or '?'} on each node.",
            _HINT,
            "--launcher env",
        )
    name = env.get("SLURMD_NODENAME") or env.get("AIPERF_NODE") or platform.node()
    key = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join([launcher, *(env.get(part, "") for part in job)]))
    return Place(launcher, rank, local_rank, world, nodes, name, key)


def _number(env: Mapping[str, str], name: str, default: str = "") -> int:
    text = env.get(name, default)
    if not text.isdecimal():
        raise usage(f"{name} is {text!r}, which is not a number.", _HINT, "--launcher env")
    return int(text)
