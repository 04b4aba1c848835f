"""The kernels of chain.cu: words that go through a recurrence, as many steps as a kernel shall be long.

What must not live here: streams, copies, and what a scenario asks about them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from aiperf.workloads.shared.cupy_kernels import Kernels
from aiperf.workloads.shared.seeded import draw_words

SOURCE = Path(__file__).with_name("chain.cu")
WORD = 4
TILE = 1024
CLUSTER = 4
MULTIPLIER = 1664525
INCREMENT = 1013904223
ENTRIES = {
    "spin": "chain",
    "double_buffer": "chain_double_buffer",
    "warp_specialized": "chain_warp_specialized",
    "warp_specialized_cluster": "chain_warp_specialized_cluster",
}
"""Shape of kernel, as a scenario calls it -> entry."""
_WARPS = 3
_SPECIALISED = _WARPS * 32
_PLAIN = 256
_PER_SM = 8
_BLOCKS_PER_SM_OF_TILES = 12


def steps(rounds: int) -> tuple[int, int]:
    """``rounds`` steps of the recurrence in one: (factor, term), both modulo 2^32."""
    factor, term = 1, 0
    whole, part = MULTIPLIER, INCREMENT
    while rounds:
        if rounds & 1:
            factor, term = factor * whole % 2**32, (term * whole + part) % 2**32
        whole, part = whole * whole % 2**32, (part * whole + part) % 2**32
        rounds >>= 1
    return factor, term


def expected(words: Any, rounds: int) -> Any:
    """What a kernel makes of an int32 numpy array, exactly."""
    factor, term = steps(rounds)
    return (words.view(np.uint32) * np.uint32(factor) + np.uint32(term)).view(np.int32)


def geometry(shape: str, *, n: int, sms: int) -> tuple[int, int]:
    """Blocks and threads of a launch over ``n`` words that may use the whole GPU."""
    if shape == "spin":
        return max(1, min(-(-n // _PLAIN), sms * _PER_SM)), _PLAIN
    tiles = -(-n // TILE)
    if shape == "double_buffer":
        return max(1, min(tiles, sms * _PER_SM)), _PLAIN
    blocks = max(1, min(tiles, sms * _BLOCKS_PER_SM_OF_TILES))
    if shape == "warp_specialized":
        return blocks, _SPECIALISED
    return -(-blocks // CLUSTER) * CLUSTER, _SPECIALISED


class Chain(Kernels):
    """The compiled kernels on one device."""

    def __init__(self, device: str) -> None:
        super().__init__(SOURCE.read_text(encoding="utf-8"), device, options=(f"-DTILE={TILE}",))

    def queue(self, shape: str, x: int, y: int, *, n: int, rounds: int, grid: int, block: int) -> None:
        """Queue one kernel over ``n`` words at the addresses ``x`` and ``y`` on torch's current stream."""
        arguments = (np.uint64(x), np.uint64(y), np.int64(n), np.int32(rounds), *self.constants())
        self.launch(ENTRIES[shape], (grid,), (block,), arguments)

    def total(self, x: int, y: int, *, n: int, scattered: bool, update: bool) -> None:
        """Queue the sum of ``n`` words at ``x`` into the 64 bits at ``y``, which the caller has zeroed. ``update``
        replaces each word by its complement, in the order that is not scattered."""
        arguments = (np.uint64(x), np.uint64(y), np.int64(n // WORD))
        entry = "total_complemented" if update else "total_scattered" if scattered else "total"
        self.launch(entry, (self.sms * _PER_SM,), (_PLAIN,), arguments)

    @staticmethod
    def constants() -> tuple[Any, Any]:
        """The factor and the term of one step, as arguments of a kernel."""
        return np.uint32(MULTIPLIER), np.uint32(INCREMENT)

    def prove(self, shape: str) -> None:
        """Run the kernel once over a few odd-sized tiles. Raises RuntimeError when a word is not what it must be."""
        n, rounds = 3 * CLUSTER * TILE + 5, 11
        words = np.arange(n, dtype=np.int32)
        x = torch.from_numpy(words).to(f"cuda:{torch.cuda.current_device()}")
        y = torch.zeros_like(x)
        grid, block = geometry(shape, n=n, sms=1)
        self.queue(shape, x.data_ptr(), y.data_ptr(), n=n, rounds=rounds, grid=grid, block=block)
        wrong = int((y.cpu().numpy() != expected(words, rounds)).sum())
        if wrong:
            raise RuntimeError(f"the kernel {ENTRIES[shape]} gave {wrong} of {n} wrong words")


def fill_words(words: Any, *, seed: int) -> None:
    """Uniform int32 noise in place in a torch tensor, on the host or on a device; equal seeds, equal words there."""
    if words.device.type == "cpu":
        draw_words(words.numpy().reshape(-1).view(np.uint32), seed=seed)
        return
    words.random_(-(2**31), 2**31 - 1, generator=torch.Generator(device=words.device).manual_seed(seed))
