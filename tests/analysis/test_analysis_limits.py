import pytest

from aiperf.analysis.limits import PeakRate, binding, impossible, limits

PEAKS = {"dram": PeakRate(4.0e12, "B/s"), "h2d": (50e9, "B/s"), "launch": PeakRate(250e3, "launches/s")}
WORK = {"bytes": 8e9, "peaks": {"dram": 8e9, "h2d": 1e9, "gemm_bf16": 1e12}}


def shares(**kwargs):
    found = limits(WORK, peaks=PEAKS, side="after", **kwargs)
    return {x.peak_name: x.share for x in found}


def test_share_is_achieved_over_peak_for_every_roof_that_was_measured():
    assert shares(seconds=0.04) == pytest.approx({"dram": 0.05, "h2d": 0.5})
    assert limits(WORK, seconds=1.0, peaks={}, side="after") == ()
    assert limits({}, seconds=1.0, peaks=PEAKS, side="after") == ()


def test_the_limit_that_binds_has_the_largest_share():
    found = limits(WORK, seconds=0.04, peaks=PEAKS, side="after")
    assert binding(found).peak_name == "h2d"
    assert (binding(found).peak, binding(found).unit, binding(found).side) == (50e9, "B/s", "after")
    assert binding(()) is None


def test_two_percent_beyond_a_peak_is_noise_and_more_is_impossible():
    assert impossible(limits(WORK, seconds=0.02 / 1.019, peaks=PEAKS, side="after")) is None
    assert impossible(limits(WORK, seconds=0.02 / 1.021, peaks=PEAKS, side="after")).peak_name == "h2d"


@pytest.mark.parametrize(
    ("peak_name", "slack"),
    [
        ("gemm_bf16", 1.1),
        ("cpu_gemm_fp32", 1.1),
        ("cpu_stream", 1.02),
        ("dram", 1.07),
        ("disk_read", 1.1),
        ("d2h", 1.02),
    ],
)
def test_each_kind_of_peak_may_be_passed_by_what_was_seen_of_honest_kernels_and_no_more(peak_name, slack):
    peaks = {peak_name: PeakRate(1e12, "1/s")}
    near, beyond = ({"peaks": {peak_name: (slack + off) * 1e12}} for off in (-0.005, 0.005))
    assert impossible(limits(near, seconds=1.0, peaks=peaks, side="after")) is None
    assert impossible(limits(beyond, seconds=1.0, peaks=peaks, side="after")).peak_name == peak_name


def test_what_may_lie_in_a_cache_yet_counts_as_reached_and_not_as_beyond():
    work = {"peaks": {"dram": 8e9}, "maybe_cached": {"dram": 1e9}}
    near, beyond = (limits(work, seconds=s, peaks=PEAKS, side="after") for s in (0.00165, 0.00162))
    assert [(round(x.share, 3), round(x.surely, 3)) for x in near] == [(1.212, 1.061)]
    assert impossible(near) is None
    assert impossible(beyond).peak_name == "dram"


def test_the_limit_broken_by_most_is_the_one_that_is_judged_so_and_nothing_held_tells_no_second_share():
    work = {"peaks": {"dram": 8e9, "h2d": 1e8}, "maybe_cached": {"dram": 2e9}}
    found = {x.peak_name: x for x in limits(work, seconds=8e9 / 4e12 / 1.5, peaks=PEAKS, side="after")}
    assert found["h2d"].surely is None
    assert (found["dram"].share, found["dram"].surely) == pytest.approx((1.5, 1.125))
    assert found["h2d"].share == pytest.approx(1.5)
    small = limits({**work, "peaks": {"dram": 8e9, "h2d": 0.9e8}}, seconds=8e9 / 4e12 / 1.5, peaks=PEAKS, side="after")
    assert impossible(small).peak_name == "h2d"
    all_held = {"peaks": {"dram": 8e9}, "maybe_cached": {"dram": 9e9}}
    assert limits(all_held, seconds=1.0, peaks=PEAKS, side="after")[0].surely == 0


def test_a_step_may_not_be_much_shorter_than_an_empty_launch():
    kernel = {"peaks": {}}
    floor = 4e-6
    honest = limits(kernel, seconds=floor / 1.4, peaks=PEAKS, side="after", launches=1)
    assert impossible(honest) is None
    cheat = limits(kernel, seconds=floor / 1.6, peaks=PEAKS, side="after", launches=1)
    assert impossible(cheat).peak_name == "launch"
    declared = limits({"peaks": {"launch": 3}}, seconds=floor, peaks=PEAKS, side="after", launches=1)
    assert declared[0].share == pytest.approx(3.0)
    assert limits(kernel, seconds=floor / 9, peaks=PEAKS, side="after") == ()


def test_a_broken_limit_binds_before_a_larger_share_that_holds():
    work = {"peaks": {"h2d": 1.1 * 50e9 * 4e-6}}
    found = limits(
        work, seconds=4e-6 / 1.0, peaks={**PEAKS, "launch": (250e3 / 1.3, "launches/s")}, side="a", launches=1
    )
    assert {x.peak_name: round(x.share, 2) for x in found} == {"h2d": 1.1, "launch": 1.3}
    assert binding(found).peak_name == "h2d"


def test_a_time_of_zero_is_an_error():
    with pytest.raises(ValueError, match="positive"):
        limits(WORK, seconds=0.0, peaks=PEAKS, side="after")


def test_nodes_that_share_the_work_have_a_peak_each():
    (alone,) = limits({"peaks": {"dram": 8.0}}, seconds=1.0, peaks={"dram": (4.0, "B/s")}, side="a")
    (shared,) = limits({"peaks": {"dram": 8.0}}, seconds=1.0, peaks={"dram": (4.0, "B/s")}, side="a", nodes=2)
    assert (alone.share, shared.share) == (2.0, 1.0)
