"""A run that goes on where another ended: what is kept, what is continued, what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from recipes_made import FAST, HOST, Bench, Told, failing, make_case, make_settings, noisy, pair, raises

from aiperf.analysis.notes import note_sentences
from aiperf.analysis.recompute import recompute
from aiperf.errors import Exit, UserError
from aiperf.host import health
from aiperf.host.health import HealthReading
from aiperf.host.relevance import HostCheck
from aiperf.plan.plan import Plan
from aiperf.recipes import case as case_module
from aiperf.recipes import case_runner, run_record
from aiperf.recipes import run as recipe
from aiperf.recipes.case import new_state, resume_case
from aiperf.recipes.case_progress import Noise
from aiperf.recipes.run import Opening, run_plan
from aiperf.records import HostFinding, Invocation, Note, Skip
from aiperf.store.read import find_runs, open_run, read_pairs
from aiperf.store.resume import reopen
from aiperf.store.same import same_results

STOP = raises(KeyboardInterrupt())


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run cases with the pairs of a script, in a new run or in the newest one."""
    monkeypatch.setattr(run_record, "git_state", lambda folder: {"sha": "abc"})

    def _run(script, *cases, resume=False, skips=(), host_check=HostCheck.off, nodes=(), **settings):
        bench, told = Bench(script), Told()
        monkeypatch.setattr(recipe, "MeasurementSession", lambda host, settings, *_: bench)
        outcome = run_plan(
            Plan(tuple(cases), tuple(skips)),
            host=HOST,
            settings=make_settings(tmp_path, **settings),
            progress=told,
            invocation=Invocation("run", ("aiperf", "run")),
            host_check=host_check,
            opening=Opening(
                open_run(results=tmp_path) if resume else None,
                SimpleNamespace(facts=nodes, place=SimpleNamespace(node="n0")),
            ),
        )
        stored = open_run(results=tmp_path)
        by_id = {r.case.id: r for r in stored.read_cases()[0]}
        return SimpleNamespace(outcome=outcome, stored=stored, bench=bench, told=told, cases=by_id)

    return _run


def test_what_was_measured_is_kept_and_what_was_open_goes_on(run, tmp_path) -> None:
    a, b, c = make_case("a"), make_case("b"), make_case("c")
    first = run([*[pair(ratio=1.5)] * 4, *[pair(ratio=1.5)] * 3, STOP], a, b, c)
    assert [(n, r.status, len(r.pairs)) for n, r in first.cases.items()] == [
        ("a", "measured", 4),
        ("b", "interrupted", 3),
    ]
    second = run([pair(ratio=1.5)], a, b, c, resume=True)
    assert len(find_runs(tmp_path)) == 1
    assert [name for name, *_ in second.bench.calls] == ["b"] + ["c"] * 4
    assert second.cases["a"] == first.cases["a"]
    assert {n: (r.status, len(r.pairs), r.stop) for n, r in second.cases.items()} == dict.fromkeys(
        "abc", ("measured", 4, "verdict")
    )
    assert second.stored.record.status == "finished"
    assert [r.case.id for r in second.outcome.records] == ["a", "b", "c"]
    assert any("1 kept, 1 resumed, 1 to start" in note for note in second.told.notes)


def test_what_touched_the_first_part_of_a_continued_case_is_kept_beside_what_touches_the_second(
    run, monkeypatch
) -> None:
    looks = [
        HealthReading((HostFinding("thp", "warn", "", "never"),)),
        HealthReading((HostFinding("cpu-oversubscription", "unfit", "", "97 %"),)),
    ]
    monkeypatch.setattr(health, "read_health", lambda *_, **__: looks.pop(0))
    run([pair(ratio=1.5), STOP], make_case("a"), host_check=HostCheck.warn)
    told = run([pair(ratio=1.5)], make_case("a"), host_check=HostCheck.warn, resume=True).cases["a"].findings
    assert [finding.level for finding in told] == ["unfit", "warn"]
    assert told[1].value == "never"


def test_a_continued_case_that_the_host_is_unfit_for_now_keeps_the_pairs_it_has(run, monkeypatch) -> None:
    run([pair(ratio=1.5), STOP], make_case("a"))
    monkeypatch.setattr(
        health,
        "read_health",
        lambda *_, **__: HealthReading((HostFinding("container-cpu-limit", "unfit", "", "0.5 CPUs"),)),
    )
    done = run([pair(ratio=1.5)], make_case("a"), host_check=HostCheck.strict, resume=True)
    record = done.cases["a"]
    assert (record.status, record.stop, len(record.pairs), done.bench.calls) == ("measured", "unfit", 1, [])
    assert any("0.5 CPUs" in text for text in note_sentences(record))
    assert done.outcome.exit is Exit.UNFIT


def test_a_case_that_was_continued_is_what_it_would_have_been_in_one_go(run) -> None:
    case = make_case("a")
    script = [noisy(0.03)] * 8
    run([*script[:3], STOP], case)
    parted = run(script[3:], case, resume=True)
    whole = run(script, case)
    assert parted.cases["a"].results == whole.cases["a"].results
    assert [p.order for p in parted.cases["a"].pairs] == [p.order for p in whole.cases["a"].pairs]
    assert [p.seed for p in parted.cases["a"].pairs] == [p.seed for p in whole.cases["a"].pairs]


def test_the_samples_of_a_continued_case_still_give_its_verdict(run) -> None:
    run([*[pair(ratio=1.5)] * 3, STOP], make_case("a"))
    done = run([pair(ratio=1.5)], make_case("a"), resume=True)
    record = done.cases["a"]
    pairs = read_pairs(done.stored, record)
    assert len(pairs) == 4
    assert same_results(record.results, recompute(record, pairs, width=record.width, scale=record.scale))


def test_a_case_that_was_suspected_at_its_last_look_still_is(monkeypatch) -> None:
    note = Note("suspected", {"side": "after", "fresh_s": 2.0, "repeated_s": 1.0})
    monkeypatch.setattr(case_module, "suspicion", lambda pairs, case: note if len(pairs) == 4 else None)
    bench = Bench([pair(ratio=1.5)])
    pairs = tuple(bench.measure(make_case("a"), i, ("before", "after")[:: 1 if i % 2 else -1], i) for i in range(5))
    state = new_state(make_case("a"), make_settings(), host_id="h", noise=Noise(), seed=0)
    resume_case(state, SimpleNamespace(pairs=pairs, failures=(), notes=(), seconds=5.0, started="then"), budget=1e6)
    assert (state.target, state.suspected) == (6, True)


def test_between_two_looks_it_goes_on_to_the_next_one() -> None:
    case, settings = make_case("a"), make_settings()
    state = new_state(case, settings, host_id="h", noise=Noise(), seed=0)
    bench = Bench([pair(ratio=1.5)])
    pairs = tuple(bench.measure(case, i, ("before", "after")[:: 1 if i % 2 else -1], i) for i in range(5))
    record = SimpleNamespace(pairs=pairs, failures=(), notes=(), seconds=5.0, started="then")
    resume_case(state, record, budget=1e6)
    assert (state.done, state.target, state.valid) == (False, 6, 5)
    at_a_look = new_state(case, settings, host_id="h", noise=Noise(), seed=0)
    resume_case(
        at_a_look, SimpleNamespace(pairs=pairs[:4], failures=(), notes=(), seconds=4.0, started="then"), budget=1e6
    )
    assert (at_a_look.stop, at_a_look.started) == ("verdict", "then")


def test_a_budget_that_ran_out_is_followed_by_another(run) -> None:
    a, b = make_case("a"), make_case("b")
    first = run([noisy(0.04)], a, b, budget=1e-9)
    assert {r.stop for r in first.cases.values()} == {"budget"}
    assert {len(r.pairs) for r in first.cases.values()} == {4}
    second = run([noisy(0.04)], a, b, budget=1e6, resume=True)
    assert {(r.stop, len(r.pairs)) for r in second.cases.values()} == {("max_pairs", 8)}
    assert len(second.bench.calls) == 8


def test_under_a_new_budget_the_widest_interval_goes_on_first(run) -> None:
    calm, wild = make_case("calm"), make_case("wild")
    run([*[noisy(0.03)] * 4, *[noisy(0.2)] * 4], calm, wild, budget=1e-9)
    second = run([noisy(0.03)], calm, wild, budget=1e6, resume=True)
    assert next(name for name, *_ in second.bench.calls) == "wild"


def test_what_failed_or_was_skipped_or_comes_from_another_scenario_file_is_measured_again(run) -> None:
    a, b, c = make_case("a"), make_case("b"), replace(make_case("c"), scenario_hash="old")
    first = run([failing(), pair(ratio=1.5)], a, c, skips=[Skip(b, "needs a GPU", "")])
    assert [r.status for r in first.cases.values()] == ["failed", "measured", "skipped"]
    second = run([pair(ratio=1.5)], a, b, replace(c, scenario_hash="new"), resume=True)
    assert {r.status for r in second.cases.values()} == {"measured"}
    assert len(second.bench.calls) == 12
    assert "c is measured again because its scenario file was changed" in second.told.notes
    assert "a is measured again because it was failed" in second.told.notes


def test_cases_that_are_not_named_again_stay_in_the_run(run) -> None:
    run([pair(ratio=1.5)], make_case("a"))
    second = run([pair(ratio=1.5)], make_case("b"), resume=True)
    assert set(second.cases) == {"a", "b"}
    assert second.stored.record.planned == ("a", "b")
    assert [r.case.id for r in second.outcome.records] == ["b"]


def test_samples_that_are_gone_make_a_case_be_measured_again(run) -> None:
    first = run([pair(ratio=1.5)], make_case("a"))
    (first.stored.folder / "samples" / "a.parquet").unlink()
    second = run([pair(ratio=1.5)], make_case("a"), resume=True)
    assert len(second.bench.calls) == 4
    assert any(note.startswith("a is measured again: the samples cannot be read") for note in second.told.notes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, "seed: 0 then, 1 now"),
        ({"precision": replace(FAST, delta=0.5)}, "precision: delta 0.02 then, 0.5 now"),
        pytest.param({"pin": "none"}, "pin: auto then, none now", marks=pytest.mark.long),
    ],
)
def test_a_run_does_not_go_on_under_other_settings(run, changes, told) -> None:
    run([pair(ratio=1.5)], make_case("a"))
    with pytest.raises(UserError) as caught:
        run([pair(ratio=1.5)], make_case("a"), resume=True, **changes)
    assert told in caught.value.faults[0].what


def test_a_run_does_not_go_on_in_another_commit_or_on_another_host(run, monkeypatch) -> None:
    run([pair(ratio=1.5)], make_case("a"))
    monkeypatch.setattr(run_record, "git_state", lambda folder: {"sha": "def"})
    monkeypatch.setattr(run_record, "fingerprint", lambda host: ("elsewhere", {}))
    with pytest.raises(UserError) as caught:
        run([pair(ratio=1.5)], make_case("a"), resume=True)
    assert "commit abc then, def now" in caught.value.faults[0].what
    assert "elsewhere now" in caught.value.faults[0].what


def test_changed_files_are_named_and_only_their_contents_count(run, monkeypatch) -> None:
    changed = {"sha": "abc", "diff": "12ab", "changed": "cufile.log"}
    run([pair(ratio=1.5)], make_case("a"))
    monkeypatch.setattr(run_record, "git_state", lambda folder: changed)
    with pytest.raises(UserError, match=r"uncommitted changes none then, 12ab now \(cufile\.log\)"):
        run([pair(ratio=1.5)], make_case("a"), resume=True)
    monkeypatch.setattr(run_record, "git_state", lambda folder: {"sha": "abc", "diff": "12ab"})
    run([pair(ratio=1.5)], make_case("a"))
    monkeypatch.setattr(run_record, "git_state", lambda folder: changed)
    run([pair(ratio=1.5)], make_case("a"), resume=True)


class _Killed(BaseException):
    """Stands for the end of aiperf itself: nothing after it is done."""


def test_pairs_of_long_programs_are_on_disk_before_the_next_look(run, monkeypatch) -> None:
    monkeypatch.setattr(case_runner, "CHECKPOINT_S", -1.0)
    with pytest.raises(_Killed):
        run([*[pair(ratio=1.5)] * 2, raises(_Killed())], make_case("a"))
    again = run([pair(ratio=1.5)], make_case("a"), resume=True)
    assert again.bench.calls[0][:2] == ("a", 2)
    assert len(again.cases["a"].pairs) == 4


def test_a_run_that_is_being_measured_is_not_resumed_and_stays_as_it_is(run, tmp_path) -> None:
    run([*[pair(ratio=1.5)] * 3, STOP], make_case("a"))
    writer, _ = reopen(open_run(results=tmp_path), open_run(results=tmp_path).record)
    with pytest.raises(UserError, match="is being measured by process"):
        run([pair(ratio=1.5)], make_case("a"), resume=True)
    writer.claim.release()
    assert run([pair(ratio=1.5)], make_case("a"), resume=True).stored.record.status == "finished"


def over_nodes(name: str, nodes: int):
    case = make_case(name)
    return replace(case, sides=tuple(replace(side, ranks=nodes, nodes=nodes) for side in case.sides))


def node(name: str, host_id: str = "class") -> dict:
    return {"node": name, "host_id": host_id, "host": {"hostname": name}}


def test_a_run_over_nodes_does_not_go_on_with_a_node_of_another_class(run) -> None:
    case = over_nodes("a", 2)
    run([pair(ratio=1.5), STOP], case, nodes=(node("m1"),))
    with pytest.raises(UserError, match=r"class of node 2: m1 \(class\) then, m2 \(other\) now"):
        run([pair(ratio=1.5)], case, nodes=(node("m2", "other"),), resume=True)


def test_a_run_that_goes_on_with_an_equal_node_names_the_nodes_of_both_sessions(run) -> None:
    case = over_nodes("a", 2)
    run([pair(ratio=1.5), STOP], case, nodes=(node("m1"),))
    for last in ("m2", "m2", "m1"):
        record = run([pair(ratio=1.5), STOP], case, nodes=(node(last),), resume=True).stored.record
    assert [each["node"] for each in record.nodes] == ["m1"]
    assert [each["node"] for each in record.also_on] == ["m2"]


def test_nodes_of_a_run_whose_cases_are_all_skipped_are_not_called_idle(run) -> None:
    done = run([], skips=[Skip(over_nodes("a", 4), "needs 4 nodes", "")], nodes=(node("m1"),))
    assert [note for note in done.told.notes if "nodes are used" in note] == []


def test_a_run_names_only_the_nodes_that_its_cases_use_and_later_those_that_join_for_more(run) -> None:
    nodes = (node("m1"), node("m2", "b"), node("m3", "c"))
    first = run([pair(ratio=1.5), STOP], over_nodes("a", 2), nodes=nodes)
    assert [each["node"] for each in first.stored.record.nodes] == ["m1"]
    assert "2 of 4 nodes are used: no case is spread over more" in first.told.notes
    both = run([pair(ratio=1.5)], over_nodes("a", 2), over_nodes("b", 3), nodes=nodes, resume=True).stored.record
    assert ([each["node"] for each in both.nodes], both.also_on) == (["m1", "m2"], ())
    assert (first.stored.record.node, both.node) == ("n0", "n0")
