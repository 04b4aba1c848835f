"""How a side's sequences decode: what set-up makes for it beside the model, and the tokens of a group.

What must not live here: the techniques themselves (workloads/decoder), prefill, outputs, what is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from aiperf.workloads.decoder import caches, generate, grammar, precision, shallow, speculation
from aiperf.workloads.decoder.model import Decoder
from aiperf.workloads.llm import trees
from aiperf.workloads.llm.group import FIXED, Group, make_cache
from aiperf.workloads.llm.hand_written import hand_written
from aiperf.workloads.llm.heads import TEXTS, HeadAccuracy, Heads, fitted
from aiperf.workloads.llm.host_masks import HostMasks
from aiperf.workloads.llm.recovery import Interrupted
from aiperf.workloads.llm.requantised import KeptIn


class Ways:
    """Drafts, captured graphs, masks of a grammar, a model of fewer layers: what ``asked`` names."""

    def __init__(
        self, asked: SimpleNamespace, model: Decoder, groups: Sequence[Group], prompts: Any, forced: Any
    ) -> None:
        self._asked, self._model, self._groups = asked, model, groups
        self.facts: dict[str, float] = {}
        self.tally = speculation.Tally()
        self._through: Sequence[precision.Forward] = [model] * len(groups)
        """What a token of each group goes through."""
        self._few = (evenly_spread if asked.draft_from == "spread" else _leading)(len(model.layers), asked.draft_layers)
        self._propose: speculation.Propose = speculation.ngram
        self._draft: speculation.Draft | trees.TreeDraft | Heads | None = None
        if asked.acceptance:
            self._tune(prompts)
        self._make_shallow(prompts, forced)
        if asked.precision != "same":
            self._round(prompts, forced)
        elif asked.kv in FIXED:
            self._through = self._every(model)
        self._interrupted: Interrupted | None = None
        if asked.lost_after:
            cache, path = groups[0].cache, asked.context.scratch / "snapshot"
            assert isinstance(cache, caches.Contiguous)
            self._interrupted = Interrupted(model, cache, path, at=asked.lost_after, every=asked.snapshot_every)
        self._masks = self._compiled() if asked.constraint != "none" else None

    def _tune(self, prompts: Any) -> None:
        """Weights that agree with a draft, or repeat themselves, as often as asked; a draft, if one proposes."""
        asked, model = self._asked, self._model
        room = {"batch": 1, "tokens": model.max_tokens}
        own = make_cache(asked, model.shape, **room)
        if asked.text == "repeating":
            self.facts = speculation.repeating(model, prompts, own, acceptance=asked.acceptance, count=asked.new_tokens)
            return
        if asked.draft_from == "heads":
            heads = Heads(model, own, count=trees.levels_of(asked.draft_tokens), seed=asked.context.seed)
            texts = make_cache(asked, model.shape, batch=TEXTS + 1, tokens=model.max_tokens)
            how = HeadAccuracy(asked.acceptance, asked.new_tokens, asked.context.seed)
            self.facts = fitted(heads, model, prompts, texts, how)
            self._draft = heads if asked.speculation == "tree" else None
            return
        spread = asked.draft_from == "spread"
        draft = model.only(self._few) if spread else model.first_layers(asked.draft_layers)
        self.facts = speculation.tuned(
            model,
            draft,
            prompts,
            (own, make_cache(asked, model.shape, **room)),
            shared=self._few,
            acceptance=asked.acceptance,
            count=asked.new_tokens,
        )
        if asked.speculation == "draft":
            self._draft = self._propose = speculation.Draft(draft, make_cache(asked, model.shape, **room))
        elif asked.speculation == "tree":
            self._draft = trees.TreeDraft(draft, make_cache(asked, model.shape, **room), nodes=asked.draft_tokens)
        elif asked.speculation == "self":
            self._propose = speculation.SelfDraft(model, self._few, self._groups[0].cache)

    def _make_shallow(self, prompts: Any, forced: Any) -> None:
        asked, model = self._asked, self._model
        if asked.depth == "skip":
            self._through = [model.only(self._few)]
        if asked.depth == "exit":
            text, cache = torch.cat((prompts, forced), dim=1), self._groups[0].cache
            cache.truncate(0)
            first = model.only(range(asked.draft_layers)).forward(text, cache, every=True)
            margins = generate.choose(first)[1][:, -asked.new_tokens :]
            margin = float(torch.quantile(margins.flatten(), 1 - asked.exit_share))
            self._through = [shallow.EarlyExit(model, layers=asked.draft_layers, margin=margin)]
            self.facts |= {"exit_share_asked": asked.exit_share, "exit_margin": margin}

    def _round(self, prompts: Any, forced: Any) -> None:
        """Models with layers in fp8, or with keys and values in few bits, and when a token goes through one."""
        asked, model = self._asked, self._model
        few_bits = asked.precision == "switched_kv"
        if not few_bits:
            layers = range(len(model.layers))
            rounded = model.rounded(layers[1:-1] if asked.precision == "fp8_inner" else layers)
            if asked.precision != "switched":
                self._through = self._every(rounded)
                return
        cache, text = self._groups[0].cache, torch.cat((prompts, forced), dim=1)
        cache.truncate(0)
        margins = generate.choose(model.forward(text, cache, every=True))[1][0, -asked.new_tokens :]
        pairs: Iterable[tuple[precision.Forward, precision.Forward]] = (
            [(KeptIn(model, low=False), KeptIn(model, low=True))]
            if few_bits
            else zip(self._every(model), self._every(rounded), strict=True)
        )
        single = asked.switching == "single"
        newest = 1.0 if single else precision.NEWEST
        enter = float(torch.quantile(precision.smoothed(margins, newest), 1 - asked.exit_share))
        # All of them or none: rounding, or another text, must not decide about the least or the most clear one.
        enter *= {0.0: 100.0, 1.0: 0.0}.get(asked.exit_share, 1.0)
        leave = enter if single else enter / 2
        how = {"enter": enter, "leave": leave, "every": asked.decide_every, "newest": newest}
        self._through = [precision.Switched(*pair, **how) for pair in pairs]
        share = "few_bits_share_asked" if few_bits else "fp8_share_asked"
        self.facts |= {share: asked.exit_share, "enter_margin": enter, "leave_margin": leave}

    def _every(self, model: Decoder) -> list[precision.Forward]:
        """The model for each group, in steps of its own where the cache allows a graph, compiled where asked."""
        return [*self._steppers(model)] if self._asked.kv in FIXED else [model] * len(self._groups)

    def _steppers(self, model: Decoder) -> list[generate.Stepper]:
        steppers, compiled = [], self._asked.compile != "none"
        model = hand_written(model) if self._asked.kernels == "hand_written" else model
        model = model.compiled() if compiled else model
        for group in self._groups:
            assert isinstance(group.cache, caches.Static)
            rows = group.rows.stop - group.rows.start + group.spare
            stepper = generate.Stepper(model, group.cache, batch=rows)
            if compiled:
                # The first step compiles: no iteration is to wait for that.
                group.cache.truncate(self._asked.prompt_tokens)
                stepper.forward(torch.zeros(rows, 1, dtype=torch.long, device=model.device), group.cache)
            if self._asked.graph == "per_size":
                stepper.capture(0 if self._asked.phase == "prefill" else self._asked.prompt_tokens)
            steppers.append(stepper)
        return steppers

    def begin(self) -> None:
        """A new iteration: no graph is there yet where each is captured when its size first comes."""
        for through in self._through if self._asked.graph == "lazy" else ():
            assert isinstance(through, generate.Stepper)
            through.forget()

    def of_prompt(self, number: int) -> precision.Forward:
        """What the pieces of a prompt of group ``number`` go through: the captured step where each piece is one token
        (phase prefill with a graph), else the model."""
        captured = self._asked.phase == "prefill" and self._asked.graph != "none"
        return self._through[number] if captured else self._model

    def through(self, number: int) -> precision.Forward:
        """What a token of group ``number`` goes through, at the start of a text that follows its prompts."""
        through = self._through[number]
        if isinstance(through, shallow.EarlyExit | precision.Switched):
            through.restart()
        if self._asked.graph == "lazy":
            assert isinstance(through, generate.Stepper)
            through.capture(self._asked.prompt_tokens)
        return through

    def _compiled(self) -> grammar.WalkedMasks | grammar.CompiledMasks:
        asked = self._asked
        states = grammar.records(asked.fields, seed=asked.context.seed)
        tokens = grammar.vocabulary(self._model.shape.vocab, states, seed=asked.context.seed)
        self.facts |= {"grammar_states": len(states)}
        if asked.constraint in ("compiled", "host_table"):
            device, late = asked.context.device, asked.mask_when == "after_pass"
            compiled = (
                grammar.CompiledMasks(states, tokens, device)
                if asked.constraint == "compiled"
                else HostMasks(states, tokens, device, batch=self._rows(), late=late)
            )
            self.facts |= {"grammar_table_bytes": compiled.nbytes}
            return compiled
        return grammar.WalkedMasks(states, tokens, asked.context.device, remember=asked.constraint == "remembered")

    def _rows(self) -> int:
        """Sequences of the largest group."""
        return max(group.rows.stop - group.rows.start + group.spare for group in self._groups)

    def restart(self, prompts: Any) -> None:
        """Other prompts, which the groups' caches hold."""
        if self._asked.speculation != "none":
            self._context = [*prompts[0].tolist(), int(self._groups[0].first)]
        if self._draft is not None:
            self._draft.restart(prompts)

    def tokens(self, number: int, prompts: Any, each: Callable[[], object]) -> tuple[Any, Any]:
        """New tokens of group ``number``, which has these prompts, and their margins."""
        asked, group, count = self._asked, self._groups[number], self._asked.new_tokens
        if asked.kv == "none":
            known = torch.cat((prompts, group.first[:, None]), dim=1)
            return generate.recomputed(self._model, known, group.cache, count=count, each=each)
        group.cache.truncate(asked.prompt_tokens)
        if self._interrupted is not None:
            return self._interrupted.tokens(prompts, group.first, count=count, each=each)
        if self._masks is not None:
            self._masks.restart(len(group.first))
            pick = grammar.allowed_by(self._masks)
            return generate.greedy(self._model, group.first, group.cache, count=count, each=each, pick=pick)
        through = self.through(number)
        if isinstance(through, generate.Stepper):
            tokens, margins = through.tokens(group.first, count=count, each=each)
            size = group.rows.stop - group.rows.start
            return tokens[:size], margins[:size]
        if asked.speculation == "none":
            return generate.greedy(self._model, group.first, group.cache, count=count, each=each)
        if isinstance(self._draft, trees.TreeDraft | Heads):
            assert isinstance(group.cache, caches.Contiguous)
            tokens, margins, self.tally = trees.speculate(
                self._model, self._context, group.cache, self._draft, count=count
            )
            return tokens, margins
        tokens, margins, self.tally = speculation.speculate(
            self._model, self._context, group.cache, self._propose, count=count, ahead=asked.draft_tokens
        )
        return tokens, margins

    def counters(self) -> dict[str, float]:
        """What became of proposals, or how many passes left early, in the last step."""
        if self._interrupted is not None:
            return {"tokens_again": float(self._interrupted.again)}
        through = self._through[0]
        if isinstance(through, shallow.EarlyExit):
            return {"early_exits": float(through.exited)}
        if isinstance(through, precision.Switched):
            steps = "few_bits_steps" if self._asked.precision == "switched_kv" else "fp8_steps"
            return {steps: float(through.low_steps), "switches": float(through.switches)}
        if self._asked.speculation == "none":
            return {}
        return {
            "target_passes": float(self.tally.passes),
            "proposed_tokens": float(self.tally.proposed),
            "accepted_tokens": float(self.tally.accepted),
        }


def _leading(layers: int, count: int) -> Sequence[int]:
    return range(min(layers, count))


def evenly_spread(layers: int, count: int) -> Sequence[int]:
    """``count`` of ``layers``, the first among them."""
    return [i * layers // count for i in range(count)]
