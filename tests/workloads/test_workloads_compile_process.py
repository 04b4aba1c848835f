"""compile.process: every setting gives what the uncompiled function gives, and compiles as often as it should."""

from __future__ import annotations

import os
import shutil

import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.compile import subjects
from aiperf.workloads.compile import workload as family
from aiperf.workloads.compile.anew import begun_anew
from aiperf.workloads.contract import Context

_EAGER = {"backend": "aot_eager"}
_STEADY = {"backend": "eager", "include_compile": False}
_LENGTHS = {"lengths": [5, 7, 9], "backend": "eager"}
_FOR_EACH = {"dynamic": "off", **_LENGTHS}
"""What these four are held against: a graph for each length."""
PAIRS = {
    "marked": (Pair("compile.process", _FOR_EACH, {**_LENGTHS, "dynamic": "mark"}), 3, 1),
    "automatic": (Pair("compile.process", _FOR_EACH, {**_LENGTHS, "dynamic": "auto"}), 3, 2),
    "bucketed": (Pair("compile.process", _FOR_EACH, {**_FOR_EACH, "pad": "bucket"}), 3, 1),
    "stance": (Pair("compile.process", _FOR_EACH, {**_FOR_EACH, "stance": "eager_on_recompile"}), 3, 1),
    "scalar": (Pair("compile.process", {"scalar": "python"}, {"scalar": "tensor"}, {"iterations": 3, **_EAGER}), 2, 1),
    "offset": (
        Pair(
            "compile.process",
            {"scalar": "python"},
            {"scalar": "tensor"},
            {"iterations": 5, "function": "offset_attention", "dynamic": "off", **_EAGER},
        ),
        5,
        1,
    ),
}


@pytest.fixture(scope="module")
def for_each_length(tmp_path_factory):
    """What came of the side that compiles for each length, which takes three compilations a step."""
    return outcome(PAIRS["marked"][0], "before", tmp_path_factory.mktemp("for-each"))


def outcome(pair, which, folder):
    """Outputs of a side, which are the truth, and how many graphs its last step compiled."""
    workload = set_up(pair, which, folder)
    workload.step()
    found = audit(workload, seed=5)
    truth = {key: value.numpy() for key, value in workload.reference().items()}
    assert differences(found, truth, rtol=1e-4, atol=1e-5) == []
    return found, workload.counters()["graphs"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if name in ("marked", "offset", "scalar") else name for name in PAIRS],
)
def test_both_sides_give_the_truth_and_compile_as_often_as_claimed(name, for_each_length, tmp_path):
    pair, *compiles = PAIRS[name]
    before = for_each_length if pair.before is _FOR_EACH else outcome(pair, "before", tmp_path)
    after = outcome(pair, "after", tmp_path)
    assert differences(before[0], after[0], rtol=1e-4, atol=1e-5) == []
    assert [before[1], after[1]] == compiles


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "shared"),
    [
        ({"variant": "break"}, {"variant": "where"}, {"function": "branch", "lengths": [50]}),
        ({"pad": "max"}, {"dynamic": "mark"}, {"function": "block", "lengths": [3, 5]}),
        ({"scope": "model"}, {"scope": "block"}, {"function": "block", "lengths": [3], "layers": 2}),
        ({"variant": "listed"}, {"variant": "stacked"}, {"function": "row_norms", "lengths": [5]}),
    ],
)
def test_code_compiled_once_gives_the_truth_for_new_inputs(before, after, shared, tmp_path):
    pair = Pair("compile.process", before, after, {**shared, **_STEADY})
    found = []
    for which in ("before", "after"):
        workload = set_up(pair, which, tmp_path)
        workload.step()
        found.append(audit(workload, seed=5))
        truth = {key: value.numpy() for key, value in workload.reference().items()}
        assert differences(found[-1], truth, rtol=1e-4, atol=1e-5) == []
    assert differences(*found, rtol=1e-4, atol=1e-5) == []


@pytest.mark.long
def test_a_list_of_numbers_keeps_the_loop_out_of_the_graph_and_stacked_tensors_do_not(tmp_path):
    pair = Pair("compile.process", {"variant": "listed"}, {"variant": "stacked"}, {"function": "row_norms", **_EAGER})
    graphs = []
    for which in ("before", "after"):
        workload = set_up(pair, which, tmp_path)
        workload.step()
        graphs.append(workload.counters()["graphs"])
    assert graphs == [0, 1]


def test_each_way_of_writing_the_branch_takes_both_ways():
    a, b = torch.randn(9), torch.rand(9) + 0.1
    for function in (subjects.BRANCHES["break"], subjects.BRANCHES["where"]):
        assert torch.allclose(function(a, b), a / (a.abs() + 1) * b)
        assert torch.allclose(function(a, -b), a / (a.abs() + 1) * b)
    both = subjects.build("branch", variant="where", lengths=[9], layers=1, device="cpu", seed=1).cases
    assert [float(b.sum()) > 0 for _, b in both.values()] == [True, False]


def test_a_function_called_as_it_is_gives_the_truth_and_compiles_nothing(tmp_path):
    pair = Pair("compile.process", {"backend": "none"}, _EAGER, {"function": "elementwise_chain", "lengths": [50]})
    found, graphs = [], []
    for which in ("before", "after"):
        workload = set_up(pair, which, tmp_path)
        found.append(audit(workload, seed=5))
        truth = {key: value.numpy() for key, value in workload.reference().items()}
        assert differences(found[-1], truth, rtol=1e-4, atol=1e-5) == []
        graphs.append(workload.counters()["graphs"])
        assert (workload.work.items, workload.work.item) == (50, "elements")
    assert differences(*found, rtol=1e-4, atol=1e-5) == []
    assert graphs == [0, 1]


@pytest.mark.long
@pytest.mark.parametrize("backend", ["none", "eager", "aot_eager"])
def test_what_a_stage_changes_in_the_results_is_reported_as_drift(backend, tmp_path):
    asked = {"function": "block", "lengths": [8, 12], "include_compile": False, "backend": backend}
    workload = family.process(Context(seed=3, scratch=tmp_path), **asked)
    assert "drift" not in workload.counters(), "before the first step there is nothing to compare"
    workload.step()
    workload.redraw(7)
    assert 0 <= workload.counters()["drift"] < 1e-5
    rounds = workload.step.__self__
    ready = rounds._ready

    def wrong(*arguments):
        out = ready(*arguments).clone()
        out[0, 3, 5] -= 0.5
        return out

    rounds._ready = wrong
    assert workload.counters()["drift"] == pytest.approx(0.5, abs=1e-5)


def test_the_chain_written_out_by_hand_is_the_gelu_of_the_library():
    x = torch.linspace(-4, 4, 33)
    build = subjects.build("elementwise_chain", variant="plain", lengths=[33], layers=1, device="cpu", seed=1)
    assert torch.allclose(build.function(x), torch.nn.functional.gelu(x, approximate="tanh"), atol=1e-6)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_a_step_that_compiles_with_inductor_finds_nothing_of_the_step_before(tmp_path, monkeypatch):
    from torch._dynamo.utils import counters

    seen = []

    def noted(*names):
        seen.append((counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"]))
        seen.append(len([path for path in tmp_path.rglob("*.so") if path.is_file()]))
        return real(*names)

    real = family.compiler_counts
    monkeypatch.setattr(family, "compiler_counts", noted)
    shared = {"function": "elementwise_chain", "lengths": [50]}
    workload = set_up(Pair("compile.process", {}, {}, shared), "after", tmp_path)
    for _ in range(2):
        workload.step()
    assert seen == [(1, 0), 1] * 2
    assert workload.counters()["graphs"] == 1
    assert workload.anew
    assert list((tmp_path / "after").iterdir()) == []


def test_padding_that_reached_the_true_tokens_would_be_noticed(tmp_path):
    pair = Pair("compile.process", {}, {"pad": "max"}, {"function": "block", "lengths": [3, 5], **_STEADY})
    workload = set_up(pair, "after", tmp_path)
    assert workload.facts["padding_waste"] == pytest.approx(0.2)
    workload.step()
    shapes = [tuple(array.shape) for array in workload.outputs().values()]
    assert shapes == [(1, 3, 256), (1, 5, 256)]


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"backend": "none", "dynamic": "mark"}, "compiles nothing"),
        ({"backend": "none", "stance": "eager_on_recompile"}, "compiles nothing"),
        ({"function": "elementwise_chain", "scalar": "tensor"}, "elementwise_mlp"),
        ({"lengths": [1], **_EAGER}, "must be 2 or more"),
        ({"variant": "where", **_EAGER}, "needs function: branch"),
        ({"function": "branch", **_EAGER}, "needs one of them"),
        ({"variant": "listed", **_EAGER}, "needs function: row_norms"),
        ({"function": "row_norms", "variant": "stacked", "pad": "max", **_EAGER}, "cannot be padded"),
        ({"function": "branch", "variant": "where", "pad": "max", **_EAGER}, "cannot be padded"),
        ({"scope": "block", **_EAGER}, "needs function: block"),
        ({"function": "block", "scalar": "python", **_EAGER}, "elementwise_mlp"),
    ],
)
def test_contradictions_are_refused(asked, fault):
    with pytest.raises(ValueError, match=fault):
        family.process(Context(), **asked)


def test_a_spread_makes_eight_lengths_down_to_its_share_less():
    assert family.spread_lengths(64, 0) == [64] * 8
    assert family.spread_lengths(64, 0.5) == [64, 59, 55, 50, 46, 41, 37, 32]
    assert family.spread_lengths(64, 1)[-1] == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "shared"),
    [
        ({"variant": "mutating"}, {}, {"owned": True, "lengths": [3]}),
        ({"variant": "mutating"}, {}, {"function": "elementwise_chain", "owned": True, "lengths": [50]}),
        ({"dynamic": "on"}, {"dynamic": "off", "pad": "max"}, {"spread": 0.5, "lengths": [16]}),
    ],
)
def test_writing_over_the_input_and_padding_to_graphs_give_the_truth(before, after, shared, tmp_path):
    pair = Pair("compile.process", before, after, {"function": "block", **shared, **_STEADY})
    found = []
    for which in ("before", "after"):
        workload = set_up(pair, which, tmp_path)
        workload.step()
        kept = {name: array.clone() for name, array in workload.inputs().items()}
        workload.step()
        assert all((array == kept[name]).all() for name, array in workload.inputs().items())
        found.append(audit(workload, seed=5))
        truth = {key: value.numpy() for key, value in workload.reference().items()}
        assert differences(found[-1], truth, rtol=1e-4, atol=1e-5) == []
    assert differences(*found, rtol=1e-4, atol=1e-5) == []


def test_a_chain_in_place_gives_back_its_own_input_and_a_functional_one_leaves_it_alone():
    x = torch.linspace(-3, 3, 50)
    kept, functional = x.clone(), subjects._chain(x)
    assert torch.equal(x, kept)
    written = subjects._chain_in_place(x)
    assert written is x
    assert torch.allclose(written, functional, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"function": "block", "variant": "mutating"}, "owned: true"),
        ({"function": "row_norms", "variant": "mutating", "owned": True}, "row_norms needs one of them"),
        ({"mode": "reduce-overhead", "backend": "aot_eager"}, "backend: inductor"),
        ({"spread": 0.5, "lengths": [8, 9]}, "one length"),
    ],
)
def test_a_mode_a_mutation_or_a_spread_that_cannot_be_is_refused(params, message):
    with pytest.raises(ValueError, match=message):
        family.process(Context(), **params)


@pytest.mark.long
@pytest.mark.parametrize("after", [{}, {"scope": "block", "dtype": "bfloat16"}])
def test_a_decoding_step_of_changing_batches_gives_the_truth(after, tmp_path):
    shared = {"function": "decode_block", "lengths": [8], "spread": 0.75, "layers": 2, "width": 64}
    pair = Pair("compile.process", {"backend": "none"}, {"backend": "aot_eager", **after}, shared)
    workload = set_up(pair, "after", tmp_path)
    workload.step()
    found, truth = workload.outputs(), workload.reference()
    assert {key: len(rows) for key, rows in found.items()} == {
        f"{i}-{n}": n for i, n in enumerate(family.spread_lengths(8, 0.75))
    }
    bound = 0.05 if after.get("dtype") else 1e-4
    for key, rows in truth.items():
        assert torch.allclose(found[key].double(), rows, rtol=bound, atol=bound)


def test_a_decoding_step_sees_its_own_keys_and_those_before_it_only():
    subject = subjects.build(
        "decode_block", variant="plain", lengths=[3], layers=1, device="cpu", seed=1, width=32
    )  # fmt: skip
    (layer,), (x,) = subject.layers, subject.cases["0-3"]
    with torch.no_grad():
        plain = layer(x)
        later = layer.values[1, layer.places[1] + 1 :]
        later.fill_(1e3)
        assert torch.equal(layer(x), plain), "a later key must not count"
        layer.values[1, 0] += 1e3
        changed = layer(x)
        assert torch.equal(changed[[0, 2]], plain[[0, 2]])
        assert not torch.allclose(changed[1], plain[1])


def test_kept_files_are_those_of_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "as-it-was")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    with begun_anew("inductor", tmp_path, kept=True):
        folder = tmp_path / "compiled"
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
        folder.mkdir()
        (folder / "code").touch()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "as-it-was"
    assert "TRITON_CACHE_DIR" not in os.environ
    with begun_anew("inductor", tmp_path, kept=True):
        assert (folder / "code").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "max-autotune", "backend": "eager"}, "need backend: inductor"),
        ({"compiler_files": "kept", "include_compile": False}, "include_compile: true"),
        ({"dtype": "bfloat16"}, "decode_block"),
        ({"function": "decode_block", "width": 60}, "multiple of 8"),
        ({"function": "decode_block", "pad": "max"}, "pad: none"),
        ({"scope": "block"}, "block or decode_block"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        family.process(Context(), **wrong)
