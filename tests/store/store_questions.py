"""Questions in SQL as the tests of the store ask them.

What must not live here: tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import UserError
from aiperf.store.query import ask


def rows(sql: str, results: Path, **options: Any) -> list[tuple[Any, ...]]:
    with ask(sql, results=results, **options) as answer:
        return list(answer.rows)


def refused(sql: str, results: Path) -> tuple[str, str]:
    """Fault and hint of SQL that must not work."""
    with pytest.raises(UserError) as caught:
        rows(sql, results)
    (fault,) = caught.value.faults
    assert "\n" not in fault.what + fault.hint
    return fault.what, fault.hint
