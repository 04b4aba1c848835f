"""guidellm and our own client on one trace and one server, in turns: how far apart the times are that they report.

The server is the book's engine, which has no prefix cache: whoever comes second meets what the first one met. Each
round has a new server and another trace, and every other round begins with the other client. Times are compared from
the schedule and from when each client says that it sent.

What must not live here: how guidellm's file is read (aiperf/formats), and how requests are sent.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from scipy.stats import t as student

from aiperf.workloads.serve.client import Endpoint, Request, Sent, send
from aiperf.workloads.serve.foreign_client import ForeignClient
from aiperf.workloads.serve.metrics import lateness
from aiperf.workloads.serve.server import Server
from aiperf.workloads.serve.trace import make_segments
from tests.bench.figures import Figure, percent, seconds
from tests.bench.serving import read_lines
from tests.bench.shell import ROOT, machine, say

LOADS: Mapping[str, dict[str, Any]] = {
    "small": {"rate": 6, "requests": 90, "prompt_tokens": [128, 384], "output_tokens": [16, 32]},
}
"""Model -> what is sent to it on one CPU."""
COMMAND = (
    "{guidellm} run --backend kind=openai_http,target={{url}},model={{model}} --data kind=json_file,path={{trace}} "
    "--data-column-mapper kind=generative_column_mapper,column_mappings.text_column=prompt,"
    "column_mappings.relative_timestamp_column=timestamp,column_mappings.output_tokens_count_column=output_tokens "
    "--profile kind=replay,schedule_turn=timestamp --output kind=json,path={{output}}/benchmarks.json "
    "--disable-console"
)
TIMES = ("ttft", "end_to_end", "ttft from sending", "end_to_end from sending")
_AGREE = 0.05
_TIMEOUT, _READY = 60.0, 60.0


def measure(out: Path, *, guidellm: str, rounds: int) -> list[Figure]:
    """Rounds that are not kept yet, a line each, then the rows of the table."""
    folder = out / "clients"
    folder.mkdir(parents=True, exist_ok=True)
    if (program := shutil.which(guidellm)) is None:
        return [Figure("guidellm is not installed", "", "left out")]
    known = {(line["model"], line["round"]) for line in read_lines(folder)}
    for number in range(rounds):
        for load in LOADS:
            if (load, number) not in known:
                line = _round(load, number, program, folder)
                with (folder / "rounds.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    return figures(read_lines(folder))


def figures(lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """guidellm's median over ours, by geometric mean over rounds with its 95 % interval, for each load and time."""
    found = {load: [line for line in lines if line["model"] == load] for load in LOADS}
    return [row for load, own in found.items() if len(own) > 1 for row in _of_load(load, own)]


def _of_load(load: str, lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    rows = []
    for name in TIMES:
        logs = [math.log(line["guidellm"][name] / line["ours"][name]) for line in lines]
        middle, half = fmean(logs), student.ppf(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
        low, ratio, high = (math.exp(each) for each in (middle - half, middle, middle + half))
        shown = f"{ratio:.3f} [{low:.3f}, {high:.3f}] of {seconds(median(line['ours'][name] for line in lines))}"
        held = low >= 1 - _AGREE and high <= 1 + _AGREE
        rows.append(Figure(f"guidellm over ours, {load}: {name}, p50", f"within {percent(_AGREE)}", shown, held))
    for who in ("ours", "guidellm"):
        late = [line[who]["late"] for line in lines]
        shown = f"{seconds(median(each[0] for each in late))}, at most {seconds(max(each[1] for each in late))}"
        rows.append(Figure(f"{who}, {load}: sent late", "shown", shown))
    return rows


def _round(load: str, number: int, guidellm: str, folder: Path) -> dict[str, Any]:
    """Both clients on a new server, this one's CPUs parted as serve.load parts them."""
    everywhere = os.sched_getaffinity(0)
    *its, mine = sorted(everywhere)
    (segment,) = make_segments({"arrivals": "poisson", **LOADS[load]}, count=1, seed=number)
    (warming,) = make_segments({"arrivals": "poisson", **LOADS[load], "requests": 4}, count=1, seed=1000 + number)
    program = ROOT / "tests" / "programs" / "engine_server.py"
    command = f"{sys.executable} {program} --port {{port}} --preset {load}"
    began, found = machine(), {}
    server = Server.start(command, port=0, log=folder / "server.log", cpus=its)
    try:
        server.await_ready("/health", _READY)
        os.sched_setaffinity(0, {mine})
        to = Endpoint(server.base, "engine")
        send(warming.arrivals, to, timeout=_TIMEOUT)
        other = ForeignClient(COMMAND.format(guidellm=guidellm), folder)
        for who in ("ours", "guidellm") if number % 2 == 0 else ("guidellm", "ours"):
            say(f"clients, {load}, round {number}: {who}")
            if who == "ours":
                found[who] = _times(send(segment.arrivals, to, timeout=_TIMEOUT))
            else:
                found[who] = _times(other.send(segment, to, timeout=_TIMEOUT, seed=number)[1])
    finally:
        os.sched_setaffinity(0, everywhere)
        server.end()
    return {"model": load, "round": number, **found, **began}


def _times(sent: Sent) -> dict[str, Any]:
    """Medians of the requests, all of which must have been answered with the tokens asked for."""
    if bad := [r.error or f"{r.tokens} tokens" for r in sent.requests if not r.ok or r.tokens != r.asked_tokens]:
        raise RuntimeError(f"{len(bad)} of {len(sent.requests)} requests, the first: {bad[0]}")
    late = [lateness(request) for request in sent.requests]
    return {
        **{name: median(_time(r, name) for r in sent.requests) for name in TIMES},
        "late": [median(late), max(late)],
    }


def _time(request: Request, name: str) -> float:
    what, _, sending = name.partition(" from ")
    since = request.scheduled if not sending else request.sent or 0.0
    return (request.times[0] if what == "ttft" else request.end or 0.0) - since
