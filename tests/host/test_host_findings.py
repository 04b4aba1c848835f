import os
import threading
from dataclasses import replace

import pytest
from host_fake_nvml import LIBRARY_NOT_FOUND, FakeGpu, FakeNvml
from host_recorded import MEMINFO, PROC_STAT, machine, process, write

from aiperf.host.facts import Gpu, HostFacts
from aiperf.host.findings import PASSING, findings, passing
from aiperf.host.peaks import load_peaks

HOST = HostFacts("node", "Linux", "AMD EPYC", (0, 1), 1, 1)
GOVERNOR = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"


def found(root, kind, *, facts=HOST, environ=None, **options):
    entries = findings(facts, root=root, environ=environ or {}, **options)
    return next(entry for entry in entries if entry.kind == kind)


@pytest.mark.parametrize(
    ("governors", "level"), [((), "unreadable"), (("performance",) * 2, "ok"), (("performance", "powersave"), "warn")]
)
def test_the_governor_is_judged_on_the_chosen_cpus(tmp_path, governors, level):
    root = write(machine(tmp_path), {GOVERNOR.format(n): f"{name}\n" for n, name in enumerate(governors)})
    assert found(root, "governor").level == level
    if level == "warn":
        assert "powersave" in found(root, "governor").sentence
        assert found(root, "governor", cpus=(0,)).level == "ok"


@pytest.mark.parametrize(("busy", "idle", "level"), [(1, 99, "ok"), (30, 70, "warn"), (90, 10, "unfit")])
def test_load_of_others_is_judged_on_the_chosen_cpus(tmp_path, busy, idle, level):
    root = machine(tmp_path)
    later = PROC_STAT.replace("cpu1 3955 0 1349 83291", f"cpu1 {3955 + busy} 0 1349 {83291 + idle}")
    timer = threading.Timer(0.1, lambda: (root / "proc/stat").write_text(later))
    timer.start()
    finding = found(root, "load", cpus=(1,))
    timer.join()
    assert finding.level == level
    assert f"CPU 1 is {busy}% busy" in finding.sentence
    assert bool(finding.advice) == (level != "ok")


def test_load_that_cannot_be_read_is_said_to_be_unreadable(tmp_path):
    assert found(tmp_path, "load").level == "unreadable"
    assert found(tmp_path, "swap").level == "unreadable"


def test_swap_in_use_is_a_warning_with_the_amount(tmp_path):
    root = machine(tmp_path)
    assert found(root, "swap").level == "ok"
    write(root, {"proc/meminfo": MEMINFO.replace("SwapFree:        1048576", "SwapFree:         524288")})
    finding = found(root, "swap")
    assert finding.level == "warn"
    assert "512 MiB" in finding.sentence


@pytest.mark.parametrize(
    ("files", "level"),
    [
        ({}, "ok"),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, "ok"),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, "warn"),
        ({"sys/fs/cgroup/cpu.max": "200000 100000\n"}, "ok"),
        (
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            "warn",
        ),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, "ok"),
    ],
)
def test_a_cpu_quota_below_the_cpus_is_a_warning(tmp_path, files, level):
    assert found(write(machine(tmp_path), files), "cpu_quota").level == level


def test_stale_workers_are_named_and_not_ended(tmp_path):
    root = process(machine(tmp_path), 50, arguments=("python3", "-m", "aiperf.worker"))
    finding = found(root, "stale_workers")
    assert finding.level == "warn"
    assert finding.advice.endswith("kill 50")


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"NCCL_DEBUG": "INFO"}, "probed_env"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "probed_env"),
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
    assert (finding.level, finding.advice) == ("warn", f"unset {name}")
    assert f"{name}={value}" in finding.sentence


def test_variables_at_their_defaults_are_no_finding(tmp_path):
    env = {"NCCL_DEBUG": "WARN", "CUDA_LAUNCH_BLOCKING": "0", "TORCH_COMPILE_DISABLE": "false"}
    env |= {"CUDA_MODULE_LOADING": "LAZY", "CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    entries = findings(HOST, root=machine(tmp_path), environ=env)
    assert [e.level for e in entries if e.kind.endswith("_env")] == ["ok"]


def test_a_variable_that_smells_of_a_secret_is_named_without_its_value(tmp_path):
    finding = found(machine(tmp_path), "debug_env", environ={"TORCH_LOGS": "https://me:hunter2@host"})
    assert "TORCH_LOGS" in finding.sentence
    assert "hunter2" not in finding.sentence


def test_a_page_cache_that_waits_for_the_disk_is_a_warning_with_the_amount(tmp_path):
    root = machine(tmp_path)
    assert found(root, "page_cache").level == "ok"
    total = int(MEMINFO.partition("MemTotal:")[2].split()[0])
    write(root, {"proc/meminfo": f"{MEMINFO}Dirty: {total // 200} kB\nWriteback: {total // 150} kB\n"})
    assert found(root, "page_cache").level == "warn"
    assert "waits to be written" in found(root, "page_cache").sentence


def test_processes_on_the_gpus_make_the_host_unfit(tmp_path):
    root = process(machine(tmp_path), 70)
    gpu = FakeGpu(pids=[999])
    facts = replace(HOST, gpus=(Gpu(0, "NVIDIA H200", gpu.uuid, "9.0", 1, 1),))
    assert found(root, "gpu_processes", facts=facts, library=FakeNvml(gpu)).level == "ok"
    gpu.pids.append(70)
    finding = found(root, "gpu_processes", facts=facts, library=FakeNvml(gpu))
    assert (finding.level, finding.sentence) == ("unfit", "Other processes use the GPUs: 70.")
    process(root, 71, parent=os.getpid())
    gpu.pids[:] = [71]
    assert found(root, "gpu_processes", facts=facts, library=FakeNvml(gpu)).level == "ok"
    broken = FakeNvml(init_error=LIBRARY_NOT_FOUND)
    assert found(root, "gpu_processes", facts=facts, library=broken).level == "unreadable"


def test_what_comes_and_goes_is_found_again_and_what_stands_still_is_not(tmp_path):
    root = process(machine(tmp_path), 50, arguments=("python3", "-m", "aiperf.worker"))
    assert [(f.kind, f.level) for f in passing(HOST, root=root)] == [("stale_workers", "warn"), ("page_cache", "ok")]
    assert {f.kind for f in passing(HOST, root=root)} <= set(PASSING)


def test_a_state_file_that_was_set_aside_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path / "state"))
    write(tmp_path, {"state/peaks/host.json": "{"})
    load_peaks("host")
    assert "host.json.unreadable-" in found(machine(tmp_path), "state", host_id="host").sentence
