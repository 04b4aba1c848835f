"""Breaking the library's sides on purpose: a few real scenarios, and checks that are blind by design of the test.

The whole library is ``make test-library``.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from aiperf.records import Case, Check, Side
from aiperf.workloads.contract import Context
from tests.library_check import __main__ as library
from tests.library_check.children import Crew, Outcome, check_all, counts_of
from tests.library_check.gangs import check_gang, needs_processes
from tests.library_check.inside import MANY, Seen, check_case, one_case, to_spoil

BENCH = """
import numpy as np
from aiperf.workloads.contract import Context, Outcome, Work, Workload


def scale(context: Context, *, factor: float = 2.0, more: int = 0, steps: bool = True) -> Workload:
    x = np.random.default_rng(context.seed).standard_normal(64)
    out, rows = np.empty_like(x), np.empty(8, dtype=np.int32)

    def step() -> None:
        if steps:
            np.multiply(x, factor, out=out)
            rows[:] = x[:8] * 100

    def near(before, after) -> Outcome:
        return Outcome(bool(np.allclose(before["out"], after["out"])), "out is elsewhere")

    return Workload(
        step,
        Work(items=64 + more),
        outputs=lambda: {"out": out, "rows": rows},
        inputs=lambda: {"x": x},
        checks={"near": near},
    )
"""


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "bench.py"
    path.write_text(BENCH, encoding="utf-8")
    sides = tuple(Side(name, workload=f"{path}:scale") for name in ("before", "after"))
    return Case("scale", "scale", "", "", sides, check=Check("bitwise"))


def seen(case: Case, folder: Path) -> Seen:
    context = Context(seed=5, scratch=folder, shared_scratch=folder)
    return check_case(one_case(case), context, library.HERE, look=lambda *_: None, broken=True)


def with_after(case: Case, **params: Any) -> Case:
    return replace(case, sides=(case.sides[0], replace(case.sides[1], params=params)))


RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "python-loop-vs-vectorised": ("bitwise", {"n": 64}),
    "mha-vs-gqa-kv-heads": ("tolerance of the dtype", {"kv_len": 64}),
    "matmul-python-loops-vs-library": ("tolerance", {"m": 24, "n": 24, "k": 24}),
    "dot-product-rolled-vs-unrolled": ("tolerance, and the reference", {}),
    "gemv-vs-batched-gemm": ("named", {"n": 256, "k": 256}),
}
"""Scenario -> its rule, and sizes small enough for a test."""


def rule_of(check: Check) -> str:
    if check.kind != "tolerance":
        return check.kind
    return f"tolerance{'' if check.rtol else ' of the dtype'}{', and the reference' if check.reference else ''}"


@pytest.mark.parametrize("name", RULES)
def test_the_check_of_a_scenario_notices_every_broken_side(name: str, tmp_path: Path) -> None:
    rule, small = RULES[name]
    (planned,) = library.cases_of(name)
    assert rule_of(planned.check) == rule
    sides = tuple(replace(side, params={**side.params, **small}) for side in planned.sides)
    found = seen(replace(planned, sides=sides), tmp_path)
    assert found.missed == []
    whole = ("no step at all", "a step that spoils its outputs", "idle after one step", "an item too many")
    assert {kind: found.caught[kind] for kind in whole} == dict.fromkeys(whole, len(sides) - 1)


@pytest.mark.parametrize("check", [Check("bitwise"), Check("tolerance"), Check("tolerance", 0.1, 0.0)])
def test_both_outputs_are_broken_one_by_one_and_each_break_is_counted(case: Case, check: Check, tmp_path: Path) -> None:
    found = seen(replace(case, check=check), tmp_path)
    floats = {"a bit": 2} if check.kind == "bitwise" else {"an element": 1, "a bit": 1}
    whole = ("no step at all", "a step that spoils its outputs", "idle after one step", "an item too many")
    assert found == Seen({**dict.fromkeys(whole, 1), **floats}, unusual=["large inputs"])


def test_a_tolerance_that_forgives_a_quarter_of_an_element_is_told(case: Case, tmp_path: Path) -> None:
    loose = replace(case, check=Check("tolerance", rtol=0.5))
    assert seen(loose, tmp_path).missed == ["after.out: an element passes"]


def test_a_check_that_never_looks_at_an_output_is_told(case: Case, tmp_path: Path) -> None:
    named = replace(case, check=Check("named", name="near"))
    assert seen(named, tmp_path).missed == ["after.rows: an output of zeros passes"]


def test_a_check_that_passes_a_side_that_does_nothing_is_told(case: Case, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="passes idleness"):
        seen(replace(case, check=Check("none")), tmp_path)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"factor": 2.5}, "out differs"),
        ({"more": 1}, "65 items a step, before 64"),
        ({"steps": False}, "leaves out unwritten"),
    ],
)
def test_sides_that_are_not_alike_fail_as_they_are(case: Case, params: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=told):
        seen(with_after(case, **params), tmp_path)


MASKED = """
import numpy as np
from aiperf.workloads.contract import Work, Workload


def masked(context, *, minds=True, large=True, fixed=""):
    x, mask = np.random.default_rng(context.seed).standard_normal(64), np.ones(64, bool)
    out = np.empty_like(x)

    def step():
        out[:] = np.where(mask, x, 0.0) if minds else x
        if not large:
            np.minimum(out, 9.0, out=out)

    return Workload(
        step, Work(), outputs=lambda: {"out": out}, inputs=lambda: {"x": x, "mask": mask}, fixed_inputs=fixed
    )
"""


@pytest.mark.parametrize(
    ("base", "params", "told"),
    [
        ({}, {"minds": False}, "when mask, the same in every audit, had other values"),
        ({}, {"large": False}, "on large inputs"),
        ({"fixed": "no row is ever padded"}, {"minds": False, "fixed": "no row is ever padded"}, ""),
    ],
)
def test_inputs_that_no_audit_draws_accuse_a_side_here_as_in_a_worker(
    base: Any, params: Any, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "masked.py"
    path.write_text(MASKED, encoding="utf-8")
    sides = [Side(name, workload=f"{path}:masked", params=p) for name, p in (("before", base), ("after", params))]
    case = Case("masked", "masked", "", "", tuple(sides), check=Check("bitwise"))
    with pytest.raises(AssertionError, match=told) if told else nullcontext():
        assert seen(case, tmp_path).unusual == ["large inputs"]
    assert seen(replace(case, sides=(sides[0], replace(sides[0], name="after"))), tmp_path).unusual == (
        ["large inputs"] if base else ["large inputs", "mask varied"]
    )


@pytest.mark.long
def test_sides_with_processes_of_their_own_are_cheated_through_a_real_launch(case: Case, tmp_path: Path) -> None:
    own = replace(case, sides=tuple(replace(side, env={"WHO": side.name}) for side in case.sides))
    assert needs_processes(own)
    assert not needs_processes(case)
    found = check_gang(own, library.here(), tmp_path)
    assert found == Seen({"no step at all": 1, "an item too many": 1, "a rank that spoils its outputs": 1})
    blind = check_gang(replace(own, check=Check("none")), library.here(), tmp_path)
    assert (blind.caught, len(blind.missed)) == ({}, 3)


CHILD = """
import sys, time, json
for name in map(str.strip, sys.stdin):
    if name == "dies":
        sys.exit(3)
    if name == "hangs":
        time.sleep(60)
    print(json.dumps({"name": name, "status": "passed"}), flush=True)
"""


@pytest.mark.long
def test_a_process_that_dies_or_hangs_fails_its_scenario_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    crew = Crew([sys.executable, "-c", CHILD], jobs=1, limit_s=4.0, line=lambda o: f"{o.name} {o.detail}".strip())
    found = check_all(["one", "dies", "two", "hangs", "three"], crew)
    assert {name: outcome.status for name, outcome in found.items()} == {
        **dict.fromkeys(("one", "two", "three"), "passed"),
        **dict.fromkeys(("dies", "hangs"), "failed"),
    }
    assert capsys.readouterr().out.splitlines() == [
        "one",
        "dies its process died (3)",
        "two",
        "hangs no answer within 4 s",
        "three",
    ]
    assert counts_of([*found.values(), Outcome("four", "skipped")]) == {"passed": 3, "skipped": 1, "failed": 2}


TELLING = """
import json, os, sys
for name in map(str.strip, sys.stdin):
    detail = f"{os.environ.get('WANTED', '')} {os.getpid()}"
    print(json.dumps({"name": name, "status": "passed", "detail": detail}), flush=True)
"""


def test_a_scenario_that_sets_its_environment_gets_a_process_that_has_it_and_no_other_scenario() -> None:
    crew = Crew(
        [sys.executable, "-c", TELLING], jobs=1, limit_s=20.0, line=lambda o: o.name,
        variables=lambda name: {"WANTED": name} if name == "two" else {},
    )  # fmt: skip
    found = check_all(["one", "two", "three", "four"], crew)
    told = {name: outcome.detail.split(" ") for name, outcome in found.items()}
    assert {name: wanted for name, (wanted, _) in told.items()} == {"one": "", "two": "two", "three": "", "four": ""}
    assert len({pid for _, pid in told.values()}) == 3


def test_a_name_that_there_is_not_fails_alone() -> None:
    there = {"one": {}, "two": {"WANTED": "x"}}
    crew = Crew([sys.executable, "-c", TELLING], 1, 20.0, line=lambda o: o.name, variables=lambda name: there[name])
    found = check_all(["one", "typo", "two"], crew)
    assert {name: outcome.status for name, outcome in found.items()} == {
        "one": "passed",
        "typo": "failed",
        "two": "passed",
    }


def test_of_very_many_outputs_of_a_named_check_the_ends_and_extremes_are_broken_and_of_others_all() -> None:
    many = {f"grad.{k:03}": np.zeros((k % 7 + 2, 3)) for k in range(150)}
    many["grad.031"], many["grad.067"] = np.zeros(1), np.zeros((99, 99))
    taken = to_spoil(many, "named")
    assert {"grad.000", "grad.031", "grad.067", "grad.149"} <= set(taken)
    assert len(taken) == len(set(taken)) == MANY
    assert to_spoil(many, "allclose") == sorted(many)
    few = dict(list(many.items())[:MANY])
    assert to_spoil(few, "named") == sorted(few)
