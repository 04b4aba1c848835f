"""Probes of clocks, heat and power of the GPUs.

What must not live here: changing a clock, a limit or a fan.
"""

from __future__ import annotations

from aiperf.host.nvml import slowdown_words
from aiperf.host.probes.probe import Finding, Level, Probe, each, percent, worst
from aiperf.host.probes.reader import GpuSight, HostReader, Unreadable
from aiperf.units import significant

_IDLE, _HALF = 10, 50
_NEAR_MAX = 0.9
_NEAR_LIMIT_C = 5
_HOT_C = 85
"""The book's figure, for GPUs whose own threshold NVML does not show."""
_COOL_IDLE_C = 45
_EVEN_C = 10
_LONGEVITY = 0.85


def _watts(milliwatts: int) -> str:
    return f"{significant(milliwatts / 1000)} W"


def _cooling(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        found = gpu.nvml.slowdowns(gpu.whole.handle)
        if found is None:
            raise Unreadable("NVML does not report what slows the clocks", "nvmlDeviceGetCurrentClocksEventReasons")
        said.append(slowdown_words(found) or "nothing slows the clocks")
        levels.append("ok" if not found else "warn" if found == ("sw_power_cap",) else "unfit")
    return Finding(worst(levels), each(said), "nvmlDeviceGetCurrentClocksEventReasons")


def _clocks(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        sm = gpu.nvml.constant("NVML_CLOCK_SM", 1)
        now, most = gpu.whole.need("nvmlDeviceGetClockInfo", sm), gpu.whole.need("nvmlDeviceGetMaxClockInfo", sm)
        asked = gpu.whole.ask("nvmlDeviceGetApplicationsClock", sm)
        usual = gpu.whole.ask("nvmlDeviceGetDefaultApplicationsClock", sm)
        lowered = asked is not None and usual is not None and asked < usual
        slow = (gpu.busy or 0) >= _HALF and now < _NEAR_MAX * most
        text = f"{now} of at most {most} MHz"
        text += f", applications limited to {asked} (default {usual}) MHz" if lowered else ""
        said.append(text + (" though busy" if slow else ""))
        levels.append("warn" if slow or lowered else "ok")
    note = "aiperf run records the clock of each side; a resting GPU clocks down"
    return Finding(worst(levels), each(said), "nvmlDeviceGetClockInfo, nvmlDeviceGetMaxClockInfo", note)


def _limits(gpu: GpuSight) -> tuple[int, int]:
    """Enforced and default power limit in mW. Raises Unreadable."""
    whole = gpu.whole
    return whole.need("nvmlDeviceGetEnforcedPowerLimit"), whole.need("nvmlDeviceGetPowerManagementDefaultLimit")


def _power_limit(reader: HostReader) -> Finding:
    pairs = [_limits(gpu) for gpu in reader.gpus]
    said = each(f"{_watts(enforced)} (default {_watts(default)})" for enforced, default in pairs)
    lowered = [default for enforced, default in pairs if enforced < default]
    fix = f"sudo nvidia-smi -pl {lowered[0] // 1000}, unless the cap is meant: runs record it" if lowered else ""
    where = "nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementDefaultLimit"
    return Finding("warn" if lowered else "ok", said, where, fix=fix)


def _longevity(reader: HostReader) -> Finding:
    shares = [enforced / default for enforced, default in (_limits(gpu) for gpu in reader.gpus)]
    level: Level = "warn" if min(shares) < _LONGEVITY else "ok"
    where = "nvmlDeviceGetEnforcedPowerLimit / nvmlDeviceGetPowerManagementDefaultLimit"
    return Finding(level, each(f"{percent(share)} of the default limit" for share in shares), where)


def _temperature(gpu: GpuSight) -> int:
    return int(gpu.whole.need("nvmlDeviceGetTemperature", gpu.nvml.constant("NVML_TEMPERATURE_GPU", 0)))


def _heat(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        now = _temperature(gpu)
        kind = gpu.nvml.constant("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", 1)
        threshold = gpu.whole.ask("nvmlDeviceGetTemperatureThreshold", kind)
        edge = int(threshold) if threshold else _HOT_C
        said.append(f"{now} °C, slows down at {edge} °C" if threshold else f"{now} °C, slow-down threshold unknown")
        near = now >= edge - _NEAR_LIMIT_C
        levels.append("unfit" if now >= edge else "warn" if near else "ok")
    return Finding(worst(levels), each(said), "nvmlDeviceGetTemperature, nvmlDeviceGetTemperatureThreshold")


def _fans(reader: HostReader) -> Finding:
    gpus = reader.gpus
    heats = [_temperature(gpu) for gpu in gpus]
    busy = [gpu.busy for gpu in gpus]
    fan = [gpu.whole.ask("nvmlDeviceGetFanSpeed_v2", 0) for gpu in gpus]
    said = each(
        f"{heat} °C {_doing(work)}, " + ("no fan of its own" if speed is None else f"fan at {speed} %")
        for heat, work, speed in zip(heats, busy, fan, strict=True)
    )
    warm = [h for h, b in zip(heats, busy, strict=True) if b is not None and b < _IDLE and h >= _COOL_IDLE_C]
    alike = len({_doing(work) for work in busy}) == 1
    uneven = alike and max(heats) - min(heats) >= _EVEN_C
    note = "some GPUs are warmer than others at the same load" if uneven else ""
    return Finding("warn" if warm or uneven else "ok", said, "nvmlDeviceGetTemperature, nvmlDeviceGetFanSpeed_v2", note)


def _doing(busy: int | None) -> str:
    return "at unknown load" if busy is None else "at rest" if busy < _IDLE else "at work"


def _energy(reader: HostReader) -> Finding:
    totals = [gpu.whole.ask("nvmlDeviceGetTotalEnergyConsumption") for gpu in reader.gpus]
    if all(total is not None for total in totals):
        said = each(f"{significant(total / 1e6)} kJ since the driver was loaded" for total in totals)
        return Finding("ok", said, "nvmlDeviceGetTotalEnergyConsumption")
    power = [gpu.whole.ask("nvmlDeviceGetPowerUsage") for gpu in reader.gpus]
    if any(value is None for value in power):
        raise Unreadable("NVML shows neither energy nor power of this GPU", "nvmlDeviceGetTotalEnergyConsumption")
    said = each(f"{_watts(value)} now" for value in power)
    return Finding("ok", said, "nvmlDeviceGetPowerUsage", "no energy counter: power must be summed over time")


def _power(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        now, most = gpu.whole.need("nvmlDeviceGetPowerUsage"), gpu.whole.need("nvmlDeviceGetEnforcedPowerLimit")
        said.append(f"{_watts(now)} of {_watts(most)}")
        levels.append("warn" if now > most else "ok")
    return Finding(worst(levels), each(said), "nvmlDeviceGetPowerUsage, nvmlDeviceGetEnforcedPowerLimit")


def _per_watt(reader: HostReader) -> Finding:
    said = []
    for gpu in reader.gpus:
        least, most = gpu.whole.need("nvmlDeviceGetPowerManagementLimitConstraints")
        gpu.whole.need("nvmlDeviceGetPowerUsage")
        said.append(f"power is readable; limit may be set from {_watts(least)} to {_watts(most)}")
    return Finding("ok", each(said), "nvmlDeviceGetPowerManagementLimitConstraints, nvmlDeviceGetPowerUsage")


PROBES = (
    Probe(
        "cooling-and-power",
        "GPU",
        "What slows the clocks now",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "no thermal slowdown, no power brake, no hardware slowdown",
        "On a GPU that is too hot or short of power, times reflect the throttling, not the code.",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE; clear the air path, wait, or move the job",
        _cooling,
        steady=False,
    ),
    Probe(
        "gpu-clocks",
        "GPU",
        "SM clock",
        "nvmlDeviceGetClockInfo, maximum and application clocks",
        "the default application clock, and near the maximum while busy",
        "A lowered or wandering clock moves every compute-bound time.",
        "sudo nvidia-smi -rac (resets application clocks), sudo nvidia-smi -rgc (resets locked clocks)",
        _clocks,
        steady=False,
    ),
    Probe(
        "gpu-power-limit",
        "GPU",
        "Power limit",
        "nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementDefaultLimit",
        "the default, or a cap that is meant",
        "Below its default limit, a GPU clocks down under full load.",
        "sudo nvidia-smi -pl WATTS, unless the cap is meant: runs record it",
        _power_limit,
    ),
    Probe(
        "longevity-power-target",
        "GPU",
        "Power target for months",
        "enforced over default power limit",
        "1.0; about 0.9 for a run of months",
        "A tenth less power costs little speed and extends the life of the parts; much less costs speed.",
        "sudo nvidia-smi -pl WATTS (nine tenths of the default for a run of months)",
        _longevity,
    ),
    Probe(
        "monitor-thermals-clocks",
        "GPU",
        "Temperature",
        "nvmlDeviceGetTemperature, nvmlDeviceGetTemperatureThreshold",
        "more than 5 °C below the threshold at which the clocks slow down",
        "Above the threshold the GPU lowers its clocks.",
        "let it cool down; nvidia-smi -q -d TEMPERATURE",
        _heat,
        steady=False,
    ),
    Probe(
        "cooling-config",
        "GPU",
        "Cooling",
        "nvmlDeviceGetTemperature, nvmlDeviceGetFanSpeed_v2, utilisation",
        "below 45 °C at rest, GPUs within 10 °C of each other at the same load",
        "A GPU that is warm at rest, or warmer than its neighbours, has an air path to clean.",
        "check fans, inlet temperature and blanking panels; nvidia-smi dmon -s pt",
        _fans,
        steady=False,
    ),
    Probe(
        "track-energy",
        "GPU",
        "Energy counter",
        "nvmlDeviceGetTotalEnergyConsumption, else nvmlDeviceGetPowerUsage",
        "answers",
        "Energy per unit of work shows whether a speedup also saves energy.",
        "update the driver; without the counter sum up nvidia-smi --query-gpu=power.draw",
        _energy,
        steady=False,
    ),
    Probe(
        "monitor-power",
        "GPU",
        "Power now",
        "nvmlDeviceGetPowerUsage, nvmlDeviceGetEnforcedPowerLimit",
        "at most the enforced limit",
        "Power by phase shows which phase is at the limit.",
        "nvidia-smi -q -d POWER",
        _power,
        steady=False,
    ),
    Probe(
        "perf-per-watt",
        "GPU",
        "Throughput a watt is measurable",
        "nvmlDeviceGetPowerManagementLimitConstraints, nvmlDeviceGetPowerUsage",
        "power and the range of its limit are readable",
        "Memory-bound work often loses little at a lower limit.",
        "ask for a GPU whose power NVML shows; nvidia-smi -q -d POWER",
        _per_watt,
    ),
)
