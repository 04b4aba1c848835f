"""Network cards of this host: Ethernet with a device behind it, and InfiniBand or RoCE ports.

What must not live here: judging them.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.host import proc
from aiperf.host.probes.reader import Absent, HostReader, Unreadable

_NET = "sys/class/net"
_VERBS = "sys/class/infiniband"
_INFINIBAND = "32"
"""ARPHRD_INFINIBAND (linux/if_arp.h)."""


@dataclass(frozen=True)
class Card:
    """One network interface with hardware (or a hypervisor) behind it."""

    name: str
    folder: str
    """Below the root."""

    def infiniband(self, reader: HostReader) -> bool:
        """Whether it carries IP over InfiniBand."""
        return reader.maybe(f"{self.folder}/type") == _INFINIBAND

    def speed(self, reader: HostReader) -> int:
        """Mb/s. Raises Unreadable: virtual cards have none, and a card without a link says -1."""
        found = reader.number(f"{self.folder}/speed")
        if found <= 0:
            raise Unreadable(f"{self.name} shows no speed", f"/{self.folder}/speed")
        return found

    def node(self, reader: HostReader) -> int | None:
        """Its NUMA node; None when the kernel does not say."""
        for folder in self._devices():
            found = proc.read_int(reader.root / folder / "numa_node")
            if found is not None and found >= 0:
                return found
        return None

    def local_cpus(self, reader: HostReader) -> tuple[int, ...]:
        """The CPUs beside it; empty when the kernel does not say."""
        for folder in self._devices():
            try:
                if text := reader.maybe(f"{folder}/local_cpulist"):
                    return proc.parse_cpu_list(text)
            except ValueError:
                continue
        return ()

    def interrupts(self, reader: HostReader) -> tuple[int, ...]:
        """Numbers of its interrupts."""
        for folder in self._devices():
            if found := [int(name) for name in reader.names(f"{folder}/msi_irqs") if name.isdigit()]:
                return tuple(sorted(found))
        rows = (line.partition(":") for line in reader.maybe("proc/interrupts").splitlines())
        return tuple(int(n) for n, _, rest in rows if n.strip().isdigit() and self.name in _actions(rest))

    def _devices(self) -> tuple[str, str]:
        # A virtio card is a child of the PCI device that has the interrupts and the node.
        return f"{self.folder}/device", f"{self.folder}/device/.."


def _actions(rest: str) -> set[str]:
    return {word.rstrip(",").partition("-")[0] for word in rest.split()}


def cards(reader: HostReader) -> tuple[Card, ...]:
    """Interfaces that are up, or only those that NCCL_SOCKET_IFNAME names. Raises Absent without any."""
    asked = [name for name in reader.environ.get("NCCL_SOCKET_IFNAME", "").split(",") if name]
    found = [n for n in reader.names(_NET) if (reader.root / _NET / n / "device").exists() and _usable(reader, n)]
    named = [n for n in found if any(n.startswith(a.lstrip("=")) for a in asked if not a.startswith("^"))]
    if not found:
        raise Absent("no network card is up here")
    return tuple(Card(name, f"{_NET}/{name}") for name in named or found)


def ethernet(reader: HostReader) -> tuple[Card, ...]:
    """The cards that are not InfiniBand. Raises Absent without any."""
    found = tuple(card for card in cards(reader) if not card.infiniband(reader))
    if not found:
        raise Absent("the network cards here are InfiniBand")
    return found


def ports(reader: HostReader) -> tuple[str, ...]:
    """Folders of the InfiniBand and RoCE ports, below the root. Raises Absent without any."""
    found = tuple(
        f"{_VERBS}/{card}/ports/{port}"
        for card in reader.names(_VERBS)
        for port in reader.names(f"{_VERBS}/{card}/ports")
    )
    if not found:
        raise Absent("no InfiniBand or RoCE card is seen here")
    return found


def _usable(reader: HostReader, name: str) -> bool:
    wireless = (reader.root / _NET / name / "wireless").exists()
    return not wireless and reader.maybe(f"{_NET}/{name}/operstate") in ("up", "unknown", "")
