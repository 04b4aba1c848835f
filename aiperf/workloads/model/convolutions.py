"""A small convolutional network with random weights, and its images, as model.step trains it.

What must not live here: other models (shared/models.py), optimizers, the choice of algorithms, timing.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from aiperf.workloads.shared.models import Task
from aiperf.workloads.shared.seeded import own_seed

NAMES = ("conv:small",)
_CHANNELS = (3, 64, 128, 256, 512)
_KERNELS = (7, 5, 3, 3)
"""Sizes of the kernels; every layer but the first halves the image."""


class Convolutions(nn.Module):
    """Images [batch, 3, side, side] to the mean of the last layer's channels, [batch, 512]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, ((fan_in, fan_out), kernel) in enumerate(zip(itertools.pairwise(_CHANNELS), _KERNELS, strict=True)):
            layers += [
                nn.Conv2d(fan_in, fan_out, kernel, stride=1 if number == 0 else 2, padding=kernel // 2),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Any) -> Any:
        """One vector an image."""
        return self.layers(images).mean((2, 3))


def _loss(found: Any, targets: Any) -> Any:
    """In float32: a loss in fewer bits would say little of a step."""
    return functional.mse_loss(found.float(), targets.float())


def build(name: str, *, seed: int, device: str, samples: int, side: int, dtype: Any) -> Task:
    """The network called ``name`` with ``samples`` images of ``side`` pixels squared, stored in ``dtype``."""
    if name not in NAMES:
        raise ValueError(f'model "{name}" is not known; of convolutions there is {", ".join(NAMES)}')
    there = torch.device(device)
    with torch.random.fork_rng(devices=[there] if there.type == "cuda" else []), there:
        torch.manual_seed(own_seed(seed, "weights"))
        module = Convolutions()
    shapes = {"batch": (samples, _CHANNELS[0], side, side), "targets": (samples, _CHANNELS[-1])}

    def drawn(seed: int, which: str) -> Any:
        return torch.randn(shapes[which], generator=torch.Generator().manual_seed(own_seed(seed, which)))

    held = {which: drawn(seed, which).to(device, dtype) for which in shapes}

    def redraw(seed: int) -> None:
        for which, tensor in held.items():
            tensor.copy_(drawn(seed, which))

    each, weights = flops(side)
    forward = float(sum(each) * samples)
    return Task(
        module=module.to(device),
        batch=held["batch"],
        targets=held["targets"],
        loss=_loss,
        redraw=redraw,
        parameters=sum(p.numel() for p in module.parameters()),
        forward_flops=forward,
        train_flops=3 * forward - float(each[0] * samples),
        items=samples,
        item="samples",
        name=name,
        weights=weights,
        pairs=0.0,
    )


def flops(side: int) -> tuple[list[int], float]:
    """Of a forward pass of one image by layer, and how many weights there are."""
    found, weights = [], 0
    for number, ((fan_in, fan_out), kernel) in enumerate(zip(itertools.pairwise(_CHANNELS), _KERNELS, strict=True)):
        side = side if number == 0 else -(-side // 2)
        filters = kernel * kernel * fan_in * fan_out
        found.append(2 * filters * side * side)
        weights += filters
    return found, float(weights)
