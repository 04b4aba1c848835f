"""Where a worker's memory is to lie: a preference for the NUMA node of its CPUs, asked for at set-up and read back.

What must not live here: binding to CPUs (the parent does it), and judging where the pages lie.

It is a preference of this process alone (set_mempolicy(2)): when the node is full, memory comes from another one.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SYSTEM = Path("/sys/devices/system")
_CALLS = {"x86_64": (238, 239), "aarch64": (237, 236)}
"""Machine -> numbers of set_mempolicy and get_mempolicy: the C library has no function for either."""
_DEFAULT, _PREFERRED, _LOCAL = 0, 1, 4
_MODES = {
    _DEFAULT: "the node of the touching CPU",
    _PREFERRED: "preferred",
    2: "bound to",
    3: "interleaved over",
    _LOCAL: "the node of the touching CPU",
    5: "preferred",
    6: "interleaved over",
}
"""linux/mempolicy.h."""
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)
_MOST_NODES = 1024
"""CONFIG_NODES_SHIFT is 10 at most."""


class Policy(NamedTuple):
    """What the kernel does with the pages that a thread is the first to touch."""

    mode: int = _DEFAULT
    nodes: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """For people: ``preferred node 0``."""
        return f"{_MODES.get(self.mode, f'mode {self.mode}')} {_named(self.nodes)}".strip()


class OwnNode:
    """The preference of one worker for its own node."""

    def __init__(self, system: Path = SYSTEM) -> None:
        self._system = system
        self._outcome = self._chosen = ""
        self._set: Policy | None = None

    def set_up(self, params: Mapping[str, Any]) -> None:
        """Prefer the node of this process's CPUs, before a side with these parameters touches its memory.

        Nothing is asked for on a machine of one node, for CPUs of several, where a policy is set already, and for a
        side with a parameter ``numa`` of its own.
        """
        try:
            if len([*(self._system / "node").glob("node[0-9]*")]) > 1:
                self._outcome = self._ask(str(params.get("numa", "any")))
        except OSError as error:
            self._outcome = f"none: the kernel refused ({error.strerror})"

    def facts(self) -> dict[str, str]:
        """What to record of a side: its policy, or why it has none, and the node that it chooses itself
        (``memory_node``); empty on a machine of one node."""
        now = self._set and read_policy()
        if now != self._set:
            return {"memory_policy": f"{self._outcome} at set-up, {now.words if now else 'unknown'} at the end"}
        own = {"memory_node": self._chosen} if self._chosen else {}
        return {"memory_policy": self._outcome, **own} if self._outcome else {}

    def _ask(self, chosen: str) -> str:
        before = read_policy()
        if before is None:
            return f"none: how to ask for one on {platform.machine()} is not known"
        self._chosen = "" if chosen == "any" else chosen
        if self._chosen:
            if self._set is not None:
                write_policy(Policy())
                self._set = None
            return f"none: the side chooses its node itself (numa: {chosen})"
        if before.mode not in (_DEFAULT, _LOCAL) and before != self._set:
            return f"{before.words}, as it was given to aiperf"
        links = (link for cpu in os.sched_getaffinity(0) for link in self._system.glob(f"cpu/cpu{cpu}/node[0-9]*"))
        own = tuple(sorted({int(link.name.removeprefix("node")) for link in links}))
        if len(own) != 1:
            return f"none: its CPUs are on {_named(own) or 'no node that the kernel shows'}"
        wanted = Policy(_PREFERRED, own)
        write_policy(wanted)
        if (found := read_policy()) != wanted:
            return f"none: {wanted.words} was requested, but the kernel reports {found.words if found else 'nothing'}"
        self._set = wanted
        return wanted.words


def read_policy() -> Policy | None:
    """The calling thread's policy; None where the call's number is not known. Raises OSError."""
    if (numbers := _CALLS.get(platform.machine())) is None:
        return None
    mode, mask = ctypes.c_int(), _mask(())
    _call(numbers[1], ctypes.byref(mode), mask, ctypes.c_ulong(_MOST_NODES + 1), None, ctypes.c_ulong(0))
    found = tuple(n for n in range(_MOST_NODES) if mask[n // _WORD] >> n % _WORD & 1)
    # Flags lie above the modes.
    return Policy(mode.value & 0xFF, found)


def write_policy(policy: Policy) -> None:
    """Set the calling thread's policy; threads and processes that it starts inherit it. Raises OSError."""
    numbers = _CALLS[platform.machine()]
    mask = _mask(policy.nodes) if policy.nodes else None
    _call(numbers[0], ctypes.c_long(policy.mode), mask, ctypes.c_ulong(_MOST_NODES + 1 if policy.nodes else 0))


def _mask(wanted: tuple[int, ...]) -> Any:
    mask = (ctypes.c_ulong * (_MOST_NODES // _WORD + 1))()
    for node in wanted:
        mask[node // _WORD] |= 1 << node % _WORD
    return mask


def _call(number: int, *arguments: Any) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(number), *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _named(found: tuple[int, ...]) -> str:
    if not found:
        return ""
    return f"node {found[0]}" if len(found) == 1 else f"nodes {', '.join(map(str, found))}"
