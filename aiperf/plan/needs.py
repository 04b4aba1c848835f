"""What a case asks against what the host has: each unmet need with its reason and what would fix it.

What must not live here: reading the host beyond the free space of one folder and what is on PATH.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from aiperf.host.facts import HostFacts
from aiperf.protocol.libraries import install_command, needs_libraries
from aiperf.records import Needs
from aiperf.units import format_bytes

Unmet = tuple[str, str]


@dataclass(frozen=True)
class _Ask:
    """Everything that one rule may look at."""

    needs: Needs
    host: HostFacts
    ranks: int
    """Of the largest gang, on each node."""
    nodes: int
    has_nodes: int
    folder: Path


def unmet(
    needs: Needs,
    host: HostFacts,
    *,
    ranks: int = 1,
    nodes: int = 1,
    has_nodes: int = 1,
    folder: Path = Path("."),
) -> list[Unmet]:
    """Reason and fix of every need that the host does not meet, GPUs first; none when the case can run. A fix is empty
    where the reason says it.

    ``ranks`` is the largest gang of the case's sides, on each of its ``nodes``; the run has ``has_nodes``, all like
    this host; ``folder`` is where results and scratch files go. Memory is held
    against what is free now.
    """
    rules: tuple[Callable[[_Ask], Iterator[Unmet]], ...] = (
        _nodes,
        _gpus,
        _gang,
        _capability,
        _gpu_memory,
        _peer,
        _gds,
        _libraries,
        _programs,
        _cpus,
        _memory,
        _disk,
        _rights,
    )
    ask = _Ask(needs, host, ranks, nodes, has_nodes, folder)
    return [found for rule in rules for found in rule(ask)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _nodes(ask: _Ask) -> Iterator[Unmet]:
    if ask.nodes > ask.has_nodes:
        yield f"needs {ask.nodes} nodes, but this run has {ask.has_nodes}", f"run it with --slurm -N {ask.nodes}"


def _gpus(ask: _Ask) -> Iterator[Unmet]:
    has = len(ask.host.gpus)
    if has >= ask.needs.gpus:
        return
    problem = f" ({ask.host.gpu_problem})" if ask.host.gpu_problem and not has else ""
    wanted = _count(ask.needs.gpus, "GPU")
    yield f"needs {wanted}, but this host has {has}{problem}", f"run it on a host with {wanted}"


def _gang(ask: _Ask) -> Iterator[Unmet]:
    """A rank on a GPU has one of its own; a rank on CPUs needs one only when the scenario says so."""
    has, cpus = len(ask.host.gpus), len(ask.host.cpus)
    on_gpus = ask.needs.gpus > 0 and ask.ranks > 1
    if on_gpus and ask.ranks > has and ask.needs.gpus <= has:
        yield f"{ask.ranks} ranks need a GPU each, but this host has {has}", f"run it on a host with {ask.ranks} GPUs"
    wanted = max(ask.needs.ranks, 0 if on_gpus else ask.ranks)
    if wanted > 1 and wanted > cpus:
        yield (
            f"{wanted} ranks need a CPU each, but aiperf may use {cpus}",
            f"run it where aiperf may use {wanted} CPUs, or lower ranks",
        )


def _capability(ask: _Ask) -> Iterator[Unmet]:
    specifier = ask.needs.compute_capability
    if not specifier or not ask.host.gpus:
        return
    fitting = [g for g in ask.host.gpus if _fits(g.compute_capability, specifier)]
    if len(fitting) < max(1, ask.needs.gpus):
        seen = ", ".join(sorted({f"{g.name} has {g.compute_capability or 'an unknown one'}" for g in ask.host.gpus}))
        yield (
            f"needs compute capability {specifier}, but {seen}",
            f"run it on a GPU of compute capability {specifier}",
        )


def _gpu_memory(ask: _Ask) -> Iterator[Unmet]:
    if not ask.needs.gpu_memory or not ask.host.gpus:
        return
    # A case may be given any of the GPUs it asks for, so the fullest of those it would get must have room.
    free = sorted((g.memory_free for g in ask.host.gpus), reverse=True)
    offered = free[min(max(1, ask.needs.gpus), len(free)) - 1]
    if offered < ask.needs.gpu_memory:
        yield (
            f"needs {format_bytes(ask.needs.gpu_memory)} of free GPU memory, but {format_bytes(offered)} is free",
            "stop other processes on the GPU, or run it on a larger one",
        )


def _peer(ask: _Ask) -> Iterator[Unmet]:
    if not ask.needs.peer_access or ask.host.peer_access:
        return
    if len(ask.host.gpus) < 2:
        yield "needs peer access between two GPUs, but this host has fewer", "run it on a host with 2 GPUs"
    elif ask.host.peer_access is None:
        yield (
            "needs peer access between GPUs, which this host does not report",
            "check it with nvidia-smi topo -p2p r",
        )
    else:
        yield (
            "needs peer access between GPUs, which this host does not allow",
            "run it on a host whose GPUs are NVLink or PCIe peers",
        )


def _gds(ask: _Ask) -> Iterator[Unmet]:
    if ask.needs.gds and not ask.host.gds_active:
        problem = f" ({ask.host.gds_problem})" if ask.host.gds_problem else ""
        yield f"GPUDirect Storage is not active{problem}", "load nvidia-fs and use a file system that supports it"


def _libraries(ask: _Ask) -> Iterator[Unmet]:
    asked = {name: (specifier, ask.host.libraries.get(name.lower())) for name, specifier in ask.needs.libraries.items()}
    for reason in needs_libraries({name: specifier for name, (specifier, version) in asked.items() if version is None}):
        yield reason, ""
    for name, (specifier, version) in asked.items():
        if version is not None and specifier and not _fits(version, specifier):
            yield f"needs {name} {specifier}, but {version} is installed", install_command(name, specifier)


def _programs(ask: _Ask) -> Iterator[Unmet]:
    for name in ask.needs.programs:
        if shutil.which(name) is None:
            yield f"needs the program {name}, which is not on PATH", f"install {name}, or add its folder to PATH"


def _cpus(ask: _Ask) -> Iterator[Unmet]:
    has = len(ask.host.cpus)
    if has < ask.needs.cpus:
        wanted = _count(ask.needs.cpus, "CPU")
        yield f"needs {wanted}, but aiperf may use {has}", f"run it where aiperf may use {wanted}"


def _memory(ask: _Ask) -> Iterator[Unmet]:
    wanted, free = ask.needs.memory, ask.host.memory_available
    if free < wanted:
        yield (
            f"needs {format_bytes(wanted)} of free memory, but {format_bytes(free)} is free",
            "free some memory, or reduce the sizes",
        )


def _disk(ask: _Ask) -> Iterator[Unmet]:
    if not ask.needs.disk:
        return
    folder = next((p for p in (ask.folder.absolute(), *ask.folder.absolute().parents) if p.exists()), Path("/"))
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield f"needs disk space, but {folder} cannot be checked: {error.strerror}", "choose another results folder"
        return
    if free < ask.needs.disk:
        wanted = format_bytes(ask.needs.disk)
        has = format_bytes(free)
        yield f"needs {wanted} of free disk, but {folder} has {has}", "free some space, or move the results"


def _rights(ask: _Ask) -> Iterator[Unmet]:
    if ask.needs.root and not ask.host.root:
        yield "needs root privileges", "run aiperf as root, if you are allowed to"
    if ask.needs.compiler and not ask.host.compiler:
        yield "needs a C++ compiler, but none is on PATH", "install one, e.g. g++"


def _fits(version: str, specifier: str) -> bool:
    try:
        # Only the release part: 2.11.0+cu130 and 2.12.0a0 meet >=2.11 as far as a benchmark can tell.
        return SpecifierSet(specifier).contains(Version(Version(version).base_version), prereleases=True)
    except (InvalidVersion, InvalidSpecifier):
        return False
