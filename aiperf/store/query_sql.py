"""SQL text before and after DuckDB: what is let through, and what is said of SQL that fails.

What must not live here: running SQL, the stored runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from aiperf.errors import UserError, usage
from aiperf.store.tables.catalogue import QUERY_TABLES
from aiperf.store.tables.columns import DataTable

_NAMES = ", ".join(view.name for view in QUERY_TABLES)
_LISTED = "aiperf query --schema lists every view and column"
_READS = f"Ask one SELECT over the views {_NAMES}."
_NOT_OF_FILES = {
    *("ParserException", "BinderException", "CatalogException", "ConversionException", "PermissionException"),
    *("OutOfMemoryException", "InterruptException"),
}
_WRITES = re.compile(r"read-only mode|must be at the top level|cannot write", re.IGNORECASE)
_NOT_FOUND = re.compile(r'(?:name|column|table|alias) "?([\w ]+?)"? (?:not found|does not exist|was not found)')


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
        raise usage(f"a query is one statement; this is {found}.", _READS)
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = statements[0].type.name
        raise usage(f"a query only reads; {kind} is refused.", _READS)
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
    said = str(error)
    kind = type(error).__name__
    return (kind in _NOT_OF_FILES and "while reading file" not in said) or bool(_WRITES.search(said))


def sql_fault(error: Exception, sql: str) -> UserError:
    """DuckDB's error as one sentence, with the views and columns that come nearest."""
    said = " ".join(str(error).partition("\n")[0].split()) or type(error).__name__
    return usage(f"{said.rstrip('.!')}.", _hint(error, said, sql), "SQL")


def _hint(error: Exception, said: str, sql: str) -> str:
    if _WRITES.search(said):
        return f"A query only reads. {_READS}"
    kind = type(error).__name__
    if kind == "PermissionException":
        return f"A query sees the stored runs and nothing else: the views are {_NAMES}."
    if kind == "OutOfMemoryException":
        return "Ask for fewer columns or rows, or let SQL count them."
    if kind == "ParserException" and re.search(r"\bcase\b(?!\s+when)", sql, re.IGNORECASE):
        return 'case is a word of SQL: as a column write "case" in double quotes, or c.case of a view c.'
    near = _nearest(said, mentioned(sql))
    return f"Nearest: {', '.join(near)}; {_LISTED}." if near else f"The views are {_NAMES}; {_LISTED}."


def _nearest(said: str, asked: Sequence[DataTable]) -> list[str]:
    """Views and columns with a name like the one that was not found; of a column those owners that were asked."""
    if not (found := _NOT_FOUND.search(said)):
        return []
    views = difflib.get_close_matches(found[1].lower(), [view.name for view in QUERY_TABLES], n=2)
    columns = {column.name for view in QUERY_TABLES for column in view.columns}
    close = difflib.get_close_matches(found[1].lower(), sorted(columns), n=2)
    owned = [f"{view.name}.{name}" for name in close for view in _owners(name, asked) or _owners(name, QUERY_TABLES)]
    return views if "Table" in said and views else [*owned, *views]


def _owners(column: str, views: Sequence[DataTable]) -> list[DataTable]:
    return [view for view in views if column in {c.name for c in view.columns}]
