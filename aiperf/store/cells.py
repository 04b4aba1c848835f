"""Text in a cell of CSV that no spreadsheet takes for a formula.

What must not live here: writing CSV.
"""

from __future__ import annotations

import re
from typing import Any

_FORMULA = re.compile(r"[=@\t\r]|[+-].*[(|!]", re.DOTALL)
"""A plus or a minus begins options of compilers, too, which stay as they are where nothing in them is called."""


def inert(cell: Any) -> Any:
    """The cell, after an apostrophe where a spreadsheet would compute it."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell
