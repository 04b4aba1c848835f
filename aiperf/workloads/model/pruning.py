"""Models without some of their hidden units and attention heads: their weights zeroed in place, or taken out.

What must not live here: the models (models.py), timing.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from aiperf.workloads.shared import models


class _Cut(NamedTuple):
    """Which outputs (``dim`` 0) or inputs (1) of the linear layer called ``layer`` stay."""

    layer: str
    dim: int
    kept: Any


def pruned(task: models.Task, *, share: float, removed: bool) -> models.Task:
    """``task`` without ``share`` of the hidden units of each feed-forward part and of the heads of each attention.

    Those go whose incoming weights have the least norm; at least one of each kind stays. Not ``removed``, their weights
    are zeros, for the same predictions and FLOPs. Raises ValueError for a share out of range or a mixture of experts.
    """
    if not 0 < share < 1:
        raise ValueError(f"prune is {share}; it must lie between 0 and 1")
    if any(isinstance(part, models.Mixture) for part in task.module.modules()):
        raise ValueError("prune does not support mixtures of experts")
    words = isinstance(task.module, models.Transformer)
    with torch.no_grad():
        cuts = _cuts_of_blocks(task.module, share) if words else _cuts_of_chain(task.module, share)
        small, zeroed = copy.deepcopy(task.module), copy.deepcopy(task.module)
        for cut in cuts:
            layer: Any = small.get_submodule(cut.layer)
            for name, tensor in _touched(layer, cut):
                setattr(layer, name, nn.Parameter(tensor.index_select(cut.dim, cut.kept)))
            layer.out_features, layer.in_features = layer.weight.shape
            for _, tensor in _touched(zeroed.get_submodule(cut.layer), cut):
                left = tensor.index_select(cut.dim, cut.kept)
                tensor.zero_().index_copy_(cut.dim, cut.kept, left)
    pairs = task.pairs
    for block, whole in zip(small.blocks, task.module.blocks, strict=True) if words else ():
        block.heads = block.qkv.out_features // (3 * block.head_dim)
        pairs = task.pairs * block.heads / whole.heads
    module, weights = small if removed else zeroed, models.active_weights(small)
    forward, train = models.flops(task.name, weights=weights, rows=task.items, pairs=pairs)
    return replace(
        task,
        module=module,
        forward_flops=forward,
        train_flops=train,
        weights=weights,
        pairs=pairs,
        parameters=sum(p.numel() for p in module.parameters()),
    )


def _kept(norms: Any, share: float) -> Any:
    """Numbers of the units with the greatest norms, in order."""
    count = max(1, round(len(norms) * (1 - share)))
    return norms.topk(count).indices.sort().values


def _cuts_of_chain(module: Any, share: float) -> list[_Cut]:
    """Hidden units between each two layers of a perceptron."""
    linear = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    cuts = []
    for (one, layer), (other, _) in itertools.pairwise(linear):
        kept = _kept(layer.weight.norm(dim=1), share)
        cuts += [_Cut(one, 0, kept), _Cut(other, 1, kept)]
    return cuts


def _cuts_of_blocks(module: Any, share: float) -> list[_Cut]:
    """Heads, and hidden units of the feed-forward part, of each block of a transformer."""
    cuts = []
    for number, block in enumerate(module.blocks):
        at, heads, dim = f"blocks.{number}", block.heads, block.head_dim
        kept = _kept(block.qkv.weight.view(3, heads, -1).norm(dim=(0, 2)), share)
        channels = torch.arange(heads * dim, device=kept.device).view(heads, dim)[kept].flatten()
        of_all = torch.cat([channels + part * heads * dim for part in range(3)])
        hidden = _kept(block.up.weight.norm(dim=1), share)
        cuts += [_Cut(f"{at}.qkv", 0, of_all), _Cut(f"{at}.merge", 1, channels)]
        cuts += [_Cut(f"{at}.up", 0, hidden), _Cut(f"{at}.down", 1, hidden)]
    return cuts


def _touched(layer: Any, cut: _Cut) -> list[tuple[str, Any]]:
    """The weight, and where outputs are cut the bias."""
    return [(name, tensor) for name, tensor in layer.named_parameters() if tensor.dim() > cut.dim]
