"""Runs side by side: to the character, in every dialect, and what is said where there is no number."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest
from factory_of_records import make_case, make_comparison, make_result, make_run, measured
from printed import markdown_of, text_of

from aiperf.analysis.across import hold_runs
from aiperf.records import CaseRecord, Summary
from aiperf.records.calibration import Calibration
from aiperf.report.views.compare_rows import compare_rows, letters_of
from aiperf.report.views.compare_table import compare_json, compare_view

COPY = "pageable-vs-pinned-copy"
SMALL, LARGE = (make_case(COPY, axes={"size": size}, scenario_hash="1" * 16) for size in ("1MiB", "256MiB"))


def host(**changes):
    fields = {"cpu_model": "a cpu", "libraries": {"torch": "2.11", "numpy": "2.1"}}
    return {**make_run().host, "fingerprint": {"must_match": fields | changes, "record_only": {"hostname": "gpu-07"}}}


def result(before, after, word="improved", *, half=0.006, primary=True, **changes):
    ratio = before / after
    ends = (ratio * math.exp(-half), ratio * math.exp(half))
    sides = [Summary(side, v, v, v, 360, 0, 0.0, 0.004) for side, v in (("before", before), ("after", after))]
    found = replace(make_comparison(before, after, interval=ends, **changes), before=sides[0], after=sides[1])
    return make_result(found, word, primary=primary)


def run(day, **changes):
    name = f"2026-11-{day}T18-05-03-gpu-07"
    given = {"run": name, "started": f"2026-11-{day}T18:05:03+00:00", "host": host(), "git": {"sha": "1a2b3c4d5e6f7a"}}
    return make_run(**(given | {"host_id": "h-1", "software": {"torch": "2.11"}, "planned": ()} | changes))


MEMORY = {"metric": "peak_memory", "unit": "B", "primary": False}
GONE, FRESH = make_case("tip-that-may-help"), make_case("brand-new")
SKIPPED = CaseRecord(make_case("needs-a-gpu"), "skipped", skip_reason="no GPU", skip_fix="use a node with one")
FIRST = [
    measured(SMALL, result(88.1e-6, 31.4e-6)),
    measured(LARGE, result(15.3e-3, 4.95e-3), result(2**30, 2**29, **MEMORY)),
    measured(GONE, result(2.0, 1.9)),
    SKIPPED,
]
LATER = [
    measured(SMALL, result(88.9e-6, 33.4e-6)),
    measured(LARGE, result(15.3e-3, 4.96e-3), result(2**30, 2**29 * 1.1, **MEMORY)),
    measured(FRESH, result(2.0, 1.9)),
    SKIPPED,
]


def held(*runs, **options):
    across = hold_runs(list(runs), **({"calibrations": {}} | options))
    return across, compare_rows(across)


def told(*runs, width=100, every_metric=False, **options):
    return text_of(compare_view(*held(*runs, **options), every_metric=every_metric), width=width)


def test_two_runs_side_by_side_to_the_character():
    later = run(21, git={"sha": "ffff", "diff": "1"}, software={"torch": "2.11", "scipy": "1.14"})
    text = told((run(20), FIRST), (later, LATER))
    assert (
        text
        == """\
host gpu-07 · 2 × NVIDIA H200 · driver 580.159 · torch 2.11 · 2 host findings
A: 2026-11-20T18-05-03-gpu-07 · precision standard · git 1a2b3c4d5e6f
B: 2026-11-21T18-05-03-gpu-07 · precision standard · git ffff with changes

B and A differ in fields that are only recorded
 field           A             B
 software.scipy  none          1.14
 git.sha         1a2b3c4d5e6f  ffff
 git.diff        none          1

 case / run         before    after  speedup         interval  verdict
 pageable-vs-pinned-copy[size=1MiB]
   A               88.1 µs  31.4 µs    2.81×      2.79 … 2.82  improved
   B               88.9 µs  33.4 µs    2.66×      2.65 … 2.68  improved
   B vs A speedup        –        –   0.949×    0.944 … 0.953  regressed
   B vs A after    +0.91 %  +6.37 %        –  +5.82 … +6.92 %  –
 pageable-vs-pinned-copy[size=256MiB]
   A               15.3 ms  4.95 ms    3.09×      3.07 … 3.11  improved
   B               15.3 ms  4.96 ms    3.08×      3.07 … 3.10  improved
   B vs A speedup        –        –   0.998×    0.993 … 1.003  equivalent
   B vs A after        0 %  +0.20 %        –  −0.31 … +0.72 %  –
 tip-that-may-help
   A                2.00 s   1.90 s   1.053×      1.05 … 1.06  improved
   B vs A   vanished: A has it; this run does not
 needs-a-gpu
   A   skipped: no GPU; use a node with one
   B   skipped: no GPU; use a node with one
   B vs A   not compared: A and B have no result
 brand-new
   B                2.00 s   1.90 s   1.053×      1.05 … 1.06  improved
   B vs A   new: A does not have it

B vs A: 1 regressed · 1 equivalent · 1 new · 1 vanished · 1 not compared
intervals: 98.4 % within a run, 95 % of a change; verdicts against 2 %; above 1 is better
noise between sessions was never measured on this host, so these intervals do not include it and are
too narrow; measure it with aiperf calibrate
a side's absolute value varies with the machine and the day; this does not cancel as in a speedup
and is not in the interval, so one session each is not enough to decide
"""
    )


def test_runs_that_must_not_be_compared_show_what_differs_and_their_own_results_and_no_change():
    across, rows = held((run(20), FIRST), (run(21, host=host(cpu_model="b cpu", libraries={"torch": "2.12"})), LATER))
    text = text_of(compare_view(across, rows))
    top = text[: text.index("case / run")]
    assert "B and A differ in 3 must-match fields: not compared" in top
    for name, then, now in (
        ("cpu_model", "a cpu", "b cpu"),
        ("libraries.torch", "2.11", "2.12"),
        ("numpy", "2.1", "none"),
    ):
        (line,) = [line for line in top.splitlines() if name in line and "host" not in line]
        assert line.split("  ")[-1].strip() == now
        assert then in line
    assert "2.81×" in text
    assert "2.66×" in text
    assert {row.kind for row in rows} == {"run", "none"}
    assert all(row.ratio is None for row in rows if row.kind != "run")
    assert "not compared: the hosts differ in 3 must-match fields" in text
    document = json.loads(compare_json(across, rows))
    assert not document["comparable"]
    assert [d["name"] for d in document["differences"][0]["must_match"]] == [
        "cpu_model", "libraries.torch", "libraries.numpy",
    ]  # fmt: skip


def test_a_forced_comparison_says_so_first_last_and_in_every_change():
    runs = (run(20), FIRST), (run(21, host=host(cpu_model="b cpu")), LATER)
    across, rows = held(*runs, force=True)
    lines = text_of(compare_view(across, rows)).splitlines()
    assert lines[0].startswith("FORCED: must-match fields differ")
    assert sum(line.startswith("FORCED") for line in lines) == 2
    changes = [row for row in rows if row.kind in ("speedup", "value")]
    assert len(changes) == 6
    assert all(row.forced and row.verdict_text.endswith("(forced)") for row in changes)
    assert any(line.endswith("some of it forced") for line in lines)
    assert "regressed (forced)" in "\n".join(lines)
    assert "**FORCED" in markdown_of(compare_view(across, rows))
    assert not any(row.forced for row in held((run(20), FIRST), (run(21), LATER), force=True)[1])


def test_only_the_run_that_needed_it_is_marked_as_forced():
    other = run(22, host=host(cpu_model="b cpu"))
    rows = held((run(20), FIRST[:1]), (run(21), LATER[:1]), (other, LATER[:1]), force=True)[1]
    assert {row.letter: row.forced for row in rows if row.kind == "speedup"} == {"B vs A": False, "C vs A": True}


def test_a_case_whose_scenario_changed_says_what_changed_and_gives_no_number():
    changed = measured(replace(SMALL, scenario_hash="2" * 16), result(88.9e-6, 33.4e-6))
    text = told((run(20), FIRST[:2]), (run(21), [changed, LATER[1]]))
    assert "not compared: not the same measurement: scenario_hash 111111111111 → 222222222222" in text
    assert text.count("B vs A speedup") == 1


@pytest.mark.parametrize("status", ["running", "interrupted"])
def test_what_an_unfinished_run_has_not_come_to_has_not_vanished(status):
    text = told((run(20), FIRST[:2]), (run(21, status=status), LATER[:1]))
    assert "B has no record of it, but it is not finished" in text
    assert "vanished" not in text
    assert ("not finished: still running, or killed" in " ".join(text.split())) == (status == "running")


def test_a_record_that_could_not_be_read_has_not_vanished_either():
    text = told((run(20), FIRST[:2]), (run(21, planned=(SMALL.id, LARGE.id)), LATER[:1]))
    assert "B planned it, but its record is missing or unreadable" in text
    assert "vanished" not in text


def test_every_run_is_held_against_the_first():
    text = told((run(20), FIRST[:1]), (run(21), LATER[:1]), (run(22), []))
    assert [line.split(":")[0] for line in text.splitlines() if " vs A: " in line] == ["B vs A", "C vs A"]
    assert "C vs A: 1 vanished" in text


def test_other_metrics_come_when_asked_and_count_in_no_summary():
    runs = (run(20), FIRST), (run(21), LATER)
    text = told(*runs, every_metric=True)
    assert "pageable-vs-pinned-copy[size=256MiB] · peak_memory" in text
    (line,) = [line for line in text.splitlines() if line.startswith("   B vs A ratio")]
    assert line.endswith("regressed")
    assert "B vs A: 1 regressed" in text
    assert "peak_memory" not in told(*runs)


def test_calibration_of_the_host_is_in_the_changes_and_is_said():
    known = Calibration("process+auto", COPY, 20, 0, 0.1, 0.03, 0.02, "2026-11-01")
    runs = (run(20), FIRST[:1]), (run(21), LATER[:1])
    text = told(*runs, calibrations={"h-1": (known,)})
    noise = "intervals of changes include the between-session noise that calibration cannot rule out here (up to 3 %;"
    assert noise in " ".join(text.split())
    assert "never measured" not in text
    (change,) = [r for r in held(*runs, calibrations={"h-1": (known,)})[1] if r.kind == "speedup"]
    assert (change.verdict, change.tau) == ("inconclusive", 0.03)


def test_a_doubt_stands_under_the_change_and_an_invalid_result_is_not_compared():
    doubted = make_result(result(88.9e-6, 33.4e-6).comparison, "inconclusive", verdict={"reason": "unsteady"})
    assert "the later run's result (unsteady) carries no verdict of its own" in told(
        (run(20), FIRST[:1]), (run(21), [measured(SMALL, doubted)])
    )
    text = told((run(20), FIRST[:1]), (run(21), [measured(SMALL, result(88.9e-6, 33.4e-6, "invalid"))]))
    assert "not compared: the later run's result (wrong output) is invalid" in text
    assert "B vs A after" not in text


@pytest.mark.parametrize("quick", [0, 1])
def test_a_change_from_or_to_a_quick_look_is_provisional(quick):
    records = [FIRST[0], LATER[0]]
    result_ = records[quick].results[0]
    records[quick] = measured(SMALL, replace(result_, verdict=replace(result_.verdict, provisional=True)))
    assert "regressed (provisional)" in told((run(20), records[:1]), (run(21), records[1:]))


def test_a_metric_that_one_run_lacks_is_not_compared():
    rows = held((run(20), FIRST[1:2]), (run(21), [measured(LARGE, result(15.3e-3, 4.96e-3))]))[1]
    (row,) = [r for r in rows if r.kind == "none"]
    assert (row.verdict, row.sentence, row.primary) == ("not compared", "peak_memory is not in both runs", False)


def imported(value, **changes):
    pairs = tuple(replace(p, order=("after",)) for p in measured(SMALL).pairs)
    summary = Summary(
        "after", value, value, value, 60, 0, 0.0, changes.pop("log_sd", 0.004), len(changes.get("pairs", pairs))
    )
    given = {"pairs": pairs, "summaries": (summary,), "replicate": "process"}
    return CaseRecord(make_case("sorted", expect=""), "imported", **(given | changes))


def test_imported_values_are_compared_by_value_with_their_replicate():
    text = told((run(20), [imported(1.0)]), (run(21), [imported(1.1)]))
    assert "imported (6 × process)" in text
    (line,) = [line for line in text.splitlines() if line.startswith("   B vs A after")]
    assert "+10.0 %" in line
    assert line.endswith("regressed (provisional)")
    assert "imported values: the spread is over what the tool calls a process" in text
    assert "aiperf calibrate" not in text


def test_imported_values_without_a_spread_are_shown_and_not_compared():
    bare = imported(1.1, pairs=(), log_sd=None)
    text = told((run(20), [imported(1.0)]), (run(21), [bare]))
    assert "imported (spread unknown)" in text
    assert "not compared: one of the values has no spread to make an interval of" in text


def test_a_narrow_terminal_loses_columns_and_neither_the_verdict_nor_the_letters():
    runs = (run(20), FIRST), (run(21, host=host(cpu_model="b cpu" * 30)), LATER)
    for width in (80, 60, 55):
        text = told(*runs, width=width, force=True)
        table = text[text.index("case / run") :]
        rows = [line for line in table.splitlines() if line.startswith(("   A ", "   B ")) and " … " in line]
        assert max(map(len, rows)) <= width
        assert all(line.endswith(("improved", "(forced)")) for line in rows)
    wide = told(*runs, width=100, force=True)
    assert max(map(len, wide.splitlines())) <= 100
    assert "88.1 µs" in wide


def test_csv_and_json_hold_the_raw_numbers_of_every_row():
    across, rows = held((run(20), FIRST), (run(21), LATER))
    read = list(csv.DictReader(io.StringIO("".join(compare_view(across, rows).csv()))))
    assert len(read) == len(rows)
    (change,) = [r for r in read if r["kind"] == "speedup" and r["case"] == SMALL.id]
    exact = (88.9 / 33.4) / (88.1 / 31.4)
    assert float(change["ratio"]) == pytest.approx(exact)
    assert (change["forced"], change["tau"], change["alpha"]) == ("false", "", "0.05")
    document = json.loads(compare_json(across, rows, warnings=["x is damaged"]))
    assert document["warnings"] == ["x is damaged"]
    assert [r["letter"] for r in document["runs"]] == ["A", "B"]
    (same,) = [r for r in document["rows"] if r["kind"] == "speedup" and r["case"] == SMALL.id]
    assert same["ratio"] == pytest.approx(exact)
    assert same["verdict"] == "regressed"


def test_markdown_has_the_differences_the_rows_and_the_reasons():
    across, rows = held((run(20), FIRST), (run(21, software={"torch": "2.12"}), LATER))
    text = markdown_of(compare_view(across, rows))
    assert "| software.torch | 2.11 | 2.12 |" in text
    assert "| B vs A speedup | – | – | 0.949× | 0.944 … 0.953 | regressed |" in text
    assert "vanished: A has it; this run does not" in text
    widths = {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("| ") and "×" in line}
    assert widths == {9}


def test_runs_without_cases_say_so():
    assert "the runs have no cases" in told((run(20), []), (run(21), []))


def test_more_runs_than_letters_still_have_names():
    across = held(*((run(i + 10, run=f"r{i}"), []) for i in range(28)))[0]
    assert letters_of(across)[24:] == ["Y", "Z", "R27", "R28"]
