"""Returned Python values as arrays, so that they travel and compare as all outputs do: floats apart, all else exact.

What must not live here: what counts as equal, and when anything is encoded.

Values of one place in the structure become one column: of ``[{"id": 1, "price": 2.5}, ...]`` the columns are
``result[].id`` (int64) and ``result[].price`` (float64). Lists and tuples are alike, and so are mappings in any order.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiperf.worker import arrays

_MOST_KEYS = 64
"""Keys that become columns of their own; a mapping with more of them holds data in its keys."""
_DEEPEST = 100
_EXACT_IN_FLOAT = 2**53
_BY_TEXT = ("datetime", "decimal", "fractions", "uuid", "pathlib", "ipaddress", "zoneinfo")
"""Modules whose objects their repr gives in full."""
_WAYS_OUT = "Return arrays, numbers, text, bytes, or lists and mappings of them, or write in the scenario check: " + (
    "{kind: none, reason: why}."
)

Columns = dict[str, Any]


class NotComparable(TypeError):
    """A value that cannot be compared by value; the text says what to write instead."""


def encode(value: Any, name: str, *, lenient: bool = False) -> Columns:
    """Arrays that hold a value whole, by the place in it that each column is of.

    Arrays of numpy, torch and cupy are themselves, not copies. Raises NotComparable for an object that is no data and
    arrays.LazyOutput for one that computes when it is read; ``lenient`` leaves those out.
    """
    columns: Columns = {}
    _Encoder(columns, lenient=lenient).column(name, [value], 0)
    return columns


def described(value: Any) -> str:
    """``list of 3 dict``, ``ndarray float32 (64, 64)``, ``str of 12``: a returned value in a few words."""
    kind = type(value).__name__
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{kind} {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if not isinstance(value, str | bytes | bytearray | list | tuple | dict | set | frozenset):
        return kind
    inner = {type(item).__name__ for item in value} if isinstance(value, list | tuple | set | frozenset) else set()
    return f"{kind} of {len(value)}{f' {inner.pop()}' if len(inner) == 1 else ''}"


class _Encoder:
    def __init__(self, columns: Columns, *, lenient: bool) -> None:
        self._columns, self._lenient = columns, lenient
        self._writers: dict[str, Callable[[str, list[Any], int], None]] = {
            "none": lambda path, values, depth: self._put(path, " (none)", len(values), "int64"),
            "bool": lambda path, values, depth: self._put(path, "", values, "bool"),
            "int": self._ints,
            "float": self._floats,
            "complex": lambda path, values, depth: self._put(path, "", values, "complex128"),
            "text": lambda path, values, depth: self._octets(
                path, [v.encode("utf-8", "surrogatepass") for v in values]
            ),
            "bytes": lambda path, values, depth: self._octets(f"{path} (bytes)", values),
            "list": self._lists,
            "mapping": self._mappings,
            "array": self._arrays,
            "opaque": lambda path, values, depth: None,
        }
        self._kinds = list(self._writers)

    def column(self, path: str, values: Sequence[Any], depth: int) -> None:
        """Encode all values of one place."""
        if depth > _DEEPEST:
            raise NotComparable(f"{path[:60]} is nested more than {_DEEPEST} levels deep. {_WAYS_OUT}")
        by_kind: dict[str, list[Any]] = {}
        kinds = []
        for value in values:
            kind, plain = self._plain(path, value)
            kinds.append(kind)
            by_kind.setdefault(kind, []).append(plain)
        if by_kind.keys() == {"int", "float"} and all(abs(v) <= _EXACT_IN_FLOAT for v in by_kind["int"]):
            by_kind, kinds = {"float": [float(v) for v in values]}, ["float"]
        if len(by_kind) > 1:
            self._put(path, " (kinds)", [self._kinds.index(kind) for kind in kinds], "uint8")
        for kind, held in by_kind.items():
            self._writers[kind](path if len(by_kind) == 1 else f"{path} ({kind})", held, depth)

    def _plain(self, path: str, value: Any) -> tuple[str, Any]:
        """The kind of a value, and the value without its class: overridden methods of a subclass are never called."""
        known = _known(value)
        if known is not None:
            return known
        if _is_narrow(value):
            return "float", value
        if (array := _array(value)) is not None:
            return self._plain(path, array) if not _is_array(array) else ("array", array)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return "mapping", {f.name: _field(value, f.name) for f in dataclasses.fields(value)}
        if isinstance(value, enum.Enum):
            return "text", f"{type(value).__name__}.{value.name}"
        if type(value).__module__.partition(".")[0] in _BY_TEXT:
            return "text", repr(value)
        if self._lenient:
            return "opaque", None
        raise _refusal(path, value)

    def _put(self, path: str, mark: str, values: Any, dtype: str | None) -> None:
        import numpy as np

        self._columns[f"{path}{mark}"] = np.asarray(values, dtype=dtype)

    def _ints(self, path: str, values: list[int], depth: int) -> None:
        if all(-(2**63) <= value < 2**63 for value in values):
            self._put(path, "", values, "int64")
        else:
            self._octets(path, [str(value).encode() for value in values])

    def _floats(self, path: str, values: list[float], depth: int) -> None:
        """What is not finite is compared exactly: NaN that a function returns is a value like any other."""
        import numpy as np

        found = np.asarray(values)
        found = found if found.dtype.kind == "f" else found.astype(np.float64)
        finite = np.isfinite(found)
        if not finite.all():
            marks = np.where(np.isnan(found), 1, np.where(found > 0, 2, 3))
            self._put(path, " (not finite)", np.where(finite, 0, marks), "uint8")
        self._columns[path] = np.where(finite, found, found.dtype.type(0))

    def _octets(self, path: str, values: list[bytes]) -> None:
        import numpy as np

        if len(values) != 1:
            self._put(path, " (lengths)", [len(value) for value in values], "int64")
        self._columns[path] = np.frombuffer(b"".join(values), dtype=np.uint8)

    def _lists(self, path: str, values: list[list[Any]], depth: int) -> None:
        if len(values) != 1 or not values[0]:
            self._put(path, " (lengths)", [len(value) for value in values], "int64")
        if inner := [item for value in values for item in value]:
            self.column(f"{path}[]", inner, depth + 1)

    def _mappings(self, path: str, values: list[dict[Any, Any]], depth: int) -> None:
        keys = values[0].keys()
        as_columns = 0 < len(keys) <= _MOST_KEYS and all(type(key) is str for key in keys)
        if as_columns and all(value.keys() == keys for value in values):
            for key in sorted(keys):
                self.column(f"{path}.{key}", [value[key] for value in values], depth + 1)
            return
        self._put(path, " (entries)", [len(value) for value in values], "int64")
        items = [item for value in values for item in sorted(value.items(), key=lambda item: _order(item[0]))]
        if items:
            self.column(f"{path} (keys)", [key for key, _ in items], depth + 1)
            self.column(f"{path} (values)", [held for _, held in items], depth + 1)

    def _arrays(self, path: str, values: list[Any], depth: int) -> None:
        for index, array in enumerate(values):
            self._columns[path if len(values) == 1 else f"{path}#{index}"] = array


def _known(value: Any) -> tuple[str, Any] | None:
    """Kind and data of Python's own types and their subclasses, read by the methods of the base class."""
    if value is None:
        return "none", None
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, enum.Enum):
        return None
    for base, kind, read in _READERS:
        if isinstance(value, base):
            return kind, read(value)
    if isinstance(value, set | frozenset):
        iterate = set.__iter__ if isinstance(value, set) else frozenset.__iter__
        return "list", sorted(iterate(value), key=_order)  # type: ignore[arg-type]
    return None


_READERS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (int, "int", int.__index__),
    (float, "float", float.__float__),
    (complex, "complex", complex.__complex__),
    (str, "text", str.__str__),
    (bytes, "bytes", bytes.__bytes__),
    (bytearray, "bytes", bytes),
    (memoryview, "bytes", bytes),
    (list, "list", lambda value: list(list.__iter__(value))),
    (tuple, "list", lambda value: list(tuple.__iter__(value))),
    (dict, "mapping", lambda value: dict(dict.items(value))),
    (deque, "list", lambda value: list(deque.__iter__(value))),
    (range, "list", list),
)


def _array(value: Any) -> Any:
    """An array that can be digested as it is, plain data for arrays of objects and for tables; None for the rest."""
    library = type(value).__module__.partition(".")[0]
    if library == "numpy":
        return _numpy(value)
    if _is_array(value):
        return value
    kind = type(value).__name__
    if library == "pandas" and kind == "DataFrame":
        columns = {str(name): value.iloc[:, i].to_numpy() for i, name in enumerate(value.columns)}
        return {"index": value.index.to_numpy(), "columns": columns}
    if library == "pandas" and kind == "Series":
        return {"index": value.index.to_numpy(), "values": value.to_numpy()}
    if library == "pandas" and kind.endswith("Index"):
        return value.to_numpy()
    if library == "polars" and kind in ("DataFrame", "Series"):
        return value.to_dict(as_series=False) if kind == "DataFrame" else value.to_list()
    if library == "pyarrow" and kind in ("Table", "RecordBatch"):
        return value.to_pydict()
    return None


def _numpy(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        return {"values": np.asarray(value.filled(value.dtype.type(0))), "mask": np.ma.getmaskarray(value)}
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if not isinstance(value, np.ndarray | np.generic):
        return None
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        return {"shape": list(array.shape), "items": array.reshape(-1).tolist()}
    if array.dtype.kind in "Mm":
        return {"unit": str(array.dtype), "values": array.view(np.int64)}
    if array.dtype.names:
        return {name: np.ascontiguousarray(array[name]) for name in array.dtype.names}
    return array


def _is_narrow(value: Any) -> bool:
    """Whether a value is a floating-point scalar of numpy that is not Python's float: its own tolerance holds."""
    if type(value).__module__ != "numpy":
        return False
    import numpy as np

    return isinstance(value, np.float16 | np.float32)


def _is_array(value: Any) -> bool:
    try:
        return bool(arrays.kind(value))
    except arrays.LazyOutput:
        return False


def _field(value: Any, name: str) -> Any:
    """A field as it is stored, where it is: a property would compute it only now."""
    held: Mapping[str, Any] = getattr(value, "__dict__", {})
    return held[name] if name in held else getattr(value, name)


def _order(value: Any) -> tuple[str, Any]:
    """An order of values of any types, equal for equal values."""
    if isinstance(value, bool | int | float):
        return ("", value)
    return (type(value).__name__, value if isinstance(value, str | bytes) else repr(value))


def _refusal(path: str, value: Any) -> Exception:
    kind = type(value).__name__
    if inspect.isgenerator(value) or hasattr(value, "__next__"):
        return arrays.LazyOutput(f"{path} is a {kind}: it computes when it is read. Write return list(...)")
    if inspect.isawaitable(value):
        return arrays.LazyOutput(f"{path} is a {kind}, which was never awaited. Write return asyncio.run(...)")
    return NotComparable(f"{path} is a {type(value).__module__}.{kind}, which cannot be compared by value. {_WAYS_OUT}")
