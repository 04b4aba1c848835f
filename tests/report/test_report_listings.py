"""Plan, peaks, calibration, scenarios and faults: the smaller tables, to the character."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from factory_of_records import make_case
from printed import lines_of, text_of

from aiperf.analysis.calibration import CalibrationStatistics, IntervalScale, Power, SessionNoise, rate
from aiperf.errors import Fault, UserError
from aiperf.host.datasheets import BookClaim, PeakShare, SheetFigure
from aiperf.host.peaks import Peak
from aiperf.records import Check, Measure, Needs, Skip
from aiperf.report.faults import fault_lines, print_faults
from aiperf.report.layout.formats import document_json
from aiperf.report.layout.page import page_lines
from aiperf.report.scenarios import check_sentence, needs_sentence, scenario_plain, scenarios_view
from aiperf.report.views.calibration_table import calibration_page
from aiperf.report.views.listings import scenarios_view as list_view
from aiperf.report.views.peaks_table import PeakRow, peak_row, peaks_view
from aiperf.report.views.plan_table import plan_listing, plan_rows
from aiperf.scenario.citations import Citation
from aiperf.scenario.expectations import Expectation
from aiperf.scenario.find import Listing
from aiperf.scenario.model import Layer, Scenario, SideSpec

PLAN = """\
 pageable-vs-pinned-copy h2d 1MiB  20 s to 5 m 00 s
 same-vs-same                      about 12 s
 data-parallel-vs-ddp   skipped: needs 2 GPUs, but this host has 0; run it on a host with 2 GPUs

2 cases to measure · 1 skipped · 32 s to 5 m 12 s
"""
PEAKS = """\
 name             peak  spread  measured (UTC)    what
 cpu_stream  21.4 GB/s   3.1 %  2026-11-20 18:05  CPU memory, read + written; way copy
 mine          2.10 µs       –                    a floor
 dram: no GPU
"""
HELD = """\
 name       peak  spread      95 %  of sheet  measured (UTC)    what
 dram  4.10 TB/s  2.44 %  ± 1.23 %      85 %  2026-11-20 18:05  GPU memory, read + written; way=copy
 h2d   20.0 GB/s     5 %         –      42 %  2026-11-20 18:05  Host to device, pinned
 dram: 95 % interval of a launch's best: 4.05 TB/s … 4.15 TB/s (3 launches); datasheet: 4.80 TB/s
     for H200 SXM, NVIDIA H200 Tensor Core GPU Datasheet
 h2d: FAR BELOW its datasheet (42 %): 4.80 TB/s for H200 SXM, NVIDIA H200 Tensor Core GPU Datasheet;
     claimed by the book: 64.0 GB/s (line 622), but it is wrong
"""
CALIBRATION = """\
same-vs-same (process+wall): 59 A/A sessions
                               seen      bound
 false verdicts                0 of 59   at most 4.95 % (95 % confidence)
 intervals that exclude 1      1 of 59   at most 7.79 % (95 % confidence)
 intervals that include 1      58 of 59  at least 92.2 %
 noise between sessions (tau)  0.2 %     at most 0.31 %
 interval scale                × 1.12    standard errors are too small by this factor (59 sessions)
 effective threshold           2 %       verdicts at this precision use it on this host
This many sessions show a false-positive rate of at most 5 %.

 injected  beyond zero  called regressed  interval includes it
 +5 %      10 of 10     9 of 10           10 of 10
"""
SCENARIO = """\
copy: Pageable vs pinned

Why: The engine reads pinned memory.

Latest measurement
  not measured yet: aiperf run copy

What runs
  before: transfer.copy with pinned false
  after: transfer.copy with pinned true, A=1 in its environment
  Both sides: direction h2d.
  Swept: size in [1MiB, 256MiB] (2 cases).
  On a GPU instead: size in [1GiB].

How it is measured
  A fresh process for each side of each pair, one after the other; device clock; caches flushed
    before each call; mean over the iterations.
  Differences within 1 % count as equivalent.

How it is checked
  The outputs of the sides must be equal bit for bit.

What it needs
  1 GPU, libraries cupy >=13, memory 2 GiB, root.

Beside it
  Runs on: GPU.
  File: scenarios/copy.yaml
  Expected: improved.
  Counters that should move: h2d_bandwidth up.
  Tags: memory.
  Book: ch03/copy is not in the book's catalogue. Lacks: the break-even. Differs: small copies.

To run it
  aiperf run copy
"""


def make_scenario() -> Scenario:
    before = SideSpec("before", Layer({"pinned": False}), workload="transfer.copy")
    after = SideSpec("after", Layer({"pinned": True}, env={"A": "1"}), workload="transfer.copy")
    return Scenario(
        name="copy",
        path=Path("scenarios/copy.yaml"),
        hash="abc",
        hashes=("abc", "def"),
        title="Pageable vs pinned",
        why="The engine reads pinned memory.",
        sides=(before, after),
        book=("ch03/copy",),
        citations=(Citation("ch03/copy", lacks="the break-even", differs="small copies"),),
        tags=("memory",),
        shared=Layer({"direction": "h2d"}),
        axes={"size": ("1MiB", "256MiB")},
        gpu_axes={"size": ("1GiB",)},
        needs=Needs(gpus=1, memory=2**31, libraries={"cupy": ">=13"}, root=True),
        measure=Measure(clock="device", cache="cold", exclusive=True, delta=0.01),
        check=Check(kind="bitwise"),
        moves={"h2d_bandwidth": "up"},
        expect=(Expectation("improved"),),
    )


def test_the_plan_is_this_to_the_character() -> None:
    small = make_case(axes={"direction": "h2d", "size": "1MiB"})
    planned = [(small, (20, 300)), (make_case("same-vs-same"), (12, 12))]
    skip = Skip(make_case("data-parallel-vs-ddp"), "needs 2 GPUs, but this host has 0", "run it on a host with 2 GPUs")
    rows = plan_rows(planned, [skip])
    assert text_of(plan_listing(rows)) == PLAN
    assert text_of(plan_listing(rows, budget=60)).splitlines()[-1].endswith("32 s to 1 m 00 s (budget)")
    short = text_of(plan_listing(rows, budget=5)).splitlines()[-1]
    assert short.endswith("about 32 s: a budget of 5 s does not shorten a case's first look")
    more = plan_rows(planned, [skip, Skip(make_case("other"), skip.reason, "another fix")])
    assert " 2 cases   skipped: needs 2 GPUs, but this host has 0; aiperf show NAME says what it needs" in text_of(
        plan_listing(more)
    )
    assert len(more) == 4
    assert json.loads(document_json(rows))[2]["skip_reason"] == "needs 2 GPUs, but this host has 0"


def test_a_long_list_is_a_screen_of_what_runs_here_first_and_says_how_many_more_there_are() -> None:
    found = [
        Listing(f"s{n:02d}", Path(f"s{n:02d}.yaml"), title="word " * 30, gpus=n % 2, tags=("t",)) for n in range(30)
    ]
    lines = page_lines(list_view(found, most_lines=14).page, width=80)
    assert [line.text.split()[0] for line in lines[1:11]] == [f"s{n:02d}" for n in range(0, 20, 2)]
    assert lines[11].text == " and 20 more: aiperf list WORD, aiperf list --all (with all tags)"
    assert len(lines) == 13
    assert page_lines(list_view(found, gpus=1, most_lines=14).page, width=60)[2].text.startswith(" s01")
    whole = page_lines(list_view(found, most_lines=None).page, width=60)
    assert any(line.text.startswith("Tags:") for line in whole)
    assert sum(line.text.startswith(" s") for line in whole) == 31


def test_a_plan_of_nothing_says_so() -> None:
    assert text_of(plan_listing([])) == "0 cases to measure · nothing to do\n"


def test_the_peaks_are_this_to_the_character() -> None:
    rows = [
        PeakRow("cpu_stream", 21.4e9, "B/s", 0.031, "2026-11-20T18:05:03+00:00", "way copy"),
        PeakRow("mine", 2.1e-6, "s", detail="a floor"),
    ]
    assert text_of(peaks_view(rows, problems=["dram: no GPU"])) == PEAKS
    assert text_of(peaks_view([])) == "No peak of this host has been measured yet: run aiperf peaks.\n"


def test_the_peaks_of_a_known_gpu_are_held_against_its_datasheet_to_the_character() -> None:
    peak = Peak("dram", 4.1e12, "B/s", 4.0e12, 4.1e12, "2026-11-20T18:05:03+00:00", 60, {"way": "copy", "cpus": [0]})
    peak = replace(peak, latest=4.1e12, launches=3, interval_low=4.05e12, interval_high=4.15e12)
    sheet = SheetFigure(4.8e12, "B/s", "NVIDIA H200 Tensor Core GPU Datasheet")
    book = BookClaim(64e9, "B/s", "622", "it is wrong")
    near = peak_row(peak, PeakShare("dram", "H200 SXM", sheet, 4.1 / 4.8))
    slow = Peak("h2d", 2.0e10, "B/s", 1.9e10, 2.0e10, peak.when, 20)
    far = peak_row(slow, PeakShare("h2d", "H200 SXM", sheet, 0.42, book))
    assert text_of(peaks_view([near, far])) == HELD
    assert {line.style for line in lines_of(peaks_view([near, far])) if "FAR" in line.text} == {"yellow"}
    assert max(len(line) for line in text_of(peaks_view([near, far]), width=80).splitlines()) <= 80
    assert json.loads(document_json([far]))[0]["share"] == 0.42


def test_a_peak_that_depends_on_the_size_tells_each_size_in_order() -> None:
    sizes = {"1048576": 3.1e9, "4096": 1.6e8}
    row = peak_row(Peak("all_reduce_gloo", 3.1e9, "B/s", 3.0e9, 3.1e9, "", 60, by_size=sizes))
    text = text_of(peaks_view([row]))
    assert text.splitlines()[-1] == " all_reduce_gloo by size: 4 KiB 160 MB/s, 1 MiB 3.10 GB/s"
    assert json.loads(document_json([row]))[0]["by_size"] == sizes


def test_a_peak_says_in_json_where_its_datasheets_figure_was_read() -> None:
    seen = SheetFigure(
        4.8e12, "B/s", "NVIDIA H200 Datasheet [checked in a third party's copy]", "a copy, read 2026-11-22"
    )
    peak = Peak("dram", 4.1e12, "B/s", 4.0e12, 4.1e12, "", 60)
    row = peak_row(peak, PeakShare("dram", "H200 SXM", seen, 0.85))
    document = json.loads(document_json([row, peak_row(peak)]))
    assert [entry["datasheet_checked"] for entry in document] == ["a copy, read 2026-11-22", ""]
    assert "[checked in a third party's copy]" in " ".join(text_of(peaks_view([row])).split())


def test_the_calibration_is_this_to_the_character() -> None:
    found = CalibrationStatistics(
        beyond_zero=rate(1, 59),
        beyond_threshold=rate(0, 59),
        coverage=rate(58, 59),
        scale=IntervalScale(1.25, 1.02, 1.118, 59),
        noise=SessionNoise(0.002, 0.0031),
        threshold=0.02,
    )
    powers = [Power(0.05, beyond_zero=rate(10, 10), beyond_threshold=rate(9, 10), covered=rate(10, 10))]
    assert text_of(calibration_page(found, powers, name="same-vs-same", mode="process+wall")) == CALIBRATION


def test_few_sessions_say_how_many_would_prove_five_per_cent() -> None:
    found = CalibrationStatistics(
        rate(0, 20), rate(0, 20), rate(20, 20), IntervalScale(1.0, 0.6, 1.0, 20), SessionNoise(0.0, 0.003), 0.02
    )
    text = text_of(calibration_page(found, name="a", mode="b"))
    assert "at most 13.9 % (95 % confidence)" in text
    assert "To show a rate of at most 5 % with 0 false verdicts takes 59 sessions." in text
    assert "× 1.00" not in text.replace("× 1 ", "")


def test_a_scenario_is_explained_to_the_character() -> None:
    assert text_of(scenarios_view([(make_scenario(), ())])) == SCENARIO
    skipped = text_of(scenarios_view([(make_scenario(), ())], lacking={"copy": "needs 1 GPU, but this host has 0"}))
    assert skipped.replace("  Skipped on this host: needs 1 GPU, but this host has 0.\n", "") == SCENARIO != skipped


def test_a_scenario_is_json_with_every_default() -> None:
    document = json.loads(document_json([scenario_plain(make_scenario())]))[0]
    assert (document["lane"], document["cases"], document["needs"]["root"]) == ("gpu", 2, True)
    assert document["axes"] == {"size": ["1MiB", "256MiB"]}


def test_what_is_expected_by_case_is_said_in_the_order_of_the_file() -> None:
    made = make_scenario()
    crossing = replace(made, expect=(Expectation("regressed", {"size": "1MiB"}), Expectation("improved")))
    lines = [line.text for line in page_lines(scenarios_view([(crossing, ())]).page, width=100)]
    assert "  Expected: regressed with size=1MiB, else improved." in lines
    plain = scenario_plain(crossing)["expect"]
    assert plain == [{"verdict": "regressed", "case": {"size": "1MiB"}}, {"verdict": "improved", "case": {}}]
    assert scenario_plain(made)["expect"] == "improved"


def test_the_list_names_where_each_runs_and_what_is_wrong() -> None:
    listings = [
        Listing("a", Path("a.yaml"), "First", ("cpu", "demo")),
        Listing("bcd", Path("b.yaml"), "Second", ("gpu",), gpus=2),
        Listing("c", Path("c.yaml"), "Third", gpu_sizes=True),
        Listing("d", Path("d.yaml"), problem="not UTF-8"),
    ]
    assert text_of(list_view(listings, gpus=2)).splitlines() == [
        " scenario  runs on     title",
        " a         CPU         First",
        " bcd       2 GPUs      Second",
        " c         CPU or GPU  Third",
        " d         –           problem: not UTF-8",
        "",
        "Tags: cpu, demo, gpu",
        "aiperf show NAME explains one; aiperf run NAME or aiperf run TAG measures.",
    ]
    assert text_of(list_view([])) == "No scenario was found.\n"


def test_checks_and_needs_read_as_sentences() -> None:
    assert needs_sentence(Needs()) == "Any host will do."
    assert needs_sentence(Needs(), nodes=2) == "2 nodes."
    assert needs_sentence(Needs(cpus=2), nodes=3) == "3 nodes, each with 2 CPUs."
    assert check_sentence(Check(kind="none", reason="nothing to compare")).endswith("nothing to compare")
    files = Check("none", reason="it prints times.", files=("a", "b"))
    assert check_sentence(files) == (
        "What each run writes to a, b must be equal bit for bit. What the programs print is not compared: it prints "
        "times."
    )
    assert check_sentence(Check("bitwise", files=("a",))) == (
        "What each run writes to a must be equal bit for bit. The outputs of the sides must be equal bit for bit."
    )
    assert "(0.001)" in check_sentence(Check(rtol=1e-3))
    named = check_sentence(Check(kind="named", name="loss", bound=0.1, reason="bf16", reference=True))
    assert "own check loss, at most 0.1." in named
    assert "float64 reference" in named
    assert "by design: bf16" in named


def test_faults_are_sorted_by_line_and_each_has_its_way_out() -> None:
    faults = [
        Fault("a.yaml:10:3", "x is unknown.", "Did you mean y?"),
        Fault("a.yaml:9:1", "z is missing."),
        Fault("", "no GPU\x1b[0m."),
        Fault("a.yaml:9:1", "z is missing."),
    ]
    out = io.StringIO()
    print_faults(UserError(faults), file=out)
    assert out.getvalue().splitlines() == [
        "no GPU.",
        "a.yaml:9:1: z is missing.",
        "a.yaml:10:3: x is unknown.",
        "  Did you mean y?",
    ]


def test_a_place_given_by_line_and_column_sorts_like_one_in_the_text() -> None:
    faults = [Fault("b.yaml", "late", line=12), Fault("b.yaml", "early", line=2), Fault("a.yaml:99:1", "other")]
    assert fault_lines(faults) == ["a.yaml:99:1: other", "b.yaml: early", "b.yaml: late"]
