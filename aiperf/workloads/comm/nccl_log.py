"""What NCCL says it chose: transport, algorithm, protocol and channels, and which settings it did not follow.

NCCL has no call that tells them, so its log is switched on while the communicator is made and one collective runs, and
off again before anything is timed. What must not live here: a collective.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

Facts = dict[str, int | float | str]

_SWITCHED = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING,P2P,SHM,NET"}
_FILE = "NCCL_DEBUG_FILE"
_CHOICE = re.compile(r"Bytes -> Algo (\w+) proto (\w+)(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?")
_SYMMETRIC = re.compile(r"Bytes -> Kernel (\w+) nchannels (\d+)")
_VIA = re.compile(r"Channel \S+ ?: \S+ -> \S+ .*?\bvia (NET/[^/\n]+|[^\s/]+)")
"""The transport, and for a network which one: P2P, SHM, NET/Socket, NET/IB, NET/AWS Libfabric."""
_SET = re.compile(r"(NCCL_\w+) set by environment to ([^\s.]+(?:\.\S+)?)")


@contextmanager
def logged(folder: Path) -> Iterator[Path]:
    """Have NCCL write its log into the file that is yielded, until the block ends; a user's own NCCL_DEBUG is kept."""
    path = folder / f"nccl-{os.getpid()}.log"
    former = {name: os.environ.get(name) for name in (*_SWITCHED, _FILE)}
    if former["NCCL_DEBUG"] is not None:
        yield path
        return
    os.environ.update(_SWITCHED, **{_FILE: str(path)})
    _reread()
    try:
        yield path
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        _reread()


def _reread() -> None:
    """Make the NCCL that torch loaded read its logging variables anew; a release without that call keeps logging."""
    try:
        ctypes.CDLL("libnccl.so.2").ncclResetDebugInit()
    except (OSError, AttributeError):
        return


def chosen(path: Path) -> Facts:
    """What the log at ``path`` says, held against the variables of this process; nothing where there is no log."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    passed_over = ("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_VERSION")
    settings = {name: value for name, value in os.environ.items() if not name.startswith(passed_over)}
    return read(text, settings)


def read(text: str, settings: Mapping[str, str]) -> Facts:
    """The facts in the text of a log, of a process with these variables.

    They are ``nccl_transport``, ``nccl_algorithm``, ``nccl_protocol``, ``nccl_channels`` (of the last collective) and
    ``nccl_ignored``, the settings that NCCL did not follow. Of a kernel for symmetric windows ``nccl_algorithm`` is its
    name. What the log does not name is left out.
    """
    facts: Facts = {}
    if ways := _VIA.findall(text):
        facts["nccl_transport"] = ", ".join(sorted(set(ways)))
    if choices := _CHOICE.findall(text):
        algorithm, protocol, low, high = choices[-1]
        facts |= {"nccl_algorithm": algorithm, "nccl_protocol": protocol}
        if low:
            facts["nccl_channels"] = int(high) - int(low) + 1
    if symmetric := _SYMMETRIC.findall(text):
        kernel, channels = symmetric[-1]
        facts |= {"nccl_algorithm": f"symmetric {kernel}", "nccl_channels": int(channels)}
    if text:
        seen = {name for name, _ in _SET.findall(text)}
        own = {name: value for name, value in settings.items() if name.startswith("NCCL_")}
        ignored = [f"{name}={value}" for name, value in sorted(own.items()) if _ignored(name, value, facts, seen)]
        if ignored:
            facts["nccl_ignored"] = ", ".join(ignored)
    return facts


def _ignored(name: str, value: str, facts: Facts, seen: set[str]) -> bool:
    """Whether NCCL did not follow a setting: what it chose contradicts it, or it never mentions having read it."""
    held: dict[str, Callable[[], bool]] = {
        "NCCL_ALGO": lambda: _named(value, facts.get("nccl_algorithm")),
        "NCCL_PROTO": lambda: _named(value, facts.get("nccl_protocol")),
        "NCCL_P2P_DISABLE": lambda: value != "1" or "P2P" not in str(facts.get("nccl_transport")),
        "NCCL_SHM_DISABLE": lambda: value != "1" or "SHM" not in str(facts.get("nccl_transport")),
        "NCCL_MAX_NCHANNELS": lambda: int(facts.get("nccl_channels", 0)) <= int(value),
    }
    return not held[name]() if name in held else name not in seen


def _named(setting: str, choice: object) -> bool:
    return choice is None or str(choice).casefold() in {each.strip().casefold() for each in setting.split(",")}
