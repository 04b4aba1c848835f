"""A family hands on the parameters of its sides as one namespace: what is read from it is one of those parameters."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import aiperf.workloads

FAMILIES = sorted(path.parent for path in Path(aiperf.workloads.__file__).parent.glob("*/workload.py"))


def functions(trees: list[ast.Module]) -> list[ast.FunctionDef]:
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def parameters(function: ast.FunctionDef) -> dict[str, str]:
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return {one.arg: ast.unparse(one.annotation) if one.annotation else "" for one in every}


def makes_namespace(function: ast.FunctionDef) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and node.keywords)
    return any("SimpleNamespace(**locals()" in ast.unparse(c) for c in calls if any(not k.arg for k in c.keywords))


def unknown_names(trees: list[ast.Module]) -> set[str]:
    """Attributes of the namespace that no function which makes it has as a parameter or a local."""
    known: set[str] = set()
    reads: list[ast.Attribute] = []
    for function in functions(trees):
        made = makes_namespace(function)
        if made:
            known |= parameters(function).keys()
            calls = (
                n for n in ast.walk(function) if isinstance(n, ast.Call) and ast.unparse(n.func) == "SimpleNamespace"
            )
            known |= {word.arg for call in calls for word in call.keywords if word.arg}
            known |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if made or parameters(function).get("asked") == "SimpleNamespace":
            inside = (node for node in ast.walk(function) if isinstance(node, ast.Attribute))
            reads += [node for node in inside if ast.unparse(node.value) in ("asked", "self._asked")]
    added = {node.attr for node in reads if isinstance(node.ctx, ast.Store)}
    return {node.attr for node in reads} - known - added


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.name)
def test_what_is_read_of_the_parameters_of_a_side_is_one_of_them(family: Path) -> None:
    assert unknown_names([ast.parse(path.read_text(encoding="utf-8")) for path in family.glob("*.py")]) == set()


def test_a_misspelt_parameter_is_noticed() -> None:
    source = """
def work(context, *, dtype):
    asked = SimpleNamespace(**locals())
    return read(asked)

def read(asked: SimpleNamespace):
    return asked.dtype, asked.dtpye
"""
    assert unknown_names([ast.parse(source)]) == {"dtpye"}
