"""What a step of llm.generate does at the least, for rates and limits.

What must not live here: parameters and what they mean (workload.py), how anything is computed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aiperf.workloads.contract import Work
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.decoder.pruned import computed_tokens, kept_tokens
from aiperf.workloads.llm.pressed import FEW
from aiperf.workloads.llm.trees import depth_of, levels_of
from aiperf.workloads.shared.seeded import gemm_peak, memory_peak, torch_dtype


def _longest_branch(asked: SimpleNamespace) -> int:
    """Proposals that one pass can accept at most."""
    if asked.speculation != "tree":
        return 0 if asked.speculation == "none" else int(asked.draft_tokens)
    return levels_of(asked.draft_tokens) if asked.draft_from == "heads" else depth_of(asked.draft_tokens)


def _heads_read(asked: SimpleNamespace) -> int:
    """Parameters of the heads, times the fewest passes that can verify all new tokens."""
    if asked.speculation != "tree" or asked.draft_from != "heads" or asked.phase == "prefill":
        return 0
    shape, count = PRESETS[asked.model], levels_of(asked.draft_tokens)
    return -(-asked.new_tokens // (count + 1)) * count * shape.width * (shape.width + shape.vocab)


def work_of(asked: SimpleNamespace) -> Work:
    """What a step does at the least: recomputed keys and rejected proposals are not charged."""
    shape = PRESETS[asked.model]
    element = torch_dtype(asked.dtype).itemsize
    groups = len(asked.sizes) if asked.sizes else asked.sequences // (asked.batch or asked.sequences)
    group = asked.kv_group or shape.head_dim
    bits = FEW if asked.kv_budget else asked.kv_bits  # at the least: what is decoded before it turns into fewer is more
    stored = bits / 8 + 2 * element / group if bits else element
    prompt, new = asked.prompt_tokens, asked.new_tokens
    if asked.keep_prompt < 1:
        newest = asked.kept_by == "newest"
        prompt = (computed_tokens if newest else kept_tokens)(prompt, asked.keep_prompt)
    layers = shape.layers if asked.depth == "full" else asked.draft_layers
    tokens = rows = passes = pairs = read = 0
    if asked.phase != "decode":
        tokens, rows, pairs = prompt, 1, _seen(asked, 0, prompt)
        passes = -(-prompt // (asked.prefill_chunk or prompt))
        if asked.context_from != "prefill":
            tokens, pairs, passes, read = 1, prompt, 1, prompt
    if asked.phase != "prefill":
        tokens, rows = tokens + new, rows + new
        most = 1 + _longest_branch(asked)
        passes += -(-new // most)
        seen = _seen(asked, prompt, new)
        pairs += seen
        if asked.kv != "none":
            read = seen // most
    flops = 2.0 * (layers * shape.layer_parameters * tokens + shape.head_parameters * rows)
    flops = asked.sequences * (flops + 4.0 * layers * shape.heads * shape.head_dim * pairs)
    few = {"fp8": layers, "fp8_inner": layers - 2}.get(asked.precision, 0)
    weights = float((layers * shape.layer_parameters + shape.head_parameters) * element)
    weights -= few * shape.layer_parameters * (element - 1)
    moved = (
        groups * passes * weights
        + _heads_read(asked) * element
        + asked.sequences * read * shape.kv_bytes(stored) * layers / shape.layers
    )
    items = asked.sequences * (asked.prompt_tokens if asked.phase == "prefill" else new)
    device = asked.context.device
    peaks: dict[str, Any] = memory_peak(device, moved=moved, working_set=weights)
    peaks |= gemm_peak(device, asked.dtype, flops)
    fetched = groups * passes * layers * shape.layer_parameters * element if asked.weights == "host" else 0.0
    if asked.kv.startswith("offloaded") and asked.phase == "decode":
        before = read - new if asked.kv == "offloaded" else new * prompt
        fetched += asked.sequences * before * shape.kv_bytes(element)
    if fetched and device.startswith("cuda"):
        peaks["h2d"] = float(fetched)
    return Work(bytes=moved, flops=flops, items=items, item="tokens", peaks=peaks)


def _seen(asked: SimpleNamespace, before: int, count: int) -> int:
    """Keys that ``count`` tokens after ``before`` others see, each its own among them."""
    most = asked.window if asked.kv == "windowed" else before + count
    return sum(min(most, at + 1) for at in range(before, before + count))
