"""The reference pages: the scenario file from its JSON schema, the commands from the parser, workloads from docstrings.

What must not live here: writing files, mkdocs.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from aiperf.cli.examples import EXAMPLES
from aiperf.cli.main import COMMANDS, app
from aiperf.scenario.find import list_scenarios
from aiperf.scenario.workloads import WorkloadListing, list_workloads

ROOT = Path(__file__).resolve().parents[2]
_SCHEMA = ROOT / "configs" / "scenario.schema.json"
_BLOCKS = {
    "SideFile": "A side",
    "SharedFile": "Shared parameters",
    "NeedsFile": "needs",
    "MeasureFile": "measure",
    "CheckFile": "check",
    "CitationFile": "book",
}
"""Definition of the schema -> heading."""


def scenario_page() -> str:
    """Every key of a scenario file."""
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    lines = [
        "# The scenario file", "",
        f"{schema['description']} Made from `configs/scenario.schema.json`, which editors can use, too.", "",
        *_keys(schema),
    ]  # fmt: skip
    definitions = schema["$defs"]
    for name in sorted(definitions, key=lambda name: list(_BLOCKS).index(name) if name in _BLOCKS else len(_BLOCKS)):
        lines += ["", f"## {_BLOCKS.get(name, name)}", "", definitions[name].get("description", ""), ""]
        lines += _keys(definitions[name])
    return "\n".join(lines) + "\n"


def _keys(block: Mapping[str, Any]) -> list[str]:
    required = set(block.get("required", ()))
    rows = [
        (f"`{name}`", _type(spec), "yes" if name in required else "", spec.get("description", ""))
        for name, spec in block.get("properties", {}).items()
    ]
    return _table(("key", "takes", "required", "meaning"), rows) if rows else []


def _type(spec: Mapping[str, Any]) -> str:
    if "$ref" in spec:
        name = spec["$ref"].rpartition("/")[2]
        heading = _BLOCKS.get(name, name)
        return f"[{heading}](#{re.sub('[^a-z]+', '-', heading.lower())})"
    if "enum" in spec:
        return ", ".join(f"`{value}`" for value in spec["enum"])
    if "anyOf" in spec:
        return " or ".join(dict.fromkeys(_type(one) for one in spec["anyOf"]))
    if spec.get("type") == "array":
        return f"list of {_type(spec.get('items', {}))}"
    kind = spec.get("type", "any value")
    if kind == "string" and "B|KiB" in spec.get("pattern", ""):
        return "size, e.g. 1GiB"
    words = {"object": "mapping", "string": "text", "integer": "whole number", "boolean": "true or false"}
    return words.get(kind, kind)


def commands_page() -> str:
    """Every command with its arguments, options and examples."""
    lines = [
        "# Commands", "",
        "Made from the parser: `aiperf COMMAND --help` prints the same. Options that can have a default of your own",
        "are on the page [settings](settings.md). `aiperf --install-completion` makes the shell complete commands and",
        "options.", "",
    ]  # fmt: skip
    for name in COMMANDS:
        lines += [f"## aiperf {name}", "", *_command(name), ""]
    return "\n".join(lines)


def _command(name: str) -> Iterator[str]:
    command = command_of(name)
    yield f"{inspect.cleandoc(command.help or COMMANDS[name].help)}"
    yield ""
    yield from ("```", *(f"aiperf {typed}" for typed, _ in EXAMPLES[name]), "```", "")
    rows = [_option(parameter) for parameter in command.params if parameter.name != "help"]
    yield from _table(("argument or option", "takes", "meaning"), rows)


def command_of(name: str) -> Any:
    """A command as the library that parses options knows it."""
    return typer.main.get_command(app).get_command(None, name)


def _option(parameter: Any) -> tuple[str, str, str]:
    meaning = parameter.help or ""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`", "", meaning
    flags = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
    return flags, ", ".join(option_takes(parameter).split("|")), meaning


def option_takes(parameter: Any) -> str:
    """What stands behind an option: its metavar, or the kind of its value; empty for a flag."""
    if parameter.is_flag:
        return ""
    kind = parameter.type_descriptor.annotation
    return parameter.metavar or {"str": "text", "int": "whole number", "float": "number", "Path": "path"}.get(
        getattr(kind, "__name__", ""), "|".join(getattr(kind, "__members__", {})) or "value"
    )


def workloads_page() -> str:
    """Every shipped workload: what it does, its parameters, the scenarios that use it."""
    lines = [
        "# Workloads", "",
        "What a scenario's `workload:` may name. Made from the functions' own docstrings and signatures;",
        "`aiperf show transfer.copy` prints the same. A workload of your own is a function in a file beside the",
        "scenario: [your own pair](guide.md).", "",
    ]  # fmt: skip
    for family, its in groupby(list_workloads(list_scenarios()), key=lambda one: one.name.partition(".")[0]):
        lines += [f"## {family}", ""]
        for one in its:
            lines += [f"### {one.name}", "", *_workload(one), ""]
    return "\n".join(lines)


def _workload(one: WorkloadListing) -> Iterator[str]:
    yield _prose(one.doc)
    yield ""
    rows = [(f"`{p.name}`", p.takes, "required" if p.required else f"`{p.written}`") for p in one.parameters]
    yield from _table(("parameter", "takes", "default"), rows) if rows else ["It has no parameters."]
    if one.scenarios:
        yield ""
        yield f"Used by {', '.join(f'`{name}`' for name in one.scenarios)}."


def _prose(doc: str) -> str:
    """A docstring as Markdown: double backticks are code already, and outside of code nothing else is markup."""
    parts = re.split(r"(``.+?``)", doc)
    return "".join(
        f"`{part[2:-2]}`" if place % 2 else re.sub(r"([*_<])", r"\\\1", part) for place, part in enumerate(parts)
    )


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    def line(cells: Iterable[str]) -> str:
        shown = (" ".join(cell.split()).replace("|", "\\|").replace("<", "&lt;") for cell in cells)
        return f"| {' | '.join(shown)} |"

    return [line(heads), line("---" for _ in heads), *map(line, rows)]
