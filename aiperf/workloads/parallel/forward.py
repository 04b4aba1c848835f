"""A side of parallel.forward: this rank's part of the model, its prompts and caches, prefill and decoding.

What must not live here: the layouts themselves (one file each), what is counted (workload.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from aiperf.workloads.contract import Context, SkipSide, Work
from aiperf.workloads.decoder.caches import Cache, Contiguous, Room, Static
from aiperf.workloads.decoder.generate import Stepper, choose
from aiperf.workloads.decoder.model import PRESETS, Decoder, DecoderLayer, Shape, draw
from aiperf.workloads.parallel.context_parallel import ContextParallel, own_positions, ring_attention
from aiperf.workloads.parallel.gradient_exchange import captured
from aiperf.workloads.parallel.grouped import Grouped
from aiperf.workloads.parallel.pipeline import Microbatches, Pipeline, own_layers
from aiperf.workloads.parallel.pipeline_training import PipelineTraining
from aiperf.workloads.parallel.tensor_parallel import TensorParallel, own_layer, share_of
from aiperf.workloads.shared.seeded import draw_on_device, gemm_peak, memory_peak, own_seed, torch_dtype

_CAPTURED = 12
"""Tokens that the runs before and in a capture write."""
_SHOWN = 128
"""Tokens of an attention whose results are among the outputs."""


class _Filled(Contiguous):
    """The block of a static cache, to be filled by a prefill."""

    def __init__(self, block: Static) -> None:
        Cache.__init__(self, block.device, block.dtype)
        self.kv = block.kv


class _GangStepper(Stepper):
    """A greedy step that every rank makes at the same time, its collectives captured with it."""

    close: Callable[[], None] | None = None

    def capture(self, length: int = 0) -> None:
        """Replay the step as one graph from now on; the cache is empty after."""
        self._cache.truncate(length)
        graph = captured(self._step, torch.cuda.Stream())
        self._run, self.close = graph.replay, graph.reset
        self._cache.truncate(length)


class Part:
    """One rank's part of a model under one layout, and room for keys and values."""

    def __init__(self, asked: SimpleNamespace, layout: str, whole: Decoder | None = None) -> None:
        self._asked, self.layout, self._whole = asked, layout, whole
        self.rank, self.ranks = asked.context.rank, asked.context.world_size
        self.shape = PRESETS[asked.model]
        self.model = self._make()
        self.batch = asked.batch // self.ranks if layout == "replicas" else asked.batch

    def _make(self) -> Decoder:
        at: dict[str, int] = {"rank": self.rank, "ranks": self.ranks}
        if self.layout == "tensor" and self.ranks > 1:
            share = share_of(self.shape, self.ranks)
            drawn = self._drawn(lambda layers: [own_layer(layer, self.shape, **at) for layer in layers])
            head = drawn.head.chunk(self.ranks)[self.rank].clone()
            return TensorParallel(share, drawn.embedding, drawn.layers, drawn.norm, head, drawn.max_tokens)
        if self.layout == "pipeline" and self.ranks > 1:
            own = own_layers(self.shape, **at, head=self._asked.phase == "train")
            drawn = self._drawn(lambda layers: [layer for index, layer in enumerate(layers) if index in own])
            embedding = drawn.embedding if not self.rank else drawn.embedding[:1].clone()
            head = drawn.head if self.rank == self.ranks - 1 else drawn.head[:1].clone()
            return Pipeline(self.shape, embedding, drawn.layers, drawn.norm, head, drawn.max_tokens)
        drawn, kind = self._drawn(list), ContextParallel if self.layout == "context" else Grouped
        return kind(self.shape, drawn.embedding, drawn.layers, drawn.norm, drawn.head, drawn.max_tokens)

    def _drawn(self, keep: Callable[[Any], list[DecoderLayer]]) -> Decoder:
        """All weights that are not layers, and what ``keep`` keeps of those; of a model that is there, its own."""
        asked = self._asked
        if (whole := self._whole) is not None:
            return Decoder(whole.shape, whole.embedding, keep(whole.layers), whole.norm, whole.head, whole.max_tokens)
        tokens = asked.tokens + (asked.new_tokens if asked.phase == "both" else 0) + _CAPTURED
        how = {"device": asked.context.device, "dtype": torch_dtype(asked.dtype), "max_tokens": tokens}
        return draw(self.shape, seed=asked.context.seed, keep=keep, **how)

    def own(self, sequences: Any) -> Any:
        """Of ``sequences`` [batch, ...] those that this rank takes."""
        return sequences.chunk(self.ranks)[self.rank] if self.layout == "replicas" else sequences

    def caches(self, kind: Callable[[Room], Any], tokens: int) -> list[Any]:
        """A cache for each microbatch, for ``tokens`` of each sequence."""
        shape, count = self.model.shape, self._asked.microbatches
        room = Room(
            layers=len(self.model.layers),
            batch=self.batch // count,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            tokens=tokens // self.ranks if self.layout == "context" else tokens,
            dtype=self.model.dtype,
            device=self.model.device,
        )
        return [kind(room) for _ in range(count)]

    def one(self, caches: list[Any]) -> Any:
        """The caches of all microbatches as what the model takes."""
        return Microbatches(caches) if isinstance(self.model, Pipeline) else caches[0]


class LayoutSide:
    """A prefill of the prompts, and with phase both greedy tokens for each; the same results on every rank."""

    def __init__(self, asked: SimpleNamespace) -> None:
        self._asked = asked
        with torch.inference_mode():
            changes = asked.decode_layout not in ("same", asked.layout)
            self._decoding = Part(asked, asked.decode_layout if changes else asked.layout)
            self._part = Part(asked, asked.layout, self._decoding.model) if changes else self._decoding
            self._stepper: _GangStepper | None = None
            if asked.phase == "both":
                self._ready(changes)
            else:
                self._cache = self._part.one(self._part.caches(Contiguous, asked.tokens))
        self.prompts = self._texts()
        self.redraw(asked.context.seed)
        self.held = self._outputs()

    def _texts(self) -> Any:
        return torch.zeros(self._asked.batch, self._asked.tokens, dtype=torch.long, device=self._asked.context.device)

    def _ready(self, changes: bool) -> None:
        """Room for keys and values of both phases, in one block where the layout stays; the decoding step's graph."""
        asked, part = self._asked, self._decoding
        room = max(asked.tokens + asked.new_tokens, _CAPTURED + 1)
        self._blocks = part.caches(Static, room)
        filled = self._part.caches(Contiguous, asked.tokens) if changes else [_Filled(block) for block in self._blocks]
        self._filled, self._cache, static = filled, self._part.one(filled), part.one(self._blocks)
        self._stepper = _GangStepper(part.model, static, batch=part.batch)
        self._static = static
        if asked.graph:
            self._stepper.capture()

    def redraw(self, seed: int) -> None:
        """Other prompts, the same on every rank."""
        source = torch.Generator().manual_seed(own_seed(seed, "prompts"))
        drawn = torch.randint(self._part.shape.vocab, tuple(self.prompts.shape), generator=source)
        self.prompts.copy_(drawn)

    def _outputs(self) -> dict[str, Any]:
        asked, part = self._asked, self._part
        made = {"dtype": part.model.dtype, "device": part.model.device}
        held = {"logits": torch.zeros(asked.batch, part.shape.vocab, **made)}
        if asked.phase == "both":
            size = (asked.batch, 1 + asked.new_tokens)
            held["tokens"] = torch.zeros(size, dtype=torch.long, device=part.model.device)
            held["margins"] = torch.zeros(size, device=part.model.device)
        return held

    def inputs(self) -> dict[str, Any]:
        """What the step reads."""
        return {"prompts": self.prompts}

    def step(self) -> None:
        """The timed region. At its end every rank has the results of all sequences."""
        asked, part = self._asked, self._part
        with torch.inference_mode():
            self._cache.truncate(0)
            logits = part.model.forward(part.own(self.prompts), self._cache)[:, -1]
            self._keep(part, "logits", logits)
            if self._stepper is None:
                return
            first, margin = choose(logits)
            if part is not self._decoding:
                self._reshard()
                first, margin = self._decoding.own(first), self._decoding.own(margin)
            self._static.truncate(asked.tokens)
            tokens, margins = self._stepper.tokens(first, count=asked.new_tokens)
            # With the prompt's own choice: if that is a tie, rounding alone may have the sides write different texts.
            self._keep(self._decoding, "tokens", torch.cat((first[:, None], tokens), dim=1))
            self._keep(self._decoding, "margins", torch.cat((margin[:, None], margins), dim=1))

    def _keep(self, part: Part, name: str, found: Any) -> None:
        """Results of this rank's sequences, or all, among the outputs; replicas hand each other theirs."""
        if part.layout == "replicas" and part.ranks > 1:
            dist.all_gather(list(self.held[name].chunk(part.ranks)), found.contiguous())
        else:
            self.held[name].copy_(found)

    def _reshard(self) -> None:
        """Keys and values of a tensor-parallel prefill, some heads of all sequences on each rank, to where replicas
        want them: all heads of some sequences."""
        ranks, (source,), (target,) = self._part.ranks, self._filled, self._blocks
        for layer in range(len(self._decoding.model.layers)):
            held = source.kv[:, layer].unflatten(1, (ranks, -1)).transpose(0, 1).contiguous()
            came = torch.empty_like(held)  # [rank, 2, own sequences, a rank's heads, tokens, head_dim]
            if ranks > 1:
                dist.all_to_all_single(came, held)
            else:
                came.copy_(held)
            target.kv[:, layer, :, :, : self._asked.tokens] = came.permute(1, 2, 0, 3, 4, 5).flatten(2, 3)

    def close(self) -> None:
        """Free a graph that holds collectives, before their process group goes."""
        if self._stepper is not None and self._stepper.close is not None:
            self._stepper.close()


class TrainingSide(LayoutSide):
    """Forward and backward passes of a pipeline."""

    def __init__(self, asked: SimpleNamespace) -> None:
        self._asked, self._stepper = asked, None
        self._part = Part(asked, "pipeline")
        assert isinstance(self._part.model, Pipeline)
        at = {"rank": self._part.rank, "ranks": self._part.ranks}
        self._training = PipelineTraining(self._part.model, **at, microbatches=asked.microbatches)
        self.prompts = self._texts()
        self.redraw(asked.context.seed)
        self.held = self._training.outputs()

    def step(self) -> None:
        """The timed region."""
        self.held = {}  # rows of the gradients before, which they would keep
        self._training.step(self.prompts)
        self.held = self._training.outputs()


class AttentionSide(LayoutSide):
    """Causal attention alone, of as many heads as one layer has, each rank with its own tokens."""

    def __init__(self, asked: SimpleNamespace) -> None:
        shape, context = PRESETS[asked.model], asked.context
        self._asked, self._stepper, self._rank, self._ranks = asked, None, context.rank, context.world_size
        own = [own_positions(asked.tokens, rank=rank, ranks=self._ranks, device="cpu") for rank in range(self._ranks)]
        self._own = own[self._rank]
        made = {"dtype": torch_dtype(asked.dtype), "device": context.device}
        size = (asked.batch, len(self._own), shape.head_dim)
        heads = {"queries": shape.heads, "keys": shape.kv_heads, "values": shape.kv_heads}
        self._parts = {name: torch.zeros(size[0], count, *size[1:], **made) for name, count in heads.items()}
        # Of every piece as many tokens, whatever the ranks; all ranks' in order of their positions.
        self._shown = slice(None, None, asked.tokens // _SHOWN)
        self._order = torch.cat([positions[self._shown] for positions in own]).argsort().to(context.device)
        self.held = {"attended": torch.zeros(asked.batch, shape.heads, _SHOWN, shape.head_dim, **made)}
        self.redraw(context.seed)

    def redraw(self, seed: int) -> None:
        """Other queries, keys and values; of all tokens the same, whatever the ranks."""
        for name, part in self._parts.items():
            whole = torch.empty(len(part), part.shape[1], self._asked.tokens, part.shape[3], device=part.device)
            draw_on_device(whole, seed=seed, name=name)
            part.copy_(whole[:, :, self._own.to(part.device)])

    def inputs(self) -> dict[str, Any]:
        """This rank's queries, keys and values."""
        return self._parts

    def step(self) -> None:
        """The timed region. At its end every rank has the results of some tokens of all ranks."""
        with torch.inference_mode():
            attended = ring_attention(*self._parts.values(), rank=self._rank, ranks=self._ranks)
            shown = attended[:, :, self._shown].contiguous()
            every = [shown]
            if self._ranks > 1:
                every = [torch.empty_like(shown) for _ in range(self._ranks)]
                dist.all_gather(every, shown)
            self.held["attended"].copy_(torch.cat(every, dim=2)[:, :, self._order])


def side_of(asked: SimpleNamespace) -> LayoutSide:
    """The side that ``asked`` names."""
    return {"train": TrainingSide, "attention": AttentionSide}.get(asked.phase, LayoutSide)(asked)


def check_asked(asked: SimpleNamespace) -> None:
    """Raises ValueError for what does not go together, SkipSide for what needs a GPU."""
    ranks, batch, layout = asked.context.world_size, asked.batch, asked.layout
    if min(batch, asked.tokens, asked.new_tokens, asked.microbatches) < 1 or batch % asked.microbatches:
        raise ValueError("batch, tokens, new_tokens and microbatches must be 1 or more; microbatches must divide batch")
    if asked.microbatches > 1 and layout != "pipeline":
        raise ValueError("microbatches need layout pipeline")
    if "replicas" in (layout, asked.decode_layout) and batch % ranks:
        raise ValueError(f"{batch} sequences cannot be dealt out equally to {ranks} replicas")
    if (layout == "context" and asked.phase not in ("prefill", "attention")) or (
        layout != "context" and asked.phase == "attention"
    ):
        raise ValueError("layout context needs phase prefill or attention, and phase attention needs layout context")
    if asked.phase == "attention" and (asked.tokens % _SHOWN or _SHOWN % (2 * ranks)):
        raise ValueError(f"phase attention needs tokens in multiples of {_SHOWN}, and ranks that divide {_SHOWN // 2}")
    own_positions(asked.tokens if layout == "context" else 2 * ranks, rank=0, ranks=ranks, device="cpu")
    if asked.phase == "train" and (layout != "pipeline" or ranks < 2):
        raise ValueError("phase train needs layout pipeline and ranks: 2 or more on this side")
    if asked.decode_layout != "same" and (asked.phase != "both" or layout != "tensor"):
        raise ValueError("decode_layout needs phase both and layout tensor")
    if asked.graph and (asked.phase != "both" or not asked.context.on_gpu):
        if asked.phase != "both":
            raise ValueError("graph holds a decoding step; it needs phase both")
        raise SkipSide("a CUDA graph needs a GPU")
    if layout == "context" and asked.context.on_gpu and asked.dtype == "float32":
        raise ValueError("layout context needs dtype bfloat16 on a GPU, whose flash kernel takes no other")


def join(context: Context) -> str:
    """Join the ranks' group; on the CPU each computes on one thread, as if it were a device of its own."""
    if not context.on_gpu:
        torch.set_num_threads(1)
    if context.world_size < 2:
        return "none"
    context.process_group(context.gang_backend())
    return str(dist.get_backend())


def work_of(asked: SimpleNamespace) -> Work:
    """FLOPs of all ranks, and of each pass the weights once. A GPU is charged its equal part of them."""
    shape, batch, prompt, ranks = PRESETS[asked.model], asked.batch, asked.tokens, asked.context.world_size
    new = asked.new_tokens if asked.phase == "both" else 0
    pairs = (prompt + new) * (prompt + new + 1) // 2
    if asked.phase == "attention":
        flops = 4.0 * batch * shape.heads * shape.head_dim * pairs
        moved = 2.0 * batch * prompt * (shape.heads + shape.kv_heads) * shape.head_dim
        charge: dict[str, Any] = gemm_peak(asked.context.device, asked.dtype, flops / ranks)
        moved *= torch_dtype(asked.dtype).itemsize
        return Work(bytes=moved, flops=flops, items=batch * prompt, item="tokens", peaks=charge)
    rows = prompt if asked.phase == "train" else 1 + new
    flops = 2.0 * (shape.layers * shape.layer_parameters * (prompt + new) + shape.head_parameters * rows)
    flops = batch * (flops + 4.0 * shape.layers * shape.heads * shape.head_dim * pairs)
    flops *= 3.0 if asked.phase == "train" else 1.0
    weights = _weights(shape) * torch_dtype(asked.dtype).itemsize
    device, moved = asked.context.device, (1 + new) * weights
    charge = gemm_peak(device, asked.dtype, flops / ranks)
    charge |= memory_peak(device, moved=moved / ranks, working_set=weights / ranks)
    return Work(bytes=moved, flops=flops, items=batch * (new or prompt), item="tokens", peaks=charge)


def _weights(shape: Shape) -> float:
    return float(shape.layers * shape.layer_parameters + shape.head_parameters)
