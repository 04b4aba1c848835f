"""transfer.handoffs: one GPU of this process makes payloads that another takes, handed over by the host or by kernels.

What must not live here: what the kernels compute (handoff.cu), transfers between processes (comm/).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared.chain import fill_words
from aiperf.workloads.shared.cupy_kernels import Kernels, import_cupy
from aiperf.workloads.shared.seeded import own_seed

_SOURCE = Path(__file__).with_name("handoff.cu")
_BLOCK, _VECTOR, _SLOTS = 512, 16, 2
_MULTIPLIER = 1664525
_ALREADY = 704
"""cudaErrorPeerAccessAlreadyEnabled."""


def handoffs(
    context: Context,
    *,
    size: Size = 1 << 20,
    rounds: int = 32,
    by: Literal["host", "events", "signal"] = "host",
) -> Workload:
    """The second GPU makes ``rounds`` payloads of ``size`` bytes, each with different words; the first adds each
    to five times its total.

    ``host``: a kernel makes a payload, the host waits for it, orders a direct copy, waits for that, and launches the
    kernel that takes it. ``events``: the same launches and copies, in two buffers, with events of the streams instead
    of waits. ``signal``: one kernel on each GPU for all rounds; blocks of the first write their share into the other
    GPU's memory and then a number, for which the same blocks there wait, as with NVSHMEM's put with signal; numbers the
    other way free the two slots. A number that does not come ends the launch after two seconds, with a wrong total.
    Bytes: all payloads; items: hand-overs. Source: AI Systems Performance Engineering, chapter 12.
    """
    if size < _VECTOR or size % _VECTOR or rounds < 1:
        raise ValueError(f"size must be a multiple of {_VECTOR} bytes above 0, and rounds 1 or more")
    if not context.on_gpu or context.gpus < 2:
        raise SkipSide("a hand-over between two GPUs of one process needs two of them")
    near = context.use_gpu("a hand-over between two GPUs needs GPUs")
    far = torch.device("cuda", 1 - (near.index or 0))
    for one, other in ((near, far), (far, near)):
        if not torch.cuda.can_device_access_peer(one.index or 0, other.index or 0):
            raise SkipSide("the driver does not let these two GPUs access each other's memory")
    pair = _TwoGpus(near, far, size=size, rounds=rounds)
    pair.redraw(context.seed)
    step = {"host": pair.by_host, "events": pair.by_events, "signal": pair.by_signal}[by]
    step()
    for device in (near, far):
        torch.cuda.synchronize(device)
    return Workload(
        step=step,
        work=Work(bytes=float(size * rounds), items=rounds, item="hand-overs"),
        outputs=lambda: {"total": pair.total},
        inputs=lambda: {"source": pair.source},
        redraw=pair.redraw,
        reference=lambda: {"total": expected(pair.source.cpu().numpy(), rounds)},
        counters=lambda: {"host_waits": float(pair.waits), "launches": float(pair.launches)},
        facts={"by": by, "blocks": pair.blocks},
    )


def expected(source: Any, rounds: int) -> Any:
    """The total of all rounds, of an int32 numpy array."""
    factor = term = 0
    for number in range(rounds):
        factor, term = 5 * factor + _MULTIPLIER, 5 * term + number * (_MULTIPLIER + 1)
    total = source.view(np.uint32) * np.uint32(factor % 2**32) + np.uint32(term % 2**32)
    return total.view(np.int32)


class _TwoGpus:
    """Both GPUs' buffers and kernels, and the three ways of handing over."""

    def __init__(self, near: Any, far: Any, *, size: int, rounds: int) -> None:
        self._near, self._far, self._rounds = near, far, rounds
        words = size // 4
        self._vectors = np.uint32(size // _VECTOR)
        self.source = torch.zeros(words, dtype=torch.int32, device=far)
        self.total = torch.zeros(words, dtype=torch.int32, device=near)
        self._made, self._slots = (
            torch.zeros(_SLOTS, words, dtype=torch.int32, device=device) for device in (far, near)
        )
        self._copier = torch.cuda.Stream(far)
        source = _SOURCE.read_text(encoding="utf-8")
        _enable_peer_access(near, far)
        self._there, self._here = (Kernels(source, device) for device in (far, near))
        torch.cuda.set_device(near)
        # A block that waits holds its place, so all must fit at once.
        most = min(self._there.sms, self._here.sms)
        self.blocks = max(1, min(most, -(-int(self._vectors) // _BLOCK)))
        # Numbers of the payloads that have arrived and that were taken; two before the first were, so to speak.
        self._arrived = torch.zeros(self.blocks, dtype=torch.int32, device=near)
        self._taken = torch.ones(self.blocks, dtype=torch.int32, device=far)
        self._next = _SLOTS
        self.waits = self.launches = 0

    def redraw(self, seed: int) -> None:
        """Other words to make payloads of, in place."""
        fill_words(self.source, seed=own_seed(seed, "source"))

    def _launch(self, kernels: Kernels, device: Any, name: str, *arguments: Any) -> None:
        passed = tuple(np.uint64(a.data_ptr()) if hasattr(a, "data_ptr") else np.uint32(a) for a in arguments)
        with torch.cuda.device(device):
            kernels.launch(name, (self.blocks,), (_BLOCK,), passed)
        self.launches += 1

    def _make(self, number: int, into: Any) -> None:
        self._launch(self._there, self._far, "produce", self.source, into, self._vectors, number)

    def _take(self, number: int, payload: Any) -> None:
        self._launch(self._here, self._near, "consume", payload, self.total, self._vectors, number)

    def _wait(self, device: Any) -> None:
        torch.cuda.current_stream(device).synchronize()
        self.waits += 1

    def _follow(self, after: Any, before: Any) -> None:
        """What is queued on ``after`` from now on waits for what ``before`` holds."""
        torch.cuda.current_stream(after).wait_event(torch.cuda.current_stream(before).record_event())

    def by_host(self) -> None:
        """The host waits for each payload and for its copy."""
        self.waits = self.launches = 0
        self._follow(self._far, self._near)
        for number in range(self._rounds):
            self._make(number, self._made[0])
            self._wait(self._far)
            self._slots[0].copy_(self._made[0], non_blocking=True)
            # A copy between GPUs makes the streams of both wait for it.
            self._wait(self._near)
            self._take(number, self._slots[0])

    def by_events(self) -> None:
        """The host waits for nothing: a stream on each GPU and one for the copies, two buffers on each, and events."""
        self.waits = self.launches = 0
        self._follow(self._far, self._near)
        far, near = (torch.cuda.current_stream(device) for device in (self._far, self._near))
        pushed: list[Any] = []
        taken: list[Any] = []
        for number in range(self._rounds):
            slot = number % _SLOTS
            if number >= _SLOTS:
                far.wait_event(pushed[number - _SLOTS])
                self._copier.wait_event(taken[number - _SLOTS])
            self._make(number, self._made[slot])
            self._copier.wait_event(far.record_event())
            _push(self._made[slot], self._slots[slot], self._copier)
            pushed.append(self._copier.record_event())
            near.wait_event(pushed[-1])
            self._take(number, self._slots[slot])
            taken.append(near.record_event())

    def by_signal(self) -> None:
        """One kernel on each GPU, which tell each other of payloads and free slots."""
        self.waits = self.launches = 0
        self._follow(self._far, self._near)
        numbers = (self._vectors, self._rounds, self._next % 2**32)
        self._launch(
            self._there, self._far, "produce_and_put", self.source, self._slots, self._arrived, self._taken, *numbers
        )
        self._launch(
            self._here, self._near, "consume_when_told", self._slots, self.total, self._arrived, self._taken, *numbers
        )
        self._follow(self._near, self._far)
        self._next += self._rounds


def _push(source: Any, into: Any, stream: Any) -> None:
    """Queue a direct copy to another GPU on ``stream`` alone: torch's own would have both GPUs' streams wait."""
    cuda = import_cupy().cuda
    cuda.runtime.memcpyPeerAsync(
        into.data_ptr(), into.device.index, source.data_ptr(), source.device.index, source.nbytes, stream.cuda_stream
    )


def _enable_peer_access(near: Any, far: Any) -> None:
    """Let kernels of each GPU read and write the other's memory."""
    runtime = import_cupy().cuda.runtime
    for one, other in ((near, far), (far, near)):
        with torch.cuda.device(one):
            try:
                runtime.deviceEnablePeerAccess(other.index)
            except runtime.CUDARuntimeError as error:
                if error.status != _ALREADY:
                    raise
