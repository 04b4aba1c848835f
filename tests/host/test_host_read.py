import subprocess
import sys

import pytest
from host_fake_nvml import DRIVER_NOT_LOADED, EVERY_DEVICE_CALL, LIBRARY_NOT_FOUND, FakeGpu, FakeNvml
from host_recorded import machine, write

from aiperf.host import proc
from aiperf.host.read import libraries, memory, read_host

GIB = 1024**3


def two_gpus():
    return FakeGpu("GPU-aaaa-1"), FakeGpu("GPU-bbbb-2")


def test_this_very_host_is_read():
    facts = read_host()
    assert facts.cpus
    assert facts.memory_total >= facts.memory_available > 0
    assert facts.libraries["numpy"]
    assert facts.python == ".".join(map(str, sys.version_info[:3]))


def test_reading_the_host_imports_nothing_that_it_reports_starts_nothing_and_opens_few_files():
    code = "import sys; from aiperf.host.read import read_host\n"
    code += "seen = []; sys.addaudithook(lambda event, _: seen.append(event)); read_host()\n"
    code += "print([m for m in ('torch', 'numpy', 'pandas', 'scipy', 'cupy', 'psutil') if m in sys.modules])\n"
    code += "print([e for e in seen if e.startswith(('subprocess.', 'os.fork', 'os.posix_spawn', 'os.system'))])\n"
    code += "print(seen.count('open'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *nothing, opened = done.stdout.split()
    assert nothing == ["[]", "[]"]
    # A file of each installed distribution would be hundreds.
    assert 5 < int(opened) < 150


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (LIBRARY_NOT_FOUND, "no NVML library (libnvidia-ml.so.1)"),
        (DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (999, "NVML does not start: NVML error 999"),
    ],
)
def test_a_host_without_nvml_has_no_gpus_and_a_reason(tmp_path, code, sentence):
    facts = read_host(root=machine(tmp_path), environ={}, library=FakeNvml(init_error=code))
    assert facts.gpus == ()
    assert facts.gpu_problem == sentence
    assert facts.gds_problem == f"no GPU: {sentence}"


def test_gpus_driver_and_peer_access_come_from_nvml(tmp_path):
    library = FakeNvml(*two_gpus())
    facts = read_host(root=machine(tmp_path), environ={}, library=library)
    assert [gpu.uuid for gpu in facts.gpus] == ["GPU-aaaa-1", "GPU-bbbb-2"]
    gpu = facts.gpus[1]
    assert (gpu.index, gpu.compute_capability, gpu.power_limit_w, gpu.ecc, gpu.mig) == (1, "9.0", 700.0, True, False)
    assert (facts.driver, facts.cuda_driver, facts.peer_access) == ("580.159.04", "13.0", True)
    assert facts.gpu_problem == ""
    assert library.open == 0


def test_peer_access_is_false_when_nvml_says_so_and_unknown_with_one_gpu(tmp_path):
    root = machine(tmp_path)
    assert read_host(root=root, environ={}, library=FakeNvml(*two_gpus(), peer=1)).peer_access is False
    assert read_host(root=root, environ={}, library=FakeNvml(FakeGpu())).peer_access is None


@pytest.mark.parametrize("call", EVERY_DEVICE_CALL)
def test_each_nvml_call_may_be_unsupported(tmp_path, call):
    facts = read_host(root=machine(tmp_path), environ={}, library=FakeNvml(*two_gpus(), silent=[call]))
    assert len(facts.gpus) == 2


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("1", ["GPU-bbbb-2"]),
        ("1,0", ["GPU-bbbb-2", "GPU-aaaa-1"]),
        ("0,7,1", ["GPU-aaaa-1"]),
        ("GPU-bb", ["GPU-bbbb-2"]),
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_is_honoured_as_cuda_does(tmp_path, visible, uuids):
    environ = {"CUDA_VISIBLE_DEVICES": visible}
    facts = read_host(root=machine(tmp_path), environ=environ, library=FakeNvml(*two_gpus()))
    assert [gpu.uuid for gpu in facts.gpus] == uuids
    assert [gpu.index for gpu in facts.gpus] == list(range(len(uuids)))
    if not uuids:
        assert facts.gpu_problem == f'CUDA_VISIBLE_DEVICES="{visible}" leaves none of 2 GPUs'


def test_gds_is_active_only_with_the_nvidia_fs_module(tmp_path):
    root = machine(tmp_path)
    facts = read_host(root=root, environ={}, library=FakeNvml(FakeGpu()))
    assert (facts.gds_active, facts.gds_problem) == (False, "the kernel module nvidia-fs is not loaded")
    write(root, {"proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia_fs 278528 0 - Live 0x0\n"})
    facts = read_host(root=root, environ={}, library=FakeNvml(FakeGpu()))
    assert (facts.gds_active, facts.gds_problem) == (True, "")


def test_recorded_text_gives_model_distribution_container_and_virtual_machine(tmp_path):
    root = machine(
        tmp_path, **{"proc/1/cgroup": "0::/kubepods/besteffort/pod1\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}
    )
    facts = read_host(root=root, environ={}, library=FakeNvml(init_error=LIBRARY_NOT_FOUND))
    assert facts.cpu_model == "AMD EPYC"
    assert facts.system.endswith("Debian GNU/Linux 12 (bookworm)")
    assert (facts.container, facts.virtual) == ("kubernetes", "QEMU")


def test_an_empty_proc_is_read_without_an_exception(tmp_path):
    facts = read_host(root=tmp_path, environ={}, library=FakeNvml(init_error=LIBRARY_NOT_FOUND))
    assert (facts.memory_total, facts.container, facts.virtual) == (0, "", "")


def test_memory_is_limited_by_every_cgroup_above_in_version_2(tmp_path):
    root = machine(
        tmp_path,
        **{
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/outer/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
        },
    )
    assert memory(root) == (4 * GIB, 2 * GIB)


def test_memory_is_limited_by_a_version_1_cgroup_and_not_by_its_unlimited_value(tmp_path):
    root = machine(
        tmp_path,
        **{
            "proc/self/cgroup": "4:memory:/box\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{GIB}\n",
        },
    )
    assert memory(root) == (2 * GIB, GIB)
    (root / "sys/fs/cgroup/memory/box/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory(root) == (24684084 * 1024, 23797000 * 1024)


def test_library_versions_come_under_distribution_and_import_names(tmp_path):
    for name in (
        "torch-2.11.0+cu130.dist-info",
        "cupy_cuda13x-14.2.0.dist-info",
        "kvikio_cu13-25.10.0.dist-info",
        "nvidia_nccl_cu13-2.28.9.dist-info",
        "nvidia_ml_py-13.610.43.dist-info",
        "PyYAML-6.0.3.dist-info",
        "old-1.0-py3.11.egg-info",
        "not_a_distribution",
    ):
        (tmp_path / name).mkdir()
    found = libraries([str(tmp_path), str(tmp_path / "missing")])
    assert found["torch"] == "2.11.0+cu130"
    assert found["cupy"] == found["cupy-cuda13x"] == "14.2.0"
    assert (found["kvikio"], found["nccl"], found["pynvml"]) == ("25.10.0", "2.28.9", "13.610.43")
    assert (found["yaml"], found["old"]) == ("6.0.3", "1.0")
    assert "not-a-distribution" not in found


def test_the_first_installation_on_the_search_path_wins(tmp_path):
    (tmp_path / "a" / "torch-2.11.0.dist-info").mkdir(parents=True)
    (tmp_path / "b" / "torch-2.6.0.dist-info").mkdir(parents=True)
    assert libraries([str(tmp_path / "a"), str(tmp_path / "b")])["torch"] == "2.11.0"


def test_cpu_times_and_device_interrupts_are_read_per_cpu(tmp_path):
    root = machine(tmp_path)
    times = proc.cpu_times(root)
    assert times[0] == proc.CpuTime(busy=836, steal=1, total=88663)
    assert proc.device_interrupts(root) == {0: 2079, 1: 12612}
