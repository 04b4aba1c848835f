"""llm.generate: one random-weight decoder produces tokens for a fixed set of prompts, all there from the start.
Re-exports llm.drafted (drafted.py).

What must not live here: the model (workloads/decoder), steps (sides.py), arrivals, timing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Literal

from aiperf.workloads.contract import Context, SkipSide, Workload
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.llm.agreement import disagreement, rounded_disagreement, same_tokens, same_when_rounded
from aiperf.workloads.llm.charge import work_of
from aiperf.workloads.llm.drafted import drafted
from aiperf.workloads.llm.group import FIXED
from aiperf.workloads.llm.seen import as_seen
from aiperf.workloads.llm.sides import Generation
from aiperf.workloads.shared.triton_gemm import need_triton

__all__ = ["drafted", "generate"]

METRICS = {"generate": {"kv_bytes": ("B", "lower")}}


def generate(
    context: Context,
    *,
    model: Literal["tiny", "small", "base", "1b", "8b", "70b-2layer"] = "tiny",
    phase: Literal["prefill", "decode", "both"] = "decode",
    sequences: int = 1,
    batch: int = 0,
    sizes: list[int] | None = None,
    prompt_tokens: int = 128,
    new_tokens: int = 32,
    dtype: Literal["float32", "bfloat16"] = "float32",
    feed: Literal["greedy", "forced"] = "greedy",
    show_text: bool = False,
    kv: Literal["none", "contiguous", "static", "paged", "windowed", "offloaded", "offloaded_static"] = "contiguous",
    weights: Literal["device", "host"] = "device",
    host_fetch: Literal["blocking", "ahead"] = "ahead",
    kv_bits: int = 0,
    kv_group: int = 32,
    kv_recent: int = 0,
    kv_chunk: int = 0,
    kv_budget: float = 0.0,
    requantise_at: int = 0,
    requantise_ahead: int = 0,
    page_tokens: int = 16,
    room_tokens: int = 0,
    window: int = 0,
    keep_prompt: float = 1.0,
    kept_by: Literal["newest", "attention"] = "newest",
    prune_after: int = 1,
    lost_after: int = 0,
    snapshot_every: int = 0,
    prefill_chunk: int = 0,
    decoding: int = 0,
    decoding_in: Literal["own_pass", "same_pass"] = "own_pass",
    context_from: Literal["prefill", "host", "file", "wire", "wire_fp8", "resharded"] = "prefill",
    arrives: Literal["whole", "by_layer"] = "whole",
    speculation: Literal["none", "ngram", "draft", "tree", "self"] = "none",
    draft_tokens: int = 4,
    draft_layers: int = 1,
    draft_from: Literal["first", "spread", "heads"] = "first",
    acceptance: float = 0.0,
    text: Literal["random", "repeating"] = "random",
    depth: Literal["full", "exit", "skip"] = "full",
    exit_share: float = 0.5,
    constraint: Literal["none", "python", "remembered", "compiled", "host_table"] = "none",
    mask_when: Literal["beside_pass", "after_pass"] = "beside_pass",
    fields: int = 6,
    precision: Literal["same", "fp8", "fp8_inner", "switched", "switched_kv"] = "same",
    switching: Literal["smoothed", "single"] = "smoothed",
    decide_every: int = 8,
    graph: Literal["none", "per_size", "lazy"] = "none",
    buckets: list[int] | None = None,
    compile: Literal["none", "layer"] = "none",
    kernels: Literal["library", "hand_written"] = "library",
) -> Workload:
    """A Llama-shaped decoder with random weights: prefill of ``sequences`` prompts, ``new_tokens`` greedy tokens for
    each, or both; ``batch`` sequences (0: all) go through the model together, or batches of ``sizes`` one after
    another.

    ``kv``: where keys and values of earlier tokens are. ``none`` computes them again for every token, ``static`` reads
    the whole block under a mask, ``paged`` finds pages of ``page_tokens`` by a block table and gathers them,
    ``windowed`` keeps and sees the newest ``window`` only, ``offloaded`` keeps them in host memory. From there, as with
    ``weights: host``, ``host_fetch`` copies a layer's when they are needed (``blocking``) or while the layer before
    computes (``ahead``); ``offloaded_static`` does so ahead in a way that a graph can hold: the prompt's are on the
    host, those of new tokens stay on the device. A cache in one block has room for ``room_tokens`` a sequence, or what
    is used if that is more. With ``kv_bits`` 8 or 4 a contiguous cache holds codes, with a scale and a minimum for each
    ``kv_group`` values (0: of a head), and besides the ``kv_recent`` newest tokens as computed; or it holds what was
    computed up to new token ``requantise_at``, and converts all of it then, or from ``requantise_ahead`` tokens earlier
    on in a stream (on a CPU a thread) beside them; where a text is followed the codes are outputs. With ``kv_chunk``
    the cache grows by so many tokens at a time, and 8 bits turn into 4 where it fills 0.9, copies included, of a
    ``kv_budget``, the share of what the whole text takes that there is room for (0: all of it). ``feed: forced``
    follows a given text and gives the logits at each of its positions, with ``show_text`` also what was read and kept,
    for the check ``as_seen``; a contiguous cache then has the ``window`` that the other side is to have.
    ``prefill_chunk`` cuts prompts into pieces; ``decoding`` sequences with 64 tokens each decode one token after every
    piece, or ``decoding_in`` the same pass with it, and what is left of ``new_tokens`` after the last.

    ``context_from``: in a prefill, all but the last token's keys and values are read back from host memory or a file
    that set-up wrote, instead of computed; from host memory whole before the pass, or beside it in the order in which
    its layers use them (``arrives``); or sent by another cache on the device through host memory (``wire``), in
    fp8 with one scale (``wire_fp8``); or put in order from the halves that two workers, each with half of the heads,
    left on this device token by token (``resharded``).

    ``keep_prompt``: this share of a prompt is computed: the ``newest`` tokens behind ten that stand for a summary, or,
    after ``prune_after`` layers, those to which the last token pays most ``attention``. ``lost_after`` so many new
    tokens the cache is lost: the prompt and they are computed again, or it is read back from a file, to which it is
    written after every ``snapshot_every`` tokens.

    ``kv_bytes``: the memory of the caches after a step, with scales and room that is not used; of one that grows the
    most of it.

    Latencies: ``ttft`` from the start of an iteration, ``inter_token`` from pass to pass (of ``decoding`` sequences
    where there are any; not of speculation, whose tokens come several at once).

    ``speculation`` proposes up to ``draft_tokens`` from repeats of the text (``ngram``), or by ``draft_layers`` layers,
    the first or evenly ``spread`` ones: as a model with weights and a cache of its own (``draft``; ``tree``: half of
    them its choices, half the second ones beside each), or in place (``self``). Random weights agree with no draft:
    ``acceptance`` scales what the other layers add, on every side that states it, until the draft chooses this share of
    the target's tokens. With ``text: repeating`` it makes some tokens likely and scales what attention adds, until
    repeats give this share. ``draft_from: heads``: 1, 2 or 3 extra heads on the last hidden state propose two tokens
    each, as a binary ``tree`` of 2, 6 or 14 ``draft_tokens``; ``acceptance`` scales what all layers add, and fits the
    heads to texts that the model writes, until the first head chooses this share.

    ``depth: skip`` decodes with ``draft_layers`` alone; ``exit`` leaves after the first ``draft_layers`` where the
    choice is clearer than a margin, which set-up finds so that ``exit_share`` of the text's tokens do. ``constraint``
    allows tokens of a JSON grammar of ``fields`` fields: ``python`` walks every token through an automaton at each
    step, ``remembered`` once for each state that is met, ``compiled`` looks a table up, and ``host_table`` one in host
    memory, whose rows it moves to the device: while the pass over the newest tokens runs, or when it has ended
    (``mask_when``). ``graph: per_size`` replays each decoding step as a CUDA graph (kv static), captured in set-up. In
    phase prefill it replays each piece of a prompt; ``prefill_chunk`` must be 1. ``lazy`` captures it in each iteration
    when its batch comes. Batches are padded to the next of ``buckets``. ``compile: layer``: decoding steps run the
    function of a layer, the same for all of them, as torch.compile made it in set-up for each size of a batch (kv
    static). ``kernels: hand_written``: a layer takes a new token through five Triton kernels, RMSNorm, activation,
    rotation, write to the cache and sums being parts of them.
    ``precision`` decodes with the matrices of all layers in fp8, of all but the first and the last (``fp8_inner``), or
    ``switched`` to it: from where the smoothed margin of choices is one that ``exit_share`` of the text's tokens have,
    until it is below half of that, or with ``switching: single`` by each margin as it is and one threshold; the host
    looks at it every ``decide_every`` tokens. ``switched_kv`` switches keys and values to ``kv_bits`` and back instead,
    and each time converts all of them.

    FLOPs: 2 x parameters x tokens, plus attention. Bytes: the weights once for each pass, plus the keys and values
    that it reads. Items: tokens, prompts' in a prefill, else new ones (book, chapters 15 to 19).
    """
    asked = SimpleNamespace(**locals())
    if sizes:
        if sequences != 1 or batch or min(sizes) < 1:
            raise ValueError("sizes are batches of 1 or more, without sequences and batch")
        asked.sequences = sum(sizes)
    _check(asked)
    return _workload(asked, Generation(asked))


def _workload(asked: SimpleNamespace, side: Generation) -> Workload:
    shape, element = side.model.shape, side.model.dtype.itemsize
    return Workload(
        step=side.step,
        work=work_of(asked),
        outputs=lambda: dict(side.held),
        inputs=side.texts,
        redraw=side.redraw,
        counters=side.counters,
        latencies=side.latencies,
        latency_source="the device's events, on a CPU its clock, when tokens are chosen",
        values=None if asked.kv == "none" else lambda: {"kv_bytes": side.kv_bytes()},
        checks={
            "same_tokens": same_tokens,
            "same_when_rounded": same_when_rounded,
            "disagreement": disagreement,
            "rounded_disagreement": rounded_disagreement,
            "as_seen": as_seen(
                side.model, prompt_tokens=asked.prompt_tokens, window=asked.window, full=asked.prune_after
            ),
        },
        facts={
            "weight_bytes": (shape.layers * shape.layer_parameters + shape.head_parameters) * element,
            "kv_bytes_per_token": shape.kv_bytes(element),
            **side.facts,
        },
    )


def _check(asked: SimpleNamespace) -> None:
    counts = ("sequences", "prompt_tokens", "new_tokens", "page_tokens", "draft_tokens", "draft_layers", "fields")
    if bad := [name for name in (*counts, "decide_every") if getattr(asked, name) < 1]:
        raise ValueError(f"{bad[0]} is {getattr(asked, bad[0])}; it must be 1 or more")
    if min(asked.batch, asked.prefill_chunk, asked.decoding) < 0 or (asked.batch and asked.sequences % asked.batch):
        raise ValueError("batch must divide sequences; batch, prefill_chunk and decoding must not be negative")
    if asked.feed == "forced" and (asked.kv == "none" or asked.phase == "prefill"):
        raise ValueError("feed forced needs new tokens and a cache")
    _check_prompt(asked)
    if asked.decoding and (asked.phase != "prefill" or asked.sequences > 1 or asked.kv in FIXED):
        raise ValueError("decoding needs phase prefill, one sequence and no static kv")
    if asked.decoding_in == "same_pass" and (
        not asked.decoding or asked.kv == "none" or asked.context_from != "prefill"
    ):
        raise ValueError("decoding_in same_pass needs decoding, a cache, and a prompt that is computed")
    if asked.prefill_chunk and asked.kv in ("none", "offloaded_static"):
        raise ValueError("prefill_chunk needs a cache that takes a prompt in pieces")
    special = asked.precision != "same" or asked.depth != "full" or asked.acceptance or asked.kv in FIXED
    if asked.weights == "host" and special:
        raise ValueError("weights host needs precision same, depth full, no acceptance and no static kv")
    _check_fixed(asked)
    _check_precision(asked)
    _check_cache(asked)
    _check_ways(asked)
    if asked.graph != "none" and not asked.context.on_gpu:
        raise SkipSide("CUDA graphs need a GPU, and this side runs on the CPU")


def _check_fixed(asked: SimpleNamespace) -> None:
    """Caches that stay where they are, and what needs one."""
    if asked.kv == "offloaded_static" and (asked.phase == "prefill" or asked.host_fetch != "ahead"):
        raise ValueError("kv offloaded_static needs new tokens and host_fetch ahead")
    if asked.graph != "none" and asked.kv not in FIXED:
        raise ValueError("graph needs kv static: a graph reads and writes the same addresses each time")
    by_token = asked.graph == "per_size" and asked.prefill_chunk == 1 and asked.prompt_tokens >= 4
    if asked.graph != "none" and asked.phase == "prefill" and not by_token:
        raise ValueError("graph in phase prefill needs per_size, prefill_chunk 1 and 4 or more prompt_tokens")
    if asked.compile != "none" and (asked.kv not in FIXED or asked.phase == "prefill"):
        raise ValueError(
            "compile needs kv static and new tokens: in other caches a layer meets another shape at each token, and "
            "would be compiled again"
        )
    if asked.kernels != "library":
        several = asked.sequences > 1 or asked.sizes or asked.buckets
        if asked.kv != "static" or asked.phase == "prefill" or several:
            raise ValueError("kernels hand_written needs kv static, new tokens and one sequence, not sizes or buckets")
        if asked.compile != "none" or asked.precision != "same":
            raise ValueError("kernels hand_written needs compile none and precision same")
        need_triton(asked.context.device)
    if (asked.sizes or asked.buckets) and (asked.kv != "static" or asked.phase != "decode"):
        raise ValueError("sizes and buckets need phase decode and kv static")


def _check_prompt(asked: SimpleNamespace) -> None:
    """What is kept of a prompt, and whether its keys and values are lost."""
    own = asked.kv == "contiguous" and not asked.kv_bits and asked.phase == "both" and not asked.prefill_chunk
    if not 0 < asked.keep_prompt <= 1 or not 1 <= asked.prune_after < PRESETS[asked.model].layers:
        raise ValueError("keep_prompt must be above 0 and at most 1, prune_after 1 or more and below the layers")
    if asked.keep_prompt < 1 and (not own or asked.feed != "forced"):
        raise ValueError("keep_prompt needs phase both, feed forced, kv contiguous as computed, no prefill_chunk")
    if not 0 <= asked.lost_after <= asked.new_tokens or asked.snapshot_every < 0:
        raise ValueError("lost_after must be from 0 to new_tokens, snapshot_every must not be negative")
    if asked.snapshot_every and not asked.lost_after:
        raise ValueError("snapshot_every needs lost_after")
    plain = own and asked.feed == "greedy" and asked.sequences == 1 and asked.speculation == asked.constraint == "none"
    if asked.lost_after and not plain:
        raise ValueError("lost_after needs phase both, feed greedy, kv contiguous as computed, one sequence")


def _check_precision(asked: SimpleNamespace) -> None:
    switched = asked.precision in ("switched", "switched_kv")
    if asked.switching != "smoothed" and not switched:
        raise ValueError(f"switching {asked.switching} needs precision switched or switched_kv")
    if asked.precision == "same":
        return
    if asked.feed != "forced" or asked.depth != "full" or asked.graph == "lazy":
        raise ValueError(f"precision {asked.precision} needs feed forced, depth full and no lazy graph")
    if switched and (asked.sequences > 1 or asked.new_tokens < 2):
        raise ValueError(f"precision {asked.precision} needs one sequence and 2 or more new_tokens")
    if asked.precision == "switched_kv" and (asked.phase != "both" or not asked.kv_bits or asked.kv_recent):
        raise ValueError("precision switched_kv needs phase both, and kv_bits without kv_recent")


def _check_cache(asked: SimpleNamespace) -> None:
    if asked.kv_bits not in (0, 4, 8) or (asked.kv_bits and asked.kv != "contiguous"):
        raise ValueError("kv_bits must be 0 (as computed), 4 or 8, with kv contiguous")
    head = PRESETS[asked.model].head_dim
    if asked.kv_bits and (asked.kv_group < 0 or head % (asked.kv_group or head) or asked.kv_recent < 0):
        raise ValueError(f"kv_group must be 0 or divide the {head} values of a head; kv_recent must not be negative")
    if not 0 <= asked.requantise_ahead <= asked.requantise_at < max(asked.new_tokens, 1):
        raise ValueError("requantise_at must be from 0 to below new_tokens, requantise_ahead from 0 to requantise_at")
    grown = asked.kv_bits and asked.phase == "both" and not asked.kv_recent and asked.precision == "same"
    if asked.kv_chunk and not grown:
        raise ValueError("kv_chunk needs phase both, kv_bits without kv_recent, and precision same")
    if asked.kv_chunk < 0 or not 0 <= asked.kv_budget <= 1 or (asked.kv_budget and not asked.kv_chunk):
        raise ValueError("kv_chunk must not be negative; kv_budget must be from 0 (none) to 1, and needs kv_chunk")
    once = asked.kv_bits and asked.phase == "decode" and not asked.kv_recent and asked.precision == "same"
    if asked.requantise_at and not once:
        raise ValueError("requantise_at needs phase decode, kv_bits without kv_recent, and precision same")
    told = asked.show_text and asked.kv == "contiguous"  # for the check, which knows it from there
    if asked.window < 0 or (not told and (asked.window > 0) != (asked.kv == "windowed")):
        raise ValueError(f"kv windowed needs a window of 1 or more, and only it has one; window is {asked.window}")
    if asked.show_text and (asked.feed != "forced" or asked.dtype != "float32"):
        raise ValueError("show_text needs feed forced and float32")
    if asked.room_tokens < 0:
        raise ValueError(f"room_tokens is {asked.room_tokens}; it must not be negative")
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
    if asked.arrives == "by_layer" and asked.context_from != "host":
        raise ValueError("arrives by_layer needs context_from host")


def _check_ways(asked: SimpleNamespace) -> None:
    plain = asked.kv == "contiguous" and asked.phase == "decode" and asked.sequences == 1
    if asked.speculation != "none" and (not plain or asked.feed != "greedy"):
        raise ValueError("speculation needs phase decode, feed greedy, kv contiguous and one sequence")
    if asked.speculation == "tree" and asked.kv_bits:
        raise ValueError("speculation tree needs kv_bits 0: branches are put in order in a cache as computed")
    if not 0 <= asked.acceptance < 1 or (asked.acceptance and asked.sequences > 1):
        raise ValueError("acceptance must be from 0 (not tuned) to below 1, and needs one sequence")
    if asked.speculation in ("draft", "tree", "self") and (not asked.acceptance or asked.text == "repeating"):
        raise ValueError(
            f"speculation {asked.speculation} needs an acceptance above 0 and text random: random weights agree with "
            "no draft"
        )
    if asked.text == "repeating" and not asked.acceptance:
        raise ValueError("text repeating needs an acceptance above 0: the share of tokens that repeats give")
    _check_heads(asked)
    own = asked.draft_from != "heads"
    if own and (asked.acceptance or asked.depth != "full") and asked.draft_layers >= PRESETS[asked.model].layers:
        raise ValueError(f"draft_layers must be below the {PRESETS[asked.model].layers} layers of {asked.model}")
    if asked.depth != "full" and (not plain or asked.feed != "forced"):
        raise ValueError(f"depth {asked.depth} needs phase decode, feed forced, kv contiguous and one sequence")
    if asked.depth == "exit" and (asked.draft_from != "first" or not 0 <= asked.exit_share <= 1):
        raise ValueError("depth exit needs draft_from first and an exit_share from 0 to 1")
    if asked.constraint != "none" and (
        asked.speculation != "none" or asked.feed != "greedy" or (asked.kv == "none" or asked.kv in FIXED)
    ):
        raise ValueError("constraint needs feed greedy, no speculation, and kv contiguous, paged or windowed")
    if asked.mask_when == "after_pass" and asked.constraint != "host_table":
        raise ValueError("mask_when after_pass needs constraint host_table")


def _check_heads(asked: SimpleNamespace) -> None:
    """Heads that propose tokens, and to which ``acceptance`` refers."""
    if asked.draft_from != "heads":
        return
    if asked.speculation not in ("none", "tree") or asked.draft_tokens not in (2, 6, 14) or asked.text != "random":
        raise ValueError("draft_from heads needs speculation none or tree, draft_tokens 2, 6 or 14, text random")
    plain = asked.phase == "decode" and asked.kv == "contiguous" and asked.depth == "full"
    if not plain or not asked.acceptance or asked.new_tokens < 8:
        raise ValueError("draft_from heads needs phase decode, kv contiguous, depth full, an acceptance, 8 new_tokens")
