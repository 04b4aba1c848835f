"""Bytes of arrays as numbers of numpy, by the name of their type and without the library that made them.

What must not live here: files, what counts as equal.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

_PLAIN = "biufcmMSU"
"""Kinds of numpy's types whose bytes mean the same everywhere; an object's bytes are an address."""
_SMALL_FLOATS = {
    "float8_e4m3fn": (4, 7, "top"),
    "float8_e4m3fnuz": (4, 8, "zero"),
    "float8_e5m2": (5, 15, "ieee"),
    "float8_e5m2fnuz": (5, 16, "zero"),
}
"""Exponent bits, bias, and where NaN is: the topmost code of either sign, the code of -0, or as IEEE 754 has it."""
_POWERS = "float8_e8m0fnu"
_WIDENED = {"bfloat16": 2, "complex32": 4, _POWERS: 1, **dict.fromkeys(_SMALL_FLOATS, 1)}
"""Bytes of an element of the types that numpy lacks."""


def itemsize(dtype: str) -> int:
    """Bytes of one element; 0 for a type that is unknown here."""
    if dtype in _WIDENED:
        return _WIDENED[dtype]
    known = _numpy_type(dtype)
    return known.itemsize if known is not None else 0


def is_floating(dtype: str) -> bool:
    """Whether the elements are floating-point numbers, complex ones too."""
    known = _numpy_type(dtype)
    return dtype in _WIDENED or (known is not None and known.kind in "fc")


def fits(nbytes: int, dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether an array of this type and shape has so many bytes; of an unknown type no more is known than that they
    are a whole number for each element."""
    elements, size = math.prod(shape), itemsize(dtype)
    if any(extent < 0 for extent in shape):
        return False
    return nbytes == elements * size if size else nbytes % max(1, elements) == 0


def decode(octets: Any, dtype: str, shape: tuple[int, ...] | None = None) -> Any:
    """The array that a flat uint8 array holds, flat without a ``shape``; types that numpy lacks widen without loss,
    to float32 or complex64. Bytes of a type that is unknown here stay bytes.

    Raises ValueError for bytes that do not fill it.
    """
    import numpy as np

    if dtype == "bfloat16":
        values = (octets.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif dtype == "complex32":
        values = octets.view(np.float16).astype(np.float32).view(np.complex64)
    elif dtype in _WIDENED:
        values = _table(dtype)[octets]
    elif (known := _numpy_type(dtype)) is not None:
        values = octets.view(known)
    else:
        return octets
    return values if shape is None else values.reshape(shape)


def _numpy_type(dtype: str) -> Any:
    import numpy as np

    try:
        known = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        return None
    return known if known.kind in _PLAIN and known.itemsize else None


@cache
def _table(dtype: str) -> Any:
    """The value of each byte as a float of 8 bits."""
    import numpy as np

    return np.array([_power(code) if dtype == _POWERS else _value(code, dtype) for code in range(256)], np.float32)


def _power(code: int) -> float:
    return math.nan if code == 0xFF else math.ldexp(1.0, code - 127)


def _value(code: int, dtype: str) -> float:
    bits, bias, nans = _SMALL_FLOATS[dtype]
    sign, low = (-1.0 if code & 0x80 else 1.0), code & 0x7F
    mantissa_bits = 7 - bits
    exponent, mantissa = low >> mantissa_bits, low & ((1 << mantissa_bits) - 1)
    if (nans == "zero" and code == 0x80) or (nans == "top" and low == 0x7F):
        return math.nan
    if nans == "ieee" and exponent == (1 << bits) - 1:
        return math.nan if mantissa else sign * math.inf
    if not exponent:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)
