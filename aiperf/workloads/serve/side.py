"""One side under load: its server, the segments of its trace, what became of them.

What must not live here: how requests are sent (client.py), and what their times mean (metrics.py, faults.py).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from aiperf.workloads.contract import Context
from aiperf.workloads.serve import faults, metrics
from aiperf.workloads.serve.answers import text_of
from aiperf.workloads.serve.client import Endpoint, Request, Sent, keep, send
from aiperf.workloads.serve.cold import CacheProbe, probe_cache
from aiperf.workloads.serve.foreign_client import ClientFault, ForeignClient
from aiperf.workloads.serve.search import RateSearch
from aiperf.workloads.serve.server import Server
from aiperf.workloads.serve.tiny import TINY, make_tiny
from aiperf.workloads.serve.trace import Arrival, Segment, known_share, make_segments

_WARM_UPS = 2
"""Steps before the first turn: the first iteration and one more (``Workload.anew``)."""
_AUDITED = 8
"""Requests of an audit, whose answers are compared with the other side's."""
_PATIENCE = 2.0
_REST_S = 0.05
"""Between two requests that ask whether the server has come to rest."""
_NOT_UNDERSTOOD = (400, 422)
"""Statuses by which a server says that it does not know a field of a request."""
_WARMING = 8
"""Requests under way while a trace is run to warm a cache."""


class LoadedServer:
    """A server, started and ready, and the load on it."""

    def __init__(self, context: Context, asked: SimpleNamespace) -> None:
        """Start the server and wait for it. Raises ServerFault, TraceError, ValueError."""
        self._asked, self._seed = asked, context.seed
        _check(asked)
        self._foreign: ForeignClient | None = None
        if asked.client:
            self._foreign = ForeignClient(asked.client, context.scratch, limit=asked.client_limit, cwd=asked.cwd)
        self._segments = make_segments(asked.trace, count=asked.segments, seed=context.seed, load=asked.load)
        self._warm_ups = _warm_ups(asked, max(len(segment.arrivals) for segment in self._segments))
        self._audit: Segment | None = None
        self._search = RateSearch(self._segments[0].rate, asked.share) if asked.find else None
        self._steps = 0
        self._played: list[tuple[Segment, Sent]] = []
        self._since: list[tuple[Segment, Sent]] = []
        """What was sent since ``values`` was last asked."""
        self._text = np.zeros((1, 1), np.int64)
        self._probe: CacheProbe | None = None
        self.facts: dict[str, Any] = {"client_cpus": [], "server_cpus": []}
        self._server = self._started(context)
        try:
            self._prepare(context)
        except BaseException:
            self._server.end()
            raise

    def _started(self, context: Context) -> Server:
        asked = self._asked
        if asked.url:
            self.facts["launched"] = False
            return Server(asked.url.rstrip("/"))
        if asked.model == TINY:
            asked.model = str(make_tiny(context.shared_scratch / TINY))
        command = asked.server.replace("{model}", asked.model)
        *its, mine = sorted(os.sched_getaffinity(0))
        if not its:
            raise ValueError("the client has no CPU of its own: write needs: {cpus: 2}, or more")
        self.facts |= {"client_cpus": [mine], "server_cpus": its}
        log = Path(asked.log) if asked.log else context.scratch / "server.log"
        return Server.start(command, port=asked.port, log=log, cwd=asked.cwd, cpus=its)

    def _prepare(self, context: Context) -> None:
        asked, server = self._asked, self._server
        server.await_ready(asked.ready, asked.ready_limit)
        if self.facts["client_cpus"]:
            os.sched_setaffinity(0, self.facts["client_cpus"])
        self._endpoint = Endpoint(server.base, asked.model or server.first_model(), asked.endpoint, dict(asked.extra))
        self._watch = server.batch() is not None
        if asked.url and asked.cache == "cold":
            self.facts["cache_flushed"] = server.flush()
        if asked.cache == "warm":
            once = tuple(Arrival(0.0, a.prompt, 1) for s in self._segments for a in s.arrivals)
            self._refuse_failed([self._send(Segment(once, 1.0), _WARMING)], 0.0)
        self._before = server.counted()
        """What the server had counted before the first turn."""
        self.facts |= {"requests": sum(len(s.arrivals) for s in self._segments), "model": self._endpoint.model}

    # ---- steps ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Send the next segment and wait for its answers: of the audit, of the warm-up, else of the trace.

        Raises ServerFault when the server has ended, or too many requests failed.
        """
        segment, audit = self._audit, self._audit is not None
        self._audit = None
        if segment is None and self._steps < _WARM_UPS:
            segment = self._warm_up()
            self._steps += 1
            self._refuse_failed([sent := self._send(segment)], 0.0)
            if self._steps == _WARM_UPS:
                self._look_at_cache(sent)
            return
        if segment is None:
            segment = self._segments[(self._steps - _WARM_UPS) % len(self._segments)]
            segment = segment if self._search is None else segment.at_rate(self._search.next_rate())
            self._steps += 1
        if self._foreign is not None and not audit:
            segment, sent = self._send_by(self._foreign, segment)
        else:
            sent = self._send(segment, is_try=not audit and self._search is not None)
        self._text = text_of(sent.requests)
        if audit:
            self._refuse_failed([sent], self._asked.errors * len(sent.requests))
            return
        self._since.append((segment, sent))
        if self._asked.keep:
            keep(Path(self._asked.keep), sent, server=self._server.base, segment=self._steps - _WARM_UPS - 1)
        if self._search is not None:
            self._keep_try(segment, sent)
            return
        played = [each for _, each in (*self._played, *self._since)]
        total = sum(len(each.arrivals) for each in self._segments)
        if self._foreign is not None:
            total = sum(len(each.requests) for each in played)
        self._refuse_failed(played, self._asked.errors * total)

    def _send_by(self, client: ForeignClient, segment: Segment) -> tuple[Segment, Sent]:
        """Have another client send a segment. Raises ServerFault, ClientFault."""
        seed = random.Random(f"{self._seed}-client-{self._steps}").randrange(2**31)
        try:
            played, sent = client.send(segment, self._endpoint, timeout=self._asked.timeout, seed=seed)
        except ClientFault:
            self._server.raise_if_ended()
            raise
        known = self.facts.get("counted_from", sent.counted_from)
        self.facts |= {
            "client": sent.client,
            "counted_from": sent.counted_from if known == "schedule" else known,
            "requests": self.facts.get("requests", 0) if self._played or self._since else 0,
        }
        self.facts["requests"] += len(sent.requests)
        return played, sent

    def _send(self, segment: Segment, concurrency: int = 0, *, is_try: bool = False) -> Sent:
        asked = self._asked
        limit, timeout = concurrency or asked.concurrency, asked.timeout
        if is_try and "end_to_end" in asked.slo:
            # Beyond its objective a request is missed: an overloaded server need not work it off.
            timeout = min(timeout, _PATIENCE * asked.slo["end_to_end"])
        sent = send(
            segment.arrivals,
            self._endpoint,
            timeout=timeout,
            concurrency=limit,
            watch=self._watch,
            hopeless=self._is_hopeless if is_try else None,
        )
        if not any(request.ok for request in sent.requests):
            self._server.raise_if_ended()
            if self._endpoint.usage and all(request.status in _NOT_UNDERSTOOD for request in sent.requests):
                self._endpoint = replace(self._endpoint, usage=False)
                return self._send(segment, concurrency, is_try=is_try)
        return sent

    def _is_hopeless(self, requests: Sequence[Request], now: float) -> bool:
        """Whether fewer than half as many requests as are to be good still can be."""
        lost = sum(metrics.missed(request, self._asked.slo, now) for request in requests)
        return lost > (1 - self._asked.share / 2) * len(requests)

    def _keep_try(self, segment: Segment, sent: Sent) -> None:
        """Enter how many requests of a try were good; of one that was given up, among those whose fate was known."""
        slo, requests = self._asked.slo, sent.requests
        good = sum(metrics.met(request, slo) for request in requests)
        bad = len(requests) - good
        if sent.given_up:
            bad = sum(metrics.missed(request, slo, sent.seconds) for request in requests)
            self._await_rest()
        assert self._search is not None
        self._search.tries.append((segment.rate, good, good + bad))

    def _await_rest(self) -> None:
        """Wait until the server has left what was dropped, because the next try begins with an idle one: it answers a
        request, and runs no others where it says how many it runs. Raises ServerFault where that does not come."""
        until, probes = time.monotonic() + self._asked.timeout, 0
        while time.monotonic() < until:
            probes += 1
            answered = self._first_token(f"after try {self._steps}, {probes}") is not None
            # It may still count the request that it has just answered.
            if answered and not (self._watch and sum(self._server.batch() or ()) > 1):
                return
            time.sleep(_REST_S)
        raise self._server.fault(
            f"the server was still busy {self._asked.timeout:g} s after a try of find: max_rate had been given up"
        )

    def _look_at_cache(self, latest: Sent) -> None:
        """Before the first turn: probe the cache of a server that is to be cold and does not say what it had in it."""
        counted = self._server.counted()
        says = counted.get("prefix_queries", 0.0) > self._before.get("prefix_queries", 0.0)
        says = says or any(request.cached_tokens is not None for request in latest.requests)
        if self._asked.cache == "cold" and not says:
            prompts = [arrival.prompt for segment in self._segments for arrival in segment.arrivals]
            self._probe = probe_cache(self._first_token, prompts, salt=os.urandom(8).hex())
            counted = self._server.counted()
        self._before = counted

    def _first_token(self, prompt: str) -> float | None:
        (request,) = self._send(Segment((Arrival(0.0, prompt, 1),), 1.0)).requests
        return metrics.latency(request, "ttft")

    def _refuse_failed(self, sent: Sequence[Sent], allowed: float) -> None:
        if fault := faults.failure(sent, allowed=allowed):
            self._server.raise_if_ended()
            raise self._server.fault(fault)

    def _warm_up(self) -> Segment:
        """Requests that all come at once, with prompts of their own."""
        drawn = self._drawn(f"warm-up {self._steps}", self._warm_ups)
        return Segment(tuple(Arrival(0.0, a.prompt, a.output_tokens) for a in drawn), 1.0)

    def redraw(self, seed: int) -> None:
        """Have the next step be an audit: requests that no side has seen, the same on all of them."""
        arrivals = self._drawn(f"audit {seed}", min(_AUDITED, len(self._segments[0].arrivals)))
        self._audit = Segment(arrivals, max(arrivals[-1].at, 1e-3))

    def _drawn(self, salt: str, count: int) -> tuple[Arrival, ...]:
        """Requests at the times and with the lengths of the trace's first ones, with other words.

        Each word becomes another one, the same in all prompts: what begins alike in the trace does so here, so that
        a server's prefix cache is asked for as much and wrong hits show.
        """
        draw = random.Random(f"{self._seed}-{salt}")
        known = [arrival for segment in self._segments for arrival in segment.arrivals][:count]
        texts = [arrival.prompt.split() for arrival in known]
        words = list(dict.fromkeys(word for text in texts for word in text))
        others = dict(zip(words, draw.sample(words, len(words)), strict=True))
        prompts = [" ".join([salt, *(others[word] for word in text[1:])]) for text in texts]
        pairs = zip(known, prompts, strict=True)
        return tuple(Arrival(max(0.0, a.at - known[0].at), prompt, a.output_tokens) for a, prompt in pairs)

    # ---- what it reports ----------------------------------------------------------------------------------------

    def values(self) -> Mapping[str, float]:
        """The metrics of what was sent since the last call."""
        since, self._since = self._since, []
        self._played += since
        if self._search is not None:
            found = self._search.estimate() if len(self._played) == len(self._segments) else None
            return {"max_rate": found} if found else {}
        each = [metrics.segment_values(segment, sent, self._asked.slo) for segment, sent in since]
        names = dict.fromkeys(name for values in each for name in values)
        return {name: float(np.mean([values[name] for values in each if name in values])) for name in names}

    def latencies(self) -> Mapping[str, list[float]]:
        """By series, of the requests that were sent since ``values`` was last asked."""
        return metrics.series([sent for _, sent in self._since])

    def faults(self) -> Mapping[str, str]:
        """What makes the numbers of this launch worthless."""
        now = self._server.counted()
        queries = now.get("prefix_queries", 0.0) - self._before.get("prefix_queries", 0.0)
        hits = now.get("prefix_hits", 0.0) - self._before.get("prefix_hits", 0.0)
        cached = hits / queries if queries > 0 else metrics.cached_share(self._played)
        self.facts["prefix_hit_rate"] = cached
        if cached is None and self._probe is not None:
            self.facts["cache_probe"] = self._probe.found
        self.facts["slowest"] = metrics.slowest(self._played)
        if self._foreign is not None:
            return faults.foreign_faults(
                self._played,
                client=self.facts["client"],
                counted_from=self.facts["counted_from"],
                found_cached=cached if self._asked.cache == "cold" else None,
                probe=self._probe,
            )
        prompts = [arrival.prompt for segment, _ in self._played for arrival in segment.arrivals]
        alike = known_share(prompts) + metrics.template_share(self._played)
        at_most = 1.0 if self._asked.cache == "warm" else min(1.0, alike)
        return faults.faults(
            self._played,
            concurrency=self._asked.concurrency,
            found_cached=cached,
            at_most=at_most,
            probe=self._probe,
        )

    def counters(self) -> Mapping[str, float]:
        """Requests by what became of them, and what the server exports of its own counts."""
        now = self._server.counted()
        tried = (
            {} if self._search is None else {"tries": len(self._search.tries), "cliff": float(self._search.is_cliff)}
        )
        exported = {name: now[name] - self._before.get(name, 0.0) for name in now}
        accepted = metrics.acceptance_length(exported, self._played, self._server.latest_acceptance())
        if accepted is not None:
            exported["acceptance_length"] = round(accepted, 3)
        return {**metrics.counts(self._played, self._asked.slo), **tried, **exported}

    def outputs(self) -> Mapping[str, Any]:
        """The characters of the latest answers, a row a request, padded with zeros."""
        return {"text": self._text}

    def close(self) -> None:
        """End the server."""
        self._server.end()


def _warm_ups(asked: SimpleNamespace, most: int) -> int:
    """Requests of a step of the warm-up, ``most`` being those of the largest segment. Raises ValueError where that is
    less than can be under way at once."""
    under_way = min(asked.concurrency or most, most)
    if 0 < asked.warmup < under_way:
        raise ValueError(
            f"warmup is {asked.warmup}, and up to {under_way} requests can be under way at once: write warmup: "
            f"{under_way} or more, or leave it out"
        )
    return asked.warmup or most


def _check(asked: SimpleNamespace) -> None:
    if bool(asked.server) == bool(asked.url):
        raise ValueError("write server: COMMAND, or url: ADDRESS of a server that runs already, on each side")
    if asked.segments < 1 or asked.warmup < 0 or asked.concurrency < 0 or asked.load < 0:
        raise ValueError("segments must be 1 or more; warmup, concurrency and load must not be negative")
    if not 0 <= asked.errors < 1:
        raise ValueError(f"errors is {asked.errors:g}; write the share of requests that may fail, from 0 to below 1")
    if asked.find and not asked.slo:
        raise ValueError("find: max_rate needs objectives: write slo: {ttft: 500ms}, for instance")
    if asked.find and not 0 < asked.share < 1:
        raise ValueError(f"share is {asked.share:g}; write the share of requests that is to be good, e.g. 0.95")
    if asked.client and (asked.find or asked.concurrency):
        key = "find: max_rate" if asked.find else "concurrency"
        raise ValueError(f"{key} needs aiperf's own client: leave out client:, or write it in the client's command")
    if asked.model == TINY and asked.url:
        raise ValueError(f"model {TINY} is made for a server that is started here: write server:")
