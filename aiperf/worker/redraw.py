"""Fresh values for a side's inputs: its own ``redraw``, else the harness's, by the kind of each array.

What must not live here: when inputs are redrawn, and the arithmetic on arrays (arrays.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aiperf.protocol.checking import RTOL
from aiperf.worker import arrays, contents
from aiperf.workloads.contract import Workload

_NOISE = 0.02
"""Standard deviation drawn for a constant array, as a share of its value, or of 1 where it is 0."""
_ROUNDING = 1e-6
"""Of the mean: a smaller deviation is that of a constant, whose mean was rounded."""
_DIGITS = 3
"""Of the moments that are kept."""
_WIDER = {"float64": 384.0, "float16": 12.0}
_ELSE_WIDER, _SHIFT = 48.0, 4.0
"""A wide draw has so many times the standard deviation, by the range of the type, and its mean lies so many of the
usual ones further up: values that an answer which is right only for the usual ones, like a softmax without its maximum,
does not survive. Only a part of an array gets them, so that an answer which reads another part shows as well."""

_EXTREME = {"float16": 8192.0, **dict.fromkeys((t for t in RTOL if t.startswith("float8")), 64.0)}
_ELSE_EXTREME = 1e12
"""Deviation of an extreme draw, by the range of the type: beyond every bound on usual values, and few enough that sums
of squares are finite."""

_MOST_HELD, _MOST_ON_GPU = 64 << 20, 512 << 20
"""Bytes of inputs that are held twice more to be written without a call of the side, on the host and on a GPU."""
_TIMES_HELD = 4
"""As many bytes a GPU must have left: what is drawn comes as float32 first."""

Draw = partial[None]
"""(array, seed, whether it is to be a wide draw) -> None."""


class Redraw:
    """How the inputs of one workload are redrawn; equal seeds give equal inputs."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._draws: dict[str, Draw] = {}
        self._arrays: dict[str, Any] = {}
        if workload.inputs is not None and workload.redraw is None:
            arrays_ = workload.inputs()
            found = {name: _draw_of(str(name), array) for name, array in arrays_.items()}
            self._draws = {name: draw for name, draw in found.items() if draw is not None}
            self._arrays = {name: arrays_[name] for name in self._draws}

    @property
    def possible(self) -> bool:
        """Whether anything is redrawn at all."""
        return self._workload.redraw is not None or bool(self._draws)

    @property
    def widens(self) -> bool:
        """Whether there are wide draws: of real numbers that the harness redraws."""
        return any(draw.func is _normal for draw in self._draws.values())

    def __call__(self, seed: int, *, wide: bool = False) -> None:
        """Redraw every input that can be; ``wide`` concerns those that the harness draws."""
        if self._workload.redraw is not None:
            self._workload.redraw(seed)
        if self._draws and self._workload.inputs is not None:
            for name, array in self._workload.inputs().items():
                if name in self._draws:
                    self._draws[name](array, seed, wide)

    def swap(self) -> Swap | None:
        """Other contents for the inputs, written without a call of the side; None where it redraws them itself, and
        where there are none or too large ones for the memory that is left."""
        most = _MOST_HELD if any(map(arrays.on_host, self._arrays.values())) else _MOST_ON_GPU
        held = sum(int(array.nbytes) for array in self._arrays.values())
        room = all(contents.has_room(array, _TIMES_HELD * held) for array in self._arrays.values())
        return Swap(self._arrays, self._draws) if 0 < held <= most and room else None

    def variations(self, fixed: Sequence[str]) -> dict[str, Draw]:
        """How inputs of these names, which audits leave as they are, may be varied so that no step comes to harm: none
        gets a value above those that it had. Nothing is varied where the workload says why they are fixed, nor what a
        ``redraw`` of its own leaves alone, unless that redraws nothing at all."""
        workload, given = self._workload, dict(self._workload.inputs()) if self._workload.inputs is not None else {}
        own = workload.redraw is not None
        if workload.fixed_inputs or workload.one_input or (own and set(map(str, given)) - set(fixed)):
            return {}
        keys = self._lone_keys(given)
        most = max([int(math.prod(array.shape)) for array in (*given.values(), *workload.outputs().values())] or [0])
        drawn = ((str(name), a, _draw_of(str(name), a) if own else None) for name, a in given.items())
        found = {name: draw or _variation_of(name, a, most) for name, a, draw in drawn if name in fixed}
        return {**keys, **{name: draw for name, draw in found.items() if draw is not None}}

    def extremes(self) -> dict[str, Draw]:
        """How the real inputs that the harness draws get values beyond every bound; none where the workload says why
        its inputs are fixed."""
        drawn = self._draws.items() if not self._workload.fixed_inputs else ()
        return {str(name): partial(_extreme, *draw.args) for name, draw in drawn if draw.func is _normal}

    def _lone_keys(self, given: Mapping[str, Any]) -> dict[str, Draw]:
        """Keys that audits bring into another order only, where nothing else is whole numbers and they can be no places
        in any array: their sum, their largest and what they are when sorted are always the same."""
        whole = {n: a for n, a in given.items() if contents.is_whole(a)}
        if len(whole) != 1:
            return {}
        ((name, array),) = whole.items()
        draw, most = self._draws.get(name), max(int(math.prod(a.shape)) for a in given.values())
        once = draw is not None and draw.func is _rows and not draw.args[2]
        return {str(name): partial(_other_keys, str(name))} if once and contents.are_keys(array, beyond=most) else {}

    def vary(self, draws: Mapping[str, Draw], seed: int) -> Callable[[], None]:
        """Vary these inputs; what brings their contents back."""
        assert self._workload.inputs is not None
        given = {str(name): array for name, array in self._workload.inputs().items() if str(name) in draws}
        former = {name: arrays.clone(array) for name, array in given.items()}

        def restore() -> None:
            for name, array in given.items():
                contents.write(array, former[name])

        for name, array in given.items():
            draws[name](array, seed, False)
        return restore

    def move(self) -> None:
        """Move the real numbers that the harness draws by the tolerance of their type: an answer may change as much."""
        if self._workload.inputs is not None:
            for name, array in self._workload.inputs().items():
                if name in self._draws and self._draws[name].func is _normal:
                    contents.move(array, RTOL[arrays.dtype_of(array)])


class Swap:
    """What the inputs hold now, and something new for them. A side that is not called, and hardly kept waiting, cannot
    tell the one from the other before it has looked at its inputs."""

    def __init__(self, inputs: Mapping[str, Any], draws: Mapping[str, Draw]) -> None:
        self._inputs, self._draws = inputs, draws
        self._known = {name: arrays.clone(array) for name, array in inputs.items()}
        self._new = {name: arrays.clone(array) for name, array in inputs.items()}

    def digest(self) -> str:
        """Of what it writes, as all sides that have the same write it."""
        return " ".join(f"{n}={arrays.digest(self._known[n])}/{arrays.digest(a)}" for n, a in self._new.items())

    def draw(self, seed: int) -> None:
        """Draw new contents, and leave the inputs alone."""
        for name, array in self._new.items():
            self._draws[name](array, seed, False)

    def write(self, *, new: bool) -> None:
        """Give the inputs the new contents, or once more those that they had at first."""
        for name, content in (self._new if new else self._known).items():
            contents.write(self._inputs[name], content)


def _draw_of(name: str, array: Any) -> Draw | None:
    """How an array is redrawn; None for what may be structure rather than data: masks with infinities, sorted or
    constant whole numbers, booleans; and for what cannot be written, as the bytes of a text."""
    if not contents.is_writable(array):
        return None
    if arrays.is_floating(array):
        mean, std = contents.moments(array)
        if not (math.isfinite(mean) and math.isfinite(std)):
            return None
        varies = std > _ROUNDING * abs(mean)
        return partial(_normal, name, *_rounded(mean, std if varies else _NOISE * (abs(mean) or 1.0)))
    if contents.is_shuffled_data(array):
        # Keys that each occur once stay so; of others a new order alone would leave counts and sums as they were.
        return partial(_rows, name, arrays.clone(array), contents.has_repeats(array))
    return None


def _variation_of(name: str, array: Any, most: int) -> Draw | None:
    """How an array that may be structure is varied once, with values that it had or smaller ones; None for what offsets
    may be, and for masks that have a shape. ``most``: elements of the largest array of the workload."""
    if not contents.is_writable(array):
        return None
    if value := contents.constant(array):
        return partial(_lowered, name, value) if value > 1 or "bool" in arrays.dtype_of(array) else None
    if contents.is_scattered(array) or contents.is_order(array) or contents.are_keys(array, beyond=most):
        return partial(_rows, name, arrays.clone(array), False)
    return None


def _lowered(name: str, most: int, array: Any, seed: int, wide: bool) -> None:
    contents.lower(array, most, name=name, seed=seed)


def _rounded(mean: float, std: float) -> tuple[float, float]:
    """Moments to as many digits as libraries agree on, which sum in different orders: the mean as a multiple of what
    the deviation's last digit is."""
    step = 10.0 ** (math.floor(math.log10(std)) - _DIGITS + 1)
    return round(mean / step) * step, round(std / step) * step


def _normal(name: str, mean: float, std: float, array: Any, seed: int, wide: bool) -> None:
    wider = _WIDER.get(arrays.dtype_of(array), _ELSE_WIDER)
    large = (wider, _SHIFT * std) if wide else None
    contents.redraw(array, name=name, seed=seed, mean=mean, std=std, large=large)


def _extreme(name: str, mean: float, std: float, array: Any, seed: int, wide: bool) -> None:
    most = _EXTREME.get(arrays.dtype_of(array), _ELSE_EXTREME)
    contents.redraw(array, name=name, seed=seed, mean=mean, std=std, large=(most / std, 0.0))


def _other_keys(name: str, array: Any, seed: int, wide: bool) -> None:
    contents.draw_keys(array, name=name, seed=seed)


def _rows(name: str, original: Any, again: bool, array: Any, seed: int, wide: bool) -> None:
    contents.draw_rows(array, original, name=name, seed=seed, again=again)
