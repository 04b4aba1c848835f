"""attention.rounded: fewer bits err more, exact recent tokens and scales for groups err less where the row says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.attention import workload as attention
from aiperf.workloads.contract import Context, Workload

SMALL: dict[str, Any] = {"batch": 2, "heads": 4, "head_dim": 32, "kv_len": 512, "kv_group": 32}


def side(**own: Any) -> Workload:
    return attention.rounded(Context(seed=3), **(SMALL | own))


def error(seed: int = 5, **own: Any) -> float:
    workload = side(**own)
    assert workload.values is not None
    assert workload.reference is not None
    audit(workload, seed=seed)
    found = workload.values()["output_error"]
    y, truth = (array.double().reshape(-1, 32) for array in (workload.outputs()["out"], workload.reference()["out"]))
    assert found == pytest.approx(sum(float((a - b).norm() / b.norm()) for a, b in zip(y, truth, strict=True)) / len(y))
    return found


def test_the_reference_is_softmax_attention_of_the_newest_token_over_all_under_its_bias() -> None:
    workload = side(recency=0.1, outlier_channels=3)
    assert workload.inputs is not None
    assert workload.reference is not None
    given = {name: array.double() for name, array in workload.inputs().items()}
    k, v = (given[name].reshape(2, 512, 4, 32).transpose(1, 2) for name in "kv")
    scores = (given["q"] * k).sum(-1) / 32**0.5 - 0.1 * torch.arange(511, -1, -1)
    assert torch.allclose(workload.reference()["out"][:, :, 0], (scores.softmax(-1)[..., None] * v).sum(2))
    large = k.transpose(1, 2).reshape(-1, 128).std(0) > 4
    assert int(large.sum()) == 3


def test_fewer_bits_err_more_and_take_less() -> None:
    eight, four = error(kv_bits=8), error(kv_bits=4)
    assert 0.001 < 8 * eight < four < 0.3
    sides = [side(kv_bits=bits) for bits in (8, 4)]
    assert [workload.facts["bits_per_value"] for workload in sides] == [10.0, 6.0]
    held = [workload.values()["kv_bytes"] for workload in sides if workload.values is not None]
    assert held == [2 * 2 * 512 * 128 * bits / 8 for bits in (10, 6)]


def test_exact_recent_tokens_take_the_error_away_where_they_have_the_weight() -> None:
    plain, recent = (error(recency=0.1, kv_recent=recent) for recent in (0, 128))
    assert recent < 0.05 * plain
    plain, recent = (error(kv_recent=recent) for recent in (0, 128))
    assert 0.6 * plain < recent < plain


def test_a_scale_for_each_group_errs_less_than_one_for_a_token_with_large_channels() -> None:
    for seed in range(5, 13):  # whatever is drawn: a head that looks at few keys has one vote among all
        one, groups = (error(seed, kv_bits=8, kv_group=group, outlier_channels=2) for group in (0, 32))
        assert groups < 0.8 * one
    assert side(kv_bits=8, kv_group=0).facts["bits_per_value"] == 8.5


def test_every_step_starts_from_the_same_cache_and_rounds_the_newest_token_too() -> None:
    for recent in (0, 16):
        workload = side(kv_recent=recent)
        first = audit(workload, seed=5)["out"]
        workload.step()
        assert (workload.outputs()["out"].numpy() == first).all()
        assert not (audit(workload, seed=6)["out"] == first).any()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"kv_len": 1}, "kv_len 2 or more"),
        ({"recency": -1.0}, "recency 0 or more"),
        ({"kv_recent": 511}, "below kv_len - 1"),
        ({"outlier_channels": 129}, "at most heads x head_dim"),
        ({"kv_bits": 3}, "4 or 8 bits"),
    ],
)
def test_what_cannot_be_is_refused(own: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        side(**own)
