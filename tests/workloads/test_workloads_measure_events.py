"""measure.instrument's events: log and counters report the same totals, and a report that is lost is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context, Workload
from aiperf.workloads.measure import events as loop
from aiperf.workloads.measure import workload as measure
from aiperf.workloads.measure.reporters import CounterReporter, LogReporter

EVENTS = {"subject": "events", "steps": 7, "n": 16}
PAIR = Pair("measure.instrument", {"report": "log"}, {"report": "counters"}, EVENTS)


def _stepped(workload: Workload) -> Any:
    assert workload.prepare is not None
    workload.prepare()
    workload.step()
    return workload.outputs()["totals"]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Workload, Workload]]:
    found = tuple(set_up(PAIR, side, tmp_path) for side in ("before", "after"))
    yield found  # type: ignore[misc]
    for each in found:
        assert each.close is not None
        each.close()


def test_log_and_endpoint_give_the_totals_of_the_batches(sides: tuple[Workload, Workload]) -> None:
    before, after = sides
    assert before.work == after.work
    for seed in (3, 4):
        for each in sides:
            assert each.redraw is not None
            assert each.inputs is not None
            each.redraw(seed)
            batches = np.asarray(each.inputs()["batches"])
            kinds, facts = batches[:, 0], np.column_stack([np.ones(7, int), batches[:, 1:]])
            truth = np.array([facts[kinds == kind].sum(axis=0) for kind in (0, 1)]).T
            assert np.array_equal(_stepped(each), truth)
            assert np.array_equal(_stepped(each), truth), "of one step, not of both"


def test_the_sides_agree_to_the_bit_and_differ_with_the_seed(sides: tuple[Workload, Workload]) -> None:
    first, second = (_prepared_audit(each, 3) for each in sides)
    assert differences(first, second, rtol=0, atol=0) == []
    assert differences(first, _prepared_audit(sides[1], 4), rtol=0, atol=0) == ["product", "totals"]


def _prepared_audit(workload: Workload, seed: int) -> Any:
    assert workload.prepare is not None
    workload.prepare()
    return audit(workload, seed=seed)


def test_a_log_has_a_line_for_each_batch_and_counters_write_none(sides: tuple[Workload, Workload]) -> None:
    found = []
    for each in sides:
        _stepped(each)
        assert each.counters is not None
        found.append(each.counters())
    assert [one["log_lines"] for one in found] == [7, 0]
    assert found[0]["log_bytes"] > 7 * len("batch kind=decode")
    assert found[1]["log_bytes"] == 0
    assert [one["scrapes"] for one in found] == [0, 1]


def _all_but_the_third(report: Callable[..., None]) -> Callable[..., None]:
    calls: list[int] = []

    def forgetful(self: Any, kind: str, requests: int, tokens: int) -> None:
        calls.append(tokens)
        if len(calls) != 3:
            report(self, kind, requests, tokens)

    return forgetful


@pytest.mark.parametrize("reporter", [LogReporter, CounterReporter])
def test_a_report_that_is_lost_changes_the_totals(
    reporter: Any, sides: tuple[Workload, Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = sides[reporter is CounterReporter]
    good = _stepped(side)
    monkeypatch.setattr(reporter, "report", _all_but_the_third(reporter.report))
    lost = _stepped(side)
    assert good[0].sum() - lost[0].sum() == 1
    assert (good[1:].sum(axis=1) > lost[1:].sum(axis=1)).all()


def test_the_endpoint_is_scraped_while_the_batches_go_on() -> None:
    order: list[str] = []

    class Told:
        def report(self, *_: object) -> None:
            order.append("batch")

        def ask(self) -> None:
            order.append("ask")

        def hear(self) -> None:
            order.append("hear")

    loop._Loop(Told(), seed=1, steps=4, n=2).step()  # type: ignore[arg-type]
    assert order == ["batch"] * 3 + ["ask", "batch", "hear"]


@pytest.mark.parametrize("given", [{"subject": "events"}, {"report": "log"}, {"subject": "batches", "report": "log"}])
def test_a_report_is_for_events_which_need_one(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="report is for subject events"):
        measure.instrument(Context(), **given)


@pytest.mark.parametrize(("given", "message"), [({"timer": "wall"}, "small_kernels"), ({"ranges": 1}, "train_step")])
def test_events_take_no_clock_and_no_ranges(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure.instrument(Context(), **EVENTS, report="log", **given)
