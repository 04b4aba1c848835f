"""The steps of a side: prefill, decoding, both, or interleaved; its texts and outputs.

What must not live here: the model (workloads/decoder), ways to decode (ways.py), what is counted (workload.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from aiperf.workloads.decoder import caches, generate, pruned
from aiperf.workloads.decoder.model import PRESETS, Decoder, Shape, draw
from aiperf.workloads.decoder.offload import HostLayers
from aiperf.workloads.llm.group import Group, make_cache, make_groups
from aiperf.workloads.llm.kept import KeptContext, ReshardedContext, SentContext
from aiperf.workloads.llm.neighbours import Neighbours
from aiperf.workloads.llm.pressed import GrowingKv
from aiperf.workloads.llm.requantised import ChangedOnce
from aiperf.workloads.llm.token_times import TokenTimes
from aiperf.workloads.llm.ways import Ways
from aiperf.workloads.shared.seeded import own_seed, torch_dtype

_CONTEXT = 64
"""Tokens that a sequence beside the prefill has already."""
_SHOWN = 64 << 20
"""Bytes of a cache above which its last layer, which hangs on all others, and of the others some tokens are outputs."""
_RANKS = 2
"""Workers between which a resharded context was split."""
_CAPTURED = 4
"""Tokens that capturing a graph writes."""


def _shown(names: dict[str, str], held: Any) -> dict[str, Any]:
    """What is compared of a cache's array [2, layers, batch, kv_heads, tokens, ...]: all, or as ``_SHOWN`` says."""
    every = -(-held.nbytes // _SHOWN)
    if every == 1:
        return {names["last"]: held}
    return {names["last"]: held[:, -1:], names["others"]: held[:, :-1, :, :, ::every]}


@dataclass
class Generation:
    """A model, prompts and caches, ready to decode."""

    asked: SimpleNamespace
    model: Decoder = field(init=False)
    prompts: Any = field(init=False)
    groups: list[Group] = field(init=False)
    held: dict[str, Any] = field(init=False)
    """Outputs, written by every step."""
    forced: Any = None
    """The text whose logits are asked for, if the side does not follow its own choices."""
    facts: dict[str, float] = field(default_factory=dict)
    ways: Ways = field(init=False)
    neighbours: Neighbours | None = None
    """Sequences that decode beside the prefill."""

    def __post_init__(self) -> None:
        asked, context = self.asked, self.asked.context
        shape = PRESETS[asked.model]
        tokens = asked.prompt_tokens
        if asked.phase != "prefill":
            tokens += asked.new_tokens + _CAPTURED + asked.draft_tokens
        positions = max(tokens, _CONTEXT + asked.new_tokens)
        dtype = torch_dtype(asked.dtype)
        keep: Any = list
        if asked.weights == "host":
            keep = partial(HostLayers, count=shape.layers, ahead=asked.host_fetch == "ahead")
        drawn = {"max_tokens": positions, "device": context.device, "dtype": dtype, "keep": keep}
        self.model = draw(shape, seed=context.seed, **drawn)
        self.prompts = self._long(asked.sequences, asked.prompt_tokens)
        room = tokens if asked.kv == "paged" else max(tokens, asked.room_tokens)
        self.groups = make_groups(asked, shape, tokens=room)
        if asked.feed == "forced":
            self.forced = self._long(asked.sequences, asked.new_tokens)
        if asked.decoding:
            self._beside = self._long(asked.decoding, _CONTEXT)
            cache = make_cache(asked, shape, batch=asked.decoding, tokens=_CONTEXT + asked.new_tokens)
            self.neighbours = Neighbours(self.model, cache, self._beside, rounds=asked.new_tokens)
        self.held = self._outputs(shape)
        self.times = TokenTimes(context.device)
        self._draw_texts(context.seed)
        with torch.inference_mode():
            self.ways = Ways(asked, self.model, self.groups, self.prompts, self.forced)
            self.facts = self.ways.facts
            self._ready()

    def _long(self, *shape: int) -> Any:
        return torch.zeros(shape, dtype=torch.long, device=self.asked.context.device)

    def _outputs(self, shape: Shape) -> dict[str, Any]:
        """Made outside of inference mode: an audit must overwrite them."""
        asked, made = self.asked, {}
        count, device = asked.sequences, asked.context.device
        if asked.phase != "prefill":
            made["tokens"] = self._long(count, asked.new_tokens)
            if self.forced is None:
                made["margins"] = torch.zeros(count, asked.new_tokens, device=device)
            else:
                made["logits"] = torch.zeros(count, asked.new_tokens, shape.vocab, device=device)
                text = self._context() + asked.new_tokens
                for number, group in enumerate(self.groups):
                    if isinstance(group.cache, ChangedOnce):
                        for name, held in group.cache.held().items():
                            names = {"last": f"{name}_{number}", "others": f"{name}_layers_{number}"}
                            made |= _shown(names, held[:, :, :, :, :text])
            if asked.show_text:
                made["text"] = self._long(count, self._context() + asked.new_tokens)
                if isinstance(self.groups[0].cache, pruned.PrunedKv):
                    made["kept"] = self._long(count, self.groups[0].cache.chosen.shape[1])
            return made
        made["logits"] = torch.zeros(count, shape.vocab, device=device)
        if self.neighbours is not None:
            made |= {"tokens": self.neighbours.tokens, "margins": self.neighbours.margins}
        for number, group in enumerate(self.groups):
            if isinstance(group.cache, caches.Contiguous):
                made |= _shown({"last": f"kv_{number}", "others": f"layers_{number}"}, group.cache.kv)
        return made

    def _draw_texts(self, seed: int) -> None:
        for name, text in self.texts().items():
            source = torch.Generator().manual_seed(own_seed(seed, name))
            text.copy_(torch.randint(self.model.shape.vocab, text.shape, generator=source))

    def texts(self) -> dict[str, Any]:
        """The inputs: prompts, the text to follow, the context of sequences beside the prefill."""
        beside = self._beside if self.neighbours is not None else None
        named = {"prompts": self.prompts, "forced": self.forced, "beside": beside}
        return {name: text for name, text in named.items() if text is not None}

    def redraw(self, seed: int) -> None:
        """Other prompts from a seed; what decoding starts from is made for them."""
        self._draw_texts(seed)
        with torch.inference_mode():
            self._ready()

    def _ready(self) -> None:
        """Caches that hold the prompts, where the step does not fill them itself."""
        if self.neighbours is not None:
            self.neighbours.fill()
        for number, group in enumerate(self.groups if self.asked.context_from != "prefill" else ()):
            generate.prefill(self.model, self.prompts[group.rows, :-1], group.cache)
            group.kept = self._kept(number, group)
        if self.asked.phase != "decode":
            return
        for number, group in enumerate(self.groups):
            self._fill(number, group)
        self.times.seconds()
        self.ways.restart(self.prompts)

    def _kept(self, number: int, group: Group) -> KeptContext | SentContext | ReshardedContext:
        assert isinstance(group.cache, caches.Contiguous)
        if self.asked.context_from == "resharded":
            return ReshardedContext(group.cache, ranks=_RANKS)
        if self.asked.context_from in ("wire", "wire_fp8"):
            return SentContext(group.cache, fp8=self.asked.context_from == "wire_fp8")
        path = self.asked.context.scratch / f"context-{number}" if self.asked.context_from == "file" else None
        return KeptContext(group.cache, path)

    def _fill(self, number: int, group: Group) -> Any:
        """Prefill a group; its neighbours decode a token after every piece, and what is left of theirs at the end."""
        beside = self.neighbours
        if beside is not None:
            beside.restart()
        if group.kept is not None:
            group.kept.fetch()
            logits = self.model.forward(self.prompts[group.rows, -1:], group.cache)[:, -1]
            group.first = generate.choose(logits)[0]
            self.times.first()
            return logits
        prompts, chunk = group.wide(self.prompts), self.asked.prefill_chunk
        if isinstance(group.cache, pruned.PrunedKv):
            kept = pruned.kept_tokens(self.asked.prompt_tokens, self.asked.keep_prompt)
            logits = pruned.prefill_pruned(self.model, prompts, group.cache, full=self.asked.prune_after, kept=kept)
        elif self.asked.keep_prompt < 1:
            logits = generate.prefill(self.model, self._read(prompts), group.cache)
        elif beside is not None and self.asked.decoding_in == "same_pass":
            logits = beside.prefill_beside(prompts, group.cache, chunk=chunk)
        else:
            between = generate.nothing if beside is None else beside.round
            through = self.ways.of_prompt(number)
            if self.asked.phase == "prefill" and isinstance(group.cache, caches.Static):
                # The cache is an output, which an audit overwrites; masked positions are read too, as numbers.
                group.cache.kv.zero_()
            logits = generate.prefill(through, prompts, group.cache, chunk=chunk, between=between)
        group.first = generate.choose(logits)[0]
        self.times.first()
        while beside is not None and beside.round():
            pass
        return logits

    def step(self) -> None:
        """One iteration: what ``phase`` says, for all groups."""
        self.times.begin()
        self.ways.begin()
        with torch.inference_mode():
            for number, group in enumerate(self.groups):
                if self.asked.phase != "decode":
                    logits = self._fill(number, group)
                    if self.asked.phase == "prefill":
                        self.held["logits"][group.rows] = logits
                        continue
                if self.forced is not None:
                    self._follow(number, group)
                else:
                    self.times.resume()
                    tokens, margins = self.ways.tokens(number, self.prompts[group.rows], self.times.another)
                    self.held["tokens"][group.rows] = tokens
                    self.held["margins"][group.rows] = margins

    def _follow(self, number: int, group: Group) -> None:
        """Logits and choices at every position of the given text."""
        through = self.ways.through(number)
        group.cache.truncate(self._context())
        self.times.resume()
        if self.asked.show_text:
            self._show(group)
        size = group.rows.stop - group.rows.start
        for i, column in enumerate(group.wide(self.forced).split(1, dim=1)):
            logits = through.forward(column, group.cache)[:size, -1]
            self.held["logits"][group.rows, i] = logits.float()
            self.held["tokens"][group.rows, i] = logits.argmax(dim=-1)
            self.times.another()

    def _show(self, group: Group) -> None:
        """What a group reads and, where it is pruned, keeps of its prompts."""
        prompts, into = self._read(self.prompts[group.rows]), self.held["text"][group.rows]
        into[:, : prompts.shape[1]], into[:, prompts.shape[1] :] = prompts, self.forced[group.rows]
        if isinstance(group.cache, pruned.PrunedKv):
            self.held["kept"][group.rows] = group.cache.chosen

    def _read(self, prompts: Any) -> Any:
        """Prompts as they are computed."""
        if self.asked.kept_by == "attention" or self.asked.keep_prompt == 1:
            return prompts
        return pruned.compressed(prompts, self.asked.keep_prompt)

    def _context(self) -> int:
        """The position that follows a prompt."""
        asked = self.asked
        if asked.kept_by == "attention" or asked.keep_prompt == 1:
            return int(asked.prompt_tokens)
        return pruned.computed_tokens(asked.prompt_tokens, asked.keep_prompt)

    def latencies(self) -> dict[str, list[float]]:
        """Times to first tokens, which neighbours do not have, and from token to token, which are theirs if any are
        there."""
        found = self.times.seconds()
        return found | {"inter_token": self.neighbours.times.seconds()["inter_token"]} if self.neighbours else found

    def counters(self) -> dict[str, float]:
        """Memory of the caches, and what the way of decoding counted in the last step."""
        growing = [group.cache for group in self.groups if isinstance(group.cache, GrowingKv)]
        dropped = {"bits_dropped_at": float(growing[0].dropped_at)} if growing else {}
        if growing and growing[0].budget:
            dropped["kv_budget_bytes"] = sum(cache.budget for cache in growing)
        return {"kv_bytes": self.kv_bytes()} | dropped | self.ways.counters()

    def kv_bytes(self) -> float:
        """Memory of the caches."""
        return float(sum(group.cache.nbytes for group in self.groups))
