"""What the requests of a launch say: its metrics, segment by segment, and what makes them worthless.

What must not live here: sending requests, and comparing the two sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any, TypeVar

from aiperf.workloads.serve.client import Request, Sent
from aiperf.workloads.serve.cold import CacheProbe
from aiperf.workloads.serve.trace import Segment

T = TypeVar("T")
OBJECTIVES = ("ttft", "inter_token", "end_to_end")
"""What objectives may be about."""
_RATE_OFF = 0.02
_CLIENT_BUSY = 0.8
_TOKENS_OFF = 0.1
_LATE_S = 0.02
_LATE_SHARE = 0.05
"""Share of the requests that may leave later than ``_LATE_S`` after their time: a busy host's hiccup is no fault."""
_FEWEST_LATE = 2
_CACHE_MARGIN = 0.1
"""What else may be alike: what a template puts before every prompt, where its length is not known."""
_MOST_KEPT = 40
"""Moments of a request that a record keeps."""
_FLUSH = "flush it, or start it anew for each launch"

Played = Sequence[tuple[Segment, Sent]]


def latency(request: Request, objective: str) -> float | None:
    """One time of a request that was answered whole, counted from the schedule; None where it has none."""
    if not request.ok or request.end is None:
        return None
    if objective == "ttft":
        return request.times[0] - request.scheduled
    if objective == "end_to_end":
        return request.end - request.scheduled
    gaps = len(request.times) - 1
    return (request.times[-1] - request.times[0]) / gaps if gaps else None


def met(request: Request, slo: Mapping[str, float]) -> bool:
    """Whether a request was answered whole, and within every objective."""
    return request.ok and all((latency(request, name) or 0.0) <= limit for name, limit in slo.items())


def segment_values(segment: Segment, sent: Sent, slo: Mapping[str, float]) -> dict[str, float]:
    """Metric -> its value of one segment. Rates of requests are by the schedule's length, so that both sides divide by
    the same; means are over the requests that were answered whole, and left out where none was."""
    whole = [request for request in sent.requests if request.ok]
    values = {
        "goodput": sum(met(request, slo) for request in sent.requests) / segment.seconds,
        "tokens_per_s": sum(request.tokens for request in whole) / sent.seconds,
    }
    times = {name: [latency(request, name) for request in whole] for name in OBJECTIVES}
    times["queue"] = [r.sent - r.scheduled for r in whole if r.sent is not None]
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
        found["queue"].append(max(0.0, (request.sent or 0.0) - request.scheduled))
    return {name: [max(0.0, seconds) for seconds in times] for name, times in found.items()}


def cached_share(played: Played) -> float | None:
    """Share of the prompts' tokens that the answers say were in the prefix cache; None where none says so."""
    requests = [request for request in _requests(played) if request.prompt_tokens]
    if all(request.cached_tokens is None for request in requests):
        return None
    return sum(r.cached_tokens or 0 for r in requests) / sum(r.prompt_tokens or 0 for r in requests)


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
    requests without a token, requests with one. Empty without any."""
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
    }


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
    requests = _requests(played)
    return {
        "requests": len(requests),
        "met": sum(met(request, slo) for request in requests),
        "refused": sum(request.refused for request in requests),
        "errors": sum(bool(request.error) and not request.refused for request in requests),
        "tokens": sum(request.tokens for request in requests if request.ok),
        "latest_send_ms": round(1000 * max((_lateness(r) for r in requests), default=0.0), 3),
        "client_cpu_share": round(max((sent.cpu_share for _, sent in played), default=0.0), 3),
    }


def faults(
    played: Played,
    *,
    concurrency: int,
    found_cached: float | None = None,
    at_most: float = 1.0,
    probe: CacheProbe | None = None,
) -> dict[str, str]:
    """Code -> what is wrong with the numbers of a launch, as ``Workload.faults`` has it; empty when nothing is.

    ``found_cached``: share of the prompts that the server had in its prefix cache, where it says so; ``at_most``: what
    it can find after a flush; ``probe``: what was seen of its cache where it does not say.
    """
    requests = _requests(played)
    found: dict[str, str] = {}
    if not concurrency:
        found |= _sending(played, requests)
    busy = max((sent.cpu_share for _, sent in played), default=0.0)
    if busy > _CLIENT_BUSY:
        found["client_busy"] = (
            f"the client used {100 * busy:.0f} % of a CPU ({100 * _CLIENT_BUSY:.0f} % at most): it measured itself"
        )
    whole = [request for request in requests if request.ok]
    asked, got = sum(r.asked_tokens for r in whole), sum(r.tokens for r in whole)
    if whole and abs(got / asked - 1) > _TOKENS_OFF:
        found["token_count"] = (
            f"{got} tokens came for {asked} that were asked for (10 % off at most); have it ignore the end token"
        )
    if found_cached is not None and found_cached > at_most + _CACHE_MARGIN:
        found["prefix_cache"] = (
            f"prefix cache differs: the server had {100 * found_cached:.0f} % of the prompts' tokens in its prefix "
            f"cache, and after a flush it can have {100 * at_most:.0f} %; {_FLUSH}"
        )
    if found_cached is None and probe is not None and probe.found == "known":
        found["prefix_cache"] = f"prefix cache differs: the server knew the trace before ({probe.summary()}); {_FLUSH}"
    if found_cached is None and probe is not None and probe.found == "unseen":
        found["cache_unknown"] = (
            f"whether the prefix cache was empty cannot be seen: the server does not count what it had in it, and "
            f"{probe.summary()}"
        )
    return found


def failure(sent: Sequence[Sent], *, allowed: float) -> str:
    """Why a launch cannot be measured: more than ``allowed`` requests failed so far; empty when they did not.

    A server that refuses (429, 503) has answered: such requests miss their objectives, and that is all.
    """
    requests = [request for each in sent for request in each.requests]
    failed = [request for request in requests if request.error and not request.refused]
    if len(failed) > allowed:
        return f"{len(failed)} of {len(requests)} requests failed; the first one: {failed[0].error}"
    return ""


def _sending(played: Played, requests: Sequence[Request]) -> dict[str, str]:
    found = {}
    planned = sum(s.arrivals[-1].at - s.arrivals[0].at for s, _ in played if s.arrivals)
    took = sum(_span(sent) for _, sent in played)
    if planned > 0 and abs(took - planned) > max(_RATE_OFF * planned, _LATE_S * len(played)):
        rate = sum(len(s.arrivals) - 1 for s, _ in played)
        found["rate_off"] = (
            f"requests were sent at {rate / max(took, 1e-9):.3g}/s and not at {rate / planned:.3g}/s (2 % off at most)"
        )
    late = [_lateness(request) for request in requests if _lateness(request) > _LATE_S]
    if len(late) > max(_FEWEST_LATE, _LATE_SHARE * len(requests)):
        found["sent_late"] = (
            f"{len(late)} of {len(requests)} requests were sent more than {1000 * _LATE_S:.0f} ms after their time, "
            f"the latest {1000 * max(late):.0f} ms: the client needs a CPU of its own"
        )
    return found


def _span(sent: Sent) -> float:
    times = [request.sent for request in sent.requests if request.sent is not None]
    return max(times) - min(times) if times else 0.0


def _lateness(request: Request) -> float:
    return 0.0 if request.sent is None else request.sent - request.scheduled


def _requests(played: Played) -> list[Request]:
    return [request for _, sent in played for request in sent.requests]
