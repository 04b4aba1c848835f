"""What ``aiperf doctor`` prints: findings worst first, counts, the checklist, differences; to the character."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from printed import document_of, lines_of, markdown_of, text_of

from aiperf.host.checklist_status import ItemStatus
from aiperf.host.host_report import HostReport, differences
from aiperf.host.probes.probe import Finding
from aiperf.report.layout.formats import Printed
from aiperf.report.views.checklist_table import checklist_view, said, totals
from aiperf.report.views.doctor_table import difference_view, report_view

NO_GPU = "there is no GPU here: no NVML library (libnvidia-ml.so.1)"


def row(id_: str, level: str, value: str = "", **more: object) -> Finding:
    fields = {
        "group": "CPU", "title": id_.title(), "where": f"/proc/{id_}", "reason": "", "good": "low",
        "why": "It costs time.", "fix": "", "book": "Operating Systems, line 7", "steady": True, **more,
    }  # fmt: skip
    return Finding(id=id_, level=level, value=value, **fields)  # type: ignore[arg-type]


ROWS = (
    row("swap", "warn", "on | 1 GiB", group="memory", fix="sudo swapoff -a"),
    row("heat", "unfit", "93 °C", group="GPU", reason="it is slow", fix="let it cool down"),
    row("governor", "unreadable", reason="there is no governor", fix="sudo cat /proc/governor"),
    row("load", "ok", "0.1", steady=False),
    row("mig", "absent", group="GPU", reason=NO_GPU),
    row("ecc", "absent", group="GPU", reason=NO_GPU),
)
HOST = {"hostname": "gpu-07", "system": "Linux 6.8", "cpu": "2 × AMD EPYC", "gpu": f"none: {NO_GPU}"}
REPORT = HostReport("2026-11-20T18:05:03+00:00", HOST, ROWS, 0.52)
TABLE = """\
host gpu-07 · 2 × AMD EPYC · no GPU: there is no GPU here: no NVML library (libnvidia-ml.so.1)
Linux 6.8

 unfit  Heat (heat, GPU)
        read   93 °C (it is slow), from /proc/heat
        good   low
        why    It costs time. (book: Operating Systems, line 7)
        fix    let it cool down

 warn   Swap (swap, memory)
        read   on | 1 GiB, from /proc/swap
        good   low
        why    It costs time. (book: Operating Systems, line 7)
        fix    sudo swapoff -a

 Governor (governor): unreadable because there is no governor
        try    sudo cat /proc/governor

 unfit  warn  unreadable  ok  absent  group
     0     0           1   1       0  CPU
     0     1           0   0       0  memory
     1     0           0   0       2  GPU

6 probes: 1 unfit · 1 warn · 1 unreadable · 1 ok · 2 absent · 520 ms
aiperf doctor --all shows every probe, --checklist the whole checklist of the book.
"""
REST = """\
 Load (load): ok: 0.1
        from   /proc/load
        good   low

 absent because there is no GPU here: no NVML library (libnvidia-ml.so.1): mig, ecc
"""
MARKDOWN = """\
## aiperf doctor

host gpu-07 · 2 × AMD EPYC · no GPU: there is no GPU here: no NVML library (libnvidia-ml.so.1)  
Linux 6.8  

| verdict | group | probe | read | from | good | why | book | fix |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| unfit | GPU | heat | 93 °C (it is slow) | /proc/heat | low | It costs time. | Operating Systems, line 7 | let it cool down |
| warn | memory | swap | on \\| 1 GiB | /proc/swap | low | It costs time. | Operating Systems, line 7 | sudo swapoff -a |
| unreadable | CPU | governor | unreadable because there is no governor | /proc/governor | low | It costs time. | Operating Systems, line 7 | sudo cat /proc/governor |

**6 probes: 1 unfit · 1 warn · 1 unreadable · 1 ok · 2 absent · 520 ms**
"""  # noqa: E501, W291
DIFFERENCE = """\
before 2026-11-20T18:05:03+00:00 · gpu-07 · 2 × AMD EPYC · no GPU: there is no GPU here: no NVML
        library (libnvidia-ml.so.1)
after 2026-11-21T18:05:03+00:00 · gpu-08

 Swap (swap, memory)
        before warn: on | 1 GiB
        after  ok: off
 Governor (governor, CPU)
        before unreadable because there is no governor
        after  warn: powersave
        fix    cpupower

2 of 6 probes differ; loads, temperatures and rates count only when their verdict changed.
"""
STEPS = (
    ItemStatus("swap", "Operating Systems", "Swap off", "7", "probe", "warn", "on", "swap-allowed-vs-no-swap"),
    ItemStatus("thp", "Operating Systems", "Huge pages", "8", "probe", "ok", "madvise", "small-vs-thp", ("pages",)),
    ItemStatus("mig", "Operating Systems", "MIG", "9", "probe", "absent", NO_GPU),
    ItemStatus(
        "copy", "Moving data", "Pin buffers", "10", "scenario", pair="pageable-vs-pinned", scenarios=("copy-1",)
    ),
    ItemStatus("pack", "Moving data", "Pack files", "11", "scenario", pair="many-vs-packed"),
    ItemStatus("care", "Moving data", "Care", "12", "process", said="Do you care?"),
)
CHECKLIST = """\
Operating Systems
 warn       Swap off (swap, line 7)
            on
            no scenario yet: swap-allowed-vs-no-swap
 ok         Huge pages (thp, line 8)
            madvise
            aiperf run pages
 absent     MIG (mig, line 9)
            absent because there is no GPU here: no NVML library (libnvidia-ml.so.1)

Moving data
 run        Pin buffers (copy, line 10)
            aiperf run copy-1
 run        Pack files (pack, line 11)
            no scenario yet: many-vs-packed
 team       Do you care? (care, line 12)

 ok  not ok  unknown  run  team  section
  1       1        1    0     0  Operating Systems
  0       0        0    2     1  Moving data

6 items: 3 for probes, 2 verified here (1 warn, 1 ok, 1 absent); 2 for scenarios, 1 of them shipped;
1 for the team.
"""


def viewed(report: HostReport, *, every: bool = False) -> Printed:
    return report_view(report, every=every, json=str)


def changed() -> HostReport:
    rows = list(ROWS)
    rows[0] = replace(rows[0], level="ok", value="off", fix="")
    rows[2] = replace(rows[2], level="warn", value="powersave", reason="", fix="cpupower")
    rows[3] = replace(rows[3], value="0.2")
    return HostReport("2026-11-21T18:05:03+00:00", {"hostname": "gpu-08"}, tuple(rows), 0.5)


def test_the_table_shows_what_is_wrong_worst_first_with_its_fix() -> None:
    assert text_of(viewed(REPORT)) == TABLE


def test_all_adds_what_is_good_and_what_does_not_apply_by_reason() -> None:
    text = text_of(viewed(REPORT, every=True))
    assert REST in text
    assert "        from   /proc/governor\n" in text
    assert "--all" not in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_table_fits_its_width(width) -> None:
    long = replace(ROWS[0], value="word " * 60, fix="x" * 150)
    checkup = replace(REPORT, findings=(*ROWS, replace(long, id="long")))
    changes = differences(REPORT, changed())
    for lines in (
        lines_of(viewed(checkup, every=True), width=width),
        lines_of(difference_view(checkup, changed(), changes), width=width),
    ):
        assert max(len(line.text) for line in lines) <= width
    assert max(len(line.text) for line in lines_of(checklist_view(STEPS), width=width)) <= max(width, 61)


def test_markdown_holds_the_findings_and_all_of_them_when_asked() -> None:
    assert markdown_of(viewed(REPORT)) == MARKDOWN
    assert markdown_of(viewed(REPORT, every=True)).count("\n| ") == len(ROWS) + 2


def test_a_difference_lists_only_what_changed() -> None:
    changes = differences(REPORT, changed())
    assert text_of(difference_view(REPORT, changed(), changes)) == DIFFERENCE
    view = difference_view(REPORT, changed(), changes)
    assert [entry["id"] for entry in json.loads(document_of(view.json()))] == ["swap", "governor"]
    text = markdown_of(view)
    assert "| CPU | governor | unreadable because there is no governor | warn: powersave | cpupower |" in text


def test_no_difference_is_said_in_one_line() -> None:
    lines = lines_of(difference_view(REPORT, REPORT, ()))
    assert lines[-1].text.startswith("0 of 6 probes differ")


def test_a_probe_that_one_of_two_checkups_lacks_is_not_probed_there() -> None:
    part = replace(REPORT, findings=ROWS[1:])
    text = text_of(difference_view(part, REPORT, differences(part, REPORT)))
    assert "        before not probed\n        after  warn: on | 1 GiB\n" in text


def test_an_item_without_a_scenario_names_what_comes_close() -> None:
    step = ItemStatus(
        "pack", "Storage", "Pack files", "11", "scenario", pair="many-vs-packed", see=("a-vs-b", "c-vs-d")
    )
    told = "no scenario yet for many-vs-packed; close to it: aiperf run a-vs-b c-vs-d"
    assert said(step) == [told]
    assert f"            {told}\n" in text_of(checklist_view([step]))
    assert "1 for scenarios, 0 of them shipped, 1 by one that comes close" in totals([step])


def test_the_checklist_shows_a_verdict_a_scenario_or_a_question() -> None:
    assert text_of(checklist_view(STEPS)) == CHECKLIST
    text = markdown_of(checklist_view(STEPS))
    assert "| run | Pack files (pack) | 11 | no scenario yet: many-vs-packed |" in text
    assert "| team | Care (care) | 12 | Do you care? |" in text
    assert totals(STEPS) in text
