"""llm.generate with a compiled layer: what is chosen, and when it is compiled."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches, generate
from aiperf.workloads.llm import agreement, host_static
from aiperf.workloads.llm import workload as llm
from aiperf.workloads.shared.compiler_counts import compiler_counts

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.long
@pytest.mark.usefixtures("backend")
def test_a_compiled_layer_chooses_the_same_tokens_and_is_compiled_in_set_up_for_each_size():
    shared = {"prompt_tokens": 12, "new_tokens": 6, "sizes": [1, 2, 1], "kv": "static"}
    plain = llm.generate(Context(seed=3), **shared)
    before = compiler_counts("graphs")["graphs"]
    compiled = llm.generate(Context(seed=3), **shared, compile="layer")
    made = compiler_counts("graphs")["graphs"]
    assert made == before + 2
    for seed in (11, 12):
        outcome = agreement.same_tokens(audit(plain, seed=seed), audit(compiled, seed=seed))
        assert outcome.passed, outcome.detail
        assert outcome.value == 0
    assert compiler_counts("graphs")["graphs"] == made, "a step compiles nothing"


class Capturing(Context):
    """A CPU that says it is a GPU, where a graph is its step."""

    on_gpu = True


@pytest.mark.long
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("own", [{}, {"graph": "per_size"}, {"graph": "lazy", "compile": "layer"}])
@pytest.mark.parametrize("phase", ["decode", "both"])
def test_prompts_on_the_host_and_new_tokens_on_the_device_give_what_a_growing_offloaded_cache_gives(
    own, phase, monkeypatch
):
    def replay_of(step):
        for _ in range(3):
            step()
        return step

    monkeypatch.setattr(generate, "replay_of", replay_of)
    # Of four layers two share a block: what one leaves there is not the other's.
    shared = {"model": "small", "prompt_tokens": 12, "new_tokens": 6, "sequences": 2, "phase": phase, "feed": "forced"}
    growing = llm.generate(Context(seed=3), **shared, kv="offloaded")
    fixed = llm.generate(Capturing(seed=3), **shared, kv="offloaded_static", **own)
    for seed in (11, 12):
        before, after = audit(growing, seed=seed), audit(fixed, seed=seed)
        outcome = agreement.same_when_rounded(before, after)
        assert outcome.passed, outcome.detail
        assert outcome.value < 1e-5
        fixed.step()
        assert np.array_equal(after["logits"], fixed.outputs()["logits"]), "the text is taken up again at its prompt"
    # Tokens behind the prompt, four that a capture writes and four for a draft: of four layers, and in both blocks.
    assert fixed.counters()["kv_bytes"] == 2 * 2 * (4 * 14 + 2 * 26) * 256 * 4


def test_prompts_on_the_host_come_whole_and_layers_in_pairs():
    room = caches.Room(2, 1, 4, 32, 20)
    with pytest.raises(ValueError, match="12 tokens at once"):
        host_static.HostStatic(room, prompt=12).mask(5)
    with pytest.raises(ValueError, match="even number of layers"):
        host_static.HostStatic(dataclasses.replace(room, layers=3), prompt=12)
