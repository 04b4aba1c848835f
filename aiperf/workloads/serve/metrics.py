"""The metrics of the requests of a launch, segment by segment, and which of them met their objectives.

What must not live here: sending requests, comparing the two sides, and what makes the metrics worthless (faults.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any, TypedDict, TypeVar

from aiperf.workloads.contract import Seconds
from aiperf.workloads.serve.client import Request, Sent
from aiperf.workloads.serve.trace import Segment

T = TypeVar("T")
_MOST_KEPT = 40
"""Moments of a request that a record keeps."""

Played = Sequence[tuple[Segment, Sent]]


class Objectives(TypedDict, total=False):
    """What a request must not exceed to count as good, from its scheduled time."""

    ttft: Seconds
    inter_token: Seconds
    end_to_end: Seconds


def latency(request: Request, objective: str) -> float | None:
    """One time of a request that was answered whole, counted from the schedule; None where it has none."""
    if not request.ok or request.end is None:
        return None
    if objective == "ttft":
        return request.times[0] - request.scheduled
    if objective == "end_to_end":
        return request.end - request.scheduled
    if request.gap is not None:
        return request.gap
    gaps = len(request.times) - 1
    return (request.times[-1] - request.times[0]) / gaps if gaps else None


def met(request: Request, slo: Mapping[str, float]) -> bool:
    """Whether a request was answered whole, and within every objective."""
    return request.ok and all((latency(request, name) or 0.0) <= limit for name, limit in slo.items())


def missed(request: Request, slo: Mapping[str, float], now: float) -> bool:
    """Whether a request has missed an objective by then (seconds after its segment's start), whatever it still gets."""
    if request.end is not None and not request.dropped:
        return not met(request, slo)
    first = request.times[0] if request.times else now
    return any(
        limit < {"ttft": first, "end_to_end": now}.get(name, -math.inf) - request.scheduled
        for name, limit in slo.items()
    )


def segment_values(segment: Segment, sent: Sent, slo: Mapping[str, float]) -> dict[str, float]:
    """Metric -> its value of one segment. Rates of requests are by the schedule's length, so that both sides divide by
    the same; means are over the requests that were answered whole, and left out where none was. What another client
    does not say is left out."""
    whole = [request for request in sent.requests if request.ok]
    values = {}
    if segment.seconds:
        values["goodput"] = sum(met(request, slo) for request in sent.requests) / segment.seconds
    if sent.seconds:
        values["tokens_per_s"] = sum(request.tokens for request in whole) / sent.seconds
    times = {name: [latency(request, name) for request in whole] for name in Objectives.__annotations__}
    times["queue"] = [r.sent - r.scheduled for r in whole if r.sent is not None and r.planned]
    for name, found in times.items():
        if known := [seconds for seconds in found if seconds is not None]:
            values[name] = max(0.0, fmean(known))
    return values


def series(sent: Sequence[Sent]) -> dict[str, list[float]]:
    """Every time of the requests that were answered whole, in the order in which they ended: ``inter_token`` from each
    token to the next one, the others one a request."""
    found: dict[str, list[float]] = {"ttft": [], "inter_token": [], "end_to_end": [], "queue": []}
    whole = [sorted((r for r in each.requests if r.ok), key=lambda request: request.end or 0.0) for each in sent]
    for request in (request for segment in whole for request in segment):
        found["ttft"].append(request.times[0] - request.scheduled)
        found["inter_token"] += [after - before for before, after in pairwise(request.times)]
        found["end_to_end"].append((request.end or 0.0) - request.scheduled)
        if request.planned:
            found["queue"].append(max(0.0, (request.sent or 0.0) - request.scheduled))
    return {name: [max(0.0, seconds) for seconds in times] for name, times in found.items()}


def cached_share(played: Played) -> float | None:
    """Share of the prompts' tokens that the answers say were in the prefix cache; None where none says so."""
    requests = [request for request in requests_of(played) if request.prompt_tokens]
    if all(request.cached_tokens is None for request in requests):
        return None
    return sum(r.cached_tokens or 0 for r in requests) / sum(r.prompt_tokens or 0 for r in requests)


def acceptance_length(counted: Mapping[str, float], played: Played, latest: float | None) -> float | None:
    """Tokens for each verification of a draft, the target model's own among them, by what the server counted
    meanwhile (``Server.counted``), else by its ``latest`` steps, else by the answers; None without speculative
    decoding. Answers do not say how often the target model ran without a draft: those runs count as well."""
    if drafts := counted.get("drafts"):
        return 1 + counted.get("accepted_tokens", 0.0) / drafts
    if verifications := counted.get("verifications"):
        return counted.get("generated_tokens", 0.0) / verifications
    if latest is not None:
        return latest
    answered = [request for request in requests_of(played) if request.ok]
    if all(request.accepted_tokens is None for request in answered):
        return None
    tokens, accepted = (sum(r.tokens for r in answered), sum(r.accepted_tokens or 0 for r in answered))
    return tokens / (tokens - accepted) if tokens > accepted else None


def template_share(played: Played) -> float:
    """Share of the prompts' tokens that a template puts around every prompt, which any cache has after the first one:
    the fewest tokens of a prompt beyond its words, in each. 0 where the server does not count a prompt's tokens."""
    pairs = [pair for s, sent in played for pair in zip(s.arrivals, sent.requests, strict=True)]
    counted = [(len(arrival.prompt.split()), request.prompt_tokens) for arrival, request in pairs]
    known = [(words, tokens) for words, tokens in counted if tokens]
    if not known:
        return 0.0
    template = max(0, min(tokens - words for words, tokens in known))
    return template * len(known) / sum(tokens for _, tokens in known)


def slowest(played: Played) -> dict[str, Any]:
    """The request that took longest from its schedule, of those answered whole: seconds after its time at which it was
    sent, had its first and later tokens, and ended; and what was under way meanwhile, from change to change: seconds,
    requests without a token, requests with one; and what the server said of its batch: seconds, requests in it, in its
    queue. Empty without any."""
    whole = [(r, sent, s) for s, (_, sent) in enumerate(played) for r in sent.requests if r.ok and r.sent is not None]
    if not whole:
        return {}
    worst, sent, segment = max(whole, key=lambda found: (found[0].end or 0.0) - found[0].scheduled)

    def after(seconds: float) -> float:
        return round(max(0.0, seconds - worst.scheduled), 5)

    ends = after(worst.end or 0.0)
    changes = [step for step in _under_way(sent.requests) if step[0] <= worst.scheduled + ends]
    began = max((k for k, step in enumerate(changes) if step[0] <= worst.scheduled), default=0)
    return {
        "segment": segment,
        "request": sent.requests.index(worst),
        "sent": after(worst.sent or 0.0),
        "tokens": [after(seconds) for seconds in _thinned(worst.times)],
        "end": ends,
        "under_way": [(after(at), waiting, answered) for at, waiting, answered in _thinned(changes[began:])],
        "batch": [(after(at), running, queued) for at, running, queued in _thinned(_looks(sent, worst))],
    }


def _looks(sent: Sent, request: Request) -> Sequence[tuple[float, int, int]]:
    """Looks at the server's batch while a request was under way, and the last one before."""
    until = [look for look in sent.batch if look[0] <= (request.end or 0.0)]
    began = max((k for k, look in enumerate(until) if look[0] <= request.scheduled), default=0)
    return until[began:]


def _under_way(requests: Sequence[Request]) -> list[tuple[float, int, int]]:
    """From change to change: when, how many requests had been sent and had no token, how many had one and no end."""
    changes: list[tuple[float, int, int]] = []
    for request in (r for r in requests if r.sent is not None and r.end is not None):
        first = request.times[0] if request.times else request.end or 0.0
        changes += [(request.sent or 0.0, 1, 0), (first, -1, 1), (request.end or 0.0, 0, -1)]
    changes.sort()
    waiting, answered = (list(accumulate(counts)) for counts in list(zip(*changes, strict=True))[1:])
    return [(at, sent, begun) for (at, _, _), sent, begun in zip(changes, waiting, answered, strict=True)]


def _thinned(found: Sequence[T]) -> list[T]:
    """At most ``_MOST_KEPT`` of them, evenly; the first and the last always."""
    if len(found) <= _MOST_KEPT:
        return list(found)
    return [found[round(k * (len(found) - 1) / (_MOST_KEPT - 1))] for k in range(_MOST_KEPT)]


def counts(played: Played, slo: Mapping[str, float]) -> dict[str, float]:
    """What became of all requests of a launch."""
    requests, shares = requests_of(played), [sent.cpu_share for _, sent in played if sent.cpu_share is not None]
    found: dict[str, float] = {
        "requests": len(requests),
        "met": sum(met(request, slo) for request in requests),
        "refused": sum(request.refused for request in requests),
        "errors": sum(bool(request.error) and not request.refused for request in requests),
    }
    if dropped := sum(request.dropped for request in requests):
        found["dropped"] = dropped
    if all(sent.seconds for _, sent in played):
        found["tokens"] = sum(request.tokens for request in requests if request.ok)
    if all(request.planned for request in requests if request.ok):
        found["latest_send_ms"] = round(1000 * max((lateness(r) for r in requests), default=0.0), 3)
    if looks := [look for _, sent in played for look in sent.batch]:
        found |= {"largest_batch": max(look[1] for look in looks), "longest_queue": max(look[2] for look in looks)}
    if len(shares) == len(played):
        found["client_cpu_share"] = round(max(shares, default=0.0), 3)
    return found


def lateness(request: Request) -> float:
    """Seconds from its time to when it was sent; 0 where it was not."""
    return 0.0 if request.sent is None else request.sent - request.scheduled


def requests_of(played: Played) -> list[Request]:
    """The requests of all segments."""
    return [request for _, sent in played for request in sent.requests]
