"""GPU time of programs from the command line, on a machine whose driver, NVML and libcupti are stand-ins."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_user import User

from aiperf.launch import injection
from aiperf.launch.injection import cupti_places

SOURCES = Path(__file__).parents[1] / "launch" / "injected"
OWN = Path(injection.__file__).parent / "injected"
HOST = Path(__file__).parents[1] / "host"
SCENARIO = """\
title: Two programs by their GPU time
why: To be gated.
needs: {{gpus: 1}}
before: {{command: [sh, program.sh], env: {{SIDE: before}}}}
after: {{command: [sh, program.sh], env: {{SIDE: after}}}}
measure: {{clock: gpu}}
metrics: {{speed: 'tokens/s: ([0-9.]+)'}}
"""
PROGRAM = "export STUB_SCATTER=1 STUB_SCENE={scene}\n{driver} && echo tokens/s: 5\n"


@pytest.fixture
def gpu_user(user: User, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> User:
    """A user with one GPU, in a repository of one program that keeps it busy for half a millisecond."""
    built = tmp_path_factory.mktemp("built")
    for target, source, *flags in (("libcupti.so", "stub_cupti.c", "-shared", "-fPIC"), ("driver", "driver.c")):
        words = ["cc", *flags, "-I", str(OWN), "-o", str(built / target), str(SOURCES / source), "-ldl"]
        subprocess.run(words, check=True)
    monkeypatch.setenv("AIPERF_CUPTI", str(built / "libcupti.so"))
    monkeypatch.syspath_prepend(str(HOST))
    from host_fake_nvml import FakeGpu, FakeNvml

    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(FakeGpu()))
    cupti_places.cache_clear()
    user.driver = str(built / "driver")
    user.write("program.sh", PROGRAM.format(scene="", driver=user.driver))
    user.write("by-gpu.yaml", SCENARIO.format())
    user.write("gate.yaml", "metrics: {gpu_busy: {}, speed: {}}\n")
    user.write(".gitignore", "results/\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=user.folder, check=True)
    yield user
    cupti_places.cache_clear()


@pytest.mark.long
def test_gpu_time_is_run_gated_kept_in_history_and_exported_with_unit_and_direction(gpu_user):
    done = gpu_user.runs("./by-gpu.yaml", "--json")
    assert done.code == 0, done.err
    (row,) = [row for row in json.loads(done.out)["rows"] if row["primary"]]
    assert (row["metric"], row["unit"], row["better"]) == ("gpu_busy", "s", "lower")
    history = gpu_user.types("history", "by-gpu")
    assert "by-gpu · gpu_busy, lower is better" in history.out
    assert gpu_user.types("report", "latest", "--html", "--output", "page.html").code == 0
    assert "gpu_busy" in (gpu_user.folder / "page.html").read_text()
    told = gpu_user.types("export", "--all", "-o", "-", "--format", "csv").out
    rows = {row["metric"]: (row["unit"], row["better"]) for row in csv.DictReader(io.StringIO(told))}
    assert rows["gpu_busy"] == ("s", "lower")
    assert rows["gpu_copied"] == ("B", "lower")
    assert rows["speed"] == ("tokens/s", "higher")


@pytest.mark.long
def test_a_change_that_keeps_the_gpu_busy_for_longer_does_not_pass_the_gate(gpu_user):
    gpu_user.write("program.sh", PROGRAM.format(scene="many", driver=gpu_user.driver))
    argv = ("gate", "./by-gpu.yaml", "--against", "HEAD", "--config", "gate.yaml")
    done = gpu_user.types(*argv, "--precision", "fast.yaml", "--no-peaks", "--json")
    assert done.code == 1, done.err
    rows = {row["metric"]: row for row in json.loads(done.out)["rows"]}
    assert (rows["gpu_busy"]["status"], rows["gpu_busy"]["confirmed"]) == ("regressed", True)
    assert rows["gpu_busy"]["unit"] == "s"
    assert rows["speed"]["status"] == "passed"


def test_a_gate_says_what_a_program_printed_instead_of_its_metric(gpu_user):
    gpu_user.write("program.sh", f"{gpu_user.driver} && echo images/s: 5\n")
    argv = ("gate", "./by-gpu.yaml", "--against", "HEAD", "--config", "gate.yaml")
    done = gpu_user.types(*argv, "--precision", "fast.yaml", "--no-peaks")
    assert done.code == 5
    said = " ".join(done.out.split())
    assert 'a line that matches "tokens/s: ([0-9.]+)" was expected, but its last line is "images/s: 5"' in said
