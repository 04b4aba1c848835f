"""A gate's outcome as a table, as Markdown and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from printed import document_of, lines_of, markdown_of, text_of

from aiperf.analysis.gate import Difference, GateOutcome, GateRow
from aiperf.analysis.gate_base import Baseline, BaselineEntry, BaselineSession, Promotion
from aiperf.errors import Exit
from aiperf.report.layout.text import plain
from aiperf.report.views.gate_table import gate_view, promoted_view

REASON = "regressed: time of parse[size=1MiB] · exit code 1: confirmed regression"
NUMBERS = {"alpha": 0.0158, "threshold": 0.02, "pairs": 12}
WORSE = GateRow(
    case="parse[size=1MiB]", scenario="parse", metric="time", unit="s", status="regressed",
    sentence="head is slower than base: speedup 0.950×, interval 0.941× … 0.959×, all below 0.980× (12 pairs); "
    "confirmed",
    ratio=0.95, low=0.941, high=0.959, p=0.0001, before=0.0121, after=0.0127, confirmed=True,
    reproduce="aiperf gate parse.yaml --only size=1MiB --against 0123456789ab --seed 0", **NUMBERS,
)  # fmt: skip
MEMORY = GateRow(
    case="parse[size=1MiB]", scenario="parse", metric="peak_memory", unit="B", status="passed", sentence="fine",
    ratio=0.952, low=0.95, high=0.954, p=1.0,
    before=1 << 20, after=1.05 * (1 << 20), **(NUMBERS | {"threshold": 0.10}),
)  # fmt: skip
OPEN = GateRow(
    case="a-scenario-with-a-rather-long-name[direction=h2d,size=256MiB]",
    scenario="a", metric="time", unit="s",
    status="inconclusive",
    sentence="time per iteration: likely worse: interval 0.960× … 0.995× includes 0.980×, a loss of 2 %, "
    "after 12 pairs; about 30 would decide it",
    ratio=0.98, low=0.96, high=0.995, p=0.4, before=1.0, after=1.02, pairs_needed=30,
    **NUMBERS,
)  # fmt: skip
NEW = GateRow(
    case="new", scenario="new", metric="time", unit="s", status="no_baseline",
    sentence="new at head: base 0123 has no new.py",
)  # fmt: skip
OUTCOME = GateOutcome(
    "rebuild", (WORSE, MEMORY, OPEN, NEW), Exit.REGRESSION, REASON, "origin/main (0123456789ab)", "HEAD (cd)",
    runs=("results/one", "results/two"), seconds=75.0, notes=("gpu_memory is not measured in new",),
)  # fmt: skip
TABLE = """\
gate: base and head rebuilt and interleaved here · base origin/main (0123456789ab) · head HEAD (cd)

   metric          base      head   ratio  98.4 % interval   change  allowed  status
 parse[size=1MiB]
   time         12.1 ms   12.7 ms  0.950×    0.941 … 0.959  +5.26 %      2 %  regressed
   peak_memory    1 MiB  1.05 MiB  0.952×    0.950 … 0.954  +5.04 %     10 %  passed
 a-scenario-with-a-rather-long-name[direction=h2d,size=256MiB]
   time          1.00 s    1.02 s  0.980×    0.960 … 0.995  +2.04 %      2 %  inconclusive
 new
   time                                                                       no baseline

 regressed: parse[size=1MiB]: head is slower than base: speedup 0.950×, interval 0.941× … 0.959×,
     all below 0.980× (12 pairs); confirmed
     to reproduce: aiperf gate parse.yaml --only size=1MiB --against 0123456789ab --seed 0
 inconclusive, passes: a-scenario-with-a-rather-long-name[direction=h2d,size=256MiB]: time per
     iteration: likely worse: interval 0.960× … 0.995× includes 0.980×, a loss of 2 %, after 12
     pairs; about 30 would decide it
 no baseline: new: new at head: base 0123 has no new.py

gpu_memory is not measured in new
1 m 15 s · results/one · results/two
regressed: time of parse[size=1MiB] · exit code 1: confirmed regression
"""


def test_a_gate_of_ignored_files_alone_says_that_nothing_was_measured():
    row = GateRow(case="new", scenario="new", metric="time", unit="s", status="passed", sentence="README.md differs")
    said = text_of(gate_view(replace(OUTCOME, rows=(row,), runs=(), notes=())), width=100)
    assert said.startswith("gate: nothing measured · base origin/main")
    assert "not measured" in said.splitlines()[4]
    assert "rebuilt" not in said


def test_the_table_is_this_to_the_character():
    assert text_of(gate_view(OUTCOME), width=100) == TABLE


@pytest.mark.parametrize("width", [100, 80, 60])
def test_it_fits_the_width_and_keeps_every_status_and_the_last_line(width):
    lines = lines_of(gate_view(OUTCOME), width=width)
    assert max(len(line.text) for line in lines) <= width
    text = plain(lines)
    for word in ("regressed", "passed", "inconclusive", "no baseline"):
        assert any(line.text.endswith(word) for line in lines), text
    assert " ".join(text.split()).endswith(REASON)


def test_a_narrow_table_gives_up_the_values_and_keeps_the_ratio():
    text = text_of(gate_view(OUTCOME), width=68)
    assert "12.1 ms" not in text
    assert "0.941 … 0.959" in text


def test_colour_underlines_the_status_alone():
    line = next(line for line in lines_of(gate_view(OUTCOME)) if line.text.endswith("regressed"))
    assert line.text[line.start :] == "regressed"
    assert line.style == "red"


def test_what_differs_between_hosts_is_listed_and_no_number_is_shown():
    row = replace(NEW, status="not_comparable", sentence="another host")
    outcome = GateOutcome(
        "ratio", (row,), Exit.NO_BASELINE, "not comparable: time of new", "base.json",
        differences=(Difference("libraries.torch", "2.10", "2.11"),),
    )  # fmt: skip
    text = text_of(gate_view(outcome), width=80)
    assert "libraries.torch  2.10  2.11" in text
    assert "×" not in text
    assert "| libraries.torch | 2.10 | 2.11 |" in markdown_of(gate_view(outcome))


def test_at_the_level_of_ratios_both_values_are_speedups():
    row = replace(WORSE, before=2.0, after=1.9)
    text = text_of(gate_view(replace(OUTCOME, level="ratio", rows=(row,))))
    assert "then" in text
    assert "2.00×" in text
    assert " ms" not in text


def test_a_row_that_passed_after_it_was_flagged_says_so():
    row = replace(MEMORY, confirmed=False, sentence="not confirmed in a fresh session: it is fine")
    assert "not confirmed in a fresh session" in text_of(gate_view(replace(OUTCOME, rows=(row,))), width=200)


def test_what_a_worker_printed_cannot_move_the_cursor():
    row = replace(NEW, status="failed", sentence="boom \x1b[2J\r\n\x07now")
    assert "\x1b" not in text_of(gate_view(replace(OUTCOME, rows=(row,))))
    assert "\x1b" not in markdown_of(gate_view(replace(OUTCOME, rows=(row,))))


def test_markdown_has_the_rows_and_ends_with_the_reason():
    text = markdown_of(gate_view(OUTCOME))
    wanted = (
        r"| parse\[size=1MiB] | peak\_memory | 1 MiB | 1.05 MiB | 0.952× | 0.950 … 0.954 | +5.04 % "
        "| 10 % | 1 | passed |"
    )
    assert wanted in text.splitlines()
    assert text.endswith("exit code 1: confirmed regression**\n")


def test_json_holds_raw_numbers_the_exit_code_and_what_was_not_measured_as_null():
    found = json.loads(document_of(gate_view(OUTCOME).json()))
    assert (found["exit"], found["level"], found["gate_version"]) == (1, "rebuild", 2)
    assert found["rows"][0]["low"] == 0.941
    assert found["rows"][3]["ratio"] is None
    assert found["sentence"] == REASON


def test_a_promotion_is_told_with_its_sessions():
    session = BaselineSession("r", "", "standard", 6, 2.0, 0.01, 4.0, 0.01)
    entry = BaselineEntry("copy", "copy", "x", "after", "time", "s", "lower", (session, session))
    told = Promotion("Ada", "first numbers", "", "0123456789abcdef", "beef", ("r1", "r2"))
    text = text_of(promoted_view(Baseline("h", {}, (told,), (entry,)), path="b.json"), width=80)
    assert text.splitlines()[1].split() == ["copy", "time", "2.00×", "2"]
    assert text.splitlines()[-2:] == [
        "b.json: 2 runs of 0123456789ab with uncommitted changes promoted by Ada: first",
        "numbers",
    ]


def test_an_inconclusive_row_says_that_it_passes_unless_the_gate_forbids_it():
    passes, fails = (
        text_of(gate_view(replace(OUTCOME, rows=(OPEN,), on_inconclusive=way)), width=200) for way in ("warn", "fail")
    )
    assert f" inconclusive, passes: {OPEN.case}: " in passes
    assert f" inconclusive: {OPEN.case}: " in fails
