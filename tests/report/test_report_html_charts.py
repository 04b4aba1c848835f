"""What the charts draw: every sample, every pair, every interval, at the place that its value has."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from factory_of_pages import concluded, ladder, sampled
from factory_of_records import make_case, make_comparison, make_result, measured, sample_records, voided

from aiperf.analysis.pair_fit import fit
from aiperf.records import CaseRecord, SideRun, Warmup
from aiperf.report.html.differences import differences, differences_chart
from aiperf.report.html.distribution import MOST_DOTS, distribution_chart
from aiperf.report.html.interval import BAND, BAR_WIDTH, interval_chart, tiny_bar
from aiperf.report.html.panels import panels
from aiperf.report.html.readings import strips
from aiperf.report.html.rounds import rounds_chart
from aiperf.report.html.scale import drawable, linear, logarithmic, ratio_ticks, ratios, short_value, value_ticks
from aiperf.report.html.speedups import MOST_NAMED, speedup_chart
from aiperf.report.html.svg import dots, figure, line
from aiperf.report.html.sweep import sweeps
from aiperf.report.html.warmup import warmup_chart, warmup_lines
from aiperf.report.views.run_rows import build_rows

TIMES = {"before": 1.5e-3, "after": 1e-3}


def places(data: str) -> list[tuple[int, int]]:
    """Points of a path of dots."""
    found, at = [], (0, 0)
    for dx, dy in re.findall(r"m(-?\d+) ?(-?\d+)h0", data):
        at = (at[0] + int(dx), at[1] + int(dy))
        found.append(at)
    return found


def drawn_dots(chart: str) -> list[tuple[int, int]]:
    return [p for data in re.findall(r'class="dots" d="([^"]+)"', chart) for p in places(data)]


def with_ratio(low: float, ratio: float, high: float, word: str = "improved", **changes) -> CaseRecord:
    return measured(make_case(**changes), make_result(make_comparison(ratio, 1.0, interval=(low, high)), word))


# --- scales


@pytest.mark.parametrize("make", [linear, logarithmic])
def test_a_scale_keeps_order_and_its_ends_and_holds_what_lies_outside_at_the_edge(make) -> None:
    scale = make(1.0, 100.0, start=0, end=1000)
    assert [scale(v) for v in (1, 2, 50, 100)] == sorted(scale(v) for v in (1, 2, 50, 100))
    assert 0 < scale(1.0) < 60
    assert 940 < scale(100.0) < 1000
    assert (scale(-1e9), scale(1e9)) == (0, 1000)


def test_a_log_scale_gives_equal_ratios_equal_lengths() -> None:
    scale = logarithmic(1.0, 100.0, start=0, end=1000)
    assert scale(10) - scale(1) == pytest.approx(scale(100) - scale(10), abs=1)


def test_equal_ratios_are_equal_lengths_on_the_scale_of_ratios_near_1_and_far_from_it() -> None:
    scale = ratios(0.5, 1000.0, start=0, end=10_000, threshold=0.02)
    lengths = [scale(high) - scale(low) for low, high in ((0.5, 1), (1, 2), (1.1, 2.2), (10, 20), (500, 1000))]
    assert max(lengths) - min(lengths) <= 2
    near = ratios(1.0, 1.001, start=0, end=1000, threshold=0.02)
    assert near.low <= 1 / 1.02
    assert near.high >= 1.02


def test_ticks_of_ratios_hold_1_and_stand_apart() -> None:
    for low, high, threshold in ((0.98, 1.01, 0.02), (0.2, 9.0, 0.05), (1.0, 7000.0, 0.05), (0.999, 1.0005, 0.0001)):
        scale = ratios(low, high, start=0, end=500, threshold=threshold)
        ticks = ratio_ticks(scale, apart=40)
        assert "1×" in [text for _, text in ticks]
        assert len(ticks) >= 3
        assert all(b - a >= 40 for (a, _), (b, _) in pairwise(ticks))


def test_ticks_of_values_lie_within_and_have_short_names() -> None:
    scale = logarithmic(1e-6, 1e-2, start=0, end=500)
    assert [text for _, text in value_ticks(scale, unit="s")] == ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]
    near = logarithmic(1.1e-3, 1.3e-3, start=0, end=500)
    assert len(value_ticks(near, unit="s")) >= 2
    assert short_value(2e-3, "s") == "2 ms"
    assert short_value(100e-6, "s") == "100 µs"


def test_ticks_that_lie_near_each_other_have_as_many_digits_as_tell_them_apart() -> None:
    for low, high, unit in ((1.4987, 1.5122, ""), (1.50001e-3, 1.50009e-3, "s"), (2.0, 2.0, "s")):
        ticks = [text for _, text in value_ticks(linear(low, high, start=0, end=100), unit=unit)]
        assert len(ticks) == len(set(ticks)) > 1


def test_ratios_without_measure_are_drawn_at_the_edge_and_do_no_harm() -> None:
    scale = ratios(1e-300, 1e308, start=0, end=1000, threshold=0.02)
    assert [scale(r) for r in (1e-308, 1.0, 1e308)] == [0, 500, 1000]
    record = with_ratio(1e-200, 2.0, 1e200)
    wild = replace(record.results[0].comparison, log_ratios=(900.0, -900.0, 0.0, 1.0, -1.0, 0.0))
    result = replace(record.results[0], comparison=wild)
    assert differences_chart(record, result, differences(record, result)).startswith("<svg")
    assert "Infinity" not in speedup_chart(build_rows([record]).rows).chart


def test_only_positive_finite_numbers_can_be_drawn() -> None:
    assert [drawable(x) for x in (1.0, 0.0, -1.0, math.nan, math.inf, None)] == [True, *[False] * 5]


# --- paths


def test_dots_of_a_path_are_the_points_and_equal_ones_are_drawn_once() -> None:
    points = [(5, 7), (-3, 2), (5, 7), (5, 1)]
    assert sorted(places(dots(points))) == sorted(set(points))


def test_a_line_goes_through_its_points_in_order() -> None:
    assert line([(1, 2), (4, 1), (4, 9)]) == "m1 2l3-1l0 8"
    assert line([]) == ""


def test_a_drawing_has_a_role_a_name_and_a_description_and_escapes_them() -> None:
    drawn = figure(["<g/>"], width=10, height=5, title="<b>", description='"&\x1b[1m')
    assert 'role="img"' in drawn
    assert "<title>&lt;b&gt;</title><desc>&quot;&amp;</desc>" in drawn


# --- one interval


def test_the_tiny_bar_holds_the_interval_against_a_band_of_one_threshold() -> None:
    def ends(low: float, ratio: float, high: float) -> tuple[int, int, int]:
        return tuple(int(x) for x in re.findall(r"M(\d+) 7H(\d+)M(\d+)", tiny_bar(ratio, low, high, threshold=0.02))[0])

    assert ends(1 / 1.02, 1.0, 1.02) == (BAND[0], BAND[1], BAR_WIDTH // 2)
    within, beyond, below = ends(0.99, 1.0, 1.01), ends(1.05, 1.07, 1.09), ends(0.9, 0.92, 0.95)
    assert BAND[0] < within[0] < within[2] < within[1] < BAND[1]
    assert BAND[1] < beyond[0] <= beyond[2] <= beyond[1] <= BAR_WIDTH
    assert 0 <= below[0] <= below[1] < BAND[0]
    steps = [ends(1 / 1.02, 1.02**k, 1.13)[2] for k in range(6)]
    assert len({b - a for a, b in pairwise(steps)}) == 1


def test_the_tiny_bar_of_an_interval_beyond_its_ends_is_an_arrow_and_no_place_is_made_up() -> None:
    far, little = tiny_bar(1e6, 1e5, 1e7, threshold=0.02), tiny_bar(0.1, 0.09, 0.11, threshold=0.02)
    assert far != little
    assert "H" not in far + little
    open_end = tiny_bar(2.0, 1.05, 3.8, threshold=0.02)
    assert re.search(rf'd="M\d+ 7H{BAR_WIDTH}"', open_end), "the estimate lies beyond, so only the bar is drawn"


def test_no_bar_is_made_up_where_there_is_no_number() -> None:
    assert tiny_bar(math.nan, 1, 2, threshold=0.02) == ""
    assert tiny_bar(1.0, 0.9, 1.1, threshold=0.0) == ""
    assert f"M0 7H{BAR_WIDTH}" in tiny_bar(1.0, math.nan, math.nan, threshold=0.02)


def test_the_drawing_of_an_interval_says_it_in_words_too() -> None:
    drawn = interval_chart(make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1), second_low=1.8, second_high=2.2)))
    assert "interval 1.90 … 2.10, threshold 2 %: improved." in drawn
    assert "second opinion" in drawn
    assert 'class="band"' in drawn


# --- all cases


def test_the_chart_of_all_cases_names_every_row_also_those_without_an_interval() -> None:
    rows = build_rows(sample_records()).rows
    headline = [row for row in rows if row.primary]
    drawn = speedup_chart(headline).chart
    for word in ("▲ improved", "= equivalent", "? inconclusive", "○ skipped", "✖ failed"):
        assert word in drawn
    assert drawn.count('class="mark"') == 4 + 2, "two of four lie near 1 and are drawn in the zoomed part, too"
    assert drawn.count('class="none"') == 2
    assert drawn.count('class="band"') == 2


def test_a_regressed_row_is_marked_to_the_left_of_1_and_an_improved_one_to_the_right() -> None:
    rows = build_rows([with_ratio(0.85, 0.9, 0.95, "regressed"), with_ratio(1.1, 1.2, 1.3)]).rows
    drawn = speedup_chart(rows).chart
    one = int(re.search(r'd="M(\d+) \d+V\d+" ?/?>?', drawn.split('class="one"')[1]).group(1))
    left, right = (int(x) for x in re.findall(r'class="mark" d="M(\d+) ', drawn))
    assert left < one < right


def test_many_rows_are_drawn_as_sorted_bars_all_of_them() -> None:
    records = [
        with_ratio(r * 0.99, r, r * 1.01, axes={"i": i}) for i, r in enumerate(1.5 - i / 200 for i in range(150))
    ]
    rows = build_rows(records).rows
    drawn = speedup_chart(rows).chart
    assert len(rows) > MOST_NAMED
    bars = re.findall(r"M([\d.]+) (\d+)V(\d+)", drawn.split('class="v improved"')[1])
    assert len(bars) == 150
    lows = [int(low) for _, low, _ in bars]
    assert lows == sorted(lows, reverse=True)
    assert "150 results from the smallest ratio" in drawn


def test_what_lies_near_1_is_drawn_again_in_a_zoomed_part_where_large_ratios_crowd_it() -> None:
    near, far, below = with_ratio(0.99, 1.0, 1.01), with_ratio(90, 100, 110), with_ratio(0.1, 0.2, 0.3)
    found = speedup_chart(build_rows([near, far, below]).rows)
    assert "the right part" in found.axis.lower()
    assert "from 0.9× to 1.1×" in found.axis
    assert ">near 1×<" in found.chart
    assert ">1.1×<" in found.chart
    inner, outer, lower = found.chart.split('<g class="v')[1:]
    assert inner.count('class="mark"') == 2
    whole, zoomed = (int(high) - int(low) for low, high in re.findall(r'class="bar" d="M(\d+) \d+H(\d+)', inner))
    assert zoomed > 5 * whole
    assert outer.count('class="mark"') == lower.count('class="mark"') == 1
    (right,), (left,) = (re.findall(r'class="bar" d="M(\d+) \d+l', part) for part in (outer, lower))
    assert int(right) > int(left)


def test_there_is_no_zoomed_part_where_nothing_lies_near_1_or_all_can_be_told_apart() -> None:
    for ratios_shown in ((3.0, 300.0), (0.99, 1.3), (1.0,)):
        found = speedup_chart(build_rows([with_ratio(r * 0.99, r, r * 1.01) for r in ratios_shown]).rows)
        assert "near 1×" not in found.chart
        assert found.axis == "The axis is logarithmic: equal ratios are equal lengths."


def test_of_many_rows_the_zoomed_part_holds_those_near_1_and_no_others() -> None:
    records = [
        with_ratio(r * 0.999, r, r * 1.001, axes={"i": r}) for r in [1 + i / 1000 for i in range(50)] + [99.0] * 50
    ]
    found = speedup_chart(build_rows(records).rows)
    assert "lower part" in found.axis
    upper, zoomed = found.chart.split('class="v improved"')[1:]
    assert [len(re.findall(r"M[\d.]+ \d+V", part.split("</g>")[0])) for part in (upper, zoomed)] == [100, 50]


def test_nothing_is_drawn_when_no_row_has_an_interval() -> None:
    skipped = [r for r in sample_records() if r.status == "skipped"]
    assert speedup_chart(build_rows(skipped).rows).chart == ""


# --- samples


def test_every_sample_is_drawn_where_its_time_stands_and_counted_in_the_caption() -> None:
    case = make_case()
    pairs = sampled(case, pairs=4, samples=20, times=TIMES)
    found = strips(case, pairs)
    assert sum(len(s.times) for s in found) == 4 * 20 * 2
    drawn = distribution_chart(found, ("before", "after"))
    assert "before: 80 samples in 4 pairs; after: 80 samples in 4 pairs" in drawn.caption
    assert "Every sample is drawn" in drawn.caption
    assert len(drawn_dots(drawn.chart)) == 160
    room = panels([[t for s in found if s.side == n for t in s.times] for n in (0, 1)], top=16, bottom=396)
    assert sorted(y for _, y in drawn_dots(drawn.chart)) == sorted(
        room.scales[s.side](t) for s in found for t in s.times
    )
    upper = min(y for _, y in drawn_dots(drawn.chart))
    slowest = max((t, s.side) for s in found for t in s.times)
    assert slowest[1] == 0
    before = re.search(r'<g class="s0"><path class="dots" d="([^"]+)"', drawn.chart).group(1)
    assert min(y for _, y in places(before)) == upper


def test_audited_samples_and_void_pairs_are_left_out() -> None:
    case = make_case()
    pairs = sampled(case, pairs=2, times=TIMES)
    audited = replace(pairs[0], samples=tuple(replace(s, audit=s.index == 0) for s in pairs[0].samples))
    found = strips(case, [audited, pairs[1], replace(voided(2), samples=pairs[1].samples)])
    assert {s.pair for s in found} == {0, 1}
    assert sorted(len(s.times) for s in found) == [11, 11, 12, 12]


def test_too_many_samples_are_thinned_by_a_number_that_is_told_and_the_extremes_stay() -> None:
    case = make_case()
    pairs = sampled(case, pairs=6, samples=4000, times=TIMES)
    found = strips(case, pairs)
    every = math.ceil(6 * 4000 * 2 / MOST_DOTS)
    drawn = distribution_chart(found, ("before", "after"))
    assert f"one sample in {every} of each strip is drawn, plus its smallest and largest" in drawn.caption
    assert len(drawn.chart) < 250_000
    room = panels([[t for s in found if s.side == n for t in s.times] for n in (0, 1)], top=16, bottom=396)
    kept = {y for _, y in drawn_dots(drawn.chart)}
    assert {room.scales[s.side](end) for s in found for end in (min(s.times), max(s.times))} <= kept
    whole = distribution_chart(strips(case, sampled(case, pairs=6, samples=40, times=TIMES)), ("before", "after"))
    assert "Thinned" not in whole.caption


def test_sides_that_lie_far_apart_have_a_scale_each_and_near_ones_share_it() -> None:
    assert not panels([[1.0, 1.2], [1.1, 1.3]], top=0, bottom=100).apart
    assert not panels([[1.0, 9.0], [8.0, 90.0]], top=0, bottom=100).apart
    far = panels([[1.0, 1.2], [100.0, 120.0]], top=0, bottom=100)
    assert far.apart
    assert far.scales[0](1.0) < far.scales[1](120.0)
    assert "before" in "".join(far.axes(("before", "after"), left=10, right=90))


def test_rounds_are_drawn_as_one_line_a_side_and_pair_of_their_medians() -> None:
    case = make_case()
    pairs = sampled(case, pairs=4, samples=12, times=TIMES)
    found = strips(case, pairs)
    drawn = rounds_chart(found, ("before", "after"))
    assert drawn.count('class="line"') == 8
    assert [len(s.by_round) for s in found] == [3] * 8
    strip = found[0]
    assert strip.by_round[0][1] == sorted(strip.times[:4])[1] / 2 + sorted(strip.times[:4])[2] / 2
    single = [replace(p, samples=tuple(replace(s, round=0) for s in p.samples)) for p in pairs]
    assert rounds_chart(strips(case, single), ("before", "after")) == ""


def test_three_sides_are_three_colours() -> None:
    case = ladder("tiled", "fused")
    pairs = sampled(case, times={"before": 3e-3, "tiled": 2e-3, "fused": 1.9e-3})
    drawn = distribution_chart(strips(case, pairs), ("before", "tiled", "fused")).chart
    assert all(f'<g class="s{n}">' in drawn for n in range(3))


# --- pairs


def test_the_interval_that_closed_in_ends_at_the_one_that_was_stored() -> None:
    case = make_case()
    record = concluded(case, sampled(case, pairs=10, times=TIMES))
    result = record.results[0]
    found = differences(record, result)
    assert len(found.logs) == 10
    assert sorted(set(found.orders)) == [-1, 1]
    count, last = found.running[-1]
    assert count == 10
    assert math.exp(last.low) == pytest.approx(result.comparison.low)
    assert math.exp(last.high) == pytest.approx(result.comparison.high)
    first, early = found.running[0]
    alone = fit(found.logs[:first], found.orders[:first], alpha=result.comparison.alpha)
    assert (early.low, early.high) == (alone.low, alone.high)


def test_calibrated_errors_widen_the_interval_that_closed_in_too() -> None:
    case = make_case()
    record = concluded(case, sampled(case, pairs=10, times=TIMES))
    wide = differences(replace(record, scale=2.0), record.results[0]).running[-1][1]
    plain = differences(record, record.results[0]).running[-1][1]
    assert wide.high - wide.low == pytest.approx(2 * (plain.high - plain.low))


def test_every_pair_is_marked_by_the_side_that_went_first() -> None:
    case = make_case()
    record = concluded(case, sampled(case, pairs=7, times=TIMES))
    found = differences(record, record.results[0])
    drawn = differences_chart(record, record.results[0], found)
    triangles, discs = re.findall(r'class="mark" d="([^"]+)"', drawn)
    assert triangles.count("z") == sum(o > 0 for o in found.orders) == 3
    assert discs.count("z") == 4
    assert [p.order[0] for p in record.pairs].count("before") == 3


def test_a_record_whose_pairs_do_not_match_its_ratios_is_drawn_without_order_or_interval() -> None:
    record = with_ratio(1.9, 2.0, 2.1)
    short = replace(record, pairs=record.pairs[:3])
    found = differences(short, short.results[0])
    assert (len(found.logs), found.orders, found.running) == (6, (), ())
    assert differences_chart(short, short.results[0], found).count('class="mark"') == 1


def test_pairs_far_from_the_threshold_are_drawn_large_without_it() -> None:
    case = make_case()
    record = concluded(case, sampled(case, times={"before": 1.0, "after": 1e-3}))
    drawn = differences_chart(record, record.results[0], differences(record, record.results[0]))
    assert 'class="band"' not in drawn
    ys = [int(y) for y in re.findall(r"M\d+ (\d+)(?:h10|a)", "".join(re.findall(r'class="mark" d="([^"]+)"', drawn)))]
    assert max(ys) - min(ys) > 20
    near = concluded(case, sampled(case, times={"before": 1.01e-3, "after": 1e-3}))
    assert 'class="band"' in differences_chart(near, near.results[0], differences(near, near.results[0]))


# --- warm-up


def test_warm_up_is_told_by_side_against_its_steady_time() -> None:
    case = make_case()
    pairs = sampled(case, pairs=4, times=TIMES)
    record = concluded(case, pairs)
    moving = SideRun("after", (1,), Warmup(40, 0.7, 0.01, False, "times still fall"), 0.1, 3)
    kept = [replace(p, runs=(p.runs[0], moving) if p.runs[1].side == "after" else (moving, p.runs[1])) for p in pairs]
    record = replace(record, pairs=tuple(replace(p, samples=()) for p in kept))
    before, after = warmup_lines(record, strips(record.case, pairs))
    assert (before.side, before.iterations, before.steady, before.first) == ("before", "20", "4 of 4", "200 ms")
    assert (after.iterations, after.steady, after.reasons) == ("40", "0 of 4", "times still fall (4)")
    assert 9.5 < float(after.against_steady.rstrip("×")) < 10.5
    drawn = warmup_chart(record, strips(record.case, pairs))
    assert drawn.count('class="ring"') == drawn.count('class="flat"') == 2


def test_without_a_warm_up_there_is_neither_table_nor_chart() -> None:
    record = replace(sample_records()[0], pairs=())
    assert warmup_lines(record, ()) == []
    assert warmup_chart(record, ()) == ""


# --- sweeps


def swept(axis: str, values: list, **more) -> list[CaseRecord]:
    return [with_ratio(1.9, 2.0, 2.1, axes={axis: v, **more}) for v in values]


def test_three_values_of_an_axis_make_a_curve_and_two_do_not() -> None:
    assert sweeps(swept("size", ["1MiB", "2MiB"])) == []
    (found,) = sweeps(swept("size", ["1MiB", "2MiB", "4MiB"]))
    assert found.axis == "size"
    assert "Over size: 1MiB, 2MiB, 4MiB" in found.chart


def test_sizes_stand_on_a_log_axis_and_words_one_after_the_other() -> None:
    (sizes,) = sweeps(swept("size", ["1KiB", "32KiB", "1MiB"]))
    marks = re.findall(r'class="s0".*?class="mark" d="M(\d+) .*?M(\d+) .*?M(\d+) ', sizes.chart)[0]
    first, second, third = (int(x) for x in marks)
    assert second - first == pytest.approx(third - second, abs=1)
    (words,) = sweeps(swept("op", ["add", "copy", "where"]))
    assert "add" in words.chart


def test_a_crossing_is_marked_between_its_neighbours_and_named_in_the_caption() -> None:
    records = [with_ratio(r * 0.99, r, r * 1.01, "regressed" if r < 1 else "improved", axes={"size": v})
               for v, r in (("1KiB", 0.25), ("32KiB", 0.5), ("1MiB", 2.0))]  # fmt: skip
    (found,) = sweeps(records)
    (sentence,) = found.crossings
    assert sentence.startswith("after is better than before above size = 181 KiB (98.4 % interval 17")
    assert sentence.endswith("interpolated between 32KiB and 1MiB).")
    (edge,) = re.findall(r'class="edge" d="M(\d+) 22V240"', found.chart)
    marks = [int(x) for x in re.findall(r'class="bar" d="M(\d+) ', found.chart)]
    assert marks[1] < int(edge) < marks[2]
    (flat,) = sweeps(swept("size", ["1MiB", "2MiB", "4MiB"]))
    assert (flat.crossings, 'class="edge"' in flat.chart) == ((), False)


def test_each_combination_of_the_other_axes_is_a_line_of_its_own_and_those_left_out_are_counted() -> None:
    records = [r for t in range(8) for r in swept("size", ["1MiB", "2MiB", "4MiB"], threads=t)]
    by_axis = {s.axis: s for s in sweeps(records)}
    assert len(by_axis["size"].legend) == 6
    assert by_axis["size"].left_out == 2
    assert by_axis["size"].legend[1][0] == "threads=1"
    assert len({dash for _, dash in by_axis["size"].legend}) == 6
    assert len(by_axis["threads"].legend) == 3


def test_an_interval_without_an_end_reaches_the_edge_of_the_curve_and_not_just_its_point() -> None:
    records = [*swept("size", ["1MiB", "2MiB"]), with_ratio(math.nan, 2.0, math.nan, axes={"size": "4MiB"})]
    (found,) = sweeps(records)
    bars = [(int(low), int(high)) for low, high in re.findall(r'class="bar" d="M\d+ (\d+)V(\d+)', found.chart)]
    assert bars[2] == (240, 22)
    assert all(low < 240 and high > 22 and low - high < 60 for low, high in bars[:2])
