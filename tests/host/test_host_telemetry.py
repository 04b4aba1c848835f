import os
import subprocess
import sys
import time
from collections import Counter

import pytest
from host_fake_nvml import EVERY_DEVICE_CALL, LIBRARY_NOT_FOUND, FakeGpu, FakeNvml
from host_recorded import machine, process
from patience import until

from aiperf.host.facts import Gpu
from aiperf.host.incidents import judge
from aiperf.host.telemetry import Sampler, Telemetry


def facts_of(*fakes):
    return [Gpu(index, "NVIDIA H200", fake.uuid, "9.0", 1, 1) for index, fake in enumerate(fakes)]


def await_readings(sampler, wanted=2):
    """Wait until it has begun with so many: what the one before found is kept."""
    assert until(lambda: sum(list(sampler._readings.values())) >= wanted or not sampler._thread.is_alive())


def watch(fake, root, *, seconds=0.12, side="before", meanwhile=lambda: None, **options):
    sampler = Sampler(gpus=facts_of(fake), library=FakeNvml(fake, **options), period=0.01, root=root)
    sampler.start()
    sampler.mark(side)
    time.sleep(seconds)
    await_readings(sampler)
    meanwhile()
    return sampler.stop()


def kinds(telemetry, own=()):
    return {(i.kind, i.side, i.voids) for i in judge(telemetry, own)}


def test_readings_are_kept_for_the_side_whose_turn_it_is(tmp_path):
    gpu = FakeGpu()
    sampler = Sampler(gpus=facts_of(gpu), library=FakeNvml(gpu), period=0.01, root=machine(tmp_path))
    sampler.start()
    for side, clock in (("before", 1980), ("after", 1500)):
        sampler.mark(None)
        await_readings(sampler, sum(sampler._readings.values()) + 1)
        gpu.sm_clock = clock
        sampler.mark(side)
        assert until(lambda: "sm_clock_mhz" in sampler._values[side])  # noqa: B023
    sampler.mark(None)
    telemetry = sampler.stop()
    assert telemetry.sides["before"]["sm_clock_mhz"] == 1980
    assert telemetry.sides["after"]["sm_clock_mhz"] == 1500
    assert telemetry.readings["before"] >= 1
    assert telemetry.problem == ""


def read_by_hand(tmp_path, turns):
    """What a sampler keeps when it reads everything once in each of these turns, without a clock of its own."""
    gpu = FakeGpu()
    sampler = Sampler(gpus=facts_of(gpu), library=FakeNvml(gpu), root=machine(tmp_path))
    last = None
    for side in turns:
        if side != last:
            sampler.mark(side)
        last = side
        sampler._read(whole=True)
    return {side: set(values) for side, values in sampler._values.items()}, set(sampler._overall)


def test_a_reading_that_spans_two_turns_counts_for_neither_side(tmp_path):
    sides, overall = read_by_hand(tmp_path, ["before", "after"] * 3)
    assert "power_w" not in sides["before"] | sides["after"]
    assert "sm_clock_mhz" in sides["before"] & sides["after"]
    assert "power_w" in overall


def test_a_mean_since_the_reading_before_counts_where_one_turn_held_both(tmp_path):
    sides, _ = read_by_hand(tmp_path, ["before", "after", "after", "before"])
    assert {"power_w", "gpu_busy"} <= sides["after"]
    assert "power_w" not in sides["before"]


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x20, ("thermal", "before", True)),
        (0x40, ("thermal", "before", True)),
        (0x80, ("power_brake", "before", True)),
        (0x8, ("hw_slowdown", "before", True)),
        (0x4, ("power_cap", "before", False)),
    ],
)
def test_heat_and_brakes_void_a_pair_and_the_power_cap_does_not(tmp_path, bits, expected):
    found = kinds(watch(FakeGpu(reasons=bits), machine(tmp_path)))
    assert expected in found
    assert {kind for kind, _, _ in found} == {expected[0]}


def test_a_phase_has_readings_of_its_own_and_its_power_cap_is_nobodys_cost(tmp_path):
    telemetry = watch(FakeGpu(reasons=0x4), machine(tmp_path), side="warm-up of before")
    assert telemetry.sides["warm-up of before"]["sm_clock_mhz"] == 1980
    assert judge(telemetry, ()) == ()
    hot = watch(FakeGpu(reasons=0x20), machine(tmp_path), side="set-up phase")
    assert ("thermal", "set-up phase", True) in kinds(hot)


def test_what_the_machine_did_meanwhile_is_told_per_second(tmp_path):
    root = machine(tmp_path, **{"proc/vmstat": "pgfault 1000\n", "proc/loadavg": "0.50 1 1 2/90 7\n"})

    def fault():
        (root / "proc/more").write_text("pgfault 500000\n")
        (root / "proc/more").replace(root / "proc/vmstat")  # never seen half written

    telemetry = watch(FakeGpu(), root, meanwhile=fault, side="before")
    assert telemetry.sides["before"]["load"] == 0.5
    assert telemetry.overall["page_faults_per_s"] > 0


def test_an_idle_gpu_is_no_incident(tmp_path):
    assert judge(watch(FakeGpu(reasons=0x1), machine(tmp_path)), ()) == ()


def test_a_foreign_process_on_the_gpu_voids_and_own_descendants_do_not(tmp_path):
    root = machine(tmp_path)
    process(root, 10, parent=1)
    process(root, 11, parent=10)
    process(root, 12, parent=11, arguments=("python3", "train.py"))
    process(root, 20, parent=1, environ=("AIPERF_PARENT=10",))
    telemetry = watch(FakeGpu(pids=[11, 12, 20, 999]), root)
    assert kinds(telemetry, own=[10]) == set()
    assert kinds(telemetry, own=[11]) == {("foreign_gpu_process", i.side, True) for i in judge(telemetry, [11])}
    details = [i.detail for i in judge(telemetry, [777])]
    assert "process 12 (python3) used GPU 0" in details
    assert len(details) == 3
    assert not any("999" in detail for detail in details)


def test_a_number_that_names_a_process_without_a_gpu_here_is_not_counted(tmp_path):
    root = process(machine(tmp_path), 30)
    (root / "proc/30/fd").mkdir()
    (root / "proc/30/fd/0").symlink_to("/dev/null")
    assert judge(watch(FakeGpu(pids=[30]), root), ()) == ()
    (root / "proc/30/fd/3").symlink_to("/dev/nvidia0")
    assert {i.kind for i in judge(watch(FakeGpu(pids=[30]), root), ())} == {"foreign_gpu_process"}


def test_clocks_and_ecc_errors_that_change_within_a_pair_void_it(tmp_path):
    gpu = FakeGpu()

    def change():
        gpu.application_clock, gpu.ecc_errors = 1500, 2

    details = [i.detail for i in judge(watch(gpu, machine(tmp_path), meanwhile=change), ()) if i.voids]
    assert details == [
        "application clock of GPU 0 (MHz) went from 1980 to 1500",
        "uncorrected ECC errors of GPU 0 went from 0 to 2",
    ]


@pytest.mark.parametrize("call", EVERY_DEVICE_CALL)
def test_any_call_may_be_unsupported_without_an_incident(tmp_path, call):
    telemetry = watch(FakeGpu(), machine(tmp_path), seconds=0.02, silent=[call])
    assert judge(telemetry, ()) == (), telemetry


def test_without_nvml_the_cpus_are_still_read():
    cpu = min(os.sched_getaffinity(0))
    sampler = Sampler(cpus=(cpu,), library=FakeNvml(init_error=LIBRARY_NOT_FOUND), period=0.02)
    sampler.start()
    sampler.mark("before")
    home = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    end = time.perf_counter() + 0.6
    while time.perf_counter() < end:
        pass
    os.sched_setaffinity(0, home)
    telemetry = sampler.stop()
    assert telemetry.sides["before"]["cpu_busy"] > 0.5
    assert "sm_clock_mhz" not in telemetry.overall


def test_stolen_time_is_told_but_does_not_void():
    telemetry = Telemetry(sides={"before": {"cpu_steal": 0.1}, "after": {"cpu_steal": 0.0}})
    (incident,) = judge(telemetry, ())
    assert (incident.kind, incident.side, incident.voids) == ("steal", "before", False)
    assert incident.detail == "10 % of the CPU time went to other virtual machines"


def test_a_sampler_that_breaks_says_so(tmp_path):
    class Broken(FakeNvml):
        def nvmlDeviceGetTemperature(self, gpu, sensor):
            raise OSError("gone")

    gpu = FakeGpu()
    sampler = Sampler(gpus=facts_of(gpu), library=Broken(gpu), root=machine(tmp_path))
    sampler.start()
    (incident,) = judge(sampler.stop(), ())
    assert (incident.kind, incident.voids) == ("telemetry", False)
    assert incident.detail == "sampling ended early: OSError: gone"


@pytest.mark.long
def test_sampling_costs_less_than_one_percent_of_a_core():
    code = "from aiperf.host.telemetry import Sampler; import time, os\n"
    code += "s = Sampler(cpus=tuple(os.sched_getaffinity(0))); s.start(); time.sleep(1.5); print(s.stop().cost)"
    costs: list[float] = []
    # Other work on the machine only adds to it, so the least of a few is the sampler's own.
    while not costs or (min(costs) >= 0.01 and len(costs) < 3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        costs.append(float(done.stdout))
    assert min(costs) < 0.01


class Counting(FakeNvml):
    """Counts what is asked of its GPU, and takes CPU time for each answer."""

    def __init__(self, gpu, *, burn: float) -> None:
        super().__init__(gpu)
        self.asked: Counter[str] = Counter()
        self.burn = burn

    def _take(self, name):
        self.asked[name] += 1
        end = time.thread_time() + self.burn
        while time.thread_time() < end:
            pass

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        self._take(f"clock {kind}")
        return super().nvmlDeviceGetClockInfo(gpu, kind)

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        self._take("temperature")
        return super().nvmlDeviceGetTemperature(gpu, sensor)

    def nvmlDeviceGetPowerUsage(self, gpu):
        self._take("power")
        return super().nvmlDeviceGetPowerUsage(gpu)


def counted(root, *, seconds: float, burn: float, period: float):
    gpu = FakeGpu()
    library = Counting(gpu, burn=burn)
    sampler = Sampler(gpus=facts_of(gpu), library=library, period=period, root=root)
    sampler.start()
    sampler.mark("before")
    time.sleep(seconds)
    await_readings(sampler, 1)
    return sampler.stop(), library.asked


@pytest.mark.long
def test_slow_readings_of_everything_come_seldom_and_what_voids_a_pair_is_read_in_between(tmp_path):
    telemetry, asked = counted(machine(tmp_path), seconds=2.0, burn=0.002, period=0.02)
    # A brief one takes 2 ms, a whole one 8: at the period alone that would be a quarter of a core.
    assert telemetry.cost < 0.02
    assert asked["clock 1"] == sum(telemetry.readings.values()) > asked["power"] >= 2
    assert asked["temperature"] == asked["clock 2"] == asked["power"]


def test_the_first_and_the_last_reading_ask_everything_and_cost_nobody_anything(tmp_path):
    telemetry, asked = counted(machine(tmp_path), seconds=0.05, burn=0.02, period=5)
    assert (sum(telemetry.readings.values()), asked["power"]) == (2, 2)
    assert telemetry.cost == 0


def test_every_reading_in_between_counts(tmp_path):
    telemetry, asked = counted(machine(tmp_path), seconds=0.8, burn=0.005, period=0.01)
    assert asked["power"] == 2
    between = sum(telemetry.readings.values()) - 2
    assert between >= 1
    assert 0.8 * between * 0.005 < telemetry.cost * telemetry.seconds


def test_only_the_gpus_that_are_named_are_watched(tmp_path):
    used, other = FakeGpu(uuid="GPU-0"), FakeGpu(uuid="GPU-1", sm_clock=345, reasons=0x40, pids=[31])
    root = process(machine(tmp_path), 31)
    sampler = Sampler(gpus=facts_of(used), library=FakeNvml(used, other), period=0.01, root=root)
    sampler.start()
    sampler.mark("before")
    time.sleep(0.1)
    other.ecc_errors = 7
    telemetry = sampler.stop()
    assert telemetry.sides["before"]["sm_clock_mhz"] == 1980
    assert judge(telemetry, ()) == ()


def test_how_the_machine_stood_at_the_start_is_told_with_where_the_reading_ran(tmp_path):
    policy = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    root = machine(tmp_path, **{policy.format(cpu): "performance\n" for cpu in (0, 1)})
    gpu, home = FakeGpu(), {max(os.sched_getaffinity(0))}
    sampler = Sampler(gpus=facts_of(gpu), cpus=(0, 1), home=home, library=FakeNvml(gpu), period=0.01, root=root)
    sampler.start()
    time.sleep(0.05)
    (root / policy.format(1)).write_text("powersave\n")
    telemetry = sampler.stop()
    assert telemetry.home == tuple(home)
    assert telemetry.temperatures == {"GPU 0": 55.0}
    assert telemetry.invariants["power limit of GPU 0 (mW)"] == "700000"
    assert telemetry.invariants["governor of the CPUs"] == "performance"
    (incident,) = judge(telemetry, ())
    assert (incident.kind, incident.voids) == ("clock", True)
    assert incident.detail == "governor of the CPUs went from performance to performance, powersave"


@pytest.mark.parametrize(("cost", "seconds", "told"), [(0.02, 5.0, 1), (0.009, 5.0, 0), (0.2, 0.3, 0)])
def test_reading_that_costs_more_than_it_may_is_told_and_a_pair_of_one_reading_is_not_judged(cost, seconds, told):
    found = judge(Telemetry(cost=cost, seconds=seconds), ())
    assert [(i.kind, i.voids) for i in found] == [("sampling_cost", False)] * told
    assert not found or found[0].detail == "reading clocks and counters took 2 % of one core"
