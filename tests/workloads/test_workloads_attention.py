"""attention.forward beyond one causal batch: masks, shared KV heads, unequal sequences; what is counted for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.attention import kept, ops, tiles
from aiperf.workloads.attention import workload as attention
from aiperf.workloads.attention.masks import Mask
from aiperf.workloads.contract import Context, SkipSide

LENGTHS = {"lengths": [40, 3, 17], "mask": "none", "heads": 2, "head_dim": 16}
GROUPED = {"heads": 6, "kv_distinct": 2, "head_dim": 16, "kv_len": 33}
WINDOWED = {"kv_len": 48, "window": 10, "kv_heads": 2, "heads": 4, "head_dim": 16}
PAIRS = [
    *(
        Pair("attention.forward", {"backend": "composed"}, {"backend": "math"}, {**WINDOWED, "mask": m, "q_len": q})
        for m in ("none", "causal", "sliding", "document")
        for q in (1, 7, 48)
    ),
    Pair("attention.forward", {"kv_heads": 6}, {"kv_heads": 2}, {**GROUPED, "q_len": 1, "backend": "composed"}),
    Pair("attention.forward", {"kv_heads": 6}, {"kv_heads": 2}, {**GROUPED, "q_len": 5, "backend": "composed"}),
    Pair("attention.forward", {"backend": "composed"}, {"backend": "default"}, {**WINDOWED, "slope": 0.25}),
    Pair("attention.forward", {"backend": "default"}, {"backend": "composed"}, {**WINDOWED, "q_len": 7, "slope": 0.25}),
    Pair("attention.forward", {"layout": "padded"}, {"layout": "jagged"}, LENGTHS),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_both_sides_of_a_pair_agree_with_each_other_and_with_the_truth(pair: Pair, tmp_path: Path) -> None:
    before, after = set_up(pair, "before", tmp_path), set_up(pair, "after", tmp_path)
    before.step()
    after.step()
    first = audit(before, seed=4), audit(after, seed=4)
    assert differences(*first, rtol=1e-4, atol=1e-5) == []
    assert differences(first[0], audit(after, seed=5), rtol=1e-4, atol=1e-5) == sorted(first[0])
    for workload in (before, after):
        found = audit(workload, seed=6)
        assert workload.reference is not None
        truth = {name: array.numpy() for name, array in workload.reference().items()}
        assert differences(found, truth, rtol=1e-4, atol=1e-5) == []
    assert (before.work.flops, before.work.items) == (after.work.flops, after.work.items)


def test_a_slope_takes_from_a_score_by_the_distance_of_its_key() -> None:
    found = Mask("causal", 2, 4, slope=0.5).bias("cpu", torch.float32)
    assert found.tolist() == [[-1.0, -0.5, 0.0, 0.5], [-1.5, -1.0, -0.5, 0.0]]
    assert Mask("causal", 2, 4).bias("cpu", torch.float32) is None
    flat, sloped = (
        audit(attention.forward(Context(seed=2), **GROUPED, kv_heads=2, slope=s), seed=4) for s in (0.0, 0.25)
    )
    assert differences(flat, sloped, rtol=0.1, atol=0.01) == ["out"]


@pytest.mark.parametrize("kind", ["none", "causal", "sliding", "document"])
@pytest.mark.parametrize(("q_len", "kv_len", "window"), [(9, 9, 4), (1, 9, 4), (3, 16, 4), (1, 5, 8), (5, 8, 1)])
def test_counts_and_the_dense_mask_follow_from_the_rule(kind: str, q_len: int, kv_len: int, window: int) -> None:
    mask = Mask(kind, q_len, kv_len, window)
    seen = [[bool(mask.allowed(i, j)) for j in range(kv_len)] for i in range(q_len)]
    assert mask.pairs() == sum(map(sum, seen))
    assert mask.keys_seen() == sum(map(any, zip(*seen, strict=True)))
    hidden = mask.hidden("cpu")
    assert (hidden is None) == (kind == "none")
    assert hidden is None or hidden.tolist() == [[not s for s in row] for row in seen]
    assert all(any(row) for row in seen), "a query that sees nothing has no result"


def test_a_sliding_window_sees_the_newest_keys_and_a_document_only_itself() -> None:
    assert (~Mask("sliding", 1, 6, 2).hidden("cpu")).int().tolist() == [[0, 0, 0, 0, 1, 1]]
    assert (~Mask("document", 2, 6, 4).hidden("cpu")).int().tolist() == [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 1, 1]]
    assert (~Mask("causal", 2, 3).hidden("cpu")).int().tolist() == [[1, 1, 0], [1, 1, 1]]


def test_the_keys_that_a_single_query_sees_are_split_over_all_multiprocessors() -> None:
    whole, window = Mask("none", 1, 16384), Mask("sliding", 1, 16384, 4096)
    assert ops.decode_options(whole, sequences=64, multiprocessors=132)["SPLIT_KV"] == 4
    assert ops.decode_options(window, sequences=64, multiprocessors=132)["SPLIT_KV"] == 16
    assert ops.decode_options(whole, sequences=500, multiprocessors=132)["SPLIT_KV"] == 1
    assert ops.decode_options(Mask("causal", 64, 64), sequences=1, multiprocessors=132) == {}
    assert ops.block_mask(whole, "cpu").kv_num_blocks.item() == 128


@pytest.mark.parametrize("kind", ["causal", "sliding", "document"])
def test_the_block_mask_keeps_every_block_that_a_query_sees_and_no_other(kind: str) -> None:
    mask = Mask(kind, 256, 640, 128)
    blocks = ops.block_mask(mask, "cpu").to_dense()[0, 0].bool()
    seen = ~mask.hidden("cpu")
    assert blocks.tolist() == seen.view(2, 128, 5, 128).any(3).any(1).tolist()
    assert not blocks.all()


def test_repeated_heads_hold_more_bytes_and_the_same_values() -> None:
    sides = [attention.forward(Context(seed=2), **GROUPED, kv_heads=n, backend="composed") for n in (6, 2)]
    assert sides[0].facts["kv_bytes"] == 3 * sides[1].facts["kv_bytes"]
    assert sides[0].inputs is not None
    assert sides[1].inputs is not None
    wide, narrow = sides[0].inputs()["k"], sides[1].inputs()["k"]
    assert torch.equal(wide[:, ::3], narrow)
    assert torch.equal(wide[:, 2::3], narrow)


def test_padding_earns_nothing() -> None:
    padded = attention.forward(Context(), **LENGTHS, layout="padded")
    assert padded.work.flops == 4 * 2 * 16 * (40**2 + 3**2 + 17**2)
    assert padded.work.items == 60
    assert padded.facts["padding"] == 0.5


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"layout": "padded"}, "need layout padded or jagged"),
        ({"lengths": [3, 4]}, "need layout padded or jagged"),
        ({"lengths": [3, 4], "layout": "jagged"}, "mask none"),
        ({"lengths": [3, 0], "layout": "jagged", "mask": "none"}, "1 or more"),
        ({"heads": 6, "kv_heads": 4}, "must divide the one before"),
        ({"kv_heads": 4, "kv_distinct": 3}, "must divide the one before"),
        ({"mask": "sliding"}, "needs a window"),
        ({"q_len": 9, "kv_len": 8}, "between 1 and kv_len"),
        ({"kv_kept": "fp8"}, "need backend triton"),
        ({"kv_kept": "gathered", "backend": "triton"}, "gathered another one"),
        ({"kv_kept": "gathered", "kv_len": 40, "page_tokens": 16}, "40 is none of 16"),
        ({"lengths": [3, 4], "layout": "jagged", "mask": "none", "kv_kept": "gathered"}, "backend default"),
        ({"backend": "triton", "mask": "sliding", "window": 4}, "mask none or causal"),
        ({"backend": "triton", "head_dim": 24}, "power of two"),
    ],
)
def test_contradictions_are_refused_with_the_rule(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention.forward(Context(), **params)


def test_pages_that_are_gathered_hold_what_was_in_one_block_for_every_seed() -> None:
    shared: dict[str, Any] = {**GROUPED, "kv_heads": 2, "kv_len": 32, "backend": "default", "q_len": 1, "mask": "none"}
    whole = attention.forward(Context(seed=2), **shared)
    paged = attention.forward(Context(seed=2), **shared, kv_kept="gathered", page_tokens=8)
    for seed in (11, 12):
        before, after = audit(whole, seed=seed), audit(paged, seed=seed)
        assert np.allclose(before["out"], after["out"], atol=1e-6)
    assert whole.work.bytes == paged.work.bytes


def test_what_is_kept_stands_for_what_was_given() -> None:
    k, v = torch.randn(2, 3, 32, 16), torch.randn(2, 3, 32, 16)
    paged = kept.in_pages(k, v, page=8, seed=1)
    assert paged.k.shape == (8, 8, 3, 16)
    assert paged.table.flatten().tolist() != list(range(8)), "pages lie in another order"
    assert all(torch.equal(*pair) for pair in zip(kept.restored(paged, torch.float32), (k, v), strict=True))
    few = kept.in_fp8(k, v)
    assert few.k.nbytes == k.nbytes // 4
    for found, given in zip(kept.restored(few, torch.float32), (k, v), strict=True):
        assert 0.01 < float((found - given).norm() / given.norm()) < 0.035


def test_a_tile_is_the_largest_that_leaves_no_multiprocessor_idle() -> None:
    assert [tiles.chosen(n, 8, 132).block_q for n in (512, 2048, 4096)] == [64, 64, 128]
    assert tiles.chosen(512, 64, 132).block_q == 128
    assert tiles.chosen(4, 8, 132).block_q == 16
    long = tiles.AttentionTile(16, 64, splits=0)
    split = tiles.filled(long, queries=4, heads=8, kv_len=32768, multiprocessors=132)
    assert 8 * split.splits >= 4 * 132
    assert tiles.filled(long, queries=4, heads=8, kv_len=128, multiprocessors=132).splits == 2
    assert tiles.filled(long, queries=4, heads=9999, kv_len=32768, multiprocessors=132).splits == 1
    assert tiles.filled(tiles.AttentionTile(splits=3), queries=1, heads=1, kv_len=8, multiprocessors=132).splits == 3


def test_flex_attention_is_skipped_without_a_gpu_with_the_reason() -> None:
    with pytest.raises(SkipSide, match="needs a GPU"):
        attention.forward(Context(), backend="flex", kv_len=128)


def test_the_backend_that_torch_runs_is_a_fact() -> None:
    def chosen(backend: str) -> Any:
        return attention.forward(Context(), backend=backend, **WINDOWED).facts["chosen_backend"]

    assert (chosen("default"), chosen("flash"), chosen("math")) == ("flash", "flash", "math")
    with torch.inference_mode():
        assert (chosen("default"), chosen("math")) == ("flash", "math")
    assert "chosen_backend" not in attention.forward(Context(), backend="composed", **WINDOWED).facts


def test_a_backend_that_refuses_the_inputs_is_skipped_with_its_own_words() -> None:
    def refuse() -> None:
        raise RuntimeError("No available kernel.\nmore")

    with pytest.raises(SkipSide, match=r"^this: No available kernel\.$"):
        ops.tried(refuse, "this")
