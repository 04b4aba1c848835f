"""The JSON Schema of scenario files, for editors; ``python -m aiperf.scenario.editor`` rewrites the shipped copy.

What must not live here: anything that loading a scenario needs.
"""

from __future__ import annotations

import ast
import inspect
import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from aiperf.paths import config_folder
from aiperf.scenario import schema as models
from aiperf.scenario.schema import VERDICTS, ScenarioFile

_CHECK_WORDS = {"enum": ["bitwise", "tolerance"]}
_VERDICT = {"enum": list(VERDICTS)}
_NAME = {"type": "string", "minLength": 1}
_SIDE = {"$ref": "#/$defs/SideFile"}
_ROW = {"type": "string", "minLength": 1}


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a scenario file.

    It knows keys, types and units; what only the workload's signature shows stays with aiperf.
    """
    schema = ScenarioFile.model_json_schema()
    for name, part in {"ScenarioFile": schema, **schema["$defs"]}.items():
        for key, text in _texts(getattr(models, name)).items():
            part["properties"][key] = dict(sorted({**part["properties"][key], "description": text}.items()))
    check = schema["properties"]["check"]
    text = check.get("description", "")
    schema["properties"]["check"] = {
        "description": text,
        "anyOf": [_CHECK_WORDS, {"$ref": "#/$defs/CheckFile"}],
    }
    schema["properties"]["book"]["items"] = {"anyOf": [_ROW, {"$ref": "#/$defs/CitationFile"}]}
    expect = schema["properties"]["expect"]
    schema["properties"]["expect"] = {"description": expect.pop("description"), "anyOf": [_VERDICT, expect]}
    for key in ("before", "after"):
        text = schema["properties"][key].get("description", "")
        schema["properties"][key] = {"description": text, "anyOf": [_NAME, _SIDE]}
    steps = schema["properties"]["ladder"]["patternProperties"]
    steps |= {pattern: {"anyOf": [_NAME, _SIDE]} for pattern in steps}
    alone = {"required": ["workload"], "not": {"anyOf": [{"required": [key]} for key in ("before", "after", "ladder")]}}
    schema["oneOf"] = [{"required": ["before", "after"]}, {"required": ["before", "ladder"]}, alone]
    _strip(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "aiperf scenario", **_rest(schema)}


@cache
def _texts(model: type[BaseModel]) -> dict[str, str]:
    """Key -> what stands below its field. Only an editor needs it: reading the sources takes longer than the models."""
    found: dict[str, str] = {}
    for each in (one for one in reversed(model.__mro__) if one.__module__ == models.__name__):
        (body,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(body, ast.ClassDef)
        for one, below in pairwise(body.body):
            match one, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[model.model_fields[name].alias or name] = inspect.cleandoc(text)
    return found


def schema_path() -> Path:
    """Where the shipped copy lies."""
    return config_folder() / "scenario.schema.json"


def schema_text() -> str:
    """The shipped copy's text."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _rest(schema: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k not in ("$schema", "title")}


def _strip(node: Any) -> None:
    """Drop pydantic's titles, and defaults: they are the models' way to say "not given", not values in force."""
    if isinstance(node, list):
        for item in node:
            _strip(item)
    if not isinstance(node, dict):
        return
    for key, value in list(node.items()):
        if key == "default" or (key == "title" and isinstance(value, str)):
            del node[key]
        else:
            _strip(value)


if __name__ == "__main__":
    schema_path().write_text(schema_text(), encoding="utf-8")
