"""linalg.matmul: C = A @ B at a stated shape and precision, on a GPU or a CPU.

What must not live here: kernels of our own (see cuda.py), quantised weights, timing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload

_ALIGNMENT = 256
_TORCH_DTYPE = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def matmul(
    context: Context,
    *,
    m: int,
    n: int,
    k: int,
    dtype: Literal["fp32", "tf32", "bf16", "fp16"] = "bf16",
    full_precision: bool = False,
) -> Workload:
    """One product into an output that was allocated before. ``fp32`` keeps TF32 off, ``tf32`` asks for it.

    ``full_precision`` means fp32 whatever ``dtype`` says: the side that a sweep of types is held against. Inputs are
    drawn in float32 and then rounded, so that two precisions multiply the same numbers. The named check
    ``relative_frobenius`` is ||C - C_before|| / ||C_before||.
    """
    if min(m, n, k) < 1:
        raise ValueError(f"m, n, k are {m}, {n}, {k}; each must be 1 or more")
    on_gpu = context.device.startswith("cuda")
    used = "fp32" if full_precision else dtype
    if used == "tf32" and not on_gpu:
        raise SkipSide("TF32 is a mode of NVIDIA tensor cores and needs a GPU")
    import torch

    device = torch.device(context.device)
    if on_gpu:
        torch.cuda.set_device(device)
    kind = getattr(torch, _TORCH_DTYPE[used])
    a, b, out = (_matrix(context, shape, kind) for shape in ((m, k), (k, n), (m, n)))
    generator = torch.Generator(device=device)

    def redraw(seed: int) -> None:
        generator.manual_seed(seed)
        for matrix in (a, b):
            matrix.copy_(torch.randn(matrix.shape, generator=generator, device=device, dtype=torch.float32))

    redraw(context.seed)
    mode = "high" if used == "tf32" else "highest"

    def step() -> None:
        # The mode belongs to the process, and the other side may live in it too.
        torch.set_float32_matmul_precision(mode)
        torch.mm(a, b, out=out)

    step()
    flops = 2.0 * m * n * k
    return Workload(
        step=step,
        work=Work(bytes=sum(_size(t) for t in (a, b, out)), flops=flops, roofs=_roof(used, on_gpu, flops)),
        outputs=lambda: {"c": out},
        inputs=lambda: {"a": a, "b": b},
        redraw=redraw,
        reference=lambda: {"c": a.double() @ b.double()},
        counters=lambda: {"products": 1.0},
        checks={"relative_frobenius": relative_frobenius},
        facts={"float32_matmul_precision": torch.get_float32_matmul_precision(), "torch_dtype": str(out.dtype)},
    )


def relative_frobenius(before: Mapping[str, Any], ours: Mapping[str, Any]) -> Outcome:
    """||ours - before|| / ||before|| over all outputs (float64 sums); a value that is not finite fails."""
    import numpy as np

    if set(before) != set(ours) or not before:
        return Outcome(False, f"outputs are {sorted(before)} and {sorted(ours)}")
    difference = norm = 0.0
    for name, first in before.items():
        wide = np.asarray(first, dtype=np.float64)
        difference += float(np.square(np.asarray(ours[name], dtype=np.float64) - wide).sum())
        norm += float(np.square(wide).sum())
    value = float(np.sqrt(difference / norm)) if norm else float("inf")
    if not np.isfinite(value):
        return Outcome(False, "an output holds values that are not finite, or nothing but zeros", value)
    return Outcome(True, f"relative Frobenius error {value:.2g}", value)


def _matrix(context: Context, shape: tuple[int, int], dtype: Any) -> Any:
    import torch

    skip = context.pad // _ALIGNMENT * _ALIGNMENT // torch.empty((), dtype=dtype).element_size()
    flat = torch.empty(shape[0] * shape[1] + skip, dtype=dtype, device=context.device)
    return flat[skip:].view(shape)


def _size(tensor: Any) -> float:
    return float(tensor.numel() * tensor.element_size())


def _roof(dtype: str, on_gpu: bool, flops: float) -> dict[str, float]:
    if on_gpu:
        return {f"gemm_{dtype}": flops}
    return {"cpu_gemm_fp32": flops} if dtype == "fp32" else {}
