"""Large inputs are large in parts of an array, so that an answer which reads only a part of it differs."""

import numpy as np
import pytest

from aiperf.launch.wide import wide_fault
from aiperf.protocol.measuring import Check
from aiperf.worker.audit import Auditor
from aiperf.workloads.contract import Work, Workload

CHECK = Check("tolerance")


def answer(compute, shape=(65536,)):
    """What a step answers to large inputs that writes ``compute`` of its input into one number of low precision."""
    x, out = np.random.default_rng(0).standard_normal(shape).astype(np.float32), np.empty(1, np.float16)

    def step():
        out[0] = compute(x)

    given = Workload(step, Work(), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
    return Auditor(given, keep_bytes=0).wide(5, step)


def mean(x):
    return np.square(np.tanh(x)).mean()


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[::4],
        lambda x: x[::2],
        lambda x: x[1::2],
        lambda x: x[1::4],
        lambda x: x[: x.size // 2],
        lambda x: x[x.size // 2 :],
        lambda x: x[: x.size // 4],
    ],
)
def test_a_mean_of_a_part_is_told_from_that_of_all(part):
    """On the usual inputs, and on ones that are large everywhere, both are the same to the precision of the output."""
    usual = np.random.default_rng(1).standard_normal(65536).astype(np.float32)
    assert mean(part(usual)) == pytest.approx(mean(usual), rel=0.02)
    assert mean(part(usual * 32 + 4)) == pytest.approx(mean(usual * 32 + 4), rel=0.02)
    fault = wide_fault([answer(mean)], [answer(lambda x: mean(part(x)))], CHECK, names=("before", "after"))
    assert fault.startswith("after: out differs from before's on large inputs, in 1 of 1 elements drawn")


@pytest.mark.parametrize("part", [lambda x: x[:128], lambda x: x[128:], lambda x: x[:, :128], lambda x: x[:, ::2]])
def test_so_is_one_of_a_part_of_the_rows_or_columns(part):
    ours, theirs = (answer(each, (256, 256)) for each in (mean, lambda x: mean(part(x))))
    assert wide_fault([ours], [theirs], CHECK, names=("before", "after")) != ""


@pytest.mark.parametrize(
    "same",
    [
        lambda x: (mean(x[: x.size // 2]) + mean(x[x.size // 2 :])) / 2,
        lambda x: np.mean([mean(x[start::4]) for start in range(4)]),
        lambda x: mean(x[::-1].astype(np.float64)),
        lambda x: 1 - np.mean(1 / np.square(np.cosh(np.clip(x, -40, 40).astype(np.float64)))),
    ],
)
def test_a_mean_of_all_in_another_way_accuses_nobody(same):
    assert wide_fault([answer(mean)], [answer(same)], CHECK, names=("before", "after")) == ""
