"""A claim of the book in words and numbers, wherever it stands beside something measured.

What must not live here: layout, judging a claim.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiperf.analysis.book import Answered, Measured, answering_metric
from aiperf.analysis.metrics import METRICS
from aiperf.analysis.rows import ComparisonRow, comparison_row
from aiperf.plan.book import BookRow, Claim, find_row
from aiperf.records import CaseRecord
from aiperf.report.numbers import clean
from aiperf.report.views.cells import another_text, interval_text, speedup_text, verdict_text
from aiperf.scenario.citations import Citation

NO_NUMBER = "a gain without a number"
NO_SPEED_UP = "no speed-up"


def claim_text(claim: Claim | None) -> str:
    """``3.5× (illustrative)``, ``2× to 3× (published, PCIe host)``, or that the book gives no number."""
    if claim is None:
        return NO_NUMBER
    ends = dict.fromkeys(f"{end:g}×" for end in (claim.low, claim.high))
    source = f", {claim.hardware}" if claim.hardware and claim.hardware != claim.label else ""
    return f"{' to '.join(ends)} ({claim.label}{source})"


def row_claim_text(row: BookRow) -> str:
    """What a row claims, in the words of ``claim_text``; of one that gains no time, that it claims no speed-up."""
    if row.gains:
        return f"less {row.gains}, {NO_SPEED_UP}"
    return NO_SPEED_UP if row.not_time else claim_text(row.claim)


def measured_text(found: Measured | None) -> str:
    """``2.81× (2.77 … 2.84) improved``, with the host where it is another one; empty without a measurement."""
    if found is None:
        return ""
    where = "" if found.here else f" on {found.host}"
    another = f"; {text}" if (text := another_text(found, found.another)) else ""
    return clean(f"{_figures(found)} {verdict_text(found)}{where}{another}")


def _figures(row: ComparisonRow) -> str:
    """``2.81× (2.77 … 2.84)`` of a time, ``peak host memory −26 % (−27 … −25 %)`` of what is better when less."""
    label = "" if row.is_time else f"{METRICS[row.metric].label if row.metric in METRICS else row.metric} "
    return f"{label}{speedup_text(row)} ({interval_text(row)})"


def best_text(answered: Answered) -> str:
    """What was measured, in which case, and how many of the row's cases agree, or reproduce a part of it."""
    if answered.best is None:
        return ""
    step = f" {answered.best.side}" if answered.best.side != "after" else ""
    step += f" against {answered.best.against}" if not answered.best.first else ""
    named = answered.cases + len(answered.missing)
    what = "reproduce it" if answered.answer == "partly" else "say so"
    of = f"; {answered.agreeing} of {named} cases {what}" if named > 1 else ""
    return f"{measured_text(answered.best)} in {answered.best.case}{step}{of}"


def row_sentence(row_id: str, record: CaseRecord | None = None) -> str:
    """``ch07/x claims 3.5× (illustrative); measured 2.81× (2.77 … 2.84) improved.`` and what is wrong with the claim.

    Without ``record``, or with one that was not concluded, only the claim; it is said when the book has no such row.
    """
    row = find_row(row_id)
    if row is None:
        return f"{row_id} is not in the book's catalogue."
    figures = "; ".join(_measured(record, row)) if record is not None else ""
    said = [f"{row_id} claims {row_claim_text(row)}{f'; measured {figures}' if figures else ''}."]
    judged = "Judged by memory" if row.gains else "Not judged by time"
    said += [f"{judged}: {row.not_time}."] if row.not_time else []
    said += [f"Impossible as printed, by the book's own numbers: {row.impossible}"] if row.impossible else []
    return " ".join([*said, *([row.note] if row.note else [])])


def citation_sentences(citations: Iterable[Citation]) -> list[str]:
    """For each the row's sentence, what the citation lacks of it and how it differs from it."""
    said = (
        (row_sentence(c.row), c.lacks and f"Lacks: {c.lacks}.", c.differs and f"Differs: {c.differs}.")
        for c in citations
    )
    return [" ".join(filter(None, texts)) for texts in said]


def row_sentences(row_ids: Iterable[str], record: CaseRecord | None = None) -> list[str]:
    """A sentence for each row."""
    return [row_sentence(row_id, record) for row_id in row_ids]


def _measured(record: CaseRecord, row: BookRow) -> list[str]:
    """What a record says of a row, by the metric that answers it."""
    first = record.case.sides[0].name
    about = record.case.memory_metric if row.gains else answering_metric(record.case, row)
    rows = [comparison_row(record, result) for result in record.results]
    steps = len(record.case.sides) > 2
    return [
        f"{f'{found.side} ' if steps else ''}{_figures(found)} {found.verdict}"
        for found in rows
        if found.metric == about and found.against == first
    ]
