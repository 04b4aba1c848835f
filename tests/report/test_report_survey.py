"""A survey as a table: slow ones first, what is suspected of them, and the line that drains a node."""

from __future__ import annotations

import io
import json
import math
import re
from contextlib import redirect_stdout
from dataclasses import replace

from aiperf.analysis.survey_verdict import SurveyVerdict
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.survey_table import survey_rows, survey_view

NAMES = ("n1", "n2", "n3", "n4")


def judged(metric: str, nodes: tuple[int, ...], word: str, share: float = 0.0) -> SurveyVerdict:
    log = math.log1p(share)
    return SurveyVerdict(metric, nodes, log, log - 0.01, log + 0.01, word)


def printed(found, form=OutputFormat.table, *, on_slurm=True) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        print_in(form, survey_view(survey_rows(found, NAMES), NAMES, on_slurm=on_slurm, about=["4 nodes"]))
    return out.getvalue()


def test_the_part_that_is_suspected_follows_from_what_is_slow():
    found = [
        judged("copy", (0,), "slow", 0.1),
        judged("gemm", (1,), "slow", 0.1),
        judged("all_reduce", (1,), "slow", 0.1),
        judged("all_reduce", (2,), "slow", 0.1),
        judged("gpu_all_reduce", (2,), "slow", 0.1),
        judged("all_reduce", (0, 3), "slow", 0.2),
        judged("gemm", (3,), "ok"),
    ]
    rows = {(row.node, row.metric): row.part for row in survey_rows(found, NAMES)}
    assert rows == {
        ("n1", "copy"): "memory",
        ("n2", "gemm"): "node",
        ("n2", "all_reduce"): "node",
        ("n3", "all_reduce"): "NIC",
        ("n3", "gpu_all_reduce"): "NIC",
        ("n1 – n4", "all_reduce"): "link",
        ("n4", "gemm"): "",
    }


def test_slow_ones_come_first_and_a_node_is_drained_but_not_a_link():
    found = [judged("gemm", (0,), "ok"), judged("gemm", (2,), "slow", 0.1), judged("all_reduce", (0, 1), "slow", 0.2)]
    out = printed(found)
    assert out.index("n3") < out.index("n1   ")
    drain = 'scontrol update nodename=n3 state=drain reason="aiperf survey: gemm +10.0 %"'
    assert [line.strip() for line in out.splitlines() if "scontrol" in line] == [drain]
    assert "scontrol" not in printed(found, on_slurm=False)


def test_the_command_that_drains_a_node_is_one_line_to_copy_however_narrow_the_terminal_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    metrics = ("all_reduce", "copy", "disk", "gemm", "gpu0_gemm", "gpu1_gemm")
    out = printed([judged(metric, (2,), "slow", 0.1) for metric in metrics])
    (drain,) = [line for line in out.splitlines() if "scontrol" in line]
    assert drain.endswith('gpu0_gemm +10.0 %, gpu1_gemm +10.0 %"')
    assert len(drain) > 100


def test_undecided_links_follow_the_nodes_and_the_table_shows_the_slowest_and_counts_the_rest():
    links = [judged("all_reduce", (i, j), "undecided", 0.01 * (4 * i + j)) for i in range(4) for j in range(i)]
    found = [replace(one, reason="spans_threshold") for one in links]
    worst = judged("all_reduce", (0, 9), "undecided", 1.0)
    found += [judged("gemm", (2,), "ok"), replace(worst, reason="parts_disagree")]
    names = [f"n{i}" for i in range(10)]
    rows = survey_rows(found, names)
    out, listed = io.StringIO(), io.StringIO()
    for form, stream in ((OutputFormat.table, out), (OutputFormat.json, listed)):
        with redirect_stdout(stream):
            print_in(form, survey_view(rows, names, on_slurm=True, about=[]))
    shown = [line.split()[:3:2] for line in out.getvalue().splitlines() if re.match(r"n\d – n\d", line.strip())]
    assert shown == [["n0", "n9"], ["n3", "n2"], ["n3", "n1"], ["n3", "n0"], ["n2", "n1"]]
    assert "interval spans threshold" in out.getvalue()
    assert "2 more links undecided" in out.getvalue()
    codes = [(row["node"], row["code"], row["low"] < row["deficit"]) for row in json.loads(listed.getvalue())]
    assert codes[:2] == [("n2", "", True), ("n0 – n9", "parts_disagree", True)]
    assert [code for _, code, _ in codes[2:]] == ["spans_threshold"] * 6
    assert "more link" not in printed(found[:5])


def test_a_node_without_readings_has_no_numbers():
    nothing = SurveyVerdict("gemm", (1,), math.nan, math.nan, math.nan, "unreachable")
    (row,) = json.loads(printed([nothing], OutputFormat.json))
    assert (row["verdict"], row["deficit"]) == ("unreachable", None)


def test_an_interval_that_says_nothing_is_no_number_of_forty_digits():
    vague = SurveyVerdict("gemm", (1,), 0.0, -60.0, 60.0, "undecided")
    assert "too few readings" in printed([vague])
    (row,) = json.loads(printed([vague], OutputFormat.json))
    assert row["high"] > 1e9
