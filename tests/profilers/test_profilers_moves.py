"""Every counter that a shipped scenario claims of can be read somewhere: a name that nothing knows explains nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

import aiperf.workloads
from aiperf.profilers.counters import COUNTERS

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
WORKLOADS = Path(aiperf.workloads.__file__).parent
NCU_NAME = re.compile(
    r"launch__\w+"
    r"|[a-z][a-z0-9]*__[a-z0-9_]+\.(sum|ratio|pct|(avg|max|min|sum)(\.(per_\w+|pct_of_peak_sustained_(active|elapsed)))?)"
)
"""A counter of ncu with the suffix that makes it a number: without one ncu answers with several."""


def claims() -> Iterator[tuple[str, str, str]]:
    for path in sorted(SCENARIOS.rglob("*.yaml")):
        asked = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
        for name in asked.get("moves") or {}:
            yield path.stem, asked.get("workload", ""), name


def text_of(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def own_counters(workload: str) -> frozenset[str]:
    """Keys written in the family's package and in the shared modules that it imports: its counts are among them."""
    family = WORKLOADS / workload.partition(".")[0]
    left, seen, found = list(family.glob("*.py")), set[Path](), set[str]()
    while left:
        path = left.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        keys, imported = keys_and_imports(path)
        found |= keys
        left += imported
    return frozenset(found)


@cache
def keys_and_imports(path: Path) -> tuple[frozenset[str], tuple[Path, ...]]:
    """What one module writes, and what it imports of the workloads: many families share it."""
    found, left = set[str](), list[Path]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            found |= {text for key in node.keys if (text := text_of(key))}
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(text_of(node.slice))
        if isinstance(node, ast.Constant) and str(node.value).startswith("aiperf.workloads."):
            # A module that is imported where it is needed, by its name.
            left.append(WORKLOADS.joinpath(*str(node.value).split(".")[2:]).with_suffix(".py"))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiperf.workloads"):
            inner = WORKLOADS.joinpath(*str(node.module).split(".")[2:])
            left += [inner.with_suffix(".py"), *(inner / f"{alias.name}.py" for alias in node.names)]
    return frozenset(found), tuple(left)


def known(workload: str, name: str) -> bool:
    return name in COUNTERS or name in own_counters(workload) or NCU_NAME.fullmatch(name) is not None


def test_every_counter_that_a_shipped_scenario_claims_of_is_known():
    found = list(claims())
    assert len(found) > 50
    assert [one for one in found if not known(*one[1:])] == []


@pytest.mark.parametrize(
    ("workload", "name", "is_known"),
    [
        ("comm.collective", "bus_bandwidth", False),
        ("comm.collective", "groups_made", True),
        ("tensor.op", "calls_per_step", True),
        ("model.step", "saved_bytes", True),
        ("tensor.op", "groups_made", False),
        ("cuda.kernel", "launches", True),
        ("cuda.kernel", "smsp__inst_executed.sum", True),
        ("cuda.kernel", "smsp__inst_executed", False),
        ("cuda.kernel", "smsp__inst_executed.total", False),
        ("cuda.kernel", "launch__registers_per_thread", True),
        ("cuda.kernel", "sm__warps_active.avg.pct_of_peak_sustained_active", True),
        ("", "", False),
    ],
)
def test_a_name_is_known_as_a_short_name_a_workloads_own_count_or_ncus(workload: str, name: str, is_known: bool):
    assert known(workload, name) == is_known
