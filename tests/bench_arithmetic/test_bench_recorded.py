"""Figures of the reference runs: each file follows from its runs, and documents quote it as it is."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.bench import recorded

STORED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in recorded.FOLDER.glob("*.json")
    if path.name not in ("cheaters.json", "honest.json")
}


def test_every_figure_is_stored() -> None:
    assert set(STORED) == set(recorded.FIGURES)


@pytest.mark.long
def test_every_figure_follows_from_the_runs_that_it_names() -> None:
    by_runs: dict[tuple[str, ...], list[str]] = {}
    for name, figure in STORED.items():
        by_runs.setdefault(tuple(figure["runs"]), []).append(name)
    for runs, names in by_runs.items():
        for found in recorded.worked_out(runs, only=names):
            again = json.loads(json.dumps(asdict(found)))
            for key in ("value", "low", "high"):
                assert STORED[found.name].pop(key) == pytest.approx(again.pop(key), rel=1e-9), found.name
            assert STORED[found.name] == again


def test_documents_quote_a_figure_as_its_file_says_it() -> None:
    pages = [recorded.ROOT / "README.md", *sorted((recorded.ROOT / "docs").glob("*.md"))]
    quoted = [
        (page.name, text, name)
        for page in pages
        for text, name in re.findall(r"\[([^\]]+)\]\([^)]*reference/figures/([\w-]+)\.json\)", page.read_text("utf-8"))
    ]
    assert quoted
    said = {path.stem: json.loads(path.read_text("utf-8"))["said"] for path in map(_file, recorded.FIGURES)}
    assert [(page, text, name) for page, text, name in quoted if said[name] != text] == []


def _file(name: str) -> Path:
    return recorded.FOLDER / f"{name}.json"


def test_a_share_and_a_median_have_intervals_that_hold_them() -> None:
    one = recorded.share(3, 10)
    assert (one.said, one.value) == ("3 of 10", 0.3)
    # By the table of Clopper and Pearson.
    assert (round(one.low, 4), round(one.high, 4)) == (0.0667, 0.6525)
    assert (recorded.share(0, 5).low, recorded.share(5, 5).high) == (0.0, 1.0)
    middle = recorded.middle([n / 100 for n in range(100, -1, -1)])
    assert (middle.said, middle.value, middle.n) == ("50 %", 0.5, 101)
    # Ranks 41 and 61 of 101, counted from 1.
    assert (middle.low, middle.high) == (pytest.approx(0.41, abs=0.011), pytest.approx(0.6, abs=0.011))
    assert recorded.middle([0.2, 0.1]).low == 0.1
