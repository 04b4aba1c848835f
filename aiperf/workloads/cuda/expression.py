"""Small arithmetic of scenario files, such as ``2 * n`` or ``a + sqrt(b)``, over numbers or arrays.

What must not live here: eval, and knowledge of what the names stand for.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def joined(value: Any) -> str:
    """One expression, or several with commas between them, as text: ``[n, 2]`` of a scenario is ``n,2``."""
    return ",".join(str(part) for part in value) if isinstance(value, list | tuple) else str(value)


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Value of ``text``: numbers, the given names, + - * / // % and brackets, and calls of names that are functions.
    Raises ValueError for anything else."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise ValueError(f'"{text}" is not an expression') from None
    return _value(tree.body, names, text)


def _value(node: ast.expr, names: Mapping[str, Any], text: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise ValueError(f'"{node.id}" in "{text}" is not known. Known: {", ".join(sorted(names))}')
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, names, text), _value(node.right, names, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = names.get(node.func.id)
        if callable(function):
            return function(*(_value(argument, names, text) for argument in node.args))
    raise ValueError(f'"{text}" may hold numbers, names, + - * / // % and brackets only')
