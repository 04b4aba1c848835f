"""What a worker reports of a side besides its times: calls outside the timed iterations, and what its audits reach.

What must not live here: messages, and what any of it means for a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PhaseTime:
    """The calls of one function of a workload that no reading of a clock holds; wall seconds."""

    calls: int
    seconds: float
    """Of all calls together."""
    call_s: float
    """Of one call: the median; of ``pending`` the smallest."""


@dataclass(frozen=True)
class Coverage:
    """Which of a side's inputs and outputs the audits of one launch could put to the test."""

    inputs: Literal["declared", "redrawn", "undeclared"] = "declared"
    """redrawn: it names no inputs, but its own ``redraw`` changed what the step computes."""
    fixed: tuple[str, ...] | None = None
    """Declared inputs that were the same in every audit; None where one audit alone cannot show it."""
    unmoved: tuple[str, ...] = ()
    """Outputs that were the same in every audit, though inputs were not."""
    unmoved_values: int = 0
    """Different numbers among some of one of them, a real one, after extreme values of the inputs did not change it
    either; 0 where none were tried or one changed an output."""
    unnamed: int | None = None
    """Arrays that the step can use, that the side does not name and that were the same in every audit, though inputs
    were not; None where nobody looked, or no inputs are named or changed."""
    largest_unnamed: str = ""
    """Type and shape of the largest of them: ``float32 [256]``."""
    fixed_inputs: str = ""
    """Why the workload's inputs are not all redrawn, in its own words."""
    poisoned: bool = True
    """Whether outputs are overwritten before an audited step."""
    kept_outputs: str = ""
    """Why they are not, in its own words."""
    latencies: bool = False
    """Whether the side reports latencies, which nothing checks."""
    latency_source: str = ""
    """How it takes them, in its own words."""
    done_outside: str = ""
    """Why it does or keeps outside of what is measured what another side does or keeps inside, in its own words."""
