"""Suite files: strict, every fault at once; what is in them, and the plan they make."""

from __future__ import annotations

import re

import pytest
from plan_hosts import make_host

from aiperf.errors import UserError
from aiperf.paths import config_folder
from aiperf.plan.book import load_book
from aiperf.plan.precision import load_precision
from aiperf.plan.suites import NOT_MEASURED, Suite, load_suite, members, plan_selected, plan_suite, suite_names
from aiperf.scenario.find import list_scenarios
from aiperf.settings import Settings

BENCH = "def copy(ctx, *, size: Size, pinned: bool = False): ...\n"
SCENARIO = (
    "title: t\nwhy: w\nworkload: ./bench.py:copy\naxes: {size: [1MiB, 2MiB]}\n"
    "before: {pinned: false}\nafter: {pinned: true}\n"
)


@pytest.fixture
def suite_file(tmp_path):
    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def two_scenarios(tmp_path):
    folder = tmp_path / "lot"
    folder.mkdir()
    (folder / "bench.py").write_text(BENCH)
    for name in ("one", "two"):
        (folder / f"{name}.yaml").write_text(SCENARIO)
    return folder


def faults(path):
    with pytest.raises(UserError) as caught:
        load_suite(path)
    return [(f.line, f.what, f.hint) for f in caught.value.faults]


@pytest.fixture(scope="module")
def entries():
    return list_scenarios()


def names(suite, entries=None):
    return [path.stem for path in members(suite, entries=entries)]


def test_every_shipped_suite_loads_names_scenarios_and_a_precision_that_exists(entries) -> None:
    shipped = [load_suite(name) for name in suite_names()]
    assert {"cpu", "gpu1", "gpu2", "demo", "ci", "book-ch01", "book-ch14", "book-app"} <= {s.name for s in shipped}
    assert "book-ch15" not in {s.name for s in shipped}
    for suite in shipped:
        assert suite.title
        assert members(suite, entries=entries), suite.name
        assert not suite.precision or load_precision(suite.precision)


def test_the_lanes_hold_every_shipped_scenario_between_them(entries) -> None:
    held = {lane: set(names(load_suite(lane), entries)) for lane in ("cpu-all", "gpu1-all", "gpu2")}
    assert {entry.name for entry in entries} - set.union(*held.values()) == set()
    assert "pageable-vs-pinned-copy" not in held["cpu-all"]
    assert "gloo-vs-nccl-all-reduce" in held["gpu2"] - held["gpu1-all"]


def test_gpu1_and_its_rest_hold_what_one_gpu_runs_between_them(entries) -> None:
    core, rest, whole = (names(load_suite(name), entries) for name in ("gpu1", "gpu1-rest", "gpu1-all"))
    assert sorted([*core, *rest]) == sorted(whole)


def test_a_chapters_suite_holds_what_cites_one_of_its_rows(entries) -> None:
    assert "pageable-vs-pinned-copy" in names(load_suite("book-ch03"), entries)
    assert "pageable-vs-pinned-copy" not in names(load_suite("book-ch07"), entries)
    cited = {entry.name for entry in entries if any(row.startswith("app/") for row in entry.book)}
    assert set(names(load_suite("book-app"), entries)) == cited
    with pytest.raises(UserError, match='"ch77" is not a chapter'):
        load_suite("book-ch77")


def test_what_make_demo_names_is_the_suite_demo(entries) -> None:
    demo = names(load_suite("demo"), entries)
    assert {entry.name for entry in entries if "demo" in entry.tags} <= set(demo)
    assert load_suite("demo").precision == "quick"


def test_everything_that_a_file_may_say_is_read(suite_file, tmp_path) -> None:
    suite = load_suite(
        suite_file(
            "title: Mine\nscenarios: [my-tag, ./bench/a.yaml]\nbook: [ch07, app/fp32-vs-amp]\nlanes: [cpu]\n"
            "weight: useful\ncases: first\nwithout: [slow-*]\nonly: {a: {size: [1MiB, 2MiB], rows: 64}}\n"
            "precision: quick\nduration: {took: 25min, on: a 2-core machine, precision: standard, commit: abc1234}\n"
        )
    )
    assert suite == Suite(
        "mine",
        "Mine",
        ("my-tag", str(tmp_path / "bench/a.yaml")),
        ("ch07", "app/fp32-vs-amp"),
        ("cpu",),
        "useful",
        ("slow-*",),
        {"a": {"size": "1MiB,2MiB", "rows": "64"}},
        "quick",
        "25min at standard precision on a 2-core machine (commit abc1234)",
        "first",
    )


def test_every_fault_of_a_file_is_told_at_once_with_its_line(suite_file) -> None:
    told = faults(
        suite_file(
            "title: 7\nscenario: [a]\nbook: [ch77]\nlanes: [tpu]\nonly: [a]\nscenarios: demo\nduration: about 1h\n"
            "cases: some\nweight: heavy\n"
        )
    )
    assert [line for line, *_ in told] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert told[0][1:] == ('"scenario" is not a key of a suite.', "Did you mean scenarios?")
    assert 'duration: "about 1h" is not a measured duration.' in told[-3][1]
    assert told[-2][1:] == ('cases: "some" is not a choice of cases.', "Allowed: all, first.")
    assert told[-1][1:] == ('weight: "heavy" is not a weight of the book\'s rows.', "Allowed: core, useful, marginal.")


def test_a_weight_leaves_what_cites_a_row_of_it_and_what_is_named_besides(entries) -> None:
    by_name = {entry.name: entry for entry in entries}
    kept = names(Suite("s", "t", ("small-kernel-same",), lanes=("gpu1",), weight="core"), entries)
    every = names(Suite("s", "t", lanes=("gpu1",)), entries)
    core = {row.id for row in load_book() if row.weight == "core"}
    assert set(kept) == {n for n in every if core & set(by_name[n].book)} | {"small-kernel-same"}
    assert "4-byte-vs-16-byte-async-copy" in set(every) - set(kept)


def test_a_suite_needs_only_what_it_selects(suite_file) -> None:
    assert [what for _, what, _ in faults(suite_file("precision: quick\n"))] == ["it selects nothing."]
    short, spoken = (suite_file(f"lanes: [cpu]\n{more}") for more in ("", "duration: not measured yet\n"))
    assert (load_suite(short).title, load_suite(short).duration) == ("mine", NOT_MEASURED)
    assert load_suite(spoken).duration == NOT_MEASURED


@pytest.mark.long
def test_a_suite_of_first_cases_holds_one_of_each_scenario_run_or_skipped(two_scenarios) -> None:
    where = (str(two_scenarios),)

    def planned(suite, **host):
        plan = plan_suite(suite, make_host(**host), Settings())
        return [c.id for c in (*plan.cases, *(skip.case for skip in plan.skips))]

    assert planned(Suite("s", "t", where, cases="first")) == ["one[size=1MiB]", "two[size=1MiB]"]
    both = Suite("s", "t", where, only={"one": {"size": "2MiB,1MiB"}, "two": {"size": "2MiB"}})
    assert planned(both) == ["one[size=1MiB]", "one[size=2MiB]", "two[size=2MiB]"]
    kept = Suite("s", "t", where, only={"one": {"size": "2MiB"}}, cases="first")
    assert planned(kept) == ["one[size=2MiB]", "two[size=1MiB]"]
    assert len(planned(Suite("s", "t", where))) == 4
    each, total = planned(load_suite("cpu")), planned(load_suite("cpu-all"))
    assert len(each) == len({case.partition("[")[0] for case in total}) < len(total)
    core = planned(load_suite("gpu1"))
    assert len(core) == len({case.partition("[")[0] for case in core}) == len(members(load_suite("gpu1")))


def test_an_unknown_suite_names_the_nearest() -> None:
    with pytest.raises(UserError) as caught:
        load_suite("gpu")
    assert "gpu1" in str(caught.value.faults[0].hint) or "gpu2" in str(caught.value.faults[0].hint)
    assert (config_folder() / "suites" / "gpu1.yaml").is_file()


def test_without_takes_scenarios_out(two_scenarios) -> None:
    both = Suite("s", "t", scenarios=(str(two_scenarios),))
    assert names(both) == ["one", "two"]
    assert names(Suite("s", "t", scenarios=(str(two_scenarios),), without=(str(two_scenarios / "one.yaml"),))) == [
        "two"
    ]


def test_only_keeps_one_value_of_one_scenario(two_scenarios) -> None:
    suite = Suite("s", "t", scenarios=(str(two_scenarios),), only={"one": {"size": "2MiB"}})
    plan = plan_suite(suite, make_host(), Settings())
    assert [case.id for case in plan.cases] == ["one[size=2MiB]", "two[size=1MiB]", "two[size=2MiB]"]
    stray = Suite("s", "t", scenarios=(str(two_scenarios),), only={"three": {"size": "2MiB"}})
    with pytest.raises(UserError, match="only names three"):
        plan_suite(stray, make_host(), Settings())


def test_what_is_asked_of_an_axis_leaves_what_lacks_it_whole(two_scenarios) -> None:
    (two_scenarios / "three.yaml").write_text(re.sub(r"axes: .*\n", "params: {size: 3MiB}\n", SCENARIO))
    suite = Suite("s", "t", scenarios=(str(two_scenarios),))
    plan = plan_suite(suite, make_host(), Settings(), only={"size": "2MiB"})
    assert [case.id for case in plan.cases] == ["one[size=2MiB]", "three", "two[size=2MiB]"]
    assert plan.notes == ("--only size=2MiB: all cases kept, without that axis: three",)


def test_a_command_names_scenarios_or_a_suite_and_not_both_or_neither(two_scenarios) -> None:
    suite = Suite("s", "t", scenarios=(str(two_scenarios),))
    one = plan_selected([str(two_scenarios / "one.yaml")], None, make_host(), Settings())
    assert {case.scenario for case in one.cases} == {"one"}
    assert len(plan_selected([], suite, make_host(), Settings(), only={"size": "1MiB"}).cases) == 2
    for selectors, named in ((["one"], suite), ([], None)):
        with pytest.raises(UserError):
            plan_selected(selectors, named, make_host(), Settings())


def test_a_case_is_named_as_tables_print_it_on_the_command_line_and_in_a_suite(suite_file) -> None:
    one, other = "two-kernels-vs-fused[op=add_scale]", "same-vs-same"
    settings = Settings(precision=load_precision("quick"))

    def planned(selectors, suite=None):
        plan = plan_selected(selectors, suite, make_host(), settings)
        return {case.id for case in plan.cases} | {skip.case.id for skip in plan.skips}

    every = planned(["two-kernels-vs-fused"])
    assert one in every
    assert len(every) > 2
    assert planned([one, other]) == planned([other]) | {one}
    assert planned([one, "two-kernels-vs-fused[op=relu_abs]"]) == {one, "two-kernels-vs-fused[op=relu_abs]"}
    assert planned([one, "two-kernels-vs-fused"]) == every
    suite = load_suite(suite_file(f'title: t\nscenarios: ["{one}", {other}]\n'))
    assert planned([], suite) == planned([other]) | {one}


@pytest.mark.parametrize(
    ("typed", "what", "hint"),
    [
        (
            "two-kernels-vs-fused[op=relu]",
            'two-kernels-vs-fused has no case "two-kernels-vs-fused[op=relu]".',
            "relu_abs]",
        ),
        ("two-kernel-vs-fused[op=relu]", '"two-kernel-vs-fused" is not a scenario, tag, file or folder.', "kernels"),
    ],
)
def test_a_case_that_there_is_not_is_told_with_the_nearest(typed, what, hint) -> None:
    with pytest.raises(UserError) as caught:
        plan_selected([typed], None, make_host(), Settings(precision=load_precision("quick")))
    [fault] = caught.value.faults
    assert fault.what == what
    assert hint in fault.hint
