"""Family attention.forward: scaled dot-product attention by a stated backend.

What must not live here: timing, training steps, caches of keys and values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

from aiperf.workloads._seeded import normal, torch_dtype
from aiperf.workloads.contract import Context, SkipSide, Work, Workload

_GEMM_ROOF = {"float32": "gemm_fp32", "bfloat16": "gemm_bf16", "float16": "gemm_fp16"}
_FUSED = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}


def _composed(q: Any, k: Any, v: Any, *, hidden: Any, scale: float) -> Callable[[], Any]:
    """Attention as three calls; the whole score matrix is written out between them."""
    import torch

    def run() -> Any:
        scores = torch.matmul(q, k.transpose(-1, -2)) * scale
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.matmul(torch.softmax(scores, dim=-1), v)

    return run


def _fused(q: Any, k: Any, v: Any, *, backend: str, causal: bool) -> Callable[[], Any]:
    """One call of scaled_dot_product_attention, held to one backend unless that is ``default``."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    pinned = getattr(SDPBackend, _FUSED[backend]) if backend in _FUSED else None

    def run() -> Any:
        with sdpa_kernel(pinned) if pinned is not None else contextlib.nullcontext():
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    try:
        run()
    except RuntimeError as error:
        raise SkipSide(f"attention backend {backend} does not take these inputs here: {error}") from error
    return run


def forward(
    context: Context,
    *,
    backend: Literal["composed", "math", "flash", "efficient", "cudnn", "default"] = "default",
    batch: int = 1,
    heads: int = 8,
    head_dim: int = 64,
    kv_len: int = 1024,
    mask: Literal["none", "causal"] = "causal",
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
) -> Workload:
    """Self-attention over ``kv_len`` positions, forward only; the inputs ask for no gradients.

    FLOPs count the allowed query-key pairs only (4 x batch x heads x pairs x head_dim): under a causal mask a backend
    that computes the hidden half earns nothing for it.
    """
    import torch

    causal = mask == "causal"
    kind, shape = torch_dtype(dtype), (batch, heads, kv_len, head_dim)
    q, k, v = (normal(context, name, shape, dtype=kind) for name in "qkv")
    hidden = torch.ones(kv_len, kv_len, dtype=torch.bool, device=context.device).triu(1) if causal else None
    scale = head_dim**-0.5
    if backend == "composed":
        run = _composed(q, k, v, hidden=hidden, scale=scale)
    else:
        run = _fused(q, k, v, backend=backend, causal=causal)
    latest: dict[str, Any] = {}

    def step() -> None:
        latest["out"] = run()

    def reference() -> dict[str, Any]:
        wide = _composed(q.double(), k.double(), v.double(), hidden=hidden, scale=scale)
        return {"out": wide()}

    pairs = kv_len * (kv_len + 1) // 2 if causal else kv_len * kv_len
    flops = 4.0 * batch * heads * pairs * head_dim
    roof = _GEMM_ROOF[dtype] if context.device.startswith("cuda") else f"cpu_{_GEMM_ROOF[dtype]}"
    return Workload(
        step=step,
        work=Work(
            bytes=4.0 * q.numel() * q.element_size(),
            flops=flops,
            items=batch * kv_len,
            item="tokens",
            roofs={} if roof in ("cpu_gemm_bf16", "cpu_gemm_fp16") else {roof: flops},
        ),
        outputs=lambda: dict(latest),
        inputs=lambda: {"q": q, "k": k, "v": v},
        reference=reference,
        facts={"backend": backend, "score_bytes": batch * heads * kv_len**2 * q.element_size()},
    )
