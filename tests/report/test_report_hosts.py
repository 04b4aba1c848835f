"""A case over hosts as a table and for programs."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout

from factory_of_records import make_case, make_comparison, make_result, measured

from aiperf.analysis.over_hosts import over_hosts
from aiperf.records import RunRecord
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.hosts_table import hosts_view


def printed(ratios: dict[str, float], form=OutputFormat.table, *, named=True) -> str:
    case = make_case("copy")
    results = {h: make_result(make_comparison(4.0, 4.0 / r, interval=(r - 0.1, r + 0.1))) for h, r in ratios.items()}
    found = over_hosts(
        (
            RunRecord(f"run-{host}", (), "", host={"hostname": "n", "cpu_model": "A CPU"}, host_id=host),
            measured(case, result),
        )
        for host, result in results.items()
    )
    out = io.StringIO()
    with redirect_stdout(out):
        print_in(form, hosts_view(found, named=named))
    return out.getvalue()


def test_each_host_stands_with_its_own_interval_and_the_prediction_below():
    lines = [line.split() for line in printed({"h-1": 2.0, "h-2": 2.1, "h-3": 2.2}).splitlines()]
    assert lines[0] == ["A", "CPU,", "no", "GPU:", "3", "hosts"]
    assert lines[2] == ["copy", "n", "(h-1)", "2.00×", "1.90", "…", "2.10", "improved", "run-h-1"]
    assert [line[:3] for line in lines[3:5]] == [["n", "(h-2)", "2.10×"], ["n", "(h-3)", "2.20×"]]
    assert lines[5][:5] == ["another", "2.10×", "1.66", "…", "2.66"]
    assert lines[5][5:8] == ["3", "hosts,", "spread"]


def test_two_hosts_say_that_a_prediction_is_not_possible():
    assert "another – – not possible: 2 hosts, 3 are needed –" in " ".join(printed({"h-1": 2.0, "h-2": 2.1}).split())


def test_without_a_name_cases_of_one_host_are_only_counted_and_programs_get_all():
    assert "copy" not in printed({"h-1": 2.0}, named=False)
    assert "1 comparison of one host only" in printed({"h-1": 2.0}, named=False)
    rows = json.loads(printed({"h-1": 2.0}, OutputFormat.json, named=False))
    assert [(row["host"], row["ratio"], row["low"]) for row in rows] == [("n", 2.0, 1.9), ("another", None, None)]
