"""Counters of claims that are kept beside the reference runs: read back, judged, and refused where they are damaged."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from aiperf.errors import UserError
from aiperf.store.counted import CountedClaim, read_counted

LINE = CountedClaim(
    "a-vs-b", "c0ffee", "page_faults", "down", 100.0, 10.0, "", "perf", "0123abcd", "a CPU", "2026-12-01"
)


def written(file: Path, *lines: CountedClaim) -> Path:
    file.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines), encoding="utf-8")
    return file


def test_lines_read_back_as_they_were_written_and_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert read_counted(tmp_path / "none.jsonl") == []
    lines = [LINE, replace(LINE, counter="syncs", tool="nsys")]
    file = written(tmp_path / "lines.jsonl", *lines)
    file.write_text(file.read_text().replace("\n", "\n\n"))
    assert read_counted(file) == lines
    assert LINE.origin == "perf on a CPU at 0123abcd, 2026-12-01"


def test_a_claim_is_judged_by_the_bar_of_the_tool_that_read_it() -> None:
    assert LINE.held.state == "moved"
    assert replace(LINE, after=95.0).held.state == "did_not_move"
    assert replace(LINE, after=95.0, tool="ncu").held.state == "moved"
    assert replace(LINE, after=200.0).held.state == "opposite"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "{}",
        json.dumps({**asdict(LINE), "more": 1}),
        json.dumps({**asdict(LINE), "claimed": "sideways"}),
        json.dumps({**asdict(LINE), "before": "18725"}),
        json.dumps({**asdict(LINE), "after": float("nan")}),
    ],
)
def test_a_line_that_is_no_counter_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    file = written(tmp_path / "lines.jsonl", LINE)
    file.write_text(file.read_text() + text + "\n")
    with pytest.raises(UserError) as refused:
        read_counted(file)
    assert f"{file}:2" in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_bytes(b"\xff")
    for file in (tmp_path, tmp_path / "lines.jsonl"):
        with pytest.raises(UserError, match="cannot be read"):
            read_counted(file)
