"""The recipe of measuring peaks, with pairs made by hand."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from recipes_made import HOST, Bench, failing, make_case, make_pair, raises

from aiperf.errors import AiperfError, Exit
from aiperf.host.facts import Gpu
from aiperf.host.peaks import load_peaks, peak_spec
from aiperf.launch.gang import LaunchSkipped
from aiperf.plan.order import PairPlan
from aiperf.recipes.peaks import PeakOutcome, measure_peaks, peak_rates, peaks_exit
from aiperf.records import Sample, SideRun


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path))


def reads(seconds: float, amount: float = 1e6, **run):
    """A pair of a peak's own side whose every iteration takes so long."""

    def step(index, order, seed):
        samples = tuple(Sample("peak", r, 0, 1, seconds) for r in range(20))
        side = SideRun("peak", (1,), None, 0.0, 0, work={"peaks": {"page_cache_read": amount}}, **run)
        return replace(make_pair(index, ("before", "after"), seed), order=tuple(order), samples=samples, runs=(side,))

    return step


def measure(script, *names):
    notes: list[str] = []
    bench = Bench(script)
    outcomes = measure_peaks(names or ["page_cache_read"], session=bench, host=HOST, host_id="h", note=notes.append)
    return outcomes, notes, bench


def test_a_measured_roof_is_kept_for_the_host_and_told_once() -> None:
    outcomes, notes, bench = measure([reads(1e-3)])
    assert [(o.spec.name, o.fresh, o.problem) for o in outcomes] == [("page_cache_read", True, "")]
    assert load_peaks("h")["page_cache_read"].value == pytest.approx(1e9)
    assert peak_rates("h")["page_cache_read"].value == pytest.approx(1e9)
    assert len(notes) == 1
    assert "page_cache_read" in notes[0]
    assert {order for _, _, order, _ in bench.calls} == {("peak",)}
    # It is held against nothing: hashing a GiB of outputs three times a launch would be most of its time.
    assert set(bench.audits) == {0}


def test_launches_of_a_roof_are_foreseen_and_what_comes_after_it() -> None:
    later = PairPlan(make_case("later"), 0, ("before", "after"), 5)
    bench = Bench([reads(1e-3)])
    measure_peaks(["page_cache_read"], session=bench, host=HOST, host_id="h", note=[].append, then=[later])
    calls = tuple(bench.calls)
    after = ("later", 0, ("before", "after"), 5)
    # Three variants, then the best one twice more; which one that is shows when all have been measured.
    assert bench.expected == [(*calls[n:end], after) for n, end in ((1, 3), (2, 3), (3, 3), (4, 5), (5, 5))]


def test_launches_of_roofs_that_share_a_process_are_foreseen() -> None:
    _, _, bench = measure_on_a_gpu([of_all_sides(lambda name, index: 1e-3)], "dram", "h2d")
    calls = tuple(bench.calls)
    assert bench.expected == [calls[1:], calls[2:], ()]


def test_the_better_of_old_and_new_is_kept() -> None:
    measure([reads(1e-3)])
    measure([reads(2e-3)])
    assert load_peaks("h")["page_cache_read"].value == pytest.approx(1e9)
    measure([reads(0.5e-3)])
    assert load_peaks("h")["page_cache_read"].value == pytest.approx(2e9)


def test_the_best_variant_is_launched_again_and_its_launches_give_an_interval() -> None:
    # Three variants, the second the best; then two more launches of it.
    script = [reads(2e-3), reads(1e-3), reads(4e-3), reads(1.1e-3), reads(0.9e-3)]
    outcomes, _, bench = measure(script)
    ids = [case_id for case_id, *_ in bench.calls]
    assert len(ids) == 5
    assert len(set(ids[:3])) == 3
    assert ids[3:] == [ids[1]] * 2
    assert [index for _, index, *_ in bench.calls] == [0, 0, 0, 1, 2]
    assert len({seed for *_, seed in bench.calls}) == 5
    peak = outcomes[0].peak
    logs = [math.log(1e6 / t) for t in (1e-3, 1.1e-3, 0.9e-3)]
    half = 4.302653 * statistics.stdev(logs) / math.sqrt(3)
    assert math.log(peak.interval_low) == pytest.approx(statistics.fmean(logs) - half)
    assert math.log(peak.interval_high) == pytest.approx(statistics.fmean(logs) + half)
    assert (peak.launches, peak.samples) == (3, 60)
    assert peak.value == peak.latest == peak.high == pytest.approx(1e6 / 0.9e-3)
    assert peak.low == pytest.approx(1e6 / 1.1e-3)


@pytest.mark.parametrize(("spread", "is_told"), [(1.02, False), (3.0, True)])
def test_a_roof_whose_launches_differ_much_is_told_and_kept_but_nothing_is_held_against_it(
    spread: float, is_told: bool
) -> None:
    times = [2e-3, 1e-3, 2e-3, 1e-3 * spread, 1e-3 / spread]
    (outcome,), _, _ = measure([reads(seconds) for seconds in times])
    assert outcome.fresh
    assert outcome.problem.startswith("the interval over its launches spans a factor of ") == is_told
    assert outcome.problem.endswith("measure again on an idle host") == is_told
    assert (outcome.problem == "") == (not is_told)
    assert "page_cache_read" in load_peaks("h")
    assert ("page_cache_read" in peak_rates("h")) == (not is_told)
    assert load_peaks("h")["page_cache_read"].interval_high > 0


def test_a_repeat_that_fails_leaves_a_peak_without_an_interval_and_is_told() -> None:
    outcomes, notes, _ = measure([reads(1e-3), reads(2e-3), reads(2e-3), failing("no space left")])
    peak = outcomes[0].peak
    assert (peak.launches, peak.interval_low, peak.interval_high) == (1, 0.0, 0.0)
    assert peak.value == pytest.approx(1e9)
    assert "no space left" in notes[-1]


def test_an_all_reduce_keeps_what_each_size_came_to() -> None:
    sizes = [v["size"] for v in peak_spec("all_reduce_gloo").variants]

    def takes(index, order, seed):
        size = sizes[seed % 100]
        if size == 65536:
            return failing("a rank died")(index, order, seed)
        # 16 MiB is the best; its second launch reaches further than its first.
        seconds = size / (9e9 if size == 1 << 24 else 1e9) / (1.1 if index == 1 else 1.0)
        pair = reads(seconds, amount=float(size))(index, order, seed)
        runs = tuple(replace(run, work={"peaks": {"all_reduce_gloo": float(size)}}) for run in pair.runs)
        return replace(pair, runs=runs)

    notes: list[str] = []
    host = replace(HOST, libraries={"torch": "2.11"})
    bench = Bench([takes])
    (outcome,) = measure_peaks(["all_reduce_gloo"], session=bench, host=host, host_id="h", note=notes.append)
    found = outcome.peak.by_size
    assert list(found) == [str(size) for size in sizes if size != 65536]
    assert found["4096"] == pytest.approx(1e9)
    assert found[str(1 << 24)] == outcome.peak.value == pytest.approx(9.9e9)
    assert load_peaks("h")["all_reduce_gloo"].by_size == found
    assert "a rank died" in notes[-1]


def test_a_roof_that_fails_now_keeps_what_was_known_and_is_not_fresh() -> None:
    measure([reads(1e-3)])
    outcomes, _, _ = measure([failing("no such file")])
    assert (outcomes[0].fresh, outcomes[0].skipped, outcomes[0].problem) == (False, False, "no such file")
    assert outcomes[0].peak.value == pytest.approx(1e9)


def test_a_roof_that_its_worker_finds_impossible_here_is_skipped() -> None:
    outcomes, _, _ = measure([raises(LaunchSkipped("the scratch folder is on tmpfs"))])
    assert (outcomes[0].skipped, outcomes[0].problem) == (True, "the scratch folder is on tmpfs")


def test_one_measured_roof_is_enough_else_a_failure_counts_before_a_skip() -> None:
    fresh = PeakOutcome(peak_spec("dram"), None, fresh=True)
    failed = PeakOutcome(peak_spec("h2d"), None, "it crashed")
    skipped = PeakOutcome(peak_spec("d2h"), None, "needs 1 GPU", skipped=True)
    assert peaks_exit([fresh, failed, skipped]) is Exit.OK
    assert peaks_exit([failed, skipped]) is Exit.WRONG
    assert peaks_exit([skipped, skipped]) is Exit.SKIPPED
    assert peaks_exit([]) is Exit.OK


def test_a_roof_that_this_host_cannot_have_says_why_and_starts_nothing() -> None:
    outcomes, notes, bench = measure([reads(1e-3)], "h2d")
    assert outcomes[0].peak is None
    assert "GPU" in outcomes[0].problem
    assert (notes, bench.calls) == ([], [])


def test_a_roof_whose_every_way_fails_says_why_and_keeps_nothing() -> None:
    outcomes, _, _ = measure([failing("no such file")])
    assert (outcomes[0].peak, outcomes[0].problem) == (None, "no such file")
    assert load_peaks("h") == {}


GPU_HOST = replace(HOST, gpus=(Gpu(0, "NVIDIA H200", "GPU-0", "9.0", 1 << 37, 1 << 37),), libraries={"torch": "2.11"})


def of_all_sides(seconds):
    """A pair of peaks that share a process: ``seconds`` says what an iteration of a side takes in that launch."""

    def step(index, order, seed):
        names = {name: name.rsplit("-", 1)[0] for name in order}
        samples = tuple(Sample(n, r, 0, 1, 9.0, device_s=seconds(n, index)) for r in range(20) for n in order)
        runs = tuple(SideRun(n, (1,), None, 0.0, 0, work={"peaks": {peak_name: 1e6}}) for n, peak_name in names.items())
        return replace(make_pair(index, ("before", "after"), seed), order=tuple(order), samples=samples, runs=runs)

    return step


def measure_on_a_gpu(script, *names):
    notes: list[str] = []
    bench = Bench(script)
    outcomes = measure_peaks(names, session=bench, host=GPU_HOST, host_id="h", note=notes.append)
    return {o.spec.name: o for o in outcomes}, notes, bench


def test_roofs_of_one_gpu_share_a_process_and_each_keeps_its_own_best_variant() -> None:
    takes = {"dram-0": 2e-3, "dram-1": 1e-3, "dram-2": 4e-3, "h2d-0": 0.5e-3}
    found, notes, bench = measure_on_a_gpu(
        [of_all_sides(lambda name, index: takes[name] * (1 + 0.1 * index))], "dram", "h2d"
    )
    assert [(case, index) for case, index, *_ in bench.calls] == [("peaks", n) for n in range(3)]
    assert {order for _, _, order, _ in bench.calls} == {tuple(takes)}
    dram, h2d = found["dram"].peak, found["h2d"].peak
    assert (dram.value, h2d.value) == (pytest.approx(1e9), pytest.approx(2e9))
    assert dram.conditions["way"] == "scale"
    assert (dram.launches, h2d.launches) == (3, 3)
    assert 0 < dram.interval_low < dram.interval_high
    assert load_peaks("h").keys() == {"dram", "h2d"}
    assert len(notes) == 1


def test_roofs_that_fail_together_are_measured_one_by_one_and_that_is_told() -> None:
    alone = of_all_sides(lambda name, index: 1e-3)

    def one(index, order, seed):
        pair = alone(index, ("h2d-0",) if index or seed else ("d2h-0",), seed)
        return replace(
            pair,
            samples=tuple(replace(s, side="peak") for s in pair.samples),
            runs=tuple(replace(r, side="peak", work={"peaks": {"h2d": 1e6, "d2h": 1e6}}) for r in pair.runs),
        )

    found, notes, bench = measure_on_a_gpu([failing("out of memory"), one], "h2d", "d2h")
    assert [case for case, *_ in bench.calls] == [
        "peaks",
        *["peak-h2d[size=268435456]"] * 3,
        *["peak-d2h[size=268435456]"] * 3,
    ]
    assert any("one by one" in note and "out of memory" in note for note in notes)
    assert [o.fresh for o in found.values()] == [True, True]


def test_peaks_that_cannot_be_kept_are_an_error_that_says_so(monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_STATE", "/proc/nowhere")
    with pytest.raises(AiperfError, match="cannot be kept"):
        measure([reads(1e-3)])
