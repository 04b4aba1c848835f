"""What the GPU did for programs, side by side."""

from __future__ import annotations

from dataclasses import replace

from factory_of_records import make_comparison, make_result

from aiperf.analysis.gpu_work import unequal_gpu_work
from aiperf.analysis.notes import note_sentence
from aiperf.records import Case, CaseRecord, Measure, Note, Pair, Side, SideRun
from aiperf.report.explain_gpu import gpu_sentences
from aiperf.report.views.run_rows import build_rows

CASE = Case(
    "pair",
    "pair",
    "",
    "",
    tuple(Side(name, command=("x",)) for name in ("before", "after")),
    measure=Measure(clock="gpu"),
)


def work(names, **more):
    return {
        "processes": 1, "launches": 20, "graph_launches": 0, "late": 0, "names_left_out": 0, "copies": {},
        "gpus": {"a": {"kernels": 20, "busy_s": 1e-3}}, "names": names, **more,
    }  # fmt: skip


def run(side, gpu, **values):
    values = {name: (float(value),) for name, value in values.items()}
    return SideRun(side, (1,), None, 0.0, 0, facts={"gpu": gpu} if gpu else {}, values=values)


def pair(*runs):
    return Pair(0, ("before", "after"), 0, (), runs)


def record(*pairs):
    return CaseRecord(case=CASE, status="measured", pairs=pairs)


def test_kernels_stand_side_by_side_by_name_the_longest_first():
    before = work([["scale(float*)", 10, 1e-5], ["matmul_naive(float*)", 20, 8.4e-3]])
    after = work(
        [["scale(float*)", 10, 1e-5]] + [[f"k{i}", 1, 1e-6] for i in range(14)],
        copies={"h2d": {"count": 2, "bytes": 8 << 20, "seconds": 4e-4}}, graph_launches=1, processes=2,
        gpus={"a": {"kernels": 10, "busy_s": 1e-3}, "b": {"kernels": 14, "busy_s": 1e-3}}, names_left_out=3,
    )  # fmt: skip
    said = gpu_sentences(record(pair(run("before", before), run("after", after))))
    assert said[0] == "before, one run: 20 kernels of 20 launches."
    assert said[1] == (
        "after, one run: 24 kernels of 20 launches and 1 launch of graphs, on 2 GPUs (10 kernels, 1.00 ms busy; 14 "
        "kernels, 1.00 ms busy), in 2 processes, "
        "8 MiB to the GPU (2 × 200 µs)."
    )
    assert said[2] == "matmul_naive(float*): before 20 × 420 µs, after –"
    assert said[3] == "scale(float*): before 10 × 1.00 µs, after 10 × 1.00 µs"
    assert said[-1] == "7 more kernel names took less time."
    assert gpu_sentences(record(pair(run("before", {}), run("after", {})))) == []


def test_unequal_counts_are_a_note_and_equal_ones_none():
    same = pair(run("before", {}, gpu_kernels=1000, gpu_copied=512), run("after", {}, gpu_kernels=1001, gpu_copied=512))
    assert unequal_gpu_work([same], CASE) is None
    other = pair(run("before", {}, gpu_kernels=100, gpu_copied=512), run("after", {}, gpu_kernels=200, gpu_copied=1024))
    note = unequal_gpu_work([other], CASE)
    assert note is not None
    assert note_sentence(note) == (
        "the sides gave the GPU unequal work: before 100 kernels, after 200 kernels; before 512 B copied, after 1 KiB "
        "copied; check that both compute the same result"
    )
    assert unequal_gpu_work([pair(run("before", {}), run("after", {}))], CASE) is None
    fused = unequal_gpu_work([pair(run("before", {}, gpu_kernels=2), run("after", {}, gpu_kernels=1))], CASE)
    assert fused is not None
    assert "before 2 kernels, after 1 kernel;" in note_sentence(fused)


def test_unequal_work_stands_below_the_row_of_its_case():
    note = Note("unequal_gpu_work", {"gpu_kernels": {"before": 100.0, "after": 200.0}})
    slower = make_result(make_comparison(1.0, 2.0, interval=(0.49, 0.51), metric="gpu_busy"))
    (row,) = build_rows([replace(record(), results=(slower,), notes=(note,))]).rows
    assert row.notes == (note_sentence(note),)
