"""The keywords of cuda.kernel, checked before a GPU is used: launches, arrays, compiler options, work.

What must not live here: torch, CuPy, and what only the device knows (it is passed in as a number).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aiperf.workloads.cuda.expression import evaluate, joined
from aiperf.workloads.cuda.geometry import LARGEST_BLOCK, Launch, Placed, place

SOURCES = Path(__file__).parent / "kernels"
_FIELDS = ("role", "dtype", "shape", "init", "low", "high", "of", "linear")
_ROLES = ("input", "output", "stored", "scratch", "texture")
_INITS = ("normal", "uniform", "zeros", "ones", "arange", "permutation")
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8")
_LAUNCH_KEYS = ("entry", "args", "grid", "grid_waves", "block", "smem", "cooperative")
_LARGEST_N = 2**31 - 1
_SIDES = ("rows", "cols", "depth")
_ANY_SMS = 132
TURN = "turn"
"""What stands in args for how often the launches have been repeated before, from 0."""
_ENTRY = re.compile(r"__global__[^;{}]*?\b(\w+)\s*\([^()]*\)\s*\{")


@dataclass(frozen=True)
class ArraySpec:
    """One array argument: ``input`` is drawn from the seed, ``output`` is written by the entry, ``stored`` is filled by
    the layout entry from the inputs and read by the timed one, ``scratch`` is neither checked nor counted, ``texture``
    is a picture's copy that the texture unit reads."""

    role: str
    dtype: str
    shape: tuple[int, ...]
    init: str
    low: float
    high: float
    of: str = ""
    """Name of the picture that a texture is of."""
    linear: bool = False


@dataclass(frozen=True)
class Description:
    """Everything that is known before a GPU is used. ``names`` are the numbers that expressions may use."""

    source: Path
    options: tuple[str, ...]
    names: Mapping[str, int]
    arrays: Mapping[str, ArraySpec]
    launches: tuple[Launch, ...]
    layout: Launch | None
    block_choices: tuple[int, ...]
    """Sizes of a block among which the device chooses where the block says occupancy; none leaves it to the driver."""
    repeat: int
    clear: tuple[str, ...]
    carveout: int
    cluster: int
    pdl: bool
    captured: bool
    flops: float
    useful_bytes: float | None
    work_items: float
    item: str
    reference: Mapping[str, str] = field(default_factory=dict)

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the arrays that any launch, the layout's included, takes, in the order of the description."""
        return self._taken(*self.launches, *([self.layout] if self.layout else []))

    @property
    def timed(self) -> tuple[str, ...]:
        """Names of the arrays that a timed launch takes."""
        return self._taken(*self.launches)

    def _taken(self, *launches: Launch) -> tuple[str, ...]:
        """The arrays among the arguments, and of a texture its picture."""
        taken = {str(arg) for launch in launches for arg in launch.args}
        taken |= {self.arrays[name].of for name in taken & set(self.arrays)}
        return tuple(name for name in self.arrays if name in taken)

    def placed(self, launch: Launch, *, sms: int, suggested: int = 0) -> Placed:
        """Geometry on a device of ``sms`` multiprocessors; ``suggested`` threads where the block says occupancy."""
        return place(launch, self.names, sms=sms, cluster=self.cluster, suggested=suggested)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of the first launch, where it does not depend on the device."""
        return self.placed(self.launches[0], sms=_ANY_SMS).grid


def describe(asked: SimpleNamespace) -> Description:
    """Check the keywords of cuda.kernel, all of them in ``asked``. Raises ValueError with what is allowed."""
    path = _source(asked.source)
    _check_numbers(asked)
    names = _names(asked)
    arrays = {name: _array_spec(name, spec, names, asked.dtype) for name, spec in asked.arrays.items()}
    launches = _launches(asked)
    layout = _layout(asked)
    text = path.read_text(encoding="utf-8")
    for launch in (*launches, *([layout] if layout else [])):
        if not re.search(rf"\b{re.escape(launch.entry)}\b", text):
            known = ", ".join(dict.fromkeys(_ENTRY.findall(text)))
            raise ValueError(f'{path.name} has no entry "{launch.entry}". Known: {known or "none"}')
        _check_args(launch, arrays, names)
    described = Description(
        source=path,
        options=_options(asked),
        names=names,
        arrays=arrays,
        launches=launches,
        layout=layout,
        block_choices=_block_choices(asked.block_choices, launches),
        repeat=_repeat(asked.repeat, names),
        clear=tuple(asked.clear or ()),
        carveout=asked.carveout,
        cluster=asked.cluster,
        pdl=asked.pdl,
        captured=asked.captured,
        flops=_amount("flops", asked.flops, names),
        useful_bytes=None if asked.useful_bytes == "" else _amount("useful_bytes", asked.useful_bytes, names),
        work_items=_amount("work_items", asked.work_items, names),
        item=asked.item,
        reference=dict(asked.reference or {}),
    )
    _check_whole(described)
    return described


def _source(source: str) -> Path:
    path = Path(source) if Path(source).is_absolute() else SOURCES / source
    if not path.is_file():
        known = ", ".join(sorted(p.name for p in SOURCES.glob("*.cu")))
        raise ValueError(f'source "{source}" does not exist. Known: {known}, or an absolute path')
    return path


def _check_numbers(asked: SimpleNamespace) -> None:
    n = asked.n or math.prod(asked.shape or [0])
    checks = (
        (0 < n <= _LARGEST_N, f"n is {n}; it must lie between 1 and {_LARGEST_N}"),
        (asked.items >= 1, f"items is {asked.items}; a thread handles 1 element or more"),
        (asked.grid_waves > 0, f"grid_waves is {asked.grid_waves}; write a number above 0"),
        (-1 <= asked.carveout <= 100, f"carveout is {asked.carveout}; write 0 to 100 percent, or -1"),
        (1 <= asked.cluster <= 16, f"cluster is {asked.cluster}; a cluster has 1 to 16 blocks"),
        (0 < len(asked.shape or [1]) <= len(_SIDES), "shape has 1 to 3 sides: rows, cols, depth"),
        (min(asked.shape or [1]) > 0, f"shape {list(asked.shape or [])} must hold whole numbers above 0"),
        (not (asked.pdl and asked.cooperative), "pdl and cooperative cannot go together"),
    )
    for holds, message in checks:
        if not holds:
            raise ValueError(message)


def _repeat(text: int | str, names: Mapping[str, int]) -> int:
    found = evaluate(str(text), names)
    if not isinstance(found, int) or found < 1:
        raise ValueError(f"repeat is {text}; write 1 or more")
    return found


def _names(asked: SimpleNamespace) -> dict[str, int]:
    """Whole numbers that expressions may use: sizes first, then the defines that are whole numbers."""
    shape = list(asked.shape or [])
    n = asked.n or math.prod(shape)
    found = dict(zip(_SIDES, shape or [n, n], strict=False))
    found |= {"n": n, "items": asked.items, "cluster": asked.cluster}
    variant = dict([asked.variant.split("=", 1)]) if "=" in asked.variant else {}
    for name, value in {**variant, **(asked.defines or {})}.items():
        if re.fullmatch(r"-?\d+", str(value)):
            found.setdefault(str(name), int(value))
    return found


def _options(asked: SimpleNamespace) -> tuple[str, ...]:
    names = _names(asked)
    given = [f"N={names['n']}", f"ITEMS={asked.items}", *([asked.variant] if asked.variant else [])]
    given += [f"{side.upper()}={value}" for side, value in zip(_SIDES, asked.shape or [], strict=False)]
    given += [f"CLUSTER={asked.cluster}"] if asked.cluster > 1 else []
    given += [f"{name}={value}" for name, value in (asked.defines or {}).items()]
    return ("-std=c++17", *(f"-D{d}" for d in given), *(asked.options or []))


def _launches(asked: SimpleNamespace) -> tuple[Launch, ...]:
    if bool(asked.entry) == bool(asked.launches):
        raise ValueError("write either entry or launches, and not both")
    found = []
    for given in asked.launches or [{"entry": asked.entry}]:
        unknown = set(given) - set(_LAUNCH_KEYS)
        if unknown or "entry" not in given:
            fault = f"{', '.join(sorted(unknown))} is unknown" if unknown else "entry is missing"
            raise ValueError(f"launches: {fault}. Allowed: {', '.join(_LAUNCH_KEYS)}")
        args = given.get("args", asked.args)
        if args is None:
            raise ValueError(f"entry {given['entry']} has no args; name its arrays in order")
        found.append(
            Launch(
                entry=str(given["entry"]),
                args=tuple(args),
                grid=joined(given.get("grid", asked.grid)),
                grid_waves=float(given.get("grid_waves", asked.grid_waves)),
                block=joined(given.get("block", asked.block)),
                smem=str(given.get("smem", asked.smem)),
                cooperative=bool(given.get("cooperative", asked.cooperative)),
            )
        )
    return tuple(found)


def _block_choices(given: list[int] | None, launches: tuple[Launch, ...]) -> tuple[int, ...]:
    if given is None:
        return ()
    if not any(launch.block == "occupancy" for launch in launches):
        raise ValueError("block_choices are for block: occupancy, which no launch has")
    if not given or not all(0 < threads <= LARGEST_BLOCK for threads in given):
        raise ValueError(f"block_choices is {given}; name sizes of 1 to {LARGEST_BLOCK} threads")
    return tuple(given)


def _layout(asked: SimpleNamespace) -> Launch | None:
    """The untimed filling of stored arrays: enough blocks for every element, whatever the timed launches use."""
    if not asked.layout:
        return None
    block = "256" if asked.block == "occupancy" or asked.grid != "cover" else joined(asked.block)
    return Launch(asked.layout, tuple(asked.layout_args or ()), "cover", 1.0, block, "0", False)


def _check_args(launch: Launch, arrays: Mapping[str, ArraySpec], names: Mapping[str, int]) -> None:
    for arg in launch.args:
        if isinstance(arg, str) and arg not in arrays:
            try:
                evaluate(arg, {**names, TURN: 0})
            except ValueError as error:
                raise ValueError(f"args of {launch.entry}: {error}; arrays: {', '.join(arrays)}") from None
    place(launch, names, sms=_ANY_SMS, cluster=1, suggested=256)


def _check_whole(described: Description) -> None:
    """Check the parts together: a launch writes an output, and what launches read has been filled."""
    roles = {name: described.arrays[name].role for name in described.timed}
    if "output" not in roles.values():
        raise ValueError("no launch takes an array whose role is output, so nothing could be checked")
    stored = [name for name, role in roles.items() if role == "stored"]
    if stored and described.layout is None:
        raise ValueError(f"array {stored[0]} is stored, but no layout fills it")
    for name, spec in described.arrays.items():
        source = described.arrays.get(spec.of)
        if spec.role == "texture" and (source is None or (source.role, source.dtype) != ("input", "float32")):
            raise ValueError(f'array {name}: of is "{spec.of}"; it must name a float32 input')
        if source and len(source.shape) != 2:
            raise ValueError(f"array {name}: {spec.of} has {len(source.shape)} dimensions; a texture here has 2")
    for name in (*described.clear, *described.reference):
        if name not in roles:
            raise ValueError(f"{name} is not an array that a launch takes; these are: {', '.join(roles)}")


def _amount(key: str, text: float | str, names: Mapping[str, int]) -> float:
    try:
        value = float(evaluate(str(text), names))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    if value < 0:
        raise ValueError(f"{key} is {value:g}; it cannot be negative")
    return value


def _array_spec(name: str, spec: Mapping[str, Any], names: Mapping[str, int], dtype: str) -> ArraySpec:
    unknown = set(spec) - set(_FIELDS)
    if unknown:
        allowed = ", ".join(sorted(_FIELDS))
        raise ValueError(f"array {name}: {', '.join(sorted(unknown))} is unknown. Allowed: {allowed}")
    role, dtype = str(spec.get("role", "input")), str(spec.get("dtype", dtype))
    init = str(spec.get("init", "normal" if "float" in dtype else "uniform"))
    for value, options in ((role, _ROLES), (dtype, DTYPES), (init, _INITS)):
        if value not in options:
            raise ValueError(f"array {name}: {value} is not one of {', '.join(options)}")
    shape = tuple(evaluate(part, names) for part in joined(spec.get("shape", "n")).split(","))
    if not all(isinstance(side, int) and side > 0 for side in shape):
        raise ValueError(f"array {name}: shape {shape} must hold whole numbers above 0")
    low = float(evaluate(str(spec.get("low", 0)), names))
    high = float(evaluate(str(spec.get("high", 1 if "float" in dtype else 128)), names))
    if low >= high or (init == "normal" and "float" not in dtype):
        raise ValueError(f"array {name}: {init} {dtype} from {low:g} to below {high:g} holds no value")
    of, linear = str(spec.get("of", "")), bool(evaluate(str(spec.get("linear", 0)), names))
    if (of or linear) and role != "texture":
        raise ValueError(f"array {name}: of and linear are for role texture")
    return ArraySpec(role, dtype, shape, init, low, high, of, linear)
