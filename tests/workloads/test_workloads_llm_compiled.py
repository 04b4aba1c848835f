"""llm.generate with a compiled layer: what is chosen, and when it is compiled."""

from __future__ import annotations

import pytest
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.llm import agreement
from aiperf.workloads.llm import workload as llm
from aiperf.workloads.shared.compiler_counts import compiler_counts

pytestmark = pytest.mark.usefixtures("one_thread")


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
