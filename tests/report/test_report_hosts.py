"""A case over hosts as a table, for programs and as a page."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from factory_of_records import make_case, make_comparison, make_result, measured

from aiperf.analysis.over_hosts import over_hosts
from aiperf.analysis.rows import comparison_row
from aiperf.records import RunRecord
from aiperf.report.html.listing_page import hosts_html
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.measured import measured_plain, measured_sentences
from aiperf.report.views.cells import another_text
from aiperf.report.views.hosts_table import host_rows, hosts_view
from aiperf.store.reference import Measurement


def kinds(ratios: dict[str, float], *, name="copy", hostname="n", cpus=()):
    case = make_case(name)
    results = {h: make_result(make_comparison(4.0, 4.0 / r, interval=(r - 0.1, r + 0.1))) for h, r in ratios.items()}
    return over_hosts(
        (
            RunRecord(f"run-{host}", (), "", host=_host(hostname, cpus), host_id=host),
            measured(case, result),
        )
        for host, result in results.items()
    )


def _host(name, cpus):
    return {"hostname": name, "cpu_model": "A CPU", **({"cpus": list(range(cpus))} if cpus else {})}


def printed(ratios: dict[str, float], form=OutputFormat.table, *, named=True) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        print_in(form, hosts_view(kinds(ratios), named=named))
    return out.getvalue()


def test_hosts_that_gave_aiperf_different_numbers_of_cpus_are_kinds_with_names_of_their_own():
    titles = [row.kind for count in (1, 16) for row in host_rows(kinds({"h-1": 2.0}, cpus=count))]
    assert [*dict.fromkeys(titles)] == ["A CPU, no GPU, 1 CPU", "A CPU, no GPU, 16 CPUs"]


def test_each_host_stands_with_its_own_interval_and_the_prediction_below():
    lines = [line.split() for line in printed({"h-1": 2.0, "h-2": 2.1, "h-3": 2.2}).splitlines()]
    assert lines[0] == ["A", "CPU,", "no", "GPU:", "3", "hosts"]
    assert lines[2] == ["copy", "n", "(h-1)", "2.00×", "1.90", "…", "2.10", "improved", "run-h-1"]
    assert [line[:3] for line in lines[3:5]] == [["n", "(h-2)", "2.10×"], ["n", "(h-3)", "2.20×"]]
    assert lines[5][:5] == ["another", "2.10×", "1.66", "…", "2.66"]
    assert lines[5][5:8] == ["3", "hosts,", "spread"]


def test_two_hosts_say_that_a_prediction_is_not_possible():
    assert "another – – not possible: 2 hosts, but 3 are needed –" in " ".join(
        printed({"h-1": 2.0, "h-2": 2.1}).split()
    )


def test_without_a_name_cases_of_one_host_are_only_counted_and_programs_get_all():
    assert "copy" not in printed({"h-1": 2.0}, named=False)
    assert "1 comparison of one host only" in printed({"h-1": 2.0}, named=False)
    rows = json.loads(printed({"h-1": 2.0}, OutputFormat.json, named=False))
    assert [(row["host"], row["ratio"], row["low"]) for row in rows] == [("n", 2.0, 1.9), ("another", None, None)]


def test_the_page_draws_each_host_and_the_band_in_which_another_is_expected():
    page = hosts_html(kinds({"h-1": 2.0, "h-2": 2.1, "h-3": 2.2}), named=True)
    (chart,) = re.findall(r"<svg class=wide.*?</svg>", page)
    assert re.findall(r'<g class="v (\w+)">', chart) == ["improved"] * 3 + ["expected"]
    marks = [int(x) for x in re.findall(r'class="mark" d="M(\d+) ', chart)]
    assert marks[:3] == sorted(set(marks[:3])), "a larger ratio lies further to the right"
    assert abs(marks[3] - marks[1]) <= 1
    ((x, width),) = re.findall(r'class="band" x="(\d+)" y="\d+" width="(\d+)"', chart)
    assert int(x) < marks[0]
    assert int(x) + int(width) > marks[2]
    assert "another 2.10×, 1.66 … 2.66, 3 hosts, spread" in chart
    assert "n (h-2) 2.10×, 2.00 … 2.20, improved" in chart
    assert "<td>1.66 … 2.66</td>" in page


def test_the_page_of_two_hosts_has_no_band_and_says_why():
    page = hosts_html(kinds({"h-1": 2.0, "h-2": 2.1}), named=True)
    assert 'class="band"' not in page.split("<svg", 1)[1]
    assert "not possible: 2 hosts, but 3 are needed</text>" in page
    assert "<svg" not in hosts_html(kinds({"h-1": 2.0}), named=False)


def test_the_page_escapes_what_others_wrote_and_needs_nothing_from_elsewhere():
    found = kinds({"<h-1>": 2.0, "h-2": 2.1}, name="<copy>", hostname="<b>n")
    page = hosts_html(found, named=True, warnings=["<damaged>"])
    assert page.startswith("<!doctype html>")
    assert not re.search(r"<copy>|<b>|<h-1>|<damaged>", page)
    assert all(text in page for text in ("&lt;copy&gt;", "&lt;b&gt;n (&lt;h-1&gt;)", "Warning: &lt;damaged&gt;"))
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert "<script" not in page


def test_what_is_expected_elsewhere_stands_below_the_measurement_and_in_its_numbers():
    ((case,),) = (kind.cases for kind in kinds({"h-1": 2.0, "h-2": 2.1, "h-3": 2.2}))
    newest = case.hosts[-1]
    found = Measurement(
        newest.run, measured(make_case("copy"), newest.result), Path("r"), True, {("after", "before"): case}
    )
    lines = measured_sentences([found], hashes=(), command="aiperf run copy")
    assert lines[2] == "    expected on another host of this kind 1.66 … 2.66× (95 %, from 3 hosts)"
    (plain,) = measured_plain([found], hashes=())
    assert (plain["another_low"], plain["another_high"], plain["hosts"]) == (case.low, case.high, 3)
    (two,) = (kind.cases for kind in kinds({"h-1": 2.0, "h-2": 2.1}))
    row = comparison_row(measured(make_case(), newest.result), newest.result)
    assert another_text(row, two[0]) == another_text(row, None) == ""
    less = replace(row, metric="gpu_memory", unit="B", better="lower")
    assert "this kind −62.4 … −39.6 % (95 %" in another_text(less, case)
