"""Arrays that a step works with, that the workload does not name, and that stay the same while its inputs change.

What must not live here: how arrays are found (reach.py), and what follows from them (analysis/unverified.py).
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from aiperf.worker import arrays
from aiperf.worker.reach import reachable_arrays

_MOST_ON_HOST, _MOST_ON_GPU = 256 << 20, 16 << 30
"""Bytes that one look reads, from the smallest array on."""
_MOST_ARRAYS = 512
_ENDS = 4096
"""Bytes at each end of an array whose order counts: a sum of all is the same for what only changes places."""
_KINDS = "iufc"
"""Of numpy's types. Booleans are masks, whose shape honest sides rely on: audits would leave them alone, too."""

Extent = tuple[str, int, int]
"""Where memory lies (``cpu``, or the name of a GPU), its first byte, and the one after its last."""
Print = tuple[int, int, int]


class UnnamedArrays:
    """What a step was found to work with in each of several looks."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self._looks: list[dict[tuple[Any, ...], Print]] = []

    def look(self, named: Iterable[Any]) -> None:
        """Look at what shares no memory with the arrays ``named``. Never raises."""
        seen: dict[tuple[Any, ...], Print] = {}
        with suppress(Exception):
            taken = _Memory(extent for array in named if (extent := _extent(array)) is not None)
            found = [(a, e) for a in reachable_arrays(self._step) if (e := _extent(a)) is not None and not taken.has(e)]
            left = {True: _MOST_ON_HOST, False: _MOST_ON_GPU}
            for array, extent in sorted(found, key=lambda each: int(each[0].nbytes))[:_MOST_ARRAYS]:
                left[extent[0] == "cpu"] -= int(array.nbytes)
                if left[extent[0] == "cpu"] >= 0 and (fingerprint := fingerprint_of(array)) is not None:
                    seen[extent, arrays.dtype_of(array), tuple(map(int, array.shape))] = fingerprint
        self._looks.append(seen)

    @property
    def looks(self) -> int:
        """How often it has looked."""
        return len(self._looks)

    def unchanged(self) -> list[str]:
        """Type and shape of each array that every look found with the same contents, from the largest on; of views of
        the same memory the largest."""
        first, *others = self._looks or [{}]
        same = [key for key, seen in first.items() if all(look.get(key) == seen for look in others)]
        found, taken = list[str](), list[Extent]()
        for extent, dtype, shape in sorted(same, key=lambda key: key[0][1] - key[0][2]):
            if not any(_overlap(extent, other) for other in taken):
                taken.append(extent)
                found.append(f"{dtype} {list(shape)}")
        return found


def _overlap(one: Extent, other: Extent) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


class _Memory:
    """Memory that is taken, to be asked about quickly."""

    def __init__(self, extents: Iterable[Extent]) -> None:
        self._starts: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        for place, start, end in sorted(extents):
            starts, ends = self._starts.setdefault(place, []), self._ends.setdefault(place, [])
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)

    def has(self, extent: Extent) -> bool:
        """Whether some of ``extent`` is taken."""
        place, start, end = extent
        before = bisect_right(self._starts.get(place, []), end - 1)
        return before > 0 and self._ends[place][before - 1] > start


def _extent(array: Any) -> Extent | None:
    """Where an array with more than one number lies; None of others."""
    with suppress(Exception):
        which = arrays.kind(array)
        shape = tuple(map(int, array.shape))
        if math.prod(shape) < 2 or array.nbytes == 0:
            return None
        if which == "torch":
            size = array.element_size()
            strides, start = [step * size for step in array.stride()], array.data_ptr()
            place = str(array.device)
            if arrays.dtype_of(array) == "bool":
                return None
        else:
            size, strides = array.dtype.itemsize, list(array.strides)
            if array.dtype.kind not in _KINDS:
                return None
            interface = array.__array_interface__ if which == "numpy" else array.__cuda_array_interface__
            start = int(interface["data"][0])
            place = "cpu" if which == "numpy" else f"cuda:{array.device.id}"
        reach = [step * (extent - 1) for step, extent in zip(strides, shape, strict=True)]
        begin = start + sum(step for step in reach if step < 0)
        return (place, begin, start + sum(step for step in reach if step > 0) + size) if start else None
    return None


def fingerprint_of(array: Any) -> Print | None:
    """A sum of all words of an array and checksums of its ends; None where its elements do not lie side by side, or
    where reading it may read a file."""
    with suppress(Exception):
        octets = _flat(array)
        if octets is None:
            return None
        ends = [_on_host(octets[:_ENDS]), _on_host(octets[-_ENDS:])]
        words = octets[: len(octets) // 8 * 8]
        return _sum(words), *(zlib.crc32(end) for end in ends)  # type: ignore[return-value]
    return None


def _flat(array: Any) -> Any:
    """The bytes of an array as they lie in memory: numpy's for those of the host."""
    if arrays.kind(array) == "torch":
        import torch

        if array.layout is not torch.strided or array.is_conj() or array.is_neg():
            return None
        array = array.detach()
        order = sorted(range(array.ndim), key=lambda axis: -array.stride(axis))
        array = array.permute(order)
        flat = array.view(-1).view(torch.uint8) if array.is_contiguous() else None
        return flat.numpy() if flat is not None and not flat.is_cuda else flat
    if arrays.kind(array) == "numpy" and not _is_plain_memory(array):
        return None
    array = array.transpose(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    return array.reshape(-1).view("u1") if array.flags.c_contiguous else None


def _is_plain_memory(array: Any) -> bool:
    """Whether the memory of a numpy array is numpy's or torch's own, not a file's or another process's."""
    while type(array).__module__.partition(".")[0] == "numpy":
        if (array := array.base) is None:
            return True
    return f"{type(array).__module__}.{type(array).__name__}" == "torch.Tensor"


def _sum(octets: Any) -> int:
    """Of the 8-byte words, modulo 2^64; of the bytes of a tensor that does not begin at a word."""
    if arrays.kind(octets) != "torch":
        return int(octets.view("u8").sum())
    import torch

    if octets.data_ptr() % 8:
        return int(octets.sum(dtype=torch.int64))
    return int(octets.view(torch.int64).sum()) % 2**64


def _on_host(octets: Any) -> Any:
    return octets.get() if arrays.kind(octets) == "cupy" else arrays.host_octets(octets)
