"""Older records: read as they were meant, their numbers untouched; what never was is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory_of_stored_records import make_record

from aiperf.analysis.recompute import recompute
from aiperf.profilers.notes import note_sentence
from aiperf.records import SCHEMA_VERSION, CaseRecord
from aiperf.records.profiled import ProfileNote
from aiperf.store.codec import CorruptRecord, decode_case, encode_case, to_plain
from aiperf.store.migrate import FIRST_VERSION, STEPS, migrated
from aiperf.store.read import StoredRun, open_run, read_pairs
from aiperf.store.same import same_results

VERSION_1 = Path(__file__).with_name("version_1")
"""Written by the first aiperf; its host, its paths and its command line were made anonymous."""


@pytest.fixture(scope="module")
def run() -> StoredRun:
    return open_run(results=VERSION_1)


@pytest.fixture(scope="module")
def record(run: StoredRun) -> CaseRecord:
    (record,), damaged = run.read_cases()
    assert damaged == ()
    return record


def stored_plain(run: StoredRun) -> dict[str, Any]:
    return json.loads((run.folder / "cases" / "tiny.json").read_bytes())


def kept(old: Any, new: Any) -> bool:
    """Whether everything of the old record is in the new one."""
    if isinstance(old, dict):
        return all(name in new and kept(value, new[name]) for name, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(kept, old, new))
    return bool(old == new)


def test_a_record_of_version_1_reads_with_every_number_it_has(run: StoredRun, record: CaseRecord) -> None:
    old = stored_plain(run)
    assert old.pop("schema_version") == 1
    assert "log_sd" not in old["results"][0]["comparison"]["before"]
    assert kept(migrated({**old, "schema_version": 1}), to_plain(record))
    assert record.results[0].comparison.before.value == old["results"][0]["comparison"]["before"]["value"]


def test_keys_that_version_3_renamed_hold_what_they_held() -> None:
    run = {"pid": 1, "work": {"bytes": 8, "roofs": {"dram": 8.0}, "held": {}}}
    old = {
        "own_seconds": 1.5,
        "case": {"measure": {"blocker": False, "headline": "user"}, "sides": []},
        "results": [{"side": "after", "headline": True}, {"side": "after", "headline": False}],
        "limits": [{"side": "after", "roof": "dram", "peak": 2.0}],
        "pairs": [{"runs": [run, {"work": {}}], "watch": {"standing": {"clock": "fixed"}}, "checks": []}],
        "settings": {"fit": "warn", "seed": 3},
    }
    assert migrated({"schema_version": 2, **old}, to=3) == {
        "schema_version": 3,
        "harness_seconds": 1.5,
        "case": {"measure": {"blocking_kernel": False, "metric": "user"}, "sides": []},
        "results": [{"side": "after", "primary": True}, {"side": "after", "primary": False}],
        "limits": [{"side": "after", "peak_name": "dram", "peak": 2.0}],
        "pairs": [
            {
                "runs": [{"pid": 1, "work": {"bytes": 8, "peaks": {"dram": 8.0}, "maybe_cached": {}}}, {"work": {}}],
                "watch": {"invariants": {"clock": "fixed"}},
                "checks": [],
            }
        ],
        "settings": {"host_check": "warn", "seed": 3},
    }


def test_a_profile_of_version_2_keeps_the_work_of_its_sides_and_why_a_tool_was_left_out() -> None:
    artefacts = [
        {"tool": "ncu", "reason": "nsys saw no kernel of this side, and ncu reads kernels alone"},
        {"tool": "nsys", "reason": ""},
    ]
    work = {"before": {"bytes": 8, "roofs": {"dram": 8.0}, "held": {}}}
    found = migrated({"schema_version": 2, "artefacts": artefacts, "facts": {"work": work}}, to=3)
    assert found["facts"]["work"] == {"before": {"bytes": 8, "peaks": {"dram": 8.0}, "maybe_cached": {}}}
    assert [artefact.get("code") for artefact in found["artefacts"]] == ["no_kernel", None]


def test_what_a_check_said_in_a_sentence_becomes_its_kind_its_sides_and_its_audits() -> None:
    sentences = (
        "work with before, 3 audits, bit for bit", "tiled with before, 1 audit, check x, bound 2", "tiled by itself",
        "work per step", "first 1 MiB of standard output of work with before, bitwise",
        "exit status 0 on all sides; what they print is not compared",
    )  # fmt: skip
    pairs = [{"checks": [{"passed": False, "compared": text} for text in sentences]}]
    sides = [{"name": name} for name in ("before", "tiled", "work")]
    new = migrated({"schema_version": 2, "case": {"sides": sides}, "pairs": pairs}, to=3)
    found = [(c["compared"], c["kind"], c["sides"], c["audits"]) for c in new["pairs"][0]["checks"]]
    assert found == [
        ("work with before, bit for bit", "outputs", ["work"], 3),
        ("tiled with before, check x, bound 2", "outputs", ["tiled"], 1),
        ("tiled by itself", "own_outputs", ["tiled"], 0),
        (sentences[3], "work", [], 0),
        (sentences[4], "printed", [], 0),
        (sentences[5], "none", [], 0),
    ]


def test_a_note_that_was_a_sentence_stays_one() -> None:
    old = {"schema_version": 2, "case": {"sides": []}, "status": "measured", "notes": ["slicing was off"]}
    assert migrated(old, to=3)["notes"] == [{"code": "text", "values": {"text": "slicing was off"}}]


def test_a_note_of_an_older_profile_keeps_its_sentence_and_that_of_a_cut_timeline_gets_its_code() -> None:
    said = "the timeline of before has the first 68.5 µs of 2.00 s: 4000 of 9000 bars"
    old = {"schema_version": 2, "case": "c", "artefacts": [], "notes": ["ncu wrote nothing", said]}
    text, cut = (ProfileNote(**note) for note in migrated(old, to=3)["notes"])
    assert (text.code, cut.code, cut.values["bars"]) == ("text", "timeline_cut", 9000)
    assert [note_sentence(note) for note in (text, cut)] == ["ncu wrote nothing", said]


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["aiperf", "run", "profile"], "run"),
        (["/x/aiperf/__main__.py", "--debug", "profile", "gate"], "profile"),
        (["aiperf", "gate", "memory"], "gate"),
        ([], ""),
    ],
)
def test_the_command_of_a_run_is_what_its_command_line_began_with(argv: list[str], command: str) -> None:
    assert migrated({"schema_version": 2, "argv": argv}, to=3)["command"] == command


@pytest.mark.parametrize(
    ("word", "withheld"), [("T_TOKEN=[withheld 2]", True), ("--api-key=[withheld]", True), ("x", False)]
)
def test_whether_a_run_was_begun_with_a_secret_was_a_word_until_version_4(word: str, withheld: bool) -> None:
    assert migrated({"schema_version": 3, "argv": ["aiperf", "ab", word]})["withheld"] is withheld
    assert "withheld" not in migrated({"schema_version": 3, "case": {"sides": []}})


def test_what_version_1_did_not_know_is_said_to_be_unknown(record: CaseRecord) -> None:
    assert record.schema_version == SCHEMA_VERSION
    assert record.results[0].comparison.before.log_sd is None
    assert record.replicate == "launch pair"
    assert {side.folder for side in record.case.sides} == {""}


def test_a_run_of_version_1_reads_too(run: StoredRun) -> None:
    assert (run.record.schema_version, run.record.status, run.warnings) == (SCHEMA_VERSION, "finished", ())


def test_a_record_of_version_1_written_again_is_one_of_today(record: CaseRecord) -> None:
    assert decode_case(encode_case(record)) == record


def test_a_record_of_version_1_recomputed_from_its_samples_is_the_same(run: StoredRun, record: CaseRecord) -> None:
    fresh = recompute(record, read_pairs(run, record), width=record.width, scale=record.scale)
    assert to_plain(fresh) != to_plain(record.results), "the fixture no longer shows what it is for"
    assert same_results(record.results, fresh)


def test_any_other_difference_is_one(record: CaseRecord) -> None:
    first, *others = record.results
    comparison = first.comparison
    for changed in (
        replace(comparison, ratio=comparison.ratio * (1 + 1e-8)),
        replace(comparison, before=replace(comparison.before, value=comparison.before.value * (1 - 1e-8))),
        replace(comparison, pairs_needed=None if comparison.pairs_needed else 7),
        replace(comparison, second_low=0.5),
        replace(comparison, log_ratios=comparison.log_ratios[:-1]),
        replace(comparison, before=replace(comparison.before, value=1.0)),
    ):
        assert not same_results(record.results, (replace(first, comparison=changed), *others))
    assert not same_results(record.results, record.results[:-1])


def test_what_another_python_rounds_otherwise_is_no_difference(record: CaseRecord) -> None:
    first, *others = record.results
    near = replace(
        first.comparison,
        ratio=math.nextafter(first.comparison.ratio, 2),
        before=replace(first.comparison.before, value=first.comparison.before.value * (1 + 1e-15)),
    )
    assert same_results(record.results, (replace(first, comparison=near), *others))


def test_a_field_that_both_know_is_compared_and_not_a_number_equals_itself(record: CaseRecord) -> None:
    def with_spread(log_sd: float) -> Any:
        comparison = record.results[0].comparison
        before = replace(comparison.before, log_sd=log_sd)
        return (replace(record.results[0], comparison=replace(comparison, before=before, high=math.nan)),)

    assert same_results(with_spread(0.1), with_spread(0.1))
    assert not same_results(with_spread(0.1), with_spread(0.2))


def test_every_version_up_to_today_has_its_step() -> None:
    assert list(STEPS) == list(range(FIRST_VERSION, SCHEMA_VERSION))


def test_steps_are_taken_in_order_from_the_records_own_version() -> None:
    steps = {1: lambda p: {**p, "a": 1}, 2: lambda p: {**p, "b": p["a"] + 1}, 3: lambda p: {**p, "a": 0}}
    assert migrated({"schema_version": 1}, steps=steps, to=4) == {"schema_version": 4, "a": 0, "b": 2}
    assert migrated({"schema_version": 2, "a": 7}, steps=steps, to=3) == {"schema_version": 3, "a": 7, "b": 8}
    today = {"schema_version": 4, "x": 1}
    assert migrated(today, steps=steps, to=4) is today


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_damage(version: int) -> None:
    data = encode_case(replace(make_record(), schema_version=version))
    with pytest.raises(CorruptRecord, match="which never was"):
        decode_case(data)


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ("unfit: CPU quota: 0.5 of 4 CPUs allowed: it stops a side.", ("container-cpu-limit", "unfit", "CPU quota")),
        ("warn: Of a probe without an id: 1.", ("unknown", "warn", "")),
        ("no level at all", ("unknown", "warn", "")),
    ],
)
def test_a_finding_of_a_case_that_was_a_sentence_keeps_its_level_and_text(stored: str, found: tuple[str, ...]) -> None:
    (finding,) = migrated({"case": {}, "findings": [stored], "schema_version": 2})["findings"]
    assert (finding["id"], finding["level"], finding["title"]) == found
    assert finding["value"]
    assert stored.endswith(finding["value"])


@pytest.mark.parametrize(
    ("stored", "id_", "level"),
    [
        ("CPU 0-1 is 97% busy with other work.", "cpu-oversubscription", "unfit"),
        ("CPU 0-1 is 20% busy with other work.", "cpu-oversubscription", "warn"),
        ("Other processes use the GPUs: 70.", "gpu_processes", "unfit"),
        ("Something else.", "unknown", "warn"),
    ],
)
def test_a_finding_of_a_run_that_was_a_sentence_gets_what_is_known_of_it(stored: str, id_: str, level: str) -> None:
    (finding,) = migrated({"argv": [], "findings": [stored], "schema_version": 2})["findings"]
    assert finding == {"id": id_, "level": level, "title": "", "value": stored}
