"""``aiperf peaks`` and ``aiperf calibrate``: what is learned of this host and kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from cli_user import CHECKOUT

from aiperf.cli import peaks as command
from aiperf.cli.options import make_settings
from aiperf.host.peaks import PEAK_SPECS, Peak, save_peak
from aiperf.recipes import peaks as module
from aiperf.settings import Settings


def _short(**given: Any) -> Settings:
    """The settings of a command, with a twentieth of its time for each launch."""
    made = make_settings(**given)
    return replace(made, precision=replace(made.precision, side_seconds=0.05, warmup_seconds=0.1))


@pytest.mark.usefixtures("ranks_meet")  # whose workers have loaded torch, as a limit's do
def test_a_measured_limit_is_told_and_kept_for_this_host(user, monkeypatch) -> None:
    (spec,) = (spec for spec in PEAK_SPECS if spec.name == "page_cache_read")
    monkeypatch.setattr(module, "PEAK_SPECS", (replace(spec, variants=({"size": 1 << 22},)),))
    monkeypatch.setattr(command, "make_settings", _short)
    user.env["AIPERF_STATE"] = str(user.folder / "state")
    done = user.types("peaks", "page_cache_read", "--json")
    assert done.code == 0, done.err
    assert "measuring the peak page_cache_read" in done.err
    peak = json.loads(done.out)[0]
    assert 1e7 < peak["value"] < 1e13
    stored = user.types("peaks", "--stored", "--json")
    assert stored.err == ""
    assert json.loads(stored.out) == [peak]


def test_interrupted_limits_are_shown_as_far_as_they_were_measured(here, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path))

    def measure(names, *, host_id: str, **_) -> None:
        save_peak(host_id, Peak("disk_read", 2e9, "B/s", 1e9, 2e9, "2026-11-22T00:00:00+00:00", 9))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "measure_peaks", measure)
    told = here("peaks", "disk_read", "dram")
    assert told.code == 130
    assert "2.00 GB/s" in told.out
    assert "interrupted: the peaks measured so far are kept and shown" in told.out


def test_an_unknown_roof_is_a_mistake_that_names_the_known_ones(here) -> None:
    told = here("peaks", "warp_drive")
    assert told.code == 2
    assert "cpu_stream" in told.err


def test_sessions_of_a_side_against_its_copy_calibrate_the_host(user) -> None:
    user.env["AIPERF_STATE"] = str(user.folder / "state")
    argv = ("calibrate", "tiny.yaml", "--precision", "fast.yaml", "--sessions", "2", "--power-sessions", "2")
    done = user.types(*argv, "--inject", "2")
    assert done.code == 0, done.err
    assert done.plain
    assert "2 A/A sessions" in done.out
    assert "+200 %" in done.out
    assert "tiny A/A 2/2" in done.err
    assert user.run_record()["status"] == "finished"
    assert len(list((user.latest() / "cases").iterdir())) == 4
    kept = json.loads(next((user.folder / "state" / "calibration").glob("*.json")).read_text())
    assert "tiny" in json.dumps(kept)


def test_a_side_that_fails_cannot_be_calibrated(user) -> None:
    broken = user.scenario("broken", before="{fails: true}", after="{fails: true}", measure="")
    done = user.types("calibrate", broken, "--precision", "fast.yaml", "--sessions", "2", "--inject", "")
    assert done.code == 5
    assert done.plain
    assert "the model file is missing" in done.err
    assert user.run_record()["status"] == "finished"


def test_calibration_mistakes_are_told_before_anything_is_measured(here, user) -> None:
    for flag, value in (("--inject", "wrong"), ("--inject", "-1"), ("--sessions", "1"), ("--precision", "nope")):
        told = here("calibrate", "tiny.yaml", flag, value)
        assert told.code == 2
        assert value in told.err or flag in told.err
    assert here("calibrate", user.scenario("big", needs="{gpus: 9}")).code == 77
    assert not (user.folder / "results").exists()


def test_roofs_that_this_host_cannot_have_exit_with_77_and_say_why(user) -> None:
    user.env |= {"AIPERF_STATE": str(user.folder / "state"), "CUDA_VISIBLE_DEVICES": ""}
    done = user.types("peaks", "h2d", "gemm_bf16")
    assert done.code == 77
    assert done.plain
    assert "h2d: " in done.out
    assert "GPU" in done.out


def test_a_roof_whose_every_launch_fails_exits_with_5(user) -> None:
    user.env["AIPERF_STATE"] = str(user.folder / "state")
    # A scratch folder without room: the workload cannot write its file.
    user.env["AIPERF_SCRATCH"] = "/proc"
    told = user.types("peaks", "page_cache_read")
    assert told.code == 2
    user.env["AIPERF_SCRATCH"] = str(user.folder)
    user.write(
        "sitecustomize.py", "import os\nif 'aiperf.worker' in ' '.join(__import__('sys').orig_argv): os._exit(3)\n"
    )
    user.env["PYTHONPATH"] = f"{user.folder}:{CHECKOUT}"
    done = user.types("peaks", "page_cache_read")
    assert done.code == 5, done.err
    assert "page_cache_read: " in done.out
    assert done.plain
