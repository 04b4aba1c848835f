"""A trend to the character, its pictures in either alphabet, and what is said where there is no number."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from factory_of_records import make_case, make_comparison, make_result, make_run, measured
from printed import text_of

from aiperf.analysis.trend import all_series, latest_hosts
from aiperf.analysis.trend_marks import Mark
from aiperf.records import CaseRecord, Note, Summary
from aiperf.report.views.history_table import history_view
from aiperf.report.views.sparks import bar, can_draw, reach, sparkline

JITTER = [0.003, -0.002, 0.001, -0.004, 0.002, 0.004, -0.003, -0.001]
CASE = make_case("copy", axes={"size": "1MiB"}, scenario_hash="1" * 16)


def entry(day, *, case=CASE, slower=0.0, word="improved", host="h-1", scipy="1.14", provisional=False, **changes):
    """One run of a day whose after side is slower by a share."""
    after = 31e-6 * math.exp(JITTER[day % 8]) * (1 + slower)
    ratio = 88e-6 / after
    c = make_comparison(88e-6, after, interval=(ratio * 0.99, ratio * 1.01))
    c = replace(c, after=Summary("after", after, after, after, 360, 0, 0.0, 0.004))
    run = make_run(
        run=f"2026-11-{day:02d}T18-05-03-{host}", started=f"2026-11-{day:02d}T18:05:03+00:00", host_id=host,
        host={"hostname": f"{host}-node"}, software={"scipy": scipy}, git={"sha": f"{day:02d}" * 20},
    )  # fmt: skip
    return replace(run, **changes), measured(case, make_result(c, word, verdict={"provisional": provisional}))


def told(entries, *, width=100, ascii_only=False, everything=False):
    found = all_series(entries)
    shown = found if everything else latest_hosts(found)
    hidden = [s for s in found if s not in shown]
    return text_of(history_view(shown, hidden=hidden, ascii_only=ascii_only), width=width)


def test_a_short_history_to_the_character():
    other = replace(CASE, scenario_hash="2" * 16)
    skipped = (entry(4)[0], CaseRecord(CASE, "skipped", skip_reason="no GPU"))
    dirty = {"git": {"sha": "ab" * 20, "diff": "1"}}
    text = told([
        entry(1), entry(2, scipy="1.15", **dirty), entry(3, word="invalid", scipy="1.15"),
        skipped, entry(5, case=other, status="running", provisional=True), entry(1, host="h-0"),
    ])  # fmt: skip
    assert (
        text
        == """\
copy[size=1MiB] · host h-1 (h-1-node)
5 runs, 2026-11-01 … 2026-11-05
speedup  ▅▅  ▅  2.83× … 2.84× (each ± 1.01 %)
after    ▅▅  ▅  30.9 µs … 31.1 µs (each ± 0.421 %)
 when (UTC)           commit  speedup     interval  2.73× … 2.95×     after  verdict
 2026-11-01 18:05   01010101    2.84×  2.82 … 2.87          ├──●─┤  30.9 µs  improved
     changed: software.scipy 1.14 → 1.15
 2026-11-02 18:05  abababab+    2.84×  2.81 … 2.86         ├──●──┤  31.0 µs  improved
 2026-11-03 18:05   03030303    2.85×  2.82 … 2.88                  30.9 µs  invalid
     not in the trend: the case is invalid
     changed: software.scipy 1.15 → 1.14
 2026-11-04 18:05  skipped: no GPU
     not comparable with the runs above, so the trend restarts here: scenario_hash 111111111111 →
     222222222222
 2026-11-05 18:05   05050505    2.83×  2.80 … 2.86         ├─●──┤   31.1 µs  improved (provisional)
     this run is not finished: still running, or killed

host h-0 with 1 run not shown; --all-hosts shows each host separately
intervals: 98.4 % within a run
pictures: a run that differs from its level by no more than the noise is drawn on that level
change points are searched only in series of at least 8 comparable runs
"""
    )


def test_a_step_stands_at_the_run_where_it_begins_with_its_size_and_interval():
    text = told([entry(day, slower=0.1 if day > 12 else 0.0) for day in range(1, 21)])
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(" 2026-11-13"))
    assert lines[at + 1].startswith("     step: speedup −9.")
    assert lines[at + 2].startswith("     step: after's own value +")
    assert "2026-11-13T18-05-03-h-1" in text
    assert text.count("step: speedup") == text.count("step: after") == 1
    drawn = next(line for line in lines if line.startswith("speedup")).split("  ")[1]
    assert drawn == f"{12 * '█'}│{8 * '▁'}", "two levels, and nothing of the noise about them"
    bars = [line.index("●") for line in lines if line.startswith(" 2026")]
    assert max(bars[12:]) < min(bars[:12]) - 5
    assert "It is a hint to investigate, not a verdict" in text
    assert "steps are looked for" not in text


def test_each_host_has_a_block_of_its_own():
    text = told([entry(1), entry(2, host="h-2"), entry(3)], everything=True)
    blocks = text.split("\n\n")
    assert [block.splitlines()[0] for block in blocks[:2]] == [
        "copy[size=1MiB] · host h-1 (h-1-node)", "copy[size=1MiB] · host h-2 (h-2-node)",
    ]  # fmt: skip
    assert "2026-11-02" not in blocks[0]


def test_one_run_is_a_line_without_a_picture():
    text = told([entry(1)])
    assert "1 run, 2026-11-01" in text
    assert "▁" not in text
    assert "2026-11-01 18:05" in text


def test_an_interval_that_is_not_a_number_is_a_dash():
    run, record = entry(1)
    result = record.results[0]
    open_ = replace(result, comparison=replace(result.comparison, low=math.nan, high=math.nan))
    text = told([(run, replace(record, results=(open_,))), entry(2)])
    (line,) = [line for line in text.splitlines() if line.startswith(" 2026-11-01")]
    assert "2.84×" in line
    assert line.split()[-2:-1] == ["µs"]
    assert " – " in line


def test_an_imported_history_shows_values_only():
    records = []
    for day in (1, 2):
        run, record = entry(day)
        summary = Summary("after", 1.0 + day, 1.0, 4.0, 60, 0, 0.0)
        records.append((run, replace(record, status="imported", results=(), summaries=(summary,))))
    text = told(records)
    assert "after    ▁█  2.00 s … 3.00 s" in text
    assert "speedup  ▁" not in text
    assert text.count("imported") == 2


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_heading_of_another_metric_than_time_says_which_is_better(better):
    speed = make_comparison(2.0, 1.0, interval=(1.9, 2.1), metric="speed", unit="tokens/s", better=better)
    run, record = entry(1)
    record = replace(record, results=(make_result(speed),))
    text = text_of(history_view(all_series([(run, record)], metric="speed")))
    assert f" · speed, {better} is better · host " in text
    assert "is better" not in told([entry(1)])


def test_a_run_that_does_not_hold_the_metric_says_so_and_nothing_of_how_its_case_ended():
    memory = make_comparison(2.0, 1.0, interval=(1.9, 2.1), metric="peak_memory", unit="B")
    (one, without), (two, holding) = entry(1), entry(2)
    holding = replace(holding, results=(*holding.results, make_result(memory, primary=False)))
    without = replace(without, notes=(Note("verdict_reached", {"pairs": 6}),))
    text = text_of(history_view(all_series([(one, without), (two, holding)], metric="peak_memory")))
    assert " 2026-11-01 18:05  no number: this run does not have the metric\n" in text


@pytest.mark.parametrize("width", [100, 80, 60])
def test_a_narrow_terminal_loses_columns_and_never_the_verdict(width):
    text = told([entry(day, slower=0.1 if day > 12 else 0.0, provisional=True) for day in range(1, 21)], width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert text.count("improved (provisional)") == 20


def test_the_sparkline_spans_lowest_to_highest_and_leaves_gaps():
    assert sparkline([0.0, 7.0, None, 3.0]) == "▁█ ▄"
    assert sparkline([0.0, 7.0, None, 3.0], ascii_only=True) == "_# ~"
    assert sparkline([2.0, 2.0]) == "▅▅"
    assert (sparkline([]), sparkline([None])) == ("", "")


def test_the_sparkline_keeps_its_newest_end_and_marks_where_levels_begin():
    assert sparkline([0.0, 1.0, 0.0, 1.0], begins={2}) == "▁█│▁█"
    assert sparkline([0.0, 1.0, 0.0, 1.0], begins={2}, ascii_only=True) == "_#|_#"
    assert sparkline([0.0] * 50 + [1.0], room=5) == "…▁▁▁█"
    assert sparkline([0.0] * 50 + [1.0], room=6, ascii_only=True) == "...__#"


def test_the_height_of_a_sparkline_stands_for_at_least_its_floor():
    assert sparkline([0.0, 0.01], floor=0.07) == "▄▅"
    assert sparkline([0.0, 0.07], floor=0.07) == "▁█"
    assert sparkline([0.0, 0.07, 0.7], floor=0.07) == "▁▂█"


def test_a_bar_is_an_interval_about_its_estimate_and_has_no_cap_where_it_runs_out():
    ends = (0.0, 1.0)
    assert bar(Mark(0.5, 0.2, 0.5), ends) == "      ├───●───┤"
    assert bar(Mark(0.5, 0.2, 0.5), ends, ascii_only=True) == "      |---o---|"
    assert bar(Mark(0.5, 9.0, 0.5), ends) == f"{10 * '─'}●{10 * '─'}"
    assert bar(Mark(0.5, None, 0.5), ends) == f"{10 * ' '}●"
    assert bar(None, ends) == ""


def test_a_bar_stands_on_one_scale_of_at_least_four_thresholds_for_all_runs():
    low, high = reach([Mark(0.5, 0.001, 0.5), None, Mark(0.501, 0.001, 0.5)], threshold=0.02)
    assert high - low == pytest.approx(4 * math.log(1.02))
    assert (low + high) / 2 == pytest.approx(0.5005)
    low, high = reach([Mark(0.0, 0.1, 0.0), Mark(1.0, 0.1, 1.0), Mark(1.0, 50.0, 1.0)], threshold=0.02)
    assert (low, high) == pytest.approx((-0.12, 1.12)), "one wide interval does not set the scale"


def test_a_stream_that_cannot_hold_the_blocks_gets_ascii():
    assert can_draw("utf-8")
    assert can_draw(None)
    assert not can_draw("ascii")
    assert not can_draw("latin-1")
    assert not can_draw("no such encoding")
    head = told([entry(1), entry(2)], ascii_only=True).splitlines()[2]
    assert head.startswith("speedup  ==  ")
    assert all(mark in told([entry(1), entry(2)], ascii_only=True) for mark in ("|", "o", "-"))


def test_json_holds_every_point_and_step_raw():
    found = all_series([entry(day, slower=0.1 if day > 12 else 0.0) for day in range(1, 21)])
    document = json.loads(history_view(found, warnings=["x"]).json())
    (series,) = document["series"]
    assert [p["run"][:10] for p in series["points"][:2]] == ["2026-11-01", "2026-11-02"]
    assert series["points"][0]["ratio"] == pytest.approx(88 / 31 / math.exp(JITTER[1]))
    assert {(s["of"], s["run"][:10]) for s in series["steps"]} == {("speedup", "2026-11-13"), ("value", "2026-11-13")}
    assert all(s["low"] < s["ratio"] < s["high"] for s in series["steps"])
    assert document["warnings"] == ["x"]
