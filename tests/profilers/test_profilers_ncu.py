"""The reader of Nsight Compute reports: recorded ones through NVIDIA's module, and a stand-in for that module."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import pytest
from profilers_made import FIXTURES, SHARED, notes_of

from aiperf.profilers import ncu_read
from aiperf.profilers.arithmetic import INSTRUCTIONS
from aiperf.profilers.ncu_read import ncu_ranges, read_ncu
from aiperf.profilers.reading import Pass, Reading, UnreadableReport

ELAPSED = "avg.pct_of_peak_sustained_elapsed"
BEFORE = Pass("before", 1)


class Metric:
    def __init__(self, value: Any, unit: str = "") -> None:
        self._value, self._unit = value, unit

    def has_value(self) -> bool:
        return self._value is not None

    def value(self) -> Any:
        return self._value

    def unit(self) -> str:
        return self._unit


class Domain:
    def __init__(self, name: str, started: tuple[str, ...], pushed: tuple[str, ...] = ()) -> None:
        self._name, self._started, self._pushed = name, started, pushed

    def name(self) -> str:
        return self._name

    def start_end_ranges(self) -> tuple[str, ...]:
        return self._started

    def push_pop_ranges(self) -> tuple[str, ...]:
        return self._pushed


class State:
    def __init__(self, *domains: Domain | None) -> None:
        self._domains = domains

    def domains(self) -> range:
        return range(len(self._domains))

    def domain_by_id(self, number: int) -> Domain | None:
        return self._domains[number]


class Action:
    """A kernel as ncu_report hands it out."""

    def __init__(
        self, name: str = "k", *, side: str | None = "before", domain: str = "aiperf", kind: int = 0, rule: str = "",
        message: str = "", time: Any = 1000.0, unit: str = "ns", **metrics: Any,
    ) -> None:  # fmt: skip
        self._name, self._side, self._domain, self._kind = name, side, domain, kind
        self._rule = {"title": rule, "message": message}
        self._metrics = {key: Metric(value) for key, value in metrics.items()}
        self._metrics["gpu__time_duration.sum"] = Metric(time, unit)

    def name(self) -> str:
        return self._name

    def workload_type(self) -> int:
        return self._kind

    def nvtx_state(self) -> State | None:
        return (
            None
            if self._side is None
            else State(None, Domain("<default domain>", ()), Domain(self._domain, (self._side,)))
        )

    def metric_by_name(self, name: str) -> Metric | None:
        return self._metrics.get(name)

    def rule_results_as_dicts(self) -> list[dict[str, Any]]:
        return [
            {"rule_identifier": "Other", "rule_message": {"title": "not this"}},
            {"rule_identifier": "SOLBottleneck", "rule_message": self._rule},
        ]


def told(
    monkeypatch: pytest.MonkeyPatch, *actions: Action, launched: tuple[Pass, ...] = (BEFORE,), **more: Any
) -> Reading:
    class Module:
        @staticmethod
        def load_report(path: str) -> list[list[Action]]:
            return [[action] for action in actions]

    monkeypatch.setattr(ncu_read, "_library", lambda extras: Module)
    return read_ncu(Path("r.ncu-rep"), launched, **more)


# ---- through NVIDIA's module -----------------------------------------------------------------------------------------


def test_a_range_replayed_as_a_whole_is_one_row_without_a_class():
    reading = read_ncu(FIXTURES / "r_range.ncu-rep", [Pass("gemm", 1)])
    (row,) = reading.rows
    assert (row.side, row.kind, row.name, row.count, row.device) == ("gemm", "range", "range", 1, 0)
    assert row.time_s == pytest.approx(7336.256e-6)
    assert row.bytes == pytest.approx(6.3956e9, rel=1e-4)
    assert row.sm_pct == pytest.approx(87.29, abs=0.01)
    assert (row.dram_pct, row.memory_pct, row.occupancy_pct, row.bound) == (None, None, None, "")
    assert row.why == "no memory counters (SM 87 %)"
    assert notes_of(reading) == ()


def test_a_report_of_another_side_gives_no_row_and_two_notes():
    reading = read_ncu(FIXTURES / "r_range.ncu-rep", [Pass("mem", 1)])
    assert reading.rows == ()
    assert notes_of(reading) == ("ncu profiled no kernel of mem", "kernels outside every side's range: 1")


def test_a_domain_of_another_name_is_not_the_sides():
    assert read_ncu(FIXTURES / "r_range.ncu-rep", [Pass("gemm", 1, domain="mine")]).rows == ()
    assert len(read_ncu(FIXTURES / "r_range.ncu-rep", [Pass("gemm", 1, domain="")]).rows) == 1


WHOLE = (FIXTURES / "r_range.ncu-rep").read_bytes()


@pytest.mark.parametrize("data", [b"", b"garbage" * 100, WHOLE[: len(WHOLE) // 2]])
def test_a_file_that_the_module_loads_without_complaint_but_without_a_kernel_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "r.ncu-rep"
    path.write_bytes(data)
    with pytest.raises(UnreadableReport, match=r"r\.ncu-rep has no kernel: it is cut short, or not a report of ncu"):
        read_ncu(path, [BEFORE])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UnreadableReport, match=r"r\.ncu-rep is not a report that ncu_report reads"):
        read_ncu(tmp_path / "r.ncu-rep", [BEFORE])


def test_kernels_of_an_h200_are_classed_by_the_level_that_limits_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The real report (77 MB) where it is at hand, else the figures that it holds."""
    whole = SHARED / "h200_a.ncu-rep.gz"
    launched = tuple(Pass(name, 1) for name in ("mem", "strided", "gemm"))
    if whole.is_file():
        print("the recorded report")
        path = tmp_path / "a.ncu-rep"
        path.write_bytes(gzip.decompress(whole.read_bytes()))
        reading = read_ncu(path, launched)
    else:
        print("the recorded figures")
        reading = told(monkeypatch, *h200(), launched=launched)
    rows = {row.side: row for row in reading.rows}
    assert (rows["mem"].bound, rows["mem"].why) == ("memory", "DRAM 88 %, SM 8 %")
    assert rows["mem"].sector_use_pct == pytest.approx(100.0)
    assert rows["strided"].bound == "memory"
    assert rows["strided"].why == "L2 97 %, SM 20 %; uncoalesced: 12.5 % of each sector used"
    assert rows["strided"].sector_use_pct == 12.5
    assert (rows["gemm"].bound, rows["gemm"].why) == ("compute", "tensor pipe 93 %, DRAM 19 %")
    assert rows["gemm"].sector_use_pct is None
    assert [row.count for row in reading.rows] == [5, 5, 5]
    assert rows["gemm"].tool_says.startswith("High Throughput: This workload is utilizing greater than 80.0% of ")
    assert rows["gemm"].tool_says.endswith(" Start by analyzing L1 in the Memory Workload Analysis section.")
    # The same bytes from DRAM: they do not show coalescing.
    assert rows["strided"].bytes == pytest.approx(rows["mem"].bytes, rel=0.01)
    assert rows["mem"].median_s == pytest.approx(0.4999e-3, rel=0.01)


def h200() -> list[Action]:
    """Five launches each of three kernels, as recorded."""
    figures = {
        "mem": (88.25, 8.1, 88.25, 0.0, 91.99, 29.2, 100.0, 2.123e9, 499_872.0),
        "strided": (24.18, 19.76, 97.15, 0.88, 97.15, 62.08, 12.5, 2.133e9, 1_833_632.0),
        "gemm": (19.16, 93.39, 94.56, 93.39, 48.62, 94.56, 0.0, 1.277e9, 1_384_416.0),
    }
    return [
        Action(
            side, side=side, time=time, rule="High Throughput",
            message="This workload is utilizing greater than 80.0% of the available performance.  Start by "
            "analyzing L1 in the @section:MemoryWorkloadAnalysis:Memory Workload Analysis@ section.",
            **{
                f"dram__throughput.{ELAPSED}": dram, f"sm__throughput.{ELAPSED}": sm, "dram__bytes.sum": moved,
                f"gpu__compute_memory_throughput.{ELAPSED}": memory, f"sm__pipe_tensor_cycles_active.{ELAPSED}": tensor,
                f"lts__throughput.{ELAPSED}": l2, f"l1tex__throughput.{ELAPSED}": l1,
                "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": sectors,
            },
        )
        for side, (dram, sm, memory, tensor, l2, l1, sectors, moved, time) in figures.items()
        for _ in range(5)
    ]  # fmt: skip


# ---- through the stand-in --------------------------------------------------------------------------------------------


def test_launches_of_one_kernel_are_one_row_times_added_and_counters_averaged(monkeypatch: pytest.MonkeyPatch):
    metric = f"sm__throughput.{ELAPSED}"
    one = Action(time=1000.0, **{metric: 10.0, "dram__bytes.sum": 100.0, "sm__inst_executed.sum": 4.0})
    two = Action(time=3000.0, **{metric: 30.0, "dram__bytes.sum": 500.0})
    (row,) = told(monkeypatch, one, two).rows
    assert (row.count, row.time_s, row.median_s) == (2, pytest.approx(4e-6), pytest.approx(2e-6))
    assert (row.sm_pct, row.bytes, row.metrics) == (20.0, 600.0, {"sm__inst_executed.sum": 4.0})


def test_what_was_not_collected_or_is_no_number_is_none_and_never_zero(monkeypatch: pytest.MonkeyPatch):
    (row,) = told(
        monkeypatch,
        Action(
            time=None,
            **{f"sm__throughput.{ELAPSED}": float("nan"), "dram__bytes.sum": None, "sm__inst_executed.sum": "x"},
        ),
    ).rows
    assert (row.time_s, row.median_s, row.sm_pct, row.bytes, row.bytes_per_s) == (None,) * 5
    assert (row.dram_pct, row.tensor_pct, row.waves, row.grid, row.device) == (None,) * 5
    assert (row.metrics, row.bound, row.why) == ({}, "", "no throughput counters")


ADDS = {name: 4.0 if "_op_fadd_" in name else 0.0 for name in INSTRUCTIONS}


def test_operations_of_a_launch_are_worked_out_where_their_counters_are_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
):
    idle = {f"sm__pipe_tensor_cycles_active.{ELAPSED}": 0.0}
    one, two = Action(**ADDS, **idle), Action(**{**ADDS, **dict.fromkeys(ADDS, 1.0)}, **idle)
    (row,) = told(monkeypatch, one, two).rows
    # Each instruction once: three sorts of 1 and 1 and 2, the halves twofold.
    assert row.metrics == {"flops": (4.0 + 16.0) / 2}
    (bare,) = told(monkeypatch, Action(**idle)).rows
    assert "flops" not in bare.metrics


def test_metrics_that_a_case_claims_of_are_read_beside_those_of_every_case(monkeypatch: pytest.MonkeyPatch):
    figures = {"lts__t_sectors_op_read.sum": 8.0, "l1tex__other.sum": 1.0, "sm__inst_executed.sum": 4.0}
    claimed = ("lts__t_sectors_op_read.sum", "smsp__not_collected.sum")
    (row,) = told(monkeypatch, Action(**figures), claimed=claimed).rows
    assert row.metrics == {"lts__t_sectors_op_read.sum": 8.0, "sm__inst_executed.sum": 4.0}


@pytest.mark.parametrize(
    ("title", "message", "says"),
    [
        ("", "Something.", ""),
        ("High Throughput", "", "High Throughput"),
        ("Small Grid", "Look at\n@url:the guide:https://docs/x.html#a@ and @section:LaunchStats:Launch Statistics@.",
         "Small Grid: Look at the guide and Launch Statistics."),
    ],
)  # fmt: skip
def test_nvidias_own_words_are_kept_without_their_links(
    monkeypatch: pytest.MonkeyPatch, title: str, message: str, says: str
):
    assert told(monkeypatch, Action(rule=title, message=message)).rows[0].tool_says == says


@pytest.mark.parametrize(
    ("unit", "seconds"), [("ns", 2e-9), ("us", 2e-6), ("msecond", 2e-3), ("second", 2.0), ("", 2e-9), ("cycle", None)]
)
def test_times_come_in_any_unit(monkeypatch: pytest.MonkeyPatch, unit: str, seconds: float | None):
    (row,) = told(monkeypatch, Action(time=2.0, unit=unit)).rows
    assert row.time_s == (None if seconds is None else pytest.approx(seconds))


def test_a_metrics_second_name_stands_in_for_the_first(monkeypatch: pytest.MonkeyPatch):
    (row,) = told(monkeypatch, Action(**{f"gpu__dram_throughput.{ELAPSED}": 37.2})).rows
    assert row.dram_pct == 37.2


def test_a_report_without_ranges_is_the_only_sides_and_nobodys_when_there_are_two(monkeypatch: pytest.MonkeyPatch):
    assert len(told(monkeypatch, Action(side=None)).rows) == 1
    two = told(monkeypatch, Action(side=None), launched=(BEFORE, Pass("after", 1)))
    assert two.rows == ()
    assert notes_of(two)[-1] == "kernels outside every side's range: 1"


def test_a_step_of_a_ladder_is_found_under_the_name_that_the_worker_makes_of_it(monkeypatch: pytest.MonkeyPatch):
    reading = told(monkeypatch, Action(side="warp_v2"), Action(side=None), launched=(Pass("Warp.v2", 1),))
    assert [(row.side, row.count) for row in reading.rows] == [("Warp.v2", 2)]
    assert notes_of(reading) == ()
    assert told(monkeypatch, Action(side="My Range"), launched=(Pass("My Range", 1),)).rows[0].side == "My Range"


def test_collectives_are_told_from_other_kernels(monkeypatch: pytest.MonkeyPatch):
    assert told(monkeypatch, Action("ncclDevKernel_AllReduce")).rows[0].kind == "collective"


def test_the_longest_kernel_comes_first_and_devices_are_kept_apart(monkeypatch: pytest.MonkeyPatch):
    rows = told(monkeypatch, Action("a"), Action("b", time=9000.0), Action("a", **{"launch__device_id": 1})).rows
    assert [(row.name, row.device) for row in rows] == [("b", None), ("a", None), ("a", 1)]


def test_without_the_module_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    for extras in (None, tmp_path):
        with pytest.raises(UnreadableReport, match=r"pip install 'aiperf-ab\[profile\]'"):
            read_ncu(FIXTURES / "r_range.ncu-rep", [BEFORE], extras=extras)


def test_the_module_of_nsight_compute_itself_is_used_when_none_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "ncu_report.py").write_text("def load_report(path):\n    raise RuntimeError('read by ' + __file__)\n")
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    here = sys.path[:]
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "site-packages" not in place])
    with pytest.raises(UnreadableReport, match=f"read by {tmp_path}"):
        read_ncu(FIXTURES / "r_range.ncu-rep", [BEFORE], extras=tmp_path)
    assert str(tmp_path) not in sys.path
    sys.modules.pop("ncu_report", None)  # by hand: monkeypatch would put this one back
    sys.path[:] = here
    (tmp_path / "ncu_report.py").write_text("import no_such_library_of_ncu\n")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "site-packages" not in place])
    with pytest.raises(UnreadableReport, match=f"the ncu_report of {tmp_path} cannot be imported"):
        read_ncu(FIXTURES / "r_range.ncu-rep", [BEFORE], extras=tmp_path)


def test_the_ranges_that_hold_kernels_are_listed():
    assert ncu_ranges(FIXTURES / "r_range.ncu-rep", "aiperf") == ("gemm",)
    assert ncu_ranges(FIXTURES / "r_range.ncu-rep", "other") == ()


def test_ranges_of_what_is_not_there_are_refused(tmp_path: Path):
    with pytest.raises(UnreadableReport, match="is not a report that ncu_report reads"):
        ncu_ranges(tmp_path / "r.ncu-rep", "aiperf")
