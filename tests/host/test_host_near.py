"""CPUs next to GPUs, from recorded topology and from a driver that tells them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from host_fake_nvml import FakeGpu, FakeNvml
from host_recorded import write

from aiperf.host.facts import Gpu
from aiperf.host.gpu_affinity import assign_cpus, gpu_cpus

ALLOWED = tuple(range(8))
BUSES = {"GPU-a": "00000000:17:00.0", "GPU-b": "00000000:CA:00.0"}


class OnBuses(FakeNvml):
    def nvmlDeviceGetPciInfo(self, gpu):
        return SimpleNamespace(busId=BUSES[gpu.uuid])


def gpus(*uuids):
    return [Gpu(i, "NVIDIA H200", uuid, "9.0", 1, 1) for i, uuid in enumerate(uuids)]


def near(root, *uuids, library=None, allowed=ALLOWED):
    library = library or OnBuses(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    return gpu_cpus(gpus(*uuids), allowed=allowed, library=library, root=root)


@pytest.fixture
def two_sockets(tmp_path):
    places = {"0000:17:00.0": "0-3", "0000:ca:00.0": "4-7"}
    return write(tmp_path, {f"sys/bus/pci/devices/{bus}/local_cpulist": f"{cpus}\n" for bus, cpus in places.items()})


def test_each_gpu_has_the_cpus_of_its_own_socket_in_the_order_asked_for(two_sockets):
    assert near(two_sockets, "GPU-b", "GPU-a") == ((4, 5, 6, 7), (0, 1, 2, 3))


def test_only_allowed_cpus_are_named_and_all_of_them_when_none_is_near(two_sockets):
    assert near(two_sockets, "GPU-a", "GPU-b", allowed=(1, 2)) == ((1, 2), (1, 2))


def test_a_driver_tells_where_the_kernel_does_not(tmp_path):
    class Masks(OnBuses):
        def nvmlDeviceGetCpuAffinity(self, gpu, words):
            return [0b110000, 0] if gpu.uuid == "GPU-a" else [0, 1]

    library = Masks(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    assert near(tmp_path, "GPU-a", "GPU-b", library=library, allowed=(0, 4, 5, 64)) == ((4, 5), (64,))


@pytest.mark.parametrize("text", ["", "nonsense"])
def test_without_an_answer_every_cpu_is_as_near(tmp_path, text):
    write(tmp_path, {"sys/bus/pci/devices/0000:17:00.0/local_cpulist": text})
    assert near(tmp_path, "GPU-a", "GPU-gone") == (ALLOWED, ALLOWED)
    assert gpu_cpus(gpus("GPU-a"), allowed=ALLOWED, library=OnBuses(init_error=12), root=tmp_path) == (ALLOWED,)


def test_ranks_get_cpus_of_their_own_in_turn():
    dealt = assign_cpus([(0, 1, 2, 3), (4, 5, 6, 7)], each=2)
    assert dealt == (0, 4, 1, 5)
    assert (dealt[0::2], dealt[1::2]) == ((0, 1), (4, 5))


def test_two_gpus_of_one_node_share_it_without_sharing_a_cpu():
    assert assign_cpus([(0, 1, 2, 3), (0, 1, 2, 3), (4, 5)], each=2) == (0, 1, 4, 2, 3, 5)
    assert assign_cpus([(0, 1), (0, 1)], each=2) is None
