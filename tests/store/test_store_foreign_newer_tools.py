"""Files of asv, criterion, JMH, BenchmarkDotNet, go test and nccl-tests: times in seconds, the tool's own figures."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from foreign_files import ASV, FOLDER, case_of, document, take, take_changed, take_fixture

from aiperf.analysis.notes import note_sentences
from aiperf.records import CaseRecord

REAL_NCCL = Path(__file__).parents[2] / "results" / "reference" / "figures" / "nccl-tests-two-h100.txt"


def per_iteration(record: CaseRecord) -> list[list[float]]:
    return [[s.wall_s / s.iterations for s in pair.samples] for pair in record.pairs]


def own(record: CaseRecord) -> dict[str, Any]:
    """What the tool itself states, as stored."""
    (found,) = (note.values for note in record.notes if note.code == "source_figures")
    return found


def text_file(text: str, folder: Path) -> Path:
    path = folder / "printed.txt"
    path.write_text(text)
    return path


# ---- asv -------------------------------------------------------------------------------------------------------------


def test_a_sample_of_asv_is_the_replicate_and_its_parameters_have_the_names_of_benchmarks_json(tmp_path: Path) -> None:
    record = case_of(take_fixture(ASV, tmp_path), "sorts.Sorts.time_sorted[n=100,kind=list]")
    row = document(ASV)["results"]["sorts.Sorts.time_sorted"]
    assert per_iteration(record) == [[pytest.approx(t)] for t in row[11][0]]
    assert record.pairs[0].samples[0].iterations == 20
    assert (own(record)["mean"], own(record)["median"], own(record)["n"]) == (None, row[0][0], 6)
    assert own(record)["others"] == ["99 % interval 772 ns … 1.00 µs"]


def test_what_failed_does_not_apply_or_is_no_time_in_asv_is_told_apart(tmp_path: Path) -> None:
    imported = take_fixture(ASV, tmp_path)
    absent = case_of(imported, "sorts.Sorts.time_sorted[n=1000,kind=tuple]")
    broken, length = case_of(imported, "sorts.time_broken"), case_of(imported, "sorts.track_length")
    assert (absent.status, absent.skip_reason) == ("skipped", "asv: it does not apply to these parameters")
    assert broken.status == "failed"
    assert (length.status, length.skip_reason) == ("skipped", "asv: its unit is items, not a time")
    assert imported.run.git == {"sha": "2f90bb2a3f428984c20cac27ef57dd0d33149486"}
    assert imported.run.host["cpu_model"] == "AMD EPYC"


def test_an_asv_file_without_samples_or_benchmarks_json_gives_its_median(tmp_path: Path) -> None:
    changed = document(ASV)
    changed["results"] = {name: row[:11] for name, row in changed["results"].items()}
    imported = take_changed("x.json", changed, tmp_path)
    record = case_of(imported, "sorts.Sorts.time_sorted[param1=100,param2=list]")
    (summary,) = record.summaries
    assert (summary.value, summary.log_sd, record.pairs) == (8.386999979848042e-07, None, ())
    assert case_of(imported, "sorts.track_length").skip_reason == "asv: its unit is not known"


# ---- criterion -------------------------------------------------------------------------------------------------------


def test_the_folder_of_criterion_is_one_run_of_all_its_benchmarks(tmp_path: Path) -> None:
    imported = take_fixture("criterion", tmp_path)
    assert {r.case.id for r in imported.records} == {"fold-100", "fold-xor[value=10]", "fold-xor[value=1000]"}
    record = case_of(imported, "fold-100")
    sample = document("criterion/fold 100/new/sample.json")
    pairs = zip(sample["times"], sample["iters"], strict=True)
    assert per_iteration(record) == [[pytest.approx(t * 1e-9 / n)] for t, n in pairs]
    estimates = document("criterion/fold 100/new/estimates.json")
    assert own(record)["mean"] == pytest.approx(estimates["mean"]["point_estimate"] * 1e-9)
    assert own(record)["median"] == pytest.approx(estimates["median"]["point_estimate"] * 1e-9)
    assert (own(record)["n"], own(record)["others"]) == (12, ["slope 175 ns"])


def test_the_mean_that_criterion_states_is_that_of_its_samples(tmp_path: Path) -> None:
    for record in take_fixture("criterion", tmp_path).records:
        times = [t for (t,) in per_iteration(record)]
        assert own(record)["mean"] == pytest.approx(statistics.fmean(times), rel=1e-9)
        assert own(record)["median"] == pytest.approx(statistics.median(times), rel=1e-9)


def test_one_sample_file_of_criterion_gets_its_name_from_the_file_beside_it(tmp_path: Path) -> None:
    (record,) = take_fixture("criterion/fold/xor/10/new/sample.json", tmp_path).records
    assert (record.case.id, record.case.title, len(record.pairs)) == ("fold-xor[value=10]", "fold/xor/10", 10)
    alone = Path(shutil.copy(FOLDER / "criterion/fold/xor/10/new/sample.json", tmp_path))
    (bare,) = take(alone, tmp_path, again=True).records
    assert (len(bare.pairs), bare.notes == record.notes) == (10, False)


# ---- JMH -------------------------------------------------------------------------------------------------------------


def test_a_fork_of_jmh_is_the_replicate_and_its_iterations_are_readings_of_it(tmp_path: Path) -> None:
    record = case_of(take_fixture("jmh.json", tmp_path), "Sorts.sort[size=100]")
    assert record.replicate == "fork"
    assert per_iteration(record) == [pytest.approx([1.0e-6, 1.2e-6, 1.1e-6]), pytest.approx([1.4e-6, 1.5e-6, 1.6e-6])]
    assert (own(record)["mean"], own(record)["unit"]) == (pytest.approx(1.3), "us/op")


def test_a_throughput_of_jmh_becomes_the_time_of_an_operation_and_its_own_score_stays(tmp_path: Path) -> None:
    record = case_of(take_fixture("jmh.json", tmp_path), "Sorts.sum")
    assert per_iteration(record) == [[pytest.approx(t)] for t in (0.25e-6, 0.2e-6, 0.125e-6)]
    assert record.replicate == "iteration"
    assert (own(record)["mean"], own(record)["unit"]) == (pytest.approx(17 / 3), "ops/us")
    assert "JMH counts ops/us; the time is that of one operation, its inverse" in note_sentences(record)


def test_a_histogram_of_jmh_is_the_mean_of_what_it_counts(tmp_path: Path) -> None:
    record = case_of(take_fixture("jmh.json", tmp_path), "Sorts.max")
    assert per_iteration(record) == [[pytest.approx(2e-6)], [pytest.approx(4e-6)]]
    assert [s.iterations for p in record.pairs for s in p.samples] == [2, 1]
    assert own(record)["n"] == 3


def test_one_benchmark_of_jmh_in_two_modes_is_two_cases(tmp_path: Path) -> None:
    changed = document("jmh.json")
    changed[2]["benchmark"] = changed[3]["benchmark"]
    ids = {r.case.id for r in take_changed("x.json", changed, tmp_path).records}
    assert {"Sorts.max[mode=thrpt]", "Sorts.max[mode=sample]"} < ids


@pytest.mark.parametrize(
    "mode", ["thrpt", "avgt", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("sample", "ss"))]
)
def test_every_mode_of_jmh_gives_the_time_that_jmh_itself_states(mode: str, tmp_path: Path) -> None:
    """A file that JMH 1.25 wrote. Of a throughput the mean time is not quite the inverse of the mean rate."""
    entry = next(e for e in document("jmh_modes.json") if e["mode"] == mode)
    record = next(r for r in take_fixture("jmh_modes.json", tmp_path).records if r.case.axes["mode"] == mode)
    score = entry["primaryMetric"]["score"]
    samples = [s for pair in record.pairs for s in pair.samples]
    mean = sum(s.wall_s for s in samples) / sum(s.iterations for s in samples)
    assert len(record.pairs) == 3
    assert mean == pytest.approx(1e-3 / score if mode == "thrpt" else score * 1e-3, rel=2e-3)
    assert (own(record)["mean"], own(record)["unit"]) == (score, "ops/ms" if mode == "thrpt" else "ms/op")
    assert record.case.axes["maxStringLength"] == "1000"


# ---- BenchmarkDotNet -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["benchmarkdotnet_full.json", "benchmarkdotnet_brief.json"])
def test_what_benchmarkdotnet_wrote_in_full_and_in_brief_is_the_same_run(name: str, tmp_path: Path) -> None:
    """Files that BenchmarkDotNet 0.15.1 wrote of one run: the full one holds pilots, warm-ups and overhead, too."""
    imported = take_fixture(name, tmp_path)
    (record,) = imported.records
    stated = document(name)["Benchmarks"][0]["Statistics"]
    times = [t for (t,) in per_iteration(record)]
    assert times == pytest.approx([t * 1e-9 for t in stated["OriginalValues"]])
    assert own(record)["mean"] == pytest.approx(stated["Mean"] * 1e-9)
    assert statistics.fmean(times) == pytest.approx(stated["Mean"] * 1e-9)
    assert (record.case.id, own(record)["others"]) == (
        "ArrayProcessorBenchmarks.GenerateArray",
        ["standard error 46.4 ns", "22012 B allocated/op"],
    )
    assert imported.run.software == {"dotnet": ".NET 9.0.13 (9.0.1326.6317)"}
    assert (imported.run.host["cpu_model"], imported.run.host["cpus"]) == ("AMD Ryzen 5 3600X", 12)


def test_the_date_of_benchmarkdotnet_is_the_end_of_its_title(tmp_path: Path) -> None:
    imported = take_fixture("benchmarkdotnet_brief.json", tmp_path)
    assert imported.run.started == "2026-03-05T03:03:56+00:00"
    assert "the file names no time zone: the date is read as UTC" in note_sentences(imported.records[0])


def test_a_launch_of_benchmarkdotnet_is_the_replicate_and_only_its_results_count(tmp_path: Path) -> None:
    record = case_of(take_fixture("benchmarkdotnet.json", tmp_path), "Sorts.Sort[Size=100]")
    assert record.replicate == "launch"
    assert per_iteration(record) == [pytest.approx([1.0e-7, 1.1e-7, 1.05e-7]), pytest.approx([1.2e-7, 1.3e-7, 1.25e-7])]
    assert (own(record)["mean"], own(record)["n"]) == (pytest.approx(1.15e-7), 6)
    assert own(record)["others"][1] == "920 B allocated/op"


def test_benchmarkdotnet_without_measurements_gives_its_mean_and_without_results_a_failure(tmp_path: Path) -> None:
    (record,) = take_fixture("benchmarkdotnet_no_measurements.json", tmp_path).records
    (summary,) = record.summaries
    assert (summary.value, summary.samples, summary.log_sd) == (pytest.approx(1.1e-8), 3, None)
    assert case_of(take_fixture("benchmarkdotnet.json", tmp_path), "Sorts.Broken").status == "failed"


def test_several_jobs_of_benchmarkdotnet_are_told_apart(tmp_path: Path) -> None:
    changed = document("benchmarkdotnet.json")
    one = changed["Benchmarks"][2]
    changed["Benchmarks"] = [one, one | {"DisplayInfo": "Sorts.Sum: Job-AB(Runtime=.NET 9.0)"}]
    found = take_changed("x.json", changed, tmp_path).records
    assert [r.case.axes for r in found] == [{"job": "DefaultJob"}, {"job": "Job-AB(Runtime=.NET 9.0)"}]


# ---- go test ---------------------------------------------------------------------------------------------------------


def test_every_count_of_go_test_is_a_replicate_and_key_value_parts_of_names_are_axes(tmp_path: Path) -> None:
    imported = take_fixture("go_test.txt", tmp_path)
    record = case_of(imported, "BenchmarkSort[n=100]")
    assert per_iteration(record) == [[pytest.approx(t)] for t in (2493e-9, 2482e-9, 2511e-9)]
    assert [p.samples[0].iterations for p in record.pairs] == [8650, 9530, 8061]
    assert (record.case.title, imported.run.host["cpu_model"]) == ("BenchmarkSort/n=100-2", "AMD EPYC")
    assert "B/op, allocs/op of its 3 runs left out" in note_sentences(record)


def test_json_lines_of_go_test_are_read_as_their_text_also_where_a_line_comes_in_two_events(tmp_path: Path) -> None:
    record = case_of(take_fixture("go_test.jsonl", tmp_path), "BenchmarkJoin")
    assert per_iteration(record) == [[pytest.approx(112.8e-9)], [pytest.approx(83.26e-9)]]
    cut = (
        (FOLDER / "go_test.jsonl").read_text().replace(r"BenchmarkJoin-2   \t", 'BenchmarkJoin-2   "}\n{"Output":"\\t')
    )
    assert per_iteration(take(text_file(cut, tmp_path), tmp_path).records[0]) == per_iteration(record)


def test_a_single_run_of_go_test_keeps_its_own_figures(tmp_path: Path) -> None:
    path = text_file("pkg: a/b\nBenchmarkJoin-8  \t 1000\t 250.0 ns/op\t 64 B/op\n", tmp_path)
    (record,) = take(path, tmp_path).records
    found = own(record)
    assert (found["mean"], found["n"], found["others"]) == (pytest.approx(2.5e-7), 1000, ["64 B/op"])


def test_packages_cores_failures_and_rows_without_a_time_of_go_test_are_cases_of_their_own(tmp_path: Path) -> None:
    text = (
        "pkg: a\nBenchmarkX 10 5 ns/op\nBenchmarkX-2 10 4 ns/op\npkg: b\nBenchmarkX 10 7 ns/op\n"
        "BenchmarkRate 10 3.0 words/s\n--- FAIL: BenchmarkBad\n--- SKIP: BenchmarkNot-2 (0.0s)\n"
    )
    records = take(text_file(text, tmp_path), tmp_path).records
    assert [(r.case.id, r.status) for r in records] == [
        ("a.BenchmarkX[procs=1]", "imported"),
        ("a.BenchmarkX[procs=2]", "imported"),
        ("b.BenchmarkX[procs=1]", "imported"),
        ("b.BenchmarkRate", "skipped"),
        ("BenchmarkBad", "failed"),
        ("BenchmarkNot", "skipped"),
    ]


# ---- nccl-tests ------------------------------------------------------------------------------------------------------


def test_every_size_of_nccl_tests_is_a_case_out_of_place_and_in_place(tmp_path: Path) -> None:
    imported = take_fixture("nccl_tests.txt", tmp_path)
    record = case_of(imported, "all_reduce[size=1048576,type=float,redop=sum,place=out-of-place]")
    (summary,) = record.summaries
    assert (summary.value, summary.samples, summary.log_sd) == (pytest.approx(40e-6), 20, None)
    assert own(record)["others"] == ["algbw 26.21 GB/s", "busbw 26.21 GB/s"]
    assert (imported.run.host["gpus"], imported.run.software) == (["Example GPU"] * 2, {"nccl": "22707"})
    assert imported.run.host["hostname"] == "node7"


def test_what_nccl_tests_printed_on_two_gpus_is_read_whole(tmp_path: Path) -> None:
    imported = take(REAL_NCCL, tmp_path)
    assert len(imported.records) == 18
    record = case_of(imported, "all_reduce[size=268435456,type=float,redop=sum,place=in-place]")
    assert record.summaries[0].value == pytest.approx(900.09e-6)
    assert own(record)["others"] == ["algbw 298.23 GB/s", "busbw 298.23 GB/s"]
    assert imported.run.host["gpus"] == ["NVIDIA H100 80GB HBM3"] * 2


def test_wrong_results_of_nccl_tests_are_a_failure_and_no_time(tmp_path: Path) -> None:
    record = case_of(
        take_fixture("nccl_tests.txt", tmp_path), "all_reduce[size=1048576,type=float,redop=sum,place=in-place]"
    )
    assert record.status == "failed"
    assert record.failure is not None
    assert (record.failure.message, record.summaries) == ("3 elements of the result are wrong", ())


def test_a_row_of_nccl_tests_without_out_of_place_times_is_in_place(tmp_path: Path) -> None:
    text = (FOLDER / "nccl_tests.txt").read_text().replace("    12.50    0.08    0.08       0", " " * 32)
    ids = [r.case.id for r in take(text_file(text, tmp_path), tmp_path).records]
    assert ids[0] == "all_reduce[size=1024,type=float,redop=sum,place=in-place]"
    assert len(ids) == 3


# ---- pytest-benchmark, again -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"f": "UNSERIALIZABLE[<module 'json' from '/x/json.py'>]"}, "test_sum[f=json]"),
        ({"f": "UNSERIALIZABLE[<function a>]", "n": 3}, "test_sum[param=json]"),
    ],
)
def test_a_parameter_that_pytest_benchmark_could_not_write_is_named_by_its_id(
    params: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    changed = document("pytest_benchmark.json")
    changed["benchmarks"] = [changed["benchmarks"][1] | {"params": params, "param": "json", "name": "test_sum[json]"}]
    (record,) = take_changed("x.json", changed, tmp_path).records
    assert record.case.id == expected


# ---- older readers keep their tool's figures too ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "case", "mean", "median", "n"),
    [
        ("hyperfine.json", "sleep-0.01", 0.014477068666666667, 0.013825723500000001, 6),
        ("pytest_benchmark.json", "test_sorted", 9.195699976771721e-07, 9.053499979927437e-07, 5),
        ("google_benchmark_aggregates.json", "BM_Copy-1024", 2.1939960127505428e-08, 2.3496857077684114e-08, 3),
        ("nvbench.json", "copy[In=F64]", 0.0005, None, 12),
    ],
)
def test_figures_that_a_file_states_are_kept_as_they_are(
    name: str, case: str, mean: float, median: float | None, n: int, tmp_path: Path
) -> None:
    found = own(case_of(take_fixture(name, tmp_path), case))
    assert (found["mean"], found["n"]) == (pytest.approx(mean, rel=1e-12), n)
    assert found["median"] == (median if median is None else pytest.approx(median, rel=1e-12))
