"""Importing files: which tool it was, once only, on which machine; and any damage told in a sentence."""

from __future__ import annotations

import copy
import gzip
import json
import os
import re
import shutil
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from foreign_files import (
    ASV,
    FILES,
    FOLDER,
    JSON_FILES,
    document,
    fault_of_bytes,
    fault_of_changed,
    take,
    take_changed,
    take_fixture,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aiperf.analysis.notes import note_sentences
from aiperf.errors import UserError
from aiperf.store.importers import detect
from aiperf.store.importers.cases import safe_name
from aiperf.store.importers.detect import FORMATS
from aiperf.store.importers.keep import ImportOptions, import_files
from aiperf.store.read import find_runs, open_run
from aiperf.store.write import RunWriter, StoreError

MANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", FILES)
def test_the_tool_of_every_file_is_told_by_what_it_holds(name: str, tmp_path: Path) -> None:
    disguised = tmp_path / "results-of-last-year"
    shutil.copy(FOLDER / name, disguised)
    tool = take(disguised, tmp_path).run.settings["imported"]["tool"]
    assert tool.replace("-", "_") == re.split(r"_(?:agg|no|par|cal|full|brief|modes)|\.", Path(name).name)[0]


def test_no_file_fits_two_outlines() -> None:
    for name in FILES:
        data = (FOLDER / name).read_bytes()
        node = detect._document(gzip.decompress(data) if name.endswith(".gz") else data, name)
        assert sum(detect._fits(form, node) for form in FORMATS.values()) == 1, name


# ---- the run ---------------------------------------------------------------------------------------------------------


def test_a_file_becomes_one_finished_run_with_its_origin(tmp_path: Path) -> None:
    imported = take_fixture("pyperf.json", tmp_path, argv=("aiperf", "import", "pyperf.json"))
    run = open_run(imported.folder, results=tmp_path / "results").record
    assert run == imported.run
    assert (run.status, run.command, run.argv, run.planned) == (
        "finished",
        "import",
        ("aiperf", "import", "pyperf.json"),
        ("sorted", "reversed"),
    )
    assert (run.host["imported_from"], run.host["cpu_model"]) == ("pyperf 2.10.0", "AMD EPYC")
    assert run.software == {"python": "3.11.7", "python_implementation": "cpython"}
    assert run.finished.startswith("2026-11-21T18:03:43")
    assert all((r.status, r.results, r.host_id) == ("imported", (), run.host_id) for r in imported.records)


def test_an_import_is_never_the_latest_run(tmp_path: Path) -> None:
    results = tmp_path / "results"
    writer = RunWriter.create(results, hostname="mine")
    imported = take_fixture("pyperf.json", tmp_path)
    writer.write_run(imported.run)
    take_fixture("hyperfine.json", tmp_path)
    assert os.readlink(results / "latest") == writer.name


def test_a_file_without_a_date_takes_the_time_it_was_written_and_says_so(tmp_path: Path) -> None:
    path = Path(shutil.copy(FOLDER / "hyperfine.json", tmp_path))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    imported = take(path, tmp_path)
    assert imported.folder.name == "2023-11-14T22-13-20-imported"
    assert any("has no date" in note for note in note_sentences(imported.records[0]))


def test_the_same_content_is_imported_once_unless_asked_again(tmp_path: Path) -> None:
    first = take_fixture("pyperf_calibrated.json.gz", tmp_path)
    unpacked = tmp_path / "other-name.json"
    unpacked.write_bytes(gzip.decompress((FOLDER / "pyperf_calibrated.json.gz").read_bytes()))
    imported, (fault,) = import_files([unpacked], ImportOptions(tmp_path / "results"))
    assert imported == ()
    assert first.folder.name in fault.what
    assert "--again" in fault.hint
    assert take(unpacked, tmp_path, again=True).folder != first.folder


def test_a_file_named_twice_in_one_command_is_imported_once(tmp_path: Path) -> None:
    path = FOLDER / "pyperf.json"
    imported, faults = import_files([path, path], ImportOptions(tmp_path / "results"))
    assert (len(imported), len(faults)) == (1, 1)


def test_an_import_that_was_cut_short_does_not_count_as_done(tmp_path: Path) -> None:
    imported = take_fixture("pyperf.json", tmp_path)
    path = imported.folder / "run.json"
    path.write_text(
        path.read_text().replace('"finished"', '"running"', 1).replace('"status": "finished"', '"status": "running"')
    )
    assert take_fixture("pyperf.json", tmp_path).run.status == "finished"


def test_good_files_are_imported_and_the_faults_of_all_others_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    paths = [tmp_path / "bad.json", FOLDER / "pyperf.json", tmp_path / "none.json", FOLDER / "hyperfine.json"]
    imported, faults = import_files(paths, ImportOptions(tmp_path / "results"))
    assert [i.path.name for i in imported] == ["pyperf.json", "hyperfine.json"]
    assert [Path(f.where).name for f in faults] == ["bad.json", "none.json"]


def test_a_full_disk_is_a_fault_of_its_file_and_the_next_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RunWriter.write_case

    def write_case(writer: RunWriter, record: Any) -> Path:
        if record.case.id == "sorted":
            raise StoreError("sorted could not be saved: no space left on device", saved=(), lost="sorted")
        return whole(writer, record)

    monkeypatch.setattr(RunWriter, "write_case", write_case)
    imported, (fault,) = import_files(
        [FOLDER / "pyperf.json", FOLDER / "hyperfine.json"], ImportOptions(tmp_path / "results")
    )
    assert [i.path.name for i in imported] == ["hyperfine.json"]
    assert (Path(fault.where).name, "no space left" in fault.what) == ("pyperf.json", True)


# ---- the machine -----------------------------------------------------------------------------------------------------


def test_equal_machines_get_one_id_and_others_another(tmp_path: Path) -> None:
    first, second = (take_fixture(n, tmp_path).run.host_id for n in ("pyperf.json", "pytest_benchmark.json"))
    assert first == second
    assert re.fullmatch(r"imported-[0-9a-f]{12}", first)
    changed = document("pyperf.json")
    changed["metadata"]["cpu_count"] = 64
    assert take_changed("p.json", changed, tmp_path).run.host_id != first


def test_the_name_of_the_host_counts_only_where_no_processor_is_named(tmp_path: Path) -> None:
    pyperf, google = document("pyperf.json"), document("google_benchmark.json")
    before = (
        take_fixture("pyperf.json", tmp_path).run.host_id,
        take_fixture("google_benchmark.json", tmp_path).run.host_id,
    )
    pyperf["metadata"]["hostname"] = google["context"]["host_name"] = "other"
    after = [take_changed("x.json", d, tmp_path).run.host_id for d in (pyperf, google)]
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)


def test_load_and_clock_of_the_moment_do_not_make_another_machine(tmp_path: Path) -> None:
    changed = document("google_benchmark.json")
    changed["context"] |= {"load_avg": [9.0], "mhz_per_cpu": 1200, "date": "2027-01-01T00:00:00+00:00"}
    ids = {
        take_fixture("google_benchmark.json", tmp_path).run.host_id,
        take_changed("g.json", changed, tmp_path).run.host_id,
    }
    assert len(ids) == 1


def test_two_unknown_machines_are_not_one(tmp_path: Path) -> None:
    found = [take_fixture(n, tmp_path) for n in ("hyperfine.json", "hyperfine_parameters.json")]
    assert found[0].run.host_id != found[1].run.host_id
    assert any("--host-id" in note for note in note_sentences(found[0].records[0]))


def test_the_user_may_name_the_machine(tmp_path: Path) -> None:
    imported = take_fixture("hyperfine.json", tmp_path, host_id="node-7")
    assert imported.run.host_id == "node-7"
    assert not any("--host-id" in note for note in note_sentences(imported.records[0]))
    with pytest.raises(UserError, match="not a valid host name"):
        import_files([FOLDER / "pyperf.json"], ImportOptions(tmp_path / "results", host_id="../x y"))


# ---- names -----------------------------------------------------------------------------------------------------------


def test_benchmarks_whose_names_become_one_get_cases_of_their_own(tmp_path: Path) -> None:
    changed = document("hyperfine.json")
    one = changed["results"][0]
    names = ("a b", "a/b", "a/b", "plain")
    changed["results"] = [copy.deepcopy(one) | {"command": name} for name in names]
    imported = take_changed("h.json", changed, tmp_path)
    ids = [r.case.id for r in imported.records]
    assert len(set(ids)) == 4
    assert ids[3] == "plain"
    assert all(i.startswith("a-b-") for i in ids[:3])
    assert [r.case.title for r in imported.records] == list(names)
    assert len(list((imported.folder / "cases").iterdir())) == 4


@given(st.text(max_size=300))
@example(".:0")
@example("")
def test_any_name_makes_a_scenario_that_a_shell_and_a_file_system_take(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,119}", safe_name(name))


# ---- garbage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "is not JSON"),
        (b"[1, 2", "is not JSON"),
        (b"\xff\xfe\x00garbage", "is not a format that aiperf reads: it is neither JSON nor text"),
        (b"size,time\n1,2\n", "is not a format that aiperf reads: it is text without results of such a tool"),
        (b'{"epoch": 1}\n{"epoch": 2}\n', "is not a format that aiperf reads: it is text without results"),
        (b"goos: linux\nPASS\nok  \twords\t0.3s\n", "is not a format that aiperf reads: it is text without results"),
        (b"# nThread 1 nGpus 2\n# Using devices\n", "is not a format that aiperf reads: it is text without"),
        (b"[" * 100_000, "is not JSON"),
        (b"1" * 10_000, "is not a format that aiperf reads"),
        (b"[]", "the file holds a list, not an object"),
        (b"null", "the file holds null"),
        (b"{}", "it is an empty object"),
        (b'{"rows": [], "run": {}}', "its keys are rows, run"),
        (b'{"benchmarks": []}', "its keys are benchmarks"),
        (b'{"context": {}, "benchmarks": []}', "contains no benchmark of google-benchmark"),
        (b"\x1f\x8b not gzip", "cannot be read"),
        (gzip.compress(b'{"results": []}' * 9, mtime=0)[:-9], "cannot be read"),
        (gzip.compress(b"", mtime=0), "is empty"),
    ],
)
def test_garbage_is_refused_with_what_it_is(data: bytes, said: str, tmp_path: Path) -> None:
    assert said in fault_of_bytes("x.json", data, tmp_path).what


@pytest.mark.parametrize("data", [b'{"rows": 3}', b"size,time\n1,2\n", b'{"epoch": 1}\n{"epoch": 2}\n'])
def test_an_unknown_file_is_told_every_format_and_not_that_a_tool_was_interrupted(data: bytes, tmp_path: Path) -> None:
    fault = fault_of_bytes("x.json", data, tmp_path)
    assert fault.hint == f"It reads {'; '.join(form.outline for form in FORMATS.values())}."


def test_a_folder_without_results_of_criterion_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _, (fault,) = import_files([tmp_path / "empty"], ImportOptions(tmp_path / "results"))
    assert fault.what == "is a folder without results of criterion (.../new/sample.json)."


def test_folders_pipes_and_absent_files_are_faults(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    paths = [tmp_path, tmp_path / "pipe", tmp_path / "none", tmp_path / ("n" * 400)]
    imported, faults = import_files(paths, ImportOptions(tmp_path / "results"))
    assert (imported, len(faults)) == ((), 4)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_beyond_the_limit_is_refused_also_when_it_is_small_until_unpacked(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "MOST_BYTES", 2**20)
    data = b" " * (2**20 + 1)
    fault = fault_of_bytes("x.json", gzip.compress(data) if packed else data, tmp_path)
    assert "more than 1 MiB" in fault.what


def test_more_readings_than_memory_allows_are_refused_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "MOST_READINGS", 12)
    assert "holds 13 readings; at most 12" in fault_of_changed("x.json", thirteen(), tmp_path).what
    monkeypatch.setattr(detect, "MOST_READINGS", 13)
    assert len(take_changed("x.json", thirteen(), tmp_path).records) == 3


def thirteen() -> Any:
    """A document with 5 + 4 + 4 readings."""
    return document("pytest_benchmark.json")


def test_a_bomb_is_unpacked_no_further_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "MOST_BYTES", 2**20)
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(bytes(2**25), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="more than 1 MiB"):
            detect.load(path)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


DAMAGE = [
    ("pyperf.json", "benchmarks.0.runs.1.values.2", "fast", "benchmarks[0].runs[1].values[2] is 'fast', not a number"),
    ("pyperf.json", "benchmarks.0.runs.0.values.0", 10**400, "not a number that a computer can hold"),
    ("hyperfine.json", "results.0.times.1", None, "results[0].times[1] is None, not a number"),
    ("hyperfine.json", "results.0.times", 3, "results[0].times is 3, not a list"),
    ("google_benchmark.json", "benchmarks.0.time_unit", "week", "benchmarks[0].time_unit is 'week', not one of ns"),
    ("google_benchmark.json", "benchmarks.0.iterations", 0, "benchmarks[0].iterations is 0, not a whole number"),
    ("pytest_benchmark.json", "benchmarks.0.stats.iterations", 1.5, "iterations is 1.5, not a whole number"),
    ("pytest_benchmark.json", "benchmarks.0.stats", None, "benchmarks[0] has no stats"),
    (ASV, "version", 1, "it is of asv's format 1; aiperf reads 2"),
    (ASV, "results", 3, "results is 3, not an object"),
    ("jmh.json", "0.primaryMetric.scoreUnit", "B/op", "[0].primaryMetric.scoreUnit is 'B/op', not a time per op"),
    ("jmh.json", "3.primaryMetric.rawDataHistogram.0.0.0.1", 0.5, "not a value and how often it came"),
    ("benchmarkdotnet.json", "Benchmarks.0.Measurements.7.Operations", 0, "Operations is 0, not a whole number"),
]


@pytest.mark.parametrize(("name", "place", "value", "said"), DAMAGE)
def test_damage_is_told_with_its_place(
    name: str, place: tuple[Any, ...], value: Any, said: str, tmp_path: Path
) -> None:
    changed = document(name)
    inner = changed
    *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    for key in path:
        inner = inner[key]
    inner[last] = value
    assert said in fault_of_changed("x.json", changed, tmp_path).what


def test_a_tool_that_was_named_wrongly_is_told(tmp_path: Path) -> None:
    fault = fault_of_changed("x.json", document("hyperfine.json"), tmp_path, tool="google-benchmark")
    assert "contains no benchmark of google-benchmark" in fault.what
    fault = fault_of_changed("x.json", document("pyperf.json"), tmp_path, tool="pytest-benchmark")
    assert "read as pytest-benchmark, as --tool asks" in fault.what


def import_any(data: bytes) -> None:
    """Import bytes: a run or a fault with a place, never another exception; what is stored reads back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "x.json").write_bytes(data)
        imported, faults = import_files([folder / "x.json"], ImportOptions(folder / "results"))
        assert len(imported) + len(faults) == 1
        assert all(f.what and f.where for f in faults)
        for run in find_runs(folder / "results"):
            _, damaged = open_run(run, results=folder / "results").read_cases()
            assert damaged == ()


@MANY
@given(st.sampled_from(FILES), st.floats(0, 1))
def test_a_file_cut_anywhere_is_a_fault_or_a_run(name: str, share: float) -> None:
    data = (FOLDER / name).read_bytes()
    import_any(data[: int(len(data) * share)])


@pytest.mark.long
@MANY
@given(st.sampled_from(JSON_FILES), st.randoms(use_true_random=False), JSON)
def test_a_file_with_anything_in_any_place_is_a_fault_or_a_run(name: str, random: Any, value: Any) -> None:
    changed = document(name)
    places = list(every_place(changed))
    for _ in range(random.choice((1, 1, 3))):
        container, key = random.choice(places)
        container[key] = value
    import_any(json.dumps(changed).encode())


def every_place(value: Any) -> Any:
    """Every (container, key) of a document, its own containers first."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from every_place(value[key])
