"""What the host did during a measurement: whose readings, what replaces them where turns are short, where sides ran."""

from __future__ import annotations

from dataclasses import replace
from json import loads
from typing import Any

import pytest
from factory_of_records import make_case, make_pair, make_run, measured, voided

from aiperf.records import CaseRecord, Needs, Pair, Side, SideRun, Watch
from aiperf.report.explain import explain_case
from aiperf.report.explain_host import (
    label,
    meanwhile_sentences,
    placement_sentences,
    rank_sentences,
    reading_cells,
    value_text,
)
from aiperf.report.html.case_view import case_view
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.run_table import run_json


def record_of(*telemetry: dict[str, dict[str, float]], **changes: Any) -> CaseRecord:
    return measured(make_case(), pairs=tuple(make_pair(i, telemetry=t, **changes) for i, t in enumerate(telemetry)))


def with_runs(usage: dict[str, dict[str, float]], facts: dict[str, dict[str, Any]] | None = None) -> CaseRecord:
    runs = tuple(SideRun(s, (1,), None, 0.0, 0, usage=u, facts=(facts or {}).get(s, {})) for s, u in usage.items())
    return record_of({}, {}, runs=runs)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sm_clock_mhz", 1886.0, "SM clock 1886 MHz"),
        ("gpu3_power_w", 512.34, "GPU 3 power 512 W"),
        ("gpu_busy", 0.5, "GPU busy 50 %"),
        ("gpu10_gpu_busy", 0.5, "GPU 10 GPU busy 50 %"),
        ("temperature_c", 61.0, "temperature 61.0 °C"),
        ("cpu_steal", 0.021, "CPU steal 2.1 %"),
        ("nvlink_sent_bytes_per_s", 2.5e9, "NVLink sent 2.50 GB/s"),
        ("page_faults_per_s", 1200.0, "page faults of the machine 1200/s"),
        ("load", 0.25, "load 0.250"),
    ],
)
def test_a_reading_has_its_name_and_unit(name: str, value: float, said: str) -> None:
    assert f"{label(name)} {value_text(name, value)}" == said


def test_readings_of_the_sides_are_medians_over_pairs_with_their_ends() -> None:
    sides = [{"before": {"sm_clock_mhz": c}, "after": {"sm_clock_mhz": 1980.0}, "": {}} for c in (1800, 1900, 1850)]
    assert meanwhile_sentences(record_of(*sides)) == [
        "SM clock: before 1850 MHz (1800 MHz … 1900 MHz), after 1980 MHz."
    ]


def test_programs_get_the_medians_over_the_pairs_that_count_of_each_side_and_of_all_readings() -> None:
    clocks = (1800.0, 1900.0, 1850.0, 500.0)
    pairs = [
        {"after": {"power_w": 1.0}, "before": {"sm_clock_mhz": c}, "warm-up of after": {"load": 9.0}, "": {"load": 0.5}}
        for c in clocks
    ]
    del pairs[0]["after"]
    record = record_of(*pairs)
    hot = replace(voided(3), telemetry=pairs[3])
    record = replace(record, pairs=(*record.pairs[:3], hot))
    told = loads(run_json(make_run(), build_rows([record]), records=[record]))["telemetry"]
    case = record.case.id
    assert told == [
        {"case": case, "mark": "before", "pairs": 3, "readings": {"sm_clock_mhz": 1850.0}},
        {"case": case, "mark": "after", "pairs": 2, "readings": {"power_w": 1.0}},
        {"case": case, "mark": "all readings", "pairs": 3, "readings": {"load": 0.5}},
    ]
    nothing = record_of({}, {})
    assert loads(run_json(make_run(), build_rows([nothing]), records=[nothing]))["telemetry"] == []


def test_where_turns_are_too_short_the_phase_that_was_longest_stands_in_and_is_named() -> None:
    phases = {
        "warm-up of after": {"power_w": 300.0},
        "energy of after": {"power_w": 480.0},
        "energy of before": {"power_w": 512.0},
        "": {"power_w": 250.0},
    }
    seldom = {**phases, "before": {"power_w": 1.0}, "after": {"power_w": 1.0}}
    said = meanwhile_sentences(record_of(phases, seldom, phases))
    assert said[0] == "power: energy of before 512 W, energy of after 480 W."
    assert said[1].startswith("Where no single side is named, turns are shorter")
    one_side = {**phases, "before": {"power_w": 1.0}}
    assert meanwhile_sentences(record_of(one_side, one_side)) == said
    often = record_of(seldom, seldom, phases)
    assert meanwhile_sentences(often) == ["power: before 1.00 W, after 1.00 W."]
    assert meanwhile_sentences(record_of({"": {"power_w": 250.0}}))[0] == "power: all readings 250 W."


def test_the_gpus_of_a_case_are_folded_into_one_line_in_sentences_and_kept_apart_in_the_table() -> None:
    watts = {"gpu0_power_w": 500.0, "gpu1_power_w": 400.0, "gpu10_power_w": 70.0}
    record = record_of(dict.fromkeys(("before", "after"), watts))
    two, one = (replace(record, case=replace(record.case, needs=Needs(gpus=count))) for count in (2, 1))
    assert meanwhile_sentences(two) == ["power: before 450 W, after 450 W."]
    assert meanwhile_sentences(one) == ["power: before 500 W, after 500 W."]
    assert reading_cells(two, ("before", "other")) == [
        ("GPU 0 power", ("500 W", "–")),
        ("GPU 1 power", ("400 W", "–")),
        ("GPU 10 power", ("70.0 W", "–")),
    ]


def test_what_was_0_throughout_is_named_in_one_line() -> None:
    sides = {s: {"cpu_steal": 0.0, "major_faults_per_s": 0.0, "load": 1.0} for s in ("before", "after")}
    said = meanwhile_sentences(record_of(sides))
    assert said == ["load: before 1.00, after 1.00.", "0 in every reading: CPU steal, major faults of the machine."]


def test_what_the_sides_used_is_told_for_one_step() -> None:
    used = {
        "before": {"iterations": 100.0, "minor_faults": 250.0, "major_faults": 0.0, "read_bytes": 0.0, "user_s": 0.2},
        "after": {"iterations": 50.0, "minor_faults": 0.0, "major_faults": 0.0, "read_bytes": 51200.0, "user_s": 0.05},
    }
    record = with_runs(used)
    (said,) = meanwhile_sentences(record)
    assert said == (
        "Used by each side's own processes, per step of its turns: page faults: before 2.50, after 0; "
        "read from block devices: before 0 B, after 1 KiB; user CPU time: before 2.00 ms, after 1.00 ms; "
        "0: major page faults (read from disk)."
    )
    assert ("page faults, a step", ("2.50", "0")) in reading_cells(record, ("before", "after"))
    shown = case_view(make_run(), record, pairs=lambda r: r.pairs)
    assert shown.watched == ("before", "after")
    assert ("page faults, a step", ("2.50", "0")) in shown.telemetry


def test_programs_are_told_by_the_run() -> None:
    sides = (Side("before", command=("true",)), Side("after", command=("true",)))
    record = with_runs({s.name: {"iterations": 2.0, "involuntary_switches": 4.0} for s in sides})
    record = replace(record, case=replace(record.case, sides=sides))
    (said,) = meanwhile_sentences(record)
    assert (
        said == "Used by each side's own processes, per run: preemptions (involuntary context switches): before 2.00, "
        "after 2.00."
    )
    assert reading_cells(record, ("after",)) == [("preemptions (involuntary context switches), a run", ("2.00",))]


def test_what_watching_cost_and_how_warm_it_was_at_the_start_are_told() -> None:
    record = record_of({}, {})
    watches = (Watch(0.002, (2, 3), {}, {"GPU 0": 41.0}), Watch(0.004, (2, 3), {}, {"GPU 0": 47.0}))
    pairs = tuple(replace(p, watch=w) for p, w in zip(record.pairs, watches, strict=True))
    assert meanwhile_sentences(replace(record, pairs=pairs)) == [
        "GPU 0 when a pair began: 44.0 °C (41.0 °C … 47.0 °C).",
        "Sampling took 0.3 % (0.2 % … 0.4 %) of one core, on CPU 2-3.",
    ]


def test_a_record_without_readings_and_pairs_that_do_not_count_say_nothing() -> None:
    assert meanwhile_sentences(measured(make_case())) == []
    hot = replace(voided(1), telemetry={s: {"sm_clock_mhz": 345.0} for s in ("before", "after")})
    assert meanwhile_sentences(measured(make_case(), pairs=(make_pair(0), hot))) == []
    assert "Host activity during the measurement" not in explain_case(make_run(), measured(make_case()))


def test_the_slowest_rank_and_how_each_node_stood_are_told() -> None:
    def pair(index: int, slowest: int, skew: float) -> Pair:
        made = make_pair(index)
        after = replace(made.runs[1], slowest_rank=slowest, skew=skew, node_skew={"n1": 0.9, "n2": skew})
        return replace(made, runs=(made.runs[0], after))

    record = measured(make_case(), pairs=(pair(0, 1, 1.1), pair(1, 3, 1.2), pair(2, 3, 1.3), voided(3)))
    assert rank_sentences(record) == [
        "Slowest rank: after rank 3 in 2 of 3 pairs, 20 % over the median rank.",
        "Each node's slowest rank against the median of all ranks: after n1 −10.0 %, n2 +20.0 %.",
    ]
    assert rank_sentences(measured(make_case())) == []
    run = replace(make_run(), nodes=({"node": "n2"},))
    text = " ".join(explain_case(run, record).split())
    assert "Slowest rank: after rank 3" in text
    assert "It ran on 2 nodes: use --slurm -N 2, or a launcher (--launcher env)." in text
    assert "It ran on" not in explain_case(make_run(), record)


def test_cpus_and_memory_nodes_are_told() -> None:
    facts = {"before": {"memory_nodes": {"0": 1.0}, "threads": 4}, "after": {"memory_nodes": {"0": 0.62, "1": 0.38}}}
    record = with_runs({"before": {}, "after": {}}, facts)
    first, second = (replace(p, cpus=(2, 3, 4, 5)) for p in record.pairs)
    said = placement_sentences(replace(record, pairs=(first, second)))
    assert said == [
        "The sides were bound to CPU 2-5.",
        "Memory pages were on NUMA nodes: before 100 % on 0; after 62 % on 0, 38 % on 1.",
        "Torch's CPU threads: before 4.",
    ]
    moved = placement_sentences(replace(record, pairs=(first, replace(second, cpus=(7,)))))
    assert moved[0] == "The sides were bound to CPU 2-5 in 1 of 2 pairs, CPU 7 in 1 of 2 pairs."
    assert placement_sentences(measured(make_case()))[0] == "The sides were not bound to any CPU."
    assert "The sides were bound to CPU 2-5." in explain_case(make_run(), replace(record, pairs=(first, second)))
