"""Growing counters of a recorded machine and GPU, read twice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from host_fake_nvml import FakeGpu, FakeNvml, NVMLError
from host_recorded import machine, write

from aiperf.host.nvml import Nvml
from aiperf.host.rates import Rates, gpu_counters, load_average, system_counters

DISKSTATS = """\
   7       0 loop0 9 0 900 0 9 0 900 0 0 0 0
 254       0 vda 100 0 2000 5 50 0 400 7 0 9 12
 254       1 vda1 90 0 1900 5 50 0 400 7 0 9 12
 259       0 nvme0n1 10 0 80 5 5 0 40 7 0 9 12
 259       1 nvme0n1p1 10 0 80 5 5 0 40 7 0 9 12
 253       0 dm-0 90 0 1900 5 50 0 400 7 0 9 12
"""
NET = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 5000 1 0 0 0 0 0 0 5000 1 0 0 0 0 0 0
  eth0: 700 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0
  eth1:  50 1 0 0 0 0 0 0  20 1 0 0 0 0 0 0
"""


def recorded(root):
    machine(
        root, **{"proc/vmstat": "nr_free_pages 5\npgfault 1000\npgmajfault 3\n", "proc/loadavg": "1.25 1 1 2/90 7\n"}
    )
    with (root / "proc/stat").open("a") as stat:
        stat.write("ctxt 4000\n")
    return write(root, {"proc/diskstats": DISKSTATS, "proc/net/dev": NET})


def test_whole_disks_and_real_interfaces_count_once(tmp_path):
    assert system_counters(recorded(tmp_path)) == {
        "page_faults_per_s": 1000,
        "major_faults_per_s": 3,
        "context_switches_per_s": 4000,
        "disk_read_bytes_per_s": 2080 * 512,
        "disk_written_bytes_per_s": 440 * 512,
        "network_received_bytes_per_s": 750,
        "network_sent_bytes_per_s": 320,
    }
    assert load_average(tmp_path) == {"load": 1.25}


def test_a_machine_without_these_files_tells_nothing(tmp_path):
    assert system_counters(tmp_path) == {}
    assert load_average(tmp_path) == {}


def test_growth_is_divided_by_the_time_between_two_readings_and_a_counter_that_fell_is_left_out():
    told = iter([{"a": 10.0, "b": 5.0}, {"a": 40.0, "b": 1.0, "new": 9.0}, {"a": 40.0, "b": 3.0, "new": 9.0}])
    times = iter([100.0, 102.0, 106.0])
    rates = Rates(lambda: next(told), clock=lambda: next(times))
    assert rates.since_last() == {}
    assert rates.since_last() == {"a": 15.0}
    assert rates.since_last() == {"a": 0.0, "b": 0.5, "new": 0.0}


def test_a_source_that_never_answers_is_asked_once():
    asked = []
    rates = Rates(lambda: asked.append(1) or {})
    assert [rates.since_last() for _ in range(5)] == [{}] * 5
    assert len(asked) == 1


class WithFields(FakeNvml):
    def __init__(self, *gpus, answers):
        super().__init__(*gpus)
        self.answers = answers
        self.asked = []

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        self.asked = fields
        numbers = [field[0] if isinstance(field, tuple) else field for field in fields]
        return [
            SimpleNamespace(
                fieldId=n,
                nvmlReturn=0 if n in self.answers else 3,
                value=SimpleNamespace(ullVal=self.answers.get(n, 0)),
            )
            for n in numbers
        ]


def test_links_count_in_kib_over_all_links_and_pcie_in_bytes():
    gpu = FakeGpu()
    library = WithFields(gpu, answers={197: 10, 198: 20, 138: 3, 139: 4})
    assert gpu_counters(Nvml(library), gpu) == {
        "pcie_sent_bytes_per_s": 10,
        "pcie_received_bytes_per_s": 20,
        "nvlink_sent_bytes_per_s": 3 * 1024,
        "nvlink_received_bytes_per_s": 4 * 1024,
    }
    assert library.asked == [197, 198, (138, 2**32 - 1), (139, 2**32 - 1)]


def test_the_energy_counter_of_a_gpu_becomes_joules_a_second():
    library = FakeNvml(FakeGpu())
    library.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: 7_500
    assert gpu_counters(Nvml(library), library.gpus[0]) == {"joules_per_s": 7.5}


@pytest.mark.parametrize("library", [WithFields(FakeGpu(), answers={197: 7}), FakeNvml(FakeGpu())])
def test_a_gpu_tells_what_it_can(library):
    found = gpu_counters(Nvml(library), library.gpus[0])
    assert set(found) == ({"pcie_sent_bytes_per_s"} if isinstance(library, WithFields) else set())


def test_a_driver_that_refuses_tells_nothing():
    class Refuses(FakeNvml):
        def nvmlDeviceGetFieldValues(self, gpu, fields):
            raise NVMLError(3)

    assert gpu_counters(Nvml(Refuses(FakeGpu())), FakeGpu()) == {}
