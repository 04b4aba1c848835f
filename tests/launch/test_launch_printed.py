"""What programs print and write, compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aiperf.launch.printed import compare_written
from aiperf.launch.written import WrittenFile
from aiperf.records import Case, Check, Side

SIDES = (Side("before", command=("a",)), Side("after", command=("b",)))
CASE = Case("pair", "pair", "", "", SIDES, check=Check("none", files=("out.bin",)))


def runs_of(side: str, *files: WrittenFile) -> list[Any]:
    return [SimpleNamespace(side=side, index=index, files=(file,)) for index, file in enumerate(files)]


GOOD, OTHER = WrittenFile("out.bin", 4, "aa"), WrittenFile("out.bin", 4, "bb")
SHORT, MISSING = WrittenFile("out.bin", 3, "cc"), WrittenFile("out.bin", fault="was not written")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([GOOD, GOOD], [GOOD, GOOD], ""),
        ([GOOD, GOOD], [GOOD, OTHER], "after, run 1: out.bin differs from run"),
        ([GOOD, GOOD], [SHORT, GOOD], "of before: 3 B instead of 4 B"),
        ([GOOD, GOOD], [MISSING, GOOD], "after, run 0: out.bin was not written"),
        ([MISSING, MISSING], [MISSING, MISSING], "before, run 0: out.bin was not written"),
        ([GOOD, OTHER], [GOOD, GOOD], "before, run"),
    ],
    ids=["same", "other bytes", "shorter", "missing", "missing on both", "before itself differs"],
)
def test_every_run_of_both_sides_is_compared(before: list[WrittenFile], after: list[WrittenFile], said: str) -> None:
    (check,) = compare_written(CASE, {"before": runs_of("before", *before), "after": runs_of("after", *after)})
    assert (check.kind, check.sides, check.passed) == ("files", ("after",), not said)
    assert said in check.detail
    assert check.compared == "out.bin of after with before, bitwise, 2 runs"


def test_nothing_is_compared_where_no_file_is_asked_for() -> None:
    assert compare_written(Case("pair", "pair", "", "", SIDES, check=Check("none")), {}) == ()
