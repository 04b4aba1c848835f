"""Probes of the network: RDMA, TCP, frames, interrupts, errors, bandwidth for the GPUs.

What must not live here: sending anything, links between GPUs (interconnect.py).
"""

from __future__ import annotations

import re

from aiperf.host import proc
from aiperf.host.placement import format_cpus
from aiperf.host.probes.cards import Card, cards, ethernet, ports
from aiperf.host.probes.disks import disk_of
from aiperf.host.probes.probe import Finding, Level, Probe, percent
from aiperf.host.probes.reader import Absent, HostReader, Unreadable
from aiperf.units import format_bytes, format_rate, significant

_BUFFER = 16 * 1024**2
_JUMBO = 8000
"""Clouds carry 8896 or 9001 bytes where a switch of one's own carries 9000."""
_MODERN = ("bbr", "cubic", "dctcp")
_GBITS_A_GPU = 25
"""Eight GPUs can exceed 200 Gb/s."""
_DMABUF = (5, 12)
_RETRANSMITTED = 0.01
_NEAR_FULL = 0.8
_DISK_BUSY = 0.5
_ERRORS = {2: "receive errors", 3: "received dropped", 10: "send errors", 11: "sent dropped"}
"""Columns of /proc/net/dev."""
_PORT_ERRORS = ("symbol_error", "link_downed", "port_rcv_errors")


def _rdma(reader: HostReader) -> Finding:
    found = ports(reader)
    states = {folder: reader.text(f"{folder}/state").split(":")[-1].strip() for folder in found}
    active = [folder for folder, state in states.items() if state == "ACTIVE"]
    said = [f"{len(active)} of {len(found)} ports active"]
    level: Level = "ok" if len(active) == len(found) else "warn"
    if (off := reader.environ.get("NCCL_IB_DISABLE", "0")) not in ("", "0"):
        said, level = [*said, f"NCCL_IB_DISABLE={off}"], "warn"
    try:
        direct = _direct(reader) if reader.gpus else ""
    except Absent:
        direct = ""
    if direct == "no":
        level = "warn"
    said += [{"no": "no GPUDirect RDMA (nvidia_peermem not loaded, kernel without DMA-BUF)"}.get(direct, direct)]
    where = "/sys/class/infiniband/*/ports/*/state, /proc/modules, NCCL_IB_DISABLE"
    fix = "unset NCCL_IB_DISABLE" if off not in ("", "0") else ""
    return Finding(level, ", ".join(part for part in said if part), where, fix=fix)


def _direct(reader: HostReader) -> str:
    if any(line.startswith("nvidia_peermem ") for line in reader.maybe("proc/modules").splitlines()):
        return "nvidia_peermem loaded"
    release = re.match(r"(\d+)\.(\d+)", reader.maybe("proc/sys/kernel/osrelease"))
    new = release is not None and (int(release[1]), int(release[2])) >= _DMABUF
    return "DMA-BUF in the kernel" if new else "no"


def _buffers(reader: HostReader) -> Finding:
    base = "proc/sys/net"
    sizes = {name: reader.number(f"{base}/core/{name}") for name in ("rmem_max", "wmem_max")}
    for name in ("tcp_rmem", "tcp_wmem"):
        words = reader.text(f"{base}/ipv4/{name}").split()
        if len(words) != 3 or not words[2].isdigit():
            raise Unreadable(f"/{base}/ipv4/{name} does not hold three sizes", f"/{base}/ipv4/{name}")
        sizes[name] = int(words[2])
    small = [name for name, size in sizes.items() if size < _BUFFER]
    value = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
    return Finding("warn" if small else "ok", value, f"/{base}/core, /{base}/ipv4")


def _frames(reader: HostReader) -> Finding:
    sizes = {card.name: reader.number(f"{card.folder}/mtu") for card in ethernet(reader)}
    small = [name for name, size in sizes.items() if size < _JUMBO]
    value = ", ".join(f"{name} {size}" for name, size in sizes.items())
    fix = f"sudo ip link set {small[0]} mtu 9000, once every switch and host between carries it" if small else ""
    return Finding("warn" if small else "ok", value, "/sys/class/net/*/mtu", fix=fix)


def _congestion(reader: HostReader) -> Finding:
    found = reader.text("proc/sys/net/ipv4/tcp_congestion_control").strip()
    return Finding("ok" if found in _MODERN else "warn", found, "/proc/sys/net/ipv4/tcp_congestion_control")


def _served(reader: HostReader, card: Card, name: str) -> tuple[int, ...]:
    """The CPUs that the interrupts of a card may go to. Raises Unreadable."""
    numbers = card.interrupts(reader)
    texts = [text for number in numbers if (text := reader.maybe(f"proc/irq/{number}/{name}"))]
    if not texts:
        raise Unreadable(f"the interrupts of {card.name} are not shown", f"/proc/irq/*/{name}")
    try:
        return tuple(sorted({cpu for text in texts for cpu in proc.parse_cpu_list(text)}))
    except ValueError:
        raise Unreadable(f"the interrupts of {card.name} list no CPUs", f"/proc/irq/*/{name}") from None


def _affinity(reader: HostReader) -> Finding:
    said, away = [], []
    for card in cards(reader):
        local = card.local_cpus(reader) or (_only_node(reader) or ())
        if not local:
            raise Unreadable(f"the kernel does not report which CPUs are near {card.name}", f"/{card.folder}/device")
        served = _served(reader, card, "smp_affinity_list")
        away += [card.name] if not set(served) <= set(local) else []
        said.append(f"{card.name} on CPU {format_cpus(served)}, beside CPU {format_cpus(local)}")
    note = "irqbalance runs and may move them" if "irqbalance" in reader.processes else ""
    where = "/proc/irq/*/smp_affinity_list, /sys/class/net/*/device/local_cpulist"
    return Finding("warn" if away else "ok", "; ".join(said), where, note)


def _only_node(reader: HostReader) -> tuple[int, ...] | None:
    nodes = proc.numa_nodes(reader.root)
    return next(iter(nodes.values())) if len(nodes) == 1 else None


def _card_nodes(reader: HostReader) -> Finding:
    nodes = proc.numa_nodes(reader.root)
    where = "/sys/class/net/*/device/numa_node, /proc/irq/*/effective_affinity_list"
    found = cards(reader)
    if len(nodes) == 1:
        return Finding("ok", "one NUMA node", where)
    said, away = [], []
    for card in found:
        own = card.node(reader)
        if own is None or not nodes:
            raise Unreadable(
                f"the kernel does not show the NUMA node of {card.name}", f"/{card.folder}/device/numa_node"
            )
        served = _served(reader, card, "effective_affinity_list")
        used = sorted(n for n, cpus in nodes.items() if set(cpus) & set(served))
        away += [card.name] if used != [own] else []
        said.append(f"{card.name} on node {own}, its interrupts on node {format_cpus(used)}")
    return Finding("warn" if away else "ok", "; ".join(said), where)


def _bandwidth(reader: HostReader) -> Finding:
    gpus = len(reader.gpus)
    try:
        active = [folder for folder in ports(reader) if "ACTIVE" in reader.text(f"{folder}/state")]
        total, count = float(sum(reader.number(f"{folder}/rate") for folder in active)), len(active)
        where = "/sys/class/infiniband/*/ports/*/rate and state"
    except Absent:
        speeds = [card.speed(reader) / 1000 for card in cards(reader)]
        where, total, count = "/sys/class/net/*/speed", sum(speeds), len(speeds)
    value = f"{significant(total)} Gb/s on active ports ({count}) for all GPUs ({gpus})"
    return Finding("ok" if total / gpus >= _GBITS_A_GPU else "warn", value, where)


def _health(reader: HostReader) -> Finding:
    moved = reader.watch
    resent, sent = moved.tcp("RetransSegs"), moved.tcp("OutSegs")
    if resent is None or sent is None:
        reader.text("proc/net/snmp")
        raise Unreadable("/proc/net/snmp counts no TCP segments", "/proc/net/snmp")
    bad = [f"{resent} segments sent again"] if resent else []
    for card in _cards_if_any(reader):
        gained = moved.network(card.name) or ()
        bad += [f"{card.name} {gained[at]} {word}" for at, word in _ERRORS.items() if at < len(gained) and gained[at]]
    ever, all_sent = moved.last.tcp["RetransSegs"], moved.last.tcp["OutSegs"]
    share = ever / all_sent if all_sent else 0.0
    bad += [f"{percent(share, 1)} of all segments since boot sent again"] if share > _RETRANSMITTED else []
    bad += _port_errors(reader)
    value = ", ".join(bad) or f"nothing lost while watched, {percent(share, 2)} of segments sent again since boot"
    where = "/proc/net/snmp, /proc/net/dev over half a second, /sys/class/infiniband/*/ports/*/counters"
    return Finding("warn" if bad else "ok", value, where)


def _cards_if_any(reader: HostReader) -> tuple[Card, ...]:
    try:
        return cards(reader)
    except Absent:
        return ()


def _port_errors(reader: HostReader) -> list[str]:
    try:
        found = ports(reader)
    except Absent:
        return []
    pairs = [(f"{folder}/counters/{name}", name) for folder in found for name in _PORT_ERRORS]
    return [
        f"{path.split('/')[3]} {name} {text}" for path, name in pairs if (text := reader.maybe(path)) not in ("", "0")
    ]


def _rates(reader: HostReader) -> Finding:
    moved, said = reader.watch, []
    level: Level = "ok"
    for card in cards(reader):
        gained = moved.network(card.name)
        if gained is None or len(gained) < 9:
            raise Unreadable(f"/proc/net/dev does not count {card.name}", "/proc/net/dev")
        rate = max(gained[0], gained[8]) / moved.seconds
        said.append(f"{card.name} {format_rate(rate)}")
        try:
            full = rate * 8 / 1e6 > _NEAR_FULL * card.speed(reader)
        except Unreadable:
            full = False
        level = "warn" if full else level
    try:
        name = disk_of(reader, reader.data).name
        busy = moved.disk_busy(name)
    except Unreadable:
        busy = None
    if busy is not None:
        said.append(f"{name} {percent(busy)} busy")
        level = "warn" if busy > _DISK_BUSY else level
    return Finding(level, ", ".join(said), "/proc/net/dev, /proc/diskstats over half a second")


PROBES = (
    Probe(
        "rdma",
        "network",
        "RDMA",
        "infiniband ports, nvidia_peermem or DMA-BUF, NCCL_IB_DISABLE",
        "every port active, GPUDirect RDMA possible, NCCL_IB_DISABLE not set",
        "Without it, every message between nodes is copied through host memory.",
        "ibstat (shows the port); sudo modprobe nvidia_peermem",
        _rdma,
    ),
    Probe(
        "tcp-stack",
        "network",
        "Socket buffers",
        "rmem_max, wmem_max, tcp_rmem, tcp_wmem",
        "at least 16 MiB each",
        "A fast link with some delay holds more bytes in flight than the default buffers.",
        'sudo sysctl -w net.core.rmem_max=16777216 net.core.wmem_max=16777216 net.ipv4.tcp_rmem="4096 131072 16777216" '
        'net.ipv4.tcp_wmem="4096 16384 16777216"',
        _buffers,
    ),
    Probe(
        "jumbo-frames",
        "network",
        "Frame size",
        "mtu of every Ethernet card",
        "9000 (8896 or more in clouds)",
        "The same bytes need a sixth of the packets and interrupts.",
        "sudo ip link set NAME mtu 9000, once every switch and host between carries it",
        _frames,
    ),
    Probe(
        "congestion-control",
        "network",
        "Congestion control",
        "tcp_congestion_control",
        "cubic within a data centre, bbr over lossy or long paths",
        "Older algorithms give up bandwidth at the first lost packet.",
        "sudo sysctl -w net.ipv4.tcp_congestion_control=bbr (after modprobe tcp_bbr)",
        _congestion,
    ),
    Probe(
        "irq-affinity",
        "network",
        "CPUs that serve the card",
        "smp_affinity_list of the card's interrupts, local_cpulist",
        "only CPUs near the card",
        "An interrupt on the other socket moves every packet across the link between them.",
        "echo LIST | sudo tee /proc/irq/N/smp_affinity_list, with irqbalance stopped or configured (--banirq)",
        _affinity,
    ),
    Probe(
        "nic-cpu-affinity",
        "network",
        "NUMA node of the card's interrupts",
        "device/numa_node, effective_affinity_list",
        "the card's own node",
        "Packets handled on another node are copied across the socket link.",
        "echo LIST | sudo tee /proc/irq/N/smp_affinity_list, with CPUs of the card's node",
        _card_nodes,
    ),
    Probe(
        "network-oversubscription",
        "network",
        "Network bandwidth for each GPU",
        "rate of the InfiniBand ports, else speed of the cards",
        "at least 25 Gb/s a GPU",
        "The GPUs of a node share its network links; narrow ones make every gradient exchange wait.",
        "add network cards, or compress and accumulate gradients; nvidia-smi topo -m shows shared ports",
        _bandwidth,
    ),
    Probe(
        "network-health",
        "network",
        "Losses",
        "RetransSegs, errors and drops of the cards, port counters, over half a second",
        "none while watched, under 1 % of segments sent again since boot",
        "A collective waits for the one packet that was lost.",
        "ip -s link; ethtool -S NAME; check cable, switch and flow control; iperf3 or nccl-tests to confirm",
        _health,
        steady=False,
    ),
    Probe(
        "monitor-network-disk",
        "network",
        "Traffic of network and disk now",
        "/proc/net/dev, /proc/diskstats over half a second",
        "a quiet card and disk before a measurement",
        "Other traffic takes bandwidth and CPU time from what is measured.",
        "sudo iftop, sudo iotop -o (show whose it is); wait for it to finish",
        _rates,
        steady=False,
    ),
)
