"""New contents for arrays of torch, cupy and numpy, drawn like those that they have; and some of their elements.

What must not live here: when inputs are redrawn (redraw.py), and looking at whole arrays (arrays.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from aiperf.protocol.checking import RTOL
from aiperf.worker.arrays import digest, dtype_of, kind, to_numpy
from aiperf.workloads.shared.seeded import draw_normal, own_seed

_FEW = 16
"""Fewer elements may be a number that says how something is built."""
_MANY = 1 << 20
"""Elements that show whether values repeat."""
_SOME = 1024
"""Elements of an output that are handed over."""


def moments(array: Any) -> tuple[float, float]:
    """Mean and standard deviation of a floating array, in float32; not finite where an element is not, or none is."""
    if kind(array) == "torch":
        wide = array.detach().float()
        return float(wide.mean()), float(wide.std(correction=0))
    if not array.size:
        return float("nan"), float("nan")
    import numpy as np

    with np.errstate(invalid="ignore"):  # infinities: the caller sees moments that are not finite
        wide = array.astype("float32")
        return float(wide.mean()), float(wide.std())


def redraw(
    array: Any, *, name: str, seed: int, mean: float, std: float, large: tuple[float, float] | None = None
) -> None:
    """Fill a floating array in place with normal noise of the given moments; equal seeds give equal values. ``large``:
    makes every second number of each row, but none in the first quarter of any dimension, so many times as far from
    the mean, and moves it by so much; then every other element, or a half, is a sample of another kind."""
    import numpy as np

    which = kind(array)
    if which == "torch":
        import torch

        with torch.inference_mode():
            if array.is_cuda:
                generator = torch.Generator(device=array.device).manual_seed(own_seed(seed, name))
                fresh = torch.randn(array.shape, generator=generator, device=array.device, dtype=torch.float32)
                fresh.mul_(std)
                _enlarge(fresh, large)
                array.copy_(fresh.add_(mean))
                return
    drawn = np.empty(tuple(array.shape), np.float32)
    draw_normal(drawn.reshape(-1), seed=own_seed(seed, name))
    drawn *= np.float32(std)
    _enlarge(drawn, large)
    drawn += np.float32(mean)
    if which == "torch":
        with torch.inference_mode():
            array.copy_(torch.from_numpy(drawn))
    elif which == "numpy":
        array[...] = drawn
    else:
        array.set(drawn.astype(array.dtype))


def is_writable(array: Any) -> bool:
    """Whether an array can be changed in place: not the bytes of a text, nor what was made read-only."""
    return kind(array) != "numpy" or bool(array.flags.writeable)


def is_shuffled_data(array: Any) -> bool:
    """Whether an array of whole numbers may be data in any order: its rows are neither sorted nor all the same, which
    offsets and constants are."""
    host, dtype = to_numpy(array)
    if host.dtype.kind not in "iu" or dtype == "bool" or len(host.shape) == 0 or host.shape[0] < 2:
        return False
    rows = host.reshape(host.shape[0], -1)
    rising = (rows[1:] >= rows[:-1]).all()
    return not (rising or (rows[1:] <= rows[:-1]).all())


def is_scattered(array: Any) -> bool:
    """Whether an array of booleans may be data in any order: it turns from one value to the other at least half as
    often as a random one with as many of each, which triangles, bands and padding do not."""
    host, dtype = to_numpy(array)
    flat = host.reshape(-1)
    if dtype != "bool" or len(flat) < 2:
        return False
    share = float(flat.mean())
    return float((flat[1:] != flat[:-1]).mean()) >= share * (1 - share) > 0


def constant(array: Any) -> int:
    """The one positive value of an array of whole numbers or booleans; 0 where it has others, or is hardly an array."""
    host, dtype = to_numpy(array)
    if (host.dtype.kind not in "iu" and dtype != "bool") or host.size < _FEW:
        return 0
    first = int(host.reshape(-1)[0])
    return first if first > 0 and bool((host == host.reshape(-1)[0]).all()) else 0


def is_order(array: Any) -> bool:
    """Whether an array counts 0, 1, 2, ...: the order in which things lie that need not lie so."""
    import numpy as np

    host, dtype = to_numpy(array)
    whole = host.dtype.kind in "iu" and dtype != "bool" and host.ndim == 1 and host.size >= _FEW
    return whole and bool((host == np.arange(host.size)).all())


def are_keys(array: Any, *, beyond: int) -> bool:
    """Whether sorted whole numbers can be no places in an array of ``beyond`` elements, as offsets are."""
    host, dtype = to_numpy(array)
    whole = host.dtype.kind in "iu" and dtype != "bool" and host.ndim == 1 and host.size >= _FEW
    return whole and int(host.max()) > beyond and int(host.min()) < int(host.max())


def is_whole(array: Any) -> bool:
    """Whether an array is of whole numbers, other than booleans."""
    host, dtype = to_numpy(array[:1] if len(array.shape) else array)
    return host.dtype.kind in "iu" and dtype != "bool"


def draw_keys(array: Any, *, name: str, seed: int) -> None:
    """Put other numbers in place of half of them, between the smallest and the largest, so that each still occurs
    once."""
    import numpy as np

    host, _ = to_numpy(array)
    low, high, draw = int(host.min()), int(host.max()), np.random.default_rng(own_seed(seed, name))
    fresh = np.setdiff1d(draw.integers(low, high, 2 * host.size, dtype=np.int64), host)
    drawn, places = host.copy(), draw.permutation(host.size)[: min(host.size // 2, fresh.size)]
    drawn[places] = draw.permutation(fresh)[: places.size].astype(host.dtype)
    _write_host(array, drawn)


def lower(array: Any, most: int, *, name: str, seed: int) -> None:
    """Fill an array whose every element is ``most`` with numbers from 1 to it, or of booleans half with False."""
    import numpy as np

    host, dtype = to_numpy(array)
    draw, low = np.random.default_rng(own_seed(seed, name)), 0 if dtype == "bool" else 1
    drawn = draw.integers(low, most, host.shape, endpoint=True).astype(host.dtype)
    _write_host(array, drawn)


def _write_host(array: Any, values: Any) -> None:
    """Put a NumPy array into an array of any library, wherever that lies."""
    if kind(array) == "torch":
        import torch

        write(array, torch.from_numpy(values).to(array.device))
    elif kind(array) == "numpy":
        write(array, values)
    else:
        array.set(values)


def has_repeats(array: Any) -> bool:
    """Whether a value occurs twice in an array of whole numbers, as far as its first many elements show."""
    import numpy as np

    host, _ = to_numpy(array.reshape(-1)[:_MANY])
    ordered = np.sort(host)
    return bool((ordered[1:] == ordered[:-1]).any())


def draw_rows(array: Any, original: Any, *, name: str, seed: int, again: bool) -> None:
    """Fill an array in place with rows (elements, of one dimension) of ``original`` in random order; equal seeds give
    equal ones. ``again``: each is drawn by itself, so that some come several times and others not at all.
    """
    import numpy as np

    draw, rows = np.random.default_rng(own_seed(seed, name)), int(array.shape[0])
    order = draw.integers(0, rows, rows) if again else draw.permutation(rows)
    which = kind(array)
    if which == "torch":
        import torch

        with torch.inference_mode():
            array.copy_(original[torch.from_numpy(order).to(array.device)])
    elif which == "numpy":
        array[...] = original[order]
    else:
        import cupy

        array[...] = original[cupy.asarray(order)]


def write(array: Any, content: Any) -> None:
    """Give an array what another one of its kind holds."""
    if kind(array) == "torch":
        import torch

        with torch.inference_mode():
            array.copy_(content)
    else:
        array[...] = content


def some(array: Any, places: Sequence[int]) -> tuple[float, ...]:
    """The elements of an array of real numbers at these places, counted row by row."""
    flat = (array.detach() if kind(array) == "torch" else array).reshape(-1)
    if flat.dtype.itemsize > 1:
        return tuple(map(float, flat[list(places)].tolist()))
    return tuple(float(flat[place]) for place in places)  # torch takes no list of places from 8-bit numbers


def some_of(outputs: Mapping[str, Any], seed: int) -> dict[str, tuple[float, ...]]:
    """Some elements of every output of real numbers, at places that the seed draws; without those that hold others than
    finite ones."""
    found = {}
    for name, array in outputs.items():
        dtype, size = dtype_of(array), math.prod(array.shape)
        if dtype in RTOL and not dtype.startswith("complex"):
            places = sorted(random.Random(seed).sample(range(size), min(size, _SOME)))
            found[str(name)] = some(array, places)
    return {name: values for name, values in found.items() if all(map(math.isfinite, values))}


def another(array: Any) -> Any:
    """Other contents of the same kind: the same elements at other places, or where that changes nothing others."""
    half = math.prod(array.shape) // 2 + 1
    if kind(array) == "torch":
        turned = array.detach().reshape(-1).roll(half).reshape(array.shape)
    else:
        import numpy as np

        turned = np.roll(array.reshape(-1), half).reshape(array.shape)
    if digest(turned) != digest(array):
        return turned
    if "bool" in dtype_of(array):
        return ~turned
    return (turned * 1.25 + 1).astype(array.dtype) if kind(array) != "torch" else (turned * 1.25 + 1).to(array.dtype)


def move(array: Any, share: float) -> None:
    """Make every second one of the numbers that are drawn large larger by ``share`` of itself, in place."""
    part = _part(array.detach() if kind(array) == "torch" else array, 4)
    part *= 1 + share


def _enlarge(drawn: Any, large: tuple[float, float] | None) -> None:
    if large is not None:
        part = _part(drawn, 2)
        part *= large[0]
        part += large[1]


def _part(numbers: Any, stride: int) -> Any:
    """A view of every so many numbers of each row, from the end of the first quarter of each dimension on."""
    firsts = [extent // 4 for extent in numbers.shape]
    return numbers[(..., *(slice(f, None) for f in firsts[:-1]), *(slice(f, None, stride) for f in firsts[-1:]))]


def has_room(array: Any, nbytes: int) -> bool:
    """Whether the GPU on which an array lies has so many bytes left; of the host's memory nothing is asked."""
    which = kind(array)
    if which == "cupy":
        import cupy

        return bool(cupy.cuda.runtime.memGetInfo()[0] > nbytes)
    if which == "torch" and array.is_cuda:
        import torch

        return torch.cuda.mem_get_info(array.device)[0] > nbytes
    return True
