"""memory.requests: requests under a limit on GPU memory, and what follows when one of them runs out of it.

What must not live here: what a request computes and the process that answers it anew (limited.py), allocators
(sources.py), timing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, Outcome, Size, Work, Workload
from aiperf.workloads.memory import limited
from aiperf.workloads.shared.bytecode import kept_variables
from aiperf.workloads.shared.child import Helper, shared_memory
from aiperf.workloads.shared.seeded import draw_words, own_seed

METRICS = {"requests": {"answered": ("", "higher")}}
_PROGRAM = Path(limited.__file__)
_CONF = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
_MOST_ROUNDS = 64


class _NewProcesses:
    """Requests answered each by a process of its own, forked from one that has imported torch."""

    def __init__(self, device: str, limit: int) -> None:
        descriptor, area = shared_memory("aiperf-request", 4 * limited.WORDS + 8 * limited.ANSWER)
        self._source = torch.frombuffer(area, dtype=torch.int32, count=limited.WORDS)
        self._answer = torch.frombuffer(area, dtype=torch.int64, count=limited.ANSWER, offset=4 * limited.WORDS)
        spec = {"descriptor": descriptor, "device": device, "limit": limit}
        env = {**os.environ, **kept_variables(), **_CONF}
        try:
            self._helper = Helper(_PROGRAM, [json.dumps(spec)], pass_fds=(descriptor,), env=env)
        finally:
            os.close(descriptor)
        self._helper.answer()

    def answer(self, source: Any, *, number: int, rounds: int) -> Any:
        """The answer; None where this process ran out of memory too. Raises RuntimeError for one that failed."""
        self._source.copy_(source)
        self._helper.send(f"{number} {rounds}".encode())
        status = int(self._helper.answer())
        if status not in (0, limited.OUT_OF_MEMORY):
            raise RuntimeError(
                f"the process of a request ended with status {status}; its last words are in this side's stderr"
            )
        return None if status else self._answer

    def close(self) -> None:
        self._helper.leave()


class _Requests:
    """The requests of a step, one after the other, and what became of them."""

    def __init__(self, asked: SimpleNamespace, device: Any) -> None:
        self._asked, self._device = asked, device
        shape = (len(asked.rounds), limited.ANSWER)
        self.source = torch.empty(limited.WORDS, dtype=torch.int32, device=device)
        self.outputs = {
            "source": torch.empty_like(self.source),
            "answers": torch.empty(shape, dtype=torch.int64, device=device),
            "answered": torch.empty(shape[:1], dtype=torch.int64, device=device),
        }
        self._processes = _NewProcesses(asked.context.device, asked.limit) if asked.on_oom == "new_process" else None
        self._shares: list[float] = []
        self.out = self.retried = self.unused = 0

    def redraw(self, seed: int) -> None:
        """Another input."""
        words = np.empty(limited.WORDS, np.uint32)
        draw_words(words, seed=own_seed(seed, "source"))
        self.source.copy_(torch.from_numpy(words.view(np.int32)))

    def step(self) -> None:
        """Answer every request that memory allows."""
        self.out = self.retried = self.unused = 0
        self.outputs["source"].copy_(self.source)
        answered = 0
        for number, rounds in enumerate(self._asked.rounds):
            found = self._try_here(number, rounds, offload=False)
            if found is None and self._asked.on_oom != "fail":
                found = self._retry(number, rounds)
            answer = self.outputs["answers"][number]
            answer.zero_() if found is None else answer.copy_(found)
            self.outputs["answered"][number] = int(found is not None)
            answered += found is not None
        self._shares.append(answered / len(self._asked.rounds))

    def _retry(self, number: int, rounds: int) -> Any:
        torch.cuda.empty_cache()
        self.retried += 1
        if self._processes is not None:
            return self._processes.answer(self.source, number=number, rounds=rounds)
        return self._try_here(number, rounds, offload=True)

    def _try_here(self, number: int, rounds: int, *, offload: bool) -> Any:
        """The answer, or None when memory is out. What the request held is free again once this has returned: until
        then the exception holds the frames that held it."""
        try:
            return limited.answer(self.source, number=number, rounds=rounds, offload=offload)
        except torch.OutOfMemoryError:
            self.out += 1
            self.unused = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
            return None

    def values(self) -> dict[str, float]:
        """The share of requests answered in the steps since this was last called."""
        shares, self._shares = self._shares, []
        return {"answered": sum(shares) / len(shares)} if shares else {}

    def counters(self) -> dict[str, float]:
        """Of the last step; how much torch held without using it when memory was out the last time."""
        return {
            "out_of_memory": float(self.out),
            "retried": float(self.retried),
            "unused_mib_when_out": self.unused / (1 << 20),
        }

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()


def requests(
    context: Context,
    *,
    on_oom: Literal["fail", "new_process", "offload"] = "fail",
    limit: Size = 3 << 30,
    rounds: list[int] = [4, 16, 4, 4],  # noqa: B006 read from the source, never changed
) -> Workload:
    """Requests of so many ``rounds`` each, one after the other, where torch may hold ``limit`` bytes of GPU memory.

    Each round computes a block of 32-bit words (128 MiB in the first, 16 MiB more in each that follows) and keeps it in
    16 bits until the request ends. Torch's default allocator puts what is kept into the block before, which the next,
    larger one then cannot use: it holds about twice what is in use. Before each step its cache is emptied, untimed.

    ``on_oom``, when a request runs out of memory: it fails; or torch's cache is emptied and the request is tried again,
    in a ``new_process`` with expandable segments under the same limit (forked from one that has imported torch), or
    here with ``offload``, which keeps the blocks in host memory.

    Metric: ``answered``, the share of requests with an answer. Check ``right_answers``: every answer is what the CPU
    computes from the same input, and a request without an answer is marked as failed; the check's value is the
    larger of both sides' shares of failed requests.
    Items: requests. Source: book chapter 19.
    """
    asked = SimpleNamespace(**locals())
    if not rounds or not all(1 <= count <= _MOST_ROUNDS for count in rounds):
        raise ValueError(f"rounds is {rounds}; it must name 1 to {_MOST_ROUNDS} rounds of at least one request")
    if limit < 1 << 30:
        raise ValueError(f"limit is {limit}; it must be 1 GiB or more")
    device = context.use_gpu("requests that run out of GPU memory need a GPU")
    limited.limit_memory(device, limit)
    return _workload(_Requests(asked, device), asked)


def _workload(side: _Requests, asked: SimpleNamespace) -> Workload:
    try:
        side.redraw(asked.context.seed)
    except BaseException:
        side.close()
        raise
    return Workload(
        step=side.step,
        work=Work(items=len(asked.rounds), item="requests"),
        outputs=lambda: side.outputs,
        inputs=lambda: {"source": side.source},
        redraw=side.redraw,
        prepare=torch.cuda.empty_cache,
        # Out of memory again in each step, the allocator never comes to rest.
        anew=True,
        counters=side.counters,
        values=side.values,
        checks={"right_answers": right_answers(asked.rounds)},
        facts={"on_oom": asked.on_oom, "limit": asked.limit, "retry_alloc_conf": _retry_conf(asked.on_oom)},
        close=side.close,
        elsewhere=asked.on_oom == "new_process",
    )


def _retry_conf(on_oom: str) -> str:
    return next(iter(_CONF.values())) if on_oom == "new_process" else ""


def truth(source: Any, *, number: int, rounds: int) -> Any:
    """The answer to a request, computed by numpy from the input: rows with equal factors are added up first."""
    sums = np.zeros(len(source), np.int64)
    for index in range(rounds):
        rows = range(limited.FIRST_ROWS + limited.MORE_ROWS * index)
        for first in range(limited.FACTORS):
            weights = sum(limited.weight(index, row) for row in rows[first :: limited.FACTORS])
            kept = (source * np.int32(limited.factor(number, index, first))).astype(np.int16)
            sums += kept.astype(np.int64) * weights
    return sums.reshape(-1, limited.ANSWER).sum(0)


def right_answers(rounds: Sequence[int]) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]:
    """The check of requests of so many rounds."""

    def check(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
        source = before["source"]
        if not np.array_equal(source, after["source"]):
            return Outcome(False, "the sides answered from different inputs")
        want = np.stack([truth(source, number=number, rounds=count) for number, count in enumerate(rounds)])
        failed = []
        for name, side in (("before", before), ("after", after)):
            answered = side["answered"]
            if not np.isin(answered, (0, 1)).all():
                return Outcome(False, f"{name} has requests that are neither answered nor failed")
            wrong = (side["answers"] != want * answered[:, None]).any(axis=1)
            if wrong.any():
                return Outcome(False, f"{name} has {int(wrong.sum())} of {len(rounds)} requests with another answer")
            failed.append(1 - float(answered.mean()))
        return Outcome(True, f"{failed[0]:.0%} and {failed[1]:.0%} of the requests failed", max(failed))

    return check
