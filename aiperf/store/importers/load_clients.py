"""Per-request results of clients that load servers: ``vllm bench serve``, guidellm, NVIDIA's aiperf. One run is the
replicate, whatever number of requests it holds.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aiperf.store.importers.common import (
    Benchmark,
    Foreign,
    ForeignError,
    Node,
    Replicate,
    Timing,
    ToolFormat,
    count,
    fault_of,
    moment,
)

UNIT = "run"
_FROM_SENDING = "its times count from sending: what a request waited in the client is not in them"
_OF_ONE_RUN = "the requests are of one run: their spread does not hold what differs between launches of the server"
_RECORD = {"metadata", "metrics"}
"""Keys of each line of NVIDIA's aiperf."""

Series = Mapping[str, list[float]]
"""ttft, inter_token, end_to_end -> seconds, a request each."""


def _benchmarks(series: Series, *, base: str, axes: Mapping[str, Any], notes: Iterable[str]) -> tuple[Benchmark, ...]:
    kept = tuple(filter(None, (_OF_ONE_RUN, *notes)))
    return tuple(
        Benchmark(
            f"{base} {name}".strip(),
            UNIT,
            (Replicate(tuple(Timing(seconds) for seconds in times)),),
            axes=dict(axes),
            notes=kept,
            skipped=fault_of(times),
        )
        for name, times in series.items()
    )


def _failed(number: int) -> str:
    return f"{count(number, 'request')} failed and left no time" if number else ""


# ---- vllm bench serve ------------------------------------------------------------------------------------------------


def _is_vllm(document: Node) -> bool:
    return all(document.maybe(key) is not None for key in ("ttfts", "itls", "request_throughput"))


def _read_vllm(document: Node, _: Path) -> Foreign:
    """Read a result of ``--save-result --save-detailed``. Raises ForeignError."""
    first, gaps = document.numbers("ttfts"), [node.items() for node in document.each("itls")]
    errors = [str(error.value or "") for error in document.each("errors")] or [""] * len(first)
    waits = document.numbers("queue_times")
    whole = document.numbers("latencies") or [
        a + sum(g.as_number() for g in b) for a, b in zip(first, gaps, strict=False)
    ]
    if not len(first) == len(gaps) == len(errors) == len(whole) or len(waits) not in (0, len(first)):
        raise ForeignError("the lists ttfts, itls, latencies, queue_times and errors are not of the same requests")
    good = [place for place, error in enumerate(errors) if not error]
    wait = waits or [0.0] * len(first)
    series = {
        "ttft": [first[i] + wait[i] for i in good],
        "inter_token": [sum(g.as_number() for g in gaps[i]) / len(gaps[i]) for i in good if gaps[i]],
        "end_to_end": [whole[i] + wait[i] for i in good],
    }
    began, note = moment(document.text("date"))
    axes = {key: document.text(key) for key in ("request_rate", "max_concurrency") if document.maybe(key) is not None}
    notes = (_failed(len(first) - len(good)), "" if waits else _FROM_SENDING, note)
    base = document.text("model_id") or "vllm"
    return Foreign("vllm-bench", "", _benchmarks(series, base=base, axes=axes, notes=notes), started=began)


# ---- guidellm --------------------------------------------------------------------------------------------------------


def _is_guidellm(document: Node) -> bool:
    found = document.each("benchmarks")
    return any(isinstance(b.value, dict) and b.members("requests").maybe("successful") is not None for b in found)


def _read_guidellm(document: Node, _: Path) -> Foreign:
    """Read ``benchmarks.json``. Raises ForeignError."""
    benchmarks: list[Benchmark] = []
    for place, node in enumerate(document.each("benchmarks")):
        requests = node["requests"]
        good = requests.each("successful")
        scheduled = [r.maybe_number("request_scheduled_latency") for r in good]
        waits = [r.maybe_number("request_dispatch_delay") or 0.0 for r in good]
        planned = bool(good) and None not in scheduled
        series: dict[str, list[float]] = {"ttft": [], "inter_token": [], "end_to_end": []}
        for request, wait in zip(good, waits, strict=True):
            first, gap = request.maybe_number("time_to_first_token_ms"), request.maybe_number("inter_token_latency_ms")
            whole = request.maybe_number("request_latency")
            late = wait if planned else 0.0
            series["ttft"] += [first / 1000 + late] if first is not None else []
            series["inter_token"] += [gap / 1000] if gap is not None else []
            series["end_to_end"] += [whole + late] if whole is not None else []
        failed = len(requests.each("errored")) + len(requests.each("incomplete"))
        base = f"guidellm {place}" if len(document.each("benchmarks")) > 1 else "guidellm"
        benchmarks += _benchmarks(series, base=base, axes={}, notes=(_failed(failed), "" if planned else _FROM_SENDING))
    version = document.members("metadata").text("guidellm_version")
    return Foreign("guidellm", version, tuple(benchmarks))


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


def _is_nvidia(document: Node) -> bool:
    records = _records(document)
    return bool(records) and all(isinstance(r, dict) and r.keys() >= _RECORD for r in records)


def _read_nvidia(document: Node, _: Path) -> Foreign:
    """Read ``profile_export.jsonl``. Raises ForeignError."""
    names = {"ttft": "time_to_first_token", "inter_token": "inter_token_latency", "end_to_end": "request_latency"}
    series: dict[str, list[float]] = {name: [] for name in names}
    failed = 0
    for place, record in enumerate(_records(document)):
        node = Node(record, f"line {place + 1}")
        if node.maybe("error") is not None:
            failed += 1
            continue
        for name, theirs in names.items():
            found = node["metrics"].maybe(theirs)
            if found is not None:
                series[name].append(found.number("value") * _factor(found))
    return Foreign("nvidia-aiperf", "", _benchmarks(series, base="", axes={}, notes=(_failed(failed), _FROM_SENDING)))


def _factor(metric: Node) -> float:
    unit = metric.text("unit")
    factors = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    if unit not in factors:
        raise metric["unit"].wrong("ns, us, ms or s")
    return factors[unit]


FORMATS = (
    ToolFormat("vllm-bench", 'vllm bench serve --save-detailed: "ttfts" and "itls"', _is_vllm, _read_vllm),
    ToolFormat("guidellm", 'guidellm: "benchmarks" whose "requests" hold "successful"', _is_guidellm, _read_guidellm),
    ToolFormat("nvidia-aiperf", 'NVIDIA\'s aiperf: lines with "metadata" and "metrics"', _is_nvidia, _read_nvidia),
)
