"""All runs of a folder at once: oldest first, damage passed over, nothing opened that is not needed."""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory_of_runs import laid_out_otherwise, make_measured, voided, write_run
from factory_of_stored_records import any_of, make_case, make_record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiperf.errors import UserError
from aiperf.records import SCHEMA_VERSION, CaseRecord, Note
from aiperf.store.codec import encode_case
from aiperf.store.history import History, entries
from aiperf.store.light import decode_light
from aiperf.store.read import open_run
from aiperf.store.samples import strip_samples
from aiperf.store.write import file_name, name_stem

QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def told(history: History) -> list[tuple[str, str]]:
    return [(entry.run.run, entry.record.case.id) for entry in history.entries]


def test_entries_are_the_records_without_their_pairs_oldest_run_first(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, [make_measured("copy"), make_measured("add")], hour=hour) for hour in (2, 0, 1)]
    history = entries(tmp_path)
    assert told(history) == [(folders[i].name, name) for i in (1, 2, 0) for name in ("copy", "add")]
    stored = open_run(folders[1], results=tmp_path)
    assert history.entries[0].run == stored.record
    assert history.entries[0].record == replace(stored.read_cases()[0][0], pairs=())
    assert history.entries[0].record.results != ()
    assert history.damaged == ()


def test_a_run_is_as_old_as_its_record_says_whatever_its_folder_is_called(tmp_path: Path) -> None:
    for hour in (0, 1, 2):
        write_run(tmp_path, [make_record("copy", pairs=1)], hour=hour)
    first = sorted(p for p in tmp_path.iterdir() if not p.is_symlink())[0]
    first.rename(tmp_path / "the-oldest-one")
    assert told(entries(tmp_path))[0][0] == first.name
    (tmp_path / "the-oldest-one" / "run.json").unlink()
    (tmp_path / "the-oldest-one").rename(first)
    assert told(entries(tmp_path))[0][0] == first.name, "without a record the folder's name tells"


def test_a_results_folder_that_is_empty_or_missing_has_no_history(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "a-file").write_text("x")
    assert entries(tmp_path) == entries(tmp_path / "missing") == entries(tmp_path / "a-file") == History(())


def test_a_results_folder_that_may_not_be_read_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(UserError, match="cannot be read"):
        entries(tmp_path)


# ---- one scenario ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("copy", ["copy[size=1MiB]", "copy[size=2MiB]"]),
        ("copy[size=2MiB]", ["copy[size=2MiB]"]),
        pytest.param("copy-wide", ["copy-wide"], marks=pytest.mark.long),
        pytest.param("cop", [], marks=pytest.mark.long),
        ("odd/name", ["odd/name[x=a b]"]),
    ],
)
def test_a_scenario_or_a_case_id_narrows_the_history(tmp_path: Path, name: str, found: list[str]) -> None:
    ids = ["copy[size=1MiB]", "copy[size=2MiB]", "copy-wide", "odd/name[x=a b]"]
    records = [make_record(case_id, pairs=1) for case_id in ids]
    for hour in (0, 1):
        write_run(tmp_path, records, hour=hour)
    assert [case for _, case in told(entries(tmp_path, scenario=name))] == found * 2


@given(st.text(min_size=1, max_size=300), st.text(max_size=200))
def test_every_file_of_a_scenario_begins_with_its_stem(scenario: str, point: str) -> None:
    for case_id in (scenario, f"{scenario}[{point}]"):
        assert file_name(make_case(case_id)).startswith(name_stem(scenario))


def test_files_of_other_scenarios_are_not_even_opened(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [make_record("copy", pairs=1), make_record("add", pairs=1)])
    alone = write_run(tmp_path, [make_record("add", pairs=1)], hour=1)
    (folder / "cases" / "add.json").write_bytes(b"garbage")
    (alone / "run.json").write_bytes(b"garbage")
    assert entries(tmp_path, scenario="copy").damaged == ()
    assert {d.path for d in entries(tmp_path).damaged} == {folder / "cases" / "add.json", alone / "run.json"}


def test_no_folder_is_listed_twice_and_samples_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [write_run(tmp_path, [make_record("copy", pairs=1)], hour=hour) for hour in range(3)]
    listed: Counter[str] = Counter()
    scandir = os.scandir

    def counting(path: Any) -> Any:
        listed[str(path)] += 1
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    assert len(entries(tmp_path).entries) == 3
    assert listed == Counter([str(tmp_path), *(str(folder / "cases") for folder in folders)])


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_damaged_files_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    good = [write_run(tmp_path, [make_measured(n) for n in ("a", "b", "c")], hour=hour) for hour in (0, 1)]
    whole = (good[0] / "cases" / "a.json").read_bytes()
    (good[0] / "cases" / "a.json").write_bytes(whole[: len(whole) // 2])
    (good[0] / "cases" / "b.json").write_bytes(b"\x00\xff garbage")
    newer = whole.replace(f'"schema_version": {SCHEMA_VERSION}'.encode(), b'"schema_version": 99')
    (good[0] / "cases" / "c.json").write_bytes(newer)
    (good[1] / "run.json").write_bytes(b"garbage")
    history = entries(tmp_path)
    assert told(history) == [(good[1].name, name) for name in ("a", "b", "c")]
    reasons = {d.path.name: d.reason for d in history.damaged}
    assert set(reasons) == {"a.json", "b.json", "c.json", "run.json"}
    assert "schema version 99" in reasons["c.json"]
    assert "is not JSON" in reasons["a.json"]
    assert not history.entries[0].run.known


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.99])
def test_a_record_cut_short_anywhere_is_damage(tmp_path: Path, share: float) -> None:
    folder = write_run(tmp_path, [make_measured("a", pairs=20)])
    path = folder / "cases" / "a.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert [d.path for d in entries(tmp_path).damaged] == [path]


def test_what_a_killed_writer_left_behind_is_invisible(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [make_record("a", pairs=1)])
    (folder / "cases" / ".b.json.99-abcd.part").write_bytes((folder / "cases" / "a.json").read_bytes())
    (folder / "cases" / "._a.json").write_bytes(b"what another system keeps beside a file")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "made-and-killed" / "cases").mkdir(parents=True)
    history = entries(tmp_path)
    assert told(history) == [(folder.name, "a")]
    assert history.damaged == ()


def test_a_file_that_is_gone_when_it_is_opened_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [make_record("a", pairs=1)])
    (folder / "cases" / "b.json").symlink_to(tmp_path / "nowhere")
    (damaged,) = entries(tmp_path).damaged
    assert damaged.reason == "cannot be read (No such file or directory)"


# ---- records without their pairs -------------------------------------------------------------------------------------


@pytest.mark.long
@QUICK
@given(any_of(CaseRecord))
def test_any_record_reads_light_as_it_reads_whole(record: CaseRecord) -> None:
    record = replace(strip_samples(record), schema_version=SCHEMA_VERSION)
    data = encode_case(record)
    bare = replace(record, pairs=())
    light = decode_light(data)
    assert (light.record, light.pairs) == (bare, len(record.pairs))
    assert light.void == tuple(i for i, pair in enumerate(record.pairs) if pair.void)
    assert decode_light(data, pairs=True).record == record
    unread = decode_light(data, results=False)
    assert replace(unread.record, results=()) == replace(bare, results=())
    assert (unread.pairs, unread.void) == (light.pairs, light.void)


def test_parts_that_are_not_wanted_are_left_out() -> None:
    light = decode_light(encode_case(strip_samples(make_measured(pairs=3))), results=False)
    assert (light.pairs, light.record.pairs, light.record.results) == (3, (), ())


def test_a_record_reads_the_same_whatever_the_order_of_its_fields_and_its_layout(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [voided(make_measured("a"), 1)])
    path = folder / "cases" / "a.json"
    before, light = entries(tmp_path), decode_light(path.read_bytes())
    laid_out_otherwise(path)
    assert entries(tmp_path) == before
    assert decode_light(path.read_bytes()) == light
    turned = dict(reversed(json.loads(path.read_bytes()).items()))
    path.write_text(json.dumps(turned, indent=1) + "\n")
    assert entries(tmp_path) == before
    assert decode_light(path.read_bytes()) == light


def test_fields_between_the_pairs_and_the_limits_are_not_taken_for_pairs() -> None:
    plain = json.loads(encode_case(strip_samples(make_measured(pairs=3))))
    limits, notes = plain.pop("limits"), [{"code": "text", "values": {"text": "a note"}}]
    moved = {**plain, "notes": notes, "limits": limits}
    light = decode_light((json.dumps(moved, indent=1) + "\n").encode())
    assert light.record.notes == (Note("text", {"text": "a note"}),)
    assert light.pairs == 3


def test_a_void_pair_is_known_by_its_place() -> None:
    light = decode_light(encode_case(strip_samples(voided(make_measured(pairs=4), 2))))
    assert (light.pairs, light.void, light.record.pairs) == (4, (2,), ())


def test_the_collector_works_again_afterwards(tmp_path: Path) -> None:
    write_run(tmp_path, [make_record("a", pairs=1)])
    assert gc.isenabled()
    entries(tmp_path)
    assert gc.isenabled()
