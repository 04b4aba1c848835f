"""What torch cannot do here is a reason to skip; a fault of the workload stays a fault."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.tried import attempt


def test_a_function_that_this_torch_does_not_have_skips_the_side() -> None:
    with pytest.raises(SkipSide, match="not here: module 'torch' has no attribute 'no_such_product'"):
        attempt(lambda: torch.no_such_product(1), "not here")


def test_a_misspelt_parameter_is_a_fault_and_no_reason_to_skip() -> None:
    with pytest.raises(AttributeError, match="dtpye"):
        attempt(lambda: SimpleNamespace(dtype="fp32").dtpye, "not here")
