"""A function called with a schedule of input lengths under stated torch.compile settings, or under jax.jit. Workloads:
compile.process, compile.xla; compile.decode of flex_attention whose mask changes with every step (decoding.py).

The kernels are those that the compilers make. What must not live here: the functions (subjects.py), whole models
(model/), new processes and what they find on disk (startup/).
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

from aiperf.workloads.compile import subjects
from aiperf.workloads.compile.anew import begun_anew, try_vector_instructions
from aiperf.workloads.compile.decoding import decode
from aiperf.workloads.compile.xla import XlaPrograms
from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.compiler_counts import compiler_counts

__all__ = ["decode", "process", "xla"]

_BUCKET = 64
_DYNAMIC = {"off": False, "auto": None, "on": True, "mark": None}
_OF_TOKENS = (*subjects.WITH_NUMBER, "row_norms", "block", "decode_block")
_COUNTS = ("graphs", "compiles", "graph_breaks", "graph_skips")
_SPREAD_OVER = 8
"""Lengths that a spread makes of one."""


def spread_lengths(longest: int, spread: float) -> list[int]:
    """Eight lengths up to ``longest`` at equal distances, the shortest ``spread`` of it less, but at least 2."""
    return [max(2, round(longest * (1 - spread * i / (_SPREAD_OVER - 1)))) for i in range(_SPREAD_OVER)]


def _target(length: int, longest: int, pad: str) -> int:
    return {"none": length, "max": longest, "bucket": -(-length // _BUCKET) * _BUCKET}[pad]


class _Rounds:
    """The calls of one step: ``iterations`` for each length in turn."""

    def __init__(self, subject: subjects.Subject, asked: SimpleNamespace) -> None:
        self._subject, self._asked, self._dim = subject, asked, subject.dim
        self.out: dict[str, Any] = {}
        self._ready: Any = None
        self._counted = dict.fromkeys(_COUNTS, 0.0)

    def run(self) -> None:
        """The timed region."""
        if not self._asked.anew:
            self._ready = self._compiled() if self._ready is None else self._ready
            self._calls()
            return
        asked = self._asked
        with begun_anew(asked.backend, asked.context.scratch, kept=asked.compiler_files == "kept"):
            self._ready = self._compiled()
            self._calls()
            self._counted = compiler_counts(*_COUNTS)
            self._ready = None

    def counters(self) -> dict[str, float]:
        """What the compiler did in the last step, or in all of them where it is not made to forget."""
        if self._asked.anew:
            return self._counted
        counted = self._counted if self._asked.backend == "none" else compiler_counts(*_COUNTS)
        return counted if self._ready is None else {**counted, "drift": self._drift()}

    def _drift(self) -> float:
        """The largest difference of an element from what the function gives uncompiled, over all lengths."""
        most, last = 0.0, self._asked.iterations - 1
        with torch.no_grad():
            for tensors in self._subject.cases.values():
                ours, plain = (
                    call(*self.arguments(tensors, last)).narrow(self._dim, 0, tensors[0].shape[self._dim]).double()
                    for call in (self._ready, self._subject.function)
                )
                most = max(most, float((ours - plain).abs().max()))
        return most

    def arguments(self, tensors: tuple[Any, ...], call: int) -> tuple[Any, ...]:
        """What call number ``call`` gets: tensors padded and marked, and a number that changes with every call."""
        length, longest = tensors[0].shape[self._dim], max(self._asked.lengths)
        if more := _target(length, longest, self._asked.pad) - length:
            tensors = tuple(functional.pad(t, (0, 0) * (t.dim() - 1 - self._dim) + (0, more)) for t in tensors)
        if self._asked.owned:
            tensors = tuple(t.clone() for t in tensors)
        if self._asked.dynamic == "mark":
            for tensor in tensors:
                torch._dynamo.mark_dynamic(tensor, self._dim)
        return tensors + self.factor(call)

    def factor(self, call: int) -> tuple[Any, ...]:
        """The number that some functions take, as the side passes it; nothing for the others."""
        if self._asked.function not in subjects.WITH_NUMBER:
            return ()
        value = 2 if self._asked.scalar == "fixed" else call + 2
        if self._asked.scalar == "python":
            return (value,)
        return (torch.tensor(float(value), device=self._asked.context.device),)

    def _calls(self) -> None:
        in_parts = self._asked.scope == "block" and self._asked.mode != "default"
        with torch.no_grad(), contextlib.ExitStack() as later:
            for number, (key, tensors) in enumerate(self._subject.cases.items()):
                if number == 1 and self._asked.stance != "default":
                    later.enter_context(torch.compiler.set_stance(self._asked.stance))
                for call in range(self._asked.iterations):
                    if in_parts:
                        # Without it each layer's graph counts as a new step, in which what the one before gave is gone.
                        torch.compiler.cudagraph_mark_step_begin()
                    self._fill(key, self.arguments(tensors, call))

    def _compiled(self) -> Any:
        """The function under torch.compile, as a whole or layer by layer; nothing is compiled before its first call."""
        if self._asked.backend == "none":
            return self._subject.function
        mode = None if self._asked.mode == "default" else self._asked.mode
        how = {"backend": self._asked.backend, "dynamic": _DYNAMIC[self._asked.dynamic], "mode": mode}
        if self._asked.scope == "block":
            return torch.nn.Sequential(*(torch.compile(layer, **how) for layer in self._subject.layers))
        return torch.compile(self._subject.function, **how)

    def _fill(self, key: str, arguments: tuple[Any, ...]) -> None:
        """One call; what belongs to true elements goes into the output."""
        valid = self._ready(*arguments).narrow(self._dim, 0, self._subject.cases[key][0].shape[self._dim])
        if key not in self.out:
            self.out[key] = torch.empty(valid.shape, dtype=valid.dtype, device=valid.device)
        self.out[key].copy_(valid)


def _validate(asked: SimpleNamespace) -> None:
    function = asked.function
    if asked.backend == "none" and (asked.dynamic, asked.stance, asked.scope) != ("auto", "default", "model"):
        raise ValueError("backend: none compiles nothing; leave out dynamic, stance and scope")
    if min(asked.lengths, default=0) < 2 or asked.iterations < 1:
        raise ValueError("lengths must be 2 or more (1 is a shape of its own), and iterations 1 or more")
    if (function == "branch") != (asked.variant in subjects.BRANCHES):
        raise ValueError("variant break, where or cond needs function: branch, and branch needs one of them")
    if (function == "row_norms") != (asked.variant in subjects.ROW_NORMS):
        raise ValueError("variant listed or stacked needs function: row_norms, and row_norms needs one of them")
    if asked.variant == "mutating" and (function not in ("block", "elementwise_chain") or not asked.owned):
        raise ValueError(
            "variant: mutating writes over its argument; it needs function: block or elementwise_chain, and owned: true"
        )
    if asked.spread > 1 or (asked.spread >= 0 and len(asked.lengths) != _SPREAD_OVER):
        raise ValueError("spread is a share from 0 to 1 of the one length that lengths gives; -1 leaves lengths alone")
    if function in ("branch", "row_norms") and asked.pad != "none":
        raise ValueError(f"function: {function} sums its input, so it cannot be padded; use pad: none")
    if asked.scalar != "fixed" and function not in subjects.WITH_NUMBER:
        raise ValueError(
            f"scalar is the number of functions {' and '.join(subjects.WITH_NUMBER)}, and needs one of them"
        )


def _validate_compiler(asked: SimpleNamespace) -> None:
    """Settings of the compiler, and the function that takes sizes."""
    function = asked.function
    if (asked.mode, asked.compiler_files) != ("default", "anew") and asked.backend != "inductor":
        raise ValueError("mode and compiler_files are Inductor's; they need backend: inductor")
    if asked.compiler_files == "kept" and not asked.include_compile:
        raise ValueError("compiler_files: kept is for steps that compile; it needs include_compile: true")
    if function != "decode_block" and (asked.dtype != "float32" or asked.width):
        raise ValueError("dtype and width are those of function: decode_block")
    if asked.width % 8 or asked.width < 0:
        raise ValueError(f"width is {asked.width}; it must be 0 (256) or a multiple of 8, the heads")
    if asked.scope == "block" and function not in ("block", "decode_block"):
        raise ValueError("scope: block compiles layer by layer; it needs function: block or decode_block")
    if function == "decode_block" and asked.pad != "none":
        raise ValueError("function: decode_block reads keys of its own rows, so it cannot be padded; use pad: none")


def process(
    context: Context,
    *,
    function: Literal[
        "branch",
        "elementwise_chain",
        "elementwise_mlp",
        "row_norms",
        "offset_attention",
        "block",
        "decode_block",
    ] = "elementwise_mlp",
    variant: Literal["plain", "break", "where", "cond", "listed", "stacked", "mutating"] = "plain",
    backend: Literal["none", "eager", "aot_eager", "inductor"] = "inductor",
    mode: Literal["default", "reduce-overhead", "max-autotune"] = "default",
    dynamic: Literal["off", "auto", "on", "mark"] = "auto",
    lengths: list[int] = [64],  # noqa: B006
    spread: float = -1.0,
    pad: Literal["none", "max", "bucket"] = "none",
    iterations: int = 1,
    scalar: Literal["fixed", "python", "tensor"] = "fixed",
    stance: Literal["default", "eager_on_recompile"] = "default",
    scope: Literal["model", "block"] = "model",
    layers: int = 1,
    width: int = 0,
    dtype: Literal["float32", "bfloat16"] = "float32",
    include_compile: bool = True,
    compiler_files: Literal["anew", "kept"] = "anew",
    owned: bool = False,
) -> Workload:
    """``iterations`` calls of a function for each length in turn, forward only.

    ``include_compile`` drops all compiled code at the start of each step, so that a step compiles whatever its lengths
    demand, with Inductor's files in a folder of its own, or one that is ``kept``: then all steps but the first find
    their code there, and pay for tracing, loading and recording graphs. Otherwise the first step compiles and the
    others run what it compiled. Importing the compiler, trying out vector instructions and precompiling C++ headers are
    left out. ``backend: none`` calls the function as it is. ``mode: reduce-overhead`` replays CUDA graphs on a GPU.
    ``dynamic: mark`` marks the length of each input; ``pad`` fills up with zeros to the longest length or to a multiple
    of 64, inside the step. ``spread`` of 0 or more makes eight lengths of the one that is given, down to that share
    less. ``owned`` gives each call a copy of its input, which ``variant: mutating`` writes over. ``stance`` applies
    from the second length on. ``scalar`` passes a number that changes with every call, as one of Python or as a tensor.

    Functions: branch ([length] twice, both ways in turn), elementwise_chain ([length]), elementwise_mlp ([length, 64]
    and a factor), row_norms ([length, 64]; ``listed`` as numbers of Python, or ``stacked``), offset_attention ([length,
    192] and how many keys count), block (``layers`` causal transformer blocks, [1, length, 256]), decode_block
    (``layers`` blocks of ``width``, 0: 256, over one token of ``length`` sequences with keys and values of 256 to 512
    earlier ones). Items: elements or tokens, without padding. Source: chapters 14 and 18.
    """
    lengths = spread_lengths(lengths[0], spread) if spread >= 0 and len(lengths) == 1 else lengths
    asked = SimpleNamespace(**locals())
    _validate(asked)
    _validate_compiler(asked)
    subject = subjects.build(
        function,
        variant=variant,
        lengths=lengths,
        layers=layers,
        device=context.device,
        seed=context.seed,
        width=width,
        dtype=getattr(torch, dtype),
    )
    asked.anew = backend != "none" and include_compile
    if asked.anew and backend == "inductor" and context.device == "cpu":
        try_vector_instructions()
    rounds = _Rounds(subject, asked)
    return Workload(
        step=rounds.run,
        work=Work(items=subject.tokens * iterations, item="tokens" if function in _OF_TOKENS else "elements"),
        outputs=lambda: dict(rounds.out),
        inputs=lambda: {f"{key}:{i}": t for key, ts in subject.cases.items() for i, t in enumerate(ts)},
        redraw=subject.redraw,
        reference=lambda: subjects.truth(subject, lambda ts: ts + rounds.factor(iterations - 1)),
        checks={"relative_frobenius": relative_frobenius},
        anew=asked.anew and backend == "inductor",
        counters=rounds.counters,
        facts={
            "threads": torch.get_num_threads(),
            "padding_waste": 1 - sum(lengths) / sum(_target(n, max(lengths), pad) for n in lengths),
        },
    )


def xla(
    context: Context,
    *,
    lengths: list[int] = [64],  # noqa: B006
    pad: Literal["none", "bucket"] = "none",
    iterations: int = 1,
) -> Workload:
    """``iterations`` calls of the function elementwise_mlp of ``compile.process``, written in JAX, under jax.jit on the
    CPU, for each length in turn; every step drops all compiled programs first, so that XLA compiles one for each shape.

    ``pad: bucket`` fills up with zeros to a multiple of 64, inside the step and in NumPy, since JAX would compile the
    padding of each length as well. Items: tokens, without padding. Source: chapter 14.
    """
    if min(lengths, default=0) < 1 or iterations < 1:
        raise ValueError("lengths and iterations must be 1 or more")
    if context.on_gpu:
        raise SkipSide("compile.xla runs only on a CPU, and this side is on a GPU")
    subject = subjects.build(
        "elementwise_mlp", variant="plain", lengths=lengths, layers=1, device=context.device, seed=context.seed
    )
    programs = XlaPrograms({name: array.numpy() for name, array in subject.function.state_dict().items()})
    rows = {key: tensors[0].numpy() for key, tensors in subject.cases.items()}
    padded = {key: _target(len(x), max(lengths), pad) for key, x in rows.items()}
    out = {key: torch.empty_like(tensors[0]) for key, tensors in subject.cases.items()}

    def step() -> None:
        programs.forget()
        for key, x in rows.items():
            for call in range(iterations):
                found = programs(np.pad(x, ((0, padded[key] - len(x)), (0, 0))), float(call + 2))
                out[key].numpy()[:] = found[: len(x)]

    return Workload(
        step=step,
        work=Work(items=subject.tokens * iterations, item="tokens"),
        outputs=lambda: dict(out),
        inputs=lambda: {key: tensors[0] for key, tensors in subject.cases.items()},
        redraw=subject.redraw,
        reference=lambda: subjects.truth(subject, lambda ts: (*ts, iterations + 1)),
        anew=True,
        counters=lambda: {"compiles": float(programs.compiled)},
        facts={"padding_waste": 1 - sum(lengths) / sum(padded.values()), **programs.facts},
    )
