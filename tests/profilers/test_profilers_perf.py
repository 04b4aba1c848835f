"""What perf counted and sampled, in the words that perf 6.1 printed on a virtual machine and on a real one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from profilers_made import host, notes_of

from aiperf.profilers.perf import PERF_EVENTS
from aiperf.profilers.perf_read import counted, hot_spots, read_samples, read_stat
from aiperf.profilers.reading import Pass
from aiperf.profilers.registry import statuses
from aiperf.records.profiled import HotSpot

BEFORE = Pass("before", 4)
VIRTUAL = """# started on Fri Nov 21 18:56:01 2025

23.40;msec;task-clock;23400513;100.00;0.981;CPUs utilized
5;;context-switches:u;23400513;100.00;213.671;/sec
<not supported>;;cycles;0;100.00;;
<not counted>;;instructions;0;0.00;;
nan;;branches;0;0.00;;
0;;cpu-migrations;23400513;100.00;0.000;/sec
"""
REPORT = """
    54.10%  libpython3.11.so.1.0  [.] _PyEval_EvalFrameDefault              -      -
     9.75%  [kernel.kallsyms]     [k] clear_page_erms
    11.00%  libtorch_cpu.so       [.] at::native::add(at::Tensor const&, long)
     0.60%  [unknown]             [u] 0x00007f                              -      -
Warning: something else
"""


def test_events_are_counted_and_those_that_this_host_cannot_count_are_named_and_never_zero():
    told = counted(VIRTUAL)
    assert dict(told.events) == {"task-clock": 23.40, "context-switches": 5.0, "cpu-migrations": 0.0}
    assert told.unreadable == ("cycles", "instructions", "branches")


def test_a_row_holds_events_of_one_iteration_and_the_time_of_all():
    reading = read_stat(VIRTUAL, BEFORE)
    (row,) = reading.rows
    assert (row.side, row.tool, row.kind, row.count) == ("before", "perf", "range", 4)
    assert row.time_s == pytest.approx(0.0234)
    assert row.metrics["context-switches"] == 1.25
    assert "cycles" not in row.metrics
    assert notes_of(reading) == ("perf cannot count cycles, instructions, branches on this host",)


@pytest.mark.parametrize("text", ["", "# started on Fri\n", "perf: command not found", "\x00\xff;;"])
def test_nothing_counted_is_a_note_and_no_row(text: str):
    reading = read_stat(text, BEFORE)
    assert (reading.rows, notes_of(reading)) == ((), ("perf counted nothing of before",))


def test_only_events_that_could_not_be_counted_are_a_note_and_no_row():
    reading = read_stat("<not supported>;;cycles;0;100.00;;\n", BEFORE)
    assert reading.rows == ()
    assert notes_of(reading) == ("perf cannot count cycles on this host", "perf counted nothing of before")


def test_without_the_clock_there_is_no_time():
    assert read_stat("5;;page-faults;1;100.00;;\n", BEFORE).rows[0].time_s is None


def test_hot_spots_come_with_their_library_the_hottest_first():
    assert hot_spots(REPORT) == (
        HotSpot("_PyEval_EvalFrameDefault (libpython3.11.so.1.0)", 0.541),
        HotSpot("at::native::add(at::Tensor const&, long) (libtorch_cpu.so)", 0.11),
        HotSpot("clear_page_erms ([kernel.kallsyms])", 0.0975),
        HotSpot("0x00007f ([unknown])", 0.006),
    )
    (side,) = read_samples(REPORT, BEFORE).sides
    assert (side.side, side.tool, side.iterations, side.wall_s, side.bound) == ("before", "perf", 4, None, "")


def test_no_more_than_ten_hot_spots_are_kept():
    assert len(hot_spots("\n".join(f"  {n}.00%  lib  [.] f{n}" for n in range(1, 15)))) == 10


@pytest.mark.parametrize(("header", "lost"), [
    ("# Total Lost Samples: 0\n#\n", ""),
    ("# Total Lost Samples: 42\n#\n# Samples: 9 of event 'cpu-clock:u'\n", "42 samples were lost"),
    ("# Total Lost Samples: 2\n#\n# Total Lost Samples: 3\n", "5 samples were lost"),
    ("", ""),
])  # fmt: skip
def test_lost_samples_are_told_where_the_report_counts_them(header: str, lost: str):
    (side,) = read_samples(header + REPORT, BEFORE).sides
    assert (side.lost, len(side.hot)) == (lost, 4)


def test_no_samples_are_a_note():
    assert notes_of(read_samples("", BEFORE)) == ("perf sampled nothing of before",)


def test_what_perf_prints_here_is_read(tmp_path: Path):
    """With perf itself where it may be used, else with what it said."""
    perf = next(status for status in statuses(host(gpu=False)) if status.tool == "perf")
    if perf.usable and perf.found is not None:
        print("the real perf")
        events = [word for event in PERF_EVENTS for word in ("-e", event)]
        output = tmp_path / "stat"
        argv = [
            str(perf.found.path),
            "stat",
            "-x",
            ";",
            "--no-big-num",
            "-o",
            str(output),
            *events,
            "--",
            "sleep",
            "0.05",
        ]
        subprocess.run(argv, check=True, capture_output=True)
        told = counted(output.read_text(encoding="utf-8"))
        assert told.events["context-switches"] >= 1
        assert set(told.events) | set(told.unreadable) == set(PERF_EVENTS)
    else:
        print("perf cannot be used here")
        assert perf.reason
        assert counted(VIRTUAL).events
