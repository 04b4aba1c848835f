"""gds.read on a GPU. In a file of its own, and last: cuFile may not answer where it is not configured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_cases import OneCase, check_case, gpu_context, one_gpu_cases

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.gds import workload as gds

CASES = list(one_gpu_cases("host-bounce-vs-cufile-compat", "host-bounce-vs-kvikio-compat"))
REASONS = ("kvikio", "nvidia-fs", "does not open", "does not read", "is active", "fall back unseen")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return gpu_context(tmp_path)


def known(skip: SkipSide) -> bool:
    """Whether a skip says one of the reasons that a host may have."""
    return any(reason in str(skip) for reason in REASONS)


@pytest.mark.parametrize("path", ["pageable", "pinned_overlap", "kvikio_compat", "cufile_compat", "gds"])
@pytest.mark.parametrize("size", [1 << 22, 5 * 4096])
def test_every_path_to_the_gpu_delivers_the_bytes_of_the_file_or_says_why_not(
    path: Any, size: int, context: Context
) -> None:
    skipped: SkipSide | None = None
    try:
        workload = gds.read(context, path=path, size=size, read_size=1 << 16)
    except SkipSide as skip:
        skipped = skip
    if skipped is not None:
        through_host = path in ("pageable", "pinned_overlap")
        assert known(skipped) != through_host or "cannot be dropped" in str(skipped), str(skipped)
        return
    assert workload.prepare is not None
    want = np.fromfile(context.shared_scratch / f"payload-{size}-{context.seed}.bin", dtype=np.uint8)
    for _ in range(2):
        workload.outputs()["target"].fill_(0x5A)
        workload.outputs()["target"].cpu()
        workload.prepare()
        workload.step()
        assert np.array_equal(workload.outputs()["target"].cpu().numpy(), want)
    assert workload.facts["path"] == path
    assert workload.facts.get("gds_active", False) == (path == "gds")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_sides_of_a_storage_case_agree_or_one_says_why_it_cannot_run(case: OneCase, context: Context) -> None:
    skipped: SkipSide | None = None
    try:
        check_case(case, context)
    except SkipSide as skip:
        skipped = skip
    assert skipped is None or known(skipped), str(skipped)
