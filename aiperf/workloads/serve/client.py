"""The client: sends one segment of a trace on schedule, whatever the server does, and notes when every token came.

What must not live here: what the times mean (metrics.py), and starting servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from aiperf.workloads.serve.server import METRICS_PATH, batch_of
from aiperf.workloads.serve.trace import Arrival

_LEAD_S = 0.02
"""From the call to the first arrival at the earliest: the loop and the connector stand by then."""
_LONGEST_LINE = 1 << 20
_KEEP_ALIVE_S = 2.0
"""Shorter than servers keep a connection, so that none is met while it is being closed."""
_WATCH_S = 0.25
"""Between two looks at the server's batch."""
_MESSAGE = 400
"""Bytes that are shown of an event that is not JSON."""
_HOPE_S = 0.05
"""Between two looks at what has become of the requests."""
REFUSALS = (429, 503)
"""Statuses by which a server says that it has too much to do."""


@dataclass(frozen=True)
class Endpoint:
    """Where requests go, and how they are worded."""

    base: str
    """``http://127.0.0.1:8000``"""
    model: str
    kind: str = "chat"
    """chat or completions."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of every request besides those that the client sets."""
    usage: bool = True
    """Whether the server is asked for its own counts of tokens (``stream_options``)."""

    @property
    def url(self) -> str:
        """The address of the requests."""
        return self.base + ("/v1/chat/completions" if self.kind == "chat" else "/v1/completions")

    def body(self, prompt: str, tokens: int) -> dict[str, Any]:
        """One request: greedy, streamed, so many tokens."""
        text = {"messages": [{"role": "user", "content": prompt}]} if self.kind == "chat" else {"prompt": prompt}
        asked: dict[str, Any] = {"max_tokens": tokens, "stream": True, "temperature": 0}
        if self.usage:
            asked["stream_options"] = {"include_usage": True}
        return {"model": self.model, **text, **asked, **self.extra}


@dataclass
class Request:
    """What became of one request; times are seconds after the start of its segment."""

    scheduled: float
    asked_tokens: int
    sent: float | None = None
    times: list[float] = field(default_factory=list)
    """When each piece of the answer came."""
    pieces: list[str] = field(default_factory=list)
    end: float | None = None
    status: int = 0
    """Of HTTP; 0 without an answer."""
    error: str = ""
    """Why it counts as failed; empty when it was answered whole."""
    counted: int | None = None
    """Tokens that the server says it produced."""
    prompt_tokens: int | None = None
    """Tokens of the prompt, as the server counts them."""
    cached_tokens: int | None = None
    """Those of them that the server says it had in its prefix cache."""
    accepted_tokens: int | None = None
    """Tokens of the answer that a draft had proposed, where the server says so."""
    planned: bool = True
    """Whether it is known when it was to be sent; without that its times count from sending."""
    gap: float | None = None
    """Mean time between its tokens, where only that is known of them."""
    dropped: bool = False
    """Whether the client gave it up, or never sent it, because nothing hung on it any more."""

    @property
    def ok(self) -> bool:
        """Whether it was answered whole."""
        return not (self.error or self.dropped) and bool(self.times) and self.end is not None

    @property
    def refused(self) -> bool:
        """Whether the server said that it has too much to do."""
        return self.status in REFUSALS

    @property
    def tokens(self) -> int:
        """Tokens of the answer, as the server counts them where it does."""
        return len(self.times) if self.counted is None else self.counted


@dataclass(frozen=True)
class Sent:
    """One segment, as it went."""

    requests: tuple[Request, ...]
    seconds: float
    """From the first arrival's time to the end of the last answer; 0 where times or tokens are not known."""
    cpu_share: float | None
    """CPU time of the client in the wall time of the segment; None where it holds more than sending."""
    batch: tuple[tuple[float, int, int], ...] = ()
    """From look to look: when, how many requests the server said it had in its batch, and in its queue."""
    given_up: bool = False
    """Whether it was ended early; some requests were dropped then."""


Hopeless = Callable[[Sequence[Request], float], bool]
"""(requests, seconds after their start) -> whether waiting for more of their answers is in vain."""


def send(
    arrivals: Sequence[Arrival],
    to: Endpoint,
    *,
    timeout: float,
    concurrency: int = 0,
    watch: bool = False,
    hopeless: Hopeless | None = None,
) -> Sent:
    """Send requests at their times and wait for every answer, at most ``timeout`` seconds for each.

    ``concurrency``: requests under way at most, 0 for any; those that have to wait for that wait here, and their time
    counts from the schedule. ``watch``: ask the server meanwhile how many requests it runs. ``hopeless``: asked again
    and again; once it says so, what is under way is dropped and the rest is not sent.
    """
    return asyncio.run(_send(arrivals, to, timeout, concurrency, watch, hopeless))


def keep(path: Path, sent: Sent, *, server: str, segment: int) -> None:
    """Add the requests of a segment to a file: a line each, with when it was scheduled, sent, answered and ended."""
    with path.open("a", encoding="utf-8") as file:
        for number, request in enumerate(sent.requests):
            known = {key: value for key, value in vars(request).items() if key not in ("pieces", "gap")}
            line = {"server": server, "segment": segment, "request": number, **known, "tokens": request.tokens}
            file.write(json.dumps(line) + "\n")


async def _send(
    arrivals: Sequence[Arrival],
    to: Endpoint,
    timeout: float,
    concurrency: int,
    watch: bool,
    hopeless: Hopeless | None,
) -> Sent:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S)
    limits = aiohttp.ClientTimeout(total=timeout)
    gate = asyncio.Semaphore(concurrency or max(1, len(arrivals)))
    requests = tuple(Request(a.at, a.output_tokens) for a in arrivals)
    kept = aiohttp.TraceConfig()
    kept.on_connection_reuseconn.append(_note_kept)
    async with aiohttp.ClientSession(
        connector=connector, timeout=limits, read_bufsize=_LONGEST_LINE, trace_configs=[kept]
    ) as session:
        bodies = [json.dumps(to.body(a.prompt, a.output_tokens)).encode() for a in arrivals]
        cpu, start = time.process_time(), time.perf_counter() + _LEAD_S
        each = zip(bodies, requests, strict=True)
        sending = [asyncio.create_task(_one(session, to.url, b, r, start, gate)) for b, r in each]
        batch: list[tuple[float, int, int]] = []
        watching = asyncio.create_task(_watch(session, to.base + METRICS_PATH, start, batch)) if watch else None
        given_up = await _finish(sending, requests, start, hopeless)
        seconds = time.perf_counter() - start
        if watching is not None:
            watching.cancel()
        busy = (time.process_time() - cpu) / max(seconds + _LEAD_S, 1e-9)
        return Sent(requests, seconds, busy, tuple(batch), given_up)


async def _finish(
    sending: Sequence[asyncio.Task[None]], requests: Sequence[Request], start: float, hopeless: Hopeless | None
) -> bool:
    """Wait for all answers, or until that is hopeless: then drop the rest. Whether it was."""
    looks = _HOPE_S if hopeless is not None else None
    under_way: set[asyncio.Task[None]] = set(sending)
    while under_way:
        _, under_way = await asyncio.wait(under_way, timeout=looks)
        if under_way and hopeless is not None and hopeless(requests, time.perf_counter() - start):
            for task in under_way:
                task.cancel()
            await asyncio.wait(under_way)
            for request in (r for r in requests if r.end is None):
                request.dropped = True
                request.end = None if request.sent is None else time.perf_counter() - start
            for task in sending:
                if not task.cancelled():
                    task.result()
            return True
    for task in sending:
        task.result()
    return False


async def _watch(session: aiohttp.ClientSession, url: str, start: float, into: list[tuple[float, int, int]]) -> None:
    """Keep what the server says of its batch until this is cancelled; what it does not answer is left out."""
    while True:
        asked = time.perf_counter() - start
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with session.get(url, trace_request_ctx={}) as answer:
                if (found := batch_of(await answer.text())) is not None:
                    into.append((asked, *found))
        await asyncio.sleep(_WATCH_S)


async def _one(
    session: aiohttp.ClientSession, url: str, body: bytes, request: Request, start: float, gate: asyncio.Semaphore
) -> None:
    await asyncio.sleep(start + request.scheduled - time.perf_counter())
    async with gate:
        request.sent = time.perf_counter() - start
        try:
            await _ask(session, url, body, request, start)
        except TimeoutError:
            request.error = f"no whole answer within {session.timeout.total:g} s"
        except (aiohttp.ClientError, OSError) as error:
            request.error = f"the connection broke: {error or type(error).__name__}"
        except _Reported as error:
            request.error = f"the server reports {error}"
        except ValueError as error:
            request.error = f"the answer is not a stream of the OpenAI protocol: {error}"
        request.end = time.perf_counter() - start


async def _ask(session: aiohttp.ClientSession, url: str, body: bytes, request: Request, start: float) -> None:
    """Send a request and read its answer. A server may close a kept connection at the moment at which a request goes
    out on it: then nothing of an answer comes, and the request is sent again, as clients do; its time goes on."""
    while not request.status:
        connection: dict[str, bool] = {}
        try:
            async with session.post(
                url, data=body, headers={"Content-Type": "application/json"}, trace_request_ctx=connection
            ) as answer:
                request.status = answer.status
                if answer.status != 200:
                    request.error = f"status {answer.status}: {_message(await answer.text())}"
                else:
                    await _read(answer, request, start)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            if request.status or not connection.get("kept"):
                raise


async def _note_kept(session: aiohttp.ClientSession, context: Any, params: Any) -> None:
    context.trace_request_ctx["kept"] = True


class _Reported(ValueError):
    """An error that a server reports in its stream, in its words."""


async def _read(answer: aiohttp.ClientResponse, request: Request, start: float) -> None:
    """Read a stream of server-sent events to its end. Raises _Reported for an error of the server, and ValueError for
    anything else."""
    done = False
    async for line in answer.content:
        came = time.perf_counter() - start
        text = line.strip()
        if not text or text.startswith(b":") or text.startswith(b"event:"):
            continue
        if not text.startswith(b"data:"):
            raise ValueError(f"a line begins with {text[:40]!r}")
        if text[5:].strip() == b"[DONE]":
            done = True
            continue
        try:
            event = json.loads(text[5:])
        except ValueError as error:
            # Some servers put a message into JSON as it is, with its line breaks: what follows belongs to it.
            told = b" ".join([*text[5:].split(), *answer.content.read_nowait(_MESSAGE).split()])
            raise ValueError(f"an event is not JSON ({error}): {told[:_MESSAGE]!r}") from None
        piece, finished = _piece(event, request)
        done = done or finished
        if piece:
            request.times.append(came)
            request.pieces.append(piece)
    if not done:
        request.error = f"the stream ended after {len(request.times)} tokens without a finish"
    elif not request.times:
        request.error = "the answer holds no token"


def _piece(event: Any, request: Request) -> tuple[str, bool]:
    """The text of one event, and whether it is the last one with text. Raises ValueError, and _Reported for an error of
    the server."""
    if not isinstance(event, dict):
        raise ValueError(f"an event is {str(event)[:40]!r}")
    if event.get("error"):
        raise _Reported(_message(json.dumps(event)))
    _note_counts(event, request)
    choices = event.get("choices") or []
    if not choices:
        return "", False
    choice = choices[0]
    piece = (choice.get("delta") or {}).get("content") if "delta" in choice else choice.get("text")
    return piece or "", bool(choice.get("finish_reason"))


def _note_counts(event: Mapping[str, Any], request: Request) -> None:
    """Keep what the server says it counted; llama.cpp's server has cached and drafted tokens among its timings."""
    usage, timings = event.get("usage"), event.get("timings")
    usage, timings = (part if isinstance(part, dict) else {} for part in (usage, timings))
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else timings.get("cache_n")
    for name, value in (
        ("counted", usage.get("completion_tokens")),
        ("prompt_tokens", usage.get("prompt_tokens")),
        ("cached_tokens", cached),
        ("accepted_tokens", timings.get("draft_n_accepted")),
    ):
        if isinstance(value, int):
            setattr(request, name, value)


def _message(text: str) -> str:
    """What an error of the server says, in one line."""
    try:
        found = json.loads(text)
        found = found.get("error") or found.get("detail") or found.get("message") or found
        text = found.get("message") or str(found) if isinstance(found, dict) else str(found)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:200] or "without a text"
