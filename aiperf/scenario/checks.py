"""The check that a program names, held against the keys of a scenario's ``check:``.

What must not live here: comparing anything, places in a YAML file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from aiperf.errors import usage
from aiperf.records import Check
from aiperf.scenario.check_rules import check_kind
from aiperf.scenario.schema import CheckFile

_HINT = 'Write "tolerance", "bitwise", {"rtol": 1e-3, "atol": 0.0} or {"kind": "none", "reason": "why"}.'


def check_of(check: str | Mapping[str, Any]) -> Check:
    """The check of plain functions that a caller names. Raises UserError."""
    given = {"kind": check} if isinstance(check, str) else dict(check)
    try:
        file = CheckFile.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise usage(f"check={check!r}: {'.'.join(map(str, first['loc']))}: {first['msg']}.", _HINT) from None
    kind = check_kind(given)
    if file.files:
        raise usage(f"check={check!r}: files applies only to commands.", _HINT)
    if kind == "named" or file.reference or (kind == "none" and not file.reason):
        raise usage(f"check={check!r} is not a check of plain functions.", _HINT)
    return Check(**{**given, "kind": kind})
