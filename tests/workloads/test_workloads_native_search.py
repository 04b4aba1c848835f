"""native.program with candidates: nothing wrong is chosen, what is found is the fastest, one shot is the first."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.native import search as searching
from aiperf.workloads.native import workload as native
from aiperf.workloads.native.search import CandidateRun, Search

MATMUL = {"source": "matmul.cc", "entry": "matmul", "flags": ["-O1"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("native")


def searched(folder, *, seed=3, **params):
    return native.program(Context(seed=seed, scratch=folder, shared_scratch=folder), **MATMUL, **params)


@pytest.mark.parametrize("n", [1, 16, 37])
@pytest.mark.parametrize("defines", [{}, {"ROWS": 4, "WIDTH": 16}, {"ROWS": 2, "WIDTH": 8, "DEPTH": 16}])
def test_a_product_agrees_with_float64_whatever_its_blocks(folder, n, defines):
    made = searched(folder, n=n, defines=defines)
    assert np.allclose(audit(made, seed=5)["product"], made.reference()["product"], rtol=1e-4, atol=1e-4)
    assert made.work.flops == 2 * n**3


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
@pytest.mark.parametrize("choose", ["first", "searched"])
def test_a_kernel_that_forgets_edges_is_never_chosen_though_the_timed_size_has_none(folder, choose, seed):
    params = {"n": 64, "candidates": {"EDGES": [0, 1], "ROWS": [2, 4]}, "choose": choose}
    made = searched(folder, **params, verify_n=[33], seed=seed)
    assert made.facts["chosen"]["EDGES"] == 1
    if choose == "searched":
        assert made.counters()["candidates_rejected"] >= 1
    assert searched(folder, **params, seed=seed).counters()["candidates_rejected"] == 0, "64 is whole blocks"


@pytest.mark.long
def test_both_choices_start_from_the_same_candidate_and_another_seed_from_another(folder):
    params = {"n": 16, "candidates": {"ROWS": [1, 2, 3, 4], "WIDTH": [8, 16]}}
    firsts = []
    for seed in range(6):
        one, best = (searched(folder, **params, choose=choose, seed=seed) for choose in ("first", "searched"))
        assert one.facts["first"] == one.facts["chosen"] == best.facts["first"]
        assert one.counters()["candidates_tried"] == 1 < best.counters()["candidates_tried"]
        assert one.counters()["search_s"] > 0
        firsts.append(tuple(one.facts["first"].values()))
    assert len(set(firsts)) > 1


def test_what_an_output_held_before_does_not_make_a_kernel_right():
    truth = np.arange(4.0)
    assert CandidateRun(lambda: None, {"y": np.empty(4)}, {"y": truth}).is_right() is False
    idle = CandidateRun(lambda: None, {"y": truth.copy()}, {"y": truth})
    assert not idle.is_right()
    y = np.zeros(4)
    assert CandidateRun(lambda: y.__setitem__(slice(None), truth), {"y": y}, {"y": truth}).is_right()
    assert not CandidateRun(lambda: y.__setitem__(slice(None), truth + 1), {"y": y}, {"y": truth}).is_right()


def fake_search(monkeypatch, seconds):
    """A search over knobs a and b whose kernels take ``seconds(a, b)`` of a clock that only they move; None: wrong."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(searching, "perf_counter", lambda: clock.now)

    def runs_of(defines):
        takes, y = seconds(defines["a"], defines["b"]), np.zeros(1)

        def run():
            clock.now += takes or 0.001
            y[:] = 2.0 if takes is None else 1.0

        return [CandidateRun(run, {"y": y}, {"y": np.ones(1)})]

    return Search({"a": [1, 2, 3, 4], "b": [0, 1]}, runs_of)


def test_the_search_ends_at_the_fastest_right_candidate_and_adds_up_its_own_time(monkeypatch):
    search = fake_search(monkeypatch, lambda a, b: None if a == 4 else 10.0 - 2 * a - b)
    best = search.refine({"a": 1, "b": 0})
    assert best == {"a": 3, "b": 1}
    assert search.tried[3, 1] == pytest.approx(3.0)
    assert search.rejected == sum(values[0] == 4 for values in search.tried) >= 1
    # A right candidate runs once to be verified and five times to be timed.
    right = [found for found in search.tried.values() if np.isfinite(found)]
    assert search.seconds == pytest.approx(6 * sum(right) + 0.001 * search.rejected)


def test_a_change_that_helps_only_after_another_one_is_found(monkeypatch):
    search = fake_search(monkeypatch, lambda a, b: 10.0 - b * (2 + (a if a < 4 else 0)))
    assert search.refine({"a": 1, "b": 0}) == {"a": 3, "b": 1}


def test_a_gain_within_the_noise_of_a_timing_is_not_followed(monkeypatch):
    search = fake_search(monkeypatch, lambda a, b: 10.0 - 0.01 * a)
    assert search.refine({"a": 1, "b": 0}) == {"a": 1, "b": 0}


def test_candidates_that_are_all_wrong_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="no candidate"):
        fake_search(monkeypatch, lambda a, b: None).first_right(0)


def test_the_first_and_the_best_are_timed_again_turn_about_so_that_both_meet_the_same_load(monkeypatch):
    clock, load = SimpleNamespace(now=0.0), iter(range(1, 1000))
    monkeypatch.setattr(searching, "perf_counter", lambda: clock.now)

    def run():
        clock.now += next(load)  # each run takes longer than the one before it

    search = Search({"a": [1, 2]}, lambda defines: [CandidateRun(run, {}, {})])
    assert search.compare({"a": 1}, {"a": 2}) == (1, 2)
    assert search.compare({"a": 1}, {"a": 1}) == (41, 41)
    assert search.seconds == 0, "it is no part of the search"


@pytest.mark.parametrize("choose", ["first", "searched"])
def test_what_the_search_costs_and_how_many_calls_repay_it(folder, choose, monkeypatch):
    found = []
    times = iter([(0.75, 0.25), (0.25, 0.25), (0.2, 0.25)])
    monkeypatch.setattr(Search, "compare", lambda search, first, best: found.append((first, best)) or next(times))
    params = {"n": 16, "candidates": {"ROWS": [1, 2]}, "choose": choose}
    gain, none, loss = (searched(folder, **params) for _ in range(3))
    counters = gain.counters()
    assert (counters["first_call_s"], counters["best_call_s"]) == (0.75, 0.25)
    assert counters["calls_to_break_even"] == pytest.approx(counters["search_s"] / 0.5)
    for made in (none, loss):
        assert made.counters()["best_call_s"] == 0.25
        assert "calls_to_break_even" not in made.counters(), "what is not faster never repays its search"
    assert found[0] == (gain.facts["first"], gain.facts["chosen"])
    assert gain.facts["flags"] == f"-O1 -DROWS={gain.facts['chosen']['ROWS']}", "what is timed is what was chosen"


def test_a_search_finds_nothing_that_the_other_side_compiled(tmp_path):
    own, shared = tmp_path / "own", tmp_path / "shared"
    shared.mkdir()
    made = native.program(
        Context(seed=3, scratch=own, shared_scratch=shared),
        **MATMUL, n=8, candidates={"ROWS": [1, 2]}, choose="searched",
    )  # fmt: skip
    assert made.counters()["candidates_tried"] == 2
    assert len(list(own.glob("matmul-*"))) == 2
    assert not list(shared.iterdir())


def test_a_candidate_that_does_not_compile_is_rejected_and_its_error_is_told_where_none_is_left(folder):
    widths = {"n": 16, "choose": "searched"}
    made = searched(folder, **widths, candidates={"WIDTH": [12, 8, 16, 20]})
    assert made.facts["chosen"]["WIDTH"] in (8, 16)
    assert (made.counters()["candidates_tried"], made.counters()["candidates_rejected"]) == (4, 2)
    with pytest.raises(RuntimeError, match=r"no candidate compiles: .*WIDTH is a multiple of 8"):
        searched(folder, **widths, candidates={"WIDTH": [12, 20]})
    with pytest.raises(ValueError, match=r"no candidate computes .*1 do not compile: .*WIDTH is a multiple of 8"):
        searched(folder, n=15, choose="first", candidates={"WIDTH": [12, 16]}, defines={"EDGES": 0})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"choose": "first"}, "need candidates"),
        ({"candidates": {"ROWS": [1]}}, "need candidates"),
        ({"candidates": {"ROWS": []}, "choose": "first"}, "one or more values"),
        ({"candidates": {"ROWS": [1]}, "defines": {"ROWS": 2}, "choose": "first"}, "none of which is in defines"),
        ({"verify_n": [4]}, "about candidates"),
        ({"verify_n": [0], "candidates": {"ROWS": [1]}, "choose": "first"}, "1 or more"),
        ({"args": {"width": 4}}, "takes none"),
        ({"threads": 2}, "one thread"),
    ],
)
def test_choices_that_cannot_be_made_are_refused(folder, params, message):
    with pytest.raises(ValueError, match=message):
        searched(folder, n=8, **params)


def test_candidates_of_an_entry_with_whole_numbers_are_refused(folder):
    with pytest.raises(ValueError, match="floating point"):
        native.program(
            Context(shared_scratch=folder),
            source="work_queue.cc",
            entry="claim_all",
            n=8,
            candidates={"SLICE": [8]},
            choose="first",
        )
