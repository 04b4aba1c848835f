"""launch.graph as far as a machine without a GPU can tell: mixtures, counts, truth, and the plan of the library."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.launch import native
from aiperf.workloads.launch import workload as launch


def asked(**changed: Any) -> native.LaunchRequest:
    return native.LaunchRequest(**{"nodes": 3, "iterations": 8, "n": 64, "issue": "graph", **changed})


def test_the_plan_has_the_fields_of_the_library_in_its_order() -> None:
    text = native.SOURCE.read_text(encoding="utf-8")
    body = re.search(r"struct Plan \{.*?\n(.*?)\};", text, re.DOTALL)
    assert body
    names = re.findall(r"\*?(\w+)(?=[,;])", body.group(1))
    assert names == [name for name, _ in native.LaunchPlan._fields_]


@pytest.mark.parametrize(
    ("name", "words"), [("Issue", native.ISSUES), ("Sync", native.SYNCS), ("Refresh", native.REFRESHES)]
)
def test_words_have_the_numbers_of_the_library(name: str, words: tuple[str, ...]) -> None:
    text = native.SOURCE.read_text(encoding="utf-8")
    found = re.search(rf"enum {name} \{{(.*?)\}}", text)
    assert found
    theirs = [word.strip().lower() for word in found.group(1).split(",")]
    own = {"end": "at_end", "each": "each_chain", "kernel": "each_kernel", "dynamic_parallelism": "dynamic"}
    assert theirs == [own.get(word, word) for word in words]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"issue": "scheduler"}, "may be stream, graph, device_graph"),
        ({"issue": "stream", "queue": True}, "may be graph, scheduler, dynamic_parallelism"),
        ({"issue": "dynamic_parallelism", "queue": True, "nodes": 25, "iterations": 82}, "2048 or less"),
        ({"issue": "stream", "decision": "while"}, "may be graph, conditional"),
        ({"issue": "conditional", "decision": "spawn"}, "may be stream, dynamic_parallelism, inline"),
        ({"issue": "stream", "refresh": "recapture"}, "issue graph"),
        ({"decision": "if", "taken": 1.5}, "between 0 and 1"),
        ({"decision": "switch", "width": 0}, "1 or more"),
        ({"n": 60}, "multiple of 8"),
        ({"sizes": 48}, "multiple of 96"),
        ({"sizes": 0}, "sizes 1 or more"),
        ({"issue": "tail", "copies": True}, "where copies would go"),
        ({"issue": "tail", "decision": "if"}, "may be stream, graph, conditional"),
    ],
)
def test_what_the_library_does_not_have_is_refused_with_what_it_has(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        launch.graph(Context(), **{"api": "cuda", "issue": "graph", "n": 64, **changed})


@pytest.mark.parametrize("changed", [{"copies": True}, {"decision": "if"}, {"queue": True}, {"issue": "device_graph"}])
def test_torch_is_not_asked_for_what_only_the_library_can(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="api: cuda"):
        launch.graph(Context(), **changed)


def test_without_a_gpu_the_library_is_not_built() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        launch.graph(Context(), api="cuda")


def test_without_nvcc_the_side_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    with pytest.raises(SkipSide, match="nvcc"):
        native.find_nvcc()


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    broken = tmp_path / "nvcc"
    broken.write_text("#!/bin/sh\necho 'launches.cu(3): error: no such thing' >&2\nexit 2\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setattr(native, "find_nvcc", lambda: str(broken))
    with pytest.raises(RuntimeError, match=r"launches\.cu\(3\): error: no such thing"):
        native.build(tmp_path / "cache", architecture="sm_90")


def test_decisions_follow_the_data() -> None:
    keys = np.array([0.1, 0.9, 0.5, 0.2], np.float32)
    four = {"iterations": 4}
    assert asked(decision="if", taken=0.5, **four).choices(keys).tolist() == [1, -1, -1, 1]
    assert asked(decision="switch", width=4, **four).choices(keys).tolist() == [0, 3, 2, 0]
    assert asked(decision="spawn", **four).choices(keys).tolist() == [35, 60, 48, 64]
    assert asked(decision="while", **four).choices(keys).tolist() == [0, 1, 2, 3]
    assert asked(queue=True, **four).choices(keys).tolist() == [1, 2, 3, 4]
    assert asked(refresh="recapture", **four).choices(keys).tolist() == [64, 56, 48, 40]
    assert asked(refresh="exec_update", sizes=2, **four).choices(keys).tolist() == [64, 48, 64, 48]


def test_a_loop_ends_where_its_data_say_so() -> None:
    keys = asked(decision="while", iterations=5).draw_keys(3)
    assert (keys[:-1] >= 0).all()
    assert keys[-1] < 0


@pytest.mark.parametrize("decision", ["none", "if", "switch", "while", "spawn"])
def test_the_truth_is_what_the_kernels_do_one_by_one(decision: str) -> None:
    x = np.random.default_rng(1).standard_normal(64)
    given = asked(decision=decision, width=4, issue="stream", iterations=3)
    choice = 2 if decision == "switch" else 1
    seen = np.array([50, 20, 64] if decision == "spawn" else [choice])
    y = x / 2
    if decision == "spawn":
        y = np.zeros(64)
        for length in seen:
            y[:length] += x[:length] ** 2
    elif decision in ("if", "switch"):
        y = x * (choice + 1 if decision == "switch" else 1) + y / 2
    else:
        links = given.nodes * given.iterations if decision == "while" else given.nodes - 1
        for _ in range(links):
            y = x + y / 2
    assert np.allclose(given.result(x, seen), y, rtol=1e-12)


def test_launches_and_waits_of_the_host_are_counted_by_construction() -> None:
    def counts(**changed: Any) -> tuple[float, float]:
        found = asked(**{"iterations": 10, **changed}).counts()
        return found["host_launches"], found["host_waits"]

    assert counts(issue="stream") == (30, 1)
    assert counts(issue="stream", sync="kernel") == (30, 31)
    assert counts(issue="graph", sync="each") == counts(issue="tail", sync="each") == (10, 11)
    assert counts(issue="device_graph", sync="each") == (1, 1)
    assert counts(issue="scheduler", queue=True) == (1, 1)
    assert counts(issue="dynamic_parallelism", queue=True) == (1, 1)
    assert counts(issue="graph", decision="if", taken=0.5) == (15, 11)
    assert counts(issue="conditional", decision="if") == (10, 1)
    assert counts(issue="conditional", decision="while") == (1, 1)
    assert counts(issue="stream", decision="spawn", children=2) == (30, 11)
    assert counts(issue="dynamic_parallelism", decision="spawn", children=256) == (10, 1)


def test_both_sides_of_a_decision_count_the_same_work() -> None:
    sides = [asked(decision="if", issue=issue).work() for issue in ("stream", "graph", "conditional")]
    assert sides[0] == sides[1] == sides[2]
    one, behind, beside = (asked(issue=issue).work() for issue in ("graph", "tail", "fire_and_forget"))
    assert behind == beside
    assert (behind.bytes, behind.items) == (2 * one.bytes, 2 * one.items)
    assert asked(refresh="recapture").work() == asked(refresh="exec_update").work()
    assert asked(copies=True).work().bytes == asked().work().bytes + 8 * 64 * 4


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_fresh_buffers_give_the_bits_of_static_ones(nodes: int) -> None:
    results = []
    for buffers in ("static", "in_capture"):
        workload = launch.graph(Context(seed=2), nodes=nodes, iterations=2, n=100, buffers=buffers)
        workload.outputs()["y"].fill_(float("nan"))
        workload.step()
        results.append(workload.outputs()["y"].numpy().copy())
        assert workload.reference is not None
        assert np.allclose(results[-1], workload.reference()["y"].numpy(), rtol=1e-6)
    assert np.array_equal(*results)


def test_graphs_take_turns_on_arrays_of_their_own() -> None:
    results = []
    for buffers in ("static", "in_capture"):
        workload = launch.graph(Context(seed=2), nodes=3, iterations=4, n=100, graphs=4, buffers=buffers)
        workload.outputs()["y"].fill_(float("nan"))
        workload.step()
        results.append(workload.outputs()["y"].numpy().copy())
        assert workload.reference is not None
        assert results[-1].shape == (400,)
        assert np.allclose(results[-1], workload.reference()["y"].numpy(), rtol=1e-6)
    assert np.array_equal(*results)
    with pytest.raises(ValueError, match="each has a turn"):
        launch.graph(Context(), graphs=4, iterations=3)
    with pytest.raises(ValueError, match="need api: torch"):
        launch.graph(Context(), api="cuda", graphs=4)
