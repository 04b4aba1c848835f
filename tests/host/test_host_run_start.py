"""What a run reads as it starts beside the doctor's probes: leftovers of earlier runs, of debugging, of other users."""

from __future__ import annotations

import os

import pytest
from host_fake_nvml import LIBRARY_NOT_FOUND, FakeGpu, FakeNvml
from host_recorded import MEMINFO, machine, process, write

from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import fingerprint
from aiperf.host.peaks import load_peaks
from aiperf.host.probes.reader import HostReader
from aiperf.host.probes.run_start import RUN_PROBES

HOST = HostFacts("node", "Linux", "AMD EPYC", (0, 1), 1, 1)
NO_NVML = FakeNvml(init_error=LIBRARY_NOT_FOUND)


def found(root, id_, *, environ=None, library=NO_NVML):
    reader = HostReader(root=root, environ=environ or {}, library=library, host=HOST, command=lambda argv: None)
    (finding,) = next(probe for probe in RUN_PROBES if probe.id == id_).findings(reader)
    return finding


def test_stale_workers_are_named_and_not_ended(tmp_path):
    root = process(machine(tmp_path), 50, arguments=("python3", "-m", "aiperf.worker"))
    finding = found(root, "stale_workers")
    assert finding.level == "warn"
    assert finding.fix.startswith("kill 50")


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, "debug_env"),
        ({"TORCHDYNAMO_DISABLE": "1"}, "compile_env"),
        ({"TORCH_COMPILE_DISABLE": "true"}, "compile_env"),
        ({"TRITON_INTERPRET": "1"}, "gpu_env"),
        ({"CUDA_CACHE_DISABLE": "1"}, "gpu_env"),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "gpu_env"),
        ({"CUDA_MODULE_LOADING": "EAGER"}, "gpu_env"),
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, "gpu_env"),
    ],
)
def test_variables_that_change_what_is_measured_are_warned_of(tmp_path, environ, kind):
    finding = found(machine(tmp_path), kind, environ=environ)
    ((name, value),) = environ.items()
    assert (finding.level, finding.fix) == ("warn", f"unset {name}")
    assert f"{name}={value}" in finding.value


def test_variables_at_their_defaults_are_no_finding(tmp_path):
    env = {"TORCH_COMPILE_DISABLE": "false", "CUDA_MODULE_LOADING": "LAZY", "CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    names = ("debug_env", "compile_env", "gpu_env")
    assert [found(machine(tmp_path / name), name, environ=env).level for name in names] == ["ok"] * 3


def test_a_variable_that_smells_of_a_secret_is_named_without_its_value(tmp_path):
    finding = found(machine(tmp_path), "debug_env", environ={"TORCH_LOGS": "https://me:hunter2@host"})
    assert "TORCH_LOGS" in finding.value
    assert "hunter2" not in finding.value


def test_a_page_cache_that_waits_for_the_disk_is_a_warning_with_the_amount(tmp_path):
    root = machine(tmp_path)
    assert found(root, "page_cache").level == "ok"
    total = int(MEMINFO.partition("MemTotal:")[2].split()[0])
    write(root, {"proc/meminfo": f"{MEMINFO}Dirty: {total // 200} kB\nWriteback: {total // 150} kB\n"})
    assert found(root, "page_cache").level == "warn"
    assert "waits to be written" in found(root, "page_cache").value


def test_processes_on_the_gpus_make_the_host_unfit(tmp_path):
    root = process(machine(tmp_path), 70)
    gpu = FakeGpu(pids=[999])
    assert found(root, "gpu_processes", library=FakeNvml(gpu)).level == "ok"
    gpu.pids.append(70)
    finding = found(root, "gpu_processes", library=FakeNvml(gpu))
    assert (finding.level, finding.value) == ("unfit", "PID 70")
    process(root, 71, parent=os.getpid())
    gpu.pids[:] = [71]
    assert found(root, "gpu_processes", library=FakeNvml(gpu)).level == "ok"
    assert found(root, "gpu_processes").level == "absent"


def test_a_state_file_that_was_set_aside_is_a_finding(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path / "state"))
    host_id, _ = fingerprint(HOST, root=machine(tmp_path))
    write(tmp_path, {f"state/peaks/{host_id}.json": "{"})
    load_peaks(host_id)
    assert f"{host_id}.json.unreadable-" in found(tmp_path, "state").value
