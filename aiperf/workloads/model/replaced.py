"""model.replaced: a transformer whose attention method is exchanged for another one while it stays loaded.

What must not live here: the models, attention by itself (attention/), timing of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from types import FunctionType, MethodType
from typing import Any, Literal

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared import agreement, models
from aiperf.workloads.shared.compiler_counts import compiler_counts
from aiperf.workloads.shared.seeded import gemm_peak
from aiperf.workloads.shared.tried import attempt

CLOSE = {"float32": 1e-4, "bfloat16": 0.04}
"""How far the answer after an exchange may be from the one before, over its length."""
_SHARP = 3.0
"""What drawn queries and keys are multiplied by: with scores as drawn, a third of a unit apart, every key weighs about
the same, and an attention that sees the wrong ones would give nearly the right answer."""
_KERNELS = {
    "flash": (SDPBackend.FLASH_ATTENTION,),
    "cudnn": (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION),
}
"""attention -> the kernels that it needs; each is tried, and the model starts with the last one."""
_POSITIONS = 16
"""Positions whose logits are the answer."""


def replaced(
    context: Context,
    *,
    model: str = "tiny",
    batch: int = 1,
    seq: int = 16,
    dtype: Literal["float32", "bfloat16"] = "float32",
    attention: Literal["kept", "compiled", "flash", "cudnn"] = "kept",
) -> Workload:
    """A forward pass of ``batch`` sequences through a random-weight transformer in inference mode.

    Set-up runs the model as it is, then binds another method to each block in place of its attention, projections
    included, and keeps it only if the model's answer stays as it was (within 1e-4 of its length in float32, 0.04 in
    bfloat16): with ``compiled`` the same method compiled, with ``cudnn`` one that asks for cuDNN's kernel, in place of
    one that asks for FlashAttention-2's. With ``kept`` and ``flash`` nothing is exchanged; ``flash`` has
    FlashAttention-2's kernel from the start. Queries and keys are drawn so that few keys have most of the weight.

    Outputs: logits [batch, 16, vocab] after 16 positions from the first to the last (after all, if there are fewer).
    Counters: ``replaced`` methods, ``graphs`` compiled for them. The fact ``replace_s`` is what the exchange took, with
    compilation and the comparison; 0 where nothing is exchanged. Items: tokens. Raises RuntimeError where an exchange
    would change the answer. Source: AI Systems Performance Engineering, chapter 19.
    """
    if model not in models.TRANSFORMERS:
        raise ValueError(f'model "{model}" is not a transformer; there are {", ".join(models.TRANSFORMERS)}')
    if min(batch, seq) < 1:
        raise ValueError("batch and seq must each be 1 or more")
    if attention in _KERNELS:
        if dtype == "float32":
            raise ValueError(f"attention {attention} takes bfloat16, not float32")
        if not context.on_gpu:
            raise SkipSide(f"attention {attention} needs a GPU")
    task = models.build(model, seed=context.seed, device=context.device, batch=batch, seq=seq)
    module = _sharpened(task.module).to(getattr(torch, dtype)).eval()
    for backend in _KERNELS.get(attention, ()):
        _bind(module, _asking_for(backend))
        attempt(partial(answer, module, task.batch), f"attention by {backend.name} does not run here")
    # The answer was made in inference mode; audits write into its copy.
    logits = answer(module, task.batch).clone()
    before, began = compiler_counts("graphs")["graphs"], perf_counter()
    count = exchange(module, _METHODS[attention](), task.batch, within=CLOSE[dtype]) if attention in _METHODS else 0
    took = perf_counter() - began if count else 0.0
    graphs = compiler_counts("graphs")["graphs"] - before

    def step() -> None:
        logits.copy_(answer(module, task.batch))

    shape = models.TRANSFORMERS[model]
    # The head answers for some positions alone.
    flops = task.forward_flops - 2.0 * shape["width"] * shape["vocab"] * (task.items - batch * logits.shape[1])
    return Workload(
        step=step,
        work=Work(flops=flops, items=task.items, item="tokens", peaks=gemm_peak(context.device, dtype, flops)),
        outputs=lambda: {"logits": logits},
        inputs=lambda: {"batch": task.batch},
        redraw=task.redraw,
        checks={"relative_frobenius": agreement.relative_frobenius},
        counters=lambda: {"replaced": float(count), "graphs": graphs},
        facts={"parameters": task.parameters, "replace_s": round(took, 3)},
        close=lambda: _restore(module),
    )


def exchange(module: Any, method: Callable[[Any, Any], Any], tokens: Any, *, within: float) -> int:
    """Bind ``method`` to each block of a transformer in place of its attention; how many there are.

    Raises RuntimeError if the model's answer to ``tokens`` moves by more than ``within`` of its length, and what the
    method raises; the model is then as it was."""
    old, held = answer(module, tokens).float(), [vars(block).get("_attention") for block in module.blocks]
    _bind(module, method)
    try:
        moved = float((answer(module, tokens).float() - old).norm() / old.norm())
        if not moved <= within:
            raise RuntimeError(f"the other attention moves the answer by {moved:.2g} of its length, over {within:g}")
    except BaseException:
        _restore(module)
        for block, own in zip(module.blocks, held, strict=True):
            if own is not None:
                block._attention = own
        raise
    return len(module.blocks)


def answer(module: Any, tokens: Any) -> Any:
    """Logits [batch, positions, vocab] of a transformer for ``tokens`` [batch, seq]."""
    last = tokens.shape[1] - 1
    # Made where they are used: a copy from the host would wait for all blocks.
    places = torch.linspace(0, last, min(_POSITIONS, last + 1), device=tokens.device).round().long()
    with torch.inference_mode():
        return module.head(module.norm(module.blocks(module.embed(tokens))[:, places]))


def _bind(module: Any, method: Callable[[Any, Any], Any]) -> None:
    for block in module.blocks:
        block._attention = MethodType(method, block)


def _restore(module: Any) -> None:
    """Each block has the attention of its class again."""
    for block in module.blocks:
        vars(block).pop("_attention", None)


def _sharpened(module: Any) -> Any:
    with torch.no_grad():
        for block in module.blocks:
            for drawn in (block.qkv.weight, block.qkv.bias):
                drawn[: 2 * len(drawn) // 3].mul_(_SHARP)
    return module


def _compiled() -> Callable[[Any, Any], Any]:
    # Compiled code belongs to a code object: this side has one of its own, also where sides share a process.
    plain = models.TransformerBlock._attention
    own = FunctionType(plain.__code__.replace(), plain.__globals__, plain.__name__)
    return torch.compile(own, dynamic=False, fullgraph=True)


def _asking_for(backend: SDPBackend) -> Callable[[Any, Any], Any]:
    def attention(block: Any, x: Any) -> Any:
        with sdpa_kernel(backend):
            return models.TransformerBlock._attention(block, x)

    return attention


_METHODS: dict[str, Callable[[], Callable[[Any, Any], Any]]] = {
    "compiled": _compiled,
    "cudnn": partial(_asking_for, SDPBackend.CUDNN_ATTENTION),
}
"""attention -> what makes the method that takes the place of another one."""
