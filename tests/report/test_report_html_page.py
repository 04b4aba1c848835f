"""The page of a run: whole, honest about what it leaves out, and deaf to what its texts try."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from factory_of_pages import concluded, evil, ladder, many, nothing, reader, sampled
from factory_of_records import make_case, make_comparison, make_result, make_run, measured, sample_records

from aiperf.errors import usage
from aiperf.records import CaseRecord, Pair
from aiperf.report.html import page as page_module
from aiperf.report.html.page import MOST_BYTES, render_html
from aiperf.report.html.view import facts

STYLE = Path(page_module.__file__).with_name("style.css").read_text()
OUTCOMES = {"improved", "equivalent", "inconclusive", "skipped", "failed"}


class Read(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, its text, the rows of its table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag in ("tr", "table", "section"):
            self.rows.append([])
        elif tag == "td" and self.rows:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.words.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def cases(self) -> list[list[str]]:
        return [row for row in self.rows if len(row) == 11]


def read(run=None, records=None, **changes) -> Read:
    records = sample_records() if records is None else records
    return Read(render_html(run or make_run(), records, **({"pairs": nothing} | changes)))


def test_every_outcome_stands_in_the_table_with_its_word_and_its_reason() -> None:
    rows = {row[0] + " " + row[1]: row for row in read().cases}
    assert len(rows) == 6
    won = rows["pageable-vs-pinned-copy h2d 1MiB"]
    assert won[2:6] == ["88.1 µs", "31.4 µs", "2.81×", "2.77 … 2.84"]
    assert won[7:] == ["61 %", "6", "improved", "beyond threshold"]
    skipped = rows["host-bounce-vs-gpudirect-storage only case"]
    assert skipped[9] == "skipped"
    assert "nvidia-fs not loaded); aiperf show" in skipped[10]
    failed = rows["time-slicing-vs-mps only case"]
    assert failed[9:] == [
        "failed",
        "before, set-up: CUDA out of memory (asked 4.0 GiB, 1.2 GiB free) and more; "
        "aiperf show RUN CASE has its stderr",
    ]


def test_counts_stand_beside_every_outcome_and_a_verdict_that_none_has_is_told_as_0() -> None:
    html = render_html(make_run(), sample_records(), pairs=nothing)
    counts = dict(re.findall(r'data-word="([a-z-]+)"><b>(\d+)</b>', html))
    assert counts == {
        "improved": "2", "regressed": "0", "equivalent": "1", "inconclusive": "1", "invalid": "0",
        "failed": "1", "skipped": "1",
    }  # fmt: skip


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_case_that_was_cut_short_after_it_had_results_counts_once_and_has_no_verdict(status) -> None:
    failure = sample_records()[-1].failure if status == "failed" else None
    record = replace(sample_records()[0], status=status, failure=failure)
    html = render_html(make_run(), [record], pairs=nothing)
    counts = dict(re.findall(r'word="([a-z-]+)"><b>(\d+)<', html))
    assert {word for word, count in counts.items() if count != "0"} == {status}
    assert counts[status] == "1"
    assert "Verdict: none." in html


def test_cases_never_begun_stand_in_the_table_where_the_plan_has_them() -> None:
    records = sample_records()
    planned = [r.case.id for r in records]
    planned.insert(1, "later[size=1MiB]")
    run = make_run(planned=tuple(planned), status="interrupted")
    found = read(run, records)
    assert found.cases[1][:2] == ["later", "size=1MiB"]
    assert found.cases[1][9:] == ["not begun", "the run ended before this case"]
    assert "This run was interrupted" in found.text
    assert "1 planned case has no record" in found.text


def test_a_run_that_may_still_go_on_says_so_and_calls_nothing_ended() -> None:
    found = read(make_run(planned=("later",), status="running"), [])
    assert "still running, or had been killed" in found.text
    assert found.cases[0][10] == "the run has not reached this case"


def test_damaged_records_are_named_and_no_planned_case_is_called_unbegun_then() -> None:
    found = read(make_run(planned=("tiny",)), [], warnings=["cases/tiny.json is not JSON; ignored"])
    assert "Warning: cases/tiny.json is not JSON; ignored" in found.text
    assert found.cases[0][10] == "no readable record"


def test_texts_of_records_are_shown_and_do_nothing() -> None:
    html = evil()
    found = Read(html)
    assert [tag for tag, _ in found.tags if tag in ("img", "iframe", "object")] == []
    assert sum(tag == "script" for tag, _ in found.tags) == 2
    assert sum(tag == "style" for tag, _ in found.tags) == 1
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert "\x1b" not in html
    assert "\x00" not in html
    assert html.count("<script>alert") == 0
    assert found.text.count("<script>alert(1)</script></style><img src=x onerror=alert(2)>") > 20
    assert "🚀" in found.text


def test_the_page_asks_for_nothing_outside_itself() -> None:
    for html in (evil(), render_html(make_run(), sample_records(), pairs=nothing)):
        assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html
        addresses = [v for _, a in Read(html).tags for k, v in a.items() if k in ("src", "href", "srcset", "action")]
        assert all(v is not None and v.startswith(("#", "data:")) for v in addresses)
        assert not re.search(r"@import|url\(|https?://", STYLE)


@pytest.mark.long
def test_five_thousand_cases_fit_and_none_is_missing_from_the_table() -> None:
    run, records = many(5000)
    html = render_html(run, records, pairs=nothing)
    assert len(html.encode()) < 3_000_000
    skipped = sum(record.status == "skipped" for record in records)
    assert f"{skipped} cases" in html
    assert skipped > 1
    # All of them for one reason: one row.
    assert html.count(" data-k=") - html.count('scope="col" data-k=') == 5000 - skipped + 1
    shown = html.count("<article")
    assert shown > 50
    assert f"{5000 - skipped - shown} more cases are not shown in full" in html
    assert f"aiperf report {run.run} --html --case CASE" in html


@pytest.mark.long
def test_the_worst_outcomes_are_shown_in_full_before_the_rest() -> None:
    run, records = many(300)
    everything = render_html(run, records, pairs=nothing)
    html = render_html(run, records, pairs=nothing, most_bytes=len(everything.encode()) // 2)
    shown = set(re.findall(r'<article id="c(\d+)"', html))
    words = [r.results[0].verdict.word if r.results else r.status for r in records]
    assert 10 < len(shown) < 250
    assert len(html.encode()) <= len(everything.encode()) // 2
    for word in ("invalid", "failed", "regressed", "inconclusive"):
        assert {str(i) for i, w in enumerate(words) if w == word} <= shown
    rest = [i for i, w in enumerate(words) if w in ("improved", "equivalent") and str(i) in shown]
    first = [i for i, w in enumerate(words) if w in ("improved", "equivalent")][: len(rest)]
    assert rest == first


def test_every_link_of_the_table_leads_to_a_case_in_full() -> None:
    run, records = many(200)
    html = render_html(run, records, pairs=nothing, most_bytes=500_000)
    links, anchors = set(re.findall(r"<a href=#(c\d+)>", html)), set(re.findall(r'<article id="(c\d+)"', html))
    assert links == anchors
    assert links


def test_cases_that_were_named_are_shown_in_full_and_only_they() -> None:
    run, records = many(60)
    wanted = [records[7].case.id, records[40].case.id]
    html = render_html(run, records, pairs=nothing, only=wanted)
    assert re.findall(r'<article id="c(\d+)"', html) == ["7", "40"]
    assert "58 more are in the table" in html
    assert html.count(" data-k=") - html.count('scope="col" data-k=') == 60
    assert "to keep this file small" not in html


def test_samples_are_read_only_for_cases_shown_in_full() -> None:
    run, records = many(300)
    asked: list[str] = []

    def pairs(record: CaseRecord) -> tuple[Pair, ...]:
        asked.append(record.case.id)
        return ()

    html = render_html(run, records, pairs=pairs, most_bytes=500_000)
    assert 0 < html.count("<article") < 200
    assert len(asked) <= html.count("<article") + 1


def test_samples_that_cannot_be_read_are_told_and_the_case_is_shown_without_them() -> None:
    def pairs(_: CaseRecord) -> tuple[Pair, ...]:
        raise usage("is not a Parquet file of samples.", where="samples/x.parquet")

    found = read(records=sample_records()[:1], pairs=pairs)
    assert "The samples could not be read: samples/x.parquet: is not a Parquet file" in found.text
    assert "The interval against the threshold" in found.text


def test_a_case_is_told_with_sides_verdict_checks_limit_and_the_command_that_repeats_it() -> None:
    case = make_case("copy", axes={"size": "1MiB"}, book=("ch03/pinned",), moves={"h2d_bandwidth": "up"})
    pairs = sampled(case, times={"before": 2e-3, "after": 1e-3})
    found = read(records=[concluded(case, pairs)], pairs=reader(copy=pairs))
    for said in (
        "They differ in pinned (before: false, after: true).",
        "Verdict: improved.",
        "It is not inconclusive, because even the lower end",
        "before: 72 samples in 6 pairs; after: 72 samples in 6 pairs",
        "Every sample is drawn",
        "The median of every round",
        "after with before, bitwise, 18 audits: passed in 6 of 6 pairs.",
        "ch03/pinned is not in the book's catalogue.",
        "h2d_bandwidth should go up: not profiled.",
        "aiperf run copy --precision standard --seed 0 --only size=1MiB",
        "▲ before went first, ● after went first",
    ):
        assert said in found.text, said
    assert "Finding: " not in found.text


def test_a_ladder_has_a_row_and_a_heading_for_each_comparison() -> None:
    case = ladder("tiled", "fused")
    pairs = sampled(case, times={"before": 3e-3, "tiled": 2e-3, "fused": 1e-3})
    found = read(records=[concluded(case, pairs)], pairs=reader(ladder=pairs))
    assert [row[1] for row in found.cases] == ["tiled", "fused", "fused vs tiled"]
    assert "fused against tiled: improved" in found.text


def test_other_metrics_stand_with_their_case_and_not_in_the_table_of_all() -> None:
    memory = make_comparison(1.5 * 2**30, 2**30, interval=(1.4, 1.6), metric="peak_memory", unit="B")
    time = make_comparison(2.0, 1.0, interval=(1.9, 2.1))
    found = read(records=[measured(make_case(), make_result(time), make_result(memory, primary=False))])
    assert len(found.cases) == 1
    assert "peak_memory" in found.text
    assert "1.5 GiB" in found.text


def test_host_settings_and_software_are_listed_and_findings_come_before_the_table() -> None:
    html = render_html(make_run(git={"sha": "abc123"}), sample_records(), pairs=nothing)
    text = Read(html).text
    assert "gpu-07" in text
    assert "580.159" in text
    assert "abc123" in text
    assert "torch 2.11+cu130" in text
    assert html.index("Persistence mode: off.") < html.index('id="cases"')


def test_a_run_without_any_case_is_still_a_page() -> None:
    found = read(records=[])
    assert "nothing measured" in found.text
    assert found.cases == []


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


COLOURS = {n: (a, b) for n, a, b in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", STYLE)}
TEXTS = [n for n in COLOURS if n not in ("page", "panel", "line", "band")]


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", TEXTS)
def test_every_colour_of_a_text_can_be_read_on_both_grounds(name: str, mode: int) -> None:
    for ground in ("page", "panel"):
        assert contrast(COLOURS[name][mode], COLOURS[ground][mode]) >= 4.5


def test_the_ground_is_bright_in_light_and_dark_in_dark_mode() -> None:
    assert luminance(COLOURS["page"][0]) > 0.8 > 0.1 > luminance(COLOURS["page"][1])
    assert len(TEXTS) > 12


def test_a_bigger_page_than_allowed_keeps_its_table_and_leaves_out_every_case_in_full() -> None:
    html = render_html(make_run(), sample_records(), pairs=nothing, most_bytes=10)
    assert "<article" not in html
    assert "6 more cases are not shown in full" in html
    assert len(Read(html).cases) == 6
    assert MOST_BYTES < 3_000_000


def test_the_page_lists_every_node_and_machines_that_came_later() -> None:
    nodes = ({"node": "m1", "host_id": "abc", "host": {"cpu_model": "A CPU"}},)
    blocks = dict(facts(make_run(nodes=nodes, also_on=({"node": "m9"},))))
    assert blocks["Nodes"] == [("2: m1", "host id abc, A CPU, no GPU"), ("also: m9", "host id –, no GPU")]
    assert "Nodes" not in dict(facts(make_run()))
