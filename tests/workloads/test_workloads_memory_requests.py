"""memory.requests without a GPU: answers, retries, the check, a process that answers, and why memory is out at all."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.memory import limited, requests
from aiperf.workloads.memory import workload as memory

ROUNDS = [2, 9, 1]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and blocks of a test's size."""
    for name, value in {"WORDS": 2 * limited.ANSWER, "FIRST_ROWS": 10, "MORE_ROWS": 3}.items():
        monkeypatch.setattr(limited, name, value)


def words(seed: int) -> Any:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, limited.WORDS, dtype=np.int32)


@pytest.mark.parametrize("offload", [False, True])
def test_an_answer_is_what_the_cpu_computes_from_the_input(small: None, offload: bool) -> None:
    source, found = words(1), []
    for number, rounds in ((0, 1), (1, 1), (1, 5)):
        answer = limited.answer(torch.from_numpy(source), number=number, rounds=rounds, offload=offload)
        assert np.array_equal(answer.numpy(), requests.truth(source, number=number, rounds=rounds))
        found.append(answer.tolist())
    assert found[0] != found[1] != found[2]


def test_a_block_that_is_not_kept_is_free_before_the_next_is_computed(small: None) -> None:
    source, last = torch.from_numpy(words(1)), None
    for block in limited.blocks(source, number=0, rounds=4):
        assert last is None or last() is None
        last = weakref.ref(block)
        del block
    assert last is not None


class Gpu:
    """Long requests run out of memory, unless what they keep is on the host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.emptied, self.tries, answer = 0, list[tuple[int, bool]](), limited.answer

        def try_answer(source: Any, *, number: int, rounds: int, offload: bool) -> Any:
            self.tries.append((number, offload))
            if rounds > 8 and not offload:
                raise torch.OutOfMemoryError
            return answer(source, number=number, rounds=rounds, offload=offload)

        def empty_cache() -> None:
            self.emptied += 1

        monkeypatch.setattr(limited, "answer", try_answer)
        monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 5 << 20)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 3 << 20)


def side(on_oom: str, *, seed: int = 4) -> Any:
    asked = SimpleNamespace(context=Context(seed=seed), on_oom=on_oom, limit=1 << 30, rounds=ROUNDS)
    return requests._workload(requests._Requests(asked, torch.device("cpu")), asked)


def arrays(made: Any) -> dict[str, Any]:
    return {name: array.numpy().copy() for name, array in made.outputs().items()}


def test_without_a_retry_the_request_fails_and_those_after_it_are_answered(small: None, monkeypatch) -> None:
    gpu = Gpu(monkeypatch)
    made = side("fail")
    assert (made.prepare, made.anew) == (torch.cuda.empty_cache, True)
    for _ in range(2):
        made.step()
        assert made.outputs()["answered"].tolist() == [1, 0, 1]
        assert not made.outputs()["answers"][1].any()
    assert made.values() == {"answered": pytest.approx(2 / 3)}
    assert made.values() == {}
    assert made.counters() == {"out_of_memory": 1.0, "retried": 0.0, "unused_mib_when_out": 2.0}
    assert (gpu.emptied, gpu.tries) == (0, [(0, False), (1, False), (2, False)] * 2)


def test_a_retry_empties_the_cache_first_and_keeps_the_blocks_on_the_host(small: None, monkeypatch) -> None:
    gpu = Gpu(monkeypatch)
    made = side("offload")
    made.step()
    assert made.outputs()["answered"].tolist() == [1, 1, 1]
    assert made.values() == {"answered": 1.0}
    assert made.counters()["retried"] == 1
    assert (gpu.emptied, gpu.tries) == (1, [(0, False), (1, False), (1, True), (2, False)])


def test_the_check_recomputes_every_answer_and_counts_the_failed(small: None, monkeypatch) -> None:
    Gpu(monkeypatch)
    failing, retrying = side("fail"), side("offload")
    failing.step()
    retrying.step()
    check = failing.checks["right_answers"]
    before, after = arrays(failing), arrays(retrying)
    outcome = check(before, after)
    assert outcome.passed
    assert outcome.value == pytest.approx(1 / 3)
    for name, at, value, words_said in (
        ("answers", (1, 5), 77, "1 of 3 requests with another answer"),
        ("answered", 1, 0, "1 of 3 requests with another answer"),
        ("answered", 1, 2, "neither answered nor failed"),
        ("source", 3, 1, "different inputs"),
    ):
        spoilt = {key: array.copy() for key, array in after.items()}
        spoilt[name][at] = value
        refused = check(before, spoilt)
        assert not refused.passed
        assert words_said in refused.detail
    retrying.redraw(5)
    retrying.step()
    assert not check(before, arrays(retrying)).passed
    assert check(arrays(retrying), arrays(retrying)).value == 0


def test_a_new_process_answers_with_other_settings_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []

    class Seen(requests.Helper):
        def __init__(self, *given: Any, env: dict[str, str], **options: Any) -> None:
            started.append(env)
            super().__init__(*given, env=env, **options)

    monkeypatch.setattr(requests, "Helper", Seen)
    processes = requests._NewProcesses("cpu", 1 << 30)
    try:
        for number in (0, 3):
            source = words(number)
            found = processes.answer(torch.from_numpy(source), number=number, rounds=1)
            assert np.array_equal(found.numpy(), requests.truth(source, number=number, rounds=1))
    finally:
        processes.close()
    assert [env["PYTORCH_ALLOC_CONF"] for env in started] == ["expandable_segments:True"]


# It begins with an import of torch, as the one before does.
@pytest.mark.long
def test_a_process_that_fails_otherwise_than_by_memory_ends_the_side() -> None:
    processes = requests._NewProcesses("cuda:0", 1 << 30)
    try:
        with pytest.raises(RuntimeError, match="ended with status 1"):
            processes.answer(torch.from_numpy(words(1)), number=0, rounds=1)
    finally:
        processes.close()


def test_a_request_that_runs_out_of_memory_in_the_new_process_too_has_failed(small: None, monkeypatch) -> None:
    Gpu(monkeypatch)
    made = side("fail")
    owner = made.step.__self__
    owner._asked.on_oom = "new_process"
    owner._processes = SimpleNamespace(answer=lambda source, *, number, rounds: None, close=lambda: None)
    made.step()
    assert made.outputs()["answered"].tolist() == [1, 0, 1]
    assert made.counters()["retried"] == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [({"rounds": []}, "at least one"), ({"rounds": [4, 0]}, "1 to 64"), ({"limit": 1 << 20}, "1 GiB or more")],
)
def test_impossible_requests_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        memory.requests(Context(), **given)


def test_without_a_gpu_the_side_is_skipped() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        memory.requests(Context())


def held_by_default(limit: int, rounds: int, *, offload: bool) -> tuple[int, int]:
    """What torch's default allocator holds for the blocks of a request, by its rules: the smallest free block that is
    large enough is split; a segment goes back only whole, and only when memory is out. Returns the round in which it is
    out (or how many there are), and what was in use then. In MiB."""
    segments: list[dict[str, Any]] = []

    def take(size: int) -> dict[str, Any] | None:
        fitting = [s for s in segments if s["free"] >= size]
        if fitting:
            found = min(fitting, key=lambda s: s["free"])
        else:
            if sum(s["size"] for s in segments) + size > limit:
                segments[:] = [s for s in segments if s["free"] < s["size"]]
            if sum(s["size"] for s in segments) + size > limit:
                return None
            found = {"size": size, "free": size}
            segments.append(found)
        found["free"] -= size
        return found

    for index in range(rounds):
        narrow = (limited.FIRST_ROWS + limited.MORE_ROWS * index) * limited.WORDS * 2 >> 20
        wide_in = take(2 * narrow)
        narrow_in = take(narrow) if wide_in else None
        if wide_in is None or narrow_in is None:
            return index, sum(s["size"] - s["free"] for s in segments)
        wide_in["free"] += 2 * narrow
        narrow_in["free"] += narrow if offload else 0
    return rounds, 0


def test_the_long_request_is_out_of_memory_by_fragments_and_the_others_are_not() -> None:
    limit = 3 << 10
    ended, used = held_by_default(limit, 16, offload=False)
    assert ended < 16
    assert used < 0.65 * limit
    assert held_by_default(limit, 16, offload=True)[0] == 16
    assert held_by_default(limit, 4, offload=False)[0] == 4
    blocks = [(limited.FIRST_ROWS + limited.MORE_ROWS * i) * limited.WORDS * 2 >> 20 for i in range(16)]
    # An expandable segment gives back what is free but for less than two pages of 20 MiB beside each kept block.
    assert sum(blocks) + 2 * blocks[-1] + 40 * len(blocks) < limit
