"""Windows over energy counters that the tests drive: they begin and end with an update, and say when they cannot."""

from __future__ import annotations

import pytest
from host_fake_nvml import FakeGpu, FakeNvml

from aiperf.host.energy import EnergyCounter, EnergyMeter, cpu_meter, gpu_meter
from aiperf.host.facts import Gpu


class Bench:
    """A clock that sleeping moves, and counters that are updated every 100 ms."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def counter(self, power, *, offset=0.0, every=0.1, name="c", until=1e9) -> EnergyCounter:
        """Its value is the energy up to its latest update; ``power`` maps a time to watts before it."""

        def read() -> float:
            updated = offset + every * int((min(self.now, until) - offset) / every + 1e-9)
            return power(updated)

        return EnergyCounter(name, read, 700.0)

    def meter(self, *counters: EnergyCounter) -> EnergyMeter:
        return EnergyMeter(counters, source="made", clock=lambda: self.now, sleep=self.sleep)


def library(*gpus, **more):
    nvml = FakeNvml(*gpus, **more)
    nvml.energy = 5_000_000
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: nvml.energy
    return nvml


def gpu(index=0, **more):
    return Gpu(index, "NVIDIA H200", f"GPU-{index}", "9.0", 1, 1, **more)


def test_a_window_holds_none_of_the_energy_from_before_it() -> None:
    bench = Bench()
    # 1000 W until 0.35 s, then 300 W: the counter's update at 0.4 s still holds some of the former.
    meter = bench.meter(bench.counter(lambda t: 1000 * min(t, 0.35) + 300 * max(0.0, t - 0.35)))
    bench.now = 0.36
    window = meter.window(1.0)
    assert window.problem == ""
    assert window.joules / window.seconds == pytest.approx(300, rel=0.02)
    assert window.seconds >= 1.0
    assert window.updates == 10
    assert window.ended == pytest.approx(bench.now, abs=0.011)


def test_energy_is_the_sum_over_the_devices_whenever_each_is_updated() -> None:
    bench = Bench()
    meter = bench.meter(bench.counter(lambda t: 300 * t), bench.counter(lambda t: 500 * t, offset=0.037))
    bench.now = 5.0
    window = meter.window(1.0)
    assert window.joules / window.seconds == pytest.approx(800, rel=0.03)
    assert meter.limit_watts == 1400


def test_a_counter_that_falls_stands_still_or_falls_silent_gives_no_window() -> None:
    bench = Bench()
    falls = bench.meter(bench.counter(lambda t: 300 * t if t < 0.5 else 0.0, name="the counter of GPU 1"))
    assert "GPU 1 went backwards" in falls.window(1.0).problem
    still = bench.meter(bench.counter(lambda t: 7.0, name="GPU 2"))
    assert "GPU 2 did not change" in still.window(1.0).problem
    answers = iter([1.0, 2.0, None])
    silent = bench.meter(EnergyCounter("GPU 3", lambda: next(answers)))
    assert "GPU 3 stopped answering" in silent.window(1.0).problem


def test_a_counter_that_stops_in_the_middle_ends_the_window_instead_of_waiting_for_ever() -> None:
    bench = Bench()
    meter = bench.meter(bench.counter(lambda t: 300 * t, until=0.6))
    assert "did not change" in meter.window(1.0).problem
    assert bench.now < 3


def test_nvmls_millijoules_become_joules_and_the_library_is_given_back() -> None:
    nvml = library(FakeGpu(uuid="GPU-0"))
    bench = Bench()

    def sleep(seconds: float) -> None:
        bench.sleep(seconds)
        nvml.energy = 5_000_000 + 400_000 * bench.now

    meter = gpu_meter([gpu()], library=nvml, clock=lambda: bench.now, sleep=sleep)
    window = meter.window(1.0)
    assert window.joules / window.seconds == pytest.approx(400)
    assert (meter.source, meter.limit_watts, nvml.open) == ("NVML, GPU 0", 700, 1)
    meter.close()
    assert nvml.open == 0


def test_a_window_tells_how_hot_the_hottest_device_was_when_it_began() -> None:
    nvml = library(FakeGpu(uuid="GPU-0"), FakeGpu(uuid="GPU-1"))
    heat = {"GPU-0": 41, "GPU-1": 47}
    nvml.nvmlDeviceGetTemperature = lambda device, kind: heat[device.uuid]
    bench = Bench()

    def sleep(seconds: float) -> None:
        bench.sleep(seconds)
        nvml.energy = 5_000_000 + 400_000 * bench.now
        heat["GPU-1"] = 80

    meter = gpu_meter([gpu(0), gpu(1)], library=nvml, clock=lambda: bench.now, sleep=sleep)
    assert meter.window(1.0).temperature == 47
    alone = gpu_meter([gpu(0)], library=nvml, clock=lambda: bench.now, sleep=sleep)
    assert alone.window(1.0).temperature == 41
    nvml.silent = {"nvmlDeviceGetTemperature"}
    assert (alone.window(1.0).temperature, alone.window(1.0).problem) == (None, "")


def test_the_heat_of_cpus_is_that_of_their_packages(tmp_path) -> None:
    assert cpu_meter(tmp_path).temperature() is None
    for number, (kind, heat) in enumerate([("acpitz", 90000), ("x86_pkg_temp", 51000), ("x86_pkg_temp", 55500)]):
        folder = tmp_path / f"sys/class/thermal/thermal_zone{number}"
        folder.mkdir(parents=True)
        (folder / "type").write_text(f"{kind}\n")
        (folder / "temp").write_text(f"{heat}\n")
    assert cpu_meter(tmp_path).temperature() == 55.5


def test_mig_and_gpus_without_a_counter_have_a_reason_instead_of_a_meter() -> None:
    assert "MIG" in gpu_meter([gpu(mig=True)], library=library(FakeGpu(uuid="GPU-0"))).problem
    silent = library(FakeGpu(uuid="GPU-0"), silent=["nvmlDeviceGetTotalEnergyConsumption"])
    assert "GPU 0 has no energy counter" in gpu_meter([gpu()], library=silent).problem
    assert silent.open == 0
    assert "GPU 1 has no energy counter" in gpu_meter([gpu(0), gpu(1)], library=library(FakeGpu(uuid="GPU-0"))).problem
    assert "NVML" in gpu_meter([gpu()], library=FakeNvml(init_error=12)).problem


def test_a_machine_without_rapl_has_a_reason_instead_of_a_meter(tmp_path) -> None:
    assert "no RAPL package" in cpu_meter(tmp_path).problem


def test_the_cpus_that_were_busy_in_a_window_are_counted(tmp_path) -> None:
    folder = tmp_path / "sys/class/powercap/intel-rapl:0"
    folder.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    for name, text in {"name": "package-0", "energy_uj": "0", "max_energy_range_uj": "9000000"}.items():
        (folder / name).write_text(text)
    bench = Bench()

    def sleep(seconds: float) -> None:
        bench.sleep(seconds)
        (folder / "energy_uj").write_text(str(int(bench.now * 2e6)))
        ticks = int(bench.now * 1000)
        # CPU 0 is always busy, CPU 1 never.
        (tmp_path / "proc/stat").write_text(f"cpu0 {ticks} 0 0 0 0 0 0 0\ncpu1 0 0 0 {ticks} 0 0 0 0\n")

    sleep(0.0)
    meter = cpu_meter(tmp_path, clock=lambda: bench.now, sleep=sleep)
    window = meter.window(1.0)
    assert window.busy_cpus == pytest.approx(1.0, rel=0.01)
    assert window.joules / window.seconds == pytest.approx(2.0, rel=0.01)
