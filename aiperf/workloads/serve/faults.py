"""What makes the numbers of a launch worthless: a schedule not kept, a busy client, too few tokens, a warm cache.

What must not live here: the metrics themselves (metrics.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.serve.client import Request, Sent
from aiperf.workloads.serve.cold import CacheProbe
from aiperf.workloads.serve.metrics import Played, lateness, requests_of

_RATE_OFF = 0.02
_CLIENT_BUSY = 0.8
_TOKENS_OFF = 0.1
_LATE_S = 0.02
_LATE_SHARE = 0.05
"""Share of the requests that may leave later than ``_LATE_S`` after their time: a busy host's hiccup is no fault."""
_FEWEST_LATE = 2
_CACHE_MARGIN = 0.1
"""What else may be alike: what a template puts before every prompt, where its length is not known."""
_FLUSH = "flush it, or restart the server for each launch"


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
    requests = requests_of(played)
    found: dict[str, str] = {}
    if not concurrency:
        found |= _sending(played, requests)
    busy = max((sent.cpu_share or 0.0 for _, sent in played), default=0.0)
    if busy > _CLIENT_BUSY:
        found["client_busy"] = (
            f"the client used {100 * busy:.0f} % of a CPU (limit {100 * _CLIENT_BUSY:.0f} %): times include its delays"
        )
    found |= _tokens(requests)
    if found_cached is not None and found_cached > at_most + _CACHE_MARGIN:
        found["prefix_cache"] = (
            f"prefix cache differs: the server had {100 * found_cached:.0f} % of the prompts' tokens in its prefix "
            f"cache, but after a flush it can have at most {100 * at_most:.0f} %; {_FLUSH}"
        )
    if found_cached is None and probe is not None:
        found |= _probed(probe)
    return found


def foreign_faults(
    played: Played, *, client: str, counted_from: str, found_cached: float | None, probe: CacheProbe | None
) -> dict[str, str]:
    """``faults`` of a launch that another client loaded: what its file shows. Its prompts are not known, so that what
    the server had of them in its cache proves nothing."""
    requests = requests_of(played)
    # The CPU time of such a client holds its start, and without the trace its rate is its own affair.
    found = {"foreign_client": _client_words(client, counted_from), **_sending(played, requests), **_tokens(requests)}
    if found_cached is not None and found_cached > _CACHE_MARGIN:
        found["cache_unknown"] = (
            f"the server had {100 * found_cached:.0f} % of the prompts' tokens in its prefix cache, and the prompts of "
            f"{client} are unknown: give it a different {{seed}} each turn"
        )
    if found_cached is None and probe is not None:
        found |= _probed(probe)
    return found


def _client_words(client: str, counted_from: str) -> str:
    waits = " (without waiting in the client)" if counted_from == "sending" else ""
    return (
        f"requests and times are those of {client}, counted from {counted_from}{waits}; it is not checked whether it "
        "sent the same to both sides"
    )


def _tokens(requests: Sequence[Request]) -> dict[str, str]:
    """Whether answers are as long as asked for, of those whose length is known."""
    whole = [request for request in requests if request.ok and request.asked_tokens]
    asked, got = sum(r.asked_tokens for r in whole), sum(r.tokens for r in whole)
    if not whole or abs(got / asked - 1) <= _TOKENS_OFF:
        return {}
    said = f"the server returned {got} tokens for {asked} requested (tolerance 10 %); make it ignore the end token"
    return {"token_count": said}


def _probed(probe: CacheProbe) -> dict[str, str]:
    if probe.found == "known":
        said = f"prefix cache differs: the server knew the trace before ({probe.summary()}); {_FLUSH}"
        return {"prefix_cache": said}
    if probe.found == "unseen":
        said = (
            "whether the prefix cache was empty is unknown: the server does not count what it had in it, and "
            f"{probe.summary()}"
        )
        return {"cache_unknown": said}
    return {}


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
    # The schedule of a try that was given up was not kept on purpose.
    played = [(segment, sent) for segment, sent in played if not sent.given_up]
    planned = sum(s.arrivals[-1].at - s.arrivals[0].at for s, _ in played if s.arrivals)
    took = sum(_span(sent) for _, sent in played)
    if (
        planned > 0
        and any(r.sent is not None for r in requests)
        and abs(took - planned) > max(_RATE_OFF * planned, _LATE_S * len(played))
    ):
        rate = sum(len(s.arrivals) - 1 for s, _ in played)
        found["rate_off"] = (
            f"requests were sent at {rate / max(took, 1e-9):.3g}/s instead of {rate / planned:.3g}/s (tolerance 2 %)"
        )
    late = [lateness(request) for request in requests if lateness(request) > _LATE_S]
    if len(late) > max(_FEWEST_LATE, _LATE_SHARE * len(requests)):
        found["sent_late"] = (
            f"{len(late)} of {len(requests)} requests were sent more than {1000 * _LATE_S:.0f} ms late, "
            f"the latest by {1000 * max(late):.0f} ms: give the client its own CPU"
        )
    return found


def _span(sent: Sent) -> float:
    times = [request.sent for request in sent.requests if request.sent is not None]
    return max(times) - min(times) if times else 0.0
