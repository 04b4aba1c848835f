"""Per-request results of clients that load servers, imported. One run is the replicate, whatever number of requests it
holds.

What must not live here: how each client writes them (formats/load_clients.py), what becomes of the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from aiperf.formats.document import Node
from aiperf.formats.load_clients import READERS, ClientFile, ClientRun
from aiperf.store.importers.common import Benchmark, Foreign, Replicate, Timing, ToolFormat, count, fault_of, moment

UNIT = "run"
_FROM_SENDING = "its times count from sending: they leave out what a request waited in the client"
_OF_ONE_RUN = "the requests are from one run: their spread leaves out differences between launches of the server"


def _read(tool: str) -> Callable[[Node, Path], Foreign]:
    def read(document: Node, _: Path) -> Foreign:
        found = READERS[tool][1](document)
        began, note = moment(found.date)
        benchmarks = tuple(b for run in found.runs for b in _benchmarks(found, run, note))
        return Foreign(found.tool, found.version, benchmarks, started=began)

    return read


def _benchmarks(found: ClientFile, run: ClientRun, note: str) -> Iterator[Benchmark]:
    failed = len(run.requests) - len(run.answered)
    said = f"{count(failed, 'request')} failed and left no time" if failed else ""
    notes = tuple(filter(None, (_OF_ONE_RUN, said, "" if run.scheduled else _FROM_SENDING, note)))
    for name, times in run.series().items():
        replicates = (Replicate(tuple(Timing(seconds) for seconds in times)),)
        title = f"{run.name or found.base} {name}".strip()
        yield Benchmark(title, UNIT, replicates, axes=dict(found.axes), notes=notes, skipped=fault_of(times))


FORMATS = tuple(
    ToolFormat(tool, outline, READERS[tool][0], _read(tool))
    for tool, outline in (
        ("vllm-bench", 'vllm bench serve --save-detailed: "ttfts" and "itls"'),
        ("guidellm", 'guidellm: "benchmarks" whose "requests" hold "successful"'),
        ("nvidia-aiperf", 'NVIDIA\'s aiperf: lines with "metadata" and "metrics"'),
        ("genai-perf", 'genai-perf: "service_kind", and "experiments" with "requests"'),
    )
)
