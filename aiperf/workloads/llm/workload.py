"""llm.generate: one random-weight decoder produces tokens for a fixed set of prompts, all there from the start.

What must not live here: the model (workloads/decoder), steps (sides.py), arrivals, timing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.llm.agreement import disagreement, same_tokens
from aiperf.workloads.llm.sides import Generation
from aiperf.workloads.shared.seeded import gemm_peak, memory_peak, torch_dtype


def generate(
    context: Context,
    *,
    model: Literal["tiny", "small", "base", "1b", "8b", "70b-2layer"] = "tiny",
    phase: Literal["prefill", "decode", "both"] = "decode",
    sequences: int = 1,
    batch: int = 0,
    prompt_tokens: int = 128,
    new_tokens: int = 32,
    dtype: Literal["float32", "bfloat16"] = "float32",
    feed: Literal["greedy", "forced"] = "greedy",
    kv: Literal["none", "contiguous", "static", "paged"] = "contiguous",
    kv_bits: int = 0,
    page_tokens: int = 16,
    prefill_chunk: int = 0,
    decoding: int = 0,
    context_from: Literal["prefill", "host", "file"] = "prefill",
    speculation: Literal["none", "ngram", "draft"] = "none",
    draft_tokens: int = 4,
    draft_layers: int = 1,
    acceptance: float = 0.0,
    graph: Literal["none", "per_size"] = "none",
) -> Workload:
    """A Llama-shaped decoder with random weights: prefill of ``sequences`` prompts, ``new_tokens`` greedy tokens for
    each, or both; ``batch`` sequences (0: all) go through the model together.

    ``kv``: where keys and values of earlier tokens are. ``none`` computes them again for every token, ``static`` reads
    the whole block under a mask, ``paged`` finds pages of ``page_tokens`` by a block table and gathers them. With
    ``kv_bits`` 8 or 4 a contiguous cache holds codes by groups of 32. ``feed: forced`` follows a given text and gives
    the logits at each of its positions. ``prefill_chunk`` cuts prompts into pieces; ``decoding`` sequences with 64
    tokens each decode one token after every piece and what is left of ``new_tokens`` after the last.

    ``context_from``: in a prefill, all but the last token's keys and values are read back from host memory or a file
    that set-up wrote, instead of computed.

    Latencies: ``ttft`` from the start of an iteration, ``inter_token`` from pass to pass (of ``decoding`` sequences
    where there are any; not of speculation, whose tokens come several at once).

    ``speculation`` proposes up to ``draft_tokens`` from repeats of the text, or by the first ``draft_layers`` layers as
    a draft. Random weights agree with no draft: ``acceptance`` scales what the other layers add, on every side that
    states it, until the draft chooses this share of the target's tokens. ``graph: per_size`` replays each decoding step
    as a CUDA graph (kv static).

    FLOPs: 2 x parameters x tokens, plus attention. Bytes: the weights once for each pass, plus the keys and values
    that it reads. Items: tokens, prompts' in a prefill, else new ones (book, chapters 15 to 19).
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    return _workload(asked, Generation(asked))


def _workload(asked: SimpleNamespace, side: Generation) -> Workload:
    shape, element = side.model.shape, side.model.dtype.itemsize
    return Workload(
        step=side.step,
        work=_work(asked),
        outputs=lambda: dict(side.held),
        inputs=side.texts,
        redraw=side.redraw,
        counters=side.counters,
        latencies=side.latencies,
        latency_source="the device's events, on a CPU its clock, when tokens are chosen",
        checks={"same_tokens": same_tokens, "disagreement": disagreement},
        facts={
            "weight_bytes": (shape.layers * shape.layer_parameters + shape.head_parameters) * element,
            "kv_bytes_per_token": shape.kv_bytes(element),
            **side.facts,
        },
    )


def _check(asked: SimpleNamespace) -> None:
    counts = ("sequences", "prompt_tokens", "new_tokens", "page_tokens", "draft_tokens", "draft_layers")
    if bad := [name for name in counts if getattr(asked, name) < 1]:
        raise ValueError(f"{bad[0]} is {getattr(asked, bad[0])}; it must be 1 or more")
    if min(asked.batch, asked.prefill_chunk, asked.decoding) < 0 or (asked.batch and asked.sequences % asked.batch):
        raise ValueError("batch must divide sequences; batch, prefill_chunk and decoding must not be negative")
    if asked.kv_bits not in (0, 4, 8) or (asked.kv_bits and asked.kv != "contiguous"):
        raise ValueError("kv_bits must be 0 (as computed), 4 or 8, with kv contiguous")
    greedy = asked.phase == "decode" and asked.feed == "greedy"
    if asked.speculation != "none" and (asked.kv != "contiguous" or not greedy or asked.sequences > 1):
        raise ValueError("speculation needs phase decode, feed greedy, kv contiguous and one sequence")
    if not 0 <= asked.acceptance < 1 or (asked.acceptance and asked.sequences > 1):
        raise ValueError("acceptance must be from 0 (not tuned) to below 1, and needs one sequence")
    if asked.speculation == "draft" and not asked.acceptance:
        raise ValueError("speculation draft needs an acceptance above 0: random weights agree with no draft")
    if asked.acceptance and asked.draft_layers >= PRESETS[asked.model].layers:
        raise ValueError(f"draft_layers must be below the {PRESETS[asked.model].layers} layers of {asked.model}")
    if asked.feed == "forced" and (asked.kv not in ("contiguous", "paged") or asked.phase != "decode"):
        raise ValueError("feed forced needs phase decode and kv contiguous or paged")
    if asked.decoding and (asked.phase != "prefill" or asked.sequences > 1 or asked.kv == "static"):
        raise ValueError("decoding needs phase prefill, one sequence and no static kv")
    if asked.context_from != "prefill" and (
        asked.phase != "prefill"
        or asked.kv != "contiguous"
        or asked.kv_bits
        or asked.decoding
        or asked.prompt_tokens < 2
    ):
        raise ValueError(
            "context_from needs phase prefill, kv contiguous as computed, 2 or more prompt_tokens, no decoding"
        )
    if asked.prefill_chunk and asked.kv == "none":
        raise ValueError("prefill_chunk needs a cache")
    if asked.graph != "none" and asked.kv != "static":
        raise ValueError("graph needs kv static: a graph reads and writes the same addresses each time")
    if asked.graph != "none" and not asked.context.on_gpu:
        raise SkipSide("CUDA graphs need a GPU, and this side runs on the CPU")


def _work(asked: SimpleNamespace) -> Work:
    """What a step does at the least: recomputed keys and rejected proposals are not charged."""
    shape = PRESETS[asked.model]
    element = torch_dtype(asked.dtype).itemsize
    groups = asked.sequences // (asked.batch or asked.sequences)
    stored = {0: element, 8: 1.25, 4: 0.75}[asked.kv_bits]
    prompt, new = asked.prompt_tokens, asked.new_tokens
    tokens = rows = passes = pairs = read = 0
    if asked.phase != "decode":
        tokens, rows, pairs = prompt, 1, prompt * (prompt + 1) // 2
        passes = -(-prompt // (asked.prefill_chunk or prompt))
        if asked.context_from != "prefill":
            tokens, pairs, passes, read = 1, prompt, 1, prompt
    if asked.phase != "prefill":
        tokens, rows = tokens + new, rows + new
        passes += -(-new // (asked.draft_tokens + 1)) if asked.speculation != "none" else new
        seen = new * prompt + new * (new + 1) // 2
        pairs += seen
        if asked.kv != "none":
            read = seen if asked.speculation == "none" else seen // (asked.draft_tokens + 1)
    flops = 2.0 * (shape.layers * shape.layer_parameters * tokens + shape.head_parameters * rows)
    flops = asked.sequences * (flops + 4.0 * shape.layers * shape.heads * shape.head_dim * pairs)
    weights = float((shape.layers * shape.layer_parameters + shape.head_parameters) * element)
    moved = groups * passes * weights + asked.sequences * read * shape.kv_bytes(stored)
    items = asked.sequences * (prompt if asked.phase == "prefill" else new)
    device = asked.context.device
    peaks: dict[str, Any] = memory_peak(device, moved=moved, working_set=weights)
    peaks |= gemm_peak(device, asked.dtype, flops)
    return Work(bytes=moved, flops=flops, items=items, item="tokens", peaks=peaks)
