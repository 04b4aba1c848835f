"""Entries of a CUDA C++ source, launched over arrays that the scenario describes. Workload: cuda.kernel.

The sources are in kernels/. What must not live here: compiling (compiling.py), a step that synchronises.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

from aiperf.workloads.contract import Context, Size, SkipSide, Workload
from aiperf.workloads.cuda.describe import Description
from aiperf.workloads.cuda.describe import describe as describe_launches
from aiperf.workloads.cuda.running import KernelRun

__all__ = ["Description", "describe", "kernel"]


def kernel(
    context: Context,
    *,
    source: str,
    arrays: dict[str, dict[str, int | float | str | list[int | str]]],
    entry: str = "",
    args: list[int | float | str] | None = None,
    launches: list[dict[str, Any]] | None = None,
    n: int = 0,
    shape: list[int] | None = None,
    dtype: str = "float32",
    variant: str = "",
    defines: dict[str, int | float | str] | None = None,
    options: list[str] | None = None,
    block: int | str | list[int | str] = 256,
    block_choices: list[int] | None = None,
    items: int = 1,
    grid: int | str | list[int | str] = "cover",
    grid_waves: float = 1.0,
    smem: Size = 0,
    carveout: int = -1,
    cluster: int = 1,
    cooperative: bool = False,
    pdl: bool = False,
    repeat: int | str = 1,
    captured: bool = False,
    clear: list[str] | None = None,
    layout: str = "",
    layout_args: list[int | float | str] | None = None,
    flops: int | float | str = 0,
    useful_bytes: int | float | str = "",
    work_items: int | float | str = "n",
    item: str = "elements",
    reference: dict[str, str] | None = None,
    backend: Literal["nvrtc", "nvcc"] = "nvrtc",
) -> Workload:
    """Launch ``entry`` of ``source`` (or each of ``launches``, ``repeat`` times over) per step, on the current stream.

    Source. A file of kernels/ or an absolute path, compiled with -std=c++17, -DN=n, -DITEMS=items (elements per
    thread), ``variant`` (``NAME`` or ``NAME=value``), ``defines``, with ``shape`` also -DROWS, -DCOLS, -DDEPTH, with
    ``cluster`` above 1 -DCLUSTER, and ``options``. Entries are ``extern "C"``.

    Expressions. Text that stands for a number may be an expression (+ - * / // % and brackets) over n, items, rows,
    cols, depth, threads (of a block), sms (multiprocessors), cluster and every define that is a whole number; several
    of them are a list or a text with commas. ``shape`` gives rows, cols, depth and, when n is 0, n as their product;
    without it rows and cols are n.

    Launches. ``launches`` lists {entry, args, grid, grid_waves, block, smem, cooperative}; what one leaves out comes
    from the keywords of the same name. ``block``: threads, ``"x,y"`` or ``"x,y,z"``, or ``occupancy``: what the driver
    suggests or, with ``block_choices``, the first of these sizes of which the most threads are resident, by the
    occupancy API. ``grid``: ``cover`` (just enough blocks for n, at ``items`` elements a thread; with a 2-D block, for
    cols x rows), ``sms`` (multiprocessors x ``grid_waves``), or expressions ``"x,y,z"``; cover and sms are rounded up
    to whole clusters. ``smem``: dynamic shared bytes of a block. ``carveout``: preferred percentage of shared memory,
    -1 leaves it. ``cooperative``: for grid-wide barriers; the grid must be resident. ``pdl``: each launch after the
    first may start before the one ahead of it ends. ``captured``: set-up captures the launches of a step as a CUDA
    graph, which the step replays. ``clear``: arrays set to zero at the start of each step, timed.

    Arrays. name -> {role, dtype, shape, init, low, high, of, linear}. role: ``input`` (drawn from the seed), ``output``
    (written whole by every step), ``stored`` (filled by the untimed entry ``layout`` with ``layout_args`` from the
    inputs), ``scratch`` (zeroed once; neither checked nor counted), ``texture`` (an untimed copy of the float32 input
    ``of`` in a CUDA array; zero outside, ``linear`` 1 mixes the four values around a place). shape: expressions,
    default n. init: normal (default of floats), uniform (default of integers; low <= x < high, by default 0 to 1 for
    floats and 0 to 128 for integers), zeros, ones, arange, permutation (of 0 .. size - 1). ``args``: names of arrays
    (pointers), whole numbers or expressions (64-bit integers; ``turn`` is how often the launches have been repeated
    before), other numbers (32-bit floats).

    Work. ``flops``, ``useful_bytes`` (default: every array that a launch takes, but scratch, once) and ``work_items``
    of ``item``. ``reference``: each output as an expression over the inputs in float64, with abs, sqrt, rsqrt, exp,
    sin, where, maximum, minimum, matmul, transpose and sum besides. Sides of one ``step_digest`` cannot differ.
    """
    description = describe_launches(SimpleNamespace(**locals()))
    if not context.on_gpu:
        raise SkipSide("a CUDA kernel needs a GPU")
    return KernelRun(context, description, backend=backend).workload()


def describe(**given: Any) -> Description:
    """What ``kernel`` would launch with these keywords, without a GPU. Raises ValueError with what is allowed."""
    return describe_launches(SimpleNamespace(**{**(kernel.__kwdefaults__ or {}), **given}))
