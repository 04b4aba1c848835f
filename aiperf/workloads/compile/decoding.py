"""compile.decode: decoding steps of flex_attention whose mask depends on a number that changes with every step.

What must not live here: other functions under torch.compile (subjects.py), other ways of attention, timing.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from aiperf.workloads.compile.anew import begun_anew, try_vector_instructions
from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.compiler_counts import compiler_counts
from aiperf.workloads.shared.seeded import draw_on_device, empty, torch_dtype

_BLOCK = 128
"""Keys of a block of the mask; the newest position moves within the last one."""


class MaskedDecode(nn.Module):
    """Attention of one query over keys and values [1, kv_heads, kv_len, head_dim] up to the newest position, which is
    an argument or, without one, an attribute of the module."""

    def __init__(self, keys: Any, values: Any, newest: Any) -> None:
        super().__init__()
        self.keys, self.values, self.newest = keys, values, newest
        whole = keys.shape[2] // _BLOCK - 1
        to = {"dtype": torch.int32, "device": keys.device}
        self.whole = torch.full((1, 1, 1), whole, **to)
        self.whole_at = torch.arange(whole + 1, **to).view(1, 1, 1, -1)
        self.cut = torch.ones((1, 1, 1), **to)
        self.cut_at = self.whole_at.roll(1, dims=3)

    def forward(self, q: Any, newest: Any = None) -> Any:
        """Q and the result are [1, heads, 1, head_dim]."""
        newest = self.newest if newest is None else newest

        def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return key <= newest

        blocks = BlockMask.from_kv_blocks(
            self.cut,
            self.cut_at,
            self.whole,
            self.whole_at,
            BLOCK_SIZE=_BLOCK,
            mask_mod=seen,
            seq_lengths=(1, self.keys.shape[2]),
            compute_q_blocks=False,
        )
        return flex_attention(q, self.keys, self.values, block_mask=blocks, enable_gqa=True)


class _MaskedSteps:
    """The steps of one text, each a call whose newest position is one more than that of the call before."""

    def __init__(self, queries: Any, keys: Any, values: Any, *, scalar: str, held: str) -> None:
        self._queries, self._scalar, self._held = queries, scalar, held
        self._first = keys.shape[2] - len(queries)
        self._tensor = torch.zeros((), dtype=torch.int64, device=keys.device)
        self.module = MaskedDecode(keys, values, self._tensor if scalar == "tensor" else 0)
        self.out = torch.empty_like(queries)

    def run(self, compiled: Any) -> None:
        """All results are written anew."""
        for step, query in enumerate(self._queries):
            self.out[step].copy_(compiled(query[None], *self._arguments(self._first + step))[0])

    def _arguments(self, newest: int) -> tuple[Any, ...]:
        """What the module is called with besides the query; its own attribute is set."""
        if self._scalar == "tensor":
            self._tensor.fill_(newest)
        if self._held == "argument":
            return (self._tensor if self._scalar == "tensor" else newest,)
        if self._scalar == "python":
            self.module.newest = newest
        return ()


def decode(
    context: Context,
    *,
    scalar: Literal["python", "tensor"] = "python",
    held: Literal["module", "argument"] = "module",
    steps: int = 100,
    kv_len: int = 4096,
    heads: int = 32,
    kv_heads: int = 8,
    head_dim: int = 128,
    dtype: Literal["float32", "bfloat16"] = "float32",
    backend: Literal["eager", "aot_eager", "inductor"] = "inductor",
    compiler_files: Literal["anew", "kept"] = "anew",
) -> Workload:
    """``steps`` decoding steps of flex_attention under torch.compile with its defaults, compilation included.

    Each is a query of ``heads`` over the keys of ``kv_heads`` up to the newest one, which moves through the last
    ``steps`` of ``kv_len`` positions. Keys and values of all positions are there before. The mask reads the newest
    position, ``held`` as an attribute of the ``module`` or passed as an ``argument``: ``python``, a number that is
    another one in each step, or ``tensor``, whose value is written over in place. torch.compile takes a module's number
    for a constant, and runs the module uncompiled after eight of them; an argument's becomes dynamic at its second.

    A step drops all compiled code first, with Inductor's files in a folder of its own, or one that is ``kept``: then
    all but the first find their code there, and pay for tracing and loading. FLOPs: 4 x heads x keys x head_dim, over
    the keys that count. Items: tokens (book, chapter 18).
    """
    _check(steps, kv_len, heads, kv_heads, head_dim)
    if compiler_files == "kept" and backend != "inductor":
        raise ValueError("compiler_files: kept is Inductor's; it needs backend: inductor")
    shapes = {"q": (steps, heads, 1, head_dim)} | dict.fromkeys("kv", (1, kv_heads, kv_len, head_dim))
    arrays = {name: empty(context, shape, torch_dtype(dtype)) for name, shape in shapes.items()}

    def redraw(seed: int) -> None:
        for name, array in arrays.items():
            draw_on_device(array, seed=seed, name=name)

    redraw(context.seed)
    if backend == "inductor" and not context.on_gpu:
        try_vector_instructions()
    turns = _MaskedSteps(*arrays.values(), scalar=scalar, held=held)
    counted: dict[str, float] = {}

    def step() -> None:
        with begun_anew(backend, context.scratch, kept=compiler_files == "kept"), torch.no_grad():
            turns.run(torch.compile(turns.module, backend=backend))
            counted.update(compiler_counts("graphs", "compiles", "cache_hits"))

    keys = sum(range(kv_len - steps + 1, kv_len + 1))
    return Workload(
        step=step,
        work=Work(flops=4.0 * heads * keys * head_dim, items=steps, item="tokens"),
        outputs=lambda: {"out": turns.out},
        inputs=lambda: dict(arrays),
        redraw=redraw,
        reference=lambda: {"out": _truth(*arrays.values())},
        checks={"relative_frobenius": relative_frobenius},
        anew=backend == "inductor",
        counters=lambda: dict(counted),
    )


def _check(steps: int, kv_len: int, heads: int, kv_heads: int, head_dim: int) -> None:
    if not 1 <= steps <= _BLOCK or kv_len % _BLOCK or kv_len <= _BLOCK:
        raise ValueError(f"kv_len must be two or more times {_BLOCK}, and steps 1 to {_BLOCK}: one block of the mask")
    if min(heads, kv_heads, head_dim) < 1 or heads % kv_heads:
        raise ValueError(f"heads {heads} must be a multiple of kv_heads {kv_heads}, and head_dim 1 or more")


def _truth(queries: Any, keys: Any, values: Any) -> Any:
    """The results of all steps [steps, heads, 1, head_dim] in float64."""
    steps, kv_len = len(queries), keys.shape[2]
    seen = torch.ones(steps, kv_len, dtype=torch.bool, device=keys.device).tril(kv_len - steps)
    rows = queries[:, :, 0].transpose(0, 1)[None].double()
    found = torch.nn.functional.scaled_dot_product_attention(
        rows, keys.double(), values.double(), attn_mask=seen, enable_gqa=True
    )
    return found[0].transpose(0, 1)[:, :, None]
