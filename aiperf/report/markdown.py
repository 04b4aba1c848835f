"""The table as Markdown, for pull requests and wikis.

What must not live here: rows being built, verdicts, other dialects.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.records import RunRecord
from aiperf.report.numbers import confidence
from aiperf.report.summary import header_lines
from aiperf.report.table import Block, Row, Table
from aiperf.report.touched import touched_lines


def render_markdown(run: RunRecord, table: Table, *, summary: str, discoveries: str = "") -> str:
    """Return the run as Markdown: what and where, the table, cases without a verdict, the summary line."""
    parts = [f"## {escape(run.run)}", "", *(f"{escape(line)}  " for line in header_lines(run)), ""]
    compared = [row for row in table.rows if row.verdict]
    if compared:
        parts += [*_table(table, compared), ""]
    flagged = [f"- {escape(f'{row.case}: {row.mechanism_note}')}" for row in compared if row.mechanism_note]
    flagged += [f"- {escape(text)}" for text in touched_lines(table)]
    parts += [*flagged, ""] if flagged else []
    for block in table.extras.blocks if table.extras else ():
        parts += [*_block(block), ""]
    bare = [row for row in table.rows if not row.verdict]
    if bare:
        parts += [*(f"- {escape(_bare(row))}" for row in bare), ""]
    parts.append(f"**{escape(summary)}**")
    parts += ["", escape(discoveries)] if discoveries else []
    return "\n".join([*parts, ""])


def _table(table: Table, rows: Sequence[Row]) -> list[str]:
    interval = f"{confidence(table.alpha)} interval" if table.alpha is not None else "interval"
    titles = ["scenario", "case", "metric", "before", "after", "speedup", interval, "change", "of limit", "verdict"]
    rule = ["---"] * 3 + ["---:"] * 6 + ["---"]
    told = any(row.mechanism for row in table.rows)
    if told:
        titles, rule = [*titles, "mechanism"], [*rule, "---"]
    cells = [[*_cells(row), *([row.mechanism] if told else [])] for row in rows]
    return [table_row(titles), table_row(rule), *(table_row([escape(c) for c in row]) for row in cells)]


def _cells(row: Row) -> list[str]:
    limit = f"{row.limit_text} ({row.limit_roof}, {row.limit_side})" if row.limit_roof else row.limit_text
    case = row.name if row.headline else row.label
    return [
        row.scenario,
        case if case != row.metric else "",
        row.metric,
        row.before_text,
        row.after_text,
        row.speedup_text,
        row.interval_text,
        row.change_text,
        limit,
        row.verdict_text,
    ]


def _block(block: Block) -> list[str]:
    lines = [block.titles, *block.lines] if block.lines else []
    rows = [table_row([escape(cell) for cell in line]) for line in lines]
    rule = [table_row(["---"] * len(block.titles))] if rows else []
    return [*rows[:1], *rule, *rows[1:], *([""] if rows else []), *(f"- {escape(note)}" for note in block.notes)]


def _bare(row: Row) -> str:
    name = f"{row.scenario} {row.label}".strip()
    fix = f"; {row.fix}" if row.fix else ""
    return f"{name}: {row.status}: {row.sentence}{fix}"


def table_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table; the cells are escaped already."""
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """``text`` as Markdown shows it, whatever marks it holds."""
    for mark in ("\\", "|", "`", "*", "_", "<", "["):
        text = text.replace(mark, f"\\{mark}")
    return text
