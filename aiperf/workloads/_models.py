"""Random-weight models by preset name, their batches and their losses.

What must not live here: optimizers, process groups, timing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint as checkpointing

from aiperf.workloads._errors import squares
from aiperf.workloads._seeded import own_seed
from aiperf.workloads.contract import Outcome

TRANSFORMERS: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "width": 128, "heads": 4, "vocab": 1024},
    "small": {"layers": 4, "width": 256, "heads": 8, "vocab": 4096},
    "base": {"layers": 12, "width": 768, "heads": 12, "vocab": 32768},
}
PERCEPTRONS: dict[str, list[int]] = {
    "mlp:small": [1024, 256, 1],
    "mlp:medium": [1024, 1024, 1024, 1],
    "mlp:large": [4096] * 9,
}


class Block(nn.Module):
    """Pre-norm causal attention and a feed-forward part four times as wide."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Tokens in, tokens out: [batch, seq, width]."""
        batch, seq, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, seq, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A decoder-only language model without positions: token ids [batch, seq] to logits [batch, seq, vocab]."""

    checkpoint: Literal["none", "blocks", "all"] = "none"
    """What is recomputed in the backward pass instead of kept: nothing, each block, or each layer of any kind."""

    def __init__(self, *, layers: int, width: int, heads: int, vocab: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens: Any) -> Any:
        """Logits of every position."""
        x = self._layer(self.embed, tokens)
        for block in self.blocks:
            x = self._layer(block, x)
        return self._layer(self.head, self._layer(self.norm, x))

    def _layer(self, layer: Any, x: Any) -> Any:
        if self.checkpoint == "none" or (self.checkpoint == "blocks" and not isinstance(layer, Block)):
            return layer(x)
        return checkpointing.checkpoint(layer, x, use_reentrant=False)


def parameters_of(name: str) -> int:
    """How many the transformer called ``name`` has, without making it."""
    layers, width, vocab = (TRANSFORMERS[name][key] for key in ("layers", "width", "vocab"))
    linear, norms = 12 * width * width + 9 * width, 4 * width
    return 2 * vocab * width + layers * (linear + norms) + 2 * width


def _perceptron(widths: list[int]) -> nn.Module:
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _token_loss(logits: Any, targets: Any) -> Any:
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


@dataclass(frozen=True)
class Task:
    """A model with one batch: what a training or inference step works on."""

    module: nn.Module
    batch: Any
    targets: Any
    loss: Callable[[Any, Any], Any]
    """(prediction, targets) -> mean loss."""
    redraw: Callable[[int], None]
    """New batch and targets, in place."""
    parameters: int
    forward_flops: float
    """One forward pass of the whole global batch: 2 per weight and token, and attention's two products."""
    train_flops: float
    """Forward and backward: three times as much, less the gradient of the model's input, which nobody asks for."""
    items: int
    """Of the whole global batch."""
    item: str


def _flops(name: str, *, weights: int, rows: int, seq: int) -> tuple[float, float]:
    """FLOPs of a forward pass and of a training step over ``rows`` tokens or samples.

    2 per matrix weight and row; attention adds 4 x width per allowed query-key pair and layer.
    """
    flops = 2.0 * weights * rows
    if name in PERCEPTRONS:
        first, second = PERCEPTRONS[name][:2]
        return flops, 3 * flops - 2.0 * first * second * rows
    shape = TRANSFORMERS[name]
    flops += 4.0 * shape["layers"] * shape["width"] * rows * (seq + 1) / 2
    return flops, 3 * flops


def draw(name: str, which: str, *, seed: int, batch: int, seq: int) -> Any:
    """The global ``batch`` or its ``targets`` for the model called ``name``, in host memory."""
    source = torch.Generator().manual_seed(own_seed(seed, which))
    if name in TRANSFORMERS:
        return torch.randint(TRANSFORMERS[name]["vocab"], (batch, seq), generator=source)
    width = PERCEPTRONS[name][0 if which == "batch" else -1]
    return torch.randn(batch, width, generator=source)


def build(
    name: str,
    *,
    seed: int,
    device: str,
    batch: int,
    seq: int,
    part: int = 0,
    parts: int = 1,
    rows: slice | None = None,
) -> Task:
    """The model called ``name`` with the ``part``-th of ``parts`` equal slices of a global batch of ``batch`` samples.

    ``rows`` cuts another slice than an equal one. Weights and the global batch depend on the seed alone, weights
    on a GPU on its model too, so that every split of one batch is the same problem on GPUs of one kind. (A GPU draws
    weights itself: those of base took a CPU 1.3 s.)
    Raises ValueError for an unknown name or a batch that cannot be cut.
    """
    if name not in TRANSFORMERS and name not in PERCEPTRONS:
        raise ValueError(f'model "{name}" is not known; there are {", ".join([*TRANSFORMERS, *PERCEPTRONS])}')
    if batch % parts:
        raise ValueError(f"a batch of {batch} cannot be cut into {parts} equal parts")
    words = name in TRANSFORMERS
    there = torch.device(device)
    with torch.random.fork_rng(devices=[there] if there.type == "cuda" else []), there:
        torch.manual_seed(own_seed(seed, "weights"))
        module: Any = Transformer(**TRANSFORMERS[name]) if words else _perceptron(PERCEPTRONS[name])
    module = module.to(device)
    mine = rows or slice(part * (batch // parts), (part + 1) * (batch // parts))

    def drawn(seed: int, which: str) -> Any:
        return draw(name, which, seed=seed, batch=batch, seq=seq)[mine]

    held = {which: drawn(seed, which).to(device).clone() for which in ("batch", "targets")}

    def redraw(seed: int) -> None:
        for which, tensor in held.items():
            tensor.copy_(drawn(seed, which))

    count = batch * seq if words else batch
    weights = sum(p.numel() for n, p in module.named_parameters() if p.dim() > 1 and not n.startswith("embed"))
    forward, train = _flops(name, weights=weights, rows=count, seq=seq)
    return Task(
        module=module,
        batch=held["batch"],
        targets=held["targets"],
        loss=_token_loss if words else functional.mse_loss,
        redraw=redraw,
        parameters=sum(p.numel() for p in module.parameters()),
        forward_flops=forward,
        train_flops=train,
        items=count,
        item="tokens" if words else "samples",
    )


def snapshot(module: nn.Module, optimizer: Any = None) -> Callable[[], None]:
    """A function that puts parameters and optimizer state back, in place, to what they are now (state: to zero)."""
    saved = [p.detach().clone() for p in module.parameters()]

    def restore() -> None:
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), saved, strict=True):
                parameter.copy_(value)
        for state in optimizer.state.values() if optimizer is not None else ():
            for value in state.values():
                value.zero_()

    return restore


def gradients(module: nn.Module) -> dict[str, Any]:
    """The gradients by parameter name; empty before the first backward pass."""
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def saved_bytes(task: Task, samples: int) -> float:
    """Bytes that a forward pass over the first ``samples`` keeps for its backward pass; each storage counts once.

    Parameters are left out.
    """
    weights = {p.untyped_storage().data_ptr() for p in task.module.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            # Held until the end, so that no address is used twice.
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = task.loss(task.module(task.batch[:samples]), task.targets[:samples])
    total = float(sum(storage.nbytes() for storage in kept.values()))
    del loss
    return total


_LOSS_SHARE = 0.01


def gradients_close(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """How far gradients in a lower precision lie from the others, all read as one vector, relative to its length.

    0.045 is where the cosine of two vectors of equal length falls below 0.999. No single gradient may be further off
    than half its own length, however little it adds to the vector. The loss, where there is one among the outputs, may
    differ by a hundredth.
    """
    names = sorted((before.keys() & after.keys()) - {"loss"})
    if before.keys() != after.keys() or not names:
        return Outcome(False, f"one side gives {sorted(before)}, the other {sorted(after)}")
    if misshapen := _misshapen(before, after):
        return Outcome(False, misshapen)
    distance, lost = _distance(*({name: side[name] for name in names} for side in (before, after)))
    if lost:
        return Outcome(False, f"the gradient of {lost} lies off by more than half its own length", distance)
    if "loss" in before and not np.allclose(before["loss"], after["loss"], rtol=_LOSS_SHARE):
        told = f"the loss is {np.mean(after['loss']):.6g} against before's {np.mean(before['loss']):.6g}"
        return Outcome(False, told, distance)
    return Outcome(math.isfinite(distance), f"the gradients differ by {distance:.3g} of their length", distance)


def _misshapen(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Which arrays differ in shape; empty when none do."""
    pairs = ((name, np.shape(array), np.shape(other[name])) for name, array in one.items())
    differing = ((name, first, second) for name, first, second in pairs if first != second)
    return next((f"{name} has shape {second} against before's {first}" for name, first, second in differing), "")


_ALONE = 0.5
_SPECK = 1e-6
"""Share of the whole length below which an array is rounding noise and may be anything."""


def _distance(
    one: Mapping[str, Any], other: Mapping[str, Any], origin: Mapping[str, Any] | None = None
) -> tuple[float, str]:
    """Length of the difference of two sets of arrays over the length of the first, or of its way from ``origin``.

    In float64. Also the name of an array that lies further off than half its own length; empty when there is none.
    """
    sums = {name: squares(array, other[name], origin[name] if origin else None) for name, array in one.items()}
    apart, own = ({name: math.sqrt(found[i]) for name, found in sums.items()} for i in (0, 1))
    length = math.hypot(*own.values())
    lost = [name for name in sums if apart[name] > max(_ALONE * own[name], _SPECK * length)]
    return (math.hypot(*apart.values()) / length if length else math.nan), min(lost, default="")


def update_close(module: nn.Module) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]:
    """A check of weights after training: how far the two updates lie apart, relative to their own length.

    Both are read from the weights as they are now, before any training; 0.05 means that the second way of training
    went 5 % of the distance elsewhere. No single weight array may go half of its own distance elsewhere.
    """
    start = {name: p.detach().float().cpu().numpy().copy() for name, p in module.named_parameters()}

    def check(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
        if before.keys() != start.keys() or after.keys() != start.keys():
            return Outcome(False, f"one side gives {sorted(before)}, the other {sorted(after)}")
        if misshapen := _misshapen(start, before) or _misshapen(start, after):
            return Outcome(False, misshapen)
        distance, lost = _distance(before, after, start)
        if lost:
            return Outcome(False, f"the update of {lost} lies off by more than half its own length", distance)
        return Outcome(math.isfinite(distance), f"the updates differ by {distance:.3g} of their length", distance)

    return check
