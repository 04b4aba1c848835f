"""Small records for the store, and hypothesis strategies that reach every field.

What must not live here: tests.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from aiperf.records import Case, CaseRecord, CheckResult, Pair, Sample, Side, SideRun

FINITE = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | FINITE | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
SAMPLES = st.builds(
    Sample,
    side=st.sampled_from(["before", "after", "étape 2"]),
    round=WHOLE,
    index=WHOLE,
    iterations=WHOLE,
    wall_s=FINITE,
    device_s=st.none() | FINITE,
    user_s=st.none() | FINITE,
    system_s=st.none() | FINITE,
    peak_bytes=st.none() | WHOLE,
    audit=st.booleans(),
    rank=st.none() | WHOLE,
)


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a record's type that reach every field, also those with defaults."""
    plain = {float: FINITE, int: WHOLE, str: st.text(max_size=8), bool: st.booleans(), Any: JSON, type(None): st.none()}
    if kind in plain:
        return plain[kind]
    if is_dataclass(kind):
        return st.builds(kind, **{name: any_of(hint) for name, hint in get_type_hints(kind).items()})
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return st.sampled_from(arguments)
    if get_origin(kind) is tuple:
        return st.lists(any_of(arguments[0]), max_size=2).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(st.text(max_size=5), any_of(arguments[1]), max_size=2)
    return st.one_of([any_of(argument) for argument in arguments])


def make_case(case_id: str = "copy[size=1MiB]", **changes: Any) -> Case:
    given: dict[str, Any] = {
        "scenario": case_id.split("[")[0],
        "id": case_id,
        "title": "Copy",
        "why": "Because",
        "sides": (Side("before", workload="transfer.copy"), Side("after", workload="transfer.copy")),
    }
    return Case(**(given | changes))


def make_pair(index: int = 0, *, samples: int = 4, order: tuple[str, ...] = ("before", "after")) -> Pair:
    taken = tuple(
        Sample(order[i % 2], i // 2, i, 10 + i, 1e-3 / (i + 1), device_s=None if i % 2 else 9e-4, audit=i == 0)
        for i in range(samples)
    )
    runs = tuple(SideRun(side, (i,), None, 0.1, 2, work={"bytes": 4096}) for i, side in enumerate(order))
    checks = (CheckResult(True, "after with before, bitwise"),)
    return Pair(index, order, 7, taken, runs, checks, started=1.7e9 + index, seconds=2.5)


def make_record(case_id: str = "copy[size=1MiB]", *, pairs: int = 6) -> CaseRecord:
    orders = [("before", "after"), ("after", "before")]
    taken = tuple(make_pair(i, order=orders[i % 2]) for i in range(pairs))
    return CaseRecord(case=make_case(case_id), status="measured", pairs=taken, seconds=12.5, started="2026-11-20T18:05")
