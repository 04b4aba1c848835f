"""What came of the shelf: in a few sentences, and as tables by class and by whether a cheat is an accident.

What must not live here: running entries, and judging one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.cheaters.entries import GROUPS, Entry
from tests.cheaters.judge import Judged
from tests.cheaters.table import BY_NAME

BEGIN, END = "<!-- figures: make test-cheaters -->", "<!-- end of figures -->"
BEGIN_SHORT, END_SHORT = "<!-- in short: make test-cheaters -->", "<!-- end of in short -->"
_OUTCOMES = ("caught", "told", "missed", "undecided", "harmless")
_COLUMNS = (
    "cheats",
    "runs",
    *_OUTCOMES,
    "caught, strict",
    "twins' runs",
    "false alarms",
    "twins told",
    "refused, strict",
)


def known(rows: Iterable[Judged]) -> list[tuple[Entry, Judged]]:
    """The rows of entries that there still are, skipped ones left out."""
    return [(BY_NAME[row.name], row) for row in rows if row.name in BY_NAME and row.outcome != "skipped"]


def table(rows: Iterable[Judged]) -> str:
    """By class, then all by accident and all on purpose, as Markdown."""
    found = known(rows)
    lines = [_line(("class", *_COLUMNS)), _line(("---", *("---:" for _ in _COLUMNS)))]
    lines += [_row(name, found, lambda e, g=group: e.group == g) for group, name in GROUPS.items()]
    for name, intent in (("all by accident", "accident"), ("all on purpose", "purpose")):
        lines.append(_row(name, found, lambda e, i=intent: e.intent == i and not e.honest))
    lines.append(_row("all", found, lambda e: True))
    return "\n".join(lines)


def short(rows: Iterable[Judged]) -> str:
    """The numbers of the table that readers ask for first, as a list in Markdown."""
    found = known(rows)
    lines = []
    for intent, named in (("accident", "accidental"), ("purpose", "deliberate")):
        own = [row for entry, row in found if not entry.honest and entry.intent == intent]
        if own:
            count = Counter(row.outcome for row in own)
            strict = sum((row.strict or row.outcome) == "caught" for row in own)
            lines.append(
                f"- Runs of {named} cheats: {len(own)}. Caught: {_share(count['caught'], len(own))}; told: "
                f"{count['told']}; missed: {count['missed']}; undecided: {count['undecided']}; harmless: "
                f"{count['harmless']}. `--strict` catches {_share(strict, len(own))}."
            )
    twins = [row for entry, row in found if entry.honest]
    lines.append(f"- Runs of honest twins: {len(twins)}. False alarms: {sum(map(false_alarm, twins))}.")
    return "\n".join(lines)


def _share(count: int, of: int) -> str:
    return f"{count} ({100 * count / of:.0f} %)"


def shares(rows: Iterable[Judged]) -> str:
    """How many were caught, by accident and on purpose: of all runs, and of those in which the cheat was caught or won:
    where the verdict is no improvement of its side, it won nothing that aiperf would report."""
    lines = []
    for intent in ("accident", "purpose"):
        found = [(entry, row) for entry, row in known(rows) if not entry.honest and entry.intent == intent]
        caught = sum(row.outcome == "caught" for _, row in found)
        won = caught + sum(row.outcome == "missed" or (row.outcome == "told" and _won(e, row)) for e, row in found)
        if won:
            of_all, of_won = (f"{caught} of {n} ({100 * caught / n:.0f} %)" for n in (len(found), won))
            lines.append(f"by {intent}: caught {of_all}; of those that were caught or won {of_won}")
    return "\n".join(lines)


def _won(entry: Entry, row: Judged) -> bool:
    return row.word in ("improved" if entry.cheater == "after" else "regressed", "none")


def _row(name: str, found: Sequence[tuple[Entry, Judged]], belongs: Callable[[Entry], bool]) -> str:
    cheats = [(e, row) for e, row in found if not e.honest and belongs(e)]
    twins = [row for e, row in found if e.honest and belongs(e)]
    counts = Counter(row.outcome for _, row in cheats)
    numbers = [len({e.name for e, _ in cheats}), len(cheats)]
    numbers += [counts[word] for word in _OUTCOMES]
    numbers.append(sum((row.strict or row.outcome) == "caught" for _, row in cheats))
    numbers += [len(twins), sum(false_alarm(row) for row in twins), sum(row.outcome == "told" for row in twins)]
    numbers.append(sum(row.strict == "caught" and row.outcome != "caught" for row in twins))
    return _line((name, *map(str, numbers)))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def false_alarm(row: Judged) -> bool:
    """Whether an honest side came out as invalid, or failed."""
    return row.outcome == "caught" or row.word in ("failed", "no record")


def details(rows: Iterable[Judged]) -> str:
    """One line for each entry: how often it came out as what, and by which sign."""
    by_entry: dict[str, list[Judged]] = {}
    for entry, row in known(rows):
        by_entry.setdefault(entry.name, []).append(row)
    return "\n".join(_detail(BY_NAME[name], by_entry[name]) for name in BY_NAME if name in by_entry)


def _detail(entry: Entry, rows: Sequence[Judged]) -> str:
    counts = Counter(row.outcome for row in rows)
    outcomes = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    signs = " ".join(sorted({sign for row in rows for sign in row.signs}))
    words = "/".join(sorted({row.word for row in rows}))
    ratios = [row.ratio for row in rows if row.ratio is not None]
    span = f"{min(ratios):.3g}x to {max(ratios):.3g}x" if ratios else "no ratio"
    return f"{entry.name:28} {entry.group:9} {outcomes:28} {words:24} {span:18} {signs}".rstrip()


def write_page(page: Path, rows: Sequence[Judged]) -> None:
    """Put the list and the table between their marks of a page. Raises ValueError for a page without them."""
    text = page.read_text(encoding="utf-8")
    for begin, end, written in ((BEGIN_SHORT, END_SHORT, short(rows)), (BEGIN, END, table(rows))):
        head, found, rest = text.partition(begin)
        _, ended, tail = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{page} has no place for the figures: write {begin} and {end} into it")
        text = f"{head}{begin}\n{written}\n{end}{tail}"
    page.write_text(text, encoding="utf-8")
