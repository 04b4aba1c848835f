"""Probes of the links between GPUs, and between a GPU and its host.

What must not live here: measuring bandwidth (aiperf peaks), network cards (network.py).
"""

from __future__ import annotations

import itertools

from aiperf.host.probes.probe import Finding, Level, Probe, each, worst
from aiperf.host.probes.reader import Absent, GpuSight, HostReader, Unreadable
from aiperf.units import format_bytes

_LINKS = 18
"""NVLinks that a GPU can have at most so far."""
_BUSY = 50
_ANCESTORS = {
    0: "one board",
    10: "one switch",
    20: "switches",
    30: "one host bridge",
    40: "one node",
    50: "the sockets",
}
"""nvmlDeviceGetTopologyCommonAncestor (nvml.h), in words."""
_NODE = 40
_ERRORS = {0: "replay", 1: "recovery", 2: "CRC (flit)", 3: "CRC (data)"}
"""Counters of nvmlDeviceGetNvLinkErrorCounter (nvml.h)."""
_SENT, _RECEIVED = 138, 139
"""NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, in KiB over all links."""
_SWITCH_CLASS = "0x0680"


def _links(gpu: GpuSight) -> tuple[int, int] | None:
    """Links that are up, and links that there are; None when NVML does not say."""
    states = [gpu.ask("nvmlDeviceGetNvLinkState", link) for link in range(_LINKS)]
    known = [state for state in states if state is not None]
    return (sum(known), len(known)) if known else None


def _p2p(first: GpuSight, second: GpuSight, name: str, default: int) -> int | None:
    index = first.nvml.constant(name, default)
    found = first.nvml.ask("nvmlDeviceGetP2PStatus", first.handle, second.handle, index)
    return None if found is None else int(found)


def _way(first: GpuSight, second: GpuSight) -> tuple[str, int]:
    """How two GPUs reach each other, and how far that is (0 for NVLink). Raises Unreadable."""
    if _p2p(first, second, "NVML_P2P_CAPS_INDEX_NVLINK", 2) == 0:
        return "NVLink", 0
    found = first.nvml.ask("nvmlDeviceGetTopologyCommonAncestor", first.handle, second.handle)
    if found is None:
        raise Unreadable("NVML does not show how the GPUs are connected", "nvmlDeviceGetTopologyCommonAncestor")
    return f"PCIe across {_ANCESTORS.get(int(found), str(found))}", int(found)


def _ways(reader: HostReader) -> dict[tuple[int, int], tuple[str, int]]:
    return {(a.index, b.index): _way(a, b) for a, b in itertools.combinations(reader.several_gpus(), 2)}


def _named(ways: dict[tuple[int, int], str]) -> str:
    if len(set(ways.values())) == 1:
        return f"{next(iter(ways.values()))} between all pairs"
    return "; ".join(f"GPU {a}-{b}: {way}" for (a, b), way in ways.items())


def _interconnect(reader: HostReader) -> Finding:
    gpus = reader.several_gpus()
    ways = {pair: way for pair, (way, _) in _ways(reader).items()}
    peers = [_p2p(a, b, "NVML_P2P_CAPS_INDEX_READ", 0) for a, b in itertools.permutations(gpus, 2)]
    links = [found for gpu in gpus if (found := _links(gpu)) is not None]
    said = [_named(ways)]
    said += [each(f"{up} of {count} links up" for up, count in links)] if len(links) == len(gpus) else []
    apart = any(status not in (0, None) for status in peers)
    said += ["no peer access"] if apart else []
    down = any(up < count for up, count in links)
    level: Level = "ok" if set(ways.values()) == {"NVLink"} and not down and not apart else "warn"
    where = "nvmlDeviceGetP2PStatus, nvmlDeviceGetTopologyCommonAncestor, nvmlDeviceGetNvLinkState"
    return Finding(level, ", ".join(said), where)


def _all_to_all(reader: HostReader) -> Finding:
    ways = {pair: way for pair, (way, _) in _ways(reader).items()}
    if len(set(ways.values())) > 1:
        note = "pairs are connected in different ways: their bandwidths differ"
        return Finding("warn", _named(ways), "nvmlDeviceGetP2PStatus", note)
    reason = f"only copies on the GPUs show the bandwidth of each pair ({_named(ways)})"
    raise Unreadable(reason, "nvmlDeviceGetP2PStatus", "aiperf peaks p2p")


def _colocation(reader: HostReader) -> Finding:
    gpus, ways = reader.several_gpus(), _ways(reader)
    domains = {found[1:] for gpu in gpus if (found := gpu.nvml.fabric(gpu.handle)) and found[0] == "completed"}
    far = [pair for pair, (_, distance) in ways.items() if distance >= _NODE]
    said = _named({pair: way for pair, (way, _) in ways.items()})
    said += f", {len(domains)} NVLink domain{'s' if len(domains) > 1 else ''}" if domains else ""
    where = "nvmlDeviceGetP2PStatus, nvmlDeviceGetTopologyCommonAncestor, nvmlDeviceGetGpuFabricInfoV"
    return Finding("warn" if far or len(domains) > 1 else "ok", said, where)


def _saturation(reader: HostReader) -> Finding:
    said, levels = [], list[Level]()
    for gpu in reader.gpus:
        up = _links(gpu)
        if up is not None and up[0] == 0:
            raise Absent("no NVLink of this GPU is up")
        counts = {
            word: sum(gpu.ask("nvmlDeviceGetNvLinkErrorCounter", link, kind) or 0 for link in range(_LINKS))
            for kind, word in _ERRORS.items()
            if gpu.ask("nvmlDeviceGetNvLinkErrorCounter", 0, kind) is not None
        }
        moved = gpu.nvml.fields(gpu.handle, (_SENT, _RECEIVED))
        if not counts and not moved:
            raise Unreadable("NVML shows neither traffic nor errors of the links", "nvmlDeviceGetNvLinkErrorCounter")
        bad = [f"{count} {word} errors" for word, count in counts.items() if count]
        parts = bad or (["no errors"] if counts else ["errors unknown"])
        parts += [f"{format_bytes(sum(moved.values()) * 1024)} moved so far"] if moved else ["traffic unknown"]
        said.append(", ".join(parts))
        levels.append("warn" if bad else "ok")
    return Finding(worst(levels), each(said), "nvmlDeviceGetNvLinkErrorCounter, nvmlDeviceGetFieldValues")


def _switches(reader: HostReader) -> int:
    base = "sys/bus/pci/devices"
    mine = (name for name in reader.names(base) if reader.maybe(f"{base}/{name}/vendor") == "0x10de")
    return sum(reader.maybe(f"{base}/{name}/class").startswith(_SWITCH_CLASS) for name in mine)


def _fabric(reader: HostReader) -> Finding:
    states = [found[0] for gpu in reader.gpus if (found := gpu.nvml.fabric(gpu.handle))]
    switches = _switches(reader)
    where = "PCI class 0x0680, nvmlDeviceGetGpuFabricInfoV, systemctl is-active nvidia-fabricmanager"
    if not switches:
        known = [state for state in states if state != "not supported"]
        if not known:
            raise Absent("no NVSwitch is seen from here")
        return Finding("ok" if set(known) == {"completed"} else "warn", f"fabric {each(known)}", where)
    runs = "nv-fabricmanager" in reader.processes
    output = reader.command(("systemctl", "is-active", "nvidia-fabricmanager"))
    said = output.out.strip() if output is not None and output.out.strip() else "unknown to systemd"
    value = f"{switches} NVSwitches, fabric manager {'runs' if runs else said}"
    value += f", fabric {each(states)}" if states else ""
    good = (runs or said == "active") and not set(states) & {"not started", "in progress"}
    if not good and not runs and said == "unknown to systemd" and not states:
        raise Unreadable("neither systemd nor NVML shows the fabric manager", where)
    return Finding("ok" if good or set(states) == {"completed"} else "unfit", value, where)


def _pcie(reader: HostReader) -> Finding:
    said, levels, rests = [], list[Level](), False
    for gpu in reader.gpus:
        whole = gpu.whole
        now, most = whole.need("nvmlDeviceGetCurrPcieLinkGeneration"), whole.need("nvmlDeviceGetMaxPcieLinkGeneration")
        wide, widest = whole.need("nvmlDeviceGetCurrPcieLinkWidth"), whole.need("nvmlDeviceGetMaxPcieLinkWidth")
        resting = now < most and (gpu.busy or 0) < _BUSY
        rests = rests or resting
        said.append(f"generation {now} of {most}, x{wide} of x{widest}" + (", at rest" if resting else ""))
        levels.append("warn" if wide < widest or (now < most and not resting) else "ok")
    note = "a resting GPU may lower the generation" if rests else ""
    where = "nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkWidth and their maxima"
    return Finding(worst(levels), each(said), where, note)


PROBES = (
    Probe(
        "high-bandwidth-interconnect",
        "interconnect",
        "Links between GPUs",
        "nvmlDeviceGetP2PStatus, nvmlDeviceGetTopologyCommonAncestor, nvmlDeviceGetNvLinkState",
        "NVLink between every pair, every link up, peer access",
        "Across PCIe, a collective is several times slower; without peer access, it goes through host memory.",
        "nvidia-smi topo -m; choose GPUs that share NVLink with CUDA_VISIBLE_DEVICES",
        _interconnect,
    ),
    Probe(
        "all-to-all-topology",
        "interconnect",
        "Bandwidth of each pair",
        "nvmlDeviceGetP2PStatus; the bandwidth itself needs copies on the GPUs",
        "all pairs within 10 % of each other and near the peak of the link",
        "A collective runs at the pace of its slowest pair.",
        "aiperf peaks p2p; nvidia-smi topo -m",
        _all_to_all,
    ),
    Probe(
        "topology-aware-colocation",
        "interconnect",
        "GPUs in one NVLink domain",
        "nvmlDeviceGetGpuFabricInfoV, nvmlDeviceGetTopologyCommonAncestor",
        "one domain, no pair across the sockets",
        "A rank outside the domain forces every collective onto the slower path.",
        "nvidia-smi topo -m; set CUDA_VISIBLE_DEVICES to GPUs of one domain",
        _colocation,
    ),
    Probe(
        "monitor-link-saturation",
        "interconnect",
        "NVLink counters",
        "nvmlDeviceGetNvLinkErrorCounter, nvmlDeviceGetFieldValues",
        "no replay, recovery or CRC errors",
        "Corrupted packets are resent, so bandwidth is lost silently.",
        "nvidia-smi nvlink -e; reseat or replace the link; drain the node if the counts grow",
        _saturation,
        steady=False,
    ),
    Probe(
        "fabric-manager",
        "interconnect",
        "Fabric Manager",
        "NVSwitches on the PCI bus, nvidia-fabricmanager, nvmlDeviceGetGpuFabricInfoV",
        "active and the fabric completed, on hosts with NVSwitches",
        "Until it has set up the switches, CUDA does not start, or GPUs cannot reach each other.",
        "sudo systemctl enable --now nvidia-fabricmanager",
        _fabric,
    ),
    Probe(
        "pcie-link-full",
        "interconnect",
        "PCIe link of the GPU",
        "nvmlDeviceGetCurrPcieLinkGeneration and Width, and their maxima",
        "the full width; the full generation under load",
        "Half the width halves the bandwidth of every copy to and from the host.",
        "sudo lspci -vv -s BUS | grep LnkSta; reseat the card, check risers and firmware settings",
        _pcie,
        steady=False,
    ),
)
