"""Which named values go to a plain function and which to the set-up that makes its arguments.

What must not live here: calling either, types of values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

SEED = "seed"
"""Parameter by which a set-up gets the seed."""
_IN_ORDER = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (*_IN_ORDER, inspect.Parameter.KEYWORD_ONLY)


def shared_out(
    values: Mapping[str, Any], *, function: Container[str], setup: Container[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a function and those of its set-up, by the names that each takes: a name of both goes to both.

    What neither takes goes to the function, which refuses it.
    """
    made = {name: value for name, value in values.items() if name in setup}
    return {name: value for name, value in values.items() if name in function or name not in made}, made


def names_of(function: Callable[..., Any], *, kinds: Container[Any] = _BY_NAME) -> list[str]:
    """Names of a function's parameters, in order; none for one of C without a signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return []
    return [p.name for p in parameters if p.kind in kinds]


def seeded(setup: Callable[..., Any], args: Sequence[Any], seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments in order and by name for a set-up, with the seed where it takes one, wherever it stands among them."""
    if SEED not in names_of(setup):
        return tuple(args), {}
    in_order = names_of(setup, kinds=_IN_ORDER)
    at = in_order.index(SEED) if SEED in in_order else len(args) + 1
    return (tuple(args), {SEED: seed}) if at >= len(args) else ((*args[:at], seed, *args[at:]), {})


def not_in_order(function: Callable[..., Any], values: Mapping[str, Any], *, given: int) -> dict[str, Any]:
    """The named values of a function but for those of its first ``given`` parameters, which others fill in order."""
    filled = names_of(function, kinds=_IN_ORDER)[:given]
    return {name: value for name, value in values.items() if name not in filled}
