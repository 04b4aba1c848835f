"""Notes on programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiperf.analysis.notes import note_sentence
from aiperf.analysis.program_notes import program_notes, zero_notes
from aiperf.records import Case, Check, Note, Pair, ProgramMetric, Sample, Side, SideRun

CASE = Case("pair", "pair", "", "", (Side("before", command=("a",)), Side("after", command=("b",))))
STEADY = [0.10, 0.11, 0.09, 0.10]


def pairs_of(
    before: list[float], *, wall_s: float = 0.2, facts: dict[str, Any] | None = None, count: int = 3
) -> list[Pair]:
    """Pairs in which the runs of ``before`` use these CPU times, and those of ``after`` steady ones."""

    def samples(side: str, times: list[float]) -> list[Sample]:
        return [
            Sample(side, i, i, 1, wall_s=wall_s, user_s=cpu_s, system_s=0.001, peak_bytes=1 << 24)
            for i, cpu_s in enumerate(times)
        ]

    runs = (
        SideRun("before", (1,), None, 0.0, 0, facts=facts or {}),
        SideRun("after", (2,), None, 0.0, 0, facts={}),
    )
    both = (*samples("before", before), *samples("after", STEADY))
    return [Pair(index=i, order=("before", "after"), seed=i, samples=both, runs=runs) for i in range(count)]


def codes(pairs: list[Pair]) -> list[str]:
    return [note.code for note in program_notes(pairs, CASE)]


def test_programs_that_do_the_same_in_every_run_have_no_note() -> None:
    assert codes(pairs_of(STEADY)) == []
    assert program_notes(pairs_of(STEADY), Case("s", "s", "", "", (Side("before"), Side("after")))) == ()
    assert program_notes([], CASE) == ()


def test_a_side_of_which_only_some_runs_do_the_work_is_named_with_both_times() -> None:
    (note,) = program_notes(pairs_of([0.40, 0.01, 0.01, 0.01]), CASE)
    assert note.code == "uneven_runs"
    assert note.values["side"] == "before"
    assert (note.values["runs"], note.values["of"]) == (3, 12)
    assert note_sentence(note) == (
        "3 of 12 runs of before take 401 ms of CPU time, the others 11.0 ms: not every run does the same work"
    )


@pytest.mark.parametrize(
    "times",
    [[0.19, 0.10, 0.10, 0.10], [0.012, 0.004, 0.004, 0.004]],
    ids=["less than twice", "too little to matter"],
)
def test_what_noise_may_do_is_no_group_of_its_own(times: list[float]) -> None:
    assert codes(pairs_of(times)) == []


def test_one_run_of_many_is_an_outlier() -> None:
    pairs = [*pairs_of(STEADY, count=5), *pairs_of([0.5, *STEADY[1:]], count=1)]
    assert codes(pairs) == []


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ({"cpu_s": 0.5, "wall_s": 0.5, "from_disk": False}, "cpu"),
        ({"cpu_s": 0.5, "wall_s": 0.5, "from_disk": True}, "cpu"),
        ({"cpu_s": 0.1, "wall_s": 0.9, "from_disk": False}, "wall"),
        ({"cpu_s": 0.1, "wall_s": 0.9, "from_disk": True}, ""),
        ({"cpu_s": 0.15, "wall_s": 0.4, "from_disk": False}, ""),
    ],
)
def test_a_first_run_that_did_what_later_ones_do_not_is_named(first: dict[str, Any], kind: str) -> None:
    notes = program_notes(pairs_of(STEADY, facts={"first_run": first}), CASE)
    assert [(note.code, note.values["kind"]) for note in notes] == ([("first_run_slower", kind)] if kind else [])


def test_a_first_run_of_one_side_only_needs_to_stand_out_less() -> None:
    def noted(before_s: float, after_s: float) -> list[str]:
        made = []
        for pair in pairs_of(STEADY):
            runs = tuple(
                replace(run, facts={"first_run": {"cpu_s": cpu_s, "wall_s": 0.2, "from_disk": False}})
                for run, cpu_s in zip(pair.runs, (before_s, after_s), strict=True)
            )
            made.append(replace(pair, runs=runs))
        return [note.values["side"] for note in program_notes(made, CASE)]

    assert noted(0.16, 0.10) == ["before"]
    assert noted(0.16, 0.15) == []
    assert noted(0.13, 0.10) == []


@pytest.mark.parametrize(
    ("times", "count"),
    [([0.10, 0.11, 0.09, 0.10], 1), ([0.10, 0.14, 0.09, 0.10], 3)],
    ids=["held against four runs", "others are as slow"],
)
def test_a_first_run_of_one_side_that_a_busy_host_may_have_slowed_is_not_named(times: list[float], count: int) -> None:
    first = {"first_run": {"cpu_s": 0.16, "wall_s": 0.2, "from_disk": False}}
    other = {"first_run": {"cpu_s": 0.10, "wall_s": 0.2, "from_disk": False}}
    pairs = [
        replace(pair, runs=(pair.runs[0], replace(pair.runs[1], facts=other)))
        for pair in pairs_of(times, facts=first, count=count)
    ]
    assert [note.code for note in program_notes(pairs, CASE)] == []
    steady = [
        replace(pair, runs=(pair.runs[0], replace(pair.runs[1], facts=other)))
        for pair in pairs_of(STEADY, facts=first, count=3)
    ]
    assert [note.code for note in program_notes(steady, CASE)] == ["first_run_slower"]


def test_programs_that_write_more_than_they_print_are_told_unless_their_files_are_compared() -> None:
    writes = pairs_of(STEADY, facts={"written_elsewhere": 448})
    (note,) = program_notes(writes, CASE)
    assert note == Note("files_uncompared", {"bytes": {"before": 448}, "way": "--same-file FILE"})
    assert note_sentence(note) == (
        "besides what is printed, before writes 448 B a run, to files or to pipes between its processes; files are "
        "compared only with --same-file FILE"
    )
    (note,) = program_notes(writes, replace(CASE, path="x.yaml"))
    assert note.values["way"] == "check: {files: FILE}"
    assert program_notes(writes, replace(CASE, check=Check("none", files=("out",)))) == ()
    assert program_notes(writes, replace(CASE, check=Check("none", reason="it prints times"))) == ()
    (note,) = program_notes(writes, replace(CASE, check=Check("bitwise", reason="other words")))
    assert note.code == "files_uncompared"
    assert codes(pairs_of(STEADY, facts={"written_elsewhere": 64})) == []


def test_programs_that_give_the_gpu_unequal_work_are_named() -> None:
    made = pairs_of(STEADY)
    for pair in made:
        for run, kernels in zip(pair.runs, (100.0, 200.0), strict=True):
            run.values["gpu_kernels"] = (kernels,)
    assert codes(made) == ["unequal_gpu_work"]


def test_slices_are_named() -> None:
    notes = program_notes(pairs_of(STEADY, facts={"slice_s": 0.02}), CASE)
    assert [note_sentence(note) for note in notes] == [
        "sliced: the programs took turns of 20.0 ms on one core; time is what each ran or waited in its own turns, "
        "without queueing for the core",
    ]


@pytest.mark.parametrize(
    ("first", "later", "kind"),
    [
        pytest.param((10, 1000), ([10, 10], [500, 500]), "written_chars", id="it wrote more"),
        pytest.param((10, 564), ([10, 10], [400, 500]), None, id="64 bytes more than the most"),
        pytest.param((10, 565), ([10, 10], [400, 500]), "written_chars", id="65 bytes more"),
        pytest.param((10, 10_500), ([10, 10], [10_000, 10_000]), None, id="5 % more"),
        pytest.param((10, 10_501), ([10, 10], [10_000, 10_000]), "written_chars", id="more than that"),
        pytest.param((1000, 5), ([1065, 1065], [5, 5]), "read_chars", id="later runs read more"),
        pytest.param((1000, 5), ([1064, 1064], [5, 5]), None, id="64 bytes more that they read"),
        pytest.param((1000, 5), ([1065, 1129], [5, 5]), "read_chars", id="nearly the same each time"),
        pytest.param((1000, 5), ([1065, 1130], [5, 5]), None, id="something that changes from run to run"),
        pytest.param((1000, 5), ([900, 900], [5, 5]), None, id="less"),
    ],
)
def test_a_first_run_that_wrote_what_no_later_one_does_or_read_less_than_all_is_told(first, later, kind) -> None:
    run = {"cpu_s": 0.1, "wall_s": 0.2, "from_disk": False}
    counted = {**run, "read_chars": [first[0]] * 2, "written_chars": [first[1]] * 2}
    seen = {"first_run": counted, "read_chars": later[0], "written_chars": later[1]}
    notes = program_notes(pairs_of(STEADY, facts=seen), CASE)
    assert [note.values["kind"] for note in notes] == [kind] * (kind is not None)
    assert codes(pairs_of(STEADY, facts={**seen, "first_run": {**counted, "cpu_s": 0.5}})) == ["first_run_slower"]
    assert (
        codes(pairs_of(STEADY, facts={"first_run": counted}))
        == codes(pairs_of(STEADY, facts={**seen, "first_run": run}))
        == []
    )


def test_files_of_a_first_run_read_as_a_sentence() -> None:
    wrote, read = (
        Note("first_run_files", {"side": "after", "kind": kind, "first": 1000, "later": 500})
        for kind in ("written_chars", "read_chars")
    )
    assert note_sentence(wrote) == (
        "the first run of after, which is not measured, wrote 1000 B, but later ones at most 500 B: they may reuse its "
        "results"
    )
    assert note_sentence(read) == (
        "the first run of after, which is not measured, read 1000 B, but later ones up to 500 B: they may reuse its "
        "results"
    )


def test_a_metric_of_the_sides_own_that_is_0_somewhere_is_told_and_not_one_that_a_pair_lacks() -> None:
    clipped = ProgramMetric("clipped", "tokens", "lower")
    case = Case("s", "s", "", "", (Side("before", metrics=(clipped,)), Side("after", metrics=(clipped,))))

    def pair(index: int, before: dict[str, tuple[float, ...]], after: dict[str, tuple[float, ...]]) -> Pair:
        runs = tuple(
            SideRun(side, (1,), None, 0.0, 0, values=values) for side, values in (("before", before), ("after", after))
        )
        return Pair(index=index, order=("before", "after"), seed=index, samples=(), runs=runs)

    some, none = (
        pair(0, {"clipped": (3.0,)}, {"clipped": (1.0,)}),
        pair(1, {"clipped": (5.0,)}, {"clipped": (0.0, 0.0)}),
    )
    (note,) = zero_notes([some, none], case)
    means = {"before": 4.0, "after": 0.5}
    assert note == Note("metric_zero", {"metric": "clipped", "unit": "tokens", "sides": ["after"], "means": means})
    assert note_sentence(note) == (
        "clipped of after was 0 in at least one launch, so there is no ratio with it; "
        "means: before 4.00 tokens, after 0.500 tokens"
    )
    held = Note("metric_zero", {"metric": "held", "unit": "B", "sides": ["after"], "means": {"before": 2048.0}})
    assert note_sentence(held).endswith("means: before 2 KiB")
    assert zero_notes([some], case) == ()
    assert zero_notes([none, pair(2, {"clipped": (1.0,)}, {})], case) == ()
    assert zero_notes([], case) == ()
