"""Charts of servers under load: curves with intervals where three loads were measured, and the slowest request kept."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from factory_of_pages import nothing
from factory_of_records import make_case, make_comparison, make_pair, make_result, make_run, measured

from aiperf.analysis.estimates import value_interval
from aiperf.records import CaseRecord, Incident, Summary
from aiperf.report.html.load import load_curves, slowest_chart
from aiperf.report.html.page import render_html


def compared(metric: str, unit: str, before: float, after: float, spread: float | None = 0.05) -> Any:
    sides = {
        name: Summary(name, value, value, value, 6, 0, 0.0, log_sd=spread, replicates=6)
        for name, value in (("before", before), ("after", after))
    }
    return replace(make_comparison(before, after, interval=(1.9, 2.1), metric=metric, unit=unit), **sides)


def at_load(load: int, spread: float | None = 0.05, **axes: Any) -> CaseRecord:
    results = (
        make_result(compared("goodput", "1/s", load * 0.5, load * 0.9, spread)),
        make_result(compared("tokens_per_s", "1/s", load * 8.0, load * 16.0, spread), primary=False),
        make_result(compared("ttft", "s", load * 0.02, load * 0.01, spread), primary=False),
    )
    return measured(make_case("two-servers", axes={"load": load, **axes}), *results)


def kept(end: float, sent: float = 0.01) -> dict[str, Any]:
    return {
        "segment": 0, "request": 3, "sent": sent, "tokens": [end / 2, end * 0.75, end], "end": end,
        "under_way": [[0.0, 1, 0], [sent, 2, 0], [end / 2, 1, 1]],
    }  # fmt: skip


def with_slowest(*ends: tuple[float, float], void: int = -1) -> CaseRecord:
    pairs = []
    for index, sides in enumerate(ends):
        pair = make_pair(index)
        runs = tuple(replace(run, facts={"slowest": kept(end)}) for run, end in zip(pair.runs, sides, strict=True))
        away = (Incident("sent_late", "after", "late", voids=True),) if index == void else ()
        pairs.append(replace(pair, runs=runs, incidents=away))
    return measured(make_case("two-servers"), make_result(compared("ttft", "s", 2.0, 1.0)), pairs=tuple(pairs))


def marks(chart: str, side: str) -> list[tuple[int, int]]:
    (group,) = re.findall(rf'<g class="{side}".*?</g>', chart, re.DOTALL)
    (data,) = re.findall(r'class="mark" d="([^"]+)"', group)
    return [(int(x) + 4, int(y)) for x, y in re.findall(r"M(-?\d+) (-?\d+)a", data)]


def test_three_loads_make_a_curve_of_each_side_with_intervals_and_two_do_not() -> None:
    assert load_curves([at_load(2), at_load(4)]) == []
    assert load_curves([measured(make_case(axes={"size": n}), *at_load(n).results) for n in (2, 4, 8)]) == []
    (found,) = load_curves([at_load(8), at_load(2), at_load(4)])
    before, after = (marks(found.chart, side) for side in ("s0", "s1"))
    # Three points over the load, then three of TTFT against throughput; each by rising load.
    assert [x for x, _ in before] == sorted(x for x, _ in before)
    assert [x for x, _ in before[:3]] == [x for x, _ in after[:3]]
    assert all(a < b for (_, a), (_, b) in zip(after[:3], before[:3], strict=True)), "after's goodput stands higher"
    assert all(a > b for (_, a), (_, b) in zip(after[3:], before[3:], strict=True)), "and its TTFT lower"
    assert [y for _, y in before[:3]] == sorted((y for _, y in before[:3]), reverse=True), "goodput rises"
    assert [y for _, y in before[3:]] == sorted((y for _, y in before[3:]), reverse=True), "TTFT rises with the load"
    assert len(re.findall(r"V\d+M\d+ \d+h8M", found.chart)) == 2 * 6, "an upright interval at every point"
    assert len(re.findall(r"v8M\d+ \d+v8", found.chart)) == 2 * 3, "a level one at every throughput"
    assert ">8</text>" in found.chart


def test_a_value_without_a_spread_is_a_point_without_an_interval() -> None:
    (found,) = load_curves([at_load(load, spread=None) for load in (2, 4, 8)])
    assert re.findall(r"h8M|v8M", found.chart) == []
    assert len(marks(found.chart, "s0")) == 6


def test_each_combination_of_the_other_axes_has_a_chart_of_its_own() -> None:
    found = load_curves([at_load(load, cache=cache) for load in (2, 4, 8) for cache in ("cold", "warm")])
    assert [sweep.axis.rpartition("; ")[2] for sweep in found] == ["cache=cold", "cache=warm"]


def test_the_interval_of_a_value_is_that_of_the_mean_of_its_logarithms() -> None:
    low, high = value_interval(Summary("a", 2.0, 1.9, 2.1, 6, 0, 0.0, log_sd=0.1, replicates=9), alpha=0.05) or (0, 0)
    assert math.log(high / 2.0) == pytest.approx(2.306 * 0.1 / 3, rel=1e-3)
    assert low * high == pytest.approx(4.0)
    assert value_interval(Summary("a", 2.0, 1.9, 2.1, 6, 0, 0.0, log_sd=0.1, replicates=1), alpha=0.05) is None


def test_of_each_side_the_slowest_request_of_all_pairs_that_count_is_drawn_on_one_scale_of_time() -> None:
    chart = slowest_chart(with_slowest((0.2, 0.1), (0.4, 0.05), (9.0, 9.0), void=2))
    ends = [int(x) for x in re.findall(r'class="ring" d="M\d+ \d+H(\d+)', chart)]
    begins = [int(x) for x in re.findall(r'class="middle" d="M(\d+) \d+H\d+"', chart)]
    assert len(ends) == 2
    assert (ends[0] - begins[0]) / (ends[1] - begins[1]) == pytest.approx(4.0, rel=0.02)
    assert "before: sent after 10.0 ms, ended after 400 ms, first token after 200 ms" in chart
    assert "under way: 2" in chart


def test_the_servers_own_batch_is_drawn_where_it_is_known() -> None:
    record = with_slowest((0.2, 0.1))
    (pair,) = record.pairs
    before, after = pair.runs
    looks = {**before.facts["slowest"], "batch": [[0.0, 1, 4], [0.1, 3, 2]]}
    drawn = slowest_chart(
        replace(record, pairs=(replace(pair, runs=(replace(before, facts={"slowest": looks}), after)),))
    )
    assert drawn.count("batch: 3, queue: 4") == 1
    assert len(re.findall(r'class="none" d="M\d+ \d+H\d+V\d+H\d+"', drawn)) == 1
    assert "batch:" not in slowest_chart(record)


def test_the_page_of_a_run_has_the_chart_and_a_case_without_requests_has_none() -> None:
    assert slowest_chart(measured(make_case())) == ""
    record = with_slowest((0.2, 0.1))
    page = render_html(make_run(planned=(record.case.id,)), [record], pairs=nothing)
    assert "The slowest request of each side" in page
    loads = [at_load(load) for load in (2, 4, 8)]
    page = render_html(make_run(planned=tuple(r.case.id for r in loads)), loads, pairs=nothing)
    assert "Over load: goodput of each side" in page
    assert "The slowest request of each side" not in page
