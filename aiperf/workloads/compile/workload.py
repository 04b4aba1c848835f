"""A function called with a schedule of input lengths under stated torch.compile settings. Workload: compile.process.

The kernels are those that torch.compile makes. What must not live here: the functions (subjects.py), whole models
(model/), new processes and what they find on disk (startup/).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch.nn import functional

from aiperf.workloads.compile import subjects
from aiperf.workloads.contract import Context, Work, Workload

_BUCKET = 64
_DYNAMIC = {"off": False, "auto": None, "on": True, "mark": None}
_OF_TOKENS = ("elementwise_mlp", "block")
_NONE = {"graphs": 0.0, "compiles": 0.0, "graph_breaks": 0.0}


def _counts() -> dict[str, float]:
    from torch._dynamo.utils import counters

    return {
        "graphs": float(counters["stats"]["unique_graphs"]),
        "compiles": float(counters["frames"]["total"]),
        "graph_breaks": float(sum(counters["graph_break"].values())),
    }


def _forget() -> None:
    """Drop all compiled code and the totals that the compiler keeps.

    The harness reads a growing total as a side that still warms up; here every step compiles.
    """
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()


@contextlib.contextmanager
def _begun_anew(backend: str, scratch: Path) -> Iterator[None]:
    """No compiled code on entry and on exit; for Inductor with an empty cache folder in between."""
    _forget()
    with contextlib.ExitStack() as inside:
        if backend == "inductor":
            from torch._inductor.utils import fresh_cache

            inside.enter_context(fresh_cache(dir=str(scratch)))
        yield
    _forget()


def _target(length: int, longest: int, pad: str) -> int:
    return {"none": length, "max": longest, "bucket": -(-length // _BUCKET) * _BUCKET}[pad]


@dataclass(frozen=True)
class _Arguments:
    """What a call gets: tensors of one length, padded and marked, and a factor that changes with every call."""

    dim: int
    longest: int
    pad: str
    mark: bool
    factor: Callable[[int], tuple[Any, ...]]

    def of(self, tensors: tuple[Any, ...], call: int) -> tuple[Any, ...]:
        """The arguments of call number ``call``."""
        length = tensors[0].shape[self.dim]
        more = _target(length, self.longest, self.pad) - length
        if more:
            tensors = tuple(functional.pad(t, (0, 0) * (t.dim() - 1 - self.dim) + (0, more)) for t in tensors)
        if self.mark:
            for tensor in tensors:
                torch._dynamo.mark_dynamic(tensor, self.dim)
        return tensors + self.factor(call)


@dataclass
class _Rounds:
    """The calls of one step: ``iterations`` for each length in turn."""

    subject: subjects.Subject
    arguments: _Arguments
    compiler: Callable[[Any], Any]
    scope: str
    stance: str
    iterations: int
    anew: Callable[[], Any] | None
    """What a step that begins without any compiled code runs inside."""
    count: Callable[[], dict[str, float]]
    out: dict[str, Any] = field(default_factory=dict)
    _ready: Any = None
    _counted: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """The timed region."""
        if self.anew is None:
            self._ready = self._compiled() if self._ready is None else self._ready
            self._calls()
            return
        with self.anew():
            self._ready = self._compiled()
            self._calls()
            self._counted = self.count()
            self._ready = None

    def _calls(self) -> None:
        with torch.no_grad(), contextlib.ExitStack() as later:
            for number, (key, tensors) in enumerate(self.subject.cases.items()):
                if number == 1 and self.stance != "default":
                    later.enter_context(torch.compiler.set_stance(self.stance))
                for call in range(self.iterations):
                    self._fill(key, self.arguments.of(tensors, call))

    def counters(self) -> dict[str, float]:
        """What the compiler did in the last step, or in all of them where it is not made to forget."""
        return dict(self._counted or self.count())

    def _compiled(self) -> Any:
        """The function under torch.compile, as a whole or layer by layer; nothing is compiled before its first call."""
        if self.scope == "block":
            return torch.nn.Sequential(*(self.compiler(layer) for layer in self.subject.layers))
        return self.compiler(self.subject.function)

    def _fill(self, key: str, arguments: tuple[Any, ...]) -> None:
        """One call; what belongs to true elements goes into the output."""
        result = self._ready(*arguments)
        length = self.subject.cases[key][0].shape[self.subject.dim]
        valid = result.narrow(self.subject.dim, 0, length)
        if key not in self.out:
            self.out[key] = torch.empty(valid.shape, dtype=valid.dtype, device=valid.device)
        self.out[key].copy_(valid)


def _validate(**asked: Any) -> None:
    settings = asked["dynamic"], asked["stance"], asked["scope"]
    if asked["backend"] == "none" and settings != ("auto", "default", "model"):
        raise ValueError("backend: none compiles nothing; leave out dynamic, stance and scope")
    if min(asked["lengths"], default=0) < 2 or asked["iterations"] < 1:
        raise ValueError("lengths must be 2 or more (1 is a shape of its own), and iterations 1 or more")
    if (asked["function"] == "branch") != (asked["variant"] != "plain"):
        raise ValueError("variant break, where or cond needs function: branch, and branch needs one of them")
    if asked["function"] == "branch" and asked["pad"] != "none":
        raise ValueError("function: branch sums its whole input, so it cannot be padded; use pad: none")
    if asked["scope"] == "block" and asked["function"] != "block":
        raise ValueError("scope: block compiles layer by layer; it needs function: block")
    if asked["scalar"] != "fixed" and asked["function"] != "elementwise_mlp":
        raise ValueError("scalar is the factor of function: elementwise_mlp and needs that function")


def process(
    context: Context,
    *,
    function: Literal["branch", "elementwise_chain", "elementwise_mlp", "block"] = "elementwise_mlp",
    variant: Literal["plain", "break", "where", "cond"] = "plain",
    backend: Literal["none", "eager", "aot_eager", "inductor"] = "inductor",
    dynamic: Literal["off", "auto", "on", "mark"] = "auto",
    lengths: list[int] = [64],  # noqa: B006
    pad: Literal["none", "max", "bucket"] = "none",
    iterations: int = 1,
    scalar: Literal["fixed", "python", "tensor"] = "fixed",
    stance: Literal["default", "eager_on_recompile"] = "default",
    scope: Literal["model", "block"] = "model",
    layers: int = 1,
    include_compile: bool = True,
) -> Workload:
    """``iterations`` calls of a function for each length in turn, forward only, fp32.

    ``include_compile`` drops all compiled code at the start of each step, so a step compiles whatever its lengths
    demand; otherwise the first step compiles and the others run what it compiled. A step that compiles with Inductor
    keeps its files in a folder of its own, made and removed inside it; what a process does once is left out: importing
    the compiler, trying out vector instructions, precompiling C++ headers. ``backend: none`` calls the function as it
    is. ``dynamic: mark`` marks the length of each input; ``pad`` fills up with zeros to the longest length or to a
    multiple of 64, inside the step. ``stance`` applies from the second length on. ``scalar`` passes a factor that
    changes with every call, as a number or as a tensor.

    Functions: branch ([length] twice, both ways in turn), elementwise_chain ([length]), elementwise_mlp ([length, 64]),
    block (``layers`` causal transformer blocks, [1, length, 256]). Items: true elements or tokens; padding is no work.
    Bytes and FLOPs are not counted: they are the compiler's choice. Reference: the function, uncompiled, in float64.
    Source: AI Systems Performance Engineering, chapter 14.
    """
    _validate(**locals())
    subject = subjects.build(
        function, variant=variant, lengths=lengths, layers=layers, device=context.device, seed=context.seed
    )

    def factor(call: int) -> tuple[Any, ...]:
        return _factor(function, scalar, call, context.device)

    compiled = backend != "none"
    compiler = (lambda f: torch.compile(f, backend=backend, dynamic=_DYNAMIC[dynamic])) if compiled else lambda f: f
    anew = functools.partial(_begun_anew, backend, context.scratch) if compiled and include_compile else None
    if anew and backend == "inductor" and context.device == "cpu":
        from torch._inductor.cpu_vec_isa import pick_vec_isa

        pick_vec_isa()  # tries out this CPU's vector instructions, once a process
    rounds = _Rounds(
        subject,
        _Arguments(subject.dim, max(lengths), pad, mark=dynamic == "mark", factor=factor),
        compiler,
        scope=scope, stance=stance, iterations=iterations, anew=anew, count=_counts if compiled else lambda: _NONE,
    )  # fmt: skip
    return Workload(
        step=rounds.run,
        work=Work(items=subject.tokens * iterations, item="tokens" if function in _OF_TOKENS else "elements"),
        outputs=lambda: dict(rounds.out),
        inputs=lambda: {f"{key}:{i}": t for key, ts in subject.cases.items() for i, t in enumerate(ts)},
        redraw=subject.redraw,
        reference=lambda: subjects.truth(subject, lambda ts: ts + factor(iterations - 1)),
        anew=anew is not None and backend == "inductor",
        counters=rounds.counters,
        facts={
            "threads": torch.get_num_threads(),
            "padding_waste": 1 - sum(lengths) / sum(_target(n, max(lengths), pad) for n in lengths),
        },
    )


def _factor(function: str, scalar: str, call: int, device: str) -> tuple[Any, ...]:
    if function != "elementwise_mlp":
        return ()
    value = 2 if scalar == "fixed" else call + 2
    return (torch.tensor(float(value), device=device),) if scalar != "python" else (value,)
