"""Columns on demand: what a reader sees of energy, cost and goodput, and the reasons where there is none."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from factory_of_records import make_case, make_comparison, make_pair, make_result, make_run, measured
from printed import lines_of, markdown_of, text_of

from aiperf.errors import UserError
from aiperf.plan.costs import Prices
from aiperf.records import EnergyReading, Limit, Needs, ProgramMetric, SideRun, Warmup
from aiperf.report.views.extra_columns import build_extras, chosen_columns, format_si
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.run_table import extra_paragraphs, run_csv, run_json, run_page

PRICES = Prices("mine.yaml", "EUR", "our invoice", "2026-03-01", gpu_hour=3.6)
READING = EnergyReading(
    "NVML, GPU 0", windows=4, updates=52, seconds=5.0, joules=2000.0, iterations=1000, run_seconds=8.0,
    idle_watts=100.0, limit_watts=700.0,
)  # fmt: skip


def record(*, items=2000.0, energy=True, after=READING, ratio=True, **changes):
    work = {"items": items, "item": "tokens"}
    runs = tuple(SideRun(s, (1,), Warmup(20, 0.5, 0.2, True, "steady"), 0.1, 3, work=work) for s in ("before", "after"))
    readings = {"before": READING, "after": after} if energy else {}
    pairs = tuple(make_pair(i, runs=runs, energy=readings) for i in range(2))
    results = [make_result(make_comparison(8e-3, 4e-3, interval=(1.9, 2.1)))]
    if energy and ratio:
        found = make_comparison(3.2, 2.56, interval=(1.24, 1.26), ratio=1.25, metric="energy", unit="J")
        results.append(make_result(found, primary=False))
    case = make_case("tokens-a-second", needs=Needs(gpus=1))
    return measured(case, *results, pairs=pairs, limits=(Limit("after", "dram", 4e12, "B/s", 0.61),), **changes)


def extras_of(found, *wanted, prices=PRICES):
    return build_extras([found], wanted, prices=prices, pairs_of=lambda r: r.pairs)


def shown(found, *wanted, width=160, **more):
    return text_of(extra_paragraphs(extras_of(found, *wanted, **more)), width=width)


def test_energy_is_told_a_side_with_its_ratio_and_its_source() -> None:
    halved = replace(READING, joules=1600.0)
    lines = [line.split() for line in shown(record(after=halved), "energy").splitlines() if line.strip()]
    assert lines[1] == ["tokens-a-second", "before", "3.20", "J", "2.40", "J", "1.60", "mJ", "625", "400", "W"]
    after = " ".join(lines[2])
    assert after.startswith("tokens-a-second after 2.56 J 1.76 J 1.28 mJ 781 320 W before / after 1.25×")
    assert after.endswith("[1.24 … 1.26], improved")
    assert "Source: NVML, GPU 0." in " ".join(" ".join(line) for line in lines)


def test_energy_of_a_case_with_cold_caches_says_that_nothing_is_flushed_in_its_windows() -> None:
    cold = record()
    cold = replace(cold, case=replace(cold.case, measure=replace(cold.case.measure, cache="cold")))
    assert "energy is with warm caches" in " ".join(shown(cold, "energy").split())
    assert "warm caches" not in shown(record(), "energy")


def test_energy_says_how_warm_the_windows_of_each_side_began() -> None:
    warm = record(after=replace(READING, temperatures=(47.0, 51.2)))
    assert "Windows began at these temperatures: after 47 to 51 °C." in " ".join(shown(warm, "energy").split())
    assert "temperatures" not in shown(record(), "energy")


def test_a_reading_that_breaks_a_rule_shows_its_reason_and_no_number() -> None:
    text = shown(record(after=replace(READING, updates=9), ratio=False), "energy")
    line = next(x for x in text.splitlines() if " after " in x)
    assert "the counter was updated 9 times" in line
    assert " J" not in line.split("the counter")[0].split("after", 1)[1]


def test_a_run_that_measured_no_energy_says_how_to_measure_it() -> None:
    text = shown(record(energy=False), "energy")
    assert "aiperf run --columns energy measures it" in text
    assert "Source" not in text


def test_costs_name_the_prices_and_say_why_one_is_missing() -> None:
    text = shown(record(), "cost")
    # 8 ms for 2000 tokens on one GPU at 3.6 an hour: 4 s a million, 0.004; half of it on the other side.
    assert "before" in text
    assert "0.00400 EUR" in text
    assert "0.00200 EUR" in text
    assert "mine.yaml (our invoice, 2026-03-01)" in text
    missing = shown(record(energy=False), "cost", prices=replace(PRICES, kwh=0.2))
    assert missing.count("prices energy (kwh), and energy was not measured") == 2
    assert "EUR" not in missing


def test_goodput_tells_both_numbers_and_the_share_of_the_limit() -> None:
    text = shown(record(), "goodput")
    before, after = (line.split() for line in text.splitlines() if "tokens-a-second" in line)
    assert before[2:4] == ["250", "k"]
    assert "61 %" in " ".join(after)
    assert before[-1] == "tokens"
    # A launch: 10 timed iterations of 2000 tokens in 0.1 + 0.2 + 0.5 s, a sample and an audit of 1 ms each.
    whole = extras_of(record(), "goodput").values[0]["goodput_whole_before"]
    assert whole == pytest.approx(2000 * 10 / 0.802, rel=1e-4)


def test_goodput_counts_the_gaps_that_the_device_clock_does_not_see() -> None:
    found = record()
    wall = make_result(make_comparison(10e-3, 5e-3, interval=(1.9, 2.1), metric="wall"), primary=False)
    values = extras_of(replace(found, results=(*found.results, wall)), "goodput").values[0]
    # 2000 tokens in 10 ms and 5 ms of wall time; 8 ms and 4 ms of them are the device's.
    assert values["goodput_before"] == pytest.approx(200_000)
    assert values["goodput_after"] == pytest.approx(400_000)
    assert values["goodput_of_limit_after"] == 0.61


def test_work_without_items_has_no_goodput_no_cost_and_still_energy() -> None:
    found = extras_of(record(items=0), "energy", "cost", "goodput").values[0]
    assert found["goodput_after"] is found["cost_per_million_after"] is found["items_per_joule_after"] is None
    assert found["cost_problem_after"] == "the workload counts no items"
    assert found["energy_j_after"] == pytest.approx(3.2)


def test_programs_get_plain_numbers_in_every_dialect() -> None:
    found = record()
    table = replace(build_rows([found]), extras=extras_of(found, "energy", "goodput"))
    first, second = csv.DictReader(io.StringIO("".join(run_csv(table))))
    assert float(first["energy_j_before"]) == pytest.approx(3.2)
    assert float(first["energy_ratio"]) == 1.25
    assert second["metric"] == "energy"
    assert second["energy_j_before"] == ""
    document = json.loads(run_json(make_run(), table, records=[found]))
    assert document["columns"][0]["items_per_joule_after"] == pytest.approx(625)
    markdown = markdown_of(run_page(make_run(), table, summary="s"))
    assert "| energy | side |" in markdown
    assert "| goodput | side |" in markdown


def test_nothing_changes_in_any_dialect_when_no_column_is_asked_for() -> None:
    found = record()
    table = build_rows([found])
    assert extras_of(found) is None
    assert lines_of(extra_paragraphs(None), width=80) == []
    assert "columns" not in json.loads(run_json(make_run(), table, records=[found]))
    assert "energy_j" not in "".join(run_csv(table))


def test_the_energy_of_programs_is_told_with_what_held_them_back_in_slices_or_with_its_reason() -> None:
    found = record()
    assert "never paused" not in " ".join(shown(found, "energy").split())
    noted = [replace(run, facts={"energy": "of 4 runs alone"}) for run in found.pairs[0].runs]
    sliced = replace(found, pairs=tuple(replace(pair, runs=tuple(noted)) for pair in found.pairs))
    assert "Programs run alone for it and are never paused" in " ".join(shown(sliced, "energy").split())
    refused = record(after=replace(READING, problem="for root only"))
    sides = tuple(replace(s, workload="", command=("true",)) for s in refused.case.sides)
    assert "for root only" in shown(replace(refused, case=replace(refused.case, sides=sides)), "energy")


def test_columns_are_named_in_any_order_once() -> None:
    assert chosen_columns(" goodput,energy,,goodput ") == ("goodput", "energy")
    assert chosen_columns("") == ()
    assert chosen_columns("cost", cost="mine.yaml") == ("cost",)


@pytest.mark.parametrize(
    ("text", "cost", "told"),
    [("watts", "", '"watts"'), ("cost", "", "needs your prices"), ("energy", "mine.yaml", "needs the column cost")],
)
def test_a_column_that_is_not_there_or_has_no_prices_is_a_mistake(text, cost, told) -> None:
    with pytest.raises(UserError) as caught:
        chosen_columns(text, cost=cost)
    assert told in caught.value.faults[0].what


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [
        (3.2, "J", "3.20 J"), (1.6e-3, "J", "1.60 mJ"), (2.5e-6, "J", "2.50 µJ"), (1234.0, "J", "1.23 kJ"),
        (0.0, "J", "0 J"), (-2e-3, "J", "−2.00 mJ"), (-2.0, "J", "−2.00 J"), (None, "J", "–"), (0.0021, "", "0.0021"),
        (625.0, "", "625"), (9.9999e-4, "J", "1.00 mJ"),
    ],
)  # fmt: skip
def test_joules_have_three_digits_and_a_prefix(value, unit, told) -> None:
    assert format_si(value, unit) == told


def test_of_a_load_the_requests_within_their_objectives_are_paid() -> None:
    good = ProgramMetric("goodput", "1/s", "higher")
    case = make_case("two-servers", needs=Needs(gpus=2))
    case = replace(case, sides=tuple(replace(side, metrics=(good,)) for side in case.sides))
    found = make_comparison(4.0, 5.0, interval=(1.2, 1.3), ratio=1.25, metric="goodput", unit="1/s")
    load = measured(case, make_result(found), pairs=tuple(make_pair(i) for i in range(2)))
    rows = [
        line.split() for line in shown(load, "goodput", "cost").splitlines() if "two-servers" in line or "after" in line
    ]
    text = " ".join(" ".join(row) for row in rows)
    # 7.2 EUR an hour is 1 EUR for 2000 requests at 4/s.
    assert "500 EUR" in text
    assert "400 EUR" in text
    assert "per GPU" in shown(load, "goodput")
    values = extras_of(load, "goodput").values[0]
    assert (values["goodput_before"], values["goodput_per_gpu_before"], values["goodput_per_gpu_after"]) == (4, 2, 2.5)
    on_cpus = replace(load, case=replace(load.case, needs=Needs()))
    assert "per GPU" not in shown(on_cpus, "goodput")
    assert "requests within objectives" in text
