"""Grids, blocks and shared memory of a launch: from the scenario's text to numbers, given the device's size.

What must not live here: arrays, sources, and any call to a device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.workloads.cuda.expression import evaluate

Three = tuple[int, int, int]
_LARGEST_GRID = (2**31 - 1, 65535, 65535)
LARGEST_BLOCK = 1024


@dataclass(frozen=True)
class Launch:
    """One launch as the scenario writes it; the texts are expressions."""

    entry: str
    args: tuple[int | float | str, ...]
    grid: str
    grid_waves: float
    block: str
    smem: str
    cooperative: bool


@dataclass(frozen=True)
class Placed:
    """One launch in numbers: blocks, threads of a block, dynamic shared bytes of a block."""

    entry: str
    args: tuple[int | float | str, ...]
    grid: Three
    block: Three
    smem: int
    cooperative: bool

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)


def place(launch: Launch, names: Mapping[str, int], *, sms: int, cluster: int, suggested: int) -> Placed:
    """Numbers of ``launch`` on a device of ``sms`` multiprocessors. Raises ValueError with what is allowed."""
    known = {**names, "sms": sms}
    block = (suggested, 1, 1) if launch.block == "occupancy" else _three("block", launch.block, known)
    threads = math.prod(block)
    if not 0 < threads <= LARGEST_BLOCK or min(block) < 1:
        raise ValueError(f"block is {launch.block}; a block has 1 to {LARGEST_BLOCK} threads")
    known["threads"] = threads
    grid = _grid(launch, block, known, cluster)
    if min(grid) < 1:
        raise ValueError(
            f'grid "{launch.grid}" gives {_sides(grid)} blocks; write cover, sms or a whole number above 0'
        )
    if any(side > largest for side, largest in zip(grid, _LARGEST_GRID, strict=True)):
        raise ValueError(
            f'grid "{launch.grid}" gives {_sides(grid)} blocks; at most {_sides(_LARGEST_GRID)} are possible'
        )
    smem = evaluate(launch.smem, known)
    if not isinstance(smem, int) or smem < 0:
        raise ValueError(f"smem is {launch.smem}; write a whole number of bytes")
    return Placed(launch.entry, launch.args, grid, block, smem, launch.cooperative)


def _grid(launch: Launch, block: Three, known: Mapping[str, int], cluster: int) -> Three:
    if launch.grid == "sms":
        return _clusters(max(1, round(known["sms"] * launch.grid_waves)), cluster), 1, 1
    if launch.grid != "cover":
        return _three("grid", launch.grid, known)
    if "," not in launch.block:
        return _clusters(-(-known["n"] // (block[0] * known["items"])), cluster), 1, 1
    across, down = known.get("cols", known["n"]), known.get("rows", known["n"])
    return _clusters(-(-across // block[0]), cluster), -(-down // block[1]), -(-known.get("depth", 1) // block[2])


def _clusters(blocks: int, cluster: int) -> int:
    """Rounded up to whole clusters."""
    return -(-blocks // cluster) * cluster


def _three(key: str, text: str, known: Mapping[str, int]) -> Three:
    """Up to three expressions with commas between them; what is missing is 1."""
    sides = [evaluate(part, known) for part in text.split(",")]
    if len(sides) > 3 or not all(isinstance(side, int) for side in sides):
        raise ValueError(f'{key} "{text}" gives {sides}; write up to three whole numbers, such as "16,16"')
    x, y, z = (*sides, 1, 1)[:3]
    return x, y, z


def _sides(sides: Three) -> str:
    """``5`` or ``5 x 4 x 1``."""
    return str(sides[0]) if sides[1:] == (1, 1) else " x ".join(map(str, sides))
