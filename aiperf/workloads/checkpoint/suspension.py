"""checkpoint.suspend: a process whose CUDA state the driver copies to host memory and back, as cuda-checkpoint does.

What must not live here: the process (holder.py), the driver's calls (cuda_state.py), checkpoints of frameworks
(workload.py).
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.checkpoint.cuda_state import CudaState, CudaStateError
from aiperf.workloads.checkpoint.holder import WEIGHTS
from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared.bytecode import kept_variables
from aiperf.workloads.shared.child import Helper, shared_memory
from aiperf.workloads.shared.seeded import draw_words, own_seed

METRICS = {"suspend": {"suspend": ("s", "lower"), "restore": ("s", "lower")}}

_HOLDER = Path(__file__).with_name("holder.py")
_ROW = 1 << 20
"""Bytes of a kept row, and of the inputs."""
_MOST = 32 << 30
"""Kept bytes up to which the sums of 32-bit words, with these weights, are exact in float64."""


def free_memory(device: Any) -> int:
    """Bytes of the GPU's memory that no process holds."""
    return torch.cuda.mem_get_info(device)[0]


class SuspendedProcess:
    """A process that holds GPU memory, as its parent sees it. Close it, also after an error."""

    def __init__(self, asked: SimpleNamespace, device: Any) -> None:
        self._device, self.rows, self.blocks = device, asked.kept_bytes // _ROW, asked.freed_bytes // asked.kept_bytes
        words = _ROW // 4
        descriptor, area = shared_memory("aiperf-suspended", 20 * words)
        self.digest, self.passed = np.frombuffer(area, np.float64, 2 * words).reshape(2, words)
        self.row = np.frombuffer(area, np.int32, words, 16 * words)
        spec = {"descriptor": descriptor, "words": words, "rows": self.rows, "blocks": self.blocks}
        spec |= {"device": str(device), "trim": asked.trim}
        try:
            self._child = Helper(
                _HOLDER, [json.dumps(spec)], pass_fds=(descriptor,), env={**os.environ, **kept_variables()}
            )
        finally:
            os.close(descriptor)
        self.image_bytes = self.released_bytes = 0
        self._took: list[tuple[float, float]] = []
        self._last = math.inf, math.inf
        self._state: CudaState | None = None

    def start(self, seed: int) -> None:
        """Load the rows, then suspend and resume the process once. Raises HelperEnded, CudaStateError."""
        self.redraw(seed)
        self._state = CudaState(self._child.pid)
        self._suspend_and_resume()

    def redraw(self, seed: int) -> None:
        """Another row, which the process takes into its memory."""
        draw_words(self.row.view(np.uint32), seed=own_seed(seed, "row"))
        self.image_bytes = self._ask("load")

    def step(self) -> None:
        """A pass with temporaries, the suspension, and a digest of what the process has kept."""
        self.image_bytes = self._ask("pass")
        self._suspend_and_resume()
        self._ask("digest")

    def _ask(self, work: str) -> int:
        self._child.send(work.encode())
        return int(self._child.answer())

    def _suspend_and_resume(self) -> None:
        assert self._state is not None
        free = free_memory(self._device)
        began = time.monotonic()
        self._state.suspend()
        suspended = time.monotonic() - began
        self._state.require("checkpointed")
        self.released_bytes = free_memory(self._device) - free
        began = time.monotonic()
        self._state.resume()
        self._last = suspended, time.monotonic() - began
        self._took.append(self._last)
        self._state.require("running")

    def values(self) -> dict[str, float]:
        """The mean times of the suspensions since this was last called."""
        took, self._took = self._took, []
        if not took:
            return {}
        suspended, restored = zip(*took, strict=True)
        return {"suspend": fmean(suspended), "restore": fmean(restored)}

    def counters(self) -> dict[str, float]:
        """Of the last suspension."""
        image = float(self.image_bytes)
        rates = {"suspend_bytes_per_s": image / self._last[0], "restore_bytes_per_s": image / self._last[1]}
        return {"image_bytes": image, "released_bytes": float(self.released_bytes), **rates}

    def reference(self) -> dict[str, Any]:
        """What every step must give, computed from the row."""
        digest, passed = (np.zeros(len(self.row), np.int64) for _ in range(2))
        for number in range(self.rows):
            digest += (2 * (number % WEIGHTS) + 1) * (self.row * np.int32(2 * number + 1)).astype(np.int64)
        for number in range(self.blocks):
            kept = self.row * np.int32(2 * (number % self.rows) + 1)
            passed += kept + np.int32(number)
        return {"digest": digest.astype(np.float64), "passed": passed.astype(np.float64)}

    def close(self) -> None:
        """End the process, suspended or not."""
        self._child.leave()


def suspend(
    context: Context,
    *,
    kept_bytes: Size = 256 << 20,
    freed_bytes: Size = 1 << 30,
    trim: Literal["none", "empty_cache"] = "none",
) -> Workload:
    """A process's pass with temporaries, then its CUDA state suspended and restored by the driver, as cuda-checkpoint
    does (cuCheckpointProcess*), and a digest of the memory that it has kept.

    The process keeps ``kept_bytes`` of tensors. Its pass has ``freed_bytes`` of temporaries alive at once and frees
    them, after which PyTorch's allocator still holds their blocks. ``trim`` ``empty_cache`` gives these back with
    torch.cuda.empty_cache() before the process is suspended, as part of the step.

    Set-up suspends the process once; a driver or host that cannot skips the side. Metrics: ``suspend``, the time of
    lock and checkpoint; ``restore``, of restore and unlock. Counters: image_bytes, what the allocator holds when the
    process is suspended; suspend_bytes_per_s and restore_bytes_per_s, these over the times; released_bytes, by how much
    the GPU's free memory grew meanwhile, the context's share included. Outputs: a sum over the kept rows in which any
    changed word shows, and one over the temporaries; both are exact. Bytes: those kept. Source: book chapter 5.
    """
    asked = SimpleNamespace(**locals())
    if not _ROW <= kept_bytes <= _MOST or kept_bytes % _ROW:
        raise ValueError(f"kept_bytes is {kept_bytes}; it must be from 1 MiB to 32 GiB, in whole MiB")
    if freed_bytes < 0 or freed_bytes % kept_bytes:
        raise ValueError(f"freed_bytes is {freed_bytes}; it must be a multiple of kept_bytes, or 0")
    device = context.use_gpu("the CUDA state of a process is suspended, and this side runs on the CPU")
    process = SuspendedProcess(asked, device)
    try:
        process.start(context.seed)
    except CudaStateError as error:
        process.close()
        raise SkipSide(f"this host cannot suspend a process's CUDA state: {error}") from error
    except BaseException:
        process.close()
        raise
    image = float(kept_bytes + (freed_bytes if trim == "none" else 0))
    return Workload(
        step=process.step,
        work=Work(bytes=float(kept_bytes), items=1, item="suspensions", peaks={"d2h": image, "h2d": image}),
        outputs=lambda: {"digest": process.digest, "passed": process.passed},
        inputs=lambda: {"row": process.row},
        redraw=process.redraw,
        reference=process.reference,
        counters=process.counters,
        values=process.values,
        elsewhere=True,
        facts={"trim": trim, "suspended_by": "cuCheckpointProcess*", "image_in": "host memory of the process"},
        close=process.close,
    )
