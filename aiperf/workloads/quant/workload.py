"""quant.linear: one linear layer with weights and activations in floating point or quantised.

What must not live here: the rounding and its products (schemes.py), training, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.quant import schemes
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.seeded import Charge, draw_on_device, empty, memory_charge, torch_dtype
from aiperf.workloads.shared.tried import tried

_HISTORY = 1024
"""Steps whose scales a delayed one is chosen from."""
_FEW = 64
"""Rows below which reading the weight binds the layer, not the product."""


def linear(
    context: Context,
    *,
    m: int = 1,
    n: int = 4096,
    k: int = 4096,
    weights: Literal["float", "int8", "int4", "int4_symmetric", "fp8"] = "float",
    activations: Literal["float", "int8", "fp8"] = "float",
    activation_scale: Literal["static", "dynamic", "delayed"] = "static",
    fused: bool = True,
    compiled: bool = False,
) -> Workload:
    """One layer y = x W^T without bias: x [m, k], W [n, k], y [m, n]; book, chapters 13 and 16.

    ``float`` is bfloat16 on a GPU and beside 4-bit weights, else float32. Weights are rounded to nearest in set-up:
    int8 with a scale a row, fp8 (e4m3) with one scale, int4 with scale and zero for each 128 neighbours, or with a
    scale alone (``int4_symmetric``), which a Triton kernel of our own multiplies with fp8 activations. Activations
    are rounded in the step, with one scale: ``static`` is the largest value seen in set-up, ``dynamic`` is sought anew
    in each step, ``delayed`` is the largest of 1024 steps before, to which the step adds its own. ``fused`` multiplies
    what is stored; otherwise it is turned back into floats by passes of their own. ``compiled``: by torch.compile.

    FLOPs: 2mnk; bytes: the weight as stored with its scales, x and y. The named check ``relative_frobenius`` is
    ||y - y_before|| / ||y_before||.
    """
    _check(m, n, k, weights=weights, activations=activations, fused=fused)
    kind = torch_dtype("bfloat16" if context.on_gpu or weights == "int4" else "float32")
    x, w = (empty(context, shape, kind) for shape in ((m, k), (n, k)))
    held: dict[str, Any] = {}

    def redraw(seed: int) -> None:
        for name, array in (("x", x), ("w", w)):
            draw_on_device(array, seed=seed, name=name)
        if weights != "float":
            held["weight"] = schemes.store(w, weights)
        if activations != "float":
            held["scale"] = schemes.activation_scale(x, activations)
            held["history"] = held["scale"].repeat(_HISTORY)

    redraw(context.seed)

    def scale() -> Any:
        if activation_scale == "delayed":
            return schemes.delayed_scale(x, held["history"], activations)
        return schemes.activation_scale(x, activations) if activation_scale == "dynamic" else held["scale"]

    if weights == "float":
        multiply: Callable[[], Any] = partial(torch.nn.functional.linear, x, w)
    else:
        make = schemes.product if fused else schemes.separate
        multiply = make(x, lambda: held["weight"], scale, activations=activations)
    if compiled:
        multiply = tried(torch.compile(multiply, dynamic=False), "torch.compile does not take this layer here")
    latest: dict[str, Any] = {}

    def step() -> None:
        latest["y"] = multiply()

    step()
    size = held["weight"].bytes if held else float(w.nbytes)
    return Workload(
        step=step,
        work=_work(context, x, w, size, weights),
        outputs=lambda: dict(latest),
        inputs=lambda: {"x": x, "w": w},
        redraw=redraw,
        reference=lambda: {"y": x.double() @ w.double().t()},
        checks={"relative_frobenius": relative_frobenius},
        facts={
            "weight_bytes": size,
            "bits_per_weight": 8 * size / (n * k),
            "float_dtype": str(x.dtype).removeprefix("torch."),
            "result_dtype": str(latest["y"].dtype).removeprefix("torch."),
            "rounding_error": _rounding_error(w, held),
        },
    )


def _check(m: int, n: int, k: int, *, weights: str, activations: str, fused: bool) -> None:
    if min(m, n, k) < 1 or (weights.startswith("int4") and k % schemes.GROUP):
        raise ValueError(f"m, n, k are {m}, {n}, {k}; each must be 1 or more, and k in groups of 128 for int4")
    if weights == "float" and activations != "float":
        raise ValueError(f"{activations} activations need quantised weights")
    if weights == "float" and not fused:
        raise ValueError("fused: false is about quantised weights")


def _rounding_error(w: Any, held: dict[str, Any]) -> float:
    """||W_stored - W|| / ||W||; 0 for a float weight."""
    if "weight" not in held:
        return 0.0
    wide = w.float()
    return float((schemes.restored(held["weight"], wide.dtype) - wide).norm() / wide.norm())


def _work(context: Context, x: Any, w: Any, size: float, weights: str) -> Work:
    """What a step does with a weight of ``size`` bytes as stored; few rows are charged to memory, many to the float
    product."""
    (m, k), n = x.shape, len(w)
    flops, moved = 2.0 * m * n * k, size + float((m * k + m * n) * x.element_size())
    charge: Charge = {}
    if m < _FEW:
        charge = memory_charge(context.device, moved)
    elif weights == "float":
        charge = {"peaks": {"gemm_bf16" if context.on_gpu else "cpu_gemm_fp32": flops}}
    return Work(bytes=moved, flops=flops, items=m, item="rows", **charge)
