"""A run's folder: exclusive, atomic, read back exactly; damage is named and passed over."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factory_of_stored_records import SAMPLES, make_case, make_pair, make_record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiperf.errors import UserError
from aiperf.records import Latencies, Pair, RunRecord
from aiperf.store.codec import encode_case
from aiperf.store.read import find_runs, open_run, read_case, read_pairs
from aiperf.store.samples import why_unreadable
from aiperf.store.write import RunWriter, StoreError, file_name, open_new, write_whole

NOW = datetime(2026, 11, 20, 18, 5, 3)


class FullDisk:
    """Opens files until it has been told that the disk is full."""

    def __init__(self, *, code: int = errno.ENOSPC, full: bool = False) -> None:
        self.code, self.full = code, full

    def __call__(self, path: Path) -> BinaryIO:
        file = open_new(path)
        return _Refusing(file, self.code) if self.full else file


class _Refusing(io.BytesIO):
    def __init__(self, file: BinaryIO, code: int) -> None:
        super().__init__()
        file.close()
        self._code = code

    def write(self, data: Any) -> int:
        raise OSError(self._code, os.strerror(self._code))


def create(results: Path, **options: Any) -> RunWriter:
    writer = RunWriter.create(results, hostname="gpu-07.cluster", now=NOW, **options)
    writer.write_run(RunRecord(run=writer.name, argv=("aiperf", "run"), started="2026-11-20T18:05:03"))
    return writer


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_run_is_named_after_its_time_and_host(tmp_path: Path) -> None:
    writer = create(tmp_path / "deep" / "results")
    assert writer.name == "2026-11-20T18-05-03-gpu-07"
    assert names(writer.folder) == ["run.json"]


def test_a_case_is_one_record_and_one_file_of_samples(tmp_path: Path) -> None:
    writer = create(tmp_path)
    path = writer.write_case(make_record())
    assert names(writer.folder) == ["cases/copy[size=1MiB].json", "run.json", "samples/copy[size=1MiB].parquet"]
    assert b"wall_s" not in path.read_bytes()
    assert writer.saved == ("copy[size=1MiB]",)


def test_the_samples_file_holds_one_row_a_sample_for_any_reader(tmp_path: Path) -> None:
    import pandas as pd

    writer = create(tmp_path)
    writer.write_case(make_record(pairs=2))
    frame = pd.read_parquet(writer.folder / "samples" / "copy[size=1MiB].parquet")
    assert list(frame.columns) == [
        "case", "slot", "pair", "position", "started", "side", "round", "index", "iterations", "wall_s", "device_s",
        "user_s", "system_s", "peak_bytes", "audit",
    ]  # fmt: skip
    assert len(frame) == 8
    second = frame[frame["pair"] == 1].iloc[0]
    assert (second["side"], second["position"], second["started"]) == ("after", 0, 1.7e9 + 1)
    assert list(frame["audit"]) == [True, False, False, False] * 2


def test_what_was_measured_reads_back_equal(tmp_path: Path) -> None:
    record = make_record()
    writer = create(tmp_path)
    writer.write_case(record)
    run = open_run(results=tmp_path)
    (stored,), damaged = run.read_cases()
    assert damaged == ()
    assert replace(stored, pairs=read_pairs(run, stored)) == record
    assert all(pair.samples == () for pair in stored.pairs)


@pytest.mark.long
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 3), st.lists(SAMPLES, max_size=6)), min_size=1, max_size=4))
def test_any_samples_read_back_equal_even_under_repeated_pair_numbers(
    tmp_path: Path, drawn: list[tuple[int, list[Any]]]
) -> None:
    pairs: tuple[Pair, ...] = tuple(replace(make_pair(index), samples=tuple(taken)) for index, taken in drawn)
    writer = create(tmp_path)
    writer.write_case(replace(make_record(), pairs=pairs))
    run = open_run(writer.folder, results=tmp_path)
    assert read_pairs(run, read_case(run, "copy[size=1MiB]")) == pairs


def test_a_skipped_case_has_a_record_and_no_samples(tmp_path: Path) -> None:
    writer = create(tmp_path)
    writer.write_case(replace(make_record(pairs=0), status="skipped", skip_reason="no GPU"))
    assert names(writer.folder) == ["cases/copy[size=1MiB].json", "run.json"]
    run = open_run(results=tmp_path)
    assert read_pairs(run, read_case(run, "copy")) == ()


def test_cases_are_read_in_plan_order(tmp_path: Path) -> None:
    writer = create(tmp_path)
    for name in ("a", "b", "c", "d"):
        writer.write_case(make_record(name, pairs=0))
    writer.write_run(RunRecord(run=writer.name, argv=(), started="", planned=("c", "a", "b")))
    records, _ = open_run(results=tmp_path).read_cases()
    assert [r.case.id for r in records] == ["c", "a", "b", "d"]


# ---- names -----------------------------------------------------------------------------------------------------------


def test_ids_that_differ_only_in_unsafe_characters_get_files_of_their_own(tmp_path: Path) -> None:
    writer = create(tmp_path)
    ids = ["a[path=x/y]", "a[path=x y]", "a[path=x_y]"]
    for case_id in ids:
        writer.write_case(make_record(case_id, pairs=1))
    records, _ = open_run(results=tmp_path).read_cases()
    assert sorted(r.case.id for r in records) == sorted(ids)


@given(st.text(min_size=1, max_size=400))
def test_any_id_makes_a_file_name_that_a_file_system_takes(case_id: str) -> None:
    name = file_name(make_case(case_id))
    assert len(f"{name}.parquet".encode()) <= 200
    assert not name.startswith(".")
    assert "/" not in name
    assert "\0" not in name


def test_a_long_id_keeps_its_beginning_and_stays_unique(tmp_path: Path) -> None:
    writer = create(tmp_path)
    ids = [f"copy[size={'é' * 150}{end}]" for end in ("1", "2")]
    paths = {writer.write_case(make_record(case_id, pairs=1)).name for case_id in ids}
    assert len(paths) == 2
    assert all(name.startswith("copy[size=é") for name in paths)


# ---- two at once -----------------------------------------------------------------------------------------------------


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        writers = list(pool.map(lambda _: create(tmp_path), range(12)))
    base = "2026-11-20T18-05-03-gpu-07"
    assert sorted(w.name for w in writers) == sorted([base, *(f"{base}-{i}" for i in range(2, 13))])
    assert [p.name for p in find_runs(tmp_path)][-1] == f"{base}-12"
    assert (tmp_path / "latest").resolve() in {w.folder.resolve() for w in writers}
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_latest_points_at_the_newest_run_and_is_replaced(tmp_path: Path) -> None:
    first, second = create(tmp_path), create(tmp_path)
    assert os.readlink(tmp_path / "latest") == second.name
    first.write_run(RunRecord(run=first.name, argv=(), started=""))
    assert open_run("latest", results=tmp_path).folder == tmp_path / first.name


def test_latest_is_found_by_name_where_links_are_not_possible(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir(parents=True)
    create(tmp_path)
    second = create(tmp_path)
    assert open_run(results=tmp_path).folder == second.folder


# ---- kills and damage ------------------------------------------------------------------------------------------------


def test_a_write_that_is_cut_short_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.json"]


def test_a_file_that_is_there_already_is_never_opened_for_writing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        open_new(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_what_a_killed_writer_left_behind_is_not_read(tmp_path: Path) -> None:
    writer = create(tmp_path)
    writer.write_case(make_record("a", pairs=1))
    whole = (writer.folder / "cases" / "a.json").read_bytes()
    (writer.folder / "cases" / ".b.json.99-abcd.part").write_bytes(whole)
    (writer.folder / "samples" / ".b.parquet.99-abcd.part").write_bytes(b"PAR1")
    (writer.folder / "samples" / "c.parquet").write_bytes(b"PAR1")
    (writer.folder / "cases" / "._a.json").write_bytes(b"what another system keeps beside a file")
    records, damaged = open_run(results=tmp_path).read_cases()
    assert [r.case.id for r in records] == ["a"]
    assert damaged == ()


def test_a_corrupt_record_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    writer = create(tmp_path)
    for name in ("a", "b", "c"):
        writer.write_case(make_record(name, pairs=1))
    broken = writer.folder / "cases" / "b.json"
    broken.write_bytes(broken.read_bytes()[:100])
    run = open_run(results=tmp_path)
    records, (damaged,) = run.read_cases()
    assert [r.case.id for r in records] == ["a", "c"]
    assert damaged.path == broken
    assert "is not JSON" in damaged.sentence
    assert "ignored" in damaged.sentence


def test_a_record_of_a_newer_aiperf_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    writer = create(tmp_path)
    writer.write_case(make_record("a", pairs=1))
    newer = replace(make_record("b", pairs=0), schema_version=99)
    (writer.folder / "cases" / "b.json").write_bytes(encode_case(newer))
    records, (damaged,) = open_run(results=tmp_path).read_cases()
    assert [r.case.id for r in records] == ["a"]
    assert "schema version 99" in damaged.reason


@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_run_whose_own_record_is_damaged_still_shows_its_cases(tmp_path: Path, content: bytes | None) -> None:
    writer = create(tmp_path)
    writer.write_case(make_record("a", pairs=1))
    path = writer.folder / "run.json"
    path.unlink() if content is None else path.write_bytes(content)
    run = open_run(results=tmp_path)
    records, (damaged,) = run.read_cases()
    assert [r.case.id for r in records] == ["a"]
    assert damaged.path == path
    assert damaged.sentence.endswith("the run's own record is damaged, its host, settings and end are unknown")
    assert (run.record.run, run.record.status, run.record.known) == (writer.name, "unknown", False)


def test_damaged_or_foreign_samples_are_a_mistake_that_names_the_file(tmp_path: Path) -> None:
    writer = create(tmp_path)
    for name, pairs in (("a", 2), ("b", 5)):
        writer.write_case(make_record(name, pairs=pairs))
    samples = writer.folder / "samples"
    run = open_run(results=tmp_path)
    (samples / "a.parquet").write_bytes((samples / "b.parquet").read_bytes())
    with pytest.raises(UserError, match=r"a\.parquet: holds samples of another case, b"):
        read_pairs(run, read_case(run, "a"))
    swapped = replace(read_case(run, "b"), pairs=(make_pair(4), *read_case(run, "b").pairs[1:]))
    with pytest.raises(UserError, match="holds samples of pair 0 where the record has pair 4"):
        read_pairs(run, swapped)
    pq.write_table(pq.read_table(samples / "b.parquet").drop_columns("wall_s"), samples / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet: is not a Parquet file of samples \(it has no column wall_s\)"):
        read_pairs(run, read_case(run, "b"))
    (samples / "a.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(UserError, match=r"a\.parquet: is not a Parquet file"):
        read_pairs(run, read_case(run, "a"))
    (samples / "a.parquet").unlink()
    with pytest.raises(UserError, match=r"a\.parquet: the samples cannot be read"):
        read_pairs(run, read_case(run, "a"))


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("wall_s", pa.nulls(1, pa.float64()), "wall_s holds NoneType"),
        ("wall_s", pa.array([float("inf")]), "wall_s holds an endless time"),
        ("side", pa.array([7]), "side holds int"),
        ("round", pa.array(["x"]), "round holds str"),
        ("device_s", pa.array(["x"]), "device_s holds str"),
    ],
)
def test_a_column_of_samples_with_nulls_or_other_types_is_named(
    tmp_path: Path, column: str, values: pa.Array, said: str
) -> None:
    writer = create(tmp_path)
    writer.write_case(make_record("a", pairs=1))
    file = writer.folder / "samples" / "a.parquet"
    whole = pq.read_table(file)
    changed = pa.concat_arrays([values] * whole.num_rows)
    pq.write_table(whole.set_column(whole.schema.get_field_index(column), column, changed), file)
    run = open_run(results=tmp_path)
    with pytest.raises(UserError, match=said):
        read_pairs(run, read_case(run, "a"))


def test_a_kill_between_the_two_files_of_a_later_look_loses_nothing_of_the_earlier_one(tmp_path: Path) -> None:
    writer = create(tmp_path)
    earlier = make_record("a", pairs=2)
    kept = writer.write_case(earlier).read_bytes()
    writer.write_case(make_record("a", pairs=4)).write_bytes(kept)
    run = open_run(results=tmp_path)
    assert read_pairs(run, read_case(run, "a")) == earlier.pairs


# ---- folders that cannot be written ----------------------------------------------------------------------------------


def test_a_results_folder_that_is_a_file_is_one_clear_mistake(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(UserError) as caught:
        RunWriter.create(tmp_path / "results" / "here")
    (fault,) = caught.value.faults
    assert fault.where == str(tmp_path / "results" / "here")
    assert fault.what == "the results folder cannot be written: not a directory."
    assert "--results" in fault.hint


def test_a_folder_of_the_kernel_that_takes_no_files_is_one_clear_mistake() -> None:
    with pytest.raises(UserError, match="the results folder cannot be written"):
        RunWriter.create(Path("/proc/self/results"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_full_or_read_only_folder_is_found_before_anything_is_measured(tmp_path: Path, code: int) -> None:
    with pytest.raises(UserError) as caught:
        RunWriter.create(tmp_path, opener=FullDisk(code=code, full=True))
    reason = os.strerror(code)
    assert caught.value.faults[0].what.lower() == f"the results folder cannot be written: {reason.lower()}."
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_in_mid_run_says_what_was_saved(tmp_path: Path) -> None:
    disk = FullDisk()
    writer = create(tmp_path, opener=disk)
    writer.write_case(make_record("a", pairs=1))
    disk.full = True
    with pytest.raises(StoreError) as caught:
        writer.write_case(make_record("b", pairs=1))
    assert caught.value.saved == ("a",)
    assert caught.value.lost == "b"
    assert "b could not be saved: no space left on device; 1 case saved before it" in str(caught.value)
    assert names(writer.folder) == ["cases/a.json", "run.json", "samples/a.parquet"]


# ---- finding ---------------------------------------------------------------------------------------------------------


def test_a_run_is_found_by_path_name_and_beginning(tmp_path: Path) -> None:
    folder = create(tmp_path).folder
    for name in (str(folder), folder.name, "2026-11", "latest"):
        assert open_run(name, results=tmp_path).folder == folder
    assert open_run(folder, results=tmp_path / "elsewhere").folder == folder


def test_an_unknown_or_ambiguous_run_tells_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run is stored"):
        open_run(results=tmp_path)
    names_made = [create(tmp_path).name for _ in range(2)]
    with pytest.raises(UserError) as caught:
        open_run("1999", results=tmp_path)
    assert all(name in caught.value.faults[0].hint for name in names_made)
    with pytest.raises(UserError, match='"2026" is a prefix of 2 runs'):
        open_run("2026", results=tmp_path)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "", "../..", "."])
def test_odd_names_of_runs_are_a_mistake_and_not_a_crash(tmp_path: Path, name: str) -> None:
    create(tmp_path / "results")
    with pytest.raises(UserError):
        open_run(name, results=tmp_path / "results")


def test_an_unknown_case_tells_the_nearest(tmp_path: Path) -> None:
    writer = create(tmp_path)
    for name in ("copy[size=1MiB]", "copy[size=2MiB]"):
        writer.write_case(make_record(name, pairs=0))
    run = open_run(results=tmp_path)
    with pytest.raises(UserError) as caught:
        read_case(run, "copy[size=3MiB]")
    assert "copy[size=1MiB]" in caught.value.faults[0].hint
    for shown in ("1MiB", "size=1MiB", "copy 1MiB", "copy[size=1MiB]"):  # as tables, progress and records name it
        assert read_case(run, shown).case.id == "copy[size=1MiB]"
    with pytest.raises(UserError, match='"copy" has 2 cases'):
        read_case(run, "copy")


@pytest.mark.long
def test_a_thousand_records_are_read_in_seconds(tmp_path: Path) -> None:
    writer = create(tmp_path)
    data = encode_case(
        replace(make_record(pairs=10), pairs=tuple(replace(make_pair(i), samples=()) for i in range(10)))
    )
    for number in range(1000):
        (writer.folder / "cases" / f"copy-{number}.json").write_bytes(data)
    started = time.process_time()
    records, damaged = open_run(results=tmp_path).read_cases()
    assert (len(records), len(damaged)) == (1000, 0)
    assert time.process_time() - started < 10


def test_git_overlooks_the_runs_of_a_new_results_folder_and_sees_curated_ones(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    results = tmp_path / "results"
    RunWriter.create(results)
    (results / "reference" / "h200").mkdir(parents=True)
    (results / "reference" / "h200" / "run.json").write_text("{}")
    told = subprocess.run(
        ["git", "-C", str(tmp_path), "status", "--porcelain", "-uall"], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["??", "results/reference/h200/run.json"]


def test_a_results_folder_that_was_there_keeps_its_own_rules(tmp_path: Path) -> None:
    RunWriter.create(tmp_path)
    assert not (tmp_path / ".gitignore").exists()


PARTS = (Latencies((0.25, 1e-9), "ttft"), Latencies((0.5,), "queue"), Latencies((0.5,), "queue", 1))


def test_latencies_come_back_and_a_file_without_any_has_no_column_for_them(tmp_path) -> None:
    plain, telling = make_record("plain"), make_record("telling")
    first, *others = telling.pairs
    samples = (replace(first.samples[0], latencies=PARTS), *first.samples[1:])
    telling = replace(telling, pairs=(replace(first, samples=samples), *others))
    writer = create(tmp_path)
    for record in (plain, telling):
        writer.write_case(record)
    stored = open_run(writer.name, results=tmp_path)
    for record in (plain, telling):
        assert read_pairs(stored, read_case(stored, record.case.id)) == record.pairs
        path = stored.samples_path(record.case)
        assert ("latency_series" in pq.read_schema(path).names) == (record is telling)
        assert why_unreadable(path) == ""


@pytest.mark.parametrize(
    ("count", "name", "hint"),
    [
        (3, "nope", "It holds: case-00, case-01, case-02."),
        (15, "case-0", "Nearest of its 15 cases: "),
        (15, "nope", "It holds case-00, case-01, case-02, case-03, case-04 and 10 more."),
        (0, "nope", "It is empty."),
    ],
)
def test_a_case_that_is_not_there_is_told_without_calling_some_cases_all(
    tmp_path: Path, count: int, name: str, hint: str
) -> None:
    writer = create(tmp_path)
    for number in range(count):
        writer.write_case(make_record(f"case-{number:02d}", pairs=0))
    with pytest.raises(UserError) as caught:
        read_case(open_run(writer.folder, results=tmp_path), name)
    assert caught.value.faults[0].hint.startswith(hint)
