"""Each tool's file: the numbers of the file in seconds, the tool's unit of replication, what was left out."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
from foreign_files import (
    FOLDER,
    case_of,
    document,
    fault_of_changed,
    take,
    take_changed,
    take_fixture,
    with_side_files,
)

from aiperf.analysis.notes import note_sentences
from aiperf.records import CaseRecord
from aiperf.store.read import open_run, read_pairs


def log_sd(values: list[float]) -> float:
    return statistics.stdev(math.log(v) for v in values)


def geometric(values: list[float]) -> float:
    return statistics.geometric_mean(values)


def the_value(record: CaseRecord) -> float:
    (summary,) = record.summaries
    return summary.value


# ---- pyperf ----------------------------------------------------------------------------------------------------------


def test_a_process_of_pyperf_is_the_replicate_and_its_values_are_iterations_of_it(tmp_path: Path) -> None:
    record = case_of(take_fixture("pyperf.json", tmp_path), "sorted")
    runs = [r["values"] for r in document("pyperf.json")["benchmarks"][0]["runs"]]
    means = [statistics.fmean(values) for values in runs]
    (summary,) = record.summaries
    assert (record.status, record.replicate, len(record.pairs)) == ("imported", "process", 3)
    assert summary.value == pytest.approx(geometric(means), rel=1e-12)
    assert summary.log_sd == pytest.approx(log_sd(means), rel=1e-9)
    assert (summary.low, summary.high) == (pytest.approx(min(means)), pytest.approx(max(means)))
    assert (summary.side, summary.samples) == ("after", 9)


def test_a_sample_of_pyperf_is_the_time_of_all_its_loops(tmp_path: Path) -> None:
    record = case_of(take_fixture("pyperf.json", tmp_path), "sorted")
    first = record.pairs[0].samples[0]
    assert (first.iterations, first.side, first.device_s) == (2000, "after", None)
    assert first.wall_s == pytest.approx(9.834190000219679e-07 * 2000, rel=1e-12)
    assert [s.peak_bytes for s in record.pairs[0].samples] == [20017152] * 3
    assert record.pairs[1].started - record.pairs[0].started == pytest.approx(43.272042 - 43.068694, abs=1e-5)


def test_warm_ups_and_calibration_runs_of_pyperf_are_left_out_and_counted(tmp_path: Path) -> None:
    record = case_of(take_fixture("pyperf_calibrated.json.gz", tmp_path), "calibrated")
    values = [[s.wall_s / s.iterations for s in p.samples] for p in record.pairs]
    assert values[0] == pytest.approx([8.294717674254062e-07, 6.037856445312642e-07, 5.724003677362588e-07])
    assert values[1] == pytest.approx([6.295745887752516e-07, 6.597619094852319e-07, 7.043300399777949e-07])
    assert len(record.pairs) == 2
    assert {"2 warm-up values left out", "1 calibration run left out"} <= set(note_sentences(record))


def test_inner_loops_of_pyperf_count_as_iterations(tmp_path: Path) -> None:
    changed = document("pyperf.json")
    changed["metadata"]["inner_loops"] = 10
    (sample, *_) = case_of(take_changed("p.json", changed, tmp_path), "sorted").pairs[0].samples
    assert sample.iterations == 20_000
    assert sample.wall_s / sample.iterations == pytest.approx(9.834190000219679e-07)


def test_a_benchmark_of_pyperf_that_is_no_time_is_skipped_with_its_unit(tmp_path: Path) -> None:
    changed = document("pyperf.json")
    changed["benchmarks"][1]["metadata"]["unit"] = "byte"
    imported = take_changed("p.json", changed, tmp_path)
    other = case_of(imported, "reversed")
    assert (other.status, "byte" in other.skip_reason, other.summaries) == ("skipped", True, ())
    assert case_of(imported, "sorted").status == "imported"


def test_a_date_of_pyperf_has_no_zone_and_the_record_says_so(tmp_path: Path) -> None:
    imported = take_fixture("pyperf.json", tmp_path)
    assert imported.run.started == "2026-11-21T18:03:43+00:00"
    assert imported.folder.name == "2026-11-21T18-03-43-vm"
    assert any("time zone" in note for note in note_sentences(imported.records[0]))


# ---- hyperfine -------------------------------------------------------------------------------------------------------


def test_a_run_of_hyperfine_is_the_replicate(tmp_path: Path) -> None:
    record = case_of(take_fixture("hyperfine.json", tmp_path), "sleep-0.01")
    times = [0.011689398, 0.012627955000000001, 0.015023492000000001, 0.016017713, 0.011892630000000001, 0.019611224]
    (summary,) = record.summaries
    assert [p.samples[0].wall_s for p in record.pairs] == times
    assert (record.replicate, len(record.pairs), record.case.title) == ("run", 6, "sleep 0.01")
    assert summary.value == pytest.approx(geometric(times))
    assert summary.log_sd == pytest.approx(log_sd(times))


def test_cpu_times_of_hyperfine_are_means_and_so_a_note_and_no_samples(tmp_path: Path) -> None:
    record = case_of(take_fixture("hyperfine.json", tmp_path), "sleep-0.02")
    assert all(s.user_s is None and s.system_s is None for p in record.pairs for s in p.samples)
    assert any("user 1.07 ms, system 240 µs" in note or "system 241 µs" in note for note in note_sentences(record))


def test_parameters_of_hyperfine_are_axes(tmp_path: Path) -> None:
    imported = take_fixture("hyperfine_parameters.json", tmp_path)
    assert [r.case.id for r in imported.records] == ["sleep-0.01[d=1]", "sleep-0.02[d=2]"]
    assert imported.records[0].case.axes == {"d": "1"}


def test_peak_memory_of_hyperfine_is_kept_per_run(tmp_path: Path) -> None:
    changed = document("hyperfine.json")
    changed["results"][0]["memory_usage_byte"] = [100, 200, 300, 400, 500, 600]
    record = case_of(take_changed("h.json", changed, tmp_path), "sleep-0.01")
    assert [p.samples[0].peak_bytes for p in record.pairs] == [100, 200, 300, 400, 500, 600]


def test_a_hyperfine_file_without_single_runs_gives_a_value_without_spread_and_says_so(tmp_path: Path) -> None:
    changed = document("hyperfine.json")
    del changed["results"][0]["times"]
    record = case_of(take_changed("h.json", changed, tmp_path), "sleep-0.01")
    (summary,) = record.summaries
    assert (summary.value, summary.low, summary.high) == (0.014477068666666667, 0.011689398, 0.019611224)
    assert (summary.log_sd, summary.samples, record.pairs) == (None, 6, ())
    assert any("without spread" in note for note in note_sentences(record))


def test_runs_of_hyperfine_that_failed_are_counted(tmp_path: Path) -> None:
    changed = document("hyperfine.json")
    changed["results"][0]["exit_codes"] = [0, 1, 1, None, 0, 0]
    record = case_of(take_changed("h.json", changed, tmp_path), "sleep-0.01")
    assert "3 runs of 6 did not exit with 0: 1, a signal" in note_sentences(record)


def test_a_time_of_zero_is_no_time_to_compare_and_the_other_benchmark_is_kept(tmp_path: Path) -> None:
    changed = document("hyperfine.json")
    changed["results"][0]["times"][2] = 0.0
    imported = take_changed("h.json", changed, tmp_path)
    record = case_of(imported, "sleep-0.01")
    assert (record.status, "1 of its 6 times are 0 s" in record.skip_reason) == ("skipped", True)
    assert case_of(imported, "sleep-0.02").status == "imported"


# ---- pytest-benchmark ------------------------------------------------------------------------------------------------


def test_times_that_run_backwards_do_not_move_the_beginning_of_a_file(tmp_path: Path) -> None:
    changed = document("pytest_benchmark.json")
    changed["benchmarks"][0]["stats"]["data"][0] = -5e13
    run = take_changed("pytest_benchmark.json", changed, tmp_path).run
    assert run.started == run.finished


def test_a_round_of_pytest_benchmark_is_the_replicate_and_its_doubt_is_told(tmp_path: Path) -> None:
    record = case_of(take_fixture("pytest_benchmark.json", tmp_path), "test_sorted")
    stats = document("pytest_benchmark.json")["benchmarks"][0]["stats"]
    (summary,) = record.summaries
    assert (record.replicate, len(record.pairs), stats["iterations"]) == ("round", 5, 20)
    assert [p.samples[0].wall_s / 20 for p in record.pairs] == pytest.approx(stats["data"])
    assert sum(p.samples[0].wall_s for p in record.pairs) == pytest.approx(stats["mean"] * 5 * 20)
    assert summary.value == pytest.approx(geometric(stats["data"]))
    assert any("from one process" in note for note in note_sentences(record))


def test_parameters_of_a_test_are_axes(tmp_path: Path) -> None:
    record = take_fixture("pytest_benchmark.json", tmp_path).records[1]
    assert (record.case.scenario, record.case.id, record.case.axes) == ("test_sum", "test_sum[size=10]", {"size": 10})


def test_a_saved_file_without_data_gives_the_mean_without_spread(tmp_path: Path) -> None:
    record = take_fixture("pytest_benchmark_no_data.json", tmp_path).records[0]
    stats = document("pytest_benchmark_no_data.json")["benchmarks"][0]["stats"]
    (summary,) = record.summaries
    assert (summary.value, summary.log_sd, summary.samples) == (stats["mean"], None, 5)
    assert any("without spread" in note for note in note_sentences(record))


def test_the_commit_of_a_pytest_benchmark_file_is_the_run_s(tmp_path: Path) -> None:
    changed = document("pytest_benchmark.json")
    changed["commit_info"] |= {"id": "a" * 40, "dirty": True}
    assert take_changed("p.json", changed, tmp_path).run.git == {"sha": "a" * 40, "diff": "unknown"}
    assert take_fixture("pytest_benchmark.json", tmp_path).run.git == {}


# ---- google/benchmark ------------------------------------------------------------------------------------------------


def test_a_repetition_of_google_benchmark_is_the_replicate_and_aggregates_are_left_out(tmp_path: Path) -> None:
    record = case_of(take_fixture("google_benchmark.json", tmp_path), "BM_Copy-1024")
    microseconds = [1.9619264458516406e-02, 2.1140347371400910e-02, 1.5608446154147743e-02, 1.8945274849603629e-02]
    seconds = [t * 1e-6 for t in microseconds]
    (summary,) = record.summaries
    assert (record.replicate, len(record.pairs), record.case.title) == ("repetition", 4, "BM_Copy/1024")
    assert record.pairs[0].samples[0].iterations == 1201020
    assert record.pairs[0].samples[0].wall_s == pytest.approx(seconds[0] * 1201020)
    assert summary.value == pytest.approx(geometric(seconds))
    assert summary.log_sd == pytest.approx(log_sd(seconds))
    assert "4 aggregates left out" in note_sentences(record)


def test_each_time_unit_of_google_benchmark_becomes_seconds(tmp_path: Path) -> None:
    changed = document("google_benchmark.json")
    units = ("ns", "us", "ms", "s")
    changed["benchmarks"] = [
        {"name": f"b_{u}", "run_type": "iteration", "iterations": 1, "real_time": 3.0, "time_unit": u} for u in units
    ]
    found = [the_value(r) for r in take_changed("g.json", changed, tmp_path).records]
    assert found == pytest.approx([3e-9, 3e-6, 3e-3, 3.0], rel=1e-12)


def test_aggregates_alone_give_their_mean_without_spread(tmp_path: Path) -> None:
    record = case_of(take_fixture("google_benchmark_aggregates.json", tmp_path), "BM_Copy-1024")
    (summary,) = record.summaries
    assert summary.value == pytest.approx(2.1939960127505428e-08, rel=1e-12)
    assert (summary.log_sd, summary.samples, record.pairs) == (None, 3, ())
    assert any("aggregates only" in note for note in note_sentences(record))


def test_a_benchmark_that_gave_an_error_is_a_failed_case_with_the_error(tmp_path: Path) -> None:
    record = case_of(take_fixture("google_benchmark.json", tmp_path), "BM_Broken")
    assert record.status == "failed"
    assert record.failure is not None
    assert record.failure.message == "the file is missing"


def test_old_files_without_run_types_tell_aggregates_by_their_names(tmp_path: Path) -> None:
    changed = document("google_benchmark.json")
    entry = {"iterations": 10, "cpu_time": 5.0, "time_unit": "ns"}
    names = (("BM_x", 4.0), ("BM_x", 9.0), ("BM_x_mean", 6.5), ("BM_x_stddev", 3.5))
    changed["benchmarks"] = [entry | {"name": name, "real_time": t} for name, t in names]
    (record,) = take_changed("g.json", changed, tmp_path).records
    assert the_value(record) == pytest.approx(6e-9)


# ---- nvbench ---------------------------------------------------------------------------------------------------------


def test_samples_of_nvbench_beside_the_file_are_device_times(tmp_path: Path) -> None:
    record = case_of(take(with_side_files(tmp_path), tmp_path), "copy[In=F32]")
    times = [0.000245, 0.00025, 0.00025, 0.00025, 0.000255]
    (summary,) = record.summaries
    assert [p.samples[0].device_s for p in record.pairs] == pytest.approx(times, rel=1e-6)
    assert all(math.isnan(p.samples[0].wall_s) for p in record.pairs)
    assert (record.replicate, record.case.measure.clock) == ("sample", "device")
    assert summary.value == pytest.approx(geometric(times), rel=1e-6)
    assert summary.log_sd == pytest.approx(log_sd(times), rel=1e-4)


def test_nvbench_without_samples_gives_the_mean_of_the_gpu_time_and_says_so(tmp_path: Path) -> None:
    record = case_of(take_fixture("nvbench.json", tmp_path), "copy[In=F64]")
    (summary,) = record.summaries
    assert (summary.value, summary.low, summary.high, summary.samples) == (0.0005, 0.00049, 0.00051, 12)
    assert (summary.log_sd, record.pairs) == (None, ())
    assert any("--jsonbin" in note for note in note_sentences(record))


def test_side_files_that_are_gone_or_cut_short_leave_the_mean(tmp_path: Path) -> None:
    path = with_side_files(tmp_path)
    side = tmp_path / "nvbench.json-bin" / "0.bin"
    side.write_bytes(side.read_bytes()[:-2])
    short = case_of(take(path, tmp_path), "copy[In=F32]")
    assert (the_value(short), any("does not hold the 5 samples" in n for n in note_sentences(short))) == (0.00025, True)
    side.unlink()
    gone = case_of(take(path, tmp_path, again=True), "copy[In=F32]")
    assert (the_value(gone), any("is not next to the file" in n for n in note_sentences(gone))) == (0.00025, True)


@pytest.mark.parametrize("name", ["/etc/hostname", "../secret.bin", "x\0y", "a" * 5000])
def test_a_side_file_elsewhere_is_never_read(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0\0\x80\x3f" * 5)
    changed = document("nvbench.json")
    changed["benchmarks"][0]["states"][0]["summaries"][-1]["data"][0]["value"] = name
    record = case_of(take_changed("n.json", changed, inner), "copy[In=F32]")
    assert (record.pairs, the_value(record)) == ((), 0.00025)


def test_cpu_only_and_batch_states_of_nvbench_are_read_and_told_apart(tmp_path: Path) -> None:
    imported = take(with_side_files(tmp_path), tmp_path)
    sort, batch = case_of(imported, "host_sort"), case_of(imported, "batched")
    assert [p.samples[0].wall_s for p in sort.pairs] == pytest.approx([0.0019, 0.002, 0.002, 0.0021], rel=1e-6)
    assert sort.case.measure.clock == "wall"
    assert the_value(batch) == 0.00024
    assert any("batch mean" in note for note in note_sentences(batch))


def test_a_state_that_nvbench_skipped_is_skipped_with_its_reason(tmp_path: Path) -> None:
    record = case_of(take_fixture("nvbench.json", tmp_path), "copy[In=F16]")
    assert (record.status, record.skip_reason) == ("skipped", "nvbench: Not supported on this device.")


def test_another_major_format_of_nvbench_is_refused(tmp_path: Path) -> None:
    changed = document("nvbench.json")
    changed["meta"]["version"]["json"]["major"] = 2
    assert "format 2" in fault_of_changed("n.json", changed, tmp_path).what


# ---- all -------------------------------------------------------------------------------------------------------------


def test_what_was_imported_reads_back_with_its_samples(tmp_path: Path) -> None:
    imported = take_fixture("pyperf.json", tmp_path)
    run = open_run(imported.folder.name, results=tmp_path / "results")
    records, damaged = run.read_cases()
    assert damaged == ()
    assert [r.case.id for r in records] == ["sorted", "reversed"]
    for stored, record in zip(records, imported.records, strict=True):
        assert read_pairs(run, stored) == record.pairs
        assert stored.summaries == record.summaries


def test_many_readings_of_one_process_are_taken_in_blocks_and_every_sample_is_kept(tmp_path: Path) -> None:
    changed = document("pytest_benchmark.json")
    times = [1e-6 * (1 + i % 7) for i in range(2500)]
    changed["benchmarks"][0]["stats"] |= {"data": times, "iterations": 1}
    record = take_changed("p.json", changed, tmp_path).records[0]
    means = [statistics.fmean(times[at : at + 3]) for at in range(0, 2500, 3)]
    (summary,) = record.summaries
    assert (len(record.pairs), record.replicate) == (834, "round")
    assert [s.wall_s for p in record.pairs for s in p.samples] == times
    assert summary.value == pytest.approx(geometric(means))
    assert "2500 rounds in blocks of 3: a block is the replicate" in note_sentences(record)


def test_an_outlier_among_single_readings_is_marked(tmp_path: Path) -> None:
    changed = document("hyperfine.json")
    changed["results"][0]["times"] = [1.0, 1.01, 0.99, 1.02, 0.98, 9.0]
    (summary,) = case_of(take_changed("h.json", changed, tmp_path), "sleep-0.01").summaries
    assert (summary.outliers, summary.outlier_share) == (1, pytest.approx(9 / 14))


def test_the_fixtures_say_where_they_are_from() -> None:
    told = (FOLDER / "README.md").read_text()
    assert all(f"`{p.name}`" in told for p in FOLDER.iterdir() if p.is_file() and p.name != "README.md")
