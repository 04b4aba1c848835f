"""cascade.answer: requests one by one to a large model, or first to a small one, and on where that is unsure.

What must not live here: the models (models.py), arrivals and batches (workloads/engine).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.cascade.models import LARGE, SMALL, Answer, Answering
from aiperf.workloads.contract import Context, Outcome, Work, Workload
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.llm.agreement import same_tokens
from aiperf.workloads.shared.seeded import own_seed

METRICS = {"answer": {"cost": ("", "lower")}}
_NONE = -1
"""Past the end of a prompt."""
_TIE = 1e-3
"""Distance of a confidence from the threshold within which rounding may decide."""
_DRAWS = 8
"""Draws of the prompts by which the threshold is set."""


class _Cascade:
    """Both models, prompts, and what came of them."""

    def __init__(self, asked: SimpleNamespace) -> None:
        context, new = asked.context, asked.new_tokens
        self._asked = asked
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        low, high = asked.prompt_tokens
        lengths = np.rint(np.geomspace(low, high, asked.requests)).astype(int)
        self._lengths = np.random.default_rng(own_seed(context.seed, "lengths")).permutation(lengths).tolist()
        room = {"seed": context.seed, "tokens": high + new, "new": new, "device": context.device}
        self.large, self.small = (Answering(PRESETS[name], **room) for name in (asked.large, asked.small))
        self._words = min(PRESETS[asked.large].vocab, PRESETS[asked.small].vocab)
        self.prompts = torch.full((asked.requests, high), _NONE, device=context.device)
        self.held = {
            "text": torch.zeros_like(self.prompts),
            "tokens": self.prompts.new_zeros(asked.requests, new),
            "margins": torch.zeros(asked.requests, new, device=context.device),
            "model": self.prompts.new_zeros(asked.requests),
        }
        # All of them or none: rounding must not decide about the least or the most sure one.
        whole = {0.0: float("inf"), 1.0: 0.0}
        share = asked.small_share
        self.threshold = whole[share] if share in whole else self._calibrated(share)
        self.redraw(context.seed)
        self._took: list[float] = []
        self._costs: list[float] = []

    def _calibrated(self, share: float) -> float:
        """The confidence that so many answers of the small model reach, by prompts that no step meets."""
        sure = []
        for draw in range(_DRAWS):
            self.redraw(own_seed(self._asked.context.seed, f"calibration-{draw}"))
            with torch.inference_mode():
                sure += [self.small(prompt).confidence for prompt in self._each()]
        return float(torch.quantile(torch.tensor(sure), 1 - share))

    def redraw(self, seed: int) -> None:
        """Other prompts of the same lengths."""
        source = torch.Generator().manual_seed(own_seed(seed, "prompts"))
        self.prompts.copy_(torch.randint(self._words, self.prompts.shape, generator=source))
        for prompt, length in zip(self.prompts, self._lengths, strict=True):
            prompt[length:] = _NONE

    def _each(self) -> list[Any]:
        return [prompt[:length] for prompt, length in zip(self.prompts, self._lengths, strict=True)]

    def step(self) -> None:
        """Answer every request, one after the other."""
        spent = 0.0
        with torch.inference_mode():
            for number, prompt in enumerate(self._each()):
                began = time.perf_counter()
                answer, model, flops = self._answered(prompt)
                self.held["tokens"][number], self.held["margins"][number] = answer.tokens, answer.margins
                self.held["model"][number] = model
                self._took.append(time.perf_counter() - began)
                spent += flops
        self.held["text"].copy_(self.prompts)
        self._costs.append(spent / sum(map(self.large.flops, self._lengths)))

    def _answered(self, prompt: Any) -> tuple[Answer, int, float]:
        """An answer, who gave it, and the FLOPs of all who tried."""
        spent = 0.0
        if self._asked.route == "cascade":
            found, spent = self.small(prompt), self.small.flops(len(prompt))
            if found.confidence >= self.threshold:
                return found, SMALL, spent
        return self.large(prompt), LARGE, spent + self.large.flops(len(prompt))

    def latencies(self) -> dict[str, list[float]]:
        """Of each request since this was last asked."""
        took, self._took = self._took, []
        return {"end_to_end": took}

    def values(self) -> dict[str, float]:
        """Over the steps since this was last asked."""
        costs, self._costs = self._costs, []
        return {"cost": sum(costs) / len(costs)} if costs else {}

    def counters(self) -> dict[str, float]:
        """Of the latest step."""
        large = float((self.held["model"] == LARGE).sum())
        return {"large_answers": large, "small_answers": self._asked.requests - large}

    def close(self) -> None:
        """The process has its threads back."""
        torch.set_num_threads(self._threads)

    def routed(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
        """Before's answers are all the large model's, which one pass over each text shows. After's come from the small
        one where it is sure enough, and are what one pass of it would choose; all others are before's. The value is
        the share of the small model's answers that are not the large one's."""
        if not np.array_equal(before["text"], after["text"]) or not (before["model"] == LARGE).all():
            return Outcome(False, "the sides read different prompts, or before asked the small model")
        of_small = after["model"] == SMALL
        if not (of_small | (after["model"] == LARGE)).all():
            return Outcome(False, "an answer is of neither model")
        for number, text in enumerate(after["text"]):
            whole = {name: before[name][number][None] for name in ("tokens", "margins")}
            if not (found := same_tokens(self._seen(self.large, text, before["tokens"][number]), whole)).passed:
                return Outcome(False, f"request {number}: before's answer is not the large model's: {found.detail}")
            own = self._seen(self.small, text, after["tokens"][number] if of_small[number] else None)
            if of_small[number] != (own["sure"] >= self.threshold) and abs(own["sure"] - self.threshold) > _TIE:
                return Outcome(False, f"request {number} was answered by the wrong model")
            held = {name: after[name][number][None] for name in whole}
            if not (found := same_tokens(own if of_small[number] else whole, held)).passed:
                return Outcome(False, f"request {number}: {found.detail}")
        other = float((before["tokens"] != after["tokens"]).any(axis=1)[of_small].mean()) if of_small.any() else 0.0
        return Outcome(
            True,
            f"{of_small.mean():.0%} answered by the small model, {other:.0%} of those differ from the large model's",
            other,
        )

    def _seen(self, model: Answering, text: Any, answer: Any) -> dict[str, Any]:
        """A model's tokens and margins of a prompt by one pass over it and ``answer``, or over its own if that is
        None."""
        prompt = torch.from_numpy(text[text != _NONE]).to(self.prompts.device)
        with torch.inference_mode():
            given = model(prompt).tokens if answer is None else torch.from_numpy(answer).to(prompt.device)
            best = model.at_once(prompt, given.clamp(0, model.model.shape.vocab - 1)).topk(2, dim=-1)
        margins = (best.values[:, 0] - best.values[:, 1]).cpu().numpy()
        return {"tokens": best.indices[None, :, 0].cpu().numpy(), "margins": margins[None], "sure": margins.mean()}


def answer(
    context: Context,
    *,
    large: Literal["small", "base", "1b"] = "small",
    small: Literal["tiny", "small", "base"] = "tiny",
    requests: int = 32,
    prompt_tokens: list[int] = [32, 128],  # noqa: B006 read from the source, never changed
    new_tokens: int = 4,
    route: Literal["large", "cascade"] = "large",
    small_share: float = 0.6,
) -> Workload:
    """Greedy answers of ``new_tokens`` to ``requests`` prompts, one after the other, by decoders with random weights;
    on a CPU by one thread.

    ``route: large``: the large model gives all of them. ``cascade``: the small one answers first, and where the mean
    margin of its choices is below a threshold, the large one answers after all. The threshold is set so that
    ``small_share`` of eight other draws of prompts reach it; of the prompts of a step, more or fewer do. Each answer is
    tagged with who gave it. Lengths of prompts are at even steps of the logarithm.

    cost: FLOPs of all who tried, over those of the large model for every request. Items: requests (book, chapter 16).
    """
    asked = SimpleNamespace(**locals())
    if min(requests, new_tokens) < 1 or not 0 <= small_share <= 1:
        raise ValueError("requests and new_tokens must be 1 or more, small_share a share from 0 to 1")
    if len(prompt_tokens) != 2 or not 1 <= prompt_tokens[0] <= prompt_tokens[1]:
        raise ValueError(f"prompt_tokens is {prompt_tokens}; write [fewest, most], such as [32, 128]")
    if PRESETS[small].width >= PRESETS[large].width:
        raise ValueError(f"the small model is {small}, which is not smaller than {large}")
    side = _Cascade(asked)
    ratio = side.large.flops(prompt_tokens[1]) / side.small.flops(prompt_tokens[1])
    return Workload(
        step=side.step,
        work=Work(items=requests, item="requests"),
        outputs=lambda: dict(side.held),
        inputs=lambda: {"prompts": side.prompts},
        redraw=side.redraw,
        counters=side.counters,
        latencies=side.latencies,
        latency_source="the host's clock, from when a request is taken up until its answer is stored",
        values=side.values,
        checks={"routed": side.routed},
        facts={"flops_ratio": ratio, "threshold": side.threshold, "threads": torch.get_num_threads()},
        close=side.close,
    )
