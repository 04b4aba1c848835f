from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from factory_of_profiles import LONG, made

from aiperf.records.profiled import Artefact, Profile, ProfileNote, SideProfile, Span
from aiperf.report.timeline import MOST_BARS, timeline_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(profile: Profile, width: int = 1200) -> ET.Element:
    return ET.fromstring(timeline_svg(profile, width=width))


def texts(root: ET.Element) -> list[str]:
    return [e.text or "" for e in root.iter(f"{SVG}text")]


def bars(root: ET.Element) -> list[tuple[str, float, float, float, str]]:
    """Class, x, y, width and title of every bar."""
    return [
        (e.get("class", ""), float(e.get("x", 0)), float(e.get("y", 0)), float(e.get("width", 0)), title.text or "")
        for e in root.iter(f"{SVG}rect")
        if (title := e.find(f"{SVG}title")) is not None
    ]


def of(*spans: Span, notes: tuple[ProfileNote, ...] = ()) -> Profile:
    return Profile("c", spans=spans, notes=notes)


def test_before_stands_above_after_on_one_time_scale() -> None:
    found = bars(drawn(made()))
    ranges = [bar for bar in found if bar[0] == "ap-k-range"]
    assert [bar[4] for bar in ranges] == ["before: 10.0 ms, from 0 ns", "after: 4.00 ms, from 0 ns"]
    (_, x, y, width, _), (_, other_x, other_y, other_width, _) = ranges
    assert x == other_x
    assert y < other_y
    # Five iterations of 2 ms, and of ten iterations of 0.4 ms as many.
    assert other_width / width == pytest.approx(0.2, abs=0.01)
    assert x + width <= 1200


def timed(wall: float, iterations: int, *, side: str, ranges: int = 1, bars: int = 0) -> tuple[list[Span], SideProfile]:
    """A side of ``wall`` seconds in one range, or of equal ranges end to end; a kernel takes half of an iteration."""
    each, part = wall / iterations, wall / ranges
    spans = [Span(side, "range", "range", side, n * part, (n + 1) * part) for n in range(ranges)]
    spans += [Span(side, "GPU 0 stream 7", "kernel", "k", n * each, (n + 0.5) * each) for n in range(iterations)]
    spans += [Span(side, "host", "op", "o", wall / 2 * n / bars, wall / 2 * (n + 0.1) / bars) for n in range(bars)]
    return spans, SideProfile(side, "nsys", iterations, wall_s=wall)


def both(one: tuple[list[Span], SideProfile], other: tuple[list[Span], SideProfile]) -> Profile:
    return Profile("c", spans=(*one[0], *other[0]), sides=(one[1], other[1]))


def headings(profile: Profile) -> list[str]:
    return [t for t in texts(drawn(profile)) if t.startswith(("before, ", "after, "))]


@pytest.mark.parametrize("ranges", [1, 50])
def test_sides_with_other_numbers_of_iterations_are_drawn_over_equally_many(ranges: int) -> None:
    profile = both(timed(0.289, 14, side="before"), timed(0.245, 50, side="after", ranges=ranges))
    assert headings(profile) == [
        "before, 20.6 ms an iteration, all 14 in 289 ms", "after, 4.90 ms an iteration, the first 14 of 50 in 68.6 ms"
    ]  # fmt: skip
    kernels = [bar for bar in bars(drawn(profile)) if bar[0] == "ap-k-kernel"]
    assert len(kernels) == 28
    assert kernels[0][3] / kernels[14][3] == pytest.approx(0.289 / 14 / (0.245 / 50), rel=0.05)


def test_a_bar_that_goes_on_behind_the_drawn_part_ends_with_it_and_tells_its_whole_time() -> None:
    profile = both(timed(0.1, 10, side="before"), timed(0.2, 40, side="after"))
    first, last = (bar for bar in bars(drawn(profile)) if bar[0] == "ap-k-range")
    assert last[3] / first[3] == pytest.approx(0.5, abs=0.01)
    assert last[4] == "after: 200 ms, from 0 ns"


def test_where_bars_were_left_out_only_iterations_that_are_whole_are_drawn() -> None:
    # All bars of ten iterations that begin in their first half.
    cut = timed(1.0, 10, side="before", bars=4000)
    read = (cut[0][:1] + [s for s in cut[0][1:] if s.start_s < 0.5], cut[1])
    assert headings(both(read, timed(0.5, 10, side="after"))) == [
        "before, 100 ms an iteration, the first 4 of 10 in 400 ms",
        "after, 50.0 ms an iteration, the first 4 of 10 in 200 ms",
    ]


def test_a_first_iteration_of_more_bars_than_are_kept_is_drawn_as_far_as_they_go() -> None:
    spans, told = timed(1.0, 2, side="before")
    few = [Span("before", "host", "op", "o", n * 1e-5, n * 1e-5 + 5e-6) for n in range(4000)]
    profile = both(([spans[0], *few], told), timed(0.5, 2, side="after"))
    assert headings(profile) == [
        "before, 500 ms an iteration, the first 1 of 2 in 500 ms",
        "after, 250 ms an iteration, the first 1 of 2 in 250 ms",
    ]


def test_a_side_whose_iterations_nobody_told_is_drawn_whole_and_so_is_the_other() -> None:
    spans, _ = timed(0.2, 1, side="before")
    profile = Profile("c", spans=(*spans, *timed(0.1, 10, side="after")[0]), sides=(timed(0.1, 10, side="after")[1],))
    assert headings(profile) == ["after, 10.0 ms an iteration, all 10 in 100 ms", "before, 200 ms"]


def test_a_bar_lies_where_its_time_is() -> None:
    kernel = next(bar for bar in bars(drawn(made())) if bar[0] == "ap-k-kernel")
    whole = next(bar for bar in bars(drawn(made())) if bar[0] == "ap-k-range")
    assert (kernel[1] - whole[1]) / whole[3] == pytest.approx(0.2, abs=0.005)
    assert kernel[3] / whole[3] == pytest.approx(0.6, abs=0.005)
    assert kernel[4].endswith(": 6.00 ms, from 2.00 ms")


def test_lanes_go_by_rank_then_ranges_host_and_streams_as_numbers() -> None:
    lanes: list[tuple[str, str, int]] = [
        ("rank 10 GPU 10 stream 7", "kernel", 10),
        ("rank 2 GPU 2 stream 17", "kernel", 2),
        ("rank 2 GPU 2 stream 7", "memcpy", 2),
        ("rank 2 host", "sync", 2),
        ("rank 2 range", "range", 2),
    ]
    root = drawn(of(*(Span("before", name, kind, "k", 0.0, 1.0, rank) for name, kind, rank in lanes)))
    assert [t for t in texts(root) if t.startswith("rank")] == [name for name, _, _ in reversed(lanes)]


def test_lanes_of_any_name_have_an_order() -> None:
    lanes = ["7", "seven", "GPU", "host", "host 2 of 3", "rank x"]
    root = drawn(of(*(Span("before", name, "op", "k", 0.0, 1.0) for name in lanes)))
    assert {t for t in texts(root) if t in lanes} == set(lanes)


def test_every_kind_that_is_drawn_is_named_in_the_legend_and_no_other() -> None:
    said = texts(drawn(made()))
    assert {"range", "launch", "kernel"} <= set(said)
    assert not {"copy", "waiting call", "collective"} & set(said)


def test_bars_too_narrow_to_tell_apart_become_one_with_a_count() -> None:
    spans = [Span("before", "GPU 0 stream 7", "kernel", "tiny", 1e-6 * n, 1e-6 * n + 5e-7) for n in range(1000)]
    last = Span("before", "range", "range", "before", 0.0, 1.0)
    found = [bar for bar in bars(drawn(of(*spans, last))) if bar[0] == "ap-k-kernel"]
    assert len(found) == 1
    assert found[0][4] == "1000 × kernel: 500 µs together, from 0 ns; longest tiny"


def test_narrow_bars_with_a_gap_between_them_stay_apart() -> None:
    spans = [Span("before", "GPU 0 stream 7", "kernel", "tiny", 0.1 * n, 0.1 * n + 1e-6) for n in range(10)]
    found = [bar for bar in bars(drawn(of(*spans))) if bar[0] == "ap-k-kernel"]
    assert len(found) == 10
    assert min(bar[3] for bar in found) > 0


def test_a_call_inside_a_call_is_drawn_below_it() -> None:
    outer = Span("before", "host", "op", "outer", 0.0, 1.0)
    inner = Span("before", "host", "op", "inner", 0.2, 0.4)
    later = Span("before", "host", "op", "later", 1.0, 1.2)
    places = {bar[4].partition(":")[0]: bar[2] for bar in bars(drawn(of(outer, inner, later)))}
    assert places["inner"] > places["outer"] == places["later"]


def test_ticks_are_round() -> None:
    said = texts(drawn(made()))
    assert said[said.index("0") : said.index("0") + 4] == ["0", "1 ms", "2 ms", "3 ms"]


@pytest.mark.parametrize("lanes", [1, 40])
def test_thousands_of_bars_stay_a_small_picture(lanes: int) -> None:
    spans = [
        Span(side, f"GPU 0 stream {n % lanes}", "kernel", LONG * 3, n * 1e-3, n * 1e-3 + 9e-4)
        for side in ("before", "after")
        for n in range(4000)
    ]
    told = timeline_svg(of(*spans))
    assert len(told.encode()) < 500_000
    assert len(bars(ET.fromstring(told))) <= MOST_BARS


def test_names_are_escaped_wherever_they_stand() -> None:
    evil = '<script>alert("1")</script>&\x1b[31m'
    profile = of(Span("before", evil, "kernel", evil, 0.0, 1.0), Span("before", "x", evil, evil, 0.0, 1.0))
    told = timeline_svg(replace(profile, case=evil))
    assert "<script" not in told
    assert "\x1b" not in told
    root = ET.fromstring(told)
    assert any(bar[4].startswith('<script>alert("1")</script>&') for bar in bars(root))
    assert "script" not in (root.find(f"{SVG}style").text or "")  # type: ignore[union-attr]


def test_the_picture_needs_nothing_from_outside_and_knows_dark() -> None:
    told = timeline_svg(made())
    assert not re.search(r"href|src=|@import|<script|<image|url\(", told)
    assert re.findall(r"https?://[^\"]*", told) == ["http://www.w3.org/2000/svg"]
    assert "@media (prefers-color-scheme:dark)" in told


def test_what_the_timeline_leaves_out_is_told_below_it() -> None:
    cut = ProfileNote(
        "timeline_cut", {"side": "before", "until_s": 0.0685, "end_s": 0.289, "shown": 4000, "bars": 9000}
    )
    other = ProfileNote("text", {"text": "something else"})
    profile = of(Span("before", "host", "op", "x", 0.0, 1.0), notes=(cut, other))
    said = "the timeline of before has the first 68.5 ms of 289 ms: 4000 of 9000 bars"
    assert said in texts(drawn(profile))
    assert "something else" not in texts(drawn(profile))


def test_without_bars_the_picture_says_why() -> None:
    profile = Profile("c", artefacts=(Artefact("nsys", "", "skipped", "nsys is not installed"),))
    said = " ".join(texts(drawn(profile)))
    assert "No tracer recorded anything to draw; nsys: nsys is not installed." in said


@pytest.mark.parametrize("start", [float("nan"), float("-inf"), 3.0])
def test_a_bar_without_a_time_is_not_drawn(start: float) -> None:
    good = Span("before", "host", "op", "good", 0.0, 1.0)
    bad = Span("before", "host", "op", "bad", start, 2.0)
    assert [bar[4].partition(":")[0] for bar in bars(drawn(of(good, bad)))] == ["good"]


@pytest.mark.parametrize("width", [600, 1200])
def test_no_bar_passes_the_edge(width: int) -> None:
    assert max(bar[1] + bar[3] for bar in bars(drawn(made(), width))) <= width - 24
