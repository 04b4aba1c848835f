"""llm.drafted: a small target, trained in set-up, decodes greedily alone or with a trained draft's proposals.

What must not live here: the language (texts.py), training, drafts (feature_draft.py), verification (trees.py).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.decoder.caches import Contiguous, Nothing, Room
from aiperf.workloads.decoder.generate import choose, greedy, prefill
from aiperf.workloads.decoder.model import Shape, draw
from aiperf.workloads.decoder.speculation import Tally
from aiperf.workloads.llm import trees
from aiperf.workloads.llm.agreement import same_tokens
from aiperf.workloads.llm.feature_draft import DraftLayer, Proposer, Watched
from aiperf.workloads.llm.texts import Language
from aiperf.workloads.llm.training import Lessons, teach_draft, teach_target, weights_of
from aiperf.workloads.shared.page_cache import fill_once
from aiperf.workloads.shared.seeded import gemm_peak, own_seed

METRICS = {"drafted": {"tokens_per_pass": ("", "higher")}}
_HEAD = 32
"""Values of a head."""
_INNER = 3
"""Hidden units of the feed-forward network, by the width."""
_HELD_OUT = 64
"""Texts by which the target's accuracy is found."""


class TrainedSide:
    """The target, a draft if one proposes, prompts, and a cache and proposals for each."""

    def __init__(self, asked: SimpleNamespace) -> None:
        context, device = asked.context, asked.context.device
        self._asked, heads = asked, asked.width // _HEAD
        self.shape = Shape(asked.layers, asked.width, heads, heads, _INNER * asked.width, asked.vocab)
        self._language = Language(vocab=asked.vocab, topics=asked.topics, seed=context.seed, device=device)
        tokens = asked.prompt_tokens + asked.new_tokens + 1
        self._room = tokens + max(asked.ahead, asked.tree_tokens) + 1
        self._lessons = Lessons(self._language, texts=asked.texts, tokens=tokens, rate=asked.rate)
        self.target = self._taught()
        self.facts = {"target_accuracy": self._accuracy(tokens)} | self._draft()
        self.prompts = torch.zeros(asked.sequences, asked.prompt_tokens, dtype=torch.long, device=device)
        room = Room(asked.layers, 1, heads, _HEAD, self._room, device=device)
        self._caches = [Contiguous(room) for _ in range(asked.sequences)]
        self.held = {
            "tokens": self.prompts.new_zeros(asked.sequences, asked.new_tokens),
            "margins": torch.zeros(asked.sequences, asked.new_tokens, device=device),
        }
        self.tally = Tally()
        self._steps: list[float] = []
        self.redraw(context.seed)

    def _taught(self) -> Watched:
        """The target of the side that comes first, which all use: two trainings may round differently."""
        asked, seed = self._asked, self._asked.context.seed
        model = draw(self.shape, seed=seed, max_tokens=self._room, device=asked.context.device)

        def write(folder: Path) -> None:
            teach_target(model, self._lessons, steps=asked.target_steps, seed=seed)
            torch.save([weight.detach().cpu() for weight in weights_of(model)], folder / "weights.pt")

        learnt = (asked.topics, asked.texts, self._lessons.tokens, asked.target_steps, asked.rate)
        numbers = (*vars(self.shape).values(), *learnt)
        name = "-".join(str(number) for number in ("target", *numbers, seed))
        folder = fill_once(asked.context.shared_scratch / name, write)
        for weight, saved in zip(weights_of(model), torch.load(folder / "weights.pt"), strict=True):
            weight.copy_(saved)
        return Watched(self.shape, model.embedding, model.layers, model.norm, model.head, self._room)

    def _accuracy(self, tokens: int) -> float:
        """Share of the tokens after a prompt that the target would choose, in texts that it has not learnt from."""
        source = torch.Generator(self.target.device).manual_seed(own_seed(self._asked.context.seed, "held out"))
        texts = self._language.draw((_HELD_OUT, tokens), source=source)
        with torch.inference_mode():
            chosen, _ = choose(self.target.forward(texts[:, :-1], Nothing(self.target.device), every=True))
        return float((chosen == texts[:, 1:])[:, self._asked.prompt_tokens :].float().mean())

    def _draft(self) -> dict[str, float]:
        """A trained draft and what proposes with it, and what came of the training."""
        asked = self._asked
        self._proposers: list[Proposer] = []
        if asked.draft == "none":
            return {}
        seed = own_seed(asked.context.seed, "draft")
        draft = DraftLayer(self.target, asked.draft, seed=seed)
        loss = teach_draft(draft, self.target, self._lessons, steps=asked.draft_steps, seed=seed)
        how = {"ahead": asked.ahead, "beam": asked.beam, "nodes": asked.tree_tokens}
        self._proposers = [Proposer(self.target, draft, **how) for _ in range(asked.sequences)]
        return {"draft_parameters": sum(weight.numel() for weight in draft.weights), "draft_loss": loss}

    def redraw(self, seed: int) -> None:
        """Other prompts; caches and drafts are made ready for them."""
        device = self.target.device
        source = torch.Generator(device).manual_seed(own_seed(seed, "prompts"))
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
            for number in range(len(self._caches)):
                tokens, margins, tally = self._decoded(number, count)
                self.held["tokens"][number], self.held["margins"][number] = tokens[0], margins[0]
                for name, value in vars(tally).items():
                    setattr(self.tally, name, getattr(self.tally, name) + value)
        self._steps.append(count * len(self._caches) / self.tally.passes)

    def _decoded(self, number: int, count: int) -> tuple[Any, Any, Tally]:
        cache = self._caches[number]
        cache.truncate(self._asked.prompt_tokens)
        if not self._proposers:
            return *greedy(self.target, self._first[number], cache, count=count), Tally(passes=count)
        return trees.speculate(self.target, self._context[number], cache, self._proposers[number], count=count)

    def values(self) -> dict[str, float]:
        """Over the steps since this was last asked."""
        steps, self._steps = self._steps, []
        return {"tokens_per_pass": sum(steps) / len(steps)} if steps else {}

    def counters(self) -> dict[str, float]:
        """Of the latest step."""
        tally = self.tally
        counts = {"target_passes": tally.passes, "proposed_tokens": tally.proposed, "accepted_tokens": tally.accepted}
        return {name: float(count) for name, count in counts.items()}


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
) -> Workload:
    """A decoder of ``layers`` that set-up trains, for ``target_steps`` steps of ``texts`` fresh texts each with AdamW
    up to ``rate``, to write a language: words of three tokens, in an order that one of ``topics`` decides, which two
    tokens at the beginning name. It decodes ``new_tokens`` greedily after each of ``sequences`` prompts, one after
    another, in fp32.

    ``draft``: what proposes, a draft of one layer that set-up trains for ``draft_steps`` to choose as the target does.
    Besides a token it is given the token before it (``tokens``); the target's last feature, as in EAGLE
    (``features``); or three features of the target mixed, trained three tokens ahead on its own outputs, as in EAGLE-3
    (``fused``). All have as many parameters. It proposes a chain of ``ahead`` tokens, or with ``tree_tokens`` so many
    of the likeliest in branches of up to ``ahead``, expanding the ``beam`` likeliest after each token, as in EAGLE-2.

    ``tokens_per_pass``: new tokens by passes of the target; one more than it accepts on average. How much the target
    and the draft have learnt is in ``target_accuracy`` and ``draft_loss``.

    FLOPs: 2 x parameters of the target x new tokens. Items: new tokens.
    """
    asked = SimpleNamespace(**locals())
    counts = ("ahead", "beam", "layers", "topics", "sequences", "new_tokens", "texts", "target_steps", "draft_steps")
    if bad := [name for name in counts if getattr(asked, name) < 1]:
        raise ValueError(f"{bad[0]} is {getattr(asked, bad[0])}; it must be 1 or more")
    if width < _HEAD or width % _HEAD or vocab < 32 or prompt_tokens < 3 or rate <= 0:
        raise ValueError(
            f"width must be a multiple of {_HEAD}, vocab 32 or more, prompt_tokens 3 or more, rate above 0"
        )
    if tree_tokens < 0 or (tree_tokens and draft == "none") or beam > vocab:
        raise ValueError("tree_tokens must not be negative and needs a draft; beam must not be above vocab")
    torch.set_flush_denormal(True)  # moments of weights that hardly matter decay into denormals
    side = TrainedSide(asked)
    flops = 2.0 * (layers * side.shape.layer_parameters + side.shape.head_parameters) * sequences * new_tokens
    return Workload(
        step=side.step,
        work=Work(
            flops=flops, items=sequences * new_tokens, item="tokens", peaks=gemm_peak(context.device, "float32", flops)
        ),
        outputs=lambda: dict(side.held),
        inputs=lambda: {"prompts": side.prompts},
        redraw=side.redraw,
        counters=side.counters,
        values=side.values,
        checks={"same_tokens": same_tokens},
        facts=side.facts,
    )
