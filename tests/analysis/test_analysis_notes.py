"""Every note of a case has one sentence."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from aiperf.analysis import notes
from aiperf.analysis.notes import note_sentence
from aiperf.records import Note, NoteCode


def test_every_code_has_a_sentence() -> None:
    assert set(notes._SENTENCES) == set(get_args(NoteCode))


@pytest.mark.parametrize(
    ("code", "values", "sentence"),
    [
        ("most_pairs", {"pairs": 40, "needed": None}, "40 pairs were measured, the maximum"),
        (
            "budget_spent",
            {"pairs": 10, "seconds": 20.0, "left": -3.0, "budget": 300.0, "needed": 56},
            "10 pairs would take 20 s more, but only 0 s of 5 m 00 s is left; a decision would need about 56 pairs",
        ),
        (
            "drift",
            {"alike": True, "changes": {"a": 0.03, "b": 0.05}},
            "both sides slowed by 3 % to 5.1 % over the case, by the same amount; the ratio within pairs did not "
            "change",
        ),
        (
            "source_figures",
            {"tool": "jmh", "mean": 1.3, "median": None, "n": 6, "unit": "us/op", "others": ["error ± 0.7 us/op"]},
            "jmh's own figures: mean 1.30 us/op, n 6, error ± 0.7 us/op; the time is aiperf's, a geometric mean of the "
            "replicates",
        ),
        (
            "inputs_unnamed",
            {"sides": ["after"], "reason": "", "count": 2, "largest": "float32 [256]"},
            "the step of after uses 2 arrays that are not named as inputs (largest: float32 [256]); no audit changes "
            "them, so answers that depend on them are not checked with other values",
        ),
        (
            "inputs_unnamed",
            {"sides": ["before", "after"], "reason": "frozen weights", "count": 1, "largest": "bfloat16 [8, 4]"},
            "the steps of before and after each use an array that is not named as an input (bfloat16 [8, 4]); no audit "
            "changes it, so answers that depend on it are not checked with other values (frozen weights)",
        ),
        ("voided", {"voids": 3, "pairs": 5}, "3 of 5 pairs were voided by the environment"),
        ("narrow_enough", {"pairs": 6, "width": 0.01}, "the interval reached the requested width (±1 %) at 6 pairs"),
        (
            "memory_below",
            {"sides": ["before", "after"], "bytes": 8 * 2**20},
            "peak memory is not compared: for before and after it is below 8 MiB, the smallest measurable value",
        ),
        (
            "time_outside",
            {"side": "after", "phase": "prepare", "own_s": 1.8e-3, "base": "before", "base_s": 1e-4},
            "after spends 1.80 ms a step in prepare(), before 100 µs: not timed",
        ),
        (
            "time_outside",
            {"side": "after", "phase": "set_up", "own_s": 12.0, "base": "before", "base_s": 0.1},
            "after spends 12.0 s in set-up, before 100 ms: not timed",
        ),
        (
            "cpu_time_same",
            {
                **{"side": "after", "against": "before", "before_s": 0.01, "after_s": 2e-3},
                **{"before_cpu_s": 0.01, "after_cpu_s": 9e-3},
            },
            "CPU time per step did not fall with the time: it went from 10.0 ms to 9.00 ms, while the time fell from "
            "10.0 ms to 2.00 ms; after uses more CPUs at once, or works outside its timed steps",
        ),
        (
            "inputs_fixed",
            {"sides": ["before", "after"], "inputs": ["ids", "mask"], "reason": "the schedule is the question"},
            "audits of before and after used the same ids, mask every time: not redrawn (the schedule is the question)",
        ),
        (
            "latencies_reported",
            {"sides": ["after"], "reason": ""},
            "latencies are as reported by the code of after; nothing checks them",
        ),
        (
            "memory_forgotten",
            {"side": "after", "seen_bytes": 300 * 2**20, "peak_bytes": 64 * 2**20},
            "after was seen using 300 MiB of memory, but reports a peak of 64 MiB: the peak was reset",
        ),
        (
            "memory_elsewhere",
            {"side": "after", "own_bytes": 300 * 2**20, "base": "before", "base_bytes": 0},
            "after holds 300 MiB outside its own process (other processes, files in memory), before 0 B: not included "
            "in peak memory",
        ),
        (
            "batches_only",
            {"side": "after", "against": "before", "batches": 1.4142, "single": 0.991},
            "after is 1.41x as fast as before when many steps are timed together, but 0.991x when each is timed "
            "alone: steps overlap, or it does less work when not checked",
        ),
        (
            "stragglers",
            {"sides": ["after"], "reason": ""},
            "processes started by after were still running after it ended",
        ),
        (
            "outputs_unpoisoned",
            {"sides": ["after"], "reason": "they are state"},
            "outputs of after are not overwritten before audits (they are state)",
        ),
        ("text", {"text": "as another tool worded it"}, "as another tool worded it"),
    ],
)
def test_a_note_reads_as_one_sentence_with_its_values(code: NoteCode, values: dict[str, Any], sentence: str) -> None:
    assert note_sentence(Note(code, values)) == sentence
