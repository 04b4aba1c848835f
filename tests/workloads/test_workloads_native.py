"""native.program: entries agree with float64 truth whatever the variant; a compiler's refusal is one line."""

from __future__ import annotations

import os

import numpy as np
import pytest
from cpu_pairs import audit

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.native import build as building
from aiperf.workloads.native import entries
from aiperf.workloads.native import workload as native
from aiperf.workloads.shared import numa

QUEUE = {"source": "work_queue.cc", "threads": 3}


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return Context(seed=3, shared_scratch=tmp_path_factory.mktemp("native"))


@pytest.mark.parametrize("defines", [{}, {"UNROLL": 2}, {"UNROLL": 4, "ACCUMULATORS": 4}])
def test_a_dot_product_agrees_with_float64_however_it_is_unrolled(context, defines):
    made = native.program(
        context, source="dot.cc", entry="dot_windows", n=1003, args={"repeats": 70}, defines=defines, flags=["-O1"]
    )
    dots = audit(made, seed=5)["dots"]
    assert np.allclose(dots, made.reference()["dots"], rtol=1e-5, atol=1e-3)
    assert len(np.unique(dots[:64])) == 64
    assert made.work.flops == 2 * 1003 * 70


@pytest.mark.long
@pytest.mark.parametrize("args", [{"claim": 1}, {"claim": 32}, {"claim": 24, "levels": 2}, {"claim": 100000}])
def test_every_item_is_claimed_exactly_once_also_past_a_whole_batch(context, args):
    made = native.program(context, **QUEUE, entry="claim_all", n=20011, args=args)
    assert np.array_equal(audit(made, seed=4)["seen"], made.reference()["seen"])


@pytest.mark.long
@pytest.mark.parametrize("skew", ["uniform", "mod256", "power_law", "one_tail"])
def test_static_and_dynamic_shares_give_the_same_sums_to_the_bit(context, skew):
    sides = [
        native.program(context, **QUEUE, entry="uneven_sincos", n=300, skew=skew, schedule=s, args={"claim": 7})
        for s in ("static", "dynamic")
    ]
    before, after = (audit(side, seed=9)["sums"] for side in sides)
    assert np.array_equal(before, after)
    assert np.allclose(before, sides[0].reference()["sums"], rtol=1e-9, atol=1e-9)


def test_skews_share_about_the_same_work_out_in_different_ways():
    halves = {}
    for skew in ("uniform", "mod256", "power_law", "one_tail"):
        rounds = entries.uneven_rounds(4096, skew)
        assert 0.9 < rounds.mean() / 128 < 1.1
        halves[skew] = rounds[:2048].sum() / rounds.sum()
    assert halves["uniform"] == halves["mod256"] == 0.5
    assert halves["power_law"] > 0.8
    assert halves["one_tail"] < 0.1


def test_rows_have_unit_length_under_fast_math_too(context):
    flags = ["-O3", "-ffast-math"]
    made = native.program(
        context, source="rownorm.cc", entry="l2norm_rows", n=4096, threads=2, args={"width": 64}, flags=flags
    )
    assert np.allclose(audit(made, seed=2)["rows"], made.reference()["rows"], rtol=1e-5, atol=1e-7)


CHASE = {"source": "chase.cc", "entry": "chase_lines", "n": 1200, "args": {"parts": 8}}


def test_a_chase_reads_every_line_once_in_an_order_that_each_draw_decides(context):
    made = native.program(context, **CHASE)
    ends = []
    for seed in (5, 6):
        found, truth = audit(made, seed=seed), made.reference()
        assert np.array_equal(found["where"], truth["where"])
        assert np.array_equal(found["sums"], truth["sums"])
        assert found["where"][-1] == 0, "the cycle closes after all lines, not before"
        ends.append(found["where"][:-1])
        assert found["sums"].sum() == made.inputs()["lines"][:, 1].sum()
    assert not np.array_equal(*ends)
    assert made.work.items == 1200


@pytest.fixture
def two_nodes(monkeypatch, tmp_path):
    """A host whose first usable CPU is node 0's and whose last one is node 1's."""
    usable = sorted(os.sched_getaffinity(0))
    for node, cpu in enumerate((usable[0], usable[-1])):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cpu}\n")
    monkeypatch.setattr(numa, "_NODES", tmp_path)
    return usable[0]


def test_arrays_lie_on_the_node_asked_for_while_both_sides_run_on_the_same_one(context, two_nodes, monkeypatch):
    before, found = os.sched_getaffinity(0), {}
    for where, node in (("local", 0), ("remote", 1)):
        monkeypatch.setattr(native, "node_of", lambda address, node=node: node)
        made = native.program(context, **CHASE, numa=where)
        assert os.sched_getaffinity(0) == {two_nodes}
        assert (made.facts["cpu_node"], made.facts["memory_node"]) == (0, node)
        found[where] = audit(made, seed=7)["where"]
        made.close()
        assert os.sched_getaffinity(0) == before
    assert np.array_equal(found["local"], found["remote"])


def test_arrays_are_touched_first_by_a_cpu_of_their_node(two_nodes):
    for where, cpu in (("local", two_nodes), ("remote", max(os.sched_getaffinity(0)))):
        seen, _, restore = numa.made_on(where, lambda: os.sched_getaffinity(0))
        restore()
        assert seen == {cpu}


def test_a_side_whose_arrays_the_kernel_has_moved_fails(context, two_nodes, monkeypatch):
    monkeypatch.setattr(native, "node_of", lambda address: 1)
    made = native.program(context, **CHASE, numa="remote")
    assert made.counters() is not None
    monkeypatch.setattr(native, "node_of", lambda address: 0)
    with pytest.raises(RuntimeError, match="lines was on NUMA node 1 and is on 0 now"):
        made.counters()
    made.close()


def test_arrays_that_lie_elsewhere_skip_the_side(context, two_nodes, monkeypatch):
    before = os.sched_getaffinity(0)
    for node, there in ((0, "node 0"), (None, "an unknown node")):
        monkeypatch.setattr(native, "node_of", lambda address, node=node: node)
        with pytest.raises(SkipSide, match=f"lines was to lie on NUMA node 1, but lies on {there}"):
            native.program(context, **CHASE, numa="remote")
        assert os.sched_getaffinity(0) == before


def test_a_host_of_one_node_skips_both_sides(context, monkeypatch, tmp_path):
    (tmp_path / "node0").mkdir()
    (tmp_path / "node0" / "cpulist").write_text("0-4000\n")
    monkeypatch.setattr(numa, "_NODES", tmp_path)
    for where in ("local", "remote"):
        with pytest.raises(SkipSide, match="on two NUMA nodes, but this process has 1"):
            native.program(context, **CHASE, numa=where)


def test_defines_change_the_machine_code_and_equal_builds_are_made_once(context):
    common = {"source": "dot.cc", "entry": "dot_windows", "n": 8, "flags": ["-O1"]}
    one, same, other = (native.program(context, **common, defines={"UNROLL": u}) for u in (1, 1, 2))
    assert one.facts["library_sha"] == same.facts["library_sha"] != other.facts["library_sha"]
    assert "-DUNROLL=2" in other.facts["flags"]


def test_a_compile_error_is_one_message_with_the_line(context, monkeypatch, tmp_path):
    (tmp_path / "broken.cc").write_text('extern "C" int f() {\n  return 1 +;\n}\n')
    monkeypatch.setattr(building, "SOURCES", tmp_path)
    with pytest.raises(RuntimeError, match=r"cannot compile broken\.cc: broken\.cc:2:\d+: error") as caught:
        building.build("broken.cc", flags=[], defines={}, folder=tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("broken-*[0-9a-f]")), "a failed build leaves no library behind"


def test_a_host_without_a_compiler_skips_the_side(context, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SkipSide, match="no-such-compiler"):
        native.program(context, source="dot.cc", entry="dot_windows", n=8)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"source": "none.cc"}, "work_queue.cc"),
        ({"entry": "claim_none"}, "not known"),
        ({"entry": "claim_all"}, "exports no entry"),
        ({"args": {"claim": 1}}, "takes repeats"),
        ({"args": {"repeats": 0}}, "1 or more"),
        ({"n": 0}, "1 or more"),
        ({"source": "work_queue.cc", "entry": "claim_all", "args": {"levels": 3}}, "levels"),
        ({"source": "rownorm.cc", "entry": "l2norm_rows"}, "whole rows"),
        ({"source": "chase.cc", "entry": "chase_lines", "n": 100}, "64 equal parts"),
        ({"source": "chase.cc", "entry": "chase_lines", "n": 64, "threads": 2}, "one thread"),
    ],
)
def test_parameters_that_cannot_work_are_refused(context, params, message):
    with pytest.raises(ValueError, match=message):
        native.program(context, **{"source": "dot.cc", "entry": "dot_windows", "n": 8, "flags": ["-O1"], **params})
