"""The book beside the machine: to the character in text, complete in the other dialects, and beside every case."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from factory_of_pages import concluded, nothing, sampled
from factory_of_records import make_case, make_comparison, make_result, make_run, measured
from printed import document_of, lines_of, markdown_of, text_of

from aiperf.analysis.book import ANSWERS, LADDERS, Measured, answer_rows
from aiperf.analysis.over_hosts import CaseOverHosts
from aiperf.plan.book import BookRow, Claim
from aiperf.plan.cited import Cited
from aiperf.plan.suites import Suite
from aiperf.records import Measure, RunRecord, Side
from aiperf.report.book_words import best_text, claim_text, measured_text, row_sentence
from aiperf.report.explain import explain_case
from aiperf.report.html.book_page import render_book
from aiperf.report.html.page import render_html
from aiperf.report.summary import discovery_line
from aiperf.report.views.book_table import book_view, missing_page, reason_text
from aiperf.report.views.listings import suite_rows, suites_view
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.run_table import run_json, run_page
from aiperf.scenario.citations import Citation


def row(name: str, **changes) -> BookRow:
    texts = {"section": "s", "before": "slow", "after": "fast", "mechanism": "m", "correctness": "c"}
    return BookRow(**{**texts, "id": name, "weight": "core", "lane": "cpu", **changes})


ROWS = (
    row("ch07/tiled", claim=Claim(2.0, 3.0, "published", "a GPU")),
    row("ch07/vector", claim=Claim(3.5, 3.5, "illustrative"), impossible="128 B are 4 sectors, not 31.8."),
    row("app/free", not_runnable="needs <root>", nearest="tiled-scenario"),
    row("app/later", family="tensor.op"),
)
FOUND = Measured(
    scenario="tiled", case="tiled[n=2]", metric="time", unit="s", side="after", against="before", verdict="improved",
    ratio=2.5, low=2.4, high=2.6, host="H200", here=False, run="r",
)  # fmt: skip


def tiled(*rows: str, sides: tuple[str, ...] = (), against: str = "", **stated: str) -> Cited:
    """The scenario whose case n=2 answers these rows."""
    named = {name: Citation(name, sides, against, ("n=2",), **stated) for name in rows}
    return Cited("tiled", rows, named=named)


ANSWERED = answer_rows(ROWS, [tiled("ch07/tiled", "ch07/vector")], [FOUND])

TEXT = """\
Chapter 7
 ch07/vector  impossible as printed
     slow, against fast
     claimed 3.5× (illustrative); measured 2.50× (2.40 … 2.60) improved on H200 in tiled[n=2]
     scenario tiled
     By the book's own numbers: 128 B are 4 sectors, not 31.8.
"""


def test_a_chapter_is_told_to_the_character() -> None:
    assert text_of(book_view([ANSWERED[1]]), width=100).startswith(TEXT)


def test_a_reason_without_a_full_stop_gets_one_before_what_differs() -> None:
    found = replace(ANSWERED[1], why="weaker in n=4", differs=("a smaller model",))
    assert reason_text(found) == "weaker in n=4. Differs: a smaller model."
    assert reason_text(replace(found, why="")) == "Differs: a smaller model."
    assert reason_text(replace(found, differs=())) == "weaker in n=4"


def test_every_row_stands_under_its_chapter_and_is_counted_at_the_end() -> None:
    text = text_of(book_view(ANSWERED), width=110)
    assert text.index("Chapter 7") < text.index("ch07/tiled") < text.index("Appendix") < text.index("app/free")
    assert "nearest: tiled-scenario" in text
    lines = [line.split() for line in text[text.index("rows of") :].splitlines()[1:4]]
    assert lines == [["1", "1", "Chapter", "7"], ["1", "1", "Appendix"], ["1", "1", "1", "1", "all"]]
    assert all(len(line.text) <= 72 for line in lines_of(book_view(ANSWERED), width=72))
    assert "4 rows: 1 reproduced, 1 impossible as printed" in text_of(book_view(ANSWERED), width=72)


def test_a_claim_shows_its_ends_label_and_hardware() -> None:
    assert claim_text(ROWS[0].claim) == "2× to 3× (published, a GPU)"
    assert claim_text(ROWS[1].claim) == "3.5× (illustrative)"
    assert claim_text(None) == "a gain without a number"


def test_a_quick_look_says_that_its_verdict_is_provisional() -> None:
    quick = replace(FOUND, provisional=True, here=True)
    assert measured_text(quick) == "2.50× (2.40 … 2.60) improved (provisional)"
    assert measured_text(None) == ""


def test_what_hosts_of_a_kind_predict_stands_behind_the_measurement() -> None:
    over = CaseOverHosts("tiled[n=2]", "after", "before", (), 2.5, 0.01, 2.2, 2.8)
    assert measured_text(replace(FOUND, another=over)) == (
        "2.50× (2.40 … 2.60) improved on H200; expected on another host of this kind 2.20 … 2.80× (95 %, from 0 hosts)"
    )
    answered = answer_rows(ROWS, [tiled("ch07/tiled")], [replace(FOUND, another=over)])
    (line, *_) = json.loads(document_of(book_view(answered).json()))
    assert (line["another_low"], line["another_high"], line["hosts"]) == (2.2, 2.8, 0)


def test_what_is_missing_is_a_table_or_one_sentence() -> None:
    assert "app/later  cpu   tensor.op" in text_of(missing_page([ANSWERED[3]]))
    assert "1 core or useful row without a scenario." in text_of(missing_page([ANSWERED[3]]))
    assert text_of(missing_page([])) == ("Every core or useful row that can run has a scenario.\n")


def test_what_is_missing_of_a_chapter_names_the_chapter() -> None:
    text = text_of(missing_page([], chapters=["ch04"]))
    assert text == "Every core or useful row of ch04 that can run has a scenario.\n"


def test_rows_whose_scenario_nobody_measured_are_named_whatever_is_missing() -> None:
    one, two = (answer_rows([row(f"ch04/{n}")], [Cited("s", (f"ch04/{n}",))], [])[0] for n in "ab")
    text = " ".join(text_of(missing_page([], unmeasured=[one, two])).split())
    assert text.endswith(
        "has a scenario. 2 have a scenario that has not been measured yet, here or in results/reference: ch04/a, "
        "ch04/b."
    )
    assert "1 has a scenario that has not been measured yet" in text_of(missing_page([ANSWERED[3]], unmeasured=[one]))


def test_a_row_that_gains_no_time_claims_no_speed_up_and_says_what_it_gains() -> None:
    memory = row("ch13/sharded", not_time="it buys memory")
    slower = replace(FOUND, verdict="regressed", ratio=0.5, low=0.48, high=0.52, here=True)
    (answered,) = answer_rows([memory], [tiled(memory.id)], [slower])
    text = text_of(book_view([answered]), width=100)
    assert " ch13/sharded  no claim of speed\n" in text
    assert "claimed no speed-up; measured 0.500× (0.480 … 0.520) regressed in tiled[n=2]" in text
    assert "Costs time by design: it buys memory." in text
    assert row_sentence("ch13/ddp-vs-fsdp-full-shard") == (
        "ch13/ddp-vs-fsdp-full-shard claims less memory, no speed-up. "
        "Judged by memory: it buys memory of every rank with more communication."
    )


@pytest.mark.parametrize("about", ["time", "peak_memory"])
def test_a_record_tells_a_row_of_memory_its_memory_and_a_row_of_speed_its_time(about) -> None:
    memory = make_result(
        make_comparison(4e9, 2e9, interval=(1.9, 2.1), metric="peak_memory", unit="B"), primary=about == "peak_memory"
    )
    time = make_result(make_comparison(1e-3, 2e-3, interval=(0.49, 0.51)), "regressed", primary=about == "time")
    record = measured(make_case(measure=Measure(metric=about)), memory, time)
    assert "measured peak host memory −50.0 % (−52.4 … −47.4 %) improved" in row_sentence(
        "ch13/ddp-vs-fsdp-full-shard", record
    )
    assert "measured 0.500× (0.490 … 0.510) regressed" in row_sentence("ch03/pageable-vs-pinned-h2d", record)


def test_a_row_that_gains_memory_tells_it_as_a_change() -> None:
    less = replace(FOUND, metric="gpu_memory", unit="B", verdict="improved", ratio=1.25, low=1.2, high=1.3, here=True)
    memory = row("ch13/sharded", not_time="it buys memory", gains="memory")
    (answered,) = answer_rows([memory], [tiled(memory.id)], [less])
    text = text_of(book_view([answered]), width=100)
    assert " ch13/sharded  reproduced\n" in text
    assert "measured peak GPU memory −20.0 % (−23.1 … −16.7 %) improved" in " ".join(text.split())
    assert "Judged by memory: it buys memory." in text
    (told,) = json.loads(document_of(book_view([answered]).json()))
    assert (told["metric"], told["measured"], told["low"]) == ("gpu_memory", 1.25, 1.2)


def test_a_comparison_of_a_ladder_names_its_sides() -> None:
    found = replace(FOUND, side="three", against="two", first=False, here=True)
    cited = tiled("ch07/tiled", sides=("three",), against="two")
    (answered,) = answer_rows(ROWS[:1], [cited], [found])
    assert best_text(answered) == "2.50× (2.40 … 2.60) improved in tiled[n=2] three against two"


def test_the_rules_name_every_answer() -> None:
    text = text_of(book_view([]))
    assert all(answer in text for answer in ANSWERS)
    assert "the last one if it names none" in " ".join(text.split())


def test_of_a_single_row_only_its_answer_is_explained() -> None:
    text = text_of(book_view(ANSWERED[:1]))
    assert [answer for answer in ANSWERS if f" {answer} " in text] == ["reproduced"]
    assert "rows of" not in text


def test_programs_get_every_row_with_numbers_in_full() -> None:
    (first, *_, last) = csv.DictReader(io.StringIO(document_of(book_view(ANSWERED).csv())))
    assert (first["row"], first["claim_high"], first["low"], first["answer"]) == (
        "ch07/tiled",
        "3.0",
        "2.4",
        "reproduced",
    )
    assert (last["claim_low"], last["measured"], last["answer"]) == ("", "", "no scenario yet")
    told = json.loads(document_of(book_view(ANSWERED).json()))
    assert [r["answer"] for r in told] == [a.answer for a in ANSWERED]
    assert told[0]["book"]["mechanism"] == "m"


def test_markdown_has_a_table_a_chapter_and_escapes() -> None:
    text = markdown_of(book_view(ANSWERED))
    assert "### Chapter 7" in text
    assert "### Appendix" in text
    assert "| ch07/tiled | tiled | 2× to 3× (published, a GPU) | 2.50× (2.40 … 2.60) improved on H200" in text
    assert "needs \\<root>" in text


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name == "href" and (value or "").startswith("#"):
                self.links.append((value or "")[1:])
            elif name in ("src", "href") and not (value or "").startswith("data:"):
                self.outside.append(value or "")


def test_the_page_needs_nothing_else_and_its_links_lead_somewhere() -> None:
    page = render_book(ANSWERED, host="H200 <one>")
    cells = Cells()
    cells.feed(page)
    assert cells.outside == []
    assert cells.links == ["ch07", "app"]
    assert set(cells.links) <= cells.ids
    assert "needs &lt;root&gt;" in page
    assert "H200 &lt;one&gt;" in page
    assert page.count("<tr>") == len(ROWS) + 2


def test_the_page_says_what_each_answer_means_and_how_a_ladder_answers() -> None:
    page = unescape(render_book(ANSWERED, host="h"))
    rules = page[page.index("<details>") : page.index("</details>")]
    assert all(f"<dt>{answer}<dd>{meaning}\n" in rules for answer, meaning in ANSWERS.items())
    assert f"<p>{LADDERS}</p>" in rules


def test_the_page_names_the_side_of_a_ladder_that_answers() -> None:
    found = replace(FOUND, side="three", against="two", first=False, here=True)
    cited = tiled("ch07/tiled", sides=("three",), against="two")
    page = render_book(answer_rows(ROWS[:1], [cited], [found]), host="h")
    assert "improved in tiled[n=2] three against two<td" in page


def test_the_claim_stands_beside_what_was_measured_in_a_case() -> None:
    case = make_case("copy", book=("ch03/pageable-vs-pinned-h2d", "ch07/scalar-vs-float4-copy"))
    pairs = sampled(case, times={"before": 3e-3, "after": 1e-3})
    record = concluded(case, pairs)
    said = row_sentence("ch03/pageable-vs-pinned-h2d", record)
    assert said.startswith("ch03/pageable-vs-pinned-h2d claims 2× to 3× (illustrative, PCIe host); measured 3.0")
    assert said.endswith("improved.")
    page = render_html(make_run(), [record], pairs=lambda _: tuple(pairs))
    assert "claims 2× to 3× (illustrative, PCIe host); measured 3.0" in page
    assert "Impossible as printed, by the book's own numbers: The printed scalar kernel is coalesced" in unescape(page)
    text = " ".join(explain_case(make_run(), record).split())
    assert "claims 3.5× (illustrative); measured 3.0" in text
    assert row_sentence("ch03/pageable-vs-pinned-h2d") == (
        "ch03/pageable-vs-pinned-h2d claims 2× to 3× (illustrative, PCIe host)."
    )


def test_suites_are_listed_with_what_is_known_of_their_duration() -> None:
    rows = suite_rows([(Suite("cpu", "All of them", duration="25min on h"), "abc"), (Suite("mine", "Few"), "d")])
    text = text_of(suites_view(rows))
    assert " cpu            3  All of them. Duration: 25min on h.\n" in text
    assert " mine           1  Few. Duration: not measured yet.\n" in text


def test_a_suite_that_was_never_measured_as_a_whole_tells_what_its_scenarios_took() -> None:
    suites = [(Suite("all", "All of them", duration="25min on h"), "abc"), (Suite("mine", "Few"), "abc")]
    suites.append((Suite("ci", "Quick", precision="quick"), "abc"))
    suites.append((Suite("short", "One each", cases="first"), "abc"))
    whole, mine, quick, short = suite_rows(suites, seconds={"a": [50.0, 20.0], "c": [20.0], "z": [1000.0]})
    assert (whole.recorded, mine.recorded, mine.recorded_s, quick.recorded) == (0, 2, 90.0, 0)
    assert (short.recorded, short.recorded_s) == (2, 55.0)
    assert "took 55 s in total, counting a scenario's cases as one" in " ".join(text_of(suites_view([short])).split())
    text = " ".join(text_of(suites_view([whole, mine])).split())
    assert "not measured yet; the newest records of 2 of its 3 scenarios took 1 m 30 s in total." in text


def test_a_run_of_many_cases_tells_how_many_verdicts_hold_for_all_of_them() -> None:
    sure = make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)))
    worse = make_result(make_comparison(1.0, 2.0, interval=(0.49, 0.51)), word="regressed")
    records = [measured(make_case(f"s{n}"), sure) for n in range(5)] + [measured(make_case("w"), worse)]
    line = discovery_line(make_run(), records)
    assert line == (
        "5 of 5 improved and 1 of 1 regressed hold at a false discovery rate of 5 % over 6 results (Benjamini-Hochberg)"
    )
    barely = make_result(make_comparison(1.05, 1.0, interval=(1.0201, 1.3)))
    ladder = replace(make_case("steps"), sides=(*make_case("steps").sides, Side("last")))
    doubtful = [*records, measured(make_case("doubtful[n=1]"), barely), measured(ladder, barely)]
    assert discovery_line(make_run(), doubtful).endswith(
        "over 8 results (Benjamini-Hochberg); not: doubtful[n=1], steps after vs before"
    )
    assert discovery_line(make_run(), records[:4]) == ""
    assert discovery_line(RunRecord.unknown("r"), records) == ""
    table = build_rows(records)
    page = run_page(make_run(), table, summary="x", discoveries=[line])
    assert f"\n\n{line}  \n" in markdown_of(page).replace("\\", "")
    assert '"improved_kept": 5' in run_json(make_run(), table, records=records)
    assert line in render_html(make_run(), records, pairs=nothing)


def test_the_summary_has_the_counts_and_no_row_and_programs_still_get_every_row() -> None:
    short = book_view(ANSWERED, summary=True)
    text = text_of(short, width=110)
    assert "aiperf book --chapter N" in text
    assert ANSWERED[0].row.id not in text
    assert ANSWERED[0].row.id in markdown_of(book_view(ANSWERED))
    assert short.markdown is not None
    assert ANSWERED[0].row.id in document_of(short.markdown())
    assert len(json.loads(document_of(short.json()))) == len(ANSWERED)


def test_what_a_citation_lacks_and_how_it_differs_stands_beside_the_answer_everywhere() -> None:
    cited = tiled("ch07/tiled", differs="synthetic data", lacks="no decode, no resize")
    (answered,) = answer_rows(ROWS[:1], [cited], [FOUND])
    view = book_view([answered])
    said = "Lacks: no decode, no resize. Differs: synthetic data."
    for text in (text_of(view), markdown_of(view), render_book([answered], host="h")):
        assert said in text
        assert "partly" in text
    (told,) = json.loads(document_of(view.json()))
    assert (told["lacks"], told["differs"]) == (["no decode, no resize"], ["synthetic data"])
    (line,) = csv.DictReader(io.StringIO(document_of(view.csv())))
    assert (line["lacks"], line["differs"], line["answer"]) == ("no decode, no resize", "synthetic data", "partly")


def test_of_a_claim_that_is_not_met_every_format_says_what_the_scenario_says_of_its_sides() -> None:
    why = "DRAM limits both sides."
    for ratio, verdict, met in ((2.5, "improved", True), (1.2, "improved", False), (1.0, "equivalent", False)):
        measured = replace(FOUND, ratio=ratio, low=ratio - 0.01, high=ratio + 0.01, verdict=verdict)
        cited, other = replace(tiled("ch07/tiled"), why=why), replace(tiled("ch07/tiled"), scenario="a", why="no")
        view = book_view(answered := answer_rows(ROWS[:1], [other, cited], [measured]))
        for text in (text_of(view), markdown_of(view), render_book(answered, host="h")):
            assert (f"The scenario says: {why}" in " ".join(text.split()), "The scenario says: no" in text) == (
                not met,
                False,
            )
        (told,) = json.loads(document_of(view.json()))
        assert told["mechanism"] == ("" if met else why)


def test_cases_of_a_row_reproduced_in_part_are_said_to_reproduce_it_and_all_others_to_agree() -> None:
    second = replace(FOUND, case="tiled[n=4]")
    for lacks, said in (("no decode", "2 of 2 cases reproduce it"), ("", "2 of 2 cases say so")):
        cited = Cited(
            "tiled", ("ch07/tiled",), named={"ch07/tiled": Citation("ch07/tiled", cases=("n=2", "n=4"), lacks=lacks)}
        )
        (answered,) = answer_rows(ROWS[:1], [cited], [FOUND, second])
        assert best_text(answered).endswith(f"in tiled[n=2]; {said}")
