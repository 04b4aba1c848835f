"""What a training program does beside the update: gradients' norms logged, weights written, read back and hashed.

What must not live here: models, how gradients meet (gradient_exchange.py), timing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist


class Duties:
    """Log and checkpoint of every update, by rank 0 alone or shared out; the ranks then hear of all norms."""

    def __init__(self, named: dict[str, Any], folder: Path, *, rank: int, shares: int) -> None:
        """``named``: parameters in float32; ``shares``: among how many ranks they are cut, the first ones."""
        owners = _owners(named, shares)
        self._mine = {name: place for place, name in enumerate(named) if owners[name] == rank}
        self._named, self._path = named, folder / "weights.bin"
        self.norms = torch.zeros(2, len(named), dtype=torch.float64)
        """Of each gradient, and of each weight as it was read back, in the order of the names."""
        self.bytes = 0

    def fulfil(self) -> None:
        """This rank's part of log and checkpoint, then everyone's norms by an all-reduce."""
        norms = torch.zeros_like(self.norms)
        self.bytes = 0
        if self._mine:
            self._save()
            self._verify(norms)
        dist.all_reduce(norms)
        self.norms.copy_(norms)

    def _save(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            for name in self._mine:
                self.bytes += file.write(self._named[name].detach().numpy().reshape(-1).view(np.uint8))

    def _verify(self, norms: Any) -> None:
        """Read the weights back; norms and the hash of all bytes go to the log."""
        digest, lines = hashlib.sha256(), []
        with self._path.open("rb", buffering=0) as file:
            for name, place in self._mine.items():
                parameter = self._named[name]
                content = np.empty(parameter.numel(), np.float32)
                file.readinto(content.view(np.uint8).data)
                digest.update(content.view(np.uint8).data)
                norms[0, place], norms[1, place] = parameter.grad.norm(), float(np.linalg.norm(content))
                lines.append(f"{name} gradient {norms[0, place]:.6g} weight {norms[1, place]:.6g}\n")
        lines.append(f"sha256 {digest.hexdigest()}\n")
        self._path.with_suffix(".log").write_text("".join(lines), encoding="utf-8")


def _owners(named: dict[str, Any], shares: int) -> dict[str, int]:
    """Which rank each array belongs to: the largest first, each to the rank that has least."""
    filled, owner = [0] * shares, {}
    for name in sorted(named, key=lambda name: -named[name].numel()):
        owner[name] = filled.index(min(filled))
        filled[owner[name]] += named[name].numel()
    return owner
