"""cuda.kernel: one entry of a CUDA C++ source, compiled through CuPy, over arrays that the scenario describes.

What must not live here: any kernel's source (see kernels/), and a step that synchronises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aiperf.workloads._expression import evaluate
from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload

_SOURCES = Path(__file__).parent / "kernels"
_FIELDS = {"role", "dtype", "shape", "init"}
_ROLES = ("input", "output", "stored")
_INITS = ("normal", "uniform", "zeros")
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8")
_LARGEST_N = 2**31 - 1
_ALIGNMENT = 256


@dataclass(frozen=True)
class ArraySpec:
    """One array argument: ``input`` is drawn from the seed, ``output`` is written by the entry, ``stored`` is filled
    by the layout entry from the inputs and read by the timed one."""

    role: str
    dtype: str
    shape: tuple[int, ...]
    init: str


@dataclass(frozen=True)
class Launch:
    """Everything that is known before a GPU is touched."""

    source: Path
    entry: str
    args: tuple[str, ...]
    arrays: Mapping[str, ArraySpec]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    options: tuple[str, ...]


def kernel(
    context: Context,
    *,
    source: str,
    entry: str,
    args: list[str],
    arrays: dict[str, dict[str, str]],
    n: int,
    variant: str = "",
    defines: dict[str, str] | None = None,
    block: int = 256,
    items: int = 1,
    grid: str = "cover",
    shared: Size = 0,
    options: list[str] | None = None,
    layout: str = "",
    layout_args: list[str] | None = None,
    flops: str = "0",
    reference: dict[str, str] | None = None,
    backend: Literal["nvrtc", "nvcc"] = "nvrtc",
) -> Workload:
    """Launch ``entry`` of ``source`` once per step, on torch's current stream.

    ``source`` is a file of kernels/ or an absolute path; it is compiled with -DN=n, -DITEMS=items (elements per
    thread), ``variant`` (``NAME`` or ``NAME=value``) and ``defines``. ``args`` names the arrays, or is an integer
    expression over ``n``, passed as a 64-bit integer. ``layout`` is an entry that fills the ``stored`` arrays from the
    inputs, untimed. ``reference`` gives each output as an expression over the inputs, computed in float64.
    """
    launch = describe(
        source=source, entry=entry, args=args, arrays=arrays, n=n, variant=variant, defines=defines or {},
        block=block, items=items, grid=grid, options=options or [],
    )  # fmt: skip
    if not context.device.startswith("cuda"):
        raise SkipSide("a CUDA kernel needs a GPU")
    return _Kernel(context, launch, n=n, shared=shared, backend=backend).workload(
        layout=layout, layout_args=layout_args or [], flops=flops, reference=reference or {}
    )


def describe(
    *,
    source: str,
    entry: str,
    args: list[str],
    arrays: Mapping[str, Mapping[str, Any]],
    n: int,
    variant: str = "",
    defines: Mapping[str, Any] | None = None,
    block: int = 256,
    items: int = 1,
    grid: str = "cover",
    options: list[str] | None = None,
) -> Launch:
    """Check the description and work out geometry and compiler options. Raises ValueError with what is allowed."""
    path = Path(source) if Path(source).is_absolute() else _SOURCES / source
    if not path.is_file():
        known = ", ".join(sorted(p.name for p in _SOURCES.glob("*.cu")))
        raise ValueError(f'source "{source}" does not exist. Known: {known}, or an absolute path')
    if not re.search(rf"\b{re.escape(entry)}\s*\(", path.read_text(encoding="utf-8")):
        raise ValueError(f'{path.name} has no entry "{entry}"')
    if not 0 < n <= _LARGEST_N:
        raise ValueError(f"n is {n}; it must lie between 1 and {_LARGEST_N}")
    if not 0 < block <= 1024:
        raise ValueError(f"block is {block}; a block has 1 to 1024 threads")
    if items < 1:
        raise ValueError(f"items is {items}; a thread handles 1 element or more")
    given = [f"N={n}", f"ITEMS={items}", *([variant] if variant else [])]
    given += [f"{name}={value}" for name, value in (defines or {}).items()]
    return Launch(
        source=path,
        entry=entry,
        args=tuple(args),
        arrays={name: _array_spec(name, spec, n) for name, spec in arrays.items()},
        grid=(_blocks(grid, n, block * items), 1, 1),
        block=(block, 1, 1),
        options=("-std=c++17", *(f"-D{d}" for d in given), *(options or [])),
    )


def _blocks(grid: str, n: int, per_block: int) -> int:
    """``cover`` is just enough blocks for n elements; otherwise an integer expression over n."""
    blocks = math.ceil(n / per_block) if grid == "cover" else evaluate(grid, {"n": n})
    if not isinstance(blocks, int) or blocks < 1:
        raise ValueError(f'grid "{grid}" gives {blocks} blocks; write cover or a whole number above 0')
    return blocks


def _array_spec(name: str, spec: Mapping[str, Any], n: int) -> ArraySpec:
    unknown = set(spec) - _FIELDS
    if unknown:
        raise ValueError(
            f"array {name}: {', '.join(sorted(unknown))} is unknown. Allowed: {', '.join(sorted(_FIELDS))}"
        )
    role, dtype = str(spec.get("role", "input")), str(spec.get("dtype", "float32"))
    init = str(spec.get("init", "normal" if "float" in dtype else "uniform"))
    for value, allowed in ((role, _ROLES), (dtype, _DTYPES), (init, _INITS)):
        if value not in allowed:
            raise ValueError(f"array {name}: {value} is not one of {', '.join(allowed)}")
    shape = tuple(evaluate(part, {"n": n}) for part in str(spec.get("shape", "n")).split(","))
    if not all(isinstance(side, int) and side > 0 for side in shape):
        raise ValueError(f"array {name}: shape {shape} must hold whole numbers above 0")
    return ArraySpec(role, dtype, shape, init)


class _Kernel:
    """A compiled source with its arrays on the device."""

    def __init__(self, context: Context, launch: Launch, *, n: int, shared: int, backend: str) -> None:
        import cupy
        import torch

        self._torch, self._cupy = torch, cupy
        self._launch, self._n, self._shared = launch, n, shared
        self._device = torch.device(context.device)
        self._seed = context.seed
        # CuPy compiles for, and launches on, the current device of the CUDA runtime.
        torch.cuda.set_device(self._device)
        self._tensors = {name: self._empty(spec, context.pad) for name, spec in launch.arrays.items()}
        self._module = cupy.RawModule(
            code=launch.source.read_text(encoding="utf-8"), options=launch.options, backend=backend
        )
        self._entry = self._module.get_function(launch.entry)
        self._arguments = self._pointers(launch.args)
        self._stream: Any = None
        self._stream_pointer: int | None = None

    def workload(self, *, layout: str, layout_args: list[str], flops: str, reference: Mapping[str, str]) -> Workload:
        """Fill the arrays, launch once to see that it works, and describe the step."""
        lay = self._module.get_function(layout) if layout else None
        lay_arguments = self._pointers(tuple(layout_args))

        def redraw(seed: int) -> None:
            self._draw(seed)
            if lay is not None:
                self._call(lay, lay_arguments)

        redraw(self._seed)
        self._call(self._entry, self._arguments)
        self._torch.cuda.synchronize(self._device)
        return Workload(
            step=lambda: self._call(self._entry, self._arguments),
            work=self._work(flops),
            outputs=lambda: self._of_role("output"),
            inputs=self._read_by_entry,
            redraw=redraw,
            reference=(lambda: self._reference(reference)) if reference else None,
            counters=lambda: {"launches": 1.0},
            facts=self._facts(),
            close=self._tensors.clear,
        )

    def _empty(self, spec: ArraySpec, pad: int) -> Any:
        dtype = getattr(self._torch, spec.dtype)
        size = self._torch.empty((), dtype=dtype).element_size()
        skip = pad // _ALIGNMENT * _ALIGNMENT // size
        flat = self._torch.empty(math.prod(spec.shape) + skip, dtype=dtype, device=self._device)
        return flat[skip:].view(spec.shape)

    def _pointers(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        import numpy as np

        found: list[Any] = []
        for name in names:
            if name in self._tensors:
                found.append(np.uint64(self._tensors[name].data_ptr()))
            else:
                found.append(np.int64(evaluate(name, {"n": self._n})))
        return tuple(found)

    def _call(self, function: Any, arguments: tuple[Any, ...]) -> None:
        pointer = self._torch.cuda.current_stream().cuda_stream
        if pointer != self._stream_pointer:
            self._stream, self._stream_pointer = self._cupy.cuda.ExternalStream(pointer), pointer
        with self._stream:
            function(self._launch.grid, self._launch.block, arguments, shared_mem=self._shared)

    def _draw(self, seed: int) -> None:
        generator = self._torch.Generator(device=self._device)
        generator.manual_seed(seed)
        for name, spec in self._launch.arrays.items():
            if spec.role == "input":
                _fill(self._tensors[name], spec.init, generator)

    def _of_role(self, role: str) -> dict[str, Any]:
        return {name: self._tensors[name] for name, spec in self._launch.arrays.items() if spec.role == role}

    def _read_by_entry(self) -> dict[str, Any]:
        found = self._of_role("input") | self._of_role("stored")
        return {name: tensor for name, tensor in found.items() if name in self._launch.args}

    def _work(self, flops: str) -> Work:
        touched = sum(t.numel() * t.element_size() for name, t in self._tensors.items() if name in self._launch.args)
        cache = self._torch.cuda.get_device_properties(self._device).L2_cache_size
        roofs = {"dram": float(touched)} if touched > 2 * cache else {}
        return Work(
            bytes=touched, flops=float(evaluate(flops, {"n": self._n})), items=self._n, item="elements", roofs=roofs
        )

    def _reference(self, expressions: Mapping[str, str]) -> dict[str, Any]:
        inputs = {name: tensor.double() for name, tensor in self._of_role("input").items()}
        return {name: evaluate(text, inputs) for name, text in expressions.items()}

    def _facts(self) -> dict[str, Any]:
        found = self._entry.attributes
        return {
            "registers": int(found["num_regs"]),
            "local_bytes": int(found["local_size_bytes"]),
            "shared_bytes": int(found["shared_size_bytes"]) + self._shared,
            "binary_version": int(found["binary_version"]),
            "grid": self._launch.grid[0],
            "block": self._launch.block[0],
            "compile_options": " ".join(self._launch.options),
        }


def _fill(tensor: Any, init: str, generator: Any) -> None:
    """Fill in place: normal noise, uniform (0..1, or all bytes of an integer's low half), or zeros."""
    draw: Callable[[], object]
    if init == "zeros":
        draw = tensor.zero_
    elif not tensor.is_floating_point():
        draw = lambda: tensor.random_(0, 2**7, generator=generator)  # noqa: E731
    elif init == "normal":
        draw = lambda: tensor.normal_(generator=generator)  # noqa: E731
    else:
        draw = lambda: tensor.uniform_(generator=generator)  # noqa: E731
    draw()
