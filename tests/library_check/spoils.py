"""Outputs made wrong: by one bit, by a part of one element, by a part of each, or emptied.

What must not live here: which of them a check has to notice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aiperf.worker import arrays

ELEMENT = 0.25
"""How far one element is moved, relative to itself and to what is typical of its output: past the tolerance of any
dtype, and of one that rounds away a fifth."""
ALL = 0.1
"""How far every element is moved, relative to itself."""

Spoil = Callable[[Any], None]
"""Makes an array wrong in place."""


def alone(rule: str, array: Any) -> tuple[str, Spoil]:
    """What a check of this kind must notice in any one output, in words and as a function.

    A named check may judge one distance over all outputs and need not see a small error in a small one; but that an
    output was never made.
    """
    if rule == "named":
        return "an output of zeros", empty
    return ("a bit", flip_bit) if rule == "bitwise" or not _is_float(array) else ("an element", nudge)


def together(rule: str, outputs: Mapping[str, Any]) -> None:
    """Spoil what a check of this kind must notice at the least: one output; of a named check all that hold floats.

    Where none does, a named check judges whole numbers.
    """
    if rule == "named":
        for array in list(filter(_is_float, outputs.values())) or outputs.values():
            shake(array)
        return
    last = outputs[max(outputs)]
    alone(rule, last)[1](last)


def flip_bit(array: Any) -> None:
    """Turn the lowest bit of the last element."""
    last = tuple(length - 1 for length in array.shape)
    with _writable(array):
        if arrays.kind(array) == "torch":
            import torch

            one = array[last].clone().reshape(1)
            one.view(torch.uint8)[0] ^= 1
        else:
            one = array[last].reshape(1).copy()
            one.view("uint8")[0] ^= 1
        array[last] = one[0]


def nudge(array: Any) -> None:
    """Move the last element by a part of itself and of the root mean square of all."""
    host = _host(array)
    flat = host.reshape(-1)
    flat[-1] += ELEMENT * (_typical(flat) + abs(flat[-1]))
    overwrite(array, host)


def shake(array: Any) -> None:
    """Move every element by a part of itself, up and down in turns; whole numbers stay whole."""
    host = _host(array)
    wide = host.astype(host.dtype if host.dtype.kind in "fc" else np.float64)
    flat = wide.reshape(-1)
    flat[::2] *= 1 + ALL
    flat[1::2] *= 1 - ALL
    overwrite(array, wide.astype(host.dtype))


def empty(array: Any) -> None:
    """Zeros, as if nothing had ever been written to fresh memory."""
    overwrite(array, np.zeros_like(_host(array)))


def overwrite(array: Any, host: Any) -> None:
    """Put the numbers of a numpy array into an output."""
    with _writable(array):
        if arrays.kind(array) == "torch":
            import torch

            array.copy_(torch.from_numpy(host))
        elif arrays.kind(array) == "cupy":
            array.set(host.astype(array.dtype))
        else:
            array[...] = host


def _host(array: Any) -> Any:
    """An own copy in one piece, in the order in which the elements are counted."""
    return np.array(arrays.to_numpy(array)[0], order="C")


def _typical(flat: Any) -> float:
    wide = np.abs(flat.astype(np.float64))
    return float(np.sqrt(np.mean(wide * wide)))


def _is_float(array: Any) -> bool:
    return arrays.to_numpy(array)[0].dtype.kind in "fc"


def _writable(array: Any) -> Any:
    """A tensor born in inference mode can be written only there; the others can be written there too."""
    if arrays.kind(array) == "torch":
        import torch

        return torch.inference_mode()
    return contextlib.nullcontext()
