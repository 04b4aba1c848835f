import subprocess
from dataclasses import replace

import pytest

from aiperf.host.facts import Gpu, HostFacts
from aiperf.host.fingerprint import environment, fingerprint, git_state, software_versions

GPU = Gpu(0, "NVIDIA H200", "GPU-1", "9.0", 150754820096, 1, 700.0, 1980, True, False, "96.00")
HOST = HostFacts(
    hostname="node1",
    system="Linux",
    cpu_model="AMD EPYC",
    cpus=(0, 1),
    memory_total=24 * 1024**3 - 5_000_000,
    memory_available=1,
    gpus=(GPU,),
    driver="580.1",
    python="3.11.7",
    libraries={"torch": "2.11.0", "rich": "15"},
)


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_the_host_id_is_stable_over_what_changes_between_two_runs(tmp_path):
    first, fields = fingerprint(HOST, root=tmp_path)
    again = replace(HOST, hostname="node2", memory_available=2, memory_total=HOST.memory_total - 4096)
    again = replace(again, gpus=(replace(GPU, uuid="GPU-2", memory_free=9),), container="docker")
    second, other = fingerprint(again, root=tmp_path)
    assert first == second
    assert len(first) == 12
    assert fields["record_only"]["hostname"] != other["record_only"]["hostname"]


def test_the_machine_id_tells_equal_machines_apart_and_is_not_kept_as_it_is(tmp_path):
    (tmp_path / "etc").mkdir()
    ids = []
    for text in ("", "3d1219c7c4c5404a\n", "3d1219c7c4c5404b\n"):
        (tmp_path / "etc" / "machine-id").write_text(text)
        host_id, fields = fingerprint(HOST, root=tmp_path)
        assert host_id == fingerprint(HOST, root=tmp_path / "nowhere")[0]
        assert "3d1219c7" not in str(fields)
        ids.append(fields["record_only"]["machine_id"])
    assert ids[0] == ""
    assert len({*ids}) == 3


def test_the_host_id_changes_with_every_must_match_field(tmp_path):
    changes = (
        {"cpu_model": "Xeon"},
        {"cpus": (0,)},
        {"memory_total": 12 * 1024**3},
        {"driver": "590"},
        {"python": "3.12.1"},
        {"libraries": {"torch": "2.12.0"}},
        {"gpus": (replace(GPU, power_limit_w=500.0),)},
        {"gpus": (GPU, GPU)},
        {"peer_access": True},
    )
    ids = {fingerprint(replace(HOST, **change), root=tmp_path)[0] for change in changes}
    assert len(ids) == len(changes)
    assert fingerprint(HOST, root=tmp_path)[0] not in ids


def test_libraries_that_change_no_kernel_do_not_change_the_host_id(tmp_path):
    other = replace(HOST, libraries={"torch": "2.11.0", "rich": "16"})
    assert fingerprint(HOST, root=tmp_path)[0] == fingerprint(other, root=tmp_path)[0]


def test_software_versions_name_what_matters_only():
    assert software_versions({"torch": "2.11.0", "rich": "15"}) == {"torch": "2.11.0"}


def test_the_recorded_environment_is_an_allow_list_without_secrets():
    env = {"OMP_NUM_THREADS": "2", "HOME": "/root", "TORCH_HUB_TOKEN": "x", "AWS_SECRET": "x", "NCCL_ALGO": "Ring"}
    assert environment(env) == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "2"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_JWT", "x"),
        ("NCCL_PROXY", "socks5://me:hunter2@gateway"),
        ("TORCH_HUB", "hf_abcdefgh12345678"),
        ("TORCH_LOGS", "Bearer abc"),
        ("OMP_PLACES", "ghp_0123456789abcdef"),
        ("SLURM_JOB_ID", "17"),
        ("SLURM_STEP_NODELIST", "n[1-4]"),
        ("SLURM_JOB_START_TIME", "1"),
        ("AIPERF_PAD", "xxx"),
        ("PYTHONPATH", "/home/me"),
    ],
)
def test_a_secret_and_what_names_one_job_are_not_recorded(name, value):
    assert environment({name: value, "SLURM_CPUS_PER_TASK": "4"}) == {"SLURM_CPUS_PER_TASK": "4"}


def test_a_folder_without_git_has_no_state(tmp_path):
    assert git_state(tmp_path) == {}


def test_a_change_is_seen_in_a_checkout_whose_git_lacks_the_contents_of_files(tmp_path):
    whole, bare = tmp_path / "whole", tmp_path / "bare"
    whole.mkdir()
    git(whole, "init")
    (whole / "code.py").write_text("one\n")
    (whole / "same.py").write_text("same\n")
    git(whole, "add", ".")
    git(whole, "commit", "-m", "first")
    git(whole, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--no-checkout", "--filter=blob:none", f"file://{whole}", str(bare))
    git(bare, "reset")
    git(bare, "remote", "remove", "origin")
    for name in ("code.py", "same.py"):
        (bare / name).write_text((whole / name).read_text())
    clean = git_state(bare)
    assert clean == git_state(whole)
    (bare / "code.py").write_text("two\n")
    first = git_state(bare)
    (bare / "code.py").write_text("three\n")
    assert first["sha"] == clean["sha"]
    assert len({first.get("diff"), git_state(bare).get("diff"), None}) == 3


def test_the_diff_hash_follows_every_change_of_a_checkout(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "code.py").write_text("one\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = git_state(tmp_path)
    assert set(clean) == {"sha"}
    assert len(clean["sha"]) == 40

    (tmp_path / "code.py").write_text("two\n")
    changed = git_state(tmp_path)
    git(tmp_path, "add", ".")
    assert git_state(tmp_path) == changed
    (tmp_path / "new.py").write_text("three\n")
    untracked = git_state(tmp_path)
    (tmp_path / "new.py").write_text("four\n")
    edited = git_state(tmp_path)
    assert len({changed["diff"], untracked["diff"], edited["diff"]}) == 3
    assert changed["sha"] == clean["sha"]


def test_the_first_files_of_a_change_are_named(tmp_path):
    git(tmp_path, "init")
    for name in "abc":
        (tmp_path / name).write_text("one\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    assert "changed" not in git_state(tmp_path)
    (tmp_path / "b").write_text("two\n")
    assert git_state(tmp_path)["changed"] == "b"
    (tmp_path / "new").mkdir()
    for name in ("a", "c", "new/x", "new/y"):
        (tmp_path / name).write_text("three\n")
    assert git_state(tmp_path)["changed"] == "a, b, c, 2 more"
