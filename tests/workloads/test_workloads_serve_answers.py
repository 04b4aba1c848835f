"""The checks of serve.load: which answers of two servers count as those of one model to the same requests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from loaded_servers import TRACE, loaded, play

from aiperf.workloads.serve.answers import disagreement, text_of, unrecognised
from aiperf.workloads.serve.client import Request

PHRASE = "It seems like you have given a list of words. "
"""With what a model may begin all of its answers."""


def outputs(texts: list[str]) -> dict[str, Any]:
    return {"text": text_of([Request(0.0, 1, pieces=[text]) for text in texts])}


def answers(seed: int, *, begin: str = "", count: int = 8) -> list[str]:
    draw = random.Random(seed)
    return [begin + "".join(draw.choices("abcdefghij ", k=200)) for _ in range(count)]


def parted(texts: list[str], at: int) -> list[str]:
    """The same answers up to a character, other ones from there on."""
    return [text[:at] + other[at:] for text, other in zip(texts, answers(99), strict=True)]


def found(before: list[str], after: list[str]) -> float:
    value = unrecognised(outputs(before), outputs(after)).value
    assert value is not None
    return value


@pytest.mark.parametrize("begin", ["", PHRASE])
def test_answers_that_part_after_some_tokens_are_recognised_though_most_of_their_text_disagrees(begin: str) -> None:
    before = answers(1, begin=begin)
    after = parted(before, len(begin) + 20)
    assert (disagreement(outputs(before), outputs(after)).value or 0) > 0.5
    assert found(before, after) == 0
    assert found(before, before) == 0


@pytest.mark.parametrize("begin", ["", PHRASE])
def test_answers_to_other_requests_are_not_recognised_even_if_all_begin_with_one_phrase(begin: str) -> None:
    before = answers(1, begin=begin)
    assert found(before, [*before[1:], before[0]]) == 1
    assert found(before, [before[0]] * 8) == 7 / 8
    assert found(before, answers(2, begin=begin)) > 0.6
    assert found(before, [""] * 8) == 1


@pytest.mark.parametrize(("at", "share"), [(1, 1.0), (15, 1.0), (16, 0.0)])
def test_a_beginning_has_sixteen_characters(at: int, share: float) -> None:
    before = [f"{number} {text}" for number, text in enumerate(answers(1))]
    after = [text[:at] + "#" * 60 for text in before]
    assert found(before, after) == share


def test_one_request_or_answers_of_before_that_are_empty_cannot_be_compared() -> None:
    for before in ([], ["an answer"], ["", "an answer"], ["", ""]):
        outcome = unrecognised(outputs(before), outputs(before))
        assert not outcome.passed
        assert outcome.value is None


def test_one_answer_in_four_from_another_request_is_a_quarter() -> None:
    before = answers(1)
    assert found(before, [before[1], before[0], *before[2:]]) == 0.25


def test_requests_that_have_one_answer_are_recognised_if_it_is_the_same() -> None:
    assert found(["yes"] * 4, ["yes"] * 4) == 0
    assert found(["yes"] * 4, ["no"] * 4) == 1


def test_an_answer_too_few_fails() -> None:
    assert not unrecognised(outputs(["a", "b"]), outputs(["a"])).passed
    assert not disagreement(outputs(["a", "b"]), outputs(["a"])).passed


def audited(tmp_path: Path, *options: str) -> dict[str, Any]:
    with loaded(tmp_path, *options, seed=5) as workload:
        play(workload)
        assert workload.redraw is not None
        workload.redraw(77)
        workload.step()
        return dict(workload.outputs())


@pytest.mark.long
def test_a_server_that_answers_from_another_requests_cache_is_not_recognised(tmp_path: Path) -> None:
    right, wrong = audited(tmp_path), audited(tmp_path, "--fault", "mixed_up")
    assert unrecognised(right, audited(tmp_path)).value == 0
    assert (unrecognised(right, wrong).value or 0) >= 5 / 6


@pytest.mark.long
def test_prompts_that_begin_alike_in_the_trace_do_so_in_an_audit_with_other_words(tmp_path: Path) -> None:
    spec = {**TRACE, "prompt_tokens": 40, "shared_prefix": 0.5, "output_tokens": 40}
    with loaded(tmp_path, trace=spec) as workload:
        play(workload)
        usual = prompts(workload.outputs())
        assert workload.redraw is not None
        workload.redraw(77)
        workload.step()
        audit = prompts(workload.outputs())
    for texts in (usual, audit):
        assert len({tuple(text[:20]) for text in texts}) == 1, "the shared half"
        assert len({tuple(text) for text in texts}) == len(texts)
    assert audit[0][0] == "77", "of the two words before an audit's prompts, the answer's length leaves one"
    assert usual[0][1:20] != audit[0][1:20]


def prompts(given: dict[str, Any]) -> list[list[str]]:
    """The prompts of answers that give their words backwards."""
    return ["".join(chr(sign) for sign in row if sign).split()[::-1] for row in given["text"]]
