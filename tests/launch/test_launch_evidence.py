"""Real pairs whose sides deceive their own process: the judge, which runs none of their code, is not deceived."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from aiperf.launch import evidence
from aiperf.launch.gang import Gang, LaunchFailed
from aiperf.launch.guardian import Guardian
from aiperf.launch.judge import JudgeProcess
from aiperf.launch.pair import CHECKING, Where, measure_pair
from aiperf.plan.order import PairPlan
from aiperf.protocol.checking import ForgetRequest
from aiperf.protocol.claims import OutputChange
from aiperf.records import Case, Check, CheckResult, Measure, Needs, Side
from aiperf.settings import Limits, Precision, Settings

SIDES = Path(__file__).with_name("broken_sides.py")
ALL = tuple(sorted(os.sched_getaffinity(0)))
PRECISION = Precision(
    name="tiny", looks=(3,), rounds=2, side_seconds=0.01, round_seconds=0.002, warmup_seconds=0.1, warmup_window=5,
    audits=2,
)  # fmt: skip
SETTINGS = Settings(precision=PRECISION, limits=Limits(*(PATIENCE_S,) * 7))
BITWISE, CLOSE, NAMED = Check("bitwise"), Check("tolerance"), Check("named", name="near")
TOGETHER = {"isolation": "in_process"}


def _one_each(*pairs: tuple[Any, ...], of: Iterable[tuple[Any, ...]]) -> list[Any]:
    """All combinations, of which some, that hold each value, stand for the others but in make test-long."""
    return [pytest.param(*one, marks=[] if one in pairs else [pytest.mark.long]) for one in of]


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    with Guardian() as running:
        yield running


@pytest.fixture(scope="module")
def judge(guardian: Guardian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeProcess]:
    with JudgeProcess(tmp_path_factory.mktemp("judge"), guardian) as running:
        yield running


Judged = Callable[..., CheckResult]


@pytest.fixture
def judged(guardian: Guardian, judge: JudgeProcess, tmp_path: Path) -> Judged:
    """What the check of one pair finds. ``TOGETHER`` where the sides may share a process: that takes half the time."""

    def run(
        before: Any, after: Any, check: Check = BITWISE, *, mark: Callable[[str | None], None] = lambda _: None,
        settings: Settings = SETTINGS, **measure: Any,
    ) -> CheckResult:  # fmt: skip
        sides = tuple(_side(name, given) for name, given in (("before", before), ("after", after)))
        case = Case("s", "s", "t", "w", sides, measure=Measure(clock="wall", **measure), check=check, needs=Needs())
        where = Where(ALL[-1:], ALL, tmp_path, guardian, mark, judge=judge)
        pair = measure_pair(PairPlan(case, 0, ("before", "after"), 3), settings=settings, where=where)
        own = [check for check in pair.checks if check.kind == "outputs"]
        assert len(own) == 1
        return own[0]

    return run


def _side(name: str, given: Any) -> Side:
    function, params = given if isinstance(given, tuple) else ("plain", given)
    return Side(name, workload=f"{SIDES}:{function}", params=params)


# ---- sides that deceive their own process ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "check"),
    _one_each(
        ("numpy", CLOSE), ("comparer", CLOSE), ("digest", BITWISE), ("auditor", BITWISE), ("no audits", CLOSE),
        of=product(("numpy", "comparer", "digest", "auditor", "no audits"), (BITWISE, CLOSE)),
    ),
)  # fmt: skip
def test_a_wrong_side_fails_whatever_it_patches_in_its_process(judged: Judged, patch: str, check: Check) -> None:
    found = judged({}, {"factor": 1.5, "patch": patch}, check)
    assert not found.passed
    assert found.sides == ("after",)


@pytest.mark.parametrize("patch", ["numpy", "comparer", "digest"])
def test_a_wrong_side_fails_where_both_patch_alike(judged: Judged, patch: str) -> None:
    assert not judged({"patch": patch}, {"wrong": 0.01, "patch": patch}).passed
    assert judged({"patch": patch}, {"patch": patch}, **TOGETHER).passed, "a lie that hides nothing"


def test_an_auditor_that_audits_nothing_on_both_sides_leaves_nothing_that_could_pass(judged: Judged) -> None:
    found = judged({"patch": "no audits"}, {"patch": "no audits"})
    assert (found.passed, found.detail) == (False, "after: before has 0 audited outputs, after has 0")


def test_what_is_shown_in_the_end_must_be_what_was_there_after_the_audit(judged: Judged) -> None:
    found = judged({}, {"patch": "later"}, CLOSE)
    assert found.detail == "after: audit 0: after handed over other bytes of out than it had right after the step"


LARGE = {"items": 3 << 18, "patch": "digest"}
"""6 MiB: more than is handed over whole, here. Both sides make the same digest of whatever they have."""


@pytest.mark.long
@pytest.mark.parametrize("check", [BITWISE, CLOSE])
def test_large_outputs_that_claim_to_be_equal_are_seen_in_parts(
    judged: Judged, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "_WHOLE", 4 << 20)
    found = judged(LARGE, {**LARGE, "wrong": 0.2}, check)
    assert found.detail == "after: audit 0: out differs in parts of it, though both sides made the same digest"
    honest = {"items": 3 << 18}
    found = judged(honest, honest, check, **TOGETHER)
    assert found.passed
    assert found.compared.endswith(", digests of the whole and 8 of 12 MiB drawn at random")
    assert (found.seen_bytes, found.output_bytes) == (8 << 20, 12 << 20)


@pytest.mark.long
def test_large_outputs_that_differ_within_the_tolerance_are_compared_whole(
    judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "_WHOLE", 4 << 20)
    honest, check = {"items": 3 << 18}, Check("tolerance", rtol=1e-5)
    found = judged(honest, {**honest, "factor": 1 + 1e-7}, check, **TOGETHER)
    assert found.passed
    assert found.compared.endswith(", whole outputs")
    assert found.max_error == pytest.approx(1e-7, rel=0.1)
    # Of a single element.
    assert not judged(honest, {**honest, "wrong": 2e-6}, check, **TOGETHER).passed


# ---- truth that a side cannot loosen ---------------------------------------------------------------------------------


def test_a_coarser_output_is_held_to_the_tolerance_of_befores_type_and_is_noted(judged: Judged) -> None:
    found = judged({"dtype": "float32"}, {"dtype": "float16"}, CLOSE, **TOGETHER)
    assert not found.passed
    assert found.changes == (OutputChange("out", ("float32", "float16"), (500, 500), found.max_error),)
    assert 1e-4 < (found.max_error or 0) < 1e-3
    stated = judged({"dtype": "float32"}, {"dtype": "float16"}, Check("tolerance", rtol=1e-2), **TOGETHER)
    assert (stated.passed, len(stated.changes)) == (True, 1)


def test_a_side_that_moves_its_own_reference_is_held_against_befores(judged: Judged) -> None:
    rule = Check("tolerance", rtol=0.25, atol=0.0, reference=True)
    found = judged({"factor": 1.2, "truth": 1.0}, {"factor": 1.45, "truth": 1.4}, rule, **TOGETHER)
    assert not found.passed
    assert "out differs in 500 of 500 elements" in found.detail
    assert "the reference's" in found.detail
    assert judged({"factor": 1.2, "truth": 1.0}, {"factor": 1.24, "truth": 9.0}, rule, **TOGETHER).passed


def test_a_named_check_is_befores_own(judged: Judged) -> None:
    assert judged({}, ("always_passes", {}), NAMED).passed
    assert judged({}, ("always_passes", {"factor": 1.5}), NAMED).detail == "after: audit 0: far apart"
    accepts = judged(("always_passes", {}), {"factor": 1.5}, NAMED)
    assert "accepts anything" in accepts.detail


# ---- outputs that are not there --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "check"),
    _one_each(
        (("both", "some"), BITWISE), (("both", "some"), NAMED), (("none", "none"), CLOSE), (("empty", "empty"), NAMED),
        of=product((("both", "some"), ("none", "none"), ("empty", "empty")), (BITWISE, CLOSE, NAMED)),
    ),
)  # fmt: skip
def test_outputs_that_are_not_there_are_a_failed_check(judged: Judged, check: Check, given: tuple[str, str]) -> None:
    before, after = given
    why = {
        "both": "before gives ['more', 'out'], after gives ['out']",
        "none": "there are no outputs to compare",
        "empty": "the outputs have no elements to compare",
    }[before]
    found = judged(("gives", {"what": before}), ("gives", {"what": after}), check, **TOGETHER)
    assert (found.passed, found.detail) == (False, f"after: audit 0: {why}")


@pytest.mark.parametrize(
    ("what", "isolation", "check"),
    _one_each(
        ("unwritten", "process", BITWISE), ("unwritten", "in_process", CLOSE),
        ("unwritten bools", "process", CLOSE), ("unwritten bools", "in_process", BITWISE),
        of=product(("unwritten", "unwritten bools"), ("process", "in_process"), (BITWISE, CLOSE)),
    ),
)  # fmt: skip
def test_what_neither_side_writes_is_not_equal(judged: Judged, check: Check, isolation: str, what: str) -> None:
    assert not judged(("gives", {"what": what}), ("gives", {"what": what}), check, isolation=isolation).passed


# ---- a judge that fails ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "kind", "what"), [(signal.SIGKILL, "signal", "killed by SIGKILL"), (signal.SIGSTOP, "hang", "no answer")]
)
def test_a_judge_that_dies_or_hangs_is_a_failed_launch_and_the_next_pair_has_a_new_one(
    judged: Judged, judge: JudgeProcess, monkeypatch: pytest.MonkeyPatch, number: int, kind: str, what: str
) -> None:
    collect = Gang._collect

    def collected(gang: Gang, kind: Any, phase: str, limit: float) -> Any:
        """However slow the host is, nobody else ends by the limit that is the judge's."""
        return collect(gang, kind, phase, limit if gang.plan.name == "judge" else PATIENCE_S)

    monkeypatch.setattr(Gang, "_collect", collected)
    judge.ask(ForgetRequest(), limit=PATIENCE_S)

    def hurt(phase: str | None) -> None:
        if phase == CHECKING:
            os.kill(judge.pids[0], number)

    with pytest.raises(LaunchFailed) as caught:
        judged(
            {},
            {},
            mark=hurt,
            **TOGETHER,
            settings=replace(SETTINGS, limits=replace(SETTINGS.limits, check=3 if kind == "hang" else PATIENCE_S)),
        )
    failure = caught.value.failure
    assert (failure.side, failure.phase, failure.kind) == ("judge", "check", kind)
    assert what in failure.message
    assert judged({}, {}, **TOGETHER).passed


def test_answers_to_a_pair_that_failed_are_not_taken_for_those_of_the_next(judged: Judged, judge: JudgeProcess) -> None:
    judge.send(ForgetRequest(), limit=PATIENCE_S)
    first = judge.pids
    assert judged({}, {}, **TOGETHER).passed
    assert judge.pids != first
