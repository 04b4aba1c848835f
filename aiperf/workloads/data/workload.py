"""Iterating a loader over images or text into a step that consumes the batches. Workload: data.loader.

The kernels are those of torch. What must not live here: datasets, transforms (images.py), loaders (feeds.py), and
data.jpegs, which has a module of its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch.utils.data import default_collate

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.data import feeds, images
from aiperf.workloads.data.datasets import Images, Recipe, Texts, pieces
from aiperf.workloads.data.jpegs import jpegs
from aiperf.workloads.data.loader_cpus import LoaderCpus
from aiperf.workloads.shared.seeded import fill_normal

__all__ = ["jpegs", "loader"]

_FEATURES = 64


def _normalised_together(samples: list[Any]) -> Any:
    """Collate, then one transform over the whole batch."""
    return torch.from_numpy(images.normalise(default_collate(samples).numpy()))


@dataclass
class _Consumer:
    """What a step does with a batch on its device: 64 features of each sample, then the rest of the training step."""

    weight: Any
    features: Any
    arrive: Callable[[Any], Any]
    """Batch as it arrives -> what is projected; holds the transforms that run on the device."""
    products: int
    operands: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.products:
            return
        device = self.weight.device
        if self.weight.is_cuda:
            one = torch.full((4096, 4096), 1 / 4096, dtype=torch.bfloat16, device=device)
        else:
            one = torch.full((self.products, 256, 256), 1 / 256, device=device)
        self.operands = [one, one.clone(), one.clone()]

    def draw(self, seed: int) -> None:
        """The projection, scaled so that features keep their size."""
        fill_normal(self.weight, seed=seed, name="projection")
        self.weight.mul_(len(self.weight) ** -0.5)

    def __call__(self, first: int, batch: Any) -> Any:
        """Consume the batch whose first sample is ``first``; returns it as it was projected."""
        ready = self.arrive(batch)
        out = self.features[first : first + len(ready)]
        if ready.dtype == torch.int32:
            out.copy_(torch.nn.functional.embedding_bag(ready, self.weight, mode="mean"))
        else:
            torch.mm(ready.float().flatten(1), self.weight, out=out)
        if self.products and self.operands[0].is_cuda:
            for _ in range(self.products):
                torch.mm(self.operands[0], self.operands[1], out=self.operands[2])
        elif self.products:
            # one call: a loop would take the interpreter lock after each product, which a GPU at work never does
            torch.bmm(self.operands[0], self.operands[1], out=self.operands[2])
        return ready


class _Loader:
    """The loop over batches, or one part of it alone; ``last`` receives the last batch of each step."""

    def __init__(self, batches: Iterable[Any], consume: _Consumer, asked: SimpleNamespace) -> None:
        self.feed, self.consume, self.asked, self.device = batches, consume, asked, asked.context.device
        self.stream = torch.cuda.Stream(self.device) if asked.copy_stream else None
        self.last: Any = None
        self.on_host: list[Any] = []
        self.on_device: list[Any] = []

    def refill(self, seed: int, fresh: Iterable[Any]) -> None:
        """Draw the projection and hold the batches of ``fresh`` where the part at hand runs without its loader."""
        self.consume.draw(seed)
        if self.asked.stage not in ("copy_only", "compute_only"):
            return
        self.on_host = [batch.pin_memory() if self.asked.pinned else batch for batch in fresh]
        if self.asked.stage == "compute_only":
            self.on_device = [batch.to(self.device) for batch in self.on_host]

    def arriving(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Batches on the device, copied on the stream that consumes them or ahead on another one."""
        if self.stream is not None:
            return feeds.arriving_ahead(batches, self.device, self.stream)
        return (feeds.move(batch, self.device, non_blocking=self.asked.non_blocking) for batch in batches)

    def run(self) -> None:
        """The timed region: whole epochs."""
        stage = self.asked.stage
        for _ in range(self.asked.epochs):
            batch: Any = None
            if stage == "loader_only":
                batch = _latest(self.feed)
            elif stage == "copy_only":
                batch = _latest(self.arriving(self.on_host))
            else:
                for number, arrived in enumerate(
                    self.on_device if stage == "compute_only" else self.arriving(self.feed)
                ):
                    batch = self.consume(number * self.asked.batch_size, arrived)
            if self.last is not None:
                self.last.copy_(batch)


def _latest(batches: Iterable[Any]) -> Any:
    """The last batch, all the others let go as they come."""
    return deque(batches, maxlen=1)[0]


def _check_heavy(asked: SimpleNamespace) -> None:
    if asked.heavy < 1 or asked.heavy_every < 0:
        raise ValueError("heavy must be 1 or more, heavy_every 0 or more")
    if asked.heavy == 1:
        return
    if not asked.heavy_every:
        raise ValueError("heavy repeats the transform of some samples; choose them with heavy_every")
    if asked.transform_at != "sample" or asked.transform == "none" or asked.source not in ("memory", "files"):
        raise ValueError("heavy needs source memory or files and a transform at sample, which it repeats")


def _check(asked: SimpleNamespace) -> None:
    transform, at, alone = asked.transform, asked.transform_at, asked.stage != "all"
    if asked.source in ("text", "tokens"):
        if transform != "none" or len(asked.sample_shape) != 1:
            raise ValueError("text and tokens take transform none and a sample_shape of one number, the tokens")
    elif len(asked.sample_shape) != 3 or asked.sample_shape[0] != 3:
        raise ValueError("images need a sample_shape of [3, height, width]")
    if at == "batch" and transform != "normalise":
        raise ValueError("transform_at batch needs transform normalise")
    if at == "device" and transform not in ("normalise", "augment", "recolour"):
        raise ValueError("transform_at device needs transform normalise, augment or recolour")
    if at != "sample" and asked.source == "synthetic":
        raise ValueError("synthetic samples are transformed already; leave transform_at at sample")
    if alone and (at == "device" or asked.epochs > 1):
        raise ValueError("one stage alone needs one epoch and no transform on the device")
    if alone and asked.watch != "last_batch":
        raise ValueError("one stage alone is compared by its last batch: watch last_batch on every side")
    if not asked.context.on_gpu and (asked.pinned or asked.copy_stream):
        raise ValueError("pinned and copy_stream need a GPU")
    if asked.copy_stream and not (asked.pinned and asked.non_blocking):
        raise ValueError("copy_stream overlaps only what is pinned and non_blocking")
    _check_heavy(asked)
    if asked.main_cpus == "free" and asked.worker_cpus != "inherited":
        raise ValueError("worker_cpus node undoes what main_cpus one did: set main_cpus to one on every side")
    if asked.main_cpus == "one" and not (asked.num_workers and asked.worker_kind == "process"):
        raise ValueError(
            "main_cpus one is what worker processes inherit: set num_workers to 1 or more, of kind process"
        )


def loader(
    context: Context,
    *,
    source: Literal["memory", "files", "synthetic", "text", "tokens"] = "memory",
    num_workers: int = 0,
    worker_kind: Literal["process", "thread"] = "process",
    prefetch_factor: int = 2,
    persistent: bool = True,
    batches: int = 16,
    batch_size: int = 16,
    epochs: int = 1,
    sample_shape: list[int] = [3, 64, 64],  # noqa: B006 - read only
    transform: Literal["none", "normalise", "augment", "recolour", "python"] = "augment",
    transform_at: Literal["sample", "batch", "device"] = "sample",
    heavy_every: int = 0,
    heavy: int = 1,
    log: Literal["none", "per_row"] = "none",
    pinned: bool = False,
    non_blocking: bool = False,
    copy_stream: bool = False,
    products: int = 0,
    stage: Literal["all", "loader_only", "copy_only", "compute_only"] = "all",
    watch: Literal["features", "last_batch"] = "features",
    main_cpus: Literal["free", "one"] = "free",
    worker_cpus: Literal["inherited", "node"] = "inherited",
) -> Workload:
    """``epochs`` epochs of ``batches`` batches: transformed, moved to the device and projected to 64 features each.

    ``source``: images (3, H, W) of bytes in memory or in a file each, finished batches made beforehand
    (``synthetic``), ``text`` tokenised on demand or the same ``tokens`` from a mapped file. The last of every
    ``heavy_every`` samples is transformed ``heavy`` times over. After a batch is projected the step goes on with
    ``products`` matrix products: on a GPU 4096^3 bfloat16, else 256^3 float32 in one call on one thread. ``stage`` runs
    one part of the loop alone, on batches made beforehand where the loader is left out. Random choices depend on the
    sample's index alone: batches are equal, in order, whatever the workers. ``main_cpus`` ``one`` binds the consuming
    thread, which starts the workers, to one CPU, and torch to one thread; workers inherit that CPU or, with ``node``,
    bind themselves to all CPUs of its NUMA node that aiperf may use.

    Counter, then: CPUs that workers may use between them. Items: samples; bytes: float32 (or token) bytes of the
    batches projected.
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    if (products or main_cpus == "one") and context.device == "cpu":
        torch.set_num_threads(1)
    facts = _facts(asked)
    cpus = LoaderCpus(num_workers, worker_cpus=worker_cpus) if main_cpus == "one" else None
    data, how, width = _data(asked)
    feeds.require_shared_memory(how, batch_size * width * 4)
    batched, end = feeds.feed(data, replace(how, init=cpus.init if cpus is not None else None))
    text = isinstance(data, Texts)
    loop = _loop(batched, width, asked, text=text)

    def redraw(seed: int) -> None:
        data.redraw(seed)
        loop.refill(seed, _plain(data, how))

    samples = batches * batch_size * epochs
    loop.refill(context.seed, _plain(data, how))
    if watch == "last_batch":
        loop.last = torch.zeros_like(next(_plain(data, how)), device=context.device)
    if cpus is not None:
        cpus.bind()
        _latest(batched)  # an epoch of its own, in which workers start and report their CPUs
        facts |= cpus.facts()
    return Workload(
        step=loop.run,
        work=Work(
            bytes=float(samples * width * 4),
            flops=0.0 if text else 2.0 * samples * width * _FEATURES,
            items=samples,
            item="samples",
        ),
        outputs=lambda: {"features": loop.consume.features} if loop.last is None else {"last_batch": loop.last},
        inputs=lambda: {**data.inputs(), "weight": loop.consume.weight},
        redraw=redraw,
        counters=cpus.counts if cpus is not None else None,
        facts=facts,
        close=end if cpus is None else cpus.release,
    )


def _loop(batched: Iterable[Any], width: int, asked: SimpleNamespace, *, text: bool) -> _Loader:
    """The loop over ``batched``, whose samples have ``width`` elements as they are projected."""
    device, shape = asked.context.device, asked.sample_shape
    weight = torch.empty(len(pieces()) if text else width, _FEATURES, device=device)
    features = torch.zeros(asked.batches * asked.batch_size, _FEATURES, device=device)
    arrive = {
        "normalise": images.normalise_batch,
        "augment": lambda batch: images.augment_batch(batch[0], batch[1], crop=images.crop_of(shape)),
        "recolour": lambda batch: images.recolour_batch(*batch),
    }.get(asked.transform if asked.transform_at == "device" else "none", lambda batch: batch)
    return _Loader(batched, _Consumer(weight, features, arrive, asked.products), asked)


def _data(asked: SimpleNamespace) -> tuple[Any, feeds.Feeding, int]:
    """The dataset, how it is read, and the elements of a sample as it is projected."""
    shape, count, transform = asked.sample_shape, asked.batches * asked.batch_size, asked.transform
    taken = ("batch_size", "num_workers", "worker_kind", "prefetch_factor", "persistent", "pinned")
    collate = _normalised_together if asked.transform_at == "batch" else default_collate
    how = feeds.Feeding(**{name: getattr(asked, name) for name in taken}, collate=collate)
    source, seed, folder = asked.source, asked.context.seed, asked.context.scratch
    if source in ("text", "tokens"):
        return Texts(source, count=count, length=shape[0], seed=seed, folder=folder), how, shape[0]
    log = folder / "loader.log" if asked.log == "per_row" else None
    recipe = Recipe(transform, asked.transform_at, asked.heavy_every, asked.heavy, log)
    data = Images(source, count=count, shape=shape, recipe=recipe, seed=seed, folder=folder)
    edge = -(-images.crop_of(shape) // 2)
    return data, how, shape[0] * (edge * edge if transform == "augment" else shape[1] * shape[2])


def _facts(asked: SimpleNamespace) -> dict[str, Any]:
    return {
        "workers": asked.num_workers,
        "worker_kind": asked.worker_kind if asked.num_workers else "none",
        "pinned": asked.pinned,
        "files": "read through the page cache, warm" if asked.source == "files" else "none",
        "consumer": "on a GPU" if asked.context.on_gpu else "on the CPUs of the loader",
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
    }


def _plain(data: Any, how: feeds.Feeding) -> Iterator[Any]:
    """The batches without workers."""
    for start in range(0, len(data), how.batch_size):
        yield how.collate([data[i] for i in range(start, min(start + how.batch_size, len(data)))])
