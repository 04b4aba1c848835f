"""What a parameter's annotation means: its parts, in words, the values it lists, and how YAML writes one of it.

What must not live here: values being checked or converted (binding.py), reading source files.
"""

from __future__ import annotations

import ast
import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from aiperf.units import write_size

_WORDS = {
    "Size": ("size", "sizes"),
    "Seconds": ("time", "times"),
    "int": ("whole number", "whole numbers"),
    "float": ("number", "numbers"),
    "bool": ("true or false", "true or false"),
    "str": ("text", "texts"),
    "Any": ("anything", "anything"),
}
LISTS = ("list", "tuple", "Sequence")
MAPPINGS = ("dict", "Mapping")
_BARE = re.compile(r"(?!(?:true|false|null)\Z)[A-Za-z_][\w./+-]*(?::[\w./+-]+)*\Z", re.IGNORECASE)
"""Text that YAML reads as text without quotes, wherever it stands."""


@lru_cache(maxsize=4096)
def tree_of(annotation: str) -> ast.expr:
    """The annotation as a tree; one that cannot be read lets everything through."""
    try:
        return ast.parse(annotation or "Any", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Name("Any")


def name_of(node: ast.expr) -> str:
    """``list`` of ``list[int]``, ``Size`` of ``contract.Size``; empty for what is no name."""
    base = node.value if isinstance(node, ast.Subscript) else node
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def parts_of(node: ast.expr) -> list[ast.expr]:
    """What stands in the brackets."""
    if not isinstance(node, ast.Subscript):
        return []
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def typed_keys(node: ast.expr) -> dict[str, ast.expr]:
    """Key -> annotation of a mapping whose keys are known, ``dict[{"rate": float}]``; empty for any other."""
    parts = parts_of(node)
    if name_of(node) not in MAPPINGS or len(parts) != 1 or not isinstance(parts[0], ast.Dict):
        return {}
    pairs = zip(parts[0].keys, parts[0].values, strict=True)
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def of_class(node: ast.ClassDef) -> ast.expr | None:
    """A TypedDict as an annotation with known keys; None for any other class."""
    if not any(ast.unparse(base).rpartition(".")[2] == "TypedDict" for base in node.bases):
        return None
    fields = [f for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]
    keys: list[ast.expr | None] = [ast.Constant(f.target.id) for f in fields if isinstance(f.target, ast.Name)]
    return ast.Subscript(ast.Name("dict"), ast.Dict(keys, [field.annotation for field in fields]))


def options_of(node: ast.expr) -> list[ast.expr]:
    """The members of a union, null last; any other annotation is its own only one."""
    name = name_of(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        found = [*options_of(node.left), *options_of(node.right)]
    elif name in ("Optional", "Union"):
        found = [option for part in parts_of(node) for option in options_of(part)]
        found += [ast.Constant(None)] if name == "Optional" else []
    else:
        found = [node]
    return sorted(found, key=_is_null)


def choices(annotation: str) -> tuple[Any, ...] | None:
    """The values that an annotation lists; None where it allows others too."""
    found: list[Any] = []
    for option in options_of(tree_of(annotation)):
        if name_of(option) != "Literal" and not _is_null(option):
            return None
        found += [None] if _is_null(option) else _listed(option)
    return tuple(found)


def in_words(annotation: str) -> str:
    """``one of h2d, d2h``, ``list of sizes, or null``: what may be written, in the words of the faults."""
    return _said(tree_of(annotation), 0)


def written(value: Any, annotation: str) -> str:
    """A typed value as a scenario writes it: ``256MiB`` for a Size of bytes, ``true``, ``[1, 2]``, ``null``."""
    names = {name_of(option) for option in options_of(tree_of(annotation))}
    if "Size" in names and isinstance(value, int) and not isinstance(value, bool):
        return write_size(value)
    if "Seconds" in names and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{Decimal(repr(value)):f}s"
    if isinstance(value, str):
        return value if _BARE.match(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(written(v, _inner(annotation)) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {written(v, _inner(annotation))}' for k, v in value.items())}}}"
    return json.dumps(value)


def _inner(annotation: str) -> str:
    """Annotation of what a list or a mapping holds."""
    for option in options_of(tree_of(annotation)):
        if name_of(option) in (*LISTS, *MAPPINGS) and (parts := parts_of(option)) and not typed_keys(option):
            return ast.unparse(parts[-1] if name_of(option) in MAPPINGS else parts[0])
    return "Any"


def _is_null(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_open(parts: list[ast.expr]) -> bool:
    """Whether the brackets of a tuple say ``int, ...``."""
    return isinstance(parts[-1], ast.Constant) and parts[-1].value is Ellipsis


def _listed(node: ast.expr) -> list[Any]:
    return [part.value for part in parts_of(node) if isinstance(part, ast.Constant)]


def _said(node: ast.expr, many: int) -> str:
    """Words for one value of a kind, or (``many`` is 1) for several."""
    options = options_of(node)
    kinds = {name_of(option) for option in options}
    named = [o for o in options if not _is_null(o) and not (name_of(o) == "int" and "float" in kinds)]
    said = list(dict.fromkeys(_kind(option, many) for option in named))
    if not named:
        return "null"
    text = " or ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
    return f"{text}, or null" if len(options) > 1 and _is_null(options[-1]) else text


def _kind(node: ast.expr, many: int) -> str:
    name, parts = name_of(node), parts_of(node)
    if name == "Literal":
        return f"one of {', '.join(written(value, 'Any') for value in _listed(node))}"
    if name == "tuple" and len(parts) > 1 and not _is_open(parts):
        return f"{('list', 'lists')[many]} of {len(parts)}: {', '.join(_said(part, 0) for part in parts)}"
    if name in LISTS:
        of = f" of {_said(parts[0], 1)}" if parts and name_of(parts[0]) != "Any" else ""
        return f"{('list', 'lists')[many]}{of}"
    if name in MAPPINGS:
        if keys := typed_keys(node):
            return f"{('mapping', 'mappings')[many]} with {', '.join(keys)}"
        to = f" to {_said(parts[1], 1)}" if len(parts) == 2 and name_of(parts[1]) != "Any" else ""
        return f"{('mapping', 'mappings')[many]}{to}"
    return _WORDS[name][many] if name in _WORDS else ast.unparse(node)
