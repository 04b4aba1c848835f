"""The table to the character: at every width, without colour, when piped."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from factory_of_records import make_case, make_comparison, make_result, make_run, measured, sample_records, with_check
from hypothesis import given
from hypothesis import strategies as st
from printed import lines_of, markdown_of

from aiperf.analysis.rows import comparison_row
from aiperf.analysis.stopping import Stop, next_step
from aiperf.analysis.verdict import BEYOND_PAIRS
from aiperf.plan.precision import load_precision
from aiperf.records import CaseRecord, Check, Incident, Side, Summary
from aiperf.report.frame import case_line
from aiperf.report.html.speedups import speedup_chart
from aiperf.report.layout.table import table_lines
from aiperf.report.layout.terminal import show, terminal_width, use_colour
from aiperf.report.layout.text import STYLES, plain, wrap
from aiperf.report.reasons import result_sentences
from aiperf.report.summary import MOST_LOOKED_AT, count_outcomes, header_lines, summary_line
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.run_table import run_page, run_table
from aiperf.units import format_duration

AT_100 = """\
host gpu-07 · 2 × NVIDIA H200 · driver 580.159 · torch 2.11+cu130 · 2 host findings
precision standard · δ 2 % · up to 40 pairs a case · budget 10 m 00 s

 scenario / case   before    after  speedup  98.4 % interval  of limit   change  verdict
 pageable-vs-pinned-copy
   h2d 1MiB       88.1 µs  31.4 µs    2.81×      2.77 … 2.84      61 %  −64.4 %  improved
   h2d 256MiB     15.3 ms  4.95 ms    3.10×      3.05 … 3.13      97 %  −67.7 %  improved
 all-reduce-after-backward-vs-ddp-overlap
   ranks=2        41.2 ms  40.9 ms   1.007×      0.99 … 1.02         –  −0.70 %  equivalent
 tip-that-may-help
   time            2.00 s   1.96 s   1.020×    0.998 … 1.041         –  −1.96 %  inconclusive
 host-bounce-vs-gpudirect-storage   skipped: GPUDirect Storage is not active (nvidia-fs not loaded);
     aiperf show host-bounce-vs-gpudirect-storage says what it needs
 time-slicing-vs-mps   failed: before, set-up: CUDA out of memory (asked 4.0 GiB, 1.2 GiB free) and
     more; aiperf show RUN CASE has its stderr

2 improved · 1 equivalent · 1 inconclusive (needs about 55 pairs) · 1 skipped · 1 failed · 1 m 28 s
results/x · aiperf report
"""
AT_80 = """\
 scenario / case   before     after  speedup  98.4 % interval   change  verdict
 pageable-vs-pinned-copy
   h2d 1MiB       88.1 µs   31.4 µs    2.81×      2.77 … 2.84  −64.4 %  improved
   h2d 256MiB     15.3 ms   4.95 ms    3.10×      3.05 … 3.13  −67.7 %  improved
     peak_memory  1.5 GiB  1.25 GiB  −16.7 %  −17.4 … −16.0 %  −16.7 %  improved
"""
AT_60 = """\
 scenario / case  speedup  98.4 % interval  verdict
 pageable-vs-pinned-copy
   h2d 1MiB         2.81×      2.77 … 2.84  improved
   h2d 256MiB       3.10×      3.05 … 3.13  improved
 no room for before, after, of limit, change: widen the
   terminal or export
"""
AT_44 = """\
 scenario / case  98.4 % interval  verdict
 pageable-vs-pinned-copy
   h2d 1MiB           2.77 … 2.84  improved
   h2d 256MiB         3.05 … 3.13  improved
 no room for before, after, speedup, of
   limit, change: widen the terminal or
   export
"""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def lines_at(width: int, records: list[CaseRecord] | None = None, *, every_metric: bool = False) -> list[str]:
    table = build_rows(sample_records() if records is None else records)
    return plain(table_lines(run_table(table, every_metric=every_metric), width=width)).splitlines()


def test_a_run_at_100_columns_is_this_to_the_character() -> None:
    records = sample_records()
    lines = lines_of(
        run_page(make_run(), build_rows(records), summary=summary_line(records), footer=["results/x · aiperf report"])
    )
    assert plain(lines) == AT_100


def test_a_terminal_of_80_columns_loses_columns_from_the_right_but_not_the_verdict() -> None:
    assert lines_at(80, sample_records()[:2], every_metric=True) == AT_80.splitlines()


def test_a_terminal_of_60_columns_keeps_the_ratio_its_interval_and_the_verdict() -> None:
    assert lines_at(60, sample_records()[:2]) == AT_60.splitlines()


def test_a_terminal_without_room_for_the_speedup_keeps_its_interval_and_the_verdict() -> None:
    assert lines_at(44, sample_records()[:2]) == AT_44.splitlines()


@pytest.mark.parametrize("width", range(46, 121))
def test_columns_go_in_their_order_and_the_interval_and_even_the_longest_verdict_never(width: int) -> None:
    found = make_result(make_comparison(2e-3, 1e-3, interval=(1.9, 2.1)), "inconclusive", verdict={"provisional": True})
    lines = lines_at(width, [measured(make_case(axes={"shape": "x" * 40}), found)])
    assert [line for line in lines if "1.90 … 2.10" in line and line.endswith("inconclusive")]
    assert max(map(len, lines)) <= width
    order = ["of limit", "change", "before", "after", "speedup"]
    lost = [name for name in order if name not in lines[0]]
    assert lost == order[: len(lost)]
    said = " ".join(line.strip() for line in lines[3:]).removeprefix("no room for ").partition(":")[0].split(", ")
    assert {name for name in said if name} == (set(lost) if "before" in lost else set())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_every_verdict_is_whole(width: int) -> None:
    lines = lines_at(width, every_metric=True)
    assert max(map(len, lines)) <= width
    lines = lines[: next((i for i, line in enumerate(lines) if "no room" in line), None)]
    words = [line.split()[-1] for line in lines if line.startswith("   ") and line[3] != " "]
    assert words == ["improved", "improved", "equivalent", "inconclusive"]


def test_a_long_case_name_is_cut_and_not_the_verdict() -> None:
    case = make_case(axes={"shape": "x" * 200})
    record = measured(case, make_result(make_comparison(2e-3, 1e-3, interval=(1.9, 2.1))))
    lines = lines_at(100, [record])
    assert "…" in lines[-1]
    assert lines[-1].endswith("improved")
    assert max(map(len, lines)) <= 100


def test_a_pipe_gets_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    show(lines_of(run_page(make_run(), build_rows(sample_records()), summary="done")))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert all(c == "\n" or c.isprintable() for c in out)


def test_a_terminal_gets_colour_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = table_lines(run_table(build_rows(sample_records())), width=100)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured, bare = Terminal(), Terminal()
    show(lines, file=coloured)
    assert "\x1b[32mimproved\x1b[0m" in coloured.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    show(lines, file=bare)
    assert bare.getvalue() == plain(lines)


def test_a_terminal_gets_no_colour_where_the_command_line_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    lines = table_lines(run_table(build_rows(sample_records())), width=100)
    bare, coloured = Terminal(), Terminal()
    use_colour(False)
    show(lines, file=bare)
    use_colour(True)
    show(lines, file=coloured)
    assert bare.getvalue() == plain(lines) != coloured.getvalue()


def test_colour_changes_no_character_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    lines = table_lines(run_table(build_rows(sample_records())), width=100)
    out = Terminal()
    show(lines, file=out)
    assert Text.from_ansi(out.getvalue().rstrip("\n")).plain == plain(lines).rstrip("\n")


def test_a_stream_of_ascii_is_written_and_not_a_crash() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    show(table_lines(run_table(build_rows(sample_records())), width=100), file=out)
    out.flush()
    assert b"improved" in raw.getvalue()


def test_a_pipe_is_100_wide_whatever_the_terminal_unless_columns_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width(io.StringIO()) == 100
    monkeypatch.setenv("COLUMNS", "72")
    assert terminal_width(io.StringIO()) == 72


def test_a_ladder_shows_each_step_against_what_it_was_compared_with() -> None:
    case = make_case("gemm-ladder", sides=tuple(Side(n, workload="g.g") for n in ("before", "tiled", "cluster")))
    steps = [("tiled", "before"), ("cluster", "before"), ("cluster", "tiled")]
    results = [make_result(make_comparison(3e-3, 2e-3, interval=(1.4, 1.6)), side=s, against=a) for s, a in steps]
    labels = [line[3:20].strip() for line in lines_at(100, [measured(case, *results)])[2:]]
    assert labels == ["tiled", "cluster", "cluster vs tiled"]


def test_a_secondary_metric_of_a_ladder_names_its_sides_in_a_terminal_and_in_markdown() -> None:
    case = make_case("gemm-ladder", sides=tuple(Side(n, workload="g.g") for n in ("before", "tiled", "cluster")))
    memory = make_comparison(3.0, 2.0, interval=(1.4, 1.6), metric="peak_memory", unit="B")
    steps = [("tiled", "before"), ("cluster", "tiled")]
    results = [make_result(memory, primary=False, side=s, against=a) for s, a in steps]
    record = measured(case, make_result(make_comparison(3e-3, 2e-3, interval=(1.4, 1.6)), side="tiled"), *results)
    labels = [line[5:35].strip() for line in lines_at(120, [record], every_metric=True)[3:]]
    assert labels == ["peak_memory tiled", "peak_memory cluster vs tiled"]
    text = markdown_of(run_page(make_run(), build_rows([record]), summary="s"))
    assert "| gemm-ladder | tiled | peak\\_memory |" in text
    assert "| gemm-ladder | cluster vs tiled | peak\\_memory |" in text


def test_sides_that_differ_by_design_show_their_quality_beside_the_speedup() -> None:
    check = Check(kind="named", name="top1_loss", bound=0.01, reason="half of the weights are zero")
    lines = lines_at(100, [with_check(check, max_error=0.00312)])
    assert "     check: top1_loss 0.00312 (at most 0.01): half of the weights are zero" in lines


def test_what_a_win_costs_by_a_metric_without_a_row_is_told_below_it() -> None:
    time = make_result(make_comparison(2.0, 1.0, interval=(1.98, 2.02)))
    memory = make_comparison(1 << 30, 1.8 * (1 << 30), interval=(0.55, 0.56), metric="peak_memory", unit="B")
    record = measured(make_case("a", expect=""), time, make_result(memory, "regressed", primary=False))
    said = "     regressed: peak_memory +80.0 % (--all-metrics)"
    assert said in lines_at(100, [record])
    assert said not in lines_at(100, [record], every_metric=True)


def test_outputs_that_are_not_compared_add_no_line_of_quality() -> None:
    check = Check(kind="none", reason="programs may print what they like")
    assert not [line for line in lines_at(100, [with_check(check, max_error=0.0)]) if "check:" in line]


def test_an_invalid_row_says_why_and_an_unexpected_one_what_was_expected() -> None:
    wrong = make_result(
        make_comparison(2e-3, 1e-3, interval=(1.9, 2.1)), "invalid", verdict={"sentence": "wrong output: y[3]"}
    )
    slow = make_result(make_comparison(1e-3, 2e-3, interval=(0.48, 0.52)), "regressed")
    lines = lines_at(100, [measured(make_case("a"), wrong), measured(make_case("b"), slow)])
    assert "     wrong output: y[3]" in lines
    assert "     the scenario expects: improved" in lines
    assert len(lines) == 7


def test_that_verdicts_are_provisional_is_said_once_below_the_table() -> None:
    result = make_result(make_comparison(2e-3, 1e-3, interval=(1.9, 2.1)), verdict={"provisional": True})
    record = measured(make_case(), result)
    assert lines_at(100, [record])[-1].endswith("improved")
    assert summary_line([record]) == "1 improved · verdicts provisional · 21 s"


def test_skips_of_one_scenario_with_one_reason_are_one_line() -> None:
    skipped = [
        CaseRecord(case=make_case(axes={"size": size}), status="skipped", skip_reason="no GPU") for size in ("1", "2")
    ]
    assert lines_at(100, skipped) == [" pageable-vs-pinned-copy   skipped: no GPU (2 cases)"]
    skipped[1] = replace(skipped[1], skip_reason="no memory")
    assert len(lines_at(100, skipped)) == 3


def test_skips_of_several_scenarios_with_one_reason_are_one_line_below_the_others() -> None:
    skipped = [
        CaseRecord(
            case=make_case(name),
            status="skipped",
            skip_reason="needs 1 GPU, but this host has 0",
            skip_fix=f"see {name}",
        )
        for name in ("a", "b", "c")
    ]
    lonely = CaseRecord(case=make_case("d"), status="skipped", skip_reason="no disk")
    (first, second) = lines_at(100, [*skipped, lonely])
    assert first == " d   skipped: no disk"
    assert second == " 3 cases   skipped: needs 1 GPU, but this host has 0; aiperf show NAME says what it needs"
    text = markdown_of(run_page(make_run(), build_rows([*skipped, lonely]), summary="s"))
    assert "- 3 cases: skipped: needs 1 GPU" in text


def test_an_interrupted_case_keeps_its_figures_and_one_without_says_how_far_it_came() -> None:
    record = measured(make_case(), make_result(make_comparison(2e-3, 1e-3, interval=(1.9, 2.1))), status="interrupted")
    figures, note = lines_at(100, [record])[2:]
    assert {"2.00×", "1.90 … 2.10"} <= set(re.split(r" {2,}", figures))
    assert figures.endswith("  interrupted")
    assert note == "     after 6 pairs, before any stopping rule applied: no verdict"
    assert "interrupted: after 6 pairs" in lines_at(100, [replace(record, results=())])[0]


def test_a_case_that_the_host_disturbed_too_often_has_figures_and_no_verdict() -> None:
    found = make_result(make_comparison(2e-3, 1e-3, interval=(1.9, 2.1)))
    record = measured(make_case(expect="improved"), found, stop="unfit")
    away = Incident("foreign_cpu", "", "CPU 0 97 % busy", voids=True)
    void = tuple(replace(pair, incidents=(away,)) for pair in record.pairs[:4])
    record = replace(record, pairs=(*void, *record.pairs[4:]))
    figures, note = lines_at(140, [record])[2:]
    assert figures.endswith("  unfit")
    why = "foreign cpu: CPU 0 97 % busy"
    assert note == f"     the host disturbed 4 of 6 pairs, which therefore do not count ({why}): no verdict"
    bare = replace(record, results=(), pairs=void)
    assert lines_at(140, [bare])[0].endswith(f"the host disturbed 4 of 4 pairs, which therefore do not count ({why})")


@pytest.mark.parametrize(
    ("status", "stop", "word", "counted"),
    [
        ("interrupted", "interrupted", "improved", "interrupted"),
        ("interrupted", "interrupted", "invalid", "invalid"),
        ("failed", "failure", "improved", "failed"),
        ("failed", "unfit", "improved", "failed"),
        ("failed", "failure", "invalid", "failed"),
        ("measured", "unfit", "improved", "unfit"),
        ("measured", "unfit", "invalid", "invalid"),
        ("measured", "verdict", "improved", "improved"),
        ("measured", "budget", "improved", "improved"),
    ],
)
def test_a_case_has_one_outcome_and_is_counted_once(status, stop, word, counted) -> None:
    found = make_result(make_comparison(2e-3, 1e-3, interval=(1.9, 2.1)), word, verdict={"provisional": True})
    record = measured(make_case(), found, status=status, stop=stop)
    assert count_outcomes([record]) == {counted: 1}
    assert build_rows([record]).rows[0].verdict == counted
    assert ("verdicts provisional" in summary_line([record])) == (counted == word)


@pytest.mark.parametrize("reason", sorted(BEYOND_PAIRS))
def test_a_verdict_that_no_number_of_pairs_brings_names_none(reason: str) -> None:
    found = make_comparison(2.0, 1.96, interval=(0.9, 1.1), pairs_needed=55)
    stuck = measured(make_case("b"), make_result(found, "inconclusive", verdict={"reason": reason}))
    open_one = measured(make_case("a"), make_result(replace(found, pairs_needed=12), "inconclusive"))
    assert "2 inconclusive (needs about 12 pairs)" in summary_line([open_one, stuck], seconds=1)
    assert [comparison_row(r, r.results[0]).pairs_needed for r in (open_one, stuck)] == [12, None]
    assert "More pairs cannot fix this" in " ".join(result_sentences(stuck.results[0]))
    how = {"looks": (6, 10), "pairs_done": 10, "elapsed": 1.0, "budget": 9.0, "mean_pair_seconds": 0.1, "width": 0.01}
    stops = [next_step(r.results, **how) for r in (open_one, stuck)]
    assert [stop.pairs_needed for stop in stops if isinstance(stop, Stop)] == [12, None]


def test_several_inconclusive_cases_name_the_most_pairs_needed() -> None:
    results = [
        make_result(make_comparison(2.0, 1.96, interval=(0.9, 1.1), pairs_needed=n), "inconclusive") for n in (12, 55)
    ]
    records = [measured(make_case(n), r) for n, r in zip("ab", results, strict=True)]
    assert "2 inconclusive (needs up to about 55 pairs)" in summary_line(records, seconds=1)
    most = make_result(make_comparison(2.0, 1.96, interval=(0.9, 1.1), pairs_needed=550), "inconclusive")
    said = summary_line([measured(make_case("a"), most)], seconds=1)
    assert "1 inconclusive (needs about 550 pairs; use a quieter host or a larger threshold)" in said
    assert load_precision("rigorous").looks[-1] == MOST_LOOKED_AT
    in_cases = sum(record.seconds for record in records)
    assert summary_line(records, seconds=in_cases + 9).endswith(f" · {format_duration(in_cases + 9)}")
    assert summary_line(records, seconds=in_cases + 300).endswith(f", {format_duration(in_cases)} of it in cases")


def test_nothing_measured_is_said_in_words() -> None:
    assert summary_line([]) == "nothing measured · 0 s"
    assert lines_at(100, []) == []


def test_every_outcome_has_a_style() -> None:
    assert set(STYLES) >= {"improved", "regressed", "equivalent", "inconclusive", "invalid", "skipped", "failed"}


@given(st.text(st.characters(categories=["L", "N", "Zs"], include_characters=" …×"), max_size=200), st.integers(8, 60))
def test_wrapping_loses_nothing_but_spaces_and_keeps_to_the_width(text: str, width: int) -> None:
    from rich.cells import cell_len

    lines = wrap(text, width, indent="  ")
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("status", "why"),
    [("interrupted", "the run was interrupted before this case"), ("running", "the run has not reached this case")],
)
def test_cases_that_an_unfinished_run_never_came_to_are_listed(status: str, why: str) -> None:
    (record, *_) = sample_records()
    planned = (record.case.id, "last-one[size=1MiB,n=2]")
    run = make_run(status=status, planned=planned)
    text = plain(table_lines(run_table(build_rows([record], run=run)), width=100))
    assert f"last-one   not begun: {why}" in text
    done = plain(table_lines(run_table(build_rows([record], run=make_run(planned=planned))), width=100))
    assert "last-one   no record: planned, but its record is missing or unreadable" in " ".join(done.split("\n"))
    assert build_rows([], run=make_run(planned=planned, command="profile")).rows == ()


@pytest.mark.parametrize(("status", "word"), [("finished", "no record"), ("interrupted", "not begun")])
def test_planned_cases_without_a_record_are_told_and_counted_even_where_there_is_no_other(status, word) -> None:
    table = build_rows([], run=make_run(status=status, planned=("a", "b[n=2]")))
    assert [(row.case, row.status) for row in table.rows] == [("a", word), ("b[n=2]", word)]
    assert summary_line([], unread=table.unread) == f"2 {word} · 0 s"
    (record, *_) = sample_records()
    table = build_rows([record], run=make_run(status=status, planned=(record.case.id, "a")))
    assert count_outcomes([record], unread=table.unread) == {"improved": 1, word: 1}


def test_an_imported_value_is_a_row_with_its_unit_of_replication() -> None:
    summary = Summary("after", 0.0123, 0.012, 0.013, 60, 0, 0.0, 0.004, 20)
    record = CaseRecord(make_case("sorted"), "imported", summaries=(summary,), replicate="process")
    text = " ".join(plain(table_lines(run_table(build_rows([record])), width=100)).split())
    assert "imported: after 12.3 ms (20 × process)" in text


def test_a_case_about_memory_shows_it_by_name_and_what_it_costs_in_time() -> None:
    memory = make_result(make_comparison(4e9, 2e9, interval=(1.9, 2.1), metric="peak_memory", unit="B"))
    time = make_result(make_comparison(1e-3, 2e-3, interval=(0.49, 0.51)), "regressed", primary=False)
    record = measured(make_case(), memory, time)
    about, price = lines_at(100, [record])[2:]
    assert "peak_memory" in about
    assert about.endswith("  improved")
    assert "−50" in about
    assert price.split()[0] == "time"
    assert price.endswith("  regressed")
    assert case_line(record).endswith("improved peak_memory −50.0 % (−52.4 … −47.4 %), 6 pairs, 21 s")
    rows = {row.metric: row for row in build_rows([record]).rows}
    assert [row.own_name for row in rows.values()] == ["peak_memory", ""]
    assert ">pageable-vs-pinned-copy peak_memory<" in speedup_chart([rows["peak_memory"]]).chart


def test_the_header_says_on_how_many_nodes_a_run_was_measured_and_which() -> None:
    nodes = tuple({"node": f"m{i}", "host": {"cpu_model": "A CPU"}} for i in range(1, 8))
    said = header_lines(make_run(nodes=nodes[:1], also_on=({"node": "m9"},)))[0]
    assert said.startswith("2 nodes: gpu-07, m1; also m9 · 2 × NVIDIA H200 and A CPU, no GPU · ")
    assert header_lines(make_run(nodes=nodes))[0].startswith("8 nodes: gpu-07, m1, m2, m3, m4, 3 more · ")
    assert header_lines(make_run())[0].startswith("host gpu-07 · 2 × NVIDIA H200 · ")
