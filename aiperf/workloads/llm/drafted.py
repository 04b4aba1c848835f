"""llm.drafted: a small target, trained in set-up, decodes greedily alone or with a trained draft's proposals.

What must not live here: the language (texts.py), training, drafts (feature_draft.py), verification (trees.py).
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import torch

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.decoder.caches import Contiguous, Nothing, Room
from aiperf.workloads.decoder.generate import choose, greedy, prefill
from aiperf.workloads.decoder.model import Shape, draw
from aiperf.workloads.decoder.speculation import Tally
from aiperf.workloads.llm import trees
from aiperf.workloads.llm.agreement import same_tokens
from aiperf.workloads.llm.feature_draft import DraftLayer, FeatureDecoder, Proposer, shift_right
from aiperf.workloads.llm.texts import Language
from aiperf.workloads.llm.training import Trainer, train_draft, train_target, weights_of
from aiperf.workloads.shared.page_cache import fill_once
from aiperf.workloads.shared.seeded import gemm_peak, own_seed

METRICS = {"drafted": {"tokens_per_pass": ("", "higher")}}
_HEAD = 32
"""Values of a head."""
_INNER = 3
"""Hidden units of the feed-forward network, by the width."""
_HELD_OUT = 64
"""Texts by which accuracies are found."""


class TrainedSide:
    """The target, a draft if one proposes, prompts, and a cache and proposals for each."""

    def __init__(self, asked: SimpleNamespace) -> None:
        context, device = asked.context, asked.context.device
        self._asked, heads = asked, asked.width // _HEAD
        self.shape = Shape(asked.layers, asked.width, heads, heads, _INNER * asked.width, asked.vocab)
        self._language = Language(vocab=asked.vocab, topics=asked.topics, seed=context.seed, device=device)
        tokens = asked.prompt_tokens + asked.new_tokens + 1
        self._room = tokens + max(asked.ahead, asked.tree_tokens) + 1
        self._training = Trainer(self._language, texts=asked.texts, tokens=tokens, rate=asked.rate)
        self.target = self._trained_target()
        self._proposers: list[Proposer] = []
        self.facts = self._accuracies(None if asked.draft == "none" else self._trained_draft())
        self.target.seen = []
        if device.startswith("cuda"):  # what training used is not a step's
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        self.prompts = torch.zeros(asked.sequences, asked.prompt_tokens, dtype=torch.long, device=device)
        room = Room(asked.layers, 1, heads, _HEAD, self._room, device=device)
        self._caches = [Contiguous(room) for _ in range(asked.sequences)]
        tokens = self.prompts.new_zeros(asked.sequences, asked.new_tokens)
        self.held = {"tokens": tokens, "margins": torch.zeros(tokens.shape, device=device)}
        self.tally = Tally()
        self.redraw(context.seed)

    def _trained_target(self) -> FeatureDecoder:
        """The target, trained by one side while the others wait, and loaded by all: trainings may round differently."""
        asked, seed = self._asked, self._asked.context.seed
        model = draw(self.shape, seed=seed, max_tokens=self._room, device=asked.context.device)

        def write(folder: Path) -> None:
            train_target(model, self._training, steps=asked.target_steps, seed=seed)
            torch.save([weight.cpu() for weight in weights_of(model)], folder / "weights.pt")

        numbers = (*vars(self.shape).values(), asked.topics, asked.texts, self._training.tokens, asked.target_steps)
        folder = asked.context.shared_scratch / "-".join(map(str, ("target", *numbers, asked.rate, seed)))
        with folder.with_name(f"{folder.name}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            fill_once(folder, write)
        for weight, saved in zip(weights_of(model), torch.load(folder / "weights.pt"), strict=True):
            weight.copy_(saved)
        return FeatureDecoder(self.shape, model.embedding, model.layers, model.norm, model.head, self._room)

    def _trained_draft(self) -> DraftLayer:
        asked, seed = self._asked, own_seed(self._asked.context.seed, "draft")
        draft = DraftLayer(self.target, asked.draft, seed=seed)
        train_draft(draft, self.target, self._training, steps=asked.draft_steps, seed=seed)
        how = {"ahead": asked.ahead, "beam": asked.beam, "nodes": asked.tree_tokens}
        self._proposers = [Proposer(self.target, draft, **how) for _ in range(asked.sequences)]
        return draft

    def _accuracies(self, draft: DraftLayer | None) -> dict[str, float]:
        """How often, after a prompt in texts drawn anew, some of which it may have learnt from, the target chooses the
        next token, and how often the draft's first choice is the target's."""
        asked, target = self._asked, self.target
        source = torch.Generator(target.device).manual_seed(own_seed(asked.context.seed, "held out"))
        texts, nothing = self._language.draw((_HELD_OUT, self._training.tokens), source=source), Nothing(target.device)
        with torch.inference_mode():
            chosen, _ = choose(target.forward(texts, nothing, every=True))
            same = {"target_accuracy": chosen[:, :-1] == texts[:, 1:]}
            if draft is not None:
                spot = draft.model.spot(nothing, texts.shape[1])
                own = draft.logits(draft.forward(texts, shift_right(draft.given(texts)), spot))
                same["draft_accuracy"] = own.argmax(dim=-1) == chosen
        found = {name: float(each[:, asked.prompt_tokens :].float().mean()) for name, each in same.items()}
        if found["target_accuracy"] < asked.least_accuracy:
            fault = f"target_accuracy is {found['target_accuracy']:.3f}, below least_accuracy {asked.least_accuracy:g}"
            raise ValueError(f"{fault}; increase target_steps ({asked.target_steps}) or decrease least_accuracy")
        return found if draft is None else found | {"draft_parameters": sum(each.numel() for each in draft.weights)}

    def redraw(self, seed: int) -> None:
        """Other prompts; caches and drafts are made ready for them."""
        source = torch.Generator(self.target.device).manual_seed(own_seed(seed, "prompts"))
        self.prompts.copy_(self._language.draw(tuple(self.prompts.shape), source=source))
        self._first = []
        with torch.inference_mode():
            for number, prompt in enumerate(self.prompts.split(1)):
                self._first.append(choose(prefill(self.target, prompt, self._caches[number]))[0])
                if self._proposers:
                    self._proposers[number].restart(prompt)
        self._context = [[*p, int(t)] for p, t in zip(self.prompts.tolist(), self._first, strict=True)]

    def step(self) -> None:
        """Decode after each prompt, one after another."""
        count, self.tally = self._asked.new_tokens, Tally()
        with torch.inference_mode():
            for i, cache in enumerate(self._caches):
                cache.truncate(self._asked.prompt_tokens)
                if self._proposers:
                    found = trees.speculate(self.target, self._context[i], cache, self._proposers[i], count=count)
                else:
                    found = *greedy(self.target, self._first[i], cache, count=count), Tally(passes=count)
                self.held["tokens"][i], self.held["margins"][i], tally = found[0][0], found[1][0], found[2]
                self.tally.passes += tally.passes
                self.tally.proposed += tally.proposed
                self.tally.accepted += tally.accepted

    def values(self) -> dict[str, float]:
        """Of the latest step."""
        return {"tokens_per_pass": self.held["tokens"].numel() / self.tally.passes} if self.tally.passes else {}

    def counters(self) -> dict[str, float]:
        """Of the latest step."""
        tally = self.tally
        return {"target_passes": tally.passes, "proposed_tokens": tally.proposed, "accepted_tokens": tally.accepted}


def drafted(
    context: Context,
    *,
    draft: Literal["none", "tokens", "features", "fused"] = "none",
    ahead: int = 4,
    tree_tokens: int = 0,
    beam: int = 4,
    layers: int = 2,
    width: int = 64,
    vocab: int = 64,
    topics: int = 8,
    sequences: int = 2,
    prompt_tokens: int = 24,
    new_tokens: int = 48,
    texts: int = 32,
    target_steps: int = 200,
    draft_steps: int = 100,
    rate: float = 1e-3,
    least_accuracy: float = 0.0,
) -> Workload:
    """A decoder of ``layers`` that set-up trains, for ``target_steps`` steps of ``texts`` newly drawn texts with AdamW
    up to ``rate``, to write a language: words of three tokens, in an order that one of ``topics`` decides, which two
    tokens at the beginning name. It decodes ``new_tokens`` greedily after each of ``sequences`` prompts, one after
    another, in fp32.

    ``draft``: what proposes, a draft of one layer that set-up trains for ``draft_steps``. Besides a token it is given
    the token before it (``tokens``); the target's last feature, as in EAGLE (``features``); or three features of the
    target mixed, trained three tokens ahead on its own outputs, as in EAGLE-3 (``fused``). All have as many parameters.
    ``tokens`` and ``fused`` learn to choose as the target does, ``features`` mostly to predict its next feature. The
    draft proposes a chain of ``ahead`` tokens, or with ``tree_tokens`` so many of the likeliest in branches of up to
    ``ahead``, expanding the ``beam`` likeliest after each token, as in EAGLE-2.

    ``tokens_per_pass``: new tokens by passes of the target; one more than it accepts on average. ``target_accuracy``
    and ``draft_accuracy``: how often, in texts drawn anew, the target chooses the next token and the draft what the
    target chooses. A target below ``least_accuracy`` fails set-up.

    FLOPs: 2 x parameters of the target x new tokens. Items: new tokens.
    """
    asked = SimpleNamespace(**locals())
    counts = ("ahead", "beam", "layers", "topics", "sequences", "new_tokens", "texts", "target_steps", "draft_steps")
    if bad := [name for name in counts if getattr(asked, name) < 1]:
        raise ValueError(f"{bad[0]} is {getattr(asked, bad[0])}; it must be 1 or more")
    if width < _HEAD or width % _HEAD or vocab < 32 or prompt_tokens < 3 or rate <= 0 or not 0 <= least_accuracy <= 1:
        valid = f"width must be a multiple of {_HEAD}, vocab 32 or more, prompt_tokens 3 or more, rate above 0"
        raise ValueError(f"{valid}, least_accuracy from 0 to 1")
    if tree_tokens < 0 or (tree_tokens and draft == "none") or beam > vocab:
        raise ValueError("tree_tokens must not be negative and needs a draft; beam must not be above vocab")
    torch.set_flush_denormal(True)  # moments of weights that hardly matter decay into denormals
    side = TrainedSide(asked)
    count = sequences * new_tokens
    flops = 2.0 * (layers * side.shape.layer_parameters + side.shape.head_parameters) * count
    return Workload(
        step=side.step,
        work=Work(flops=flops, items=count, item="tokens", peaks=gemm_peak(context.device, "float32", flops)),
        outputs=lambda: dict(side.held),
        inputs=lambda: {"prompts": side.prompts},
        redraw=side.redraw,
        counters=side.counters,
        values=side.values,
        checks={"same_tokens": same_tokens},
        facts=side.facts,
    )
