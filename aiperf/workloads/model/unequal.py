"""Samples of unequal length for a transformer: each by itself, padded to the longest, or packed into such rows.

What must not live here: models (models.py), timing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import torch

from aiperf.workloads.shared import models

_SPREAD = 1.0
"""Standard deviation of the logarithm of a length."""
_IGNORED = -100
"""A target that the loss leaves out."""


def lengths_of(samples: int, longest: int) -> list[int]:
    """How long the samples are, longest first and with ``longest`` tokens: the middles of equal parts of a log-normal
    distribution, the same for every seed."""
    at = [NormalDist().inv_cdf((samples - i - 0.5) / samples) for i in range(samples)]
    return [max(1, math.floor(longest * math.exp(_SPREAD * (z - at[0])))) for z in at]


def rows_of(lengths: list[int], columns: int) -> list[list[int]]:
    """The samples of each row of ``columns`` tokens: longest first, each into the first row that has room for it."""
    rows: list[list[int]] = []
    for sample in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fits = (row for row in rows if sum(lengths[i] for i in row) + lengths[sample] <= columns)
        if (row := next(fits, None)) is None:
            rows.append([sample])
        else:
            row.append(sample)
    return rows


@dataclass(frozen=True)
class BatchLayout:
    """Where the tokens of the samples stand in a batch of rows."""

    samples: Any
    """[rows, columns]: the number of the sample whose token stands there, -1 where there is none."""
    places: Any
    """[tokens]: where each token stands in the flattened batch, sample after sample."""

    @classmethod
    def of(cls, lengths: list[int], rows: list[list[int]], columns: int) -> BatchLayout:
        """``rows``: which samples stand in each, side by side from the left."""
        samples = torch.full((len(rows), columns), -1)
        for cells, row in zip(samples, rows, strict=True):
            numbers = torch.tensor(row).repeat_interleave(torch.tensor([lengths[i] for i in row]))
            cells[: len(numbers)] = numbers
        flat = samples.flatten()
        held = (flat >= 0).nonzero().squeeze(1)
        return cls(samples, held[flat[held].argsort(stable=True)])

    def visible(self) -> Any:
        """Boolean [rows, 1, columns, columns]: a token sees its own sample up to itself, padding sees padding."""
        columns = self.samples.shape[1]
        causal = torch.ones(columns, columns, dtype=torch.bool).tril()
        return (self.samples[:, :, None] == self.samples[:, None, :]).logical_and_(causal).unsqueeze(1)


def unequal(name: str, *, how: str, seed: int, device: str, samples: int, longest: int) -> models.Task:
    """The transformer called ``name`` with ``samples`` of unequal length; items, FLOPs and loss are of true tokens.

    ``how``: ``ragged`` samples stand in one row and take a pass each; ``padded``, each is a row; ``packed``, a mask
    keeps the samples of a row apart. The model knows no positions, so a
    prediction depends on its sample alone. Raises ValueError for a model without sequences.
    """
    if name not in models.TRANSFORMERS:
        raise ValueError(f'samples of unequal length need a transformer, not "{name}"')
    task = models.build(name, seed=seed, device=device, batch=1, seq=1)
    lengths = lengths_of(samples, longest)
    each = list(range(samples))
    rows = {"ragged": [each], "padded": [[i] for i in each], "packed": rows_of(lengths, longest)}[how]
    layout = BatchLayout.of(lengths, rows, sum(lengths) if how == "ragged" else longest)
    places = layout.places.to(device)
    batch = torch.zeros(layout.samples.shape, dtype=torch.int64, device=device)
    targets = torch.full_like(batch, _IGNORED)
    if how == "packed":
        visible = layout.visible().to(device)
        for part in task.module.modules():
            if isinstance(part, models.TransformerBlock):
                part.visible = visible

    def redraw(seed: int) -> None:
        for which, tensor in (("batch", batch), ("targets", targets)):
            drawn = models.draw(name, which, seed=seed, batch=1, seq=sum(lengths))
            tensor.view(-1)[places] = drawn[0].to(device)

    redraw(seed)
    pairs = float(sum(n * (n + 1) // 2 for n in lengths))
    forward, train = models.flops(name, weights=task.weights, rows=sum(lengths), pairs=pairs)
    return replace(
        task,
        batch=batch,
        targets=targets,
        redraw=redraw,
        forward_flops=forward,
        train_flops=train,
        items=sum(lengths),
        pairs=pairs,
        pick=lambda prediction: prediction.flatten(0, 1)[places],
        lengths=tuple(lengths) if how == "ragged" else (),
    )
