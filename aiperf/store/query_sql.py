"""SQL text before and after DuckDB: what is let through, and what is said of SQL that fails.

What must not live here: running SQL, the stored runs.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from aiperf.errors import UserError, usage
from aiperf.store.tables.catalogue import QUERY_TABLES
from aiperf.store.tables.columns import DataTable

_NAMES = ", ".join(view.name for view in QUERY_TABLES)
_LISTED = "aiperf query --schema lists every view and column"
_READS = f"Write one SELECT over the views {_NAMES}."
_WRITING = {"insert", "update", "delete", "merge", "copy"}
DESCRIBED = "DESCRIBE SELECT * FROM (\n"
"""Stands before the SELECT where DuckDB first reads it: places in its errors count from there."""


def mentioned(sql: str) -> tuple[DataTable, ...]:
    """Views whose name occurs in the text; all of them when none does (SHOW TABLES, names put together)."""
    words = set(re.findall(r"\w+", sql.lower()))
    return tuple(view for view in QUERY_TABLES if view.name in words) or QUERY_TABLES


def only_select(sql: str) -> str:
    """Return the text of the one SELECT that ``sql`` is, without what ends it.

    Raises UserError for anything else, duckdb.Error where it does not parse.
    """
    import duckdb

    try:
        text = sql.encode("utf-8")
    except UnicodeEncodeError:
        raise usage("the SQL is not text in UTF-8.", _READS) from None
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        found = f"{len(statements)} statements" if statements else "nothing"
        raise usage(f"a query must be one statement, but this is {found}.", _READS)
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = statements[0].type.name
        raise usage(f"a query can only read; {kind} is not allowed.", _READS)
    if statements[0].named_parameters:
        name = sorted(statements[0].named_parameters)[0]
        raise usage(f"the parameter ${name} has no value.", "Write the value itself.")
    return _between_semicolons(text, duckdb.tokenize(sql))


def _between_semicolons(text: bytes, tokens: list[tuple[int, Any]]) -> str:
    """Cut the ends off: what follows could not stand inside brackets."""
    semicolons = [place for place, _ in tokens if text[place : place + 1] == b";"]
    words = [place for place, kind in tokens if place not in semicolons and "comment" not in str(kind)]
    begin = max([place + 1 for place in semicolons if place < words[0]], default=0)
    end = min([place for place in semicolons if place > words[0]], default=len(text))
    return text[begin:end].decode("utf-8")


def would_fail_again(error: Exception) -> bool:
    """Whether the SQL is at fault, or the memory: the same files in a better state would not change that."""
    import duckdb

    of_sql = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.PermissionException)
    return isinstance(error, (*of_sql, duckdb.OutOfMemoryException, duckdb.InterruptException))


def sql_fault(error: Exception, select: str) -> UserError:
    """DuckDB's error as one sentence, with the views and columns that come nearest."""
    head, facts = _parts(error)
    said = " ".join((head + facts.get("exception_message", "")).partition("\n")[0].split()) or type(error).__name__
    return usage(f"{said.rstrip('.!')}.", _hint(error, facts, select), "SQL")


def _parts(error: Exception) -> tuple[str, dict[str, str]]:
    """What DuckDB says of an error before the facts (``errors_as_json``), and these; without any, all that it says."""
    head, brace, rest = str(error).partition("{")
    try:
        facts = json.loads(brace + rest)
    except ValueError:
        return str(error), {}
    return head, facts


def _hint(error: Exception, facts: Mapping[str, str], select: str) -> str:
    import duckdb

    if isinstance(error, duckdb.BinderException) and _WRITING & set(re.findall(r"\w+", select.lower())):
        return f"A query can only read. {_READS}"
    if isinstance(error, duckdb.PermissionException):
        return f"A query can read only the stored runs: the views are {_NAMES}."
    if isinstance(error, duckdb.OutOfMemoryException):
        return "Select fewer columns or rows, or aggregate in SQL."
    if isinstance(error, duckdb.ParserException) and re.search(r"\bcase\b(?!\s+when)", select, re.IGNORECASE):
        return 'case is an SQL keyword: write the column as "case" in double quotes, or as c.case for a view c.'
    near = _nearest(facts, select) if isinstance(error, duckdb.BinderException | duckdb.CatalogException) else []
    return f"Nearest: {', '.join(near)}; {_LISTED}." if near else f"The views are {_NAMES}; {_LISTED}."


def _nearest(facts: Mapping[str, str], select: str) -> list[str]:
    """Views and columns with a name like the one that was not found; of a column those owners that were asked."""
    name = (facts.get("name") or _at_fault(facts.get("location", ""), select)).lower()
    asked = mentioned(select)
    views = difflib.get_close_matches(name, [view.name for view in QUERY_TABLES], n=2)
    columns = {column.name for view in QUERY_TABLES for column in view.columns}
    close = difflib.get_close_matches(name, sorted(columns), n=2)
    owned = [f"{view.name}.{name}" for name in close for view in _owners(name, asked) or _owners(name, QUERY_TABLES)]
    return views if facts.get("type") == "Table" else [*owned, *views]


def _at_fault(location: str, select: str) -> str:
    """The last name of what stands at ``[place,length]``, bytes of the text that DuckDB read."""
    if not location:
        return ""
    place, length = json.loads(location)
    begin = place - len(DESCRIBED)
    return select.encode()[max(0, begin) : begin + length].decode(errors="replace").rpartition(".")[2]


def _owners(column: str, views: Sequence[DataTable]) -> list[DataTable]:
    return [view for view in views if column in {c.name for c in view.columns}]
