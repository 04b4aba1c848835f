"""Attention by each backend: three calls, torch's fused call, flex_attention, padded and jagged batches.

What must not live here: drawing of inputs, counting of work, timing.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aiperf.workloads.attention.masks import Mask
from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.tried import tried

Run = Callable[[], Any]
_PINNED = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
FUSED = ("default", *_PINNED)
"""What ``fused`` takes."""


def composed(q: Any, k: Any, v: Any, *, mask: Mask) -> Run:
    """Attention as three calls, the whole score matrix written out between them. q is [batch, heads, q_len, head_dim],
    k and v [batch, kv_heads, kv_len, head_dim]; heads that share a KV head are stacked as further queries of it."""
    (batch, heads, q_len, head_dim), kv_heads = q.shape, k.shape[1]
    together = heads // kv_heads
    hidden = mask.hidden(str(q.device))
    hidden = None if hidden is None else hidden.repeat(together, 1)
    bias = mask.bias(str(q.device), q.dtype)
    bias = None if bias is None else bias.repeat(together, 1)
    scale = head_dim**-0.5

    def run() -> Any:
        rows = q.reshape(batch, kv_heads, together * q_len, head_dim)
        scores = torch.matmul(rows, k.transpose(-1, -2)) * scale
        if bias is not None:
            scores = scores + bias
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.matmul(torch.softmax(scores, dim=-1), v).view(q.shape)

    return run


def fused(q: Any, k: Any, v: Any, *, backend: str, mask: Mask) -> Run:
    """One call of scaled_dot_product_attention, restricted to one backend unless that is ``default``; a mask other than
    none and the square causal one is passed as a dense additive array of q's type."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    pinned = getattr(SDPBackend, _PINNED[backend]) if backend in _PINNED else None
    causal = mask.kind == "causal" and mask.q_len == mask.kv_len and not mask.slope
    grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    bias = mask.bias(str(q.device), q.dtype)
    if mask.kind != "none" and not causal:
        hidden = mask.hidden(str(q.device))
        bias = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device) if bias is None else bias
        bias.masked_fill_(hidden, float("-inf"))

    def run() -> Any:
        with sdpa_kernel(pinned) if pinned is not None else contextlib.nullcontext():
            return scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal, **grouped)

    return tried(run, f"attention backend {backend} does not support these inputs here")


class _Called(TorchDispatchMode):
    """Notes the backends of attention that are called in it."""

    def __init__(self) -> None:
        super().__init__()
        self.backends: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name == "aten::scaled_dot_product_attention":  # whole in inference mode
            with self:
                return func.decompose(*args, **(kwargs or {}))
        self.backends += re.findall(r"::_scaled_dot_product_(\w+)_attention", name)
        return func(*args, **(kwargs or {}))


def backend_of(run: Run) -> str:
    """The backend that torch runs for ``run``, made by ``fused``: with ``default`` it chooses by version, GPU, mask and
    shape. Calls ``run`` once."""
    with _Called() as called:
        run()
    # The math backend is made of products and a softmax.
    return "+".join(sorted(set(called.backends))) or "math"


def flex(q: Any, k: Any, v: Any, *, mask: Mask) -> Run:
    """Torch's flex_attention, compiled, with a block mask. Raises SkipSide off the GPU and where it cannot be
    compiled."""
    if not q.is_cuda:
        raise SkipSide("flex_attention compiles to a Triton kernel and needs a GPU")
    try:
        import triton  # noqa: F401
        from torch.nn.attention.flex_attention import flex_attention
    except ImportError as error:
        raise SkipSide(f"flex_attention is not available here: {error}") from error
    blocks = block_mask(mask, str(q.device))
    compiled = torch.compile(flex_attention, dynamic=False)
    grouped = q.shape[1] != k.shape[1]
    multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
    added = _distances(mask) if mask.slope else None
    options = decode_options(mask, sequences=q.shape[0] * k.shape[1], multiprocessors=multiprocessors)

    def run() -> Any:
        return compiled(q, k, v, score_mod=added, block_mask=blocks, enable_gqa=grouped, kernel_options=options)

    return tried(run, "flex_attention does not compile for these inputs here")


def _distances(mask: Mask) -> Callable[..., Any]:
    """What a key's distance takes from its score, as flex_attention takes it."""

    def added(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        return score + mask.distance_score(query, key)

    return added


def decode_options(mask: Mask, *, sequences: int, multiprocessors: int) -> dict[str, int]:
    """Options of flex_attention's kernel for a single query, empty for more: two programs for each multiprocessor,
    times the share of parts that a window leaves without work, and three stages of loads (torch 2.13 overwrites them
    with one)."""
    if mask.q_len > 1:
        return {}
    parts = max(1, 2 * multiprocessors // sequences)
    return {"SPLIT_KV": parts * -(-mask.kv_len // mask.keys_seen()), "num_stages": 3}


def block_mask(mask: Mask, device: str) -> Any:
    """The mask as flex_attention takes it; None for ``none``, except with a single query, whose kernel gives all keys
    to its first part without one (torch 2.13)."""
    from torch.nn.attention.flex_attention import create_block_mask

    if mask.kind == "none" and mask.q_len > 1:
        return None

    def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return mask.allowed(query, key)

    return create_block_mask(seen, None, None, mask.q_len, mask.kv_len, device=device)


def padded(q: Any, k: Any, v: Any, *, lengths: Sequence[int]) -> Run:
    """Sequences of unequal lengths in one batch, padding hidden by a mask. q, k, v are [batch, heads, longest,
    head_dim]; gives the valid part of each sequence: [heads, length, head_dim]."""
    from torch.nn.functional import scaled_dot_product_attention

    ends = torch.tensor(lengths, device=q.device)
    seen = (torch.arange(q.shape[2], device=q.device)[None, :] < ends[:, None])[:, None, None, :]

    def run() -> Any:
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return [out[i, :, :length] for i, length in enumerate(lengths)]

    return run


def jagged(q: Any, k: Any, v: Any, *, lengths: Sequence[int]) -> Run:
    """The same sequences packed one behind the other: torch's jagged nested tensors, and on the CPU a call for each.

    q, k, v are [tokens, heads, head_dim]; gives [heads, length, head_dim] of each. Raises SkipSide.
    """
    from torch.nn.functional import scaled_dot_product_attention

    def cut(x: Any) -> list[Any]:
        return [part.transpose(0, 1) for part in x.split(list(lengths))]

    if not q.is_cuda:
        each = [[part[None] for part in parts] for parts in zip(cut(q), cut(k), cut(v), strict=True)]
        return lambda: [scaled_dot_product_attention(*parts)[0] for parts in each]
    offsets = torch.tensor([0, *itertools.accumulate(lengths)], device=q.device)
    ends = {"min_seqlen": min(lengths), "max_seqlen": max(lengths)}
    nested = [torch.nested.nested_tensor_from_jagged(x, offsets, **ends).transpose(1, 2) for x in (q, k, v)]
    fault = "attention over jagged tensors is not available here"
    return tried(lambda: cut(scaled_dot_product_attention(*nested).transpose(1, 2).values()), fault)
