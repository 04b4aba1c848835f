"""Who is who in a job, by the variables of its launcher."""

from __future__ import annotations

import pytest

from aiperf.errors import UserError
from aiperf.launch.nodes.place import read_place

SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_JOB_ID": "77",
    "SLURMD_NODENAME": "n2",
}
TORCHRUN = {"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "r/1"}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "55",
}


def test_srun_says_rank_local_rank_world_nodes_and_node():
    place = read_place(SRUN)
    assert (place.launcher, place.rank, place.local_rank, place.world, place.nodes) == ("srun", 3, 1, 4, 2)
    assert (place.node, place.is_head, place.is_agent) == ("n2", False, False)


def test_the_first_process_of_another_node_acts_for_it():
    place = read_place(TORCHRUN)
    assert (place.launcher, place.nodes, place.is_head, place.is_agent) == ("torchrun", 2, False, True)


def test_mpirun_is_understood_too():
    place = read_place(MPIRUN)
    assert (place.launcher, place.nodes, place.is_head) == ("mpirun", 3, True)


def test_mpiexec_of_mpich_and_intel_mpi_is_understood_and_counts_before_the_srun_that_starts_it():
    hydra = {"PMI_RANK": "2", "PMI_SIZE": "6", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    place = read_place({**SRUN, **hydra})
    assert (place.launcher, place.rank, place.local_rank, place.world, place.nodes) == ("mpiexec", 2, 0, 6, 3)
    assert (place.is_head, place.is_agent) == (False, True)
    assert place.job != read_place({**SRUN, **hydra, "SLURM_JOB_ID": "78"}).job
    assert place.job != read_place({**SRUN, **hydra, "I_MPI_HYDRA_UUID": "9d26"}).job


def test_the_variables_of_pmi_alone_which_srun_sets_too_are_not_taken_for_mpiexec():
    assert read_place({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "4"}).launcher == "srun"


def test_what_is_read_is_named_where_nothing_is_set():
    with pytest.raises(UserError) as caught:
        read_place({"PMI_RANK": "0"})
    for read in (TORCHRUN, MPIRUN, SRUN):
        assert next(name for name in read if "RANK" in name or "PROCID" in name) in caught.value.faults[0].what
    assert "PMI_RANK, MPI_LOCALRANKID, PMI_SIZE (MPICH, Intel MPI)" in caught.value.faults[0].what


def test_torchrun_under_srun_counts_before_srun():
    assert read_place({**SRUN, **TORCHRUN}).launcher == "torchrun"


def test_every_process_of_a_job_names_the_same_meeting_and_another_job_another_one():
    other = {**SRUN, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n1"}
    assert read_place(SRUN).job == read_place(other).job
    assert read_place({**SRUN, "SLURM_JOB_ID": "78"}).job != read_place(SRUN).job
    assert read_place({**SRUN, "SLURM_RESTART_COUNT": "1"}).job != read_place(SRUN).job
    assert "/" not in read_place(TORCHRUN).job


def test_a_batch_script_is_no_step_of_a_job():
    batch = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"}
    with pytest.raises(UserError, match="no launcher's variables are set"):
        read_place(batch)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"RANK": "x"}, "not a number"), ({"RANK": "4"}, "contradict"), ({"LOCAL_WORLD_SIZE": "3"}, "contradict")],
)
def test_variables_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(UserError, match=said):
        read_place({**TORCHRUN, **wrong})
