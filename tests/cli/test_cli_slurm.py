"""``--slurm`` with stand-ins for sbatch, squeue and scancel; a real Slurm is in tests/slurm."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.cli.slurm import read_job_file, without_slurm
from aiperf.errors import UserError
from aiperf.launch.nodes.slurm import SlurmJob, State, minutes
from aiperf.recipes.session import MeasurementSession

SBATCH = """#!/bin/bash
printf '%s\\n' "$@" > {log}
cp "${{@: -1}}" {log}.script
cd {results}/.nodes
echo "the table" > slurm-17.out; echo "a note" > slurm-17.err
{ends}
echo 17
"""
SQUEUE = '#!/bin/bash\necho "{state}"\n'


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Give the stand-ins an end: the exit code of the job's command, or none, and Slurm's word for the job."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr("aiperf.launch.nodes.slurm._LAG_S", 0.3)

    def program(name: str, text: str) -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def made(*, code: int | None = 0, state: str = "COMPLETED|n[1-2]|None") -> None:
        ends = f"echo {code} > slurm-17.exit" if code is not None else "true"
        program("sbatch", SBATCH.format(log=tmp_path / "asked", results=tmp_path, ends=ends))
        program("squeue", SQUEUE.format(state=state))

    return made


def typed(user, tmp_path, *more: str):
    return user.types("run", "x", "--slurm", "-N", "2", *more, "--results", str(tmp_path))


def test_a_job_takes_whole_nodes_and_runs_the_same_command_on_each(cluster, user, tmp_path):
    cluster()
    done = typed(user, tmp_path, "--time", "90s", "--partition", "p", "--gpus-per-node", "8", "--seed", "4")
    asked, script = (tmp_path / "asked").read_text().split("\n"), (tmp_path / "asked.script").read_text()
    assert {"--nodes=2", "--exclusive", "--time=2", "--partition=p", "--gpus-per-node=8"} <= set(asked)
    assert f'-m aiperf run "${{resume[@]}}" x --seed 4 --results {tmp_path} --launcher env\n' in script
    assert "--no-requeue" in asked
    assert (done.code, done.out) == (0, "the table\n")
    assert done.err.splitlines() == ["a note", "job 17: completed on n[1-2]"]


def test_a_job_that_starts_again_goes_on_in_the_run_that_it_began(cluster, user, tmp_path):
    cluster()
    (tmp_path / "cluster.yaml").write_text("requeue: true\nnodes: 2\n")
    done = user.types("run", "x", "--slurm-file", str(tmp_path / "cluster.yaml"), "--results", str(tmp_path))
    assert done.code == 0
    assert "--requeue" in (tmp_path / "asked").read_text().split("\n")
    srun = tmp_path / "bin" / "srun"
    srun.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > $AIPERF_RUN_NOTE.args; echo RUN-7 > $AIPERF_RUN_NOTE; exit 3\n')
    srun.chmod(0o755)
    stem, given = tmp_path / ".nodes" / "slurm-17", []
    for again in ("0", "1"):
        env = {**os.environ, "SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": again}
        subprocess.run(["bash", str(tmp_path / "asked.script")], env=env, check=True)
        given.append(Path(f"{stem}.run.args").read_text().split())
        assert Path(f"{stem}.exit").read_text() == "3\n"
    assert [("--resume" in args) for args in given] == [False, True]
    assert given[1][given[1].index("run") + 1 :][:3] == ["--resume", "RUN-7", "x"]


def test_the_exit_code_of_the_command_is_that_of_the_job(cluster, user, tmp_path):
    cluster(code=5, state="FAILED|n[1-2]|NonZeroExitCode")
    assert typed(user, tmp_path).code == 5


@pytest.mark.parametrize(("said", "code"), [("echo 5 > $AIPERF_EXIT_NOTE", 5), ("true", 130)])
def test_where_a_node_was_killed_the_heads_own_exit_code_counts_and_srun_s_never(cluster, user, tmp_path, said, code):
    cluster(code=None, state="FAILED|n[1-2]|NonZeroExitCode")
    typed(user, tmp_path, "--detach")
    srun = tmp_path / "bin" / "srun"
    srun.write_text(f"#!/bin/bash\n{said}; echo RUN-7 > $AIPERF_RUN_NOTE; exit 137\n")
    srun.chmod(0o755)
    env = {**os.environ, "SLURM_JOB_ID": "17"}
    subprocess.run(["bash", str(tmp_path / "asked.script")], env=env, check=True)
    done = user.types("run", "--collect", "17", "--results", str(tmp_path))
    assert (done.code, "--resume RUN-7" in done.err) == (code, code == 130)


@pytest.mark.parametrize(("rank", "noted"), [("0", ["2"]), pytest.param("1", [], marks=pytest.mark.long)])
def test_the_head_alone_notes_its_exit_code(tmp_path, rank, noted):
    env = {**os.environ, "AIPERF_EXIT_NOTE": str(tmp_path / "note"), "SLURM_PROCID": rank}
    done = subprocess.run(
        [sys.executable, "-m", "aiperf", "run", "--no-such"], env=env, capture_output=True, check=False
    )
    note = tmp_path / "note"
    assert (done.returncode, note.read_text().split() if note.exists() else []) == (2, noted)
    assert b"AIPERF_EXIT_NOTE" not in done.stderr


def test_inside_an_allocation_too_the_heads_exit_code_counts(cluster, user, tmp_path, monkeypatch):
    cluster()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    (tmp_path / ".nodes").mkdir()
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/bash\necho 5 > $AIPERF_EXIT_NOTE; exit 137\n")
    srun.chmod(0o755)
    assert typed(user, tmp_path).code == 5
    assert list((tmp_path / ".nodes").iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(("run", "x", "-N", "2"), marks=pytest.mark.long),
        ("ab", "--resume", "latest", "--", "a -q", "b"),
    ],
)
def test_a_job_that_ends_before_its_command_says_what_goes_on_in_its_run(cluster, user, tmp_path, line):
    cluster(code=None, state="NODE_FAIL|n[1-2]|None")
    user.types(line[0], "--slurm", "--results", str(tmp_path), "--detach", *line[1:])
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/bash\necho RUN-7 > $AIPERF_RUN_NOTE; kill -9 $PPID\n")
    srun.chmod(0o755)
    env = {**os.environ, "SLURM_JOB_ID": "17"}
    subprocess.run(["bash", str(tmp_path / "asked.script")], env=env, check=False, capture_output=True)
    done = user.types(line[0], "--collect", "17", "--results", str(tmp_path))
    assert (done.code, done.out) == (130, "the table\n")
    again = done.err.partition("ended before its command: NODE_FAIL; continue with: aiperf ")[2].strip()
    kept = line[1:] if line[0] == "run" else line[3:]
    assert shlex.split(again) == [line[0], "--resume", "RUN-7", "--slurm", "--results", str(tmp_path), *kept]


def test_a_folder_that_filled_up_is_named_and_what_goes_on_when_there_is_room(cluster, user, tmp_path, monkeypatch):
    cluster(code=None, state="FAILED|n[1-2]|None")
    user.types("run", "x", "--slurm", "-N", "2", "--results", str(tmp_path), "--detach")
    folder = tmp_path / ".nodes"
    (folder / "slurm-17.run").write_text("RUN-7")
    (folder / "slurm-17.typed").write_text("aiperf run x --slurm -N 2")
    monkeypatch.setattr("aiperf.launch.nodes.links.LEAST_SPACE", 1 << 62)
    done = user.types("run", "--collect", "17", "--results", str(tmp_path))
    assert (done.code, done.out) == (2, "the table\n")
    assert "once there is space, continue with: aiperf run --resume RUN-7 x --slurm -N 2\n" in done.err
    assert "its file system is full" in done.err


@pytest.mark.parametrize("command", [("run", "x"), pytest.param(("survey", "-N", "2"), marks=pytest.mark.long)])
def test_a_job_that_stored_nothing_is_to_be_submitted_again(cluster, user, tmp_path, command):
    cluster(code=None, state="NODE_FAIL|n[1-2]|None")
    done = user.types(*command, "--slurm", "--results", str(tmp_path))
    assert (done.code, done.out) == (130, "the table\n")
    assert "ended before its command: NODE_FAIL; it stored nothing; submit it again" in done.err


def test_a_run_that_is_interrupted_in_a_job_names_the_command_that_submits_it_again(user, monkeypatch):
    monkeypatch.setenv("AIPERF_TYPED", "aiperf run tiny.yaml --slurm -N 2 --time 5min")
    monkeypatch.setattr(MeasurementSession, "measure", interrupted)
    stopped = user.runs("tiny.yaml")
    (folder,) = (user.folder / "results").glob("2*")
    again = f"aiperf run --resume {folder.name} tiny.yaml --slurm -N 2 --time 5min"
    assert (stopped.code, f"continue with: {again}" in " ".join(stopped.out.split())) == (130, True)


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", [("run", "x"), ("ab", "a", "b"), ("survey",)])
def test_detached_it_prints_how_to_collect_and_collecting_brings_the_table(cluster, user, tmp_path, command):
    cluster(code=3)
    done = user.types(*command, "--slurm", "--detach", "--results", str(tmp_path))
    assert (done.code, f"aiperf {command[0]} --collect 17 --results" in done.out) == (0, True)
    again = user.types(command[0], "--collect", "17", "--results", str(tmp_path))
    assert (again.code, again.out) == (3, "the table\n")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("run", "x"), "NAME|TAG|PATH|GLOB ..."),
        (("ab", "--slurm"), "--slurm"),
        (("survey", "-N", "2"), "--nodes"),
        (("run", "--json"), "--json"),
    ],
)
def test_what_is_typed_beside_collect_and_would_have_no_effect_is_refused(user, more, named):
    done = user.types(*more, "--collect", "17")
    assert (done.code, f"--collect: cannot be combined with {named}." in done.err) == (2, True)


def test_the_options_of_a_job_without_slurm_are_a_mistake(user):
    done = user.types("run", "x", "-N", "2")
    assert (done.code, "Add --slurm" in done.err) == (2, True)


def test_a_file_holds_what_does_not_change_and_flags_win(cluster, user, tmp_path):
    cluster()
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: 4\npartition: h100\ntime: 1h\nsbatch: [--constraint=nvlink]\nsetup: [module load cuda]\n")
    assert typed(user, tmp_path, "--slurm-file", str(file)).code == 0
    asked, script = (tmp_path / "asked").read_text().split("\n"), (tmp_path / "asked.script").read_text()
    assert {"--nodes=2", "--partition=h100", "--time=60", "--constraint=nvlink"} <= set(asked)
    assert "module load cuda\nsrun" in script


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node: 2", "unknown key node."),
        ("nodes: two", "nodes: 'two' is not a number."),
        ("setup: x", "is not a list of lines"),
        ("- 1", "is not a mapping"),
        ("time: 20", "is not a time"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_submitted(tmp_path, text, said):
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_job_file(file, SlurmJob, "minutes", minutes)
    assert said in str(caught.value) + str(caught.value.faults)


def test_the_command_of_a_job_has_none_of_the_options_of_slurm():
    argv = [
        "run",
        "a",
        "b",
        "--slurm",
        "-N",
        "2",
        "--time=5min",
        "--partition",
        "p",
        "-q",
        "--detach",
        "--gpus-per-node=8",
        "--seed",
        "3",
    ]
    assert without_slurm(argv) == ["run", "a", "b", "-q", "--seed", "3"]
    assert without_slurm(["run", "-N2", "a", "--", "--slurm"]) == ["run", "a", "--", "--slurm"]


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("CANCELLED||None", 130, "job 17 was cancelled before it started\n"),
        ("", 2, "--collect: Slurm no longer knows the job, and job 17 left nothing in "),
    ],
)
def test_a_job_that_left_nothing_says_why(cluster, user, tmp_path, state, code, said):
    cluster(state=state)
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.write_text("#!/bin/sh\nexit 0\n")
    scontrol.chmod(0o755)
    done = user.types("run", "--collect", "17", "--results", str(tmp_path))
    assert (done.code, done.out, said in done.err) == (code, "", True), done.err


@pytest.mark.parametrize(
    ("line", "nodes", "spread"),
    [(("run", "x"), 3, True), (("run", "x", "-N", "2"), 2, True), (("ab", "a", "b"), 1, False)],
)
def test_inside_an_allocation_all_nodes_are_used_unless_told_how_many(
    cluster, user, tmp_path, monkeypatch, line, nodes, spread
):
    cluster()
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    srun = tmp_path / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path / "ran"}; exit 5\n')
    srun.chmod(0o755)
    assert user.types(*line, "--slurm", "--results", str(tmp_path)).code == 5
    ran = (tmp_path / "ran").read_text().split("\n")
    assert (f"--nodes={nodes}" in ran, "--launcher" in ran) == (True, spread)
    assert not (tmp_path / "asked").exists(), "nothing is submitted"
    few = user.types("run", "x", "--slurm", "-N", "4", "--results", str(tmp_path))
    assert (few.code, "--nodes: this allocation holds 3 of 4 nodes." in few.err) == (2, True)


TWO_NODES = "all-reduce-flat-vs-hierarchical"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ((TWO_NODES, "--slurm", "-N", "64"), "64 nodes, but no case uses more than 2.\n  Use -N 2."),
        ((TWO_NODES, "--slurm-file", "cluster.yaml"), "4 nodes, but no case uses more than 2.\n  Use -N 2."),
        (("tiny.yaml", "--slurm", "-N", "2"), "2 nodes, but no case uses more than 1.\n  Leave -N out."),
        ((TWO_NODES, "--kubernetes", "-N", "3", "--image", "i", "--claim", "c"), "3 nodes, but no case uses more than"),
    ],
)
def test_a_job_with_nodes_that_no_case_uses_is_refused_before_it_is_submitted(cluster, user, tmp_path, line, said):
    cluster()
    (user.folder / "cluster.yaml").write_text("nodes: 4\n")
    results = [] if "--kubernetes" in line else ["--results", str(tmp_path)]
    done = user.types("run", *line, *results)
    assert (done.code, done.out, f"--nodes: the job would hold {said}" in done.err) == (2, "", True), done.err
    assert not (tmp_path / "asked").exists(), "nothing is submitted"


def test_a_job_with_as_many_nodes_as_its_largest_case_is_submitted(cluster, user, tmp_path):
    cluster()
    assert user.types("run", TWO_NODES, "tiny.yaml", "--slurm", "-N", "2", "--results", str(tmp_path)).code == 0
    assert "--nodes=2" in (tmp_path / "asked").read_text().split("\n")


def test_inside_an_allocation_nodes_that_no_case_uses_stay_idle_and_it_says_so(cluster, user, tmp_path, monkeypatch):
    cluster()
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "5")
    srun = tmp_path / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path / "ran"}\n')
    srun.chmod(0o755)
    done = user.types("run", TWO_NODES, "--slurm", "--results", str(tmp_path))
    assert "2 of 5 nodes are used: no case is spread over more" in done.err
    assert {"--nodes=2", "--launcher"} <= set((tmp_path / "ran").read_text().split("\n"))


@pytest.mark.parametrize("line", [("--slurm",), ("--slurm", "-N", "2", "--detach"), ("--slurm-file", "cluster.yaml")])
def test_a_dry_run_queues_no_job(cluster, user, tmp_path, line):
    cluster()
    (user.folder / "cluster.yaml").write_text("nodes: 2\n")
    done = user.types("run", "x", "--dry-run", *line, "--results", str(tmp_path))
    assert done.code == 2
    assert "--dry-run: cannot be combined with --slurm: the plan depends on the nodes of the job." in done.err
    assert not (tmp_path / "asked").exists(), "nothing is submitted"
    assert not (tmp_path / ".nodes").exists()


def test_a_dry_run_inside_an_allocation_plans_on_its_nodes(cluster, user, tmp_path, monkeypatch):
    cluster()
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    srun = tmp_path / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path / "ran"}\n')
    srun.chmod(0o755)
    assert user.types("run", "x", "--dry-run", "--slurm", "--results", str(tmp_path)).code == 0
    assert {"--nodes=3", "--dry-run"} <= set((tmp_path / "ran").read_text().split("\n"))
    assert not (tmp_path / "asked").exists()


def test_a_run_over_nodes_cannot_go_on_without_them_and_it_says_how(user, monkeypatch):
    user.runs("tiny.yaml")
    (file,) = (user.folder / "results").glob("2*/run.json")
    record = json.loads(file.read_text())
    record["argv"] += ["--launcher", "env"]
    record["nodes"] = [{"node": "n2"}, {"node": "n3"}]
    file.write_text(json.dumps(record))
    done = user.types("run", "--resume", "latest", "--results", str(user.folder / "results"))
    assert done.code == 2
    assert f"{file.parent.name} was started on 3 nodes." in done.err
    assert "Type: aiperf run --resume latest --slurm -N 3, or start it with the same launcher." in done.err


def test_how_a_job_fares_in_a_few_words():
    assert State("PENDING", "", "Resources").line == "queued (Resources)"
    assert State("RUNNING", "n[1-2]").line == "running on n[1-2]"
    assert [State(word).over for word in ("RUNNING", "TIMEOUT", "")] == [False, True, True]
    assert SlurmJob(account="a").options()[-1] == "--account=a"


@pytest.mark.parametrize("typed", [("--partition", "p"), ("--gpus-per-node", "8"), ("--time", "20min"), ("--detach",)])
def test_an_option_of_a_job_without_a_job_is_named_as_it_was_typed(user, typed):
    told = user.types("run", "tiny.yaml", *typed)
    assert (told.code, f"{typed[0]}: applies only to a job." in told.err) == (2, True)
