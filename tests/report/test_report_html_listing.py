"""The pages of ``aiperf history`` and ``aiperf compare``: charts of every number and tables, offline."""

from __future__ import annotations

import re

import pytest
from test_report_compare import FIRST, LATER, held, run
from test_report_history import entry

from aiperf.analysis.trend import all_series
from aiperf.report.html.listing_page import compare_html, history_html
from aiperf.report.html.trends import trend_charts
from aiperf.report.views.history_table import history_rows


def charts_of(entries):
    (series,) = all_series(entries)
    return trend_charts(series, history_rows(series))


def test_every_run_of_a_trend_has_its_mark_and_interval_in_the_colour_of_its_verdict():
    ratio, value = charts_of([entry(1), entry(2, word="regressed"), entry(3, word="invalid"), entry(4)])
    for chart in (ratio, value):
        assert re.findall(r'<g class="v (\w+)">', chart) == ["improved", "regressed", "improved"]
        assert chart.count('class="bar"') == chart.count('class="mark"') == 3
    assert "speedup (above 1 is better)" in ratio
    assert "after itself" in value
    assert ">11-03<" in ratio, "a run without a number keeps its place"


def test_noise_does_not_fill_a_chart_and_lies_on_one_line():
    ratio, _ = charts_of([entry(day) for day in range(1, 9)])
    ys = [int(y) for y in re.findall(r'class="mark" d="M\d+ (\d+)', ratio)]
    assert max(ys) - min(ys) < 0.2 * 172
    (level,) = re.findall(r'<g class="thread"><path class="line" d="([^"]+)"', ratio)
    assert level.count("M") == 1


def test_a_step_of_a_trend_is_marked_and_parts_its_line():
    ratio, _ = charts_of([entry(day, slower=0.1 if day > 12 else 0.0) for day in range(1, 21)])
    (level,) = re.findall(r'<g class="thread"><path class="line" d="([^"]+)"', ratio)
    assert level.count("M") == 2
    (edge,) = re.findall(r'class="edge" d="M(\d+) ', ratio)
    xs = [int(x) for x in re.findall(r'class="mark" d="M(\d+) ', ratio)]
    assert xs[11] < int(edge) < xs[12]


def test_one_run_has_no_chart():
    assert charts_of([entry(1)]) == []


@pytest.fixture(params=["history", "compare"])
def page(request) -> str:
    if request.param == "history":
        return history_html("<copy>", all_series([entry(1), entry(2)]), warnings=["<damaged>"])
    return compare_html(*held((run(18), FIRST), (run(20), LATER)), warnings=["<damaged>"])


def test_a_page_needs_nothing_from_elsewhere_and_escapes_what_others_wrote(page):
    assert page.startswith("<!doctype html>")
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert "<script" not in page
    assert "Warning: &lt;damaged&gt;" in page
    assert "<copy>" not in page
    assert "<svg" in page
    assert "<table" in page


def test_the_page_of_runs_compared_draws_every_change_of_the_primary_metric():
    across, rows = held((run(18), FIRST), (run(20), LATER), (run(21), LATER))
    page = compare_html(across, rows)
    changes = [row for row in rows if row.kind == "speedup" and row.primary]
    assert len(changes) >= 2
    chart = page.split("<svg", 1)[1].split("</svg>")[0]
    assert chart.count('class="word"') == len(changes)
    for row in changes:
        assert f" {row.letter}</text>" in chart
    assert "beyond 1× the later run is better" in page
