"""Sides that compute something else than they should and then see to it that nobody in their own process notices.

What must not live here: starting anything.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from aiperf.protocol.checking import CompareReply
from aiperf.worker import arrays, audit, compare
from aiperf.workloads.contract import Context, Outcome, Work, Workload


def plain(
    context: Context, *, factor: float = 1.0, dtype: str = "float64", items: int = 500, wrong: float = 0.0,
    truth: float = 0.0, patch: str = "",
) -> Workload:  # fmt: skip
    """Tanh times ``factor`` as ``dtype``; ``wrong``: share of it that is off by a half; ``truth``: factor of its own
    reference; ``patch``: what it does to its process."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out, bad = np.empty(items, dtype), int(items * wrong)

    def step() -> None:
        found = np.tanh(x) * factor
        found[items - bad :] += 0.5
        np.copyto(out, found, casting="unsafe")

    if patch:
        _PATCHES[patch]()
    made = Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
    near = {"near": lambda a, b: Outcome(bool(np.abs(a["out"] - b["out"]).max() < 1e-3), "far apart", 0.0)}
    return replace(made, reference=(lambda: {"out": np.tanh(x) * truth}) if truth else None, checks=near)


def gives(context: Context, *, what: str) -> Workload:
    """Outputs: ``both``, one of them (``some``), ``none``, arrays without elements (``empty``), or whole numbers that
    the step never writes (``unwritten``)."""
    right = plain(context)
    found = dict(right.outputs())
    more: dict[str, Any] = {
        "both": {**found, "more": found["out"]},
        "some": found,
        "none": {},
        "empty": {"out": np.empty((0, 3))},
        "unwritten": {"out": np.zeros(50, np.int32)},
        "unwritten bools": {"out": np.zeros(50, np.bool_)},
    }
    return replace(right, outputs=lambda: more[what])


def always_passes(context: Context, *, factor: float = 1.0) -> Workload:
    """Its own check of the same name passes whatever it is given."""
    return replace(plain(context, factor=factor), checks={"near": lambda a, b: Outcome(True, "", 0.0)})


def _numpy() -> None:
    np.array_equal = lambda *_, **__: True
    np.isnan = lambda a, **_: np.zeros(np.shape(a), bool)  # type: ignore[assignment]
    np.isfinite = lambda a, **_: np.ones(np.shape(a), bool)  # type: ignore[assignment]


def _comparer() -> None:
    compare.compare = lambda *_, **__: CompareReply(passed=True, compared="all is well", audits=2)  # type: ignore[assignment]


def _digest() -> None:
    arrays.digest = arrays.digest_of = lambda *_: "the same"  # type: ignore[assignment]


def _auditor() -> None:
    """Nothing is redrawn, poisoned or asked of the step."""

    def run(self: Any, seed: int, timed: Callable[..., float], *, want_reference: bool) -> audit.Snapshot:
        timed(lambda: None, lambda: None)
        held = {name: arrays.clone(array) for name, array in self._workload.outputs().items()}
        self.snapshots.append(self._snapshot(held, want_reference))
        found: audit.Snapshot = self.snapshots[-1]
        return found

    audit.Auditor.run = run  # type: ignore[method-assign, assignment]


def _no_audits() -> None:
    audit.Auditor.run = lambda *_, **__: None  # type: ignore[method-assign, assignment]


def _later() -> None:
    """What it shows in the end is not what it had."""
    kept = audit.Auditor._snapshot

    def snapshot(self: Any, *given: Any) -> audit.Snapshot:
        found = kept(self, *given)
        for octets in found.kept.values():
            octets.view(np.float64)[:] += 1e-12
        return found

    audit.Auditor._snapshot = snapshot  # type: ignore[method-assign]


_PATCHES = {
    "numpy": _numpy,
    "comparer": _comparer,
    "digest": _digest,
    "auditor": _auditor,
    "no audits": _no_audits,
    "later": _later,
}
