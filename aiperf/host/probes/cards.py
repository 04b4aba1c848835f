"""Network cards of this host: Ethernet with a device behind it, and InfiniBand or RoCE ports.

What must not live here: judging them.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.host import proc
from aiperf.host.probes.sight import Absent, Sight, Unreadable

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

    def infiniband(self, sight: Sight) -> bool:
        """Whether it carries IP over InfiniBand."""
        return sight.maybe(f"{self.folder}/type") == _INFINIBAND

    def speed(self, sight: Sight) -> int:
        """Mb/s. Raises Unreadable: virtual cards tell none, and a card without a link says -1."""
        found = sight.number(f"{self.folder}/speed")
        if found <= 0:
            raise Unreadable(f"{self.name} tells no speed", f"/{self.folder}/speed")
        return found

    def node(self, sight: Sight) -> int | None:
        """Its NUMA node; None when the kernel does not tell."""
        for folder in self._devices():
            found = proc.read_int(sight.root / folder / "numa_node")
            if found is not None and found >= 0:
                return found
        return None

    def local_cpus(self, sight: Sight) -> tuple[int, ...]:
        """The CPUs beside it; empty when the kernel does not tell."""
        for folder in self._devices():
            try:
                if text := sight.maybe(f"{folder}/local_cpulist"):
                    return proc.parse_cpu_list(text)
            except ValueError:
                continue
        return ()

    def interrupts(self, sight: Sight) -> tuple[int, ...]:
        """Numbers of its interrupts."""
        for folder in self._devices():
            if found := [int(name) for name in sight.names(f"{folder}/msi_irqs") if name.isdigit()]:
                return tuple(sorted(found))
        rows = (line.partition(":") for line in sight.maybe("proc/interrupts").splitlines())
        return tuple(int(n) for n, _, rest in rows if n.strip().isdigit() and self.name in _actions(rest))

    def _devices(self) -> tuple[str, str]:
        # A virtio card is a child of the PCI device that has the interrupts and the node.
        return f"{self.folder}/device", f"{self.folder}/device/.."


def _actions(rest: str) -> set[str]:
    return {word.rstrip(",").partition("-")[0] for word in rest.split()}


def cards(sight: Sight) -> tuple[Card, ...]:
    """Interfaces that are up, or only those that NCCL_SOCKET_IFNAME names. Raises Absent without any."""
    asked = [name for name in sight.environ.get("NCCL_SOCKET_IFNAME", "").split(",") if name]
    found = [n for n in sight.names(_NET) if (sight.root / _NET / n / "device").exists() and _usable(sight, n)]
    named = [n for n in found if any(n.startswith(a.lstrip("=")) for a in asked if not a.startswith("^"))]
    if not found:
        raise Absent("no network card is up here")
    return tuple(Card(name, f"{_NET}/{name}") for name in named or found)


def ethernet(sight: Sight) -> tuple[Card, ...]:
    """The cards that are not InfiniBand. Raises Absent without any."""
    found = tuple(card for card in cards(sight) if not card.infiniband(sight))
    if not found:
        raise Absent("the network cards here are InfiniBand")
    return found


def ports(sight: Sight) -> tuple[str, ...]:
    """Folders of the InfiniBand and RoCE ports, below the root. Raises Absent without any."""
    found = tuple(
        f"{_VERBS}/{card}/ports/{port}"
        for card in sight.names(_VERBS)
        for port in sight.names(f"{_VERBS}/{card}/ports")
    )
    if not found:
        raise Absent("no InfiniBand or RoCE card is seen here")
    return found


def _usable(sight: Sight, name: str) -> bool:
    wireless = (sight.root / _NET / name / "wireless").exists()
    return not wireless and sight.maybe(f"{_NET}/{name}/operstate") in ("up", "unknown", "")
