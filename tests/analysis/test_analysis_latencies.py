from dataclasses import replace

import pytest
from analysis_maker import make_case, make_pair

from aiperf.analysis.latencies import latency_notes, units_missing
from aiperf.analysis.notes import note_sentence
from aiperf.records import Latencies, Note

CASE = make_case()


def pair(*, void=False, **series):
    """A pair whose sides report units: ``before_ttft=(seconds, ...)``, with ``_1`` behind it those of rank 1."""
    made = make_pair(0, {"before": 1.0, "after": 1.0}, void=void)
    parts = {"before": [], "after": []}
    for name, seconds in series.items():
        side, _, rest = name.partition("_")
        series_name, _, rank = rest.partition("__")
        parts[side].append(Latencies(tuple(seconds), series_name, int(rank or 0)))
    last = {s.side: s for s in made.samples}
    told = [replace(s, latencies=tuple(parts[s.side])) if s is last[s.side] else s for s in made.samples]
    return replace(made, samples=tuple(told))


def notes(*pairs, code=""):
    found = latency_notes(pairs, CASE)
    return [note for note in found if note.code == code] if code else [note.code for note in found]


def test_a_note_says_of_each_series_which_percentiles_lack_units_and_how_many():
    both = {"before_ttft": [1.0] * 480, "after_ttft": [1.0] * 500, "before_queue": [1.0] * 9, "after_queue": [1.0] * 9}
    ttft, queue = notes(pair(**both), code="latencies_few")
    assert ttft == Note(
        "latencies_few", {"series": "ttft", "fewest": 480, "lacking": {"ttft_p99": 662, "ttft_p999": 6636}}
    )
    assert note_sentence(ttft).endswith("series ttft: ttft_p99 needs 662, 182 more, ttft_p999 needs 6636, 6156 more")
    assert (queue.values["series"], min(queue.values["lacking"].values())) == ("queue", 11)
    void = pair(before_ttft=[1.0], void=True)
    assert latency_notes([pair(**both), void], CASE) == latency_notes([pair(**both)], CASE)


def test_the_rank_with_the_fewest_units_counts_and_not_all_ranks_together():
    gang = pair(before_ttft=[1.0] * 90, before_ttft__1=[1.0] * 50, after_ttft=[1.0] * 90)
    (few,) = notes(gang, code="latencies_few")
    assert (few.values["fewest"], few.values["lacking"]["ttft_p90"]) == (50, 64)


def test_a_series_that_a_side_lacks_or_that_took_no_time_is_a_note():
    assert notes(pair(before_ttft=[1.0] * 50)) == ["latencies_missing"]
    (zero,) = notes(pair(before_latency=[0.0] * 64, after_latency=[1.0] * 64), code="latencies_zero")
    assert zero.values == {"metrics": ["latency_p50", "latency_p90"]}
    assert notes(pair()) == [] == list(latency_notes([], CASE))


def test_bounds_are_those_of_each_series_highest_percentile_and_of_the_primary_one():
    units = [float(1 + n * 37 % 101) for n in range(101)]
    told = pair(before_ttft=units, after_ttft=[2 * each for each in units])
    (note,) = notes(told, code="latency_bounds")
    assert list(note.values["metrics"]) == ["ttft_p90"]
    low, high = note.values["metrics"]["ttft_p90"]["before"]
    assert low < 91 < high
    assert note.values["metrics"]["ttft_p90"]["after"] == (2 * low, 2 * high)
    about = latency_notes([told], make_case(metric="ttft_p50"))[-1]
    assert set(about.values["metrics"]) == {"ttft_p50", "ttft_p90"}
    assert note_sentence(note).startswith("95 % bounds of a launch's percentile, from its units: ttft_p90 before ")


def test_only_correlated_units_are_too_few_for_a_percentile_that_their_number_suffices_for():
    scattered, waves = ([float(1 + (f(n))) for n in range(200)] for f in (lambda n: n * 7919 % 199, lambda n: n // 40))
    sides = ("before", "after")
    assert units_missing([pair(before_ttft=scattered, after_ttft=scattered)], metric="ttft_p90", sides=sides) is None
    note = units_missing([pair(before_ttft=scattered, after_ttft=waves)], metric="ttft_p90", sides=sides)
    assert (note.values["side"], note.values["units"]) == ("after", 200)
    assert note.values["worth"] < 64
    assert note.values["missing"] > 0
    assert units_missing([pair()], metric="time", sides=sides) is None


@pytest.mark.parametrize("low_high", [((1e-3, None), "above 1.00 ms"), ((1e-3, 2e-3), "1.00 ms to 2.00 ms")])
def test_a_bound_that_no_unit_gives_is_left_open(low_high):
    bounds, text = low_high
    note = Note("latency_bounds", {"metrics": {"ttft_p99": {"before": list(bounds)}}})
    assert note_sentence(note).endswith(f"ttft_p99 before {text}")
