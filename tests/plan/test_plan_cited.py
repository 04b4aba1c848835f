"""Which scenarios cite which rows, and why a host cannot run one."""

from __future__ import annotations

from pathlib import Path

from plan_hosts import make_host

from aiperf.plan.cited import Cited, cited_rows, citing
from aiperf.scenario.citations import Citation
from aiperf.scenario.find import Listing

TINY = "title: t\nwhy: w\nworkload: ./bench.py:copy\nbefore: {}\nafter: {fast: true}\n"


def shelf(folder: Path) -> Path:
    (folder / "bench.py").write_text("def copy(ctx, *, fast: bool = False): ...\n")
    (folder / "free.yaml").write_text(TINY + "book: [ch01/a-vs-b, ch02/c-vs-d]\n")
    (folder / "card.yaml").write_text(TINY + "book: [ch01/a-vs-b]\nneeds: {gpus: 1}\n")
    (folder / "silent.yaml").write_text(TINY)
    (folder / "steps.yaml").write_text(
        TINY.replace("after: {fast: true}", "ladder: {one: {fast: true}, two: {}}")
        + "book: [{row: ch03/e-vs-f, side: one}, ch03/g-vs-h, {row: ch03/i-vs-j, side: two, against: one}]\n"
    )
    (folder / "wrong.yaml").write_text("titel: t\nbook: [ch02/c-vs-d]\n")
    return folder


def found(folder: Path, *wanted: str, gpus: int = 0) -> dict[str, Cited]:
    told = cited_rows(make_host(gpus), results=folder, wanted=wanted, folders=[shelf(folder)])
    return {cited.scenario: cited for cited in told}


def test_a_scenario_that_cites_nothing_is_left_out_and_the_others_say_what_is_missing(tmp_path) -> None:
    here = found(tmp_path, "ch01", "ch02")
    assert set(here) == {"free", "card", "wrong", "steps"}
    assert here["free"].rows == ("ch01/a-vs-b", "ch02/c-vs-d")
    assert here["free"].problem == ""
    assert here["free"].hashes
    assert here["card"].problem == "card needs 1 GPU, but this host has 0 (no NVML library)"
    assert here["wrong"].problem.startswith("wrong has faults: ")
    assert found(tmp_path, "ch01", gpus=1)["card"].problem == ""


def test_only_what_cites_a_wanted_row_is_loaded(tmp_path) -> None:
    here = found(tmp_path, "ch02/c-vs-d")
    row = "ch01/a-vs-b"
    assert here["card"] == Cited("card", (row,), named={row: Citation(row)}, why="w")
    assert len(set(here["free"].hashes)) == 8  # with prose and without, each by what it could expect
    assert all(not cited.hashes and not cited.problem for cited in found(tmp_path).values())


def test_the_sides_that_a_citation_names_come_with_its_row_whether_or_not_the_scenario_is_loaded(tmp_path) -> None:
    for wanted in ("ch01", "ch03"):
        steps = found(tmp_path, wanted)["steps"]
        assert steps.rows == ("ch03/e-vs-f", "ch03/g-vs-h", "ch03/i-vs-j")
        assert steps.named == {
            "ch03/e-vs-f": Citation("ch03/e-vs-f", ("one",)),
            "ch03/g-vs-h": Citation("ch03/g-vs-h"),
            "ch03/i-vs-j": Citation("ch03/i-vs-j", ("two",), "one"),
        }


def test_a_chapter_stands_for_all_its_rows() -> None:
    entries = [Listing(name, Path(name), book=rows) for name, rows in (("a", ("ch01/x",)), ("b", ("ch02/y", "app/z")))]
    assert [e.name for e in citing(entries, ["ch01"])] == ["a"]
    assert [e.name for e in citing(entries, ["app/z", "ch01/x"])] == ["a", "b"]
    assert citing(entries, ["ch0"]) == ()
