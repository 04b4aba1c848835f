import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from aiperf.host.calibration import load_calibration, save_calibration
from aiperf.host.peaks import (
    PEAK_SPECS,
    Peak,
    better,
    kept,
    load_peaks,
    peak_case,
    peak_from,
    peak_spec,
    save_peak,
)
from aiperf.host.state_file import set_aside
from aiperf.records.calibration import Calibration, calibration_for

PEAK = Peak("dram", 4.2e12, "B/s", 4.0e12, 4.2e12, "2026-01-01T00:00:00+00:00", 20, {"way": "copy"})
NOISE = Calibration("process+wall", "same-vs-same", 20, 0, 0.139, 0.004, 0.02, "2026-01-01", power={"0.05": 1.0})


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path))
    return tmp_path


def save_named(name):
    save_peak("host", replace(PEAK, name=name))


def test_a_host_that_was_never_measured_has_no_peaks_and_no_folder(state):
    assert load_peaks("host") == {}
    assert list(state.iterdir()) == []


def test_peaks_are_kept_per_host_and_replaced_by_name():
    save_peak("host", PEAK)
    save_peak("host", replace(PEAK, name="h2d", value=5e10))
    save_peak("other", replace(PEAK, value=1.0))
    save_peak("host", replace(PEAK, value=4.3e12))
    assert load_peaks("host") == {"dram": replace(PEAK, value=4.3e12), "h2d": replace(PEAK, name="h2d", value=5e10)}


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00\x01", '{"dram": 1', "[" * 100_000])
def test_a_corrupt_file_is_set_aside_with_its_content_and_reported(state, text):
    path = state / "peaks" / "host.json"
    path.parent.mkdir()
    path.write_text(text)
    assert load_peaks("host") == {}
    (aside,) = set_aside("peaks", "host")
    assert aside.read_text() == text
    save_peak("host", PEAK)
    assert load_peaks("host") == {"dram": PEAK}
    assert set_aside("peaks", "host") == (aside,)


def test_entries_that_make_no_peak_are_left_out_and_the_others_are_read(state):
    save_peak("host", PEAK)
    path = state / "peaks" / "host.json"
    path.write_text(path.read_text().replace('"dram": {', '"a": {"name": "a"}, "b": 7, "dram": {"later_field": 1,', 1))
    assert load_peaks("host") == {"dram": PEAK}


def test_peaks_that_an_older_version_kept_are_read_without_an_interval(state):
    save_peak("host", PEAK)
    path = state / "peaks" / "host.json"
    entries = json.loads(path.read_text())
    for name in ("latest", "launches", "interval_low", "interval_high", "by_size"):
        del entries["dram"][name]
    path.write_text(json.dumps(entries))
    assert load_peaks("host") == {"dram": PEAK}
    assert (PEAK.latest, PEAK.launches, PEAK.interval_low) == (0.0, 0, 0.0)


def test_the_further_reach_is_kept_and_the_latest_occasion_told():
    old = replace(PEAK, value=4.2e12, latest=4.2e12, launches=3, interval_low=4.1e12, interval_high=4.2e12)
    new = replace(
        PEAK, value=3.0e12, latest=3.0e12, launches=3, interval_low=2.9e12, interval_high=3.1e12, when="later"
    )
    found = kept(peak_spec("dram"), old, new)
    assert (found.value, found.when) == (4.2e12, old.when)
    assert (found.latest, found.interval_low, found.interval_high) == (3.0e12, 2.9e12, 3.1e12)
    assert kept(peak_spec("dram"), None, new) == new


def test_each_size_keeps_its_own_further_reach_and_sizes_that_were_not_measured_again_stay():
    declared = peak_spec("all_reduce_gloo")
    old = replace(PEAK, name=declared.name, by_size={"4096": 2e8, "65536": 1e9})
    new = replace(PEAK, name=declared.name, by_size={"4096": 1e8, "1048576": 3e9})
    assert kept(declared, old, new).by_size == {"4096": 2e8, "65536": 1e9, "1048576": 3e9}
    assert kept(declared, replace(old, by_size={}), new).by_size == new.by_size
    save_peak("host", kept(declared, old, new))
    assert load_peaks("host")[declared.name].by_size["65536"] == 1e9


def test_every_swept_parameter_is_one_of_every_variant_and_takes_each_value_once():
    for declared in PEAK_SPECS:
        if declared.sweep:
            values = [variant[declared.sweep] for variant in declared.variants]
            assert values == sorted(set(values))
            assert (values[0], declared.ranks) == (4096, 2)


def test_many_processes_that_save_at_once_lose_nothing(state):
    names = [f"peak{n}" for n in range(24)]
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(save_named, names))
    assert set(load_peaks("host")) == set(names)
    assert not list(state.glob("peaks/.*tmp"))


def test_the_best_sample_is_the_peak_of_a_rate_and_of_a_floor():
    rate = peak_from(peak_spec("dram"), [2.0, 1.0, 4.0], amount=8.0)
    assert (rate.value, rate.low, rate.high, rate.samples) == (8.0, 2.0, 8.0, 3)
    floor = peak_from(peak_spec("launch"), [3e-6, 2e-6])
    assert (floor.value, floor.low, floor.unit) == (2e-6, 3e-6, "s")


@pytest.mark.parametrize(("times", "amount"), [([], 1.0), ([1.0, 0.0], 1.0), ([1.0], 0.0)])
def test_a_peak_without_samples_or_amount_is_refused(times, amount):
    with pytest.raises(ValueError, match="dram: a peak needs"):
        peak_from(peak_spec("dram"), times, amount=amount)


def test_the_further_reaching_peak_is_the_higher_rate_or_the_lower_floor():
    low, high = replace(PEAK, value=1.0), replace(PEAK, value=2.0)
    assert better(peak_spec("dram"), low, high) is high
    assert better(peak_spec("launch"), low, high) is low
    assert better(peak_spec("dram"), None, low) is low
    assert better(peak_spec("dram"), None, None) is None


def test_every_roof_has_a_name_of_its_own_and_a_case_that_asks_for_what_it_needs():
    assert len({r.name for r in PEAK_SPECS}) == len(PEAK_SPECS)
    for declared in PEAK_SPECS:
        ids = {peak_case(declared, n).id for n in range(len(declared.variants))}
        assert len(ids) == len(declared.variants)
        case = peak_case(declared)
        assert replace(case.needs, cpus=0) == declared.needs
        # Without a GPU every CPU helps; with one, others may start on those that a GPU does not need.
        assert case.needs.cpus == (0 if declared.needs.gpus else len(os.sched_getaffinity(0)))
        assert case.sides[0].ranks == declared.ranks
        assert case.sides[0].workload.startswith("peaks.")


def test_calibrations_are_kept_per_mode_and_scenario():
    other = replace(NOISE, mode="in_process+device")
    save_calibration("host", NOISE)
    save_calibration("host", other)
    save_calibration("host", replace(NOISE, tau=0.01))
    stored = {c.mode: c for c in load_calibration("host")}
    assert stored == {"process+wall": replace(NOISE, tau=0.01), "in_process+device": other}
    assert len(load_calibration("host")) == 2


def test_a_calibration_of_an_older_version_which_called_sessions_sittings_is_read(state):
    save_calibration("host", NOISE)
    (path,) = state.rglob("host.json")
    path.write_text(path.read_text().replace('"sessions"', '"sittings"'))
    assert load_calibration("host") == (NOISE,)


def test_a_scenario_takes_its_own_calibration_and_else_the_noisiest_of_its_mode():
    calm, wild = replace(NOISE, scenario="calm"), replace(NOISE, scenario="wild", threshold=0.05)
    stored = (calm, wild, replace(NOISE, mode="in_process+device", threshold=0.5))
    assert calibration_for(stored, mode="process+wall", scenario="calm") is calm
    assert calibration_for(stored, mode="process+wall", scenario="new") is wild
    assert calibration_for(stored, mode="process+device", scenario="calm") is None
