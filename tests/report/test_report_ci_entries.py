"""Entries are red exactly where the command's exit code is, and say what the table says."""

from __future__ import annotations

from itertools import combinations

import pytest
from ci_made import STANDINGS, every_entry, every_record, gate_entries, gate_row
from factory_of_records import make_case, make_comparison, make_result, make_run, measured, sample_records

from aiperf.errors import Exit, Fault
from aiperf.recipes.run import exit_code
from aiperf.report.ci.entries import counts, entries_of_faults, entries_of_run

RUN_SAYS = {
    "pageable-vs-pinned-copy[direction=h2d,size=1MiB]": ("improved", "passed", ""),
    "all-reduce-after-backward-vs-ddp-overlap[ranks=2]": ("equivalent", "passed", ""),
    "tip-that-may-help": ("inconclusive", "undecided", "notice"),
    "host-bounce-vs-gpudirect-storage": ("skipped", "skipped", ""),
    "time-slicing-vs-mps": ("failed", "error", "error"),
    "slower-now[n=1]": ("regressed", "passed", "warning"),
    "hoped-for-more": ("regressed", "passed", "warning"),
    "wrong-output": ("invalid", "failed", "error"),
    "hot-host": ("unfit", "error", "error"),
    "cut-short": ("interrupted", "undecided", ""),
    "nothing-came": ("measured", "undecided", "notice"),
    "naive-vs-tiled: tiled vs before": ("improved", "passed", ""),
    "naive-vs-tiled: fused vs before": ("regressed", "passed", "warning"),
    "naive-vs-tiled: fused vs tiled": ("equivalent", "passed", ""),
    "never-begun[n=1]": ("not begun", "skipped", ""),
}
GATE_SAYS = {
    "passed": ("passed", ""),
    "regressed": ("failed", "error"),
    "inconclusive": ("undecided", "warning"),
    "invalid": ("failed", "error"),
    "failed": ("error", "error"),
    "skipped": ("skipped", ""),
    "unfit": ("error", "error"),
    "no_baseline": ("error", "error"),
    "not_comparable": ("error", "error"),
}


def test_every_status_and_word_has_its_outcome() -> None:
    entries = {e.name: (e.word, e.outcome, e.level) for e in every_entry()}
    assert RUN_SAYS.items() <= entries.items()
    assert entries["run"] == ("interrupted", "error", "error")
    assert {e.group for e in every_entry() if e.name.startswith("naive")} == {"naive-vs-tiled"}


@pytest.mark.parametrize("size", [1, *(pytest.param(size, marks=pytest.mark.long) for size in (2, 3))])
def test_a_run_is_red_exactly_when_its_exit_code_is(size: int) -> None:
    for some in combinations(every_record(), size):
        for interrupted in (False, True):
            run = make_run(planned=tuple(r.case.id for r in some), status="interrupted" if interrupted else "finished")
            entries = entries_of_run(run, some)
            code = exit_code(some, interrupted)
            assert any(e.red for e in entries) == (code not in (Exit.OK, Exit.SKIPPED)), [r.case.id for r in some]
            if code is Exit.SKIPPED:
                assert {e.outcome for e in entries} == {"skipped"}


def test_what_was_planned_and_never_begun_is_named_in_plan_order() -> None:
    first, second = sample_records()[:2]
    run = make_run(status="interrupted", planned=("late[n=1]", second.case.id, first.case.id, "last"))
    entries = entries_of_run(run, [first, second])
    assert [e.name for e in entries] == ["run", "late[n=1]", second.case.id, first.case.id, "last"]
    assert (entries[1].group, entries[1].outcome) == ("late", "skipped")
    assert "2 of 4 cases were never started" in entries[0].summary


def test_a_run_that_could_not_be_stored_says_why_and_not_that_somebody_stopped_it() -> None:
    run = make_run(status="interrupted", planned=("a",))
    entries = entries_of_run(run, [], problems=("results: no space left",))
    assert (entries[0].name, entries[0].outcome, entries[0].summary) == ("run", "error", "results: no space left")


def test_a_finished_run_has_no_entry_of_its_own() -> None:
    (record, *_) = sample_records()
    assert [e.name for e in entries_of_run(make_run(planned=(record.case.id,)), [record])] == [record.case.id]


def test_headlines_carry_the_figures_and_a_missed_expectation() -> None:
    found = {e.name: e for e in every_entry()}
    copied = found["pageable-vs-pinned-copy[direction=h2d,size=1MiB]"]
    assert copied.summary == "improved 2.81× (2.77 … 2.84): the case is improved"
    assert found["hoped-for-more"].summary.endswith("; the scenario expects: improved")
    assert "expects" not in found["slower-now[n=1]"].summary
    assert found["host-bounce-vs-gpudirect-storage"].summary == (
        "skipped: GPUDirect Storage is not active (nvidia-fs not loaded); "
        "aiperf show host-bounce-vs-gpudirect-storage says what it needs"
    )
    assert "1.2 GiB free) and more; aiperf show RUN CASE has its stderr" in found["time-slicing-vs-mps"].summary


def test_a_case_that_failed_after_some_pairs_is_an_error_with_its_reason() -> None:
    failed = sample_records()[-1]
    result = make_result(make_comparison(2e-3, 1e-3, interval=(1.9, 2.1)))
    record = measured(failed.case, result, status="failed", failure=failed.failure)
    (entry,) = entries_of_run(make_run(planned=(failed.case.id,)), [record])
    assert (entry.outcome, entry.comparable) == ("error", False)
    assert entry.summary.startswith("failed: before, set-up: CUDA out of memory")


def test_the_text_tells_the_case_and_how_to_reproduce_it_on_one_line() -> None:
    axes = {f"axis{i}": "x" * 30 for i in range(5)}
    case = make_case(axes=axes)
    (entry,) = entries_of_run(
        make_run(planned=(case.id,)), [measured(case, make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1))))]
    )
    (line,) = [line for line in entry.text.splitlines() if "aiperf run" in line and "--only" in line]
    assert line.count("--only") == 5


def test_metrics_hold_every_result_of_the_case_and_the_farthest_pair() -> None:
    entry = next(e for e in every_entry() if "256MiB" in e.name)
    assert [(m.metric, m.primary) for m in entry.metrics] == [("time", True), ("peak_memory", False)]
    time = entry.metrics[0]
    assert (time.before, time.after, time.ratio, time.low, time.high) == (15.3e-3, 4.95e-3, 3.10, 3.05, 3.13)
    assert time.after_spread == pytest.approx(4.95e-5)


def test_a_ladder_spends_its_time_once() -> None:
    assert [e.seconds for e in every_entry() if e.group == "naive-vs-tiled"] == [21.0, 0.0, 0.0]


def test_cases_of_one_name_are_told_apart() -> None:
    twice = [measured(make_case(id=name), status="skipped", skip_reason="no") for name in ("a\tb", "a b", "a  b")]
    names = [e.name for e in entries_of_run(make_run(), twice)]
    assert names == ["a b", "a b (2)", "a b (3)"]


def test_every_standing_of_a_gate_has_its_outcome() -> None:
    entries = gate_entries(*map(gate_row, STANDINGS), exit_=Exit.WRONG)
    assert {e.group: (e.outcome, e.level) for e in entries} == GATE_SAYS
    assert [e.name for e in entries] == [f"{status}-case" for status in STANDINGS]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("pass", ("undecided", "")), ("warn", ("undecided", "warning")), ("fail", ("failed", "error"))],
)
def test_an_inconclusive_row_is_as_loud_as_was_asked(asked, expected) -> None:
    code = Exit.INCONCLUSIVE if asked == "fail" else Exit.OK
    (entry,) = gate_entries(gate_row("inconclusive"), exit_=code, on_inconclusive=asked)
    assert (entry.outcome, entry.level) == expected


@pytest.mark.parametrize("status", ["no_baseline", "not_comparable", "unfit", "failed"])
def test_what_a_gate_lets_pass_is_not_red(status) -> None:
    (entry,) = gate_entries(gate_row(status), exit_=Exit.OK)
    assert (entry.outcome, entry.level) == ("skipped", "warning")


@pytest.mark.parametrize("code", list(Exit))
def test_a_gate_without_a_row_is_red_exactly_when_its_exit_code_is(code) -> None:
    entries = gate_entries(gate_row("passed"), gate_row("skipped"), exit_=code)
    assert any(e.red for e in entries) == (code not in (Exit.OK, Exit.SKIPPED))
    if code is Exit.NO_BASELINE:
        assert entries[0].name == "gate"
        assert entries[0].text == "the gate says so\ndriver: 570 then, 580 now"


def test_a_regression_at_the_gate_gives_figures_confirmation_and_the_command() -> None:
    (entry,) = gate_entries(gate_row("regressed", confirmed=True), exit_=Exit.REGRESSION, runs=("results/a",))
    for part in ("0.900×", "0.850 … 0.950", "base 1.00 ms, head 1.10 ms", "confirmed it", "results/a", "aiperf gate"):
        assert part in entry.text


def test_rows_of_one_case_have_names_of_their_own_that_do_not_depend_on_their_neighbours() -> None:
    alone = gate_entries(gate_row("passed", metric="peak_memory", unit="B"))
    both = gate_entries(gate_row("passed"), gate_row("passed", metric="peak_memory", unit="B"))
    assert [e.name for e in both] == ["passed-case", "passed-case: after peak_memory"]
    assert alone[0].name == both[1].name


def test_speedups_held_against_speedups_are_not_taken_for_times() -> None:
    (entry,) = gate_entries(gate_row("passed", before=2.0, after=1.9), level="ratio")
    assert (entry.metrics[0].before, entry.metrics[0].after, entry.metrics[0].ratio) == (None, None, 0.9)
    assert "base 2" not in entry.text


def test_a_mistake_stands_at_its_line_of_its_file() -> None:
    faults = [Fault("a/b.yaml:14:9", "no size", "write one"), Fault("--only", "no axis")]
    flag, place = entries_of_faults("run", faults)
    assert (place.path, place.line, place.name, place.outcome) == ("a/b.yaml", 14, "a/b.yaml", "error")
    assert (flag.path, flag.name, flag.summary) == ("", "--only", "--only: no axis")
    assert place.summary == "a/b.yaml:14:9: no size write one"


def test_all_outcomes_are_counted() -> None:
    found = counts(every_entry())
    assert found == {"passed": 8, "failed": 1, "error": 3, "skipped": 2, "undecided": 3}
