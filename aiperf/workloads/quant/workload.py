"""quant.linear: one linear layer with weights and activations in floating point or quantised.

What must not live here: the rounding and its products (schemes.py), calibration (calibrated.py), training, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.quant import calibrated, ranges, schemes
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.seeded import Charge, empty, memory_charge, torch_dtype
from aiperf.workloads.shared.tried import tried

METRICS = {"linear": {"output_error": ("", "lower"), "clipped": ("", "lower")}}
"""Given with ``report_error``."""
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
    activation_scale: Literal["static", "dynamic", "delayed", "sliding"] = "static",
    pieces: int = 1,
    drift: float = 1.0,
    rounding: Literal["torch", "triton"] = "torch",
    granularity: Literal["own", "tensor", "row", "block32"] = "own",
    method: Literal["rtn", "gptq", "awq", "smoothquant"] = "rtn",
    calibration: Literal["alike", "unlike"] = "alike",
    calibration_rows: int = 4096,
    activation_outliers: int = 0,
    weight_outliers: int = 0,
    report_error: bool = False,
    fused: bool = True,
    compiled: bool = False,
) -> Workload:
    """One layer y = x W^T without bias: x [m, k], W [n, k], y [m, n]; book, chapters 13 and 16.

    ``float`` is bfloat16 on a GPU and beside 4-bit weights, else float32. Weights are rounded to nearest in set-up:
    int8 with a scale a row, fp8 (e4m3) with one scale, int4 with scale and zero for each 128 neighbours, or with a
    scale alone (``int4_symmetric``), which a Triton kernel of our own multiplies with activations of either kind.
    These are rounded in the step, with one scale: ``static`` is the largest value seen in set-up, ``dynamic`` is sought
    anew in each step, ``delayed`` is the largest of 1024 steps before, to which the step adds its own. Rows may come in
    ``pieces`` of equal size, one after the other, growing to ``drift`` times the size from the first row to the last:
    then ``static`` is the largest value of the first piece, ``sliding`` that of the two pieces before, anew for each,
    and ``delayed`` that of the pieces before and of the first, as set-up found it. ``rounding: triton``: to fp8, by
    kernels of our own; a dynamic scale takes two passes over the activations, a delayed one seeks the next in the pass
    that rounds. ``fused`` multiplies what is stored; otherwise it is turned back into floats by passes of their own.
    ``compiled``: by torch.compile.

    ``granularity`` other than its own: int8 with one scale, int4 with one for the tensor, a row or 32 neighbours;
    int8 with one for 32 neighbours, if not ``fused``.
    ``method``: ``gptq`` and ``awq`` of int4, ``smoothquant`` of int8, from ``calibration_rows`` others; the latter
    two divide input channels, which the step does to x. ``activation_outliers``: input channels 20 times as large, and
    all share k / 8 factors, half of their variance; ``calibration: unlike`` has other ones. ``weight_outliers``: rows
    of W 3 times as large. ``report_error`` gives ||y - x W^T|| / ||x W^T||, of the unrounded x and W, as
    ``output_error`` and the share of activations past their scale as ``clipped``.

    FLOPs: 2mnk; bytes: the weight as stored with its scales, x and y. The named check ``relative_frobenius`` is
    ||y - y_before|| / ||y_before||.
    """
    _check(m, n, k, weights=weights, activations=activations, fused=fused)
    _check_rounding(k, weights, activations, granularity=granularity, method=method, fused=fused)
    way = {"kind": activations, "how": activation_scale, "rounding": rounding}
    ranges.check(m, pieces, drift, compiled=compiled, fused=fused, **way)
    outliers = calibrated.OutlierChannels(activation_outliers, weight_outliers)
    if not (0 <= activation_outliers <= k and 0 <= weight_outliers <= n):
        raise ValueError("outliers are channels: no more than k of activations and n of weights, and 0 or more")
    kind = torch_dtype("bfloat16" if context.on_gpu or weights == "int4" else "float32")
    x, w = (empty(context, shape, kind) for shape in ((m, k), (n, k)))
    held: dict[str, Any] = {}
    rows = ranges.Activations(x, kind=activations, pieces=pieces, how=activation_scale, rounding=rounding)

    def redraw(seed: int) -> None:
        held.pop("truth", None)
        calibrated.draw(x, w, outliers, seed=seed)
        ranges.grow(x, drift)
        if weights != "float":
            held["weight"], held["multiplier"] = calibrated.stored(
                w, None if method == "rtn" else others(seed), weights, method=method, granularity=granularity
            )
        rows.calibrate(held.get("multiplier"))

    def others(seed: int) -> Any:
        return calibrated.calibration(x, outliers, rows=calibration_rows, seed=seed, alike=calibration == "alike")

    redraw(context.seed)

    if weights == "float":
        multiply: Callable[[], Any] = partial(torch.nn.functional.linear, x, w)
    else:
        make = partial(schemes.product, in_fp8=rows.codes) if fused else schemes.separate
        multiply = make(rows.taken, lambda: held["weight"], rows.scale, activations=activations)
    if compiled:
        multiply = tried(torch.compile(multiply, dynamic=False), "torch.compile does not take this layer here")
    latest: dict[str, Any] = {}

    def step() -> None:
        latest["y"] = rows.whole(multiply)

    step()
    size = held["weight"].bytes if "weight" in held else float(w.nbytes)
    return Workload(
        step=step,
        work=_work(context, x, w, size, weights),
        outputs=lambda: dict(latest),
        inputs=lambda: {"x": x, "w": w},
        redraw=redraw,
        reference=lambda: {"y": x.double() @ w.double().t()},
        values=(lambda: _values(x, w, held, latest["y"], rows)) if report_error else None,
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


def _check_rounding(k: int, weights: str, activations: str, *, granularity: str, method: str, fused: bool) -> None:
    """Raises ValueError for ways of rounding that a format or its product does not know."""
    known = {"int8": ("own", "tensor", "row", "block32"), "int4": tuple(schemes.INT4_GROUPS)}.get(weights, ("own",))
    if granularity not in known:
        raise ValueError(f"granularity of {weights} weights is one of {', '.join(known)}")
    if (weights, granularity) == ("int8", "block32") and (k % 32 or fused):
        raise ValueError("granularity block32 of int8 needs k in groups of 32, and fused: false, for want of a product")
    if weights == "int4" and k % schemes.INT4_GROUPS[granularity]:
        raise ValueError(f"granularity {granularity} needs k in groups of {schemes.INT4_GROUPS[granularity]}")
    needs = {"gptq": ("int4", "float"), "awq": ("int4", "float"), "smoothquant": ("int8", "int8")}
    if method != "rtn" and (weights, activations) != needs[method]:
        raise ValueError(f"method {method} is for {needs[method][0]} weights with {needs[method][1]} activations")
    if method in ("gptq", "awq") and granularity != "own":
        raise ValueError(f"method {method} rounds by groups of 128; it needs granularity: own")
    if method != "rtn" and not fused:
        raise ValueError(f"method {method} needs fused: true")


def _values(x: Any, w: Any, held: dict[str, Any], y: Any, rows: ranges.Activations) -> dict[str, float]:
    return {"output_error": _output_error(x, w, held, y), "clipped": rows.clipped()}


def _output_error(x: Any, w: Any, held: dict[str, Any], y: Any) -> float:
    """How far the layer is from the unrounded one, whose result is kept until the next inputs."""
    if "truth" not in held:
        held["truth"] = x.double() @ w.double().t()
    return float((y.double() - held["truth"]).norm() / held["truth"].norm())


def _rounding_error(w: Any, held: dict[str, Any]) -> float:
    """||W_stored - W|| / ||W||; 0 for a float weight."""
    if "weight" not in held:
        return 0.0
    wide = w.float()
    kept, by = schemes.restored(held["weight"], wide.dtype), held["multiplier"]
    return float(((kept if by is None else kept * by) - wide).norm() / wide.norm())


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
