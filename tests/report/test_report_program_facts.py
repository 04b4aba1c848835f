"""What a table and ``show`` say of how programs were run."""

from __future__ import annotations

from typing import Any

from factory_of_records import make_case, make_comparison, make_pair, make_result, measured

from aiperf.analysis.notes import note_sentence
from aiperf.records import CaseRecord, Check, CheckResult, Note, ProgramMetric, Side, SideRun
from aiperf.report.program_facts import printed_sentences, program_sentences
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.run_table import run_table

SIDES = (Side("before", command=("tool",)), Side("after", command=("tool", "-x")))
FACTS = {"sliced": True, "why": "all sides only compute, on one core", "counted_by": "wait4"}


def record_of(before: dict[str, Any], after: dict[str, Any], **changes: Any) -> CaseRecord:
    runs = (SideRun("before", (1,), None, 0.0, 0, facts=before), SideRun("after", (2,), None, 0.0, 0, facts=after))
    comparison = make_result(make_comparison(0.4, 0.2, interval=(1.9, 2.1)))
    return measured(make_case("ab", sides=SIDES, path=""), comparison, pairs=(make_pair(0, runs=runs),), **changes)


def test_it_says_whether_programs_were_sliced_and_why_and_who_counted() -> None:
    sliced = program_sentences(record_of(FACTS, FACTS))
    assert sliced == [
        "The programs ran in slices, one awake at a time: all sides only compute, on one core.",
        "CPU time and memory include every process that a program started, counted process by process as they exited, "
        "with the memory of concurrent processes sampled.",
    ]
    queued = {**FACTS, "sliced": False, "why": "slicing is off", "counted_by": "cgroup"}
    assert program_sentences(record_of(queued, queued)) == [
        "The programs ran one after the other, as whole runs: slicing is off.",
        "CPU time and memory include every process that a program started, counted by a control group of each run.",
    ]


def test_it_names_what_was_started_for_a_shim() -> None:
    shim = {**FACTS, "shim": "/home/u/.pyenv/shims/tool", "program": "/home/u/.pyenv/versions/3/bin/tool"}
    (said,) = [line for line in program_sentences(record_of(FACTS, shim)) if "shim" in line]
    assert said == (
        "after names a shim, /home/u/.pyenv/shims/tool; the program behind it was started directly: "
        "/home/u/.pyenv/versions/3/bin/tool."
    )


def test_it_says_whether_the_programs_print_the_same() -> None:
    for prints, said in (
        ("same", "before and after print the same"),
        ("nothing", "before and after print nothing"),
        ("otherwise", "after and before print different output"),
        ("varies", "what before or after prints changes from run to run, so it was not compared"),
        ("unseen", "before vs after: not compared"),
        ("too_long", "before vs after: not compared, because another run of each would take too long"),
        ("failed", "before vs after: not compared, because another run of one of them failed"),
    ):
        runs = "" if "not compared," in said or prints == "unseen" else " of untimed runs"
        assert printed_sentences(record_of(FACTS, {**FACTS, "prints": prints})) == [f"Output{runs}: {said}."]
    assert printed_sentences(record_of(FACTS, FACTS)) == []


def test_it_says_of_outputs_that_must_be_the_same_whether_they_were() -> None:
    case = make_case("ab", sides=SIDES, path="", check=Check("bitwise"))
    passed, wrong = (CheckResult(ok, "standard output", kind="printed", sides=("after",)) for ok in (True, False))
    for checks, said in (
        ((passed,), ["Output: before and after printed the same in every run that was compared."]),
        ((passed, wrong), []),
    ):
        record = measured(case, pairs=tuple(make_pair(i, checks=(c,)) for i, c in enumerate(checks)))
        assert printed_sentences(record) == said


def test_it_says_of_files_that_must_be_the_same_whether_they_were() -> None:
    case = make_case("ab", sides=SIDES, path="", check=Check("none", files=("a.bin", "b.bin")))
    passed, wrong = (CheckResult(ok, "a.bin, b.bin", kind="files", sides=("after",)) for ok in (True, False))
    said = "Files: before and after wrote the same bytes to a.bin, b.bin in every run that was compared."
    assert printed_sentences(measured(case, pairs=(make_pair(0, checks=(passed,)),))) == [said]
    both = (make_pair(0, checks=(passed,)), make_pair(1, checks=(wrong,)))
    assert printed_sentences(measured(case, pairs=both)) == []


def test_other_sides_and_older_records_say_nothing() -> None:
    assert program_sentences(record_of({}, {})) == []
    assert program_sentences(measured(make_case())) == []


def test_only_notes_that_change_how_the_numbers_are_read_stand_below_the_row() -> None:
    notes = (
        Note("verdict_reached", {"pairs": 6}),
        Note("memory_below", {"sides": ["after"], "bytes": 9 << 20}),
    )
    (row,) = build_rows([record_of(FACTS, FACTS, notes=notes)]).rows
    assert row.notes == (note_sentence(notes[1]),)


def test_a_metric_that_the_scenario_asks_of_its_programs_has_a_row_and_others_have_none() -> None:
    asked = (
        ProgramMetric("loss", pattern="loss ([0-9.]+)"),
        ProgramMetric("step", range="step"),
        ProgramMetric("step_count", range="step", part="count"),
    )
    sides = tuple(Side(name, command=("tool",), metrics=asked) for name in ("before", "after"))
    time = make_result(make_comparison(0.4, 0.2, interval=(1.9, 2.1)))
    others = [
        make_result(make_comparison(0.4, 0.2, interval=(1.9, 2.1), metric=name), primary=False)
        for name in ("user", "loss", "step", "step_count")
    ]
    record = measured(make_case("ab", sides=sides, path=""), time, *others)
    assert [row.metric for row in run_table(build_rows([record])).rows] == ["time", "loss", "step"]
