"""Checks of ``serve.load``: how the answers of two servers are compared, as rows of characters padded with zeros.

What must not live here: sending requests (client.py), what a request took (metrics.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aiperf.workloads.contract import Outcome
from aiperf.workloads.serve.client import Request

_BEGINNING = 16
"""Characters that count as a beginning."""


def text_of(requests: Sequence[Request]) -> Any:
    """The characters of the answers, a row a request, padded with zeros."""
    texts = ["".join(request.pieces) for request in requests]
    found = np.zeros((len(texts), max([1, *map(len, texts)])), np.int64)
    for row, text in enumerate(texts):
        found[row, : len(text)] = [ord(sign) for sign in text]
    return found


def disagreement(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Share of the characters of the answers that come after the first one that differs."""
    one, other = _alike_shaped(before["text"], after["text"])
    if len(one) != len(other):
        return _unequal(one, other)
    written = (one != 0) | (other != 0)
    agreed = (np.cumsum(one != other, axis=1) == 0) & written
    value = 1 - float(agreed.sum() / max(1, written.sum()))
    return Outcome(True, f"{value:.1%} of the text comes after the first difference", value)


def unrecognised(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Share of after's answers that agree with before's answer to the same request in fewer than ``_BEGINNING``
    characters, or in no more than with one of its answers to the other requests of the audit.

    Rounding may turn a near tie at any token, and the rest of the answer with it: a share of text says little of
    long answers. Answers that were made from another prompt, other weights or another request's keys and values begin
    like before's by chance alone, or by a phrase with which the model begins all of its answers.
    """
    one, other = _alike_shaped(before["text"], after["text"])
    if len(one) != len(other):
        return _unequal(one, other)
    if len(one) < 2:
        return Outcome(False, "unrecognised compares requests with each other: it needs two or more")
    if empty := int((one == 0).all(axis=1).sum()):
        return Outcome(False, f"{empty} answers of before are empty")
    begins = np.array([[_begins_alike(mine, its) for its in one] for mine in other])
    own, equal = np.diagonal(begins), (one == other).all(axis=1)
    best = np.where(np.eye(len(one), dtype=bool), -1, begins).max(axis=1)
    value = 1 - float(np.mean(equal | ((own > best) & (own >= _BEGINNING))))
    return Outcome(True, f"{value:.1%} of the answers do not begin most like before's to the same request", value)


def _begins_alike(one: Any, other: Any) -> int:
    """Characters before the first difference."""
    alike = (one == other) & (one != 0)
    return len(alike) if alike.all() else int(np.argmin(alike))


def _alike_shaped(one: Any, other: Any) -> tuple[Any, Any]:
    width = max(one.shape[1], other.shape[1])
    found = [np.pad(text, ((0, 0), (0, width - text.shape[1]))) for text in (one, other)]
    return found[0], found[1]


def _unequal(one: Any, other: Any) -> Outcome:
    return Outcome(False, f"{len(other)} answers against before's {len(one)}")
