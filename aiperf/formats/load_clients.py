"""Per-request results of clients that load servers: ``vllm bench serve``, guidellm, NVIDIA's aiperf and genai-perf.

What must not live here: other tools, starting a client, what becomes of the requests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from aiperf.formats.document import ForeignError, Node

PLACEHOLDERS = ("url", "port", "model", "output", "trace", "rate", "requests", "seed")
"""What a command of a client may have in braces."""
_RECORD = {"metadata", "metrics"}
"""Keys of each line of NVIDIA's aiperf."""
_DATA, _NO_DATA = "data:", (":", "event:", "id:", "retry:")
"""How lines of a stream of events begin."""


@dataclass(frozen=True)
class ClientRequest:
    """One request as the client's file has it; seconds, from sending on; None where the file does not say."""

    error: str = ""
    """Why it failed; empty where it was answered."""
    ttft: float | None = None
    gaps: tuple[float, ...] = ()
    """From each token to the next one, where the file has each."""
    inter_token: float | None = None
    """Mean of the gaps."""
    end_to_end: float | None = None
    sent: float | None = None
    """When it was sent, on a clock that all requests of the run share."""
    waited: float | None = None
    """From the time that its schedule gave to sending."""
    tokens: int | None = None


@dataclass(frozen=True)
class ClientRun:
    """One run of a client."""

    requests: tuple[ClientRequest, ...]
    name: str = ""
    """Tells it from others of the same file."""

    @property
    def answered(self) -> list[ClientRequest]:
        """The requests that did not fail."""
        return [request for request in self.requests if not request.error]

    @property
    def scheduled(self) -> bool:
        """Whether the file says of every answered request when it was to be sent."""
        return bool(self.answered) and all(request.waited is not None for request in self.answered)

    def series(self) -> dict[str, list[float]]:
        """ttft, inter_token, end_to_end -> seconds, one a request that has it; from the schedule where it is known."""
        found: dict[str, list[float]] = {"ttft": [], "inter_token": [], "end_to_end": []}
        for request in self.answered:
            wait = request.waited or 0.0 if self.scheduled else 0.0
            found["ttft"] += [] if request.ttft is None else [request.ttft + wait]
            found["inter_token"] += [] if request.inter_token is None else [request.inter_token]
            found["end_to_end"] += [] if request.end_to_end is None else [request.end_to_end + wait]
        return found


@dataclass(frozen=True)
class ClientFile:
    """What a client wrote."""

    tool: str
    runs: tuple[ClientRun, ...]
    version: str = ""
    base: str = ""
    """What its numbers are of, as the client calls it."""
    date: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)


# ---- vllm bench serve ------------------------------------------------------------------------------------------------


def is_vllm(document: Node) -> bool:
    """Whether it is a result with ``--save-detailed``. Raises ForeignError."""
    return all(document.maybe(key) is not None for key in ("ttfts", "itls", "request_throughput"))


def read_vllm(document: Node) -> ClientFile:
    """Read a result of ``--save-result --save-detailed``. Raises ForeignError."""
    first, gaps = document.numbers("ttfts"), [node.items() for node in document.each("itls")]
    lists: dict[str, Sequence[Any]] = {
        "errors": [str(error.value or "") for error in document.each("errors")],
        **{key: document.numbers(key) for key in ("latencies", "queue_times", "start_times", "output_lens")},
    }
    if len(first) != len(gaps) or any(len(found) not in (0, len(first)) for found in lists.values()):
        raise ForeignError("the lists ttfts, itls, latencies, queue_times and errors are not of the same requests")

    def at(key: str, place: int) -> Any:
        return lists[key][place] if lists[key] else None

    requests = []
    for place, ttft in enumerate(first):
        if error := at("errors", place):
            requests.append(ClientRequest(error=error))
            continue
        own = tuple(gap.as_number() for gap in gaps[place])
        whole, many = at("latencies", place), at("output_lens", place)
        requests.append(
            ClientRequest(
                ttft=ttft,
                gaps=own,
                inter_token=sum(own) / len(own) if own else None,
                end_to_end=ttft + sum(own) if whole is None else whole,
                sent=at("start_times", place),
                waited=at("queue_times", place),
                tokens=None if many is None else int(many),
            )
        )
    axes = {key: document.text(key) for key in ("request_rate", "max_concurrency") if document.maybe(key) is not None}
    base, date = document.text("model_id") or "vllm", document.text("date")
    return ClientFile("vllm-bench", (ClientRun(tuple(requests)),), base=base, date=date, axes=axes)


# ---- guidellm --------------------------------------------------------------------------------------------------------


def is_guidellm(document: Node) -> bool:
    """Whether it is a ``benchmarks.json``. Raises ForeignError."""
    found = document.each("benchmarks")
    return any(isinstance(b.value, dict) and b.members("requests").maybe("successful") is not None for b in found)


def read_guidellm(document: Node) -> ClientFile:
    """Read ``benchmarks.json``. Raises ForeignError."""
    runs, several = [], len(document.each("benchmarks")) > 1
    for place, node in enumerate(document.each("benchmarks")):
        groups = node["requests"]
        requests = [_of_guidellm(request) for request in groups.each("successful")]
        for kind in ("errored", "incomplete"):
            requests += [ClientRequest(error=_guidellm_error(kind, each.value)) for each in groups.each(kind)]
        runs.append(ClientRun(tuple(requests), f"guidellm {place}" if several else "guidellm"))
    return ClientFile("guidellm", tuple(runs), document.members("metadata").text("guidellm_version"))


def _guidellm_error(kind: str, request: object) -> str:
    """That a request failed, with the reason where the file has one."""
    info = request.get("info") if isinstance(request, dict) else None
    reason = info.get("error") if isinstance(info, dict) else None
    return f"{kind}, says guidellm" + (f": {' '.join(reason.split())[:200]}" if isinstance(reason, str) else "")


def _of_guidellm(request: Node) -> ClientRequest:
    first, gap = request.maybe_number("time_to_first_token_ms"), request.maybe_number("inter_token_latency_ms")
    # Without a latency from the schedule the delay is against a time that was no schedule's.
    planned = request.maybe_number("request_scheduled_latency") is not None
    return ClientRequest(
        ttft=None if first is None else first / 1000,
        inter_token=None if gap is None else gap / 1000,
        end_to_end=request.maybe_number("request_latency"),
        sent=request.maybe_number("request_start_time"),
        waited=(request.maybe_number("request_dispatch_delay") or 0.0) if planned else None,
        tokens=request.fact("output_tokens") or None,
    )


# ---- NVIDIA's aiperf -------------------------------------------------------------------------------------------------


def _records(document: Node) -> list[Any]:
    if isinstance(document.value, dict):
        return [document.value]
    if not isinstance(document.value, str):
        return []
    lines = [line for line in document.value.splitlines() if line.strip()]
    try:
        return [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return []


def is_nvidia(document: Node) -> bool:
    """Whether it is a ``profile_export.jsonl``."""
    records = _records(document)
    return bool(records) and all(isinstance(r, dict) and r.keys() >= _RECORD for r in records)


def read_nvidia(document: Node) -> ClientFile:
    """Read ``profile_export.jsonl``. Raises ForeignError."""
    requests = []
    for place, record in enumerate(_records(document)):
        node = Node(record, f"line {place + 1}")
        metadata, metrics = node.members("metadata"), node["metrics"]
        if metadata.text("benchmark_phase") == "warmup":
            continue
        if (error := node.maybe("error")) is not None:
            requests.append(ClientRequest(error=_reason(error)))
            continue
        ttft, gap, whole = (
            _seconds(metrics.maybe(name)) for name in ("time_to_first_token", "inter_token_latency", "request_latency")
        )
        tokens = metrics.members("output_sequence_length").fact("value") or None
        if counted := metrics.members("usage_completion_tokens").fact("value"):
            # The server's own count; the other one is of the tokenizer that the client was given.
            tokens = counted
            gap = (whole - ttft) / (counted - 1) if whole is not None and ttft is not None and counted > 1 else None
        gaps, began = _gaps(metrics.maybe("inter_chunk_latency")), metadata.maybe_number("request_start_ns")
        requests.append(
            ClientRequest(
                ttft=ttft,
                gaps=gaps if tokens == len(gaps) + 1 else (),
                inter_token=gap,
                end_to_end=whole,
                sent=None if began is None else began / 1e9,
                tokens=tokens,
            )
        )
    return ClientFile("nvidia-aiperf", (ClientRun(tuple(requests)),))


def _reason(error: Node) -> str:
    """What an error of a server or a client says."""
    what = error.value.get("message") if isinstance(error.value, dict) else error.value
    return str(what or "failed")


def _seconds(metric: Node | None) -> float | None:
    return None if metric is None else metric.number("value") * _factor(metric)


def _gaps(metric: Node | None) -> tuple[float, ...]:
    """Seconds from each chunk to the next one."""
    return () if metric is None else tuple(value * _factor(metric) for value in metric.numbers("value"))


def _factor(metric: Node) -> float:
    factors = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    if metric.text("unit") not in factors:
        raise metric["unit"].wrong("ns, us, ms or s")
    return factors[metric.text("unit")]


# ---- genai-perf ------------------------------------------------------------------------------------------------------


def is_genai_perf(document: Node) -> bool:
    """Whether it is a ``profile_export.json``. Raises ForeignError."""
    found = document.each("experiments")
    return document.maybe("service_kind") is not None and any(e.maybe("requests") is not None for e in found)


def read_genai_perf(document: Node) -> ClientFile:
    """Read ``profile_export.json``, which Perf Analyzer writes for genai-perf. Raises ForeignError."""
    experiments, kind = document.each("experiments"), document.text("service_kind")
    loads = [node.members("experiment") for node in experiments]
    # A load of 0 stands for one that is neither a concurrency nor a rate.
    axes = [{load.text("mode"): load.text("value")} if load.maybe_number("value") else {} for load in loads]
    runs = []
    for node, own in zip(experiments, axes, strict=True):
        load = "".join(f" {mode} {value}" for mode, value in own.items()) if len(axes) > 1 else ""
        requests = tuple(_of_genai_perf(request, kind) for request in node.each("requests"))
        runs.append(ClientRun(requests, f"genai-perf{load}"))
    by = f"with Perf Analyzer {version}" if (version := document.text("version")) else ""
    return ClientFile("genai-perf", tuple(runs), by, axes=axes[0] if len(axes) == 1 else {})


def _of_genai_perf(request: Node, kind: str) -> ClientRequest:
    """One request, by the rules of genai-perf's own figures: chunks without text do not count, and the time between
    tokens is a mean over the tokens. A chunk is a token unless the server has said how many it produced."""
    began, tokens = _nanoseconds(request["timestamp"]), 0
    times = [_nanoseconds(node) for node in request.each("response_timestamps")]
    outputs = request.each("response_outputs")
    if len(times) != len(outputs):
        raise ForeignError(f"{request.at}: response_timestamps and response_outputs are not of the same responses")
    streamed = len(times) > 1
    if kind == "openai":
        texts = [output.text("response") for output in outputs]
        streamed, events = any(text.startswith(_DATA) for text in texts), _events(times, texts)
        if error := next((_reason(found) for _, event in events if (found := event.maybe("error")) is not None), ""):
            return ClientRequest(error=error)
        tokens = max((event.members("usage").fact("completion_tokens") for _, event in events), default=0)
        times = [at for at, event in events if not streamed or _has_text(event)]
    if not times:
        return ClientRequest(error="no response has a text")
    gaps = tuple((after - before) / 1e9 for before, after in pairwise(times))
    produced = tokens or len(times)
    return ClientRequest(
        ttft=(times[0] - began) / 1e9 if streamed else None,
        gaps=gaps if produced == len(times) else (),
        inter_token=sum(gaps) / (produced - 1) if times[-1] > times[0] and produced > 1 else None,
        end_to_end=(times[-1] - began) / 1e9,
        sent=began / 1e9,
        tokens=tokens or None,
    )


def _nanoseconds(node: Node) -> int:
    if type(node.value) is not int or not 0 <= node.value < 2**63:
        raise node.wrong("a time in nanoseconds")
    return node.value


def _events(times: Sequence[int], texts: Sequence[str]) -> list[tuple[int, Node]]:
    """When each event came, and what it holds: a response has one, several or, where it was cut, a part of one, which
    counts by its beginning."""
    whole: list[tuple[int, str]] = []
    for at, text in zip(times, texts, strict=True):
        if whole and not text.startswith((_DATA, *_NO_DATA)):
            rest, mark, text = text.partition(_DATA)
            whole[-1] = (whole[-1][0], whole[-1][1] + rest)
            text = mark + text
        whole.append((at, text))
    found = []
    for at, text in whole:
        for line in text.splitlines() if text.startswith((_DATA, *_NO_DATA)) else [text]:
            data = line.removeprefix(_DATA).strip()
            if not data or data == "[DONE]" or line.startswith(_NO_DATA):
                continue
            try:
                event = json.loads(data)
            except (ValueError, RecursionError):
                event = None
            found.append((at, Node(event if isinstance(event, dict) else {"error": "a response is not JSON"}, "event")))
    return found


def _has_text(event: Node) -> bool:
    """Whether a chunk of a stream holds a piece of the answer."""
    choice = next(iter(event.each("choices")), Node({}))
    return bool(choice.members("delta").text("content") or choice.text("text"))


# ---- by content ------------------------------------------------------------------------------------------------------

READERS: Mapping[str, tuple[Callable[[Node], bool], Callable[[Node], ClientFile]]] = {
    "vllm-bench": (is_vllm, read_vllm),
    "guidellm": (is_guidellm, read_guidellm),
    "nvidia-aiperf": (is_nvidia, read_nvidia),
    "genai-perf": (is_genai_perf, read_genai_perf),
}
"""Tool -> whether a document is its own, and how it is read."""


def read_client(data: bytes) -> ClientFile | None:
    """What a client wrote, by its content; None where it is no such file. Raises ForeignError for a damaged one."""
    try:
        document = Node(json.loads(data))
    except (ValueError, RecursionError):
        document = Node(data.decode("utf-8", "replace"))
    for recognises, read in READERS.values():
        try:
            fits = recognises(document)
        except ForeignError:
            continue
        if fits:
            return read(document)
    return None


def is_time(seconds: float | None) -> bool:
    """Whether it is a time that can be counted with."""
    return seconds is not None and math.isfinite(seconds) and seconds >= 0
