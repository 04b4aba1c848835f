"""model.replaced: a transformer whose attention method is exchanged for another one while it stays loaded.

What must not live here: the models, attention by itself (attention/), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from types import MethodType
from typing import Any, Literal

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared import agreement, models
from aiperf.workloads.shared.compiler_counts import compiler_counts
from aiperf.workloads.shared.seeded import gemm_peak

CLOSE = {"float32": 1e-4, "bfloat16": 0.02}
"""How far the answer after an exchange may be from the one before, over its length."""


def replaced(
    context: Context,
    *,
    model: str = "tiny",
    batch: int = 1,
    seq: int = 16,
    dtype: Literal["float32", "bfloat16"] = "float32",
    attention: Literal["kept", "compiled", "cudnn"] = "kept",
) -> Workload:
    """A forward pass of ``batch`` sequences through a random-weight transformer in inference mode.

    Set-up runs the model as it is, then binds another method to each block in place of its attention, projections
    included: the same one ``compiled``, or one that asks for the kernel of ``cudnn``, and takes it only if the model's
    answer stays as it was (1e-4 of its length in float32, 0.02 in bfloat16). With ``kept`` nothing is exchanged.

    Outputs: logits [batch, vocab] after the last position. Counters: ``replaced`` methods, compiled ``graphs``;
    ``replace_s`` is what the exchange took, compilation and the comparison included. Items: tokens. Raises RuntimeError
    where an exchange would change the answer. Source: AI Systems Performance Engineering, chapter 19.
    """
    if model not in models.TRANSFORMERS:
        raise ValueError(f'model "{model}" is not a transformer; there are {", ".join(models.TRANSFORMERS)}')
    if min(batch, seq) < 1:
        raise ValueError("batch and seq must each be 1 or more")
    if attention == "cudnn" and not context.on_gpu:
        raise SkipSide("cuDNN's attention needs a GPU")
    task = models.build(model, seed=context.seed, device=context.device, batch=batch, seq=seq)
    module = task.module.to(getattr(torch, dtype)).eval()
    logits = _last(module, task.batch).clone()
    before, began = compiler_counts("graphs")["graphs"], perf_counter()
    count = 0 if attention == "kept" else exchange(module, _METHODS[attention](), task.batch, within=CLOSE[dtype])
    took = perf_counter() - began

    def step() -> None:
        logits.copy_(_last(module, task.batch))

    shape = models.TRANSFORMERS[model]
    # The head answers for the last position alone.
    flops = task.forward_flops - 2.0 * shape["width"] * shape["vocab"] * (task.items - batch)
    return Workload(
        step=step,
        work=Work(flops=flops, items=task.items, item="tokens", peaks=gemm_peak(context.device, dtype, flops)),
        outputs=lambda: {"logits": logits},
        inputs=lambda: {"batch": task.batch},
        redraw=task.redraw,
        checks={"relative_frobenius": agreement.relative_frobenius},
        counters=lambda: {"replaced": float(count), "graphs": compiler_counts("graphs")["graphs"] - before},
        facts={"parameters": task.parameters, "replace_s": round(took, 3)},
    )


def exchange(module: Any, method: Callable[[Any, Any], Any], tokens: Any, *, within: float) -> int:
    """Bind ``method`` to each block of a transformer in place of its attention; how many there are.

    Raises RuntimeError, with the model as it was, if its answer to ``tokens`` moves by more than ``within`` of its
    length."""
    old = _last(module, tokens).float()
    for block in module.blocks:
        block._attention = MethodType(method, block)
    moved = float((_last(module, tokens).float() - old).norm() / old.norm())
    if not moved <= within:
        for block in module.blocks:
            del block._attention
        raise RuntimeError(f"the other attention moves the answer by {moved:.2g} of its length, more than {within:g}")
    return len(module.blocks)


def _last(module: Any, tokens: Any) -> Any:
    with torch.inference_mode():
        return module.head(module.norm(module.blocks(module.embed(tokens))[:, -1]))


def _compiled() -> Callable[[Any, Any], Any]:
    return torch.compile(models.TransformerBlock._attention, dynamic=False, fullgraph=True)


def _by_cudnn() -> Callable[[Any, Any], Any]:
    def attention(block: Any, x: Any) -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return models.TransformerBlock._attention(block, x)

    return attention


_METHODS: dict[str, Callable[[], Callable[[Any, Any], Any]]] = {"compiled": _compiled, "cudnn": _by_cudnn}
