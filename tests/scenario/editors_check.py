"""A scenario as an editor with the schema sees it.

What must not live here: what is expected of any scenario.
"""

from __future__ import annotations

import functools
from typing import Any

import jsonschema

from aiperf.scenario.editor import json_schema


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    """Made once: that the schema is one takes fifty times what checking a scenario takes."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def validate(scenario: Any) -> None:
    """Raise jsonschema.ValidationError where an editor would underline something."""
    fault = jsonschema.exceptions.best_match(_validator().iter_errors(scenario))
    if fault is not None:
        raise fault
