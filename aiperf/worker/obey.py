"""What a worker does with each command of its parent: one method per command.

What must not live here: the pipe, and how a side is timed (see slot.py).
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from aiperf.worker import handover
from aiperf.worker.compare import Rule, compare
from aiperf.worker.origins import ForeignModule, refuse_foreign
from aiperf.worker.ranges import Ranges
from aiperf.worker.slot import Order, Slot
from aiperf.workloads._bytecode import kept_compiled
from aiperf.workloads._imports import imports_of
from aiperf.workloads.contract import Context, SkipSide


class Worker:
    """One rank of one launch; it holds one side, or both with ``in_process``."""

    def __init__(
        self, *, rank: int, world_size: int, store_port: int, listen_fd: int, ranges: Ranges | None = None
    ) -> None:
        self._rank = rank
        self._world_size = world_size
        self._store_port = store_port
        self._listen_fd = listen_fd
        self._store: Any = None
        self._slots: dict[str, Slot] = {}
        self._busy_until = process_time()
        self._ranges = ranges or Ranges.open(force=os.environ.get("AIPERF_NVTX") == "on")

    def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command; an exception becomes a reply that says what went wrong."""
        idle = process_time() - self._busy_until
        began = perf_counter()
        try:
            told: dict[str, Any] = getattr(self, f"on_{command['op']}")(
                **{k: v for k, v in command.items() if k != "op"}
            )
            return {"ok": True, "busy_s": perf_counter() - began, "idle_cpu_s": idle, **told}
        except SkipSide as reason:
            return {"ok": False, "kind": "skip", "message": str(reason)}
        except ForeignModule as reason:
            return {"ok": False, "kind": "error", "message": str(reason)}
        except Exception as error:
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}".strip()
            return {"ok": False, "kind": _kind(error), "message": message.splitlines()[0][:500]}
        finally:
            self._busy_until = process_time()

    def on_load(
        self, *, modules: list[str], asked: list[tuple[str, dict[str, Any]]], device: str, open_gpu: bool
    ) -> dict[str, Any]:
        """Import what the sides surely need, of which ``asked`` holds workload and parameters.

        ``open_gpu``: make this rank's context too, which set-up would begin with; else the devices are only found.

        What cannot be imported or opened, set-up says in the side's own words.
        """
        more = dict.fromkeys(name for workload, params in asked for name in imports_of(workload, params, device))
        with kept_compiled():
            for name in (*modules, *more):
                with suppress(Exception):
                    module, _, function = name.partition(":")
                    imported = importlib.import_module(module)
                    if function:
                        getattr(imported, function)()
        if device == "cuda" and (torch := sys.modules.get("torch")) is not None:
            with suppress(Exception):
                if torch.cuda.is_available() and open_gpu:
                    torch.cuda.set_device(self._rank)
                    torch.cuda.synchronize(self._rank)
        return {}

    def on_setup(self, *, order: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Set a side up."""
        self._listen()
        seed = int(context["seed"])
        random.seed(seed)
        for module, function in (("numpy.random", "seed"), ("torch", "manual_seed")):
            if module in sys.modules:
                getattr(sys.modules[module], function)(seed % 2**32)
        paths = {
            "scratch": Path(context["scratch"]) / str(self._rank),
            "shared_scratch": Path(context["shared_scratch"]),
        }
        for path in paths.values():
            path.mkdir(parents=True, exist_ok=True)
        where = Context(
            **{**context, **paths, "device": self._device(context["device"])},
            rank=self._rank,
            world_size=self._world_size,
            store_port=self._store_port,
        )
        slot = Slot(Order(**order), where, self._ranges)
        self._slots[slot.order.side] = slot
        refuse_foreign(slot.order.repository)
        told = {"prepares": slot.workload.prepare is not None, "anew": slot.workload.anew}
        return {"setup_s": slot.setup_s, **told, "pid": os.getpid()}

    def _device(self, kind: str) -> str:
        if kind != "cuda":
            return kind
        import torch

        torch.cuda.set_device(self._rank)
        return f"cuda:{self._rank}"

    def _listen(self) -> None:
        if self._world_size < 2 or self._rank != 0 or self._store is not None:
            return
        import torch.distributed as dist

        self._store = dist.TCPStore(
            "127.0.0.1",
            self._store_port,
            self._world_size,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=self._listen_fd,
        )

    def slot(self, side: str) -> Slot:
        """A side that was set up, for whoever drives it without a parent."""
        return self._slots[side]

    def on_first(self, *, side: str) -> dict[str, Any]:
        """The first iteration of a side."""
        return self._slots[side].first()

    def on_warmup(self, *, side: str, readings: int, iterations: int, window: int) -> dict[str, Any]:
        """Warm up for a number of readings."""
        return self._slots[side].warm_up(readings=readings, iterations=iterations, window=window)

    def on_turn(self, *, side: str, reentry: int, samples: int, iterations: int, wall_too: bool) -> dict[str, Any]:
        """A side's turn in a round."""
        return self._slots[side].turn(reentry=reentry, samples=samples, iterations=iterations, wall_too=wall_too)

    def on_rehearse(self, *, side: str) -> dict[str, Any]:
        """Get ready for audits."""
        self._slots[side].rehearse()
        return {}

    def on_audit(self, *, side: str, seed: int, lead: int, iterations: int) -> dict[str, Any]:
        """Audited iterations, after ``lead`` untimed ones."""
        return self._slots[side].audit(seed, iterations, lead=lead)

    def on_save(self, *, side: str, folder: str, whole: bool) -> dict[str, Any]:
        """Describe the audited outputs where the check finds it; ``whole``: hand all of them over too."""
        auditor, own = self._slots[side].auditor, self._folder(folder, side)
        handover.describe(auditor.snapshots, own)
        if whole:
            handover.hand_over(auditor.snapshots, own)
        return {"faults": auditor.faults}

    def on_hand_over(self, *, side: str, folder: str, to: list[str], everything: bool) -> dict[str, Any]:
        """Hand over the outputs in which a side of ``to``, which has described its own, differs from this one."""
        snapshots, folders = self._slots[side].auditor.snapshots, [self._folder(folder, other) for other in to]
        others = [path for path in folders if path.is_dir()]  # a rank that another side lacks is compared with nothing
        wanted = (lambda audit, name: bool(others)) if everything else handover.differing(snapshots, others)
        handover.hand_over(snapshots, self._folder(folder, side), wanted=wanted)
        return {}

    def on_check(self, *, base: str, other: str, folder: str, rule: dict[str, Any]) -> dict[str, Any]:
        """Compare what the ranks of two sides computed: outputs of this worker, the others' below ``folder``.

        Any worker of the pair can do it; where it has fewer ranks than the two sides, each looks at several. A named
        check is the other side's own where that lives here. A rank that only one side has compares nothing.
        """
        ranks = max(len(list((Path(folder) / side).glob("*"))) for side in (base, other))
        mine = range(self._rank, max(ranks, self._rank + 1), self._world_size)
        answers = [self._check_rank(rank, base, other, folder, rule) for rank in mine]
        return next((a for a in answers if not a["passed"]), max(answers, key=lambda a: a["max_error"] or 0.0))

    def _check_rank(self, rank: int, base: str, other: str, folder: str, rule: dict[str, Any]) -> dict[str, Any]:
        there = {side: self._folder(folder, side, rank) for side in (base, other)}
        if rank > 0 and not all(path.is_dir() for path in there.values()):
            return {"passed": True, "compared": "", "detail": "", "max_error": None}
        found = {
            side: self._slots[side].auditor.snapshots
            if side in self._slots and rank == self._rank
            else handover.load(path)
            for side, path in there.items()
        }
        if rule["kind"] == "named" and base in self._slots:
            # The next side is compared with the same outputs, and a check may write into what it is given.
            found[base] = [replace(s, arrays={n: a.copy() for n, a in s.arrays.items()}) for s in found[base]]
        slot = self._slots.get(other) or next(iter(self._slots.values()))
        return compare(found[other], found[base], Rule(**rule), slot.workload.checks, (base, other)).__dict__

    def _folder(self, folder: str, side: str, rank: int | None = None) -> Path:
        """Where a rank of a side, this one's by default, shows its outputs."""
        return Path(folder) / side / str(self._rank if rank is None else rank)

    def on_tell(self, *, side: str) -> dict[str, Any]:
        """Work, counters, facts, what its turns used, peak memory."""
        told = self._slots[side].told()
        # Again: a step may import what set-up did not.
        refuse_foreign(self._slots[side].order.repository)
        told["facts"] = {**_software(), **told["facts"]}
        told["peak_bytes"] = _host_peak()
        told["peak_gpu_bytes"] = self._slots[side].peak_gpu_bytes
        return told

    def on_close(self) -> dict[str, Any]:
        """Let every side go; the process ends after the reply."""
        for slot in self._slots.values():
            slot.close()
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
        return {}


def _kind(error: BaseException) -> str:
    """Which FailureKind an exception is, by type."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
        return "oom_device"
    if type(error).__module__.startswith("cupy") and type(error).__name__ == "OutOfMemoryError":
        return "oom_device"
    return "oom_host" if isinstance(error, MemoryError) else "error"


def _software() -> dict[str, Any]:
    facts: dict[str, Any] = {"python": sys.version.split()[0], "cpus": sorted(os.sched_getaffinity(0))}
    if nodes := _pages_by_node():
        facts["memory_nodes"] = nodes
    torch = sys.modules.get("torch")
    if torch is not None:
        facts |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
    return facts


def _pages_by_node() -> dict[str, float]:
    """Share of this process's own memory pages on each NUMA node; empty on a machine of one node.

    Pages of files (libraries, mapped data) lie where whoever read them first had them, and are left out.
    """
    if not Path("/sys/devices/system/node/node1").is_dir():
        return {}
    pages: Counter[str] = Counter()
    with suppress(OSError):
        lines = Path("/proc/self/numa_maps").read_text(encoding="ascii", errors="replace").splitlines()
        for word in (word for line in lines if " file=" not in line for word in line.split()):
            name, equals, count = word.partition("=")
            if equals and name[:1] == "N" and name[1:].isdigit() and count.isdigit():
                pages[name[1:]] += int(count)
    total = sum(pages.values())
    return {node: round(count / total, 3) for node, count in sorted(pages.items())} if total else {}


def _host_peak() -> int | None:
    """Largest resident set of this process. Not ru_maxrss: Linux hands the starter's own peak on to that."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None
