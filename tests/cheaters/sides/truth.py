"""Sides that get by with a looser truth: coarser types, wide tolerances, outputs left out, checks of their own.

What must not live here: answers that are right for some inputs only (domain.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from problem import solve, vector

from aiperf.workloads.contract import Context, Outcome, Work, Workload

_TERMS = 12
_POISON = 0x5A
"""What the harness writes over integers, which anybody can read in its source."""


def series(
    context: Context,
    *,
    items: int = 65536,
    terms: int = _TERMS,
    dtype: Literal["float32", "float16", "bfloat16", "float8_e4m3fn"] = "float32",
    own_check: bool = False,
    own_reference: bool = False,
) -> Workload:
    """Exponential of a vector below 1 by so many terms of its series, returned as ``dtype``."""
    import torch

    generator = torch.Generator().manual_seed(context.seed)
    x = torch.randn(items, generator=generator).mul_(0.125)
    made: dict[str, Any] = {}

    def compute(x: Any, terms: int) -> Any:
        total = x / terms + 1
        for k in range(terms - 1, 0, -1):
            total.mul_(x).div_(k).add_(1)
        return total

    def step() -> None:
        made["out"] = compute(x, terms).to(getattr(torch, dtype))

    def reference() -> Mapping[str, Any]:
        """Honest sides sum all terms in float64; the other one shows what it has."""
        return {"out": made["out"].double() if own_reference else compute(x.double(), _TERMS)}

    def always(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Outcome:
        if own_check:
            return Outcome(True, "", 0.0)
        worst = float(np.abs(theirs["out"] - ours["out"]).max())
        return Outcome(worst < 1e-4, f"out differs by {worst:.3g}", worst)

    return Workload(
        step,
        Work(items=items),
        outputs=lambda: made,
        inputs=lambda: {"x": x},
        reference=reference,
        checks={"close": always},
    )


def several(
    context: Context, *, items: int = 65536, leave_out: Literal["", "second", "rows", "empty", "stale"] = ""
) -> Workload:
    """Two outputs; ``leave_out``: one of them, half of both, all elements, or the second one's last part,
    which lies there from set-up."""
    x, first = vector(context, items)
    second = np.empty_like(x)
    solve(x, first)
    solve(first, second)
    parts = {"rows": items // 2, "stale": items * 9 // 10}.get(leave_out, items)

    def step() -> None:
        if leave_out == "empty":
            return
        solve(x[:parts], first[:parts])
        if leave_out != "second":
            solve(first[:parts], second[:parts])

    def outputs() -> dict[str, np.ndarray]:
        if leave_out == "second":
            return {"first": first}
        if leave_out == "empty":
            return {"first": first[:0], "second": second[:0]}
        return {"first": first[:parts], "second": second[:parts]} if leave_out == "rows" else _both()

    def _both() -> dict[str, np.ndarray]:
        return {"first": first, "second": second}

    return Workload(step, Work(items=items), outputs=outputs, inputs=lambda: {"x": x})


def no_elements(context: Context, *, items: int = 65536, works: bool = True) -> Workload:
    """Shows outputs without an element, whatever it computed."""
    x, out = vector(context, items)
    step: Callable[[], None] = (lambda: solve(x, out)) if works else (lambda: None)
    return Workload(step, Work(items=items), outputs=lambda: {"out": out[:0]}, inputs=lambda: {"x": x})


def no_outputs(context: Context, *, items: int = 65536, works: bool = True) -> Workload:
    """Shows no outputs at all."""
    x, out = vector(context, items)
    step: Callable[[], None] = (lambda: solve(x, out)) if works else (lambda: None)
    return Workload(step, Work(items=items), outputs=dict, inputs=lambda: {"x": x})


def quantised(context: Context, *, items: int = 65536, works: bool = True) -> Workload:
    """An answer that is one number everywhere: that which the harness writes over outputs of this type."""
    x, _ = vector(context, items)
    out = np.full(items, _POISON, np.uint8)

    def step() -> None:
        if works:
            np.add(np.tanh(np.abs(x)) < 2.0, _POISON - 1, out=out, casting="unsafe")

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def less_work(context: Context, *, items: int = 65536, passes: int = 10) -> Workload:
    """Clip a vector ``passes`` times, which gives what one pass gives, and declare every pass."""
    x, out = vector(context, items)

    def step() -> None:
        for _ in range(passes):
            np.clip(x, -1.0, 1.0, out=out)

    return Workload(step, Work(items=items * passes), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def mean(context: Context, *, items: int = 65536, used: int = 65536) -> Workload:
    """Mean loss of ``items`` samples, taken from the first ``used`` of them; declares all items whatever it used."""
    x, _ = vector(context, items)
    out = np.empty(1)

    def step() -> None:
        out[0] = np.square(np.tanh(x[:used])).mean()

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def in_place(context: Context, *, items: int = 65536, spoils: bool = False) -> Workload:
    """Sort and solve through a buffer of its own, or through the input itself, which is sorted ever after."""
    x, out = vector(context, items)
    buffer = x if spoils else np.empty_like(x)

    def step() -> None:
        if not spoils:
            np.copyto(buffer, x)
        buffer.sort(kind="stable")  # at once where it is sorted already
        solve(buffer, out)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
