"""The code whose commits the bench gates satisfies strict mode, which gates use: otherwise every session is invalid."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.bench.gate import DIGEST


def test_the_digest_names_its_inputs_or_says_why_they_are_fixed() -> None:
    code: dict[str, Any] = {}
    exec(DIGEST % "64", code)
    workload = code["digest"](SimpleNamespace(seed=1))
    assert workload.inputs is not None or workload.fixed_inputs
