"""How batches reach the step: a torch DataLoader, threads that prepare ahead, and the way onto the device.

What must not live here: datasets, what a step does with a batch.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from aiperf.workloads.contract import SkipSide


@dataclass(frozen=True)
class Feeding:
    """How a dataset is read; the fields are parameters of data.loader."""

    batch_size: int
    num_workers: int
    worker_kind: str
    prefetch_factor: int
    persistent: bool
    pinned: bool
    collate: Callable[[list[Any]], Any] = default_collate
    init: Callable[[int], None] | None = None
    """Run in each worker process, given its number, before its first sample."""


def feed(dataset: Any, how: Feeding) -> tuple[Iterable[Any], Callable[[], None]]:
    """Batches in order, whatever the workers, and what ends the workers."""
    if how.worker_kind == "thread" and how.num_workers:
        threads = _Threads(dataset, how)
        return threads, threads.close
    loader = DataLoader(
        dataset,
        batch_size=how.batch_size,
        shuffle=False,
        num_workers=how.num_workers,
        prefetch_factor=how.prefetch_factor if how.num_workers else None,
        persistent_workers=how.persistent and how.num_workers > 0,
        multiprocessing_context="fork" if how.num_workers else None,
        pin_memory=how.pinned,
        collate_fn=how.collate,
        worker_init_fn=how.init,
    )
    return loader, lambda: None


class _Threads:
    """A loader whose workers are threads of this process; as many batches in flight as DataLoader would have."""

    def __init__(self, dataset: Any, how: Feeding) -> None:
        self._dataset, self._how = dataset, how
        self._pool = ThreadPoolExecutor(how.num_workers, thread_name_prefix="loader")
        self.close = self._pool.shutdown

    def _batch(self, start: int) -> Any:
        stop = min(start + self._how.batch_size, len(self._dataset))
        batch = self._how.collate([self._dataset[i] for i in range(start, stop)])
        return batch.pin_memory() if self._how.pinned else batch

    def __iter__(self) -> Iterator[Any]:
        starts = iter(range(0, len(self._dataset), self._how.batch_size))
        ahead: deque[Future[Any]] = deque()
        for _ in range(self._how.num_workers * self._how.prefetch_factor):
            if (start := next(starts, None)) is not None:
                ahead.append(self._pool.submit(self._batch, start))
        while ahead:
            batch = ahead.popleft().result()
            if (start := next(starts, None)) is not None:
                ahead.append(self._pool.submit(self._batch, start))
            yield batch


def require_shared_memory(how: Feeding, batch_bytes: int) -> None:
    """Raise SkipSide when the batches in flight between processes would not fit /dev/shm: workers would be killed."""
    if not how.num_workers or how.worker_kind == "thread":
        return
    wanted = (how.num_workers * how.prefetch_factor + 2) * batch_bytes
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return
    free = found.f_bavail * found.f_frsize
    if wanted > free:
        raise SkipSide(f"batches in flight need {wanted >> 20} MiB of /dev/shm, but {free >> 20} MiB are free")


def move(batch: Any, device: str, *, non_blocking: bool) -> Any:
    """A batch, a tensor or a pair of them, on the device."""
    if isinstance(batch, list | tuple):
        return [part.to(device, non_blocking=non_blocking) for part in batch]
    return batch.to(device, non_blocking=non_blocking)


def arriving_ahead(batches: Iterable[Any], device: str, stream: Any) -> Iterator[Any]:
    """Each batch on the device, copied on ``stream`` while the current stream still works on the batch before it."""
    rest = iter(batches)

    def fetch() -> Any:
        batch = next(rest, None)
        if batch is None:
            return None
        with torch.cuda.stream(stream):
            return move(batch, device, non_blocking=True)

    following = fetch()
    while following is not None:
        consumer = torch.cuda.current_stream()
        consumer.wait_stream(stream)
        for part in following if isinstance(following, list) else [following]:
            # the consumer's stream uses memory that belongs to the copy's stream
            part.record_stream(consumer)
        yield following
        following = fetch()
