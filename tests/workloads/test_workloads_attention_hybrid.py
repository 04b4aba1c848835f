"""attention.hybrid: what it counts and what it refuses; its kernels run in Triton's interpreter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aiperf.workloads.attention import hybrid
from aiperf.workloads.attention import workload as attention
from aiperf.workloads.contract import Context, SkipSide

GIVEN: dict[str, Any] = {"q_len": 32, "kv_len": 64, "sequences": 2, "decode_kv": 32, "heads": 4, "kv_heads": 2}
GIVEN |= {"head_dim": 32, "block_q": 16, "block_kv": 32, "decode_block_kv": 32}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequences": 0}, "must be 1 or more"),
        ({"heads": 5}, "multiple of kv_heads"),
        ({"head_dim": 24}, "head_dim is 24; it must be a power of 2, at least 16"),
        ({"decode_block_kv": 8}, "decode_block_kv is 8; it must be a power of 2, at least 16"),
        ({"q_len": 40}, "q_len is 40; it must be a multiple of block_q"),
        ({"kv_len": 80}, "kv_len is 80; it must be a multiple of block_kv"),
        ({"decode_kv": 48}, "decode_kv is 48; it must be a multiple of decode_block_kv"),
        ({"backend": "one_kernel", "decode_warps": 4}, "decode_warps is for the kernel of the sequences alone"),
        ({"kv_len": 0}, "kv_len counts the tokens of the chunk"),
    ],
)
def test_sizes_that_fit_no_tiles_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention.hybrid(Context(), **{**GIVEN, **changes})


def test_without_a_gpu_the_side_is_skipped() -> None:
    with pytest.raises(SkipSide, match=r"GPU|Triton"):
        attention.hybrid(Context(), **GIVEN)


def arrays() -> dict[str, Any]:
    """A chunk of 32 at the end of 64 tokens, and two sequences of 32."""
    shapes = {"q": (32, 4, 32), "k": (64, 2, 32), "v": (64, 2, 32)}
    shapes |= {"decode_q": (2, 4, 32), "decode_k": (2, 32, 2, 32), "decode_v": (2, 32, 2, 32)}
    source = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=source) for name, shape in shapes.items()}


def test_the_reference_is_attention_of_each_query_over_the_keys_that_it_sees() -> None:
    given = arrays()
    found = hybrid._truth(given)
    weights = (given["k"][: 32 + 6, 1].double() @ given["q"][5, 3].double() * 32**-0.5).softmax(0)
    torch.testing.assert_close(found["prefill"][5, 3], weights @ given["v"][: 32 + 6, 1].double())
    weights = (given["decode_k"][1, :, 0].double() @ given["decode_q"][1, 1].double() * 32**-0.5).softmax(0)
    torch.testing.assert_close(found["decode"][1, 1], weights @ given["decode_v"][1, :, 0].double())
    assert (found["prefill"].shape, found["decode"].shape) == ((32, 4, 32), (2, 4, 32))


def test_work_counts_pairs_that_are_seen_and_every_array_once() -> None:
    given = arrays()
    work = hybrid._work(Context(), given, SimpleNamespace(**GIVEN, dtype="float32"))
    pairs = sum(range(33, 65)) + 2 * 32
    assert work.flops == 4 * 4 * 32 * pairs
    moved = sum(array.numel() for array in given.values()) + given["q"].numel() + given["decode_q"].numel()
    assert work.bytes == 4 * moved
    assert (work.items, work.item) == (34, "tokens")


@pytest.mark.parametrize(("prefills", "decodes"), [(1024, 512), (512, 512), (3, 1000), (1000, 3), (7, 5)])
def test_turns_of_a_multiprocessor_share_out_both_kinds_in_proportion(prefills: int, decodes: int) -> None:
    rule, works = getattr(hybrid._kind_of, "fn", hybrid._kind_of), prefills + decodes
    kinds = [rule(turn, prefills, works) for turn in range(works)]
    assert (kinds.count(0), kinds.count(1)) == (prefills, decodes)
    for turns in range(1, works + 1):
        assert abs(kinds[:turns].count(0) - turns * prefills / works) < 1
    if prefills == 2 * decodes:
        assert "".join("PD"[kind] for kind in kinds[:9]) == "PDPPDPPDP"


def test_memory_and_tensor_cores_are_both_charged_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = {"peaks": {"dram": 5.0}, "maybe_cached": {"dram": 2.0}}
    monkeypatch.setattr(hybrid, "memory_charge", lambda device, size: moved)
    monkeypatch.setattr(hybrid, "gemm_peak", lambda device, dtype, flops: {"gemm_bf16": 7.0})
    work = hybrid._work(Context(device="cuda:0"), arrays(), SimpleNamespace(**GIVEN, dtype="bfloat16"))
    assert (work.peaks, work.maybe_cached) == ({"gemm_bf16": 7.0, "dram": 5.0}, {"dram": 2.0})


class Recorded:
    """Queues that note who waits for whom, and what runs where."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.here = "main"

    def current(self) -> str:
        return "main"

    def mark(self, stream: str) -> str:
        return f"end of {stream}"

    def wait(self, stream: str, event: str) -> None:
        self.seen.append(f"{stream} waits for {event}")

    def queue(self, stream: str, call: Any) -> None:
        self.here = stream
        call()
        self.here = "main"


@pytest.mark.parametrize(
    ("backend", "wanted"),
    [
        ("serial", ["prefill on main", "decode on main"]),
        ("one_kernel", ["both on main"]),
        (
            "two_streams",
            ["side waits for end of main", "prefill on main", "decode on side", "main waits for end of side"],
        ),
    ],
)
def test_a_backend_launches_its_kernels_where_it_says(
    backend: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = hybrid._Batch(arrays(), SimpleNamespace(**GIVEN, backend=backend))
    queues = Recorded()
    monkeypatch.setattr(batch, "_queues", queues)
    monkeypatch.setattr(batch, "_side", ["side"])
    for name, said in (("_prefill", "prefill"), ("_decode", "decode"), ("_together", "both")):
        monkeypatch.setattr(batch, name, lambda said=said: queues.seen.append(f"{said} on {queues.here}"))
    out = batch()
    assert queues.seen == wanted
    assert {name: array.shape for name, array in out.items()} == {"prefill": (32, 4, 32), "decode": (2, 4, 32)}


@pytest.mark.parametrize(("decode_warps", "wanted"), [(0, 8), (4, 4)])
def test_the_kernel_of_the_sequences_alone_has_warps_of_its_own(
    decode_warps: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, dict[str, Any]] = {}
    for name in ("_prefill_alone", "_decode_alone"):
        launched = {(tiles,): lambda *_, name=name, **options: given.update({name: options}) for tiles in (4, 8)}
        monkeypatch.setattr(hybrid, name, launched)
    asked = {"backend": "serial", "num_warps": 8, "num_stages": 2, "decode_stages": 2, "decode_warps": decode_warps}
    hybrid._Batch(arrays(), SimpleNamespace(**GIVEN, **asked))()
    assert given == {"_prefill_alone": {"num_warps": 8}, "_decode_alone": {"num_warps": wanted}}
