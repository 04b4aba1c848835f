"""Speculative greedy decoding: tokens proposed from repeats of the text, by a smaller model or by some of the model's
own layers, verified in one pass.

Random weights agree with no draft. ``tuned`` makes them: the draft is some layers of the target, and what the target's
other layers add is scaled until the two choose the same token as often as asked. ``repeating`` makes texts repeat
themselves. What must not live here: caches, the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aiperf.workloads.decoder.caches import Cache
from aiperf.workloads.decoder.generate import choose, greedy, prefill
from aiperf.workloads.decoder.model import Decoder

Propose = Callable[[Sequence[int], int], list[int]]
"""(all tokens so far, how many at most) -> tokens that may follow."""

_NGRAM = 2
_WORDS = 96
"""Tokens that a repeating text mostly consists of."""
_RARE = 0.25
"""What the other tokens' logits are multiplied with."""
_STEPS, _STEP = 12, 0.8
"""How many scales from 1 down are tried for a text that repeats itself, and how much of the one before each is."""
_NEAR = 0.07
"""Distance from what was asked at which no more are tried."""
_ROUNDS = 12
"""Halvings of the range in which the scale is sought."""
_RANGE = (1 / 64, 16.0)


@dataclass
class Tally:
    """What became of the proposals of one step."""

    passes: int = 0
    proposed: int = 0
    accepted: int = 0


def ngram(context: Sequence[int], count: int) -> list[int]:
    """What followed the latest earlier occurrence of the last two tokens."""
    tail = list(context[-_NGRAM:])
    for at in range(len(context) - _NGRAM - 1, -1, -1):
        if list(context[at : at + _NGRAM]) == tail:
            return list(context[at + _NGRAM : at + _NGRAM + count])
    return []


def _chosen(model: Decoder, inputs: Sequence[int], cache: Cache, count: int) -> list[int]:
    """``count`` tokens after ``inputs``, one pass for each; ``cache`` holds all but the last."""
    found: list[int] = []
    for _ in range(count):
        logits = model.forward(torch.tensor([inputs], device=model.device), cache)
        inputs = [int(logits[0, -1].argmax())]
        found += inputs
    return found


class Draft:
    """A smaller model with a cache of its own, one pass for each token that it proposes."""

    def __init__(self, model: Decoder, cache: Cache) -> None:
        self._model, self._cache = model, cache

    def __call__(self, context: Sequence[int], count: int) -> list[int]:
        """``count`` tokens that it would choose itself; its cache catches up with what was accepted."""
        self._cache.truncate(min(self._cache.length, len(context) - 1))
        return _chosen(self._model, context[self._cache.length :], self._cache, count)

    def restart(self, prompt: Any) -> None:
        """Back to the prompt [1, tokens]."""
        prefill(self._model, prompt, self._cache)


class SelfDraft:
    """Some layers of the model itself, with its weights and its cache, one pass for each token.

    What the passes leave in the cache lies behind the newest token, and the pass that verifies overwrites it.
    """

    def __init__(self, model: Decoder, which: Sequence[int], cache: Cache) -> None:
        self._model, self._cache = model.only(which), cache

    def __call__(self, context: Sequence[int], count: int) -> list[int]:
        """``count`` tokens that these layers would choose."""
        length = self._cache.length
        found = _chosen(self._model, context[-1:], self._cache, count)
        self._cache.truncate(length)
        return found


def speculate(
    model: Decoder, context: Sequence[int], cache: Cache, propose: Propose, *, count: int, ahead: int
) -> tuple[Any, Any, Tally]:
    """``count`` tokens after ``context``, whose last token is not in the cache yet; the same as ``greedy`` chooses.

    Up to ``ahead`` proposed tokens go through one pass with the newest token. Those that the model would have chosen
    stay, and the pass gives one more. Tokens and margins as [1, count].
    """
    known, tally = list(context), Tally()
    start, margins = len(known), []
    while (missing := count - (len(known) - start)) > 0:
        proposed = propose(known, min(ahead, missing - 1))[: missing - 1] if missing > 1 else []
        length = cache.length
        inputs = torch.tensor([[known[-1], *proposed]], device=model.device)
        chosen, margin = choose(model.forward(inputs, cache, every=True)[0])
        answers = chosen.tolist()
        right = next((i for i, token in enumerate(proposed) if token != answers[i]), len(proposed))
        known += answers[: right + 1]
        margins.append(margin[: right + 1])
        cache.truncate(length + right + 1)
        tally.passes += 1
        tally.proposed += len(proposed)
        tally.accepted += right
    return torch.tensor([known[start:]]), torch.cat(margins)[None], tally


def greedy_answer(model: Decoder, prompt: Any, cache: Cache, count: int) -> Any:
    """The token after ``prompt`` [batch, tokens] and ``count`` more, each the most likely."""
    first = choose(prefill(model, prompt, cache))[0]
    return torch.cat((first[:, None], greedy(model, first, cache, count=count)[0]), dim=1)


def agreement(model: Decoder, draft: Decoder, prompt: Any, caches: tuple[Cache, Cache], *, count: int) -> float:
    """Share of ``count`` greedy tokens of ``model`` that ``draft`` chooses too, given the same tokens before each."""
    answer = greedy_answer(model, prompt, caches[0], count)
    prefill(draft, prompt, caches[1])
    chosen, _ = choose(draft.forward(answer[:, :-1], caches[1], every=True))
    return float((chosen == answer[:, 1:]).float().mean())


def scaled(weights: Sequence[Any]) -> Callable[[float], None]:
    """Gives ``weights`` another scale, in place; 1 is the one that they have now."""
    drawn = [(weight, weight.clone()) for weight in weights]

    def scale_to(scale: float) -> None:
        for weight, before in drawn:
            torch.mul(before, scale, out=weight)

    return scale_to


def sought(value: Callable[[float], float], wanted: float, *, near: float = 0.0) -> tuple[float, float]:
    """The scale at which ``value``, which falls as it grows, is nearest to ``wanted``, or ``near`` it; the value."""
    (low, high), tried = _RANGE, dict[float, float]()
    for _ in range(_ROUNDS):
        scale = (low * high) ** 0.5
        tried[scale] = value(scale)
        if abs(tried[scale] - wanted) <= near:
            break
        low, high = (scale, high) if tried[scale] > wanted else (low, scale)
    best = min(tried, key=lambda scale: abs(tried[scale] - wanted))
    return best, value(best)


def tuned(
    model: Decoder,
    draft: Decoder,
    prompt: Any,
    caches: tuple[Cache, Cache],
    *,
    shared: Sequence[int],
    acceptance: float,
    count: int,
) -> dict[str, float]:
    """Scale in place what those layers of ``model`` add that ``draft`` does not share, until the two agree on about
    ``acceptance`` of the next ``count`` tokens of ``prompt``. Gives what was set and what came of it."""
    others = [layer for index, layer in enumerate(model.layers) if index not in shared]
    scale_to = scaled([weight for layer in others for weight in (layer.out, layer.down)])

    def agree(scale: float) -> float:
        scale_to(scale)
        return agreement(model, draft, prompt, caches, count=count)

    scale, found = sought(agree, acceptance)
    return {"acceptance_asked": acceptance, "acceptance_set": found, "tail_scale": scale}


def repeats(context: Sequence[int], start: int) -> float:
    """Share of the tokens from ``start`` on that ``ngram`` finds from those before each."""
    found = sum(ngram(context[:at], 1) == [context[at]] for at in range(start, len(context)))
    return found / (len(context) - start)


def repeating(model: Decoder, prompt: Any, cache: Cache, *, acceptance: float, count: int) -> dict[str, float]:
    """Change ``model`` in place until the next ``count`` greedy tokens of ``prompt`` [1, tokens] repeat themselves.

    Some tokens are made likely, and what attention adds is scaled: the less, the more does a token depend on the one
    before it alone, until ``ngram`` finds about ``acceptance`` of them. Gives what was set and what came of it.
    """
    model.head[_WORDS:] *= _RARE
    scale_to = scaled([layer.out for layer in model.layers])

    def found(scale: float) -> float:
        scale_to(scale)
        context = [*prompt[0].tolist(), *greedy_answer(model, prompt, cache, count)[0].tolist()]
        return repeats(context, len(context) - count)

    # Cycles appear all at once, so that halving a range would not find its way.
    tried = dict[float, float]()
    for step in range(_STEPS):
        tried[_STEP**step] = found(_STEP**step)
        if abs(tried[_STEP**step] - acceptance) <= _NEAR:
            break
    scale = min(tried, key=lambda scale: abs(tried[scale] - acceptance))
    share = found(scale)
    return {"acceptance_asked": acceptance, "acceptance_set": share, "attention_scale": scale}
