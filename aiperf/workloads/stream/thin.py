"""The kernels of thin_product.cu: an item of a few rows, multiplied by weights that lie in the GPU's memory.

What must not live here: streams, copies between host and device, and what a scenario asks about them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from aiperf.workloads.cuda.describe import SOURCES
from aiperf.workloads.shared.cupy_kernels import Kernels

SOURCE = "thin_product.cu"
DEPTH = 1024
ROWS = 8
STRIP = 128
"""Columns that a block computes."""
CLUSTER = 4
LARGEST = 8
"""Numbers are whole ones within it, so that sums of DEPTH products are exact in float32."""
ENTRIES = {
    "thin_double_buffer": ("double_buffered", 128, 1),
    "thin_warp_specialized": ("specialised", 160, 1),
    "thin_warp_specialized_cluster": ("specialised", 160, CLUSTER),
}
"""Shape of kernel, as a scenario calls it -> entry, threads of a block, blocks of a cluster."""
_STRIPS_AT_ONCE = 64


class ThinProduct(Kernels):
    """The compiled kernel of one shape on one device."""

    def __init__(self, shape: str, device: Any) -> None:
        self._entry, self.block, self.cluster = ENTRIES[shape]
        options = (f"-DDEPTH={DEPTH}", f"-DCLUSTER={self.cluster}")
        super().__init__(source_text(), device, options=options)

    def queue(self, weights: Any, item: Any, out: Any) -> None:
        """Queue one product on torch's current stream: weights as draw_weights makes them, item [DEPTH, ROWS], out
        [ROWS, columns]."""
        addresses = tuple(np.uint64(array.data_ptr()) for array in (weights, item, out))
        self.launch(self._entry, (len(weights),), (self.block,), addresses)


def source_text() -> str:
    """The source with its header in place: CuPy keeps what it compiled by the text alone."""
    header = (SOURCES / "async.cuh").read_text(encoding="utf-8").replace("#pragma once", "")
    return (SOURCES / SOURCE).read_text(encoding="utf-8").replace('#include "async.cuh"', header)


def strips_of(each: int) -> int:
    """Strips of a result of ``each`` bytes. Raises ValueError unless clusters take all of them."""
    whole = CLUSTER * STRIP * ROWS * 4
    if each % whole:
        raise ValueError(f"a result of {each} bytes cannot be cut into clusters of {whole} bytes for a thin product")
    return each // (STRIP * ROWS * 4)


def draw_weights(strips: int, device: Any, *, seed: int) -> Any:
    """Whole numbers [strips, DEPTH, STRIP] in float32: strip by strip, each row by row."""
    weights = torch.empty(strips, DEPTH, STRIP, device=device)
    return weights.random_(-LARGEST, LARGEST + 1, generator=torch.Generator(device=device).manual_seed(seed))


def fill_items(items: Any, *, seed: int) -> None:
    """Whole numbers in place in a float32 torch tensor on the host; equal seeds, equal numbers."""
    drawn = np.random.Generator(np.random.SFC64(seed)).integers(-LARGEST, LARGEST + 1, items.shape, dtype=np.int8)
    items.copy_(torch.from_numpy(drawn))


def expected(items: Any, weights: Any) -> Any:
    """All results, flat, of a flat float32 array of items: summed in float64, in which they are exact, too."""
    given = torch.from_numpy(items).to(weights.device).view(-1, DEPTH, ROWS).double()
    out = torch.empty(len(given), ROWS, len(weights), STRIP, device=weights.device)
    for first in range(0, len(weights), _STRIPS_AT_ONCE):
        some = slice(first, first + _STRIPS_AT_ONCE)
        out[:, :, some] = torch.einsum("ikr,skc->irsc", given, weights[some].double()).float()
    return out.cpu().numpy().reshape(-1)
