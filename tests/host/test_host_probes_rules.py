"""What each probe makes of one fact at a time: hosts of the shelf with one thing changed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from host_shelf import check, plant, recorded, sight_of

from aiperf.host.host_report import check_host
from aiperf.host.probes.counter_window import Counters, CounterWindow, started_ticks, watch
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.packages import at_least
from aiperf.host.proc import ROOT, CpuTime


def found(root, name, probe, **changes):
    return next(row for row in check(root, name, only=probe, **changes).findings if row.id == probe)


def with_gpu(name, **answers):
    nvml = recorded(name)["nvml"]
    return {**nvml, "devices": [{**device, **answers} for device in nvml["devices"]]}


FILES = [
    ("hpc-kernel-governor", {"sys/devices/system/cpu/cpu3/cpufreq/scaling_governor": "performance"}, "ok"),
    ("background-services", {"proc/loadavg": "8.10 1 1 1/1 1"}, "warn"),
    ("cpu-oversubscription", {"proc/loadavg": "16.0 1 1 1/1 1"}, "warn"),
    ("cpu-oversubscription", {"proc/pressure/cpu": "some avg10=10.00 avg60=0 avg300=0 total=0"}, "warn"),
    ("isolate-system-tasks", {"sys/devices/system/cpu/isolated": "2-15"}, "ok"),
    ("isolate-system-tasks", {"proc/cmdline": "quiet isolcpus=2-15"}, "ok"),
    ("isolate-system-tasks", {"sys/devices/system/cpu/nohz_full": "(null)"}, "warn"),
    ("hyperthreading", {"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0-1"}, "warn"),
    ("swap-disabled", {"proc/swaps": "Filename\n/swap file 1048576 0 -2"}, "ok"),
    ("swap-disabled", {"proc/swaps": "Filename\n/swap file 1048576 65535 -2"}, "ok"),
    ("swap-disabled", {"proc/swaps": "Filename\n/swap file 1048576 65536 -2"}, "warn"),
    ("thp", {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}, "warn"),
    ("tcp-stack", {"proc/sys/net/ipv4/tcp_wmem": "4096 16384 4194304"}, "warn"),
    ("congestion-control", {"proc/sys/net/ipv4/tcp_congestion_control": "reno"}, "warn"),
    ("jumbo-frames", {"sys/class/net/eth0/mtu": "8896"}, "ok"),
    ("jumbo-frames", {"sys/class/net/eth0/operstate": "down"}, "absent"),
    ("irq-affinity", {"sys/class/net/eth0/device/local_cpulist": "0-7"}, "warn"),
    ("network-oversubscription", {"sys/class/net/eth0/speed": "100000"}, "ok"),
    ("network-oversubscription", {"sys/class/net/eth0/speed": "10000"}, "warn"),
    ("network-oversubscription", {"sys/class/net/eth0/speed": "-1"}, "unreadable"),
    ("rdma", {"sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE"}, "ok"),
    ("io-read-ahead", {"sys/block/vda/queue/read_ahead_kb": "1024"}, "ok"),
    ("io-scheduler", {"sys/block/vda/queue/scheduler": "none [bfq]"}, "warn"),
    ("gds-available", {"proc/modules": "nvidia_fs 1 0 - Live 0x0"}, "ok"),
    ("container-cpu-limit", {"sys/fs/cgroup/cpu.max": "800000 100000"}, "warn"),
    ("container-cpu-limit", {"sys/fs/cgroup/cpu.max": "1600000 100000"}, "ok"),
    ("container-cpu-limit", {"sys/fs/cgroup/cpu.max": "50000 100000"}, "unfit"),
    ("mps", {"proc/77/comm": "nvidia-cuda-mps-control"}, "warn"),
    ("fabric-manager", {"sys/bus/pci/devices/0000:07:00.0/vendor": "0x10de",
                        "sys/bus/pci/devices/0000:07:00.0/class": "0x068000"}, "unreadable"),
    ("unified-memory-superchip", {"proc/cpuinfo": "CPU implementer : 0x41"}, "unreadable"),
    ("modern-collectives", {"usr/lib/x86_64-linux-gnu/libnccl.so.2.28.9": ""}, "ok"),
    ("modern-collectives", {"usr/lib64/libnccl.so.2.18.1": ""}, "warn"),
]  # fmt: skip


@pytest.mark.parametrize(("probe", "files", "level"), FILES)
def test_a_file_decides(tmp_path, probe, files, level) -> None:
    assert found(tmp_path, "h200-vm", probe, files=files).level == level


VARIABLES = [
    ("cpu-library-threads", {"OMP_NUM_THREADS": "17"}, "warn"),
    ("cpu-library-threads", {"OMP_NUM_THREADS": "1"}, "warn"),
    ("cpu-library-threads", {"OMP_NUM_THREADS": "many"}, "warn"),
    ("cpu-library-threads", {"OMP_NUM_THREADS": "8", "LOCAL_WORLD_SIZE": "2"}, "ok"),
    ("cpu-library-threads", {"OMP_NUM_THREADS": "8", "SLURM_NTASKS_PER_NODE": "4(x2)"}, "warn"),
    ("minimise-sync", {"CUDA_LAUNCH_BLOCKING": "0"}, "ok"),
    ("tf32", {"NVIDIA_TF32_OVERRIDE": "1"}, "ok"),
    ("tf32", {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}, "ok"),
    ("nccl-env", {"NCCL_NTHREADS": "256", "NCCL_NVLS_ENABLE": "0"}, "ok"),
    ("nccl-env", {"NCCL_P2P_DISABLE": "1"}, "warn"),
    ("modern-accelerator", {"CUDA_VISIBLE_DEVICES": ""}, "absent"),
]


@pytest.mark.parametrize(("probe", "environ", "level"), VARIABLES)
def test_a_variable_decides(tmp_path, probe, environ, level) -> None:
    assert found(tmp_path, "h200-vm", probe, environ=environ).level == level


ANSWERS = [
    ("modern-accelerator", {"nvmlDeviceGetCudaComputeCapability": [8, 6]}, "warn"),
    ("modern-accelerator", {"nvmlDeviceGetCudaComputeCapability": [12, 0]}, "ok"),
    ("monitor-utilisation", {"nvmlDeviceGetUtilizationRates": {"gpu": 20, "memory": 0}}, "warn"),
    ("mig", {"nvmlDeviceGetMigMode": [0, 1]}, "warn"),
    ("ecc-enabled", {"nvmlDeviceGetRemappedRows": [1, 0, 0, 1]}, "unfit"),
    ("cooling-and-power", {"nvmlDeviceGetCurrentClocksEventReasons": 0x4}, "warn"),
    ("cooling-and-power", {"nvmlDeviceGetCurrentClocksEventReasons": 0x80}, "unfit"),
    ("gpu-clocks", {"nvmlDeviceGetApplicationsClock": {"by": {"1": 1200}}}, "warn"),
    ("monitor-thermals-clocks", {"nvmlDeviceGetTemperature": {"by": {"0": 88}}}, "warn"),
    ("cooling-config", {"nvmlDeviceGetTemperature": {"by": {"0": 46}}}, "warn"),
    ("longevity-power-target", {"nvmlDeviceGetEnforcedPowerLimit": 630000}, "ok"),
    ("pcie-link-full", {"nvmlDeviceGetCurrPcieLinkGeneration": 1}, "ok"),
    ("pcie-link-full", {"nvmlDeviceGetCurrPcieLinkWidth": 8}, "warn"),
    ("monitor-link-saturation", {"nvmlDeviceGetNvLinkState": {"by": {"0": 0}}}, "absent"),
    ("fabric-manager", {"nvmlDeviceGetGpuFabricInfoV": {"state": 3, "clique": 0, "cluster": "00"}}, "ok"),
    ("fabric-manager", {"nvmlDeviceGetGpuFabricInfoV": {"state": 2, "clique": 0, "cluster": "00"}}, "warn"),
    ("monitor-memory", {"nvmlDeviceGetMemoryInfo": {"total": 100, "free": 30, "used": 70}}, "warn"),
]  # fmt: skip


@pytest.mark.parametrize(("probe", "answers", "level"), ANSWERS)
def test_an_answer_of_nvml_decides(tmp_path, probe, answers, level) -> None:
    assert found(tmp_path, "h200-vm", probe, nvml=with_gpu("h200-vm", **answers)).level == level


@pytest.mark.parametrize(
    ("there", "level"),
    [({7: 1}, "warn"), ({7: 8, 8: os.getpid()}, "ok"), ({7: 8, 8: 1}, "warn"), ({}, "ok")],
    ids=["a stranger", "started by a child of aiperf", "started by a stranger", "gone"],
)
def test_processes_on_the_gpu_are_other_work_unless_aiperf_started_them(tmp_path, there, level) -> None:
    files = {f"proc/{pid}/stat": f"{pid} (python) S {parent} {'0 ' * 20}\n" for pid, parent in there.items()}
    nvml = with_gpu("h200-vm", nvmlDeviceGetComputeRunningProcesses=[{"pid": 7}])
    assert found(tmp_path, "h200-vm", "monitor-utilisation", nvml=nvml, files=files).level == level


def test_aiperf_itself_is_no_other_work_on_the_gpu(tmp_path) -> None:
    files = {f"proc/{os.getpid()}/stat": f"{os.getpid()} (python) S 1 {'0 ' * 20}\n"}
    nvml = with_gpu("h200-vm", nvmlDeviceGetComputeRunningProcesses=[{"pid": os.getpid()}])
    assert found(tmp_path, "h200-vm", "monitor-utilisation", nvml=nvml, files=files).level == "ok"


def test_a_process_on_the_socket_without_the_gpu_is_told_to_bind_to_the_other(tmp_path) -> None:
    status = "Cpus_allowed_list: 0-3\nMems_allowed_list: 0-1\n"
    row = found(
        tmp_path, "numa-server", "numa-awareness",
        files={"proc/self/status": status}, environ={"CUDA_VISIBLE_DEVICES": "1"},
    )  # fmt: skip
    assert (row.level, row.reason) == ("warn", "a GPU's node is not among those of this process")
    assert "CPUs of node 0, memory of node 0-1, of 2 nodes, GPUs on node 1" in row.value


def test_a_process_spread_over_both_sockets_is_told_to_bind_to_its_gpu(tmp_path) -> None:
    row = found(tmp_path, "numa-server", "numa-awareness", environ={"CUDA_VISIBLE_DEVICES": "1"})
    assert (row.level, row.fix) == ("warn", "numactl --cpunodebind=1 --membind=1 COMMAND")


def test_nvlink_between_all_pairs_with_every_link_up_is_good_and_one_down_is_not(tmp_path) -> None:
    by = {f"{other},{index}": 0 for other in (0, 1) for index in (0, 1, 2)}
    links = {str(link): 1 for link in range(18)}
    good = with_gpu("numa-server", nvmlDeviceGetP2PStatus={"by": by}, nvmlDeviceGetNvLinkState={"by": links})
    row = found(tmp_path / "a", "numa-server", "high-bandwidth-interconnect", nvml=good)
    assert (row.level, row.value) == ("ok", "NVLink between all pairs, 18 of 18 links up on each of 2 GPUs")
    bad = with_gpu("numa-server", nvmlDeviceGetP2PStatus={"by": by}, nvmlDeviceGetNvLinkState={"by": {**links, "3": 0}})
    row = found(tmp_path / "b", "numa-server", "high-bandwidth-interconnect", nvml=bad)
    assert (row.level, "17 of 18 links up" in row.value) == ("warn", True)


def test_a_gpu_that_the_driver_hides_is_unreadable_and_not_absent(tmp_path) -> None:
    row = found(tmp_path, "h200-vm", "ecc-enabled", nvml={"init_error": 9, "devices": []})
    assert row.level == "unreadable"
    assert row.reason == "there is an NVIDIA GPU (0000:06:00.0), but the NVIDIA driver is not loaded"


@pytest.mark.parametrize(
    ("file", "text", "turbo"),
    [
        ("intel_pstate/no_turbo", "0", "on"),
        ("intel_pstate/no_turbo", "1", "off"),
        ("cpufreq/boost", "1", "on"),
        ("cpufreq/boost", "0", "off"),
        ("cpufreq/boost", "?", ""),
    ],
)
def test_turbo_is_told_beside_the_governor(tmp_path, file, text, turbo) -> None:
    row = found(tmp_path, "numa-server", "hpc-kernel-governor", files={f"sys/devices/system/cpu/{file}": text})
    assert row.level == "ok"
    assert ("turbo" in row.value) == bool(turbo)
    assert not turbo or f"performance, turbo {turbo}, kernel" in row.value
    assert row.reason.startswith("with turbo on") == (turbo == "on")


def test_a_page_cache_that_waits_for_the_disk_is_a_warning_above_one_percent(tmp_path) -> None:
    total = 1 << 24
    for share, level in ((202, "ok"), (198, "warn")):
        waits = f"Dirty: {total // share} kB\nWriteback: {total // share} kB\n"
        text = f"MemTotal: {total} kB\nMemAvailable: {total // 2} kB\n{waits}"
        row = found(tmp_path / level, "cpu-vm", "monitor-memory", files={"proc/meminfo": text})
        assert (row.level, "waits to be written" in row.value) == (level, level == "warn")


@pytest.mark.parametrize(("busy", "level"), [(2, "ok"), (15, "warn"), (60, "unfit")])
def test_while_a_run_measures_only_the_share_that_others_take_counts(tmp_path, busy, level) -> None:
    host = recorded("h200-vm")
    first = "".join(f"cpu{n} 0 0 0 1000 0 0 0 0 0 0\n" for n in range(16))
    later = "".join(f"cpu{n} {busy} 0 0 {1100 - busy} 0 0 0 0 0 0\n" for n in range(16))
    host["files"] = {**host["files"], "proc/stat": first, "proc/loadavg": "99 99 99 1/1 1"}
    host["later"] = {"proc/stat": later}
    reader = replace(sight_of(tmp_path, host), phase="measuring")
    (finding,) = check_host([probe for probe in PROBES if probe.id == "cpu-oversubscription"], reader).findings
    assert (finding.level, "load" in finding.value) == (level, False)


def test_cpu_time_of_processes_that_aiperf_started_is_its_own(tmp_path) -> None:
    def stat(pid: int, parent: int, user: int, children: int) -> None:
        words = ["S", parent, *[0] * 9, user, 1, children, 0, 0]
        plant(tmp_path, {f"proc/{pid}/stat": f"{pid} (a b) {' '.join(map(str, words))}\n"})

    for row in ((10, 1, 500, 0), (11, 10, 7, 2), (12, 11, 30, 0), (13, 1, 1000, 0)):
        stat(*row)
    assert started_ticks(tmp_path, 10) == (7 + 1 + 2) + (30 + 1)


def test_the_watch_takes_the_work_of_living_children_for_aiperfs_own() -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True); input()"
    before = watch(ROOT, tuple, lambda seconds: None, readings=5).last.own_ticks
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        after = watch(ROOT, tuple, lambda seconds: None, readings=5).last.own_ticks
        child.communicate(b"\n")
    assert after - before >= 0.15 * os.sysconf("SC_CLK_TCK")


def test_counters_that_move_while_watched_are_told(tmp_path) -> None:
    later = {
        "proc/net/snmp": "Tcp: OutSegs RetransSegs\nTcp: 1500 4\n",
        "proc/net/dev": "face |\n  eth0: 9000 20 0 5 0 0 0 0 2000 20 0 0 0 0 0 0\n",
        "proc/diskstats": " 254 0 vda 100 0 9999999 10 100 0 1000 10 0 99999 30\n",
        "proc/stat": "".join(f"cpu{n} 1000 0 30 5610 1 0 0 0 0 0\n" for n in range(16)),
    }
    rows = {row.id: row for row in check(tmp_path, "h200-vm", later=later).findings}
    assert rows["network-health"].value == "3 segments sent again, eth0 5 received dropped"
    assert rows["measure-input-throughput"].level == "warn"
    assert rows["monitor-network-disk"].level == "warn"
    assert rows["cpu-oversubscription"].level == "unfit"
    assert "CPU 0-15 99 % busy with other work" in rows["cpu-oversubscription"].value


def test_a_changed_checkout_names_its_files_and_no_checkout_is_unreadable(tmp_path) -> None:
    git = "git --no-optional-locks -C /data"
    head, status = f"{git} rev-parse --short HEAD", f"{git} status --porcelain"
    dirty = {head: {"code": 0, "out": "abc\n"}, status: {"code": 0, "out": " M a.py\n?? b\n?? c\n?? d\n"}}
    row = found(tmp_path / "a", "h200-vm", "version-control", commands=dirty)
    assert (row.level, row.value) == ("warn", "commit abc, changed: a.py, b, c and 1 more")
    row = found(tmp_path / "b", "h200-vm", "version-control", commands={head: {"code": 128, "out": ""}})
    assert (row.level, row.reason) == ("unreadable", "/data is not a git checkout with a commit")


def test_an_older_driver_of_the_same_major_version_is_a_warning(tmp_path) -> None:
    packages = {"versions": {"torch": "2.12"}, "torch_cuda": "13.2"}
    assert found(tmp_path, "h200-vm", "driver-cuda-current", packages=packages).level == "warn"


def test_shared_memory_without_a_size_is_half_of_the_memory_and_in_percent_its_share(tmp_path) -> None:
    lines = recorded("h200-vm")["files"]["proc/self/mountinfo"].replace("tmpfs tmpfs rw", "tmpfs tmpfs rw,size=1%")
    row = found(tmp_path, "h200-vm", "container-ipc", files={"proc/self/mountinfo": lines})
    assert (row.level, row.value) == ("warn", "2.52 GiB at /dev/shm")


@pytest.mark.parametrize(
    ("version", "least", "enough"),
    [("2.11.0+cu130", "2.6", True), ("2.4.1", "2.6", False), ("2.6.0a0", "2.6", True), ("13.0", "13.0", True)],
)
def test_versions_are_compared_by_their_numbers(version, least, enough) -> None:
    assert at_least(version, least) is enough


def test_an_xid_event_alone_is_a_warning_and_a_silent_log_is_said(tmp_path) -> None:
    told = {"dmesg": {"code": 0, "out": "NVRM: Xid (PCI:0000:06:00): 31, pid=7, name=python, MMU Fault\n"}}
    row = found(tmp_path / "a", "h200-vm", "anomaly-alerts", commands=told)
    assert (row.level, "1 Xid events, last 31" in row.value) == ("warn", True)
    row = found(tmp_path / "b", "h200-vm", "anomaly-alerts", commands={"dmesg": {"code": 1, "out": ""}})
    assert (row.level, "the kernel log may not be read" in row.value) == ("ok", True)


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/job/step", "sys/fs/cgroup/job/cpu.max": "200000 100000",
         "sys/fs/cgroup/job/step/cpu.max": "800000 100000", "sys/fs/cgroup/cpu.max": "max 100000"},
        {"proc/self/cgroup": "4:cpu,cpuacct:/box", "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "200000",
         "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"},
    ],
)  # fmt: skip
def test_the_tightest_quota_above_the_process_counts(tmp_path, files) -> None:
    row = found(tmp_path, "h200-vm", "container-cpu-limit", files=files)
    assert (row.level, row.value) == ("warn", "2 of 16 CPUs allowed")


def test_what_aiperf_itself_used_is_not_other_work() -> None:
    def moment(busy, own, at):
        return Counters({0: CpuTime(busy=busy, steal=0, total=at * 100)}, {}, {}, {}, None, own, at)

    seen = CounterWindow(moment(0, 0.0, 0), moment(60, 40.0, 1), ())
    assert seen.busy((0,)) == pytest.approx(0.2)
    assert seen.busy((5,)) is None
