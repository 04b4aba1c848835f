"""Runs side by side: each has CPUs of its own, an end is an end for all, and what was measured is counted."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cheaters import honest_runs
from tests.cheaters.lanes import Lane, Lanes, lanes

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_lanes_share_out_the_cpus_and_never_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(3, 19)))
    assert lanes(1) == [tuple(range(3, 19))]
    assert lanes(8) == [(3 + 2 * i, 4 + 2 * i) for i in range(8)]
    assert lanes(5) == [tuple(range(3 + 3 * i, 6 + 3 * i)) for i in range(5)]
    assert len(lanes(40)) == 16


def test_every_job_is_done_once_and_the_first_that_raises_ends_all(tmp_path: Path) -> None:
    done: list[int] = []
    Lanes(2).each(range(9), lambda job, lane: done.append(job))
    assert sorted(done) == list(range(9))
    crew, began = Lanes(2), time.monotonic()

    def do(job: str, lane: Lane) -> None:
        if job == "raises":
            time.sleep(0.2)
            raise ValueError(job)
        (tmp_path / job).mkdir()
        crew.call(SLEEPS, lane, tmp_path / job, os.environ, 60)

    with pytest.raises(ValueError, match="raises"):
        crew.each(["sleeps", "raises", "never"], do)
    assert time.monotonic() - began < 30
    assert not (tmp_path / "never").exists()


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    assert Lanes(1).call(SLEEPS, (0,), tmp_path, os.environ, 0.1) != 0


def line(case: str, word: str = "equivalent", *signs: str, false: bool = False) -> str:
    return json.dumps({"name": case, "seed": 1, "word": word, "signs": signs, "false": false, "strictly": False})


def test_sessions_of_a_file_are_counted_and_who_is_accused_is_named_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "honest.jsonl"
    told = [line("a"), line("a", "improved", "note:x"), line("b", "invalid", "verdict:wrong_output", false=True)]
    file.write_text("\n".join([*told, told[0][:20]]), encoding="utf-8")
    said = honest_runs.summary(honest_runs.read(file)).splitlines()
    assert said[0].split() == ["ACCUSED", "b", "seed", "1", "invalid", "verdict:wrong_output"]
    assert said[1:] == [
        "3 sessions of 2 cases: 1 equivalent, 1 improved, 1 invalid",
        "1 accused: 1 verdict:wrong_output",
        "0 refused by strict mode alone",
        "told of others: 1 note:x",
    ]


def test_sessions_are_added_as_they_end_and_a_scenario_that_is_none_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, until = tmp_path / "out.jsonl", threading.Event()

    def measured(name: str, seed: int, *_: object) -> list[dict[str, object]]:
        if name == "none":
            raise RuntimeError("no such scenario")
        if seed == 3:
            until.set()
        return [json.loads(line(f"{name}-{seed}"))]

    monkeypatch.setattr(honest_runs, "measure", measured)
    monkeypatch.setattr(honest_runs, "monotonic", lambda: 1e9 if until.is_set() else 0.0)
    monkeypatch.setattr(sys, "argv", ["x", str(file), "--only", "none", "--only", "one", "--seconds", "9"])
    assert honest_runs.main() == 0
    assert [each["name"] for each in honest_runs.read(file)] == ["one-1", "one-2", "one-3"]
