"""The fault shelf: what each recorded or hand-made host is found to have."""

from __future__ import annotations

from collections import Counter

import pytest
from host_shelf import HOSTS, check

from aiperf.host.checklist import load_checklist
from aiperf.host.probes.every import PROBES

ITEMS = {item.id for item in load_checklist()}

EXPECTED = {
    "cpu-vm": {
        "hpc-kernel-governor": ("unreadable", "hypervisor owns the clocks"),
        "cpu-oversubscription": ("warn", "load 5.73 on 2 CPUs, pressure 95.9 %"),
        "isolate-system-tasks": ("ok", "none isolated"),
        "hyperthreading": ("ok", "off"),
        "swap-disabled": ("ok", "off"),
        "thp": ("ok", "madvise"),
        "max-locked-memory": ("ok", "8 MiB"),
        "numa-awareness": ("ok", "one NUMA node"),
        "modern-accelerator": ("absent", "no NVML library"),
        "io-read-ahead": ("ok", "8 MiB on vda"),
        "fast-storage": ("unreadable", "vda is a virtual disk"),
        "tcp-stack": ("warn", "rmem_max 4 MiB"),
        "jumbo-frames": ("warn", "eth0 1400"),
        "congestion-control": ("ok", "bbr"),
        "irq-affinity": ("ok", "eth0 on CPU 0-1"),
        "container-ipc": ("ok", "23.5 GiB"),
        "container-memlock": ("absent", "no container"),
        "firmware-maintenance": ("unreadable", "no firmware versions"),
    },
    "h200-recorded": {
        "modern-accelerator": ("ok", "NVIDIA H200, sm_90, 140 GiB, FP8"),
        "gpu-power-limit": ("ok", "700 W (default 700 W)"),
        "pcie-link-full": ("ok", "generation 5 of 5, x16 of x16"),
        "numa-awareness": ("ok", "one NUMA node"),
        "thp": ("ok", "madvise, defrag madvise"),
        "gds-available": ("warn", "nvidia-fs not loaded"),
        "high-bandwidth-interconnect": ("absent", "one GPU has no other"),
        "hpc-kernel-governor": ("unreadable", "hypervisor owns the clocks"),
    },
    "two-h200-recorded": {
        "ecc-enabled": ("ok", "on, 0 uncorrected errors on each of 2 GPUs"),
        "high-bandwidth-interconnect": ("unreadable", "NVML does not show how the GPUs are connected"),
        "monitor-link-saturation": ("warn", "GPU 0: 195 CRC (data) errors"),
        "irq-affinity": ("ok", "eth0 on CPU 0-31"),
    },
    "h200-vm": {
        "modern-accelerator": ("ok", "NVIDIA H200, sm_90, 140 GiB, FP8"),
        "monitor-utilisation": ("ok", "0 % busy, memory 0 % busy, compute processes: 0"),
        "idle-gaps": ("ok", "idle"),
        "mig": ("ok", "off"),
        "persistence-with-mig": ("absent", "MIG is off"),
        "ecc-enabled": ("ok", "on, 0 uncorrected errors"),
        "anomaly-alerts": ("ok", "no Xid event"),
        "gpu-power-limit": ("ok", "700 W (default 700 W)"),
        "track-energy": ("ok", "123 kJ"),
        "pcie-link-full": ("ok", "generation 5 of 5, x16 of x16"),
        "high-bandwidth-interconnect": ("absent", "one GPU"),
        "monitor-link-saturation": ("unreadable", "neither traffic nor errors"),
        "fabric-manager": ("absent", "no NVSwitch"),
        "gds-available": ("warn", "nvidia-fs not loaded"),
        "driver-cuda-current": ("ok", "driver 580.159.04 for CUDA 13.0, torch built for CUDA 13.0"),
        "profile-root-cause": ("ok", "/host/target-linux-x64/nsys"),
        "nvtx-markers": ("warn", "torch 2.11.0+cu130"),
        "cpu-gpu-balance": ("ok", "16 CPUs a GPU"),
        "library-autotune": ("unreadable", "needs torch to be loaded"),
        "tf32": ("unreadable", "needs torch to be loaded"),
        "modern-collectives": ("unreadable", "torch brings its own NCCL"),
    },
    "hot-gpu": {
        "cooling-and-power": ("unfit", "software thermal slowdown, hardware thermal slowdown"),
        "monitor-thermals-clocks": ("unfit", "93 °C, slows down at 92 °C"),
        "monitor-utilisation": ("unfit", "97 % busy"),
        "monitor-memory": ("unfit", "1.41 GiB of 140 GiB free"),
        "ecc-enabled": ("unfit", "3 uncorrected errors, rows wait to be remapped"),
        "anomaly-alerts": ("unfit", "2 Xid events, last 94"),
        "gpu-clocks": ("warn", "1200 of at most 1980 MHz though busy"),
        "gpu-power-limit": ("warn", "500 W (default 700 W)"),
        "longevity-power-target": ("warn", "71 % of the default limit"),
        "monitor-power": ("warn", "510 W of 500 W"),
        "persistence-mode": ("warn", "off"),
        "pcie-link-full": ("warn", "generation 4 of 5, x8 of x16"),
        "monitor-link-saturation": ("warn", "7 replay errors, 2 GiB moved so far"),
        "minimise-sync": ("unfit", "CUDA_LAUNCH_BLOCKING=1"),
        "tf32": ("warn", "NVIDIA_TF32_OVERRIDE=0"),
        "library-autotune": ("warn", "CUBLAS_WORKSPACE_CONFIG=:4096:8"),
        "nccl-env": ("warn", "NCCL_COLLMET_ENABLE=1"),
    },
    "mig-slice": {
        "modern-accelerator": ("ok", "MIG 1g.18gb, sm_90, 17 GiB"),
        "mig": ("warn", "on (this is NVIDIA H200 MIG 1g.18gb)"),
        "persistence-mode": ("warn", "off"),
        "persistence-with-mig": ("warn", "MIG on, persistence off"),
        "persistence-for-mig": ("warn", "nvidia-mig-manager disabled"),
        "monitor-utilisation": ("unreadable", "on this MIG slice"),
        "idle-gaps": ("unreadable", "on this MIG slice"),
        "cpu-gpu-balance": ("ok", "252 GiB for 17 GiB of GPU memory"),
        "gpu-power-limit": ("ok", "700 W"),
    },
    "laptop": {
        "hpc-kernel-governor": ("warn", "performance, powersave"),
        "hyperthreading": ("warn", "on: 8 CPUs on 6 cores"),
        "thread-priority": ("warn", "nice 10"),
        "swap-disabled": ("warn", "on (/dev/dm-1), swappiness 60"),
        "thp": ("warn", "never"),
        "max-locked-memory": ("warn", "8 MiB, at most 8 MiB"),
        "monitor-memory": ("warn", "1.14 GiB of 15.3 GiB available; 2 MiB of this process is swapped out"),
        "isolate-system-tasks": ("warn", "none of 8 CPUs"),
        "modern-accelerator": ("warn", "sm_75, 4 GiB, no FP8"),
        "mig": ("unreadable", "does not answer nvmlDeviceGetMigMode"),
        "ecc-enabled": ("unreadable", "does not answer nvmlDeviceGetEccMode"),
        "cooling-and-power": ("ok", "nothing slows the clocks"),
        "track-energy": ("unreadable", "neither energy nor power"),
        "cooling-config": ("warn", "47 °C at rest"),
        "pcie-link-full": ("ok", "generation 1 of 3, x4 of x4, at rest"),
        "io-noatime": ("warn", "strictatime on /home (btrfs)"),
        "io-read-ahead": ("warn", "128 KiB on nvme0n1"),
        "io-scheduler": ("warn", "bfq on nvme0n1"),
        "fast-storage": ("ok", "nvme0n1: NVMe"),
        "jumbo-frames": ("absent", "no network card"),
        "tcp-stack": ("warn", "208 KiB"),
        "congestion-control": ("warn", "reno"),
        "network-health": ("warn", "4.0 % of all segments"),
        "container-ipc": ("warn", "7.63 GiB"),
        "framework-upgrades": ("warn", "torch 2.4.1+cu121"),
        "driver-cuda-current": ("ok", "for CUDA 12.2, torch built for CUDA 12.1"),
        "modern-collectives": ("warn", "NCCL 2.20.5"),
        "prefer-bf16": ("warn", "sm_75"),
        "flash-attention": ("warn", "sm_75"),
        "tf32": ("absent", "no TF32"),
    },
    "numa-server": {
        "hpc-kernel-governor": ("ok", "performance, kernel 5.4.0"),
        "background-services": ("ok", "load 0.10 on 8 CPUs"),
        "swap-disabled": ("ok", "on (/swapfile), swappiness 1"),
        "numa-awareness": ("ok", "GPUs on node 0-1"),
        "max-locked-memory": ("warn", "64 KiB, at most unlimited"),
        "ecc-enabled": ("warn", "off (other after a reset)"),
        "cooling-and-power": ("warn", "power cap"),
        "cooling-config": ("warn", "GPU 1: 44 °C at rest"),
        "gpu-power-limit": ("warn", "225 W (default 250 W) on each of 2 GPUs"),
        "longevity-power-target": ("ok", "90 % of the default limit"),
        "high-bandwidth-interconnect": ("warn", "PCIe across the sockets between all pairs, no peer access"),
        "topology-aware-colocation": ("warn", "PCIe across the sockets"),
        "all-to-all-topology": ("unreadable", "only copies on the GPUs"),
        "persistence-mode": ("ok", "on"),
        "io-noatime": ("ok", "noatime on /scratch (xfs)"),
        "io-read-ahead": ("ok", "4 MiB on sdb"),
        "fast-storage": ("warn", "sdb: a spinning disk"),
        "gds-available": ("ok", "nvidia-fs loaded, compatibility mode allowed"),
        "rdma": ("warn", "1 of 2 ports active, NCCL_IB_DISABLE=1, no GPUDirect RDMA"),
        "jumbo-frames": ("ok", "ens1 9000"),
        "irq-affinity": ("warn", "ens1 on CPU 0-7, beside CPU 4-7"),
        "nic-cpu-affinity": ("warn", "ens1 on node 1, its interrupts on node 0-1"),
        "network-oversubscription": ("ok", "200 Gb/s"),
        "network-health": ("warn", "mlx5_0 link_downed 2"),
        "driver-cuda-current": ("unfit", "for CUDA 12.4, torch built for CUDA 13.0"),
        "firmware-maintenance": ("warn", "VBIOS GPU 0: 92.00.19.00.01; GPU 1: 92.00.25.00.08"),
        "profile-root-cause": ("warn", "no nsys, no ncu, counters for root only"),
        "version-control": ("ok", "commit 49400f9, clean"),
        "cpu-library-threads": ("warn", "OMP_NUM_THREADS=8, 2 ranks"),
        "optimised-serving-runtime": ("ok", "vllm 0.12.0"),
        "nccl-env": ("warn", "NCCL_IB_DISABLE=1"),
    },
    "half-cpu-container": {
        "container-cpu-limit": ("unfit", "0.5 of 4 CPUs allowed, stopped in 5 periods while watched, memory"),
        "container-ipc": ("unfit", "64 MiB at /dev/shm"),
        "container-memlock": ("warn", "64 KiB"),
        "cpu-library-threads": ("warn", "not set: 4 threads"),
        "monitor-memory": ("ok", "3 GiB of 4 GiB available"),
        "swap-disabled": ("unreadable", "no /proc/swaps here"),
        "numa-awareness": ("unreadable", "no NUMA nodes"),
        "fast-storage": ("unreadable", "/ is overlay: no disk is seen under it"),
        "tcp-stack": ("unreadable", "no /proc/sys/net/core/rmem_max here"),
        "thread-priority": ("ok", "loaders may not be raised"),
        "irq-affinity": ("absent", "no network card"),
    },
}  # fmt: skip


def test_every_host_of_the_shelf_is_expected_to_have_something() -> None:
    assert set(EXPECTED) == set(HOSTS)


@pytest.mark.parametrize("name", HOSTS)
def test_the_findings_of_a_host_have_these_levels_and_values(tmp_path, name) -> None:
    rows = {row.id: row for row in check(tmp_path, name).findings}
    found = {id_: (rows[id_].level, rows[id_].value or rows[id_].reason) for id_ in EXPECTED[name]}
    wrong = {
        id_: found[id_]
        for id_, (level, said) in EXPECTED[name].items()
        if found[id_][0] != level or said not in found[id_][1]
    }
    assert wrong == {}


@pytest.mark.parametrize("name", HOSTS)
def test_every_row_says_where_and_every_bad_one_what_would_fix_it(tmp_path, name) -> None:
    rows = check(tmp_path, name).findings
    assert len(rows) == len(PROBES)
    for row in rows:
        assert row.where, row
        assert row.book or row.id not in ITEMS, row
        assert "probe failed" not in row.reason, row
        assert bool(row.value) == (row.level in ("ok", "warn", "unfit")), row
        assert row.reason or row.level in ("ok", "warn", "unfit"), row
        assert row.fix or row.level not in ("warn", "unfit"), row
        assert not row.fix or row.level not in ("ok", "absent"), row


@pytest.mark.parametrize(("name", "read", "absent"), [("h200-recorded", 53, 12), ("two-h200-recorded", 54, 9)])
def test_so_many_probes_are_read_on_a_real_h200_and_so_many_do_not_apply(tmp_path, name, read, absent) -> None:
    levels = Counter(row.level for row in check(tmp_path, name).findings if row.id in ITEMS)
    assert sum(levels[level] for level in ("ok", "warn", "unfit")) == read
    assert levels["absent"] == absent


def test_a_host_is_not_judged_by_the_machine_that_runs_the_tests(tmp_path, monkeypatch) -> None:
    before = check(tmp_path / "a", "numa-server")
    monkeypatch.setenv("OMP_NUM_THREADS", "99")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    after = check(tmp_path / "b", "numa-server")
    assert [(r.id, r.level, r.value) for r in before.findings] == [(r.id, r.level, r.value) for r in after.findings]
