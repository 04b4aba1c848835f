"""What a worker does with each request of its parent: one handler per type of message.

What must not live here: the pipe, and how a side is timed (side_runner.py).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import select
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Literal

from aiperf.protocol import checking, messages
from aiperf.protocol.libraries import EXTRAS, needs_library
from aiperf.worker import output_exchange
from aiperf.worker.cuda_calls import cuda_calls
from aiperf.worker.integrity import Integrity
from aiperf.worker.memory_policy import OwnNode
from aiperf.worker.named_check import named_check, read_outputs
from aiperf.worker.origins import ForeignModule, refuse_foreign
from aiperf.worker.plain import seed_libraries
from aiperf.worker.ranges import Ranges
from aiperf.worker.side_runner import SideRunner
from aiperf.worker.usage import host_peak, pages_by_node
from aiperf.workloads.contract import Context, ProgramEnded, ProgramNotReady, SkipSide
from aiperf.workloads.shared.bytecode import kept_compiled
from aiperf.workloads.shared.imports import imports_of

_IMPORT_POLL_S = 0.005
_BY_SIDE: dict[type[messages.WorkerRequest[Any]], Callable[[SideRunner, Any], messages.WorkerReply]] = {
    messages.FirstIterationRequest: SideRunner.first,
    messages.WarmUpRequest: SideRunner.warm_up,
    messages.TurnRequest: SideRunner.turn,
    messages.RehearsalRequest: SideRunner.rehearse,
    messages.AuditRequest: SideRunner.audit,
    messages.FreshRequest: SideRunner.fresh,
    messages.WideRequest: SideRunner.wide,
}


class Worker:
    """One rank of one launch; it holds one side, or every side with ``in_process``."""

    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        store_port: int,
        listen_fd: int,
        ranges: Ranges | None = None,
        memory: OwnNode | None = None,
    ) -> None:
        """``memory``: the worker's preference for its NUMA node; None leaves memory where the kernel puts it."""
        self._rank = rank
        self._local_rank = int(os.environ.get("LOCAL_RANK", rank)) if world_size > 1 else rank
        store = os.environ.get("AIPERF_STORE")
        self._store_file = Path(store) if store else None
        self._world_size = world_size
        self._store_port = store_port
        self._listen_fd = listen_fd
        self._store: Any = None
        self._meeting: threading.Thread | None = None
        self._memory = memory
        self._runners: dict[str, SideRunner] = {}
        self._integrity = Integrity()
        self._ranges = ranges or Ranges.open(force=os.environ.get("AIPERF_NVTX") == "on")
        self._handlers: dict[type[messages.WorkerRequest[Any]], Callable[[Any], messages.WorkerReply]] = {
            messages.LoadRequest: self._load,
            messages.SetUpRequest: self._set_up,
            checking.HandOverRequest: self._hand_over,
            checking.NamedCheckRequest: self._named_check,
            messages.SummaryRequest: self._summarise,
            messages.CloseRequest: self._close,
            **dict.fromkeys(_BY_SIDE, self._run_side),
        }

    def handle(self, request: messages.WorkerRequest[Any]) -> messages.WorkerReply:
        """Carry out one request; an exception becomes a reply that says what went wrong."""
        began = perf_counter()
        try:
            reply = self._handlers[type(request)](request)
            return replace(reply, busy_s=perf_counter() - began)
        except SkipSide as reason:
            return messages.SkipReply(reason=str(reason))
        except ModuleNotFoundError as error:
            library = (error.name or "").partition(".")[0]
            if library in EXTRAS and importlib.util.find_spec(library) is None:
                return messages.SkipReply(reason=needs_library(library))
            return _failure(error)
        except ForeignModule as reason:
            return messages.FailureReply(message=str(reason))
        except Exception as error:
            return _failure(error)

    def runner(self, side: str) -> SideRunner:
        """A side that was set up, for whoever drives it without a parent."""
        return self._runners[side]

    def _run_side(self, request: Any) -> messages.WorkerReply:
        return _BY_SIDE[type(request)](self._runners[request.side], request)

    def _load(self, request: messages.LoadRequest) -> messages.WorkerReply:
        of_calls = (imports_of(call.workload, call.params, request.device) for call in request.calls)
        with kept_compiled():
            for name in (*request.modules, *dict.fromkeys(name for names in of_calls for name in names)):
                with suppress(Exception):
                    module, _, function = name.partition(":")
                    imported = importlib.import_module(module)
                    if function:
                        getattr(imported, function)()
        if request.device == "cuda" and (torch := sys.modules.get("torch")) is not None:
            with suppress(Exception):
                if torch.cuda.is_available() and request.open_gpu:
                    torch.cuda.set_device(self._local_rank)
                    torch.cuda.synchronize(self._local_rank)
        return messages.WorkerReply()

    def _set_up(self, request: messages.SetUpRequest) -> messages.SetUpReply:
        if self._memory is not None:
            self._memory.set_up(request.call.params)
        self._listen()
        seed_libraries(request.seed)
        own, shared = Path(request.scratch), Path(request.shared_scratch)
        scratch = Path(os.environ.get("AIPERF_NODE_SCRATCH") or own.parent) / own.name / str(self._rank)
        for path in (scratch, shared):
            path.mkdir(parents=True, exist_ok=True)
        context = Context(
            device=self._device(request.device),
            rank=self._rank,
            local_rank=self._local_rank,
            world_size=self._world_size,
            seed=request.seed,
            scratch=scratch,
            shared_scratch=shared,
            pad=request.pad,
            gpus=request.gpus,
            store_port=self._store_port,
            store_file=self._store_file,
        )
        self._integrity.look()
        runner = self._runners[request.side] = SideRunner(request, context, self._ranges)
        refuse_foreign(request.repository)
        made = runner.workload
        return messages.SetUpReply(
            setup_s=runner.setup_s, prepares=made.prepare is not None, anew=made.anew, rounds=made.rounds
        )

    def _device(self, kind: str) -> str:
        if not kind.startswith("cuda"):
            return kind
        import torch

        device = f"cuda:{self._local_rank}" if kind == "cuda" else kind
        torch.cuda.set_device(torch.device(device))
        cuda_calls()
        return device

    def _listen(self) -> None:
        """Have the store at which the ranks of a gang meet opened once one of them asks for it: importing torch takes
        longer than all else that starts a worker, and a gang without a process group does without."""
        if self._listen_fd >= 0 and self._meeting is None:
            self._meeting = threading.Thread(target=self._open_store, daemon=True)
            self._meeting.start()

    def _open_store(self) -> None:
        asked = select.poll()
        asked.register(self._listen_fd, select.POLLIN)
        asked.poll()
        # The side imports it, to join: two threads that import parts of a package may lock each other out.
        while (store := getattr(sys.modules.get("torch.distributed"), "TCPStore", None)) is None:
            sleep(_IMPORT_POLL_S)
        self._store = store(
            "127.0.0.1",
            self._store_port,
            self._world_size,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=self._listen_fd,
        )

    def _hand_over(self, request: checking.HandOverRequest) -> checking.HandOverReply:
        auditor = self._runners[request.side].auditor
        if pieces := request.pieces[self._rank] if request.pieces else ():
            output_exchange.write_pieces(auditor.snapshots, pieces, self._path(request.file))
            for audit in {piece.audit for piece in pieces if piece.kind == "parts"}:
                auditor.snapshots[audit].held = {}
        return checking.HandOverReply(faults=tuple(auditor.faults))

    def _named_check(self, request: checking.NamedCheckRequest) -> checking.CompareReply:
        shown = (request.base, request.other)
        if any(self._rank >= len(side.claims) for side in shown):  # a rank that the other side lacks
            return checking.CompareReply(passed=True, compared="")
        theirs, ours = (read_outputs(side, self._path(side.file), self._rank) for side in shown)
        checks, prove = self._runners[request.side].workload.checks, request.prove and self._rank == 0
        return named_check(theirs, ours, request.check, checks, prove=prove)

    def _path(self, file: str) -> Path:
        return Path(file.replace("{rank}", str(self._rank)))

    def _summarise(self, request: messages.SummaryRequest) -> messages.SummaryReply:
        runner = self._runners[request.side]
        summary = runner.summarise()
        # Again: a step may import what set-up did not.
        refuse_foreign(runner.request.repository)
        facts = {**(self._memory.facts() if self._memory else {}), **_software(), **summary.facts}
        return replace(
            summary,
            facts=facts,
            peak_bytes=None if runner.workload.elsewhere else host_peak(),
            peak_gpu_bytes=runner.peak_gpu_bytes,
            replaced=self._integrity.replaced(),
        )

    def _close(self, request: messages.CloseRequest) -> messages.WorkerReply:
        for runner in self._runners.values():
            runner.close()
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
        return messages.WorkerReply()


def _failure(error: Exception) -> messages.FailureReply:
    traceback.print_exception(error)
    kind = _kind(error)
    said = str(error).strip() if kind in ("ended", "not_ready") else ""
    message = said or f"{type(error).__name__}: {error}".strip()
    return messages.FailureReply(kind=kind, message=message.splitlines()[0][:500] + _place(error))


def _place(error: Exception) -> str:
    """The last line of the user's own code that an exception came through, ``" (mine.py:3)"``; empty where none did."""
    libraries = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(libraries) and "site-packages" not in frame.filename:
            return f" ({os.path.basename(frame.filename)}:{frame.lineno})"
    return ""


def _kind(error: BaseException) -> Literal["error", "oom_host", "oom_device", "ended", "not_ready"]:
    """Which FailureKind an exception is, by type."""
    if isinstance(error, (ProgramEnded, ProgramNotReady)):
        return "ended" if isinstance(error, ProgramEnded) else "not_ready"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
        return "oom_device"
    if type(error).__module__.startswith("cupy") and type(error).__name__ == "OutOfMemoryError":
        return "oom_device"
    return "oom_host" if isinstance(error, MemoryError) else "error"


def _software() -> dict[str, Any]:
    facts: dict[str, Any] = {"python": sys.version.split()[0], "cpus": sorted(os.sched_getaffinity(0))}
    if nodes := pages_by_node():
        facts["memory_nodes"] = nodes
    torch = sys.modules.get("torch")
    if torch is not None:
        facts |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
    return facts
