"""What the compute stage of a pipeline does to an item, and the buffers that this takes.

What must not live here: streams, copies between host and device, the order of the items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from aiperf.workloads.contract import Context
from aiperf.workloads.shared.chain import ENTRIES, WORD, Chain, expected, fill_words, geometry
from aiperf.workloads.shared.cupy_kernels import import_cupy
from aiperf.workloads.shared.models import snapshot
from aiperf.workloads.shared.seeded import own_seed
from aiperf.workloads.stream import thin

_WIDTH = 2048
_CLASSES = 256
_DECODE_WIDTH = 4096
_DECODE_LAYERS = 8
_VOCABULARY = 32768


@dataclass(frozen=True)
class Compute:
    """The compute stage for one item."""

    source: tuple[tuple[int, ...], Any]
    """Shape and torch dtype of the item that it reads."""
    target: tuple[tuple[int, ...], Any]
    """Shape and torch dtype of what it writes, whole."""
    run: Callable[[Any, Any], object]
    """(source, target): queue the work on the current stream."""
    fill: Callable[[Any, int], None]
    """(all sources, seed): draw the items in place."""
    truth: Callable[[Any], Any] | None = None
    """All sources as a host array -> all targets, exactly."""
    reset: Callable[[], None] | None = None
    flops: float = 0
    launches: int = 1
    reads: int = 0
    """Bytes that it reads for an item from the GPU's memory, beside the item itself."""
    facts: Mapping[str, Any] = field(default_factory=dict)


def compute(context: Context, *, kernel: str, each: int, rounds: int, scratch: str) -> Compute:
    """The stage called ``kernel`` for items of ``each`` bytes on the link. Raises ValueError for wrong sizes."""
    if kernel in ENTRIES:
        return _chain_stage(context, kernel=kernel, words=each // WORD, rounds=rounds, scratch=scratch)
    if scratch != "none":
        raise ValueError(f"scratch {scratch} is for the kernels {', '.join(ENTRIES)}")
    if kernel in thin.ENTRIES:
        return _thin_stage(context, kernel=kernel, strips=thin.strips_of(each))
    if kernel == "train_step":
        return _train_stage(context, rows=rows_of(kernel, each))
    return _decode_stage(context, rows=rows_of(kernel, each))


def rows_of(kernel: str, each: int) -> int:
    """Rows of an item: samples of a training step, sequences of a decode step."""
    width = _WIDTH if kernel == "train_step" else _VOCABULARY
    if each % (width * WORD):
        raise ValueError(f"an item of {each} bytes cannot be cut into rows of {width * WORD} bytes for {kernel}")
    return each // (width * WORD)


def _chain_stage(context: Context, *, kernel: str, words: int, rounds: int, scratch: str) -> Compute:
    chain = Chain(context.device)
    chain.prove(kernel)
    grid, block = geometry(kernel, n=words, sms=chain.sms)

    def launch(x: int, y: int, some: int) -> None:
        chain.queue(kernel, x, y, n=words, rounds=some, grid=grid, block=block)

    def run(source: Any, target: Any) -> None:
        launch(source.data_ptr(), target.data_ptr(), rounds)

    def run_by_scratch(source: Any, target: Any) -> None:
        allocate, free = scratch_calls(scratch)
        between = allocate(words * WORD)
        launch(source.data_ptr(), between, rounds // 2)
        launch(between, target.data_ptr(), rounds - rounds // 2)
        free(between)

    if scratch == "cuda_malloc_async":
        runtime = import_cupy().cuda.runtime
        pool = runtime.deviceGetDefaultMemPool(torch.device(context.device).index or 0)
        # By default the pool gives everything back at a synchronisation.
        runtime.memPoolSetAttribute(pool, runtime.cudaMemPoolAttrReleaseThreshold, 2**63)
    shape = ((words,), torch.int32)
    return Compute(
        source=shape,
        target=shape,
        run=run if scratch == "none" else run_by_scratch,
        fill=lambda sources, seed: fill_words(sources, seed=seed),
        truth=lambda sources: expected(sources, rounds),
        launches=1 if scratch == "none" else 2,
        facts={"grid": grid, "block": block, "rounds": rounds, "scratch": scratch},
    )


def scratch_calls(kind: str) -> tuple[Callable[[int], int], Callable[[int], None]]:
    """Allocate and free device memory the stated way; the asynchronous way on torch's current stream."""
    runtime = import_cupy().cuda.runtime
    if kind == "cuda_malloc":
        return runtime.malloc, runtime.free
    stream = torch.cuda.current_stream().cuda_stream
    return lambda size: runtime.mallocAsync(size, stream), lambda pointer: runtime.freeAsync(pointer, stream)


def _thin_stage(context: Context, *, kernel: str, strips: int) -> Compute:
    """A product of 8 rows with resident weights, long beside the copies of the rows and of the result."""
    product = thin.ThinProduct(kernel, context.device)
    weights = thin.draw_weights(strips, torch.device(context.device), seed=own_seed(context.seed, "weights"))
    facts = {"grid": strips, "block": product.block, "cluster": product.cluster, "weight_bytes": weights.nbytes}
    return Compute(
        source=((thin.DEPTH, thin.ROWS), torch.float32),
        target=((thin.ROWS, strips * thin.STRIP), torch.float32),
        run=lambda source, target: product.queue(weights, source, target),
        fill=lambda sources, seed: thin.fill_items(sources, seed=seed),
        truth=lambda sources: thin.expected(sources, weights),
        flops=2.0 * thin.ROWS * weights.numel(),
        reads=weights.nbytes,
        facts=facts,
    )


def _train_stage(context: Context, *, rows: int) -> Compute:
    """A whole SGD step of a small perceptron in float32; keeps the loss and the first prediction."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(own_seed(context.seed, "weights"))
        parts = (torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU(), torch.nn.Linear(_WIDTH, _CLASSES))
        module = torch.nn.Sequential(*parts).to(context.device)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def run(source: Any, target: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        predicted = module(source)
        loss = predicted.square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            target[0].copy_(loss)
            target[1:].copy_(predicted[0])

    def fill(sources: Any, seed: int) -> None:
        np.random.Generator(np.random.SFC64(seed)).random(out=sources.numpy(), dtype=np.float32)

    weights = _WIDTH * _WIDTH + _WIDTH * _CLASSES
    return Compute(
        source=((rows, _WIDTH), torch.float32),
        target=((1 + _CLASSES,), torch.float32),
        run=run,
        fill=fill,
        reset=snapshot(module),
        flops=6.0 * rows * weights - 2.0 * rows * _WIDTH * _WIDTH,
        facts={"float32_matmul_precision": torch.get_float32_matmul_precision()},
    )


def _decode_stage(context: Context, *, rows: int) -> Compute:
    """One decode step in bfloat16: hidden states [rows, 4096] through 8 layers to float32 logits [rows, 32768]."""
    device = torch.device(context.device)
    generator = torch.Generator(device=device).manual_seed(own_seed(context.seed, "weights"))

    def weight(out: int) -> Any:
        drawn = torch.empty(_DECODE_WIDTH, out, dtype=torch.bfloat16, device=device)
        return drawn.normal_(std=(2 / _DECODE_WIDTH) ** 0.5, generator=generator)

    layers, head = [weight(_DECODE_WIDTH) for _ in range(_DECODE_LAYERS)], weight(_VOCABULARY)

    def run(source: Any, target: Any) -> None:
        hidden = source
        for layer in layers:
            hidden = torch.relu(hidden @ layer)
        target.copy_(hidden @ head)

    def fill(sources: Any, seed: int) -> None:
        sources.normal_(generator=torch.Generator(device=device).manual_seed(seed))

    weights = _DECODE_WIDTH * (_DECODE_LAYERS * _DECODE_WIDTH + _VOCABULARY)
    return Compute(
        source=((rows, _DECODE_WIDTH), torch.bfloat16),
        target=((rows, _VOCABULARY), torch.float32),
        run=run,
        fill=fill,
        flops=2.0 * rows * weights,
        launches=2 * _DECODE_LAYERS + 2,
    )
