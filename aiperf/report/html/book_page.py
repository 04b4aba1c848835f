"""The book beside the machine as one self-contained HTML page.

What must not live here: answering, how a claim is worded, files being written.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf import __version__
from aiperf.analysis.book import ANSWERS, LADDERS, Answered, counts
from aiperf.report.html.templates import source, templates
from aiperf.report.views.book_table import by_chapter, chapter_title, texts

_CLASSES = {
    "reproduced": "improved",
    "stronger": "improved",
    "weaker": "equivalent",
    "inconclusive": "inconclusive",
    "partly": "inconclusive",
    "not reproduced": "regressed",
    "impossible as printed": "invalid",
}
"""Answer -> the outcome whose colour it takes; the others are as quiet as a skipped case."""


def render_book(answered: Sequence[Answered], *, host: str) -> str:
    """Return the page of these rows; ``host`` names the machine they were looked at on."""
    found = counts(answered)
    return (
        templates()
        .get_template("book.html.j2")
        .render(
            version=__version__,
            host=host,
            total=len(answered),
            tiles=[(answer, _CLASSES.get(answer, "skipped"), number) for answer, number in found.items() if number],
            rules=list(ANSWERS.items()),
            ladders=LADDERS,
            chapters=[
                (name, chapter_title(name), [(_CLASSES.get(a.answer, "skipped"), a.row, texts(a)) for a in rows])
                for name, rows in by_chapter(answered)
            ],
            style=source("style.css"),
        )
    )
