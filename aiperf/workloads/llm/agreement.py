"""Whether two sides produced the same tokens, and how often they would choose different ones.

What must not live here: bounds of sides that differ by design (a scenario states its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aiperf.workloads.contract import Outcome
from aiperf.workloads.shared.agreement import relative_frobenius

_TIE = 1e-3
"""Distance of the two best logits below which rounding may choose; logits are of the order of 1."""
_NEAR = 1e-3
"""By how much equal choices may differ in that distance."""
_FAR = 0.5
"""Distance of a position's logits from before's, over the length of before's, that rounding does not explain."""
_SIXTEEN_BIT = 0.25
"""Both, where a model of 16 bits rounds its logits, which are of the order of 4, to steps of 1/32."""


def same_tokens(
    before: Mapping[str, Any], after: Mapping[str, Any], *, tie: float = _TIE, near: float = _NEAR
) -> Outcome:
    """Tokens and margins of each sequence must be before's up to the first token that differs. There the two best
    logits must tie on both sides; what follows is not compared. The value is the share of tokens that were not."""
    tokens, margins, own = before["tokens"], before["margins"], after["margins"]
    if tokens.shape != after["tokens"].shape or margins.shape != own.shape:
        return Outcome(False, f"{after['tokens'].shape} tokens against before's {tokens.shape}")
    differ = tokens != after["tokens"]
    compared = np.cumsum(differ, axis=1) == 0
    first = differ & (np.cumsum(differ, axis=1) == 1)
    first &= np.cumsum(first, axis=1) == 1
    # Written so that what is no number is no agreement.
    if not (margins[first] <= tie).all():
        return Outcome(False, "a token differs from before's where before's choice was clear")
    if not ((own[first] >= 0) & (own[first] <= tie + near)).all():
        return Outcome(False, "a token differs from before's where the side's own choice was clear")
    if not (np.abs(own - margins)[compared] <= near * (1 + np.abs(margins[compared]))).all():
        return Outcome(False, "the same tokens were chosen from different logits")
    value = float(1 - compared.mean())
    return Outcome(True, f"{100 * value:.1f} % of the tokens follow a tie", value)


def same_when_rounded(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """The largest distance of logits, or of keys and values or their codes, from before's, over its length. Tokens are
    before's up to a choice that 16 bits may round either way."""
    if "margins" in before:
        text = same_tokens(before, after, tie=_SIXTEEN_BIT, near=_SIXTEEN_BIT)
        if not text.passed:
            return text
    elif "tokens" in before and (fault := _not_chosen(before, after)):
        return Outcome(False, fault)
    compared = sorted(name for name in before if name not in ("tokens", "margins"))
    found = [relative_frobenius({name: before[name]}, {name: after[name]}) for name in compared if name in after]
    if not found or len(found) < len(compared):
        return Outcome(False, f"both sides must give {', '.join(compared) or 'logits'}")
    return max(found, key=lambda outcome: (not outcome.passed, outcome.value or 0.0))


def disagreement(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Share of the positions of one given text at which the sides would choose different tokens."""
    if before["logits"].shape != after["logits"].shape:
        return Outcome(False, f"logits of shape {after['logits'].shape} against before's {before['logits'].shape}")
    if fault := _not_chosen(before, after):
        return Outcome(False, fault)
    value = float(np.mean(before["tokens"] != after["tokens"]))
    return Outcome(True, f"{100 * value:.1f} % of the tokens would be chosen differently", value)


def rounded_disagreement(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """As ``disagreement``, of sides that differ by rounding: at every position the logits must be near before's, as the
    share of other choices says little of a side that is wrong at some positions only."""
    found = disagreement(before, after)
    if not found.passed:
        return found
    apart, length = (np.linalg.norm(x, axis=-1) for x in (after["logits"] - before["logits"], before["logits"]))
    # Written so that what is no number is no agreement.
    if not (apart <= _FAR * length).all():
        return Outcome(False, "logits lie further from before's than rounding takes them")
    return found


def _not_chosen(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Which side has tokens that its logits do not choose, as a sentence; empty where none has."""
    for name, side in (("before", before), ("after", after)):
        best = side["logits"].max(axis=-1)
        chosen = np.take_along_axis(side["logits"], side["tokens"].clip(0)[..., None], axis=-1)[..., 0]
        # Equal logits choose nothing.
        if not ((chosen == best) & (best > side["logits"].min(axis=-1))).all():
            return f"{name} has tokens that are not those of its highest logits"
    return ""
