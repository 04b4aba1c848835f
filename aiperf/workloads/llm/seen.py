"""Whether a side that sees only a part of a text gives what one pass over the text gives that sees this part alone.

What must not live here: how a side keeps or drops tokens, bounds of how often it may choose otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from aiperf.workloads.contract import Outcome
from aiperf.workloads.decoder.caches import Nothing
from aiperf.workloads.decoder.model import Decoder, Spot
from aiperf.workloads.decoder.pruned import SUMMARY
from aiperf.workloads.llm.agreement import disagreement

_NEAR = 1e-3
"""Distance of a position's logits from the pass's, over their length, that rounding in fp32 explains."""
_ATTENDED = 1e-3
"""By what share of it rounding may move how much a token is attended to."""
Compared = Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]


def as_seen(model: Decoder, *, prompt_tokens: int, window: int, full: int) -> Compared:
    """The check ``disagreement`` of sides that show their text, each with logits that must be those of one pass.

    Before sees all. The other side sees the ``window`` that ends with each token, or where it shows what it ``kept`` of
    the prompt only that after the first ``full`` layers, or else all of a text that begins with the first ten tokens of
    before's and goes on with its newest.
    """
    passes = _Passes(model, prompt_tokens=prompt_tokens, full=full)

    def check(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
        found = disagreement(before, after)
        if not found.passed:
            return found
        whole, own, kept = before["text"], after["text"], after.get("kept")
        shorter = not window and kept is None
        fault = (_what_was_cut if shorter else _what_was_read)(whole, own)
        if not fault and kept is not None:
            fault = passes.what_was_left_out(whole, kept)
        if not fault and _apart(before["logits"], passes.logits(whole, before)):
            fault = "before's logits are not those of a pass that sees all"
        if not fault and _apart(after["logits"], passes.logits(own, after, window=window, kept=kept)):
            fault = "after's logits are not those of a pass that sees only what it is to see"
        return Outcome(False, fault) if fault else found

    return check


class _Keys(Nothing):
    """The keys of the latest layer."""

    newest: Any = None

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """The new tokens are all."""
        self.newest = k
        return k, v


class _Passes:
    """One pass over a text with a mask for each layer; a text is taken once, however often it is asked about."""

    def __init__(self, model: Decoder, *, prompt_tokens: int, full: int) -> None:
        self._model, self._prompt, self._full = model, prompt_tokens, full
        self._known: dict[tuple[bytes, int, bytes], Any] = {}

    def logits(self, text: Any, side: Mapping[str, Any], *, window: int = 0, kept: Any = None) -> Any:
        """After each of a side's new tokens, the last of the text: [batch, new, vocab]."""
        key = (text.tobytes(), window, b"" if kept is None else kept.tobytes())
        if key not in self._known:
            seen = _causal(text.shape[1], window)
            few = seen if kept is None else seen & _visible(torch.from_numpy(kept), text.shape[1], self._prompt)
            masks = [seen if layer < self._full else few for layer in range(len(self._model.layers))]
            with torch.inference_mode():
                x = self._through(torch.from_numpy(text), masks, _Keys())[:, -side["tokens"].shape[1] :]
                self._known[key] = self._model.logits(x).cpu().numpy()
        return self._known[key]

    def what_was_left_out(self, text: Any, shown: Any) -> str:
        """Whether others than the most attended tokens of a prompt are kept, and the last, as a sentence; empty when
        those are."""
        prompts, kept, count = torch.from_numpy(text[:, : self._prompt]), torch.from_numpy(shown), self._prompt
        rows = kept.tolist()
        if len(rows) != len(text) or any(len({*row} & {*range(count)}) < len(row) for row in rows):
            return "after kept tokens that the prompt has not, or some of them twice"
        if any(count - 1 not in row for row in rows):
            return "after did not keep the last token of a prompt"
        keys, masks, layer = _Keys(), [_causal(count, 0)] * self._full, self._full - 1
        with torch.inference_mode():
            last = self._through(prompts, masks[1:], keys)[:, -1:]
            self._through(prompts, masks, keys)
            spot = Spot(keys, self._model.cos[:count], self._model.sin[:count], None, False)
            scores = self._model.attention_of(layer, last, keys.newest, spot).cpu()
            scores[:, -1] = torch.inf
        least, most = scores.gather(1, kept).amin(dim=1), scores.scatter(1, kept, 0.0).amax(dim=1)
        if (least >= most * (1 - _ATTENDED)).all():
            return ""
        return "after left out tokens of a prompt that are attended to more than some that it kept"

    def _through(self, text: Any, masks: Sequence[Any], keys: _Keys) -> Any:
        """Hidden states after as many layers as there are masks."""
        model, count = self._model, text.shape[1]
        x = F.embedding(text.to(model.device), model.embedding)
        for layer, mask in enumerate(masks):
            spot = Spot(keys, model.cos[:count], model.sin[:count], mask.to(model.device), False)
            x = model.through(x, spot, layer, layer + 1)
        return x


def _what_was_read(whole: Any, own: Any) -> str:
    return "" if np.array_equal(whole, own) else "after read another text than before"


def _what_was_cut(whole: Any, own: Any) -> str:
    """What is wrong with a text of which the middle is left out, as a sentence; empty when nothing is."""
    newest = own.shape[1] - SUMMARY
    if len(own) != len(whole) or not 0 < newest <= whole.shape[1] - SUMMARY:
        return f"after read {own.shape[1]} tokens of before's {whole.shape[1]}"
    kept = np.concatenate((whole[:, :SUMMARY], whole[:, -newest:]), axis=1)
    return "" if np.array_equal(kept, own) else "what after kept of the text is not what before read"


def _causal(count: int, window: int) -> Any:
    """Which tokens each sees: those up to its own, with a ``window`` (0: none) the newest of them."""
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    return seen & ~seen.tril(-window) if window else seen


def _visible(kept: Any, count: int, prompt: int) -> Any:
    """Tokens that are kept of each prompt, all after it, and each token by itself: [batch, 1, count, count]."""
    seen = torch.zeros(len(kept), count, dtype=torch.bool)
    seen.scatter_(1, kept, torch.ones_like(kept, dtype=torch.bool))
    seen[:, prompt:] = True
    return seen[:, None, None] | torch.eye(count, dtype=torch.bool)


def _apart(found: Any, truth: Any) -> bool:
    """Whether a position's logits lie further from the truth than rounding takes them; what is no number does."""
    apart, length = (np.linalg.norm(x, axis=-1) for x in (found - truth, truth))
    return not bool((apart <= _NEAR * length).all())
