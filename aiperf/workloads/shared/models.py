"""Random-weight models by preset name, their batches and their losses.

What must not live here: optimizers, process groups, timing.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint as checkpointing

from aiperf.workloads.shared.seeded import own_seed

TRANSFORMERS: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "width": 128, "heads": 4, "vocab": 1024},
    "small": {"layers": 4, "width": 256, "heads": 8, "vocab": 4096},
    "medium": {"layers": 8, "width": 512, "heads": 8, "vocab": 16384},
    "base": {"layers": 12, "width": 768, "heads": 12, "vocab": 32768},
    "moe:tiny": {"layers": 4, "width": 128, "heads": 4, "vocab": 1024, "experts": 16, "chosen": 2},
}
PERCEPTRONS: dict[str, list[int]] = {
    "mlp:wide": [4096, 4096, 1],
    "mlp:small": [1024, 256, 1],
    "mlp:medium": [1024, 1024, 1024, 1],
    "mlp:large": [4096] * 9,
}


class Mixture(nn.Module):
    """A feed-forward part of ``experts`` equal ones, each token's result that of the ``chosen`` which suit it best.
    Every expert sees every token, so that no shape depends on the data."""

    def __init__(self, width: int, *, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)) for _ in range(experts)
        )

    def forward(self, x: Any) -> Any:
        """Tokens in, tokens out: [batch, seq, width]."""
        best = self.router(x).topk(self.chosen, dim=-1)
        shares = x.new_zeros(*x.shape[:-1], len(self.experts))
        shares = shares.scatter(-1, best.indices, best.values.softmax(-1).to(x.dtype))
        parts = (shares[..., e : e + 1] * expert(x) for e, expert in enumerate(self.experts))
        return functools.reduce(operator.add, parts)


def _kept(layer: Callable[[Any], Any], x: Any) -> Any:
    return layer(x)


def _recomputed(layer: Callable[[Any], Any], x: Any) -> Any:
    return checkpointing.checkpoint(layer, x, use_reentrant=False)


class TransformerBlock(nn.Module):
    """Pre-norm causal attention and a feed-forward part, four times as wide or a mixture of experts."""

    visible: Any = None
    """Boolean [batch, 1, seq, seq]: which keys a query sees, where causal order alone would not do."""
    checkpoint_layers: bool = False
    """Whether norms, attention and feed-forward part are recomputed by themselves, each from its own stored input."""

    def __init__(self, width: int, heads: int, *, experts: int = 0, chosen: int = 0) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        if experts:
            self.mixture = Mixture(width, experts=experts, chosen=chosen)
        else:
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Tokens in, tokens out: [batch, seq, width]."""
        layer = _recomputed if self.checkpoint_layers else _kept
        x = x + layer(self._attention, layer(self.norm1, x))
        return x + layer(self._feed_forward, layer(self.norm2, x))

    def _attention(self, x: Any) -> Any:
        batch, seq, _ = x.shape
        parts = self.qkv(x).view(batch, seq, 3, self.heads, self.head_dim)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.visible, is_causal=self.visible is None)
        return self.merge(seen.transpose(1, 2).reshape(batch, seq, self.heads * self.head_dim))

    def _feed_forward(self, x: Any) -> Any:
        return self.mixture(x) if hasattr(self, "mixture") else self.down(functional.gelu(self.up(x)))


class Transformer(nn.Module):
    """A decoder-only language model without positions: token ids [batch, seq] to logits [batch, seq, vocab]."""

    checkpoint: Literal["none", "blocks", "all"] = "none"
    """What is recomputed in the backward pass instead of kept: nothing, each block as a whole, or each single layer,
    in blocks and outside."""

    def __init__(self, *, layers: int, width: int, heads: int, vocab: int, experts: int = 0, chosen: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, heads, experts=experts, chosen=chosen) for _ in range(layers))
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def recompute(self, what: Literal["none", "blocks", "all"]) -> None:
        """Set ``checkpoint``, of the blocks too."""
        self.checkpoint = what
        for block in self.blocks:
            block.checkpoint_layers = what == "all"

    def forward(self, tokens: Any) -> Any:
        """Logits of every position."""
        layer = _recomputed if self.checkpoint == "all" else _kept
        x = layer(self.embed, tokens)
        for block in self.blocks:
            x = (_recomputed if self.checkpoint == "blocks" else _kept)(block, x)
        return layer(self.head, layer(self.norm, x))


def parameters_of(name: str) -> int:
    """How many the transformer called ``name`` has, without making it."""
    layers, width, vocab = (TRANSFORMERS[name][key] for key in ("layers", "width", "vocab"))
    linear, norms = 12 * width * width + 9 * width, 4 * width
    if experts := TRANSFORMERS[name].get("experts", 0):
        linear = 4 * width * width + 4 * width + experts * (2 * width * width + 3 * width)
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
    name: str
    """Of the preset."""
    weights: float
    """Of matrices, that a token or sample is multiplied with: of a mixture of experts those that it goes to."""
    pairs: float
    """Query-key pairs that causal order allows in one head, over the whole batch."""
    pick: Callable[[Any], Any] = lambda prediction: prediction
    """The predictions that were asked for out of those that the module made."""
    lengths: tuple[int, ...] = ()
    """Of samples that stand side by side in the one row of the batch and take a pass each; () for whole rows."""

    def parts(self, count: int) -> list[tuple[Any, Any, float]]:
        """(batch, targets, share of the mean loss) of each pass: one a sample where there are lengths, else ``count``
        equal ones."""
        if not self.lengths:
            cut = zip(self.batch.chunk(count), self.targets.chunk(count), strict=True)
            return [(x, y, 1 / count) for x, y in cut]
        cut = zip(*(t.split(self.lengths, dim=1) for t in (self.batch, self.targets)), strict=True)
        return [(x, y, x.numel() / self.batch.numel()) for x, y in cut]


def active_weights(module: nn.Module) -> float:
    """Matrix weights that one token or sample is multiplied with."""
    every = sum(_matrices(part, recurse=False) for part in module.modules() if not isinstance(part, nn.Embedding))
    mixtures = [part for part in module.modules() if isinstance(part, Mixture)]
    return every - sum((1 - part.chosen / len(part.experts)) * _matrices(part.experts) for part in mixtures)


def _matrices(module: nn.Module, *, recurse: bool = True) -> int:
    return sum(p.numel() for p in module.parameters(recurse) if p.dim() > 1)


def flops(name: str, *, weights: float, rows: int, pairs: float) -> tuple[float, float]:
    """FLOPs of a forward pass and of a training step over ``rows`` tokens or samples: 2 per matrix weight and row;
    attention adds 4 x width per allowed query-key pair and layer."""
    forward = 2.0 * weights * rows
    if name in PERCEPTRONS:
        first, second = PERCEPTRONS[name][:2]
        return forward, 3 * forward - 2.0 * first * second * rows
    shape = TRANSFORMERS[name]
    forward += 4.0 * shape["layers"] * shape["width"] * pairs
    return forward, 3 * forward


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

    ``rows`` cuts another slice. Weights and the global batch depend on the seed alone, weights on a GPU on its model
    too. Raises ValueError for an unknown name or a batch that cannot be cut.
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
    weights, pairs = active_weights(module), count * (seq + 1) / 2 if words else 0.0
    forward, train = flops(name, weights=weights, rows=count, pairs=pairs)
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
        name=name,
        weights=weights,
        pairs=pairs,
    )


def snapshot(module: nn.Module, optimizer: Any = None, *, on_host: bool = False) -> Callable[[], None]:
    """A function that puts parameters and optimizer state back, in place, to what they are now (state: to zero). The
    copies are on the parameters' device, or in host memory with ``on_host``; of a sharded one, this rank's rows."""

    def own(parameter: Any) -> Any:
        return parameter.to_local() if hasattr(parameter, "to_local") else parameter

    kept = {"device": "cpu"} if on_host else {}
    saved = [own(p.detach()).to(copy=True, **kept) for p in module.parameters()]

    def restore() -> None:
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), saved, strict=True):
                own(parameter).copy_(value)
        for state in optimizer.state.values() if optimizer is not None else ():
            for value in state.values():
                value.zero_()

    return restore


def gradients(module: nn.Module) -> dict[str, Any]:
    """The gradients by parameter name; empty before the first backward pass."""
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def saved_bytes(task: Task, samples: int) -> float:
    """Bytes that a forward pass over the first ``samples``, or over the longest that takes one by itself, keeps for its
    backward pass, parameters left out; each storage counts once."""
    weights = {p.untyped_storage().data_ptr() for p in task.module.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            # Held until the end, so that no address is used twice.
            kept[storage.data_ptr()] = storage
        return tensor

    x, y = task.batch[:samples], task.targets[:samples]
    if task.lengths:
        x, y, _ = max(task.parts(1), key=lambda part: part[0].numel())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = task.loss(task.module(x), y)
    total = float(sum(storage.nbytes() for storage in kept.values()))
    del loss
    return total
