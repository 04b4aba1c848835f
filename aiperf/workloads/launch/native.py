"""The library behind launch.graph with ``api: cuda``: built with nvcc once a host, called through a plain C interface.

What must not live here: kernels (launches.cu), torch.cuda.CUDAGraph, timing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.compiled_library import build_library, find_nvcc
from aiperf.workloads.shared.seeded import empty, generator
from aiperf.workloads.shared.user_cache import cache_folder

SOURCE = Path(__file__).with_name("launches.cu")
TWO_CHAINS = ("tail", "fire_and_forget")
"""Issues of a graph that launches a second one."""
ISSUES = (
    "stream", "graph", "device_graph", "scheduler", "conditional", "dynamic_parallelism", "inline", *TWO_CHAINS
)  # fmt: skip
SYNCS = ("end", "each", "kernel")
REFRESHES = ("none", "recapture", "exec_update", "graph_per_size")
DECISIONS = ("none", "if", "while", "switch", "spawn")
_CHUNK = 2 << 20
"""Bytes in which the driver takes memory from the device."""
_ELEMENT = 4
_CHAIN_ISSUES: Mapping[str, tuple[str, ...]] = {
    "none": ("stream", "graph", "device_graph", *TWO_CHAINS),
    "if": ("stream", "graph", "conditional", "dynamic_parallelism"),
    "while": ("graph", "conditional"),
    "switch": ("stream", "graph", "conditional"),
    "spawn": ("stream", "dynamic_parallelism", "inline"),
}
_QUEUE_ISSUES = ("graph", "scheduler", "dynamic_parallelism")
_PENDING = 2048
"""Launches that a device holds for kernels that launch, by default."""
_FLAGS = ("-std=c++17", "-O3", "-rdc=true", "-shared", "-Xcompiler", "-fPIC", "-lcudadevrt")


class LaunchPlan(ctypes.Structure):
    """The library's plan, field by field as in launches.cu."""

    _fields_ = [
        ("n", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("x", "y", "staged", "host", "keys", "seen")),
        ("taken", ctypes.c_float),
        *(
            (name, ctypes.c_int32)
            for name in (
                "nodes", "width", "iterations", "issue", "sync", "refresh", "decision", "fork_join", "children",
                "queue", "sizes",
            )
        ),
    ]  # fmt: skip


@dataclass(frozen=True)
class LaunchRequest:
    """What a scenario asks for, by name."""

    nodes: int
    iterations: int
    n: int
    issue: str
    sync: str = "end"
    copies: bool = False
    capture: str = "chain"
    refresh: str = "none"
    decision: str = "none"
    taken: float = 0.5
    width: int = 1
    children: int = 2
    queue: bool = False
    sizes: int = 4

    def check(self) -> None:
        """Raises ValueError for a mixture that the library does not have."""
        allowed = _QUEUE_ISSUES if self.queue else _CHAIN_ISSUES[self.decision]
        if self.issue not in allowed:
            what = "queue" if self.queue else f"decision {self.decision}"
            raise ValueError(f"{what} with issue {self.issue} is not there; issue may be {', '.join(allowed)}")
        if min(self.width, self.children) < 1:
            raise ValueError(f"width and children are {self.width}, {self.children}; each must be 1 or more")
        if not 0 <= self.taken <= 1:
            raise ValueError(f"taken is {self.taken}; it is a share between 0 and 1")
        if self.refresh != "none" and (self.issue, self.decision, self.queue) != ("graph", "none", False):
            raise ValueError("refresh is for a plain chain with issue graph")
        if self.queue and self.issue == "dynamic_parallelism" and self.nodes * self.iterations > _PENDING:
            raise ValueError(f"nodes times iterations must be {_PENDING} or less: a device holds no more launches")
        if self.copies and self.issue in TWO_CHAINS:
            raise ValueError(f"issue {self.issue} writes the second chain where copies would go")
        if self.sizes < 1 or self.n % (2 * self.sizes):
            raise ValueError(f"n is {self.n}; it must be a multiple of {2 * self.sizes}, and sizes 1 or more")

    def plan(self) -> LaunchPlan:
        """As numbers, pointers still empty."""
        plan = LaunchPlan(fork_join=self.capture == "fork_join")
        for name in ("n", "taken", "nodes", "width", "iterations", "children", "queue", "sizes"):
            setattr(plan, name, getattr(self, name))
        for name, words in (("issue", ISSUES), ("sync", SYNCS), ("refresh", REFRESHES), ("decision", DECISIONS)):
            setattr(plan, name, words.index(getattr(self, name)))
        return plan

    def draw_keys(self, seed: int) -> Any:
        """What the decisions look at, float32 in 0..1; the last one, below 0, ends a loop."""
        keys = generator(seed, "keys").random(self.iterations, dtype="float32")
        if self.decision == "while":
            keys[-1] = -1
        return keys

    def choices(self, keys: Any) -> Any:
        """What ``seen`` must hold after a step, int32, one for each iteration."""
        turns = np.arange(self.iterations)
        if self.queue:
            found = turns + 1
        elif self.decision == "none":
            shorter = 0 if self.refresh == "none" else self.n // (2 * self.sizes)
            found = self.n - turns % self.sizes * shorter
        elif self.decision == "if":
            found = np.where(keys < np.float32(self.taken), 1, -1)
        elif self.decision == "switch":
            found = np.minimum((keys * np.float32(self.width)).astype(np.int64), self.width - 1)
        elif self.decision == "while":
            found = turns
        else:
            half = self.n // 2
            found = np.append(half + (keys[:-1] * np.float32(half)).astype(np.int64), self.n)
        return found.astype(np.int32)

    def result(self, x: Any, seen: Any) -> Any:
        """What ``y`` must hold, from ``x`` in float64 on the host and the decisions."""
        if self.decision == "spawn":
            return x * x * (len(seen) - np.searchsorted(np.sort(seen), np.arange(self.n), side="right"))
        last = int(seen[-1])
        if self.decision == "if":
            return x * (1.25 if last > 0 else 0.5)
        if self.decision == "switch":
            return x * (last + 1.25)
        links = self.nodes * self.iterations if self.decision == "while" else self.nodes - 1
        return x * (2 - 1.5 * 0.5**links)

    def work(self) -> Work:
        """Kernels of the chains, or decisions; bytes are those of the chains, and of the copies beside them."""
        if self.decision != "none":
            return Work(items=self.iterations, item="decisions")
        elements = self.iterations * self.n if self.queue else int(self.choices(None).sum())
        copied = self.iterations * self.n * _ELEMENT if self.copies else 0
        chains = 2 if self.issue in TWO_CHAINS else 1
        moved = chains * (2 + 3 * (self.nodes - 1)) * elements * _ELEMENT
        return Work(bytes=moved + copied, items=chains * self.iterations * self.nodes, item="kernels")

    def counts(self) -> dict[str, float]:
        """Launches and waits of the host in one step, by construction; the wait at its end included."""
        once = self.issue in ("device_graph", "scheduler") or (self.decision, self.issue) == ("while", "conditional")
        once = once or (self.queue and self.issue == "dynamic_parallelism")
        decides = self.decision != "none" and self.issue in ("stream", "graph")
        each = {"none": self.nodes, "if": 2 + self.taken, "switch": 3, "spawn": 1 + self.children, "while": 1}
        graph_each = {"none": 1, "if": 1 + self.taken, "switch": 2, "while": 1}
        per = each[self.decision] if self.issue == "stream" else graph_each.get(self.decision, 1)
        if self.issue in ("conditional", "inline"):
            per = 1
        if self.issue == "dynamic_parallelism":
            per = 2 if self.decision == "if" else 1
        waits = {"end": 0, "each": 1, "kernel": self.nodes}[self.sync] + (1 if decides else 0)
        return {
            "host_launches": 1.0 if once else float(per * self.iterations),
            "host_waits": 1.0 + (0.0 if once else float(waits * self.iterations)),
        }


def build(folder: Path, *, architecture: str) -> Path:
    """launches.cu as a shared library for ``sm_90`` or the like. Raises SkipSide without nvcc, or RuntimeError."""
    return build_library(SOURCE, [find_nvcc(), f"-arch={architecture}", *_FLAGS], folder)


def load(path: Path) -> Any:
    """The library with its four functions declared."""
    library = ctypes.CDLL(str(path))
    library.launches_open.argtypes = [ctypes.POINTER(LaunchPlan), ctypes.POINTER(ctypes.c_void_p)]
    library.launches_step.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.launches_open.restype = library.launches_step.restype = ctypes.c_char_p
    library.launches_graph_bytes.argtypes = [ctypes.c_void_p]
    library.launches_graph_bytes.restype = ctypes.c_int64
    library.launches_close.argtypes = [ctypes.c_void_p]
    library.launches_close.restype = None
    return library


def _raise_fault(fault: bytes | None) -> None:
    if fault:
        raise RuntimeError(f"CUDA: {fault.decode()}")


class _Arrays:
    """The arrays that a plan points at."""

    def __init__(self, context: Context, asked: LaunchRequest) -> None:
        self._asked = asked
        device = torch.device(context.device)
        elements = asked.n * (asked.iterations if asked.queue else 1)
        self.x, self.y = (empty(context, (elements,), torch.float32).zero_() for _ in range(2))
        self.keys = torch.zeros(asked.iterations, device=device)
        self.seen = torch.zeros(asked.iterations, dtype=torch.int32, device=device)
        self.host = torch.zeros(asked.n, pin_memory=True) if asked.copies else None
        self.staged = torch.zeros(asked.n, device=device) if asked.copies or asked.issue in TWO_CHAINS else None
        self._generator = torch.Generator(device=device)

    def redraw(self, seed: int) -> None:
        """New inputs in place."""
        self.x.normal_(generator=self._generator.manual_seed(seed))
        self.keys.copy_(torch.from_numpy(self._asked.draw_keys(seed)))
        if self.host is not None:
            generator(seed, "host").random(out=self.host.numpy(), dtype="float32")

    def named(self, *names: str) -> dict[str, Any]:
        """Those of the arrays that are there."""
        return {name: array for name in names if (array := getattr(self, name)) is not None}

    def reference(self) -> dict[str, Any]:
        """float64 truth for the current inputs."""
        seen = self._asked.choices(self.keys.cpu().numpy())
        y = torch.from_numpy(self._asked.result(self.x.double().cpu().numpy(), seen))
        truth = {"y": y, "seen": torch.from_numpy(seen)}
        if self._asked.issue in TWO_CHAINS:
            return {**truth, "staged": truth["y"]}
        return truth if self.host is None else {**truth, "staged": self.host}


def workload(context: Context, asked: LaunchRequest) -> Workload:
    """``iterations`` of what was asked for, in one call of the library that ends with a wait of the host."""
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(context.device))
    cache = cache_folder("launches")
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    # Builds are kept for other runs where the user's cache folder can be written.
    library = load(build(cache if os.access(cache, os.W_OK) else context.shared_scratch, architecture=architecture))
    arrays = _Arrays(context, asked)
    arrays.redraw(context.seed)
    plan, runner = asked.plan(), ctypes.c_void_p()
    for name, array in arrays.named("x", "y", "staged", "host", "keys", "seen").items():
        setattr(plan, name, array.data_ptr())
    torch.cuda.synchronize()
    _raise_fault(library.launches_open(ctypes.byref(plan), ctypes.byref(runner)))

    # Less than a chunk cannot be told from none.
    held = float(max(_CHUNK, library.launches_graph_bytes(runner))) if asked.refresh != "none" else 0.0

    def step() -> None:
        _raise_fault(library.launches_step(runner, torch.cuda.current_stream().cuda_stream))

    def close() -> None:
        if runner.value:
            library.launches_close(runner)
            runner.value = None

    return Workload(
        step=step,
        work=asked.work(),
        outputs=lambda: arrays.named("y", "seen", "staged"),
        inputs=lambda: arrays.named("x", "keys", "host"),
        redraw=arrays.redraw,
        reference=arrays.reference,
        counters=asked.counts,
        values=(lambda: {"graph_bytes": held}) if held else None,
        facts={"issue": asked.issue, "architecture": architecture, "compiler": Path(find_nvcc()).name},
        close=close,
    )
