"""github-action-benchmark: its two custom formats, with numbers that may be held against others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from ci_made import every_entry, gate_entries, gate_row, nasty_entry

from aiperf.report.ci.dashboard import FORMAT, render_speedups, render_values

GOLDEN = Path(__file__).parent / "golden_ci"


def rows(text: str) -> dict[str, dict]:
    found = json.loads(text)
    assert len({row["name"] for row in found}) == len(found)
    for row in found:
        assert {"name", "unit", "value", "extra"} <= set(row) <= {"name", "unit", "value", "range", "extra"}
        assert type(row["value"]) is float
        # As the action reads a range: the rest after the sign must be one number.
        assert float(re.fullmatch(r"± (\d.*)", row.get("range", "± 1"))[1]) >= 0
    return {row["name"]: row for row in found}


def test_the_documents_are_these() -> None:
    assert render_values(every_entry()) == (GOLDEN / "dashboard.json").read_text(encoding="utf-8")
    assert render_speedups(every_entry()) == (GOLDEN / "dashboard-speedup.json").read_text(encoding="utf-8")


def test_times_are_in_ms_for_good_and_speedups_are_ratios() -> None:
    name = "pageable-vs-pinned-copy[direction=h2d,size=256MiB]"
    value, speedup = rows(render_values(every_entry()))[name], rows(render_speedups(every_entry()))[name]
    assert (value["value"], value["unit"], value["range"]) == (4.95, "ms", "± 0.0495")
    assert (speedup["value"], speedup["unit"], speedup["range"]) == (3.1, "x", "± 0.05")
    assert value["extra"].splitlines() == [
        "improved", "before 15.3 ms", "after 4.95 ms", "ratio 3.10×, 98.4 % interval 3.05 … 3.13"
    ]  # fmt: skip


def test_one_entry_a_case_and_none_of_what_is_wrong_or_half_done() -> None:
    for text in (render_values(every_entry()), render_speedups(every_entry())):
        names = set(rows(text))
        assert {"slower-now[n=1]", "tip-that-may-help", "naive-vs-tiled: fused vs tiled"} <= names
        assert not {"wrong-output", "hot-host", "cut-short", "time-slicing-vs-mps", "run"} & names
        assert not [name for name in names if "memory" in name]


def test_what_ought_to_grow_is_no_smaller_is_better() -> None:
    entry = next(e for e in every_entry() if e.word == "improved")
    throughput = replace(entry, metrics=(replace(entry.metrics[0], better="higher", unit="items/s"),))
    assert rows(render_values([throughput])) == {}
    assert set(rows(render_speedups([throughput]))) == {entry.name}


def test_a_gate_gives_the_value_of_its_head() -> None:
    (row,) = rows(render_values(gate_entries(gate_row("passed")))).values()
    assert (row["value"], row["unit"], "range" in row) == (1.1, "ms", False)
    assert rows(render_values(gate_entries(gate_row("passed", after=1.9), level="ratio"))) == {}


def test_any_name_is_a_json_text_on_one_line() -> None:
    (name,) = rows(render_values([nasty_entry()]))
    assert "\n" not in name
    assert name.endswith("😀 ]]> \\ end")
    render_values([nasty_entry()]).encode("utf-8")


def test_the_speedups_lie_beside_the_values() -> None:
    assert FORMAT.files(Path("out/bench.json"))["-speedup"] == Path("out/bench-speedup.json")
    assert FORMAT.files(Path("bench"))["-speedup"] == Path("bench-speedup")
