"""The outcomes of a case as the page marks them: a shape beside every word, a class for its colour.

What must not live here: deciding an outcome, the colours themselves (style.css).
"""

from __future__ import annotations

from aiperf.report.views.run_rows import NO_RECORD, NOT_BEGUN

GLYPHS = {
    "improved": "▲",
    "regressed": "▼",
    "equivalent": "=",
    "inconclusive": "?",
    "invalid": "✕",
    "failed": "✖",
    "unfit": "⊘",
    "skipped": "○",
    "interrupted": "‖",
    NOT_BEGUN: "…",
    NO_RECORD: "∅",
}
"""A shape for every outcome, so that no colour carries it alone."""
_NEED = ("invalid", "failed", "unfit", "regressed", "inconclusive", "interrupted")


def glyph(word: str) -> str:
    """Shape of an outcome; a dot for one that is not known here."""
    return GLYPHS.get(word, "·")


def outcome_class(word: str) -> str:
    """Class that carries the colour of an outcome."""
    return word.replace(" ", "-")


def need(words: set[str]) -> int:
    """How soon a case with these outcomes must be shown in full: 0 before all others."""
    return min((place for place, word in enumerate(_NEED) if word in words), default=len(_NEED))
