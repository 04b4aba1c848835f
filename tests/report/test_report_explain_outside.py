"""Functions outside the timed iterations are listed where the sides differ in them, and only there."""

from __future__ import annotations

from dataclasses import replace

from factory_of_records import make_case, make_pair, make_run, measured

from aiperf.records import CaseRecord, PhaseTime, SideRun
from aiperf.report.explain import explain_case
from aiperf.report.explain_outside import outside_sentences


def record_of(before: dict[str, float], after: dict[str, float], setup: tuple[float, float] = (0.1, 0.1)) -> CaseRecord:
    def told(run: SideRun) -> SideRun:
        own, took = (before, setup[0]) if run.side == "before" else (after, setup[1])
        return replace(run, setup_s=took, phases={name: PhaseTime(2, 2 * s, s) for name, s in own.items()})

    pairs = [make_pair(index) for index in range(3)]
    return replace(
        measured(make_case()), pairs=tuple(replace(pair, runs=tuple(map(told, pair.runs))) for pair in pairs)
    )


def test_each_function_that_differs_is_a_line_with_the_value_of_every_side() -> None:
    record = record_of(
        {"prepare": 1e-4, "close": 0.1, "redraw": 1e-3}, {"prepare": 1.8e-3, "close": 0.11, "redraw": 1e-3}
    )
    assert outside_sentences(record) == ["prepare(): before 100 µs, after 1.80 ms."]
    assert "Outside the timed steps, median per call\n  prepare(): before" in explain_case(make_run(), record)


def test_what_one_side_lacks_is_a_dash_and_set_up_comes_first() -> None:
    record = record_of({"outputs": 1e-6}, {"outputs": 7e-3, "pending": 6e-3}, setup=(0.1, 2.0))
    assert outside_sentences(record) == [
        "set-up: before 100 ms, after 2.00 s.",
        "outputs(): before 1.00 µs, after 7.00 ms.",
        "outputs(), extra time of its first call: before –, after 6.00 ms.",
    ]


def test_differences_below_a_tenth_of_a_millisecond_and_records_without_phases_say_nothing() -> None:
    assert outside_sentences(record_of({"outputs": 1e-6}, {"outputs": 9e-5})) == []
    assert outside_sentences(record_of({}, {}, setup=(0.1, 9.0))) == []
