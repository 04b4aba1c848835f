"""The book's rows as data: complete, labelled, and known to every scenario that cites one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from aiperf.errors import AiperfError, UserError
from aiperf.plan import book
from aiperf.plan.book import BookRow, Claim, Figure, chapters, find_row, load_book
from aiperf.scenario.find import Listing, list_scenarios

RESULTS = Path(__file__).resolve().parents[2] / "results"


@cache
def shipped() -> list[Listing]:
    return list_scenarios()


@pytest.fixture
def own_book(tmp_path, monkeypatch):
    """Write one chapter and read it in place of the project's."""

    def write(text, name="ch01"):
        folder = tmp_path / "book"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(text)
        monkeypatch.setattr(book, "config_folder", lambda: tmp_path)
        book._chapter.cache_clear()
        return load_book

    yield write
    book._chapter.cache_clear()


ROW = (
    "chapter: ch01\nrows:\n- {id: ch01/a-vs-b, weight: core, lane: cpu, section: s, before: a, after: b, "
    "mechanism: m, correctness: c%s}\n"
)


def test_every_row_of_the_book_is_there_once_under_its_chapter() -> None:
    rows = load_book()
    assert len(rows) == len({row.id for row in rows}) == 798
    assert chapters() == (*(f"ch{n:02d}" for n in range(1, 21)), "app")
    assert all(re.fullmatch(r"(ch\d\d|app)/[a-z0-9]+(-[a-z0-9]+)*", row.id) for row in rows)
    assert all(row.section and row.before and row.after and row.mechanism and row.correctness for row in rows)


def test_every_shipped_scenario_cites_rows_that_the_book_has() -> None:
    known = {row.id for row in load_book()}
    cited = [(entry.name, row) for entry in shipped() for row in entry.book]
    assert cited
    assert [(name, row) for name, row in cited if row not in known] == []


def test_the_citations_of_a_row_lack_the_same() -> None:
    lacks: dict[str, set[str]] = {}
    for cited in (c for entry in shipped() for c in entry.citations):
        lacks.setdefault(cited.row, set()).add(cited.lacks)
    assert any(said != {""} for said in lacks.values())
    assert {row: said for row, said in lacks.items() if len(said) > 1} == {}


def test_a_claim_that_is_called_impossible_comes_with_its_arithmetic() -> None:
    called = [row for row in load_book() if row.impossible]
    assert {"ch05/dataloader-untuned-vs-tuned", "ch07/scalar-vs-float4-copy"} <= {row.id for row in called}
    assert all(len(re.findall(r"\d", row.impossible)) >= 3 for row in called)
    assert all(row.claim or row.figures for row in called)


def test_what_is_impossible_of_a_row_that_can_be_measured_is_its_claim() -> None:
    cited = {row for entry in shipped() for row in entry.book}
    called = [row for row in load_book() if row.impossible and row.claim is None]
    assert [row.id for row in called if row.id in cited] == [], "a wrong figure beside it belongs in note"


def test_a_row_that_gains_no_time_says_what_it_gains_and_claims_no_speed_up() -> None:
    kept = {row.id: row.not_time for row in load_book() if row.not_time}
    assert {"ch13/ddp-vs-fsdp-full-shard", "ch05/loader-isolated-vs-in-training"} <= set(kept)
    assert all(text[0].islower() and not text.endswith(".") for text in kept.values())
    assert {row.id for row in load_book() if row.gains} == {
        name for name, text in kept.items() if "buys memory" in text
    }


def test_a_sweep_or_a_ladder_is_answered_by_the_sides_that_the_row_means() -> None:
    cited = {(entry.name, c.row): c for entry in shipped() for c in entry.citations}
    api = [cited["fixed-block-vs-occupancy-api", row].sides for name, row in cited if name.startswith("fixed-block-vs")]
    assert api == [("suggested",)] * 2
    assert cited["experts-serial-vs-streams", "ch13/moe-experts-serial-vs-streams"].sides == ("streams",)
    assert cited["dataloader-0-vs-n-workers", "ch13/dataloader-workers-sweep"].sides == ("2-workers", "4-workers")


def test_the_rows_that_must_have_a_scenario_are_core_or_useful_and_can_run() -> None:
    wanted = [row for row in load_book() if row.wanted]
    assert len(wanted) == 650
    assert {row.weight for row in wanted} == {"core", "useful"}
    assert {row.chapter for row in wanted} == set(chapters())
    assert not any(row.not_runnable for row in wanted)


def test_a_row_is_read_with_its_claim_as_a_number_or_a_range_and_its_figures(own_book) -> None:
    figures = ", figures: [{name: time, unit: ms, before: 3, after: 1-2, label: measured}]"
    own_book(ROW % (", speedup: {times: 2-3, label: published, hardware: a GPU}" + figures))
    (row,) = load_book(["ch01"])
    assert row.claim == Claim(2.0, 3.0, "published", "a GPU")
    assert row.figures == (Figure("time", "ms", "measured", "3", "1-2"),)
    assert find_row("ch01/a-vs-b") == row
    own_book(ROW % ", speedup: {times: 1.5, label: arithmetic}")
    assert load_book()[0].claim == Claim(1.5, 1.5, "arithmetic")


@pytest.mark.parametrize(
    "wrong",
    [
        ", speedup: {times: 2, label: guessed}",
        ", speedup: {times: 3-2, label: measured}",
        ", speedup: {times: 2, label: measured, on: a GPU}",
        ", colour: red",
        ", not_time: it buys memory, speedup: {times: 2, label: measured}",
        ", not_time: it buys accuracy, gains: accuracy",
        ", gains: memory",
    ],
)
def test_a_row_that_is_not_as_it_should_be_names_its_file(own_book, wrong) -> None:
    own_book(ROW % wrong)
    with pytest.raises(AiperfError, match=r"ch01\.yaml cannot be read"):
        load_book()


def test_a_row_of_another_chapter_does_not_pass(own_book) -> None:
    own_book(ROW.replace("id: ch01/", "id: ch02/") % "")
    with pytest.raises(AiperfError, match="of another chapter"):
        load_book()


@pytest.mark.parametrize("name", ["ch06", "ch6", "CH6", "6", "06"])
def test_a_chapter_is_named_as_the_catalogue_or_as_a_reader_does(name: str) -> None:
    assert {row.chapter for row in load_book([name])} == {"ch06"}


def test_a_chapter_or_row_that_is_not_there() -> None:
    for name in ("ch77", "²", "٦", "-1", "6" * 5000):
        with pytest.raises(UserError, match=f'"{name[:4]}.*" is not a chapter'):
            load_book([name])
    assert find_row("ch77/a") is None
    assert find_row("ch07/no-such-row") is None


def test_little_weight_and_a_reason_not_to_run_make_a_row_unwanted() -> None:
    def row(**changes) -> BookRow:
        given = {"id": "ch14/a", "weight": "core", "lane": "cpu", "family": "tensor.op", "not_runnable": ""} | changes
        texts = dict.fromkeys(("section", "before", "after", "mechanism", "correctness"), "x")
        return BookRow(**texts, **given)

    assert row().wanted
    for changes in ({"id": "app/a"}, {"id": "ch15/a"}, {"weight": "useful"}, {"lane": "gpu2"}):
        assert row(**changes).wanted
    for changes in ({"weight": "marginal"}, {"not_runnable": "no"}):
        assert not row(**changes).wanted
