"""Somebody's own pair: plain functions in three lines of YAML, what their values show, and a function by itself."""

from __future__ import annotations

import pytest
from cli_user import User

FUNCTIONS = """
import random
import time


def make(seed, *, count: int = 300):
    drawn = random.Random(seed)
    return ([drawn.random() for _ in range(count)],)


def loop(xs):
    out = []
    for x in xs:
        out.append({"x": x, "twice": 2 * x})
    return out


def comprehension(xs):
    return [{"twice": 2 * x, "x": x} for x in xs]


def wrong(xs):
    return [{"x": x, "twice": 2.01 * x} for x in xs]


def silent(xs):
    loop(xs)


def handle(xs):
    return object()


def sorts(xs):
    xs.sort(reverse=True)
    return xs[:3]
"""


@pytest.fixture
def user(tmp_path) -> User:
    made = User(tmp_path, {"AIPERF_STATE": str(tmp_path / "state")})
    made.write("mine.py", FUNCTIONS)
    return made


def pair(user: User, after: str, *lines: str) -> str:
    text = f"setup: ./mine.py:make\nbefore: ./mine.py:loop\nafter: ./mine.py:{after}\n"
    user.write("own.yaml", text + "\n".join(lines))
    return "./own.yaml"


def test_three_lines_compare_two_plain_functions_by_value_and_strict_mode_finds_nothing_open(user):
    done = user.runs(pair(user, "comprehension"), "--strict")
    assert done.code == 0, done.out
    assert "not verified" not in done.out
    record = user.record("own")
    assert {c["passed"] for p in record["pairs"] for c in p["checks"]} == {True}
    said = user.types("show", "latest", "own").out
    assert "What each call returned was compared by value: floats within the tolerance, all else exactly." in said
    assert "inputs made anew by make in audits; " in said
    assert "returns list of 300 dict" in said


@pytest.mark.long
def test_params_go_to_the_set_up_and_sweep_it(user):
    done = user.runs(pair(user, "comprehension", "axes: {count: [10, 20]}"))
    assert done.code == 0, done
    assert "returns list of 10 dict" in user.types("show", "latest", "own[count=10]").out
    assert user.record("own[count=20]")["case"]["sides"][1]["setup_params"] == {"count": 20}


@pytest.mark.long
def test_two_functions_that_return_nothing_are_noted_and_refused_where_strict(user):
    path = pair(user, "silent", "expect: equivalent", "measure: {isolation: in_process}")
    user.write("own.yaml", (user.folder / "own.yaml").read_text().replace("py:loop", "py:silent"))
    done = user.runs(path)
    assert done.code == 0, done
    said = "neither side returned anything, so equal work was not checked"
    assert said in " ".join(user.types("show", "latest").out.split())
    refused = user.runs(path, "--strict")
    assert refused.code == 5
    assert f"not verified (strict): {said}; return the results, or say why not" in " ".join(refused.out.split())


def test_another_value_is_invalid_after_the_first_pair_and_names_its_place(user):
    done = user.runs(pair(user, "wrong"))
    assert done.code == 5
    assert len(user.record("own")["pairs"]) == 1
    assert "result[].twice differs in 300 of 300 elements" in " ".join(done.out.split())


@pytest.mark.long
def test_what_cannot_be_compared_ends_with_the_line_to_write_and_that_line_works(user):
    done = user.runs(pair(user, "handle"))
    assert done.code == 5
    assert "check: {kind: none, reason: why}" in " ".join(done.out.split())
    assert user.runs(pair(user, "handle", "check: {kind: none, reason: handles}")).code == 0


def test_a_function_that_changes_its_arguments_is_invalid(user):
    done = user.runs(pair(user, "sorts"))
    assert done.code == 5
    assert "the step changed its inputs" in " ".join(done.out.split())


def test_a_function_by_itself_is_held_against_itself(user):
    user.write("one.yaml", "workload: ./mine.py:loop\nsetup: ./mine.py:make\n")
    assert user.runs("./one.yaml").code == 0
    record = user.record("one")
    assert [s["name"] for s in record["case"]["sides"]] == ["before", "after"]
    assert record["case"]["expect"] == "equivalent"
    assert "one: ./mine.py:loop against itself" in user.types("show", "latest", "one").out
