"""What came of a run is read from codes; tables count it; rows are kept, taken up and written into a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from aiperf.records import (
    Case,
    CaseRecord,
    CheckResult,
    Comparison,
    Failure,
    Incident,
    Note,
    Pair,
    Result,
    Side,
    Summary,
    Verdict,
)
from aiperf.records.noted import NoteCode
from tests.cheaters.__main__ import FIGURES, PAGE, chosen
from tests.cheaters.figures import (
    BEGIN,
    BEGIN_SHORT,
    END,
    END_SHORT,
    details,
    false_alarm,
    shares,
    short,
    table,
    write_page,
)
from tests.cheaters.judge import PLAIN_NOTES, TRUST_NOTES, Judged, judge
from tests.cheaters.runner import keep, load
from tests.cheaters.table import BY_NAME, SHELF

CHEAT, TWIN = BY_NAME["watched-checksum"], BY_NAME["honest-keeps"]
FIRST = BY_NAME["watched-first-cheats"]


def record(word: str, *, checks=(), incidents=(), notes=(), failure=None, metric: str = "time") -> CaseRecord:
    sides = tuple(Summary(side, 1.0, 1.0, 1.0, 8, 0, 0.0) for side in ("before", "after"))
    comparison = Comparison(
        metric, "s", "lower", *sides, pairs=4, ratio=2.0, low=1.9, high=2.1, alpha=0.03, sd=0.01, position=0.0,
        position_low=-0.1, position_high=0.1, mde=0.05, pairs_needed=None, second_ratio=2.0, second_low=None,
        second_high=None, log_ratios=(),
    )  # fmt: skip
    result = Result("after", "before", comparison, Verdict(word, "beyond_threshold", "any sentence"))
    pair = Pair(0, ("before", "after"), 1, (), (), checks=checks, incidents=incidents)
    case = Case("x", "x", "x", "x", (Side("before"), Side("after")))
    status = "failed" if failure else "measured"
    return CaseRecord(case, status, (result,), (pair,), notes=notes, failure=failure)


def outcome(found: CaseRecord | None, entry=CHEAT) -> str:
    return judge(entry, 1, found).outcome


def test_an_invalid_verdict_is_caught_and_its_failed_checks_are_the_signs() -> None:
    found = judge(CHEAT, 1, record("invalid", checks=(CheckResult(False, "x", sides=("after",)),)))
    assert (found.outcome, found.signs, found.word) == ("caught", ("outputs:after",), "invalid")


@pytest.mark.parametrize(
    ("incident", "expected"), [("idle_side_busy", "told"), ("thermal", "missed"), ("never_heard_of", "told")]
)
def test_an_incident_counts_when_it_is_about_a_side_and_not_the_host(incident: str, expected: str) -> None:
    assert outcome(record("improved", incidents=(Incident(incident, "after", "any"),))) == expected


def test_a_side_for_whose_doings_no_pair_counts_is_caught_and_one_that_the_host_disturbed_is_not() -> None:
    def without_verdict(*kinds: str, voids: bool = True) -> CaseRecord:
        found = record("improved")
        pairs = (replace(found.pairs[0], incidents=(Incident(kind, "after", "any", voids),)) for kind in kinds)
        return replace(found, results=(), pairs=tuple(pairs))

    assert outcome(without_verdict("impossible_time", "impossible_time")) == "caught"
    assert outcome(without_verdict("impossible_time", "thermal")) == "told"
    assert outcome(without_verdict("impossible_time", voids=False)) == "told"
    assert outcome(without_verdict("thermal", "thermal")) == "harmless"


def test_a_note_about_the_measurement_is_not_a_sign_and_one_about_trust_is() -> None:
    assert outcome(record("improved", notes=(Note("verdict_reached"), Note("text")))) == "missed"
    assert outcome(record("improved", notes=(Note("audit_time", {"side": "after"}),))) == "told"


def test_every_code_of_a_note_is_known_as_about_trust_or_not() -> None:
    assert set(get_args(NoteCode)) - TRUST_NOTES - PLAIN_NOTES == set()
    assert set() == TRUST_NOTES & PLAIN_NOTES


def test_what_is_said_of_the_honest_side_is_no_sign_unless_that_is_the_one_that_is_harmed() -> None:
    of_before = record("improved", notes=(Note("audit_time", {"side": "before"}),))
    assert outcome(of_before) == "missed"
    assert outcome(of_before, BY_NAME["harm-child"]) == "told"
    assert outcome(record("improved", notes=(Note("inputs_fixed", {"sides": ["before"]}),))) == "missed"
    assert outcome(record("improved", notes=(Note("inputs_fixed", {"sides": ["before", "after"]}),))) == "told"
    assert outcome(record("improved", incidents=(Incident("affinity", "before", "any"),))) == "missed"


def test_a_cheat_that_wins_nothing_is_harmless_on_whichever_side_it_is() -> None:
    assert outcome(record("equivalent")) == "harmless"
    assert outcome(record("inconclusive")) == "undecided"
    assert outcome(record("regressed")) == "harmless"
    assert outcome(record("regressed"), FIRST) == "missed"
    assert outcome(record("improved"), FIRST) == "harmless"


@pytest.mark.parametrize(("low", "high", "after"), [(0.8, 1.3, "undecided"), (0.8, 1.04, "harmless")])
def test_an_interval_without_an_improvement_is_no_win_however_inconclusive(low: float, high: float, after: str) -> None:
    wide = record("inconclusive")
    (result,) = wide.results
    comparison = replace(result.comparison, low=low, high=high)
    verdict = Verdict("inconclusive", "interval_straddles", "any", threshold=0.05)
    wide = replace(wide, results=(replace(result, comparison=comparison, verdict=verdict),))
    assert outcome(wide) == after
    assert outcome(wide, FIRST) == "undecided"
    unsteady = replace(verdict, reason="unsteady")
    assert outcome(replace(wide, results=(replace(result, comparison=comparison, verdict=unsteady),))) == "undecided"


def test_the_verdict_is_that_of_the_metric_that_the_cheat_is_about() -> None:
    memory = BY_NAME["metrics-clear-refs"]
    assert outcome(record("improved"), memory) == "harmless"
    assert outcome(record("improved", metric="peak_memory"), memory) == "missed"


@pytest.mark.parametrize(("kind", "expected"), [("protocol", "caught"), ("error", "missed"), ("hang", "missed")])
def test_a_failed_case_is_caught_only_for_a_reason_that_no_honest_program_has(kind, expected: str) -> None:
    assert outcome(record("none", failure=Failure("after", "measure", kind, "any"))) == expected


def test_no_record_is_a_miss_and_a_false_alarm_of_a_twin() -> None:
    assert outcome(None) == "missed"
    assert false_alarm(judge(TWIN, 1, None))
    assert not false_alarm(judge(TWIN, 1, record("regressed")))
    assert false_alarm(judge(TWIN, 1, record("invalid")))


ROWS = [
    Judged("watched-checksum", 1, "caught", ("outputs:after",), "invalid", 30.0),
    Judged("watched-checksum", 2, "told", ("note:x",), "improved", 31.0, strict="caught"),
    Judged("watched-checksum", 3, "undecided", (), "inconclusive", 31.0),
    Judged("watched-poison", 1, "missed", (), "improved", 99.0),
    Judged("honest-keeps", 1, "harmless", (), "equivalent", 1.0, strict="caught"),
    Judged("honest-keeps", 2, "caught", (), "invalid", 1.0),
    Judged("gpu-version", 1, "skipped", (), "skipped"),
    Judged("no-longer-there", 1, "missed", (), "improved"),
]


def test_the_table_counts_runs_by_class_and_by_intent() -> None:
    lines = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:-1]] for line in table(ROWS).split("\n")}
    assert lines["work only when watched"] == ["2", "4", "1", "1", "1", "1", "0", "2", "2", "1", "0", "1"]
    assert lines["all by accident"][:6] == ["1", "3", "1", "1", "0", "1"]
    assert lines["all on purpose"][:6] == ["1", "1", "0", "0", "1", "0"]
    assert lines["programs"] == ["0"] * 12
    (of_checksum,) = [line for line in details(ROWS).split("\n") if line.startswith("watched-checksum")]
    assert "30x to 31x" in of_checksum
    assert "note:x outputs:after" in of_checksum


def test_what_was_caught_is_a_share_of_all_and_of_those_that_won() -> None:
    purpose = [e.name for e in SHELF if e.intent == "purpose" and not e.honest][:4]
    words: tuple[Any, ...] = ("caught", "missed", "undecided", "told")
    rows = [Judged(name, 1, word, word="inconclusive") for name, word in zip(purpose, words, strict=True)]
    assert shares(rows) == "by purpose: caught 1 of 4 (25 %); of those that were caught or won 1 of 2 (50 %)"
    rows[3] = replace(rows[3], word="improved" if BY_NAME[purpose[3]].cheater == "after" else "regressed")
    assert shares(rows).endswith("of those that were caught or won 1 of 3 (33 %)")


def test_rows_are_kept_once_for_each_run_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "new" / "rows.json"
    assert load(file) == []
    keep(file, [*ROWS, replace(ROWS[0], outcome="missed")])
    again = load(file)
    assert len(again) == len(ROWS)
    assert next(row for row in again if row.key == ROWS[0].key).outcome == "missed"


def test_the_figures_are_written_between_the_marks_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"head\n{BEGIN_SHORT}\n{END_SHORT}\n{BEGIN}\nold\n{END}\ntail\n", encoding="utf-8")
    write_page(page, ROWS)
    write_page(page, ROWS)
    listed = f"{BEGIN_SHORT}\n{short(ROWS)}\n{END_SHORT}"
    assert page.read_text(encoding="utf-8") == f"head\n{listed}\n{BEGIN}\n{table(ROWS)}\n{END}\ntail\n"
    for missing in (BEGIN_SHORT, END):
        page.write_text(f"{BEGIN_SHORT}{END_SHORT}{BEGIN}{END}".replace(missing, ""), encoding="utf-8")
        with pytest.raises(ValueError, match="no place for the figures"):
            write_page(page, ROWS)


def test_what_the_page_says_of_the_shelf_is_what_the_kept_rows_say(tmp_path: Path) -> None:
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_page(page, load(FIGURES))
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_the_list_counts_runs_by_intent_and_twins_that_are_accused() -> None:
    cheats = [e.name for e in SHELF if e.intent == "purpose" and not e.honest][:4]
    twins = [e.name for e in SHELF if e.honest][:2]
    words: tuple[Any, ...] = ("caught", "missed", "undecided", "told")
    rows = [Judged(name, 1, word, word="inconclusive") for name, word in zip(cheats, words, strict=True)]
    rows[3] = replace(rows[3], strict="caught")
    rows += [Judged(twins[0], 1, "caught", word="invalid"), Judged(twins[1], 1, "harmless", word="equivalent")]
    assert short(rows).splitlines() == [
        "- Runs of deliberate cheats: 4. Caught: 1 (25 %); told: 1; missed: 1; undecided: 1; harmless: 0. "
        "`--strict` catches 2 (50 %).",
        "- Runs of honest twins: 2. False alarms: 1.",
    ]


def test_entries_are_chosen_by_name_class_or_pattern_together_with_their_twins() -> None:
    assert [e.name for e in chosen(["watched-checksum"], gpus=0)] == ["watched-checksum", "honest-keeps"]
    assert [e.name for e in chosen(["watched-check*"], gpus=0, twins=False)] == ["watched-checksum"]
    assert {e.group for e in chosen(["judged"], gpus=0)} == {"judged"}
    assert {e.gpus for e in chosen([], gpus=1)} == {1}
    parts = [chosen([], gpus=0, shard=f"{i}/3") for i in (1, 2, 3)]
    assert sorted(e.name for part in parts for e in part) == sorted(e.name for e in chosen([], gpus=0))
