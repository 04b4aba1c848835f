"""guidellm and our own client on one trace and one server, in turns: how far apart the times are that they report.

One server is the book's engine, which has no prefix cache: whoever comes second meets what the first one met. The
others take a known time to the first token and to the end, however many requests come: of two clients that differ the
one that reports it is right. One of them is as slow to its first token as a large model. Each round has a new server
and another trace, and every other round begins with the other client. Times are compared from the schedule and from
when each client says that it sent; and our client sends once more, when guidellm had sent.

What must not live here: how guidellm's file is read (aiperf/formats), and how requests are sent.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import scipy

from aiperf.workloads.serve.client import Endpoint, Request, send
from aiperf.workloads.serve.foreign_client import ForeignClient
from aiperf.workloads.serve.metrics import lateness
from aiperf.workloads.serve.server import Server
from aiperf.workloads.serve.trace import Arrival, make_segments
from tests.bench.figures import Figure, percent, seconds
from tests.bench.serving import whole_lines
from tests.bench.shell import ROOT, machine, say

SERVICE, TOKENS, FEW_TOKENS = 1.0, 20, 4
"""Of the servers of known times: seconds of an answer, its evenly spaced tokens."""
LOADS: Mapping[str, dict[str, Any]] = {
    "known": {"rate": 6, "requests": 90, "prompt_tokens": 200, "output_tokens": TOKENS},
    "small": {"rate": 3, "requests": 60, "prompt_tokens": [128, 384], "output_tokens": [16, 32]},
    "late-token": {"rate": 6, "requests": 90, "prompt_tokens": 200, "output_tokens": FEW_TOKENS},
}
"""Server of known times, or model of the engine -> what is sent to it on one CPU."""
TRUTH: Mapping[str, dict[str, float]] = {
    "known": {"ttft": SERVICE / TOKENS, "end_to_end": SERVICE},
    "late-token": {"ttft": SERVICE / FEW_TOKENS, "end_to_end": SERVICE},
}
"""Server of known times -> those times."""
_KNOWN = f"openai_server.py --port {{port}} --model engine --service {SERVICE} --slots 64"
SERVERS = {
    "known": _KNOWN,
    "late-token": _KNOWN,
    "small": "engine_server.py --port {port} --preset small --times TIMES",
}
COMMAND = (
    "{guidellm} run --backend kind=openai_http,target={{url}},model={{model}} --data kind=json_file,path={{trace}} "
    "--data-column-mapper kind=generative_column_mapper,column_mappings.text_column=prompt,"
    "column_mappings.relative_timestamp_column=timestamp,column_mappings.output_tokens_count_column=output_tokens "
    "--profile kind=replay,schedule_turn=timestamp --output kind=json,path={{output}}/benchmarks.json "
    "--disable-console"
)
TIMES = ("ttft", "end_to_end", "ttft from sending", "end_to_end from sending")
_AGREE, _LOST = 0.05, 0.05
_TIMEOUT, _READY = 60.0, 60.0


def measure(out: Path, *, guidellm: str, rounds: int, loads: Sequence[str] = tuple(LOADS)) -> list[Figure]:
    """Rounds of these loads that are not kept yet, a line each, then the rows of the table."""
    folder = out / "clients"
    folder.mkdir(parents=True, exist_ok=True)
    if (program := shutil.which(guidellm)) is None:
        return [Figure("guidellm is not installed", "", "left out")]
    kept = folder / "rounds.jsonl"
    known = {(line["model"], line["round"]) for line in _lines(kept)}
    for number in range(rounds):
        for load in loads:
            if (load, number) not in known:
                line = _round(load, number, program, folder)
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    return figures(_lines(kept))


def _lines(file: Path) -> list[dict[str, Any]]:
    """The rounds alone: servers and clients keep files of their own in the folder."""
    return list(whole_lines(file.read_text(encoding="utf-8"))) if file.is_file() else []


def figures(lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """guidellm's median over ours, by geometric mean over rounds with its 95 % interval, for each load and time."""
    found = {load: [line for line in lines if line["model"] == load] for load in LOADS}
    return [row for load, own in found.items() if len(own) > 1 for row in _of_load(load, own)]


def _of_load(load: str, lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    rows = [_ratio(f"guidellm over ours, {load}: {name}, p50", name, lines, "guidellm", "ours") for name in TIMES]
    for name in (name for name in TIMES if "from" in name):
        title = f"guidellm over ours at its times, {load}: {name}, p50"
        rows.append(_ratio(title, name, lines, "guidellm", "at its times"))
    if load in TRUTH:
        for who in ("ours", "guidellm"):
            of = f"{who} over the truth" + (f", {load}" if load != "known" else "")
            rows += [_ratio(f"{of}: {name}, p50", name, lines, who) for name in TIMES]
    for who in ("ours", "guidellm", "at its times") if all("server ttft" in line["ours"] for line in lines) else ():
        for name in (name for name in TIMES if "from" in name):
            title = f"{who} over the server's own, {load}: {name}, p50"
            rows.append(_ratio(title, name, lines, who, who, f"server {name.partition(' ')[0]}"))
    for who in ("ours", "guidellm"):
        late = [line[who]["late"] for line in lines]
        shown = f"{seconds(median(each[0] for each in late))}, at most {seconds(max(each[1] for each in late))}"
        rows.append(Figure(f"{who}, {load}: sent late", "shown", shown))
    for who in ("ours", "guidellm", "at its times"):
        took = [median(line[who][name] for line in lines) for name in ("server_cpu_s", "server_waited_s")]
        shown = f"{seconds(took[0])} of CPU, {seconds(took[1])} waiting for it"
        rows.append(Figure(f"the server meanwhile, {who}, {load}", "shown", shown))
    lost = sum(line["lost"] for line in lines)
    return [*rows, Figure(f"guidellm, {load}: answered requests that are not in its file", "shown", str(lost))]


def _ratio(
    title: str, name: str, lines: Sequence[Mapping[str, Any]], who: str, to: str = "", other: str = ""
) -> Figure:
    """One's time over the other's (of that name, or of ``other``), or over the known one."""
    base = [line[to][other or name] if to else TRUTH[line["model"]][name.partition(" ")[0]] for line in lines]
    logs = [math.log(line[who][name] / truth) for line, truth in zip(lines, base, strict=True)]
    middle, half = fmean(logs), scipy.stats.t.ppf(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    low, ratio, high = (math.exp(each) for each in (middle - half, middle, middle + half))
    shown = f"{ratio:.3f} [{low:.3f}, {high:.3f}] of {seconds(median(base))}"
    return Figure(title, f"within {percent(_AGREE)}", shown, low >= 1 - _AGREE and high <= 1 + _AGREE)


def _round(load: str, number: int, guidellm: str, folder: Path) -> dict[str, Any]:
    """Both clients on a new server, this one's CPUs parted as serve.load parts them."""
    everywhere = os.sched_getaffinity(0)
    *its, mine = sorted(everywhere)
    (segment,) = make_segments({"arrivals": "poisson", **LOADS[load]}, count=1, seed=number)
    (warming,) = make_segments({"arrivals": "poisson", **LOADS[load], "requests": 4}, count=1, seed=1000 + number)
    own = folder / "server-times.jsonl"
    own.write_text("", encoding="utf-8")
    command = f"{sys.executable} {ROOT / 'tests' / 'programs' / SERVERS[load]}".replace("TIMES", str(own))
    began = machine()
    sent: dict[str, Sequence[Request]] = {}
    used: dict[str, dict[str, float]] = {}
    server = Server.start(command, port=0, log=folder / "server.log", cpus=its)
    try:
        server.await_ready("/health", _READY)
        os.sched_setaffinity(0, {mine})
        to = Endpoint(server.base, "engine")
        send(warming.arrivals, to, timeout=_TIMEOUT)
        other = ForeignClient(COMMAND.format(guidellm=guidellm), folder)
        for who in ("ours", "guidellm") if number % 2 == 0 else ("guidellm", "ours"):
            say(f"clients, {load}, round {number}: {who}")
            with _watched(server, own, who, used):
                if who == "ours":
                    sent[who] = send(segment.arrivals, to, timeout=_TIMEOUT).requests
                    continue
                sent[who] = other.send(segment, to, timeout=_TIMEOUT, seed=number)[1].requests
            again = _at_its_times(segment.arrivals, [r for r in sent[who] if r.ok])
            with _watched(server, own, "at its times", used):
                sent["at its times"] = send(again, to, timeout=_TIMEOUT).requests
    finally:
        os.sched_setaffinity(0, everywhere)
        server.end()
    lost = sum(not request.ok for request in sent["guidellm"])
    if lost > _LOST * len(segment.arrivals):
        raise RuntimeError(f"{lost} requests of guidellm: {next(r.error for r in sent['guidellm'] if not r.ok)}")
    if bad := [r for who in sent if who != "guidellm" for r in sent[who] if not r.ok or r.tokens != r.asked_tokens]:
        raise RuntimeError(f"{len(bad)} requests of our client, the first: {bad[0].error or f'{bad[0].tokens} tokens'}")
    times = {who: {**_times(found), **used[who]} for who, found in sent.items()}
    return {"model": load, "round": number, **times, "lost": lost, **began}


@contextlib.contextmanager
def _watched(server: Server, own: Path, who: str, into: dict[str, dict[str, float]]) -> Iterator[None]:
    """Seconds of CPU that the server and the client take meanwhile, and that the server is kept waiting for one; and
    medians of the server's own times, where it keeps them."""
    files = [*Path(f"/proc/{server.pid}/task").glob("*/schedstat")]

    def now() -> tuple[float, float, float]:
        ran, waited = (sum(int(file.read_text().split()[k]) for file in files) / 1e9 for k in (0, 1))
        mine, others = os.times(), resource.getrusage(resource.RUSAGE_CHILDREN)
        return ran, waited, mine.user + mine.system + others.ru_utime + others.ru_stime

    began, known = now(), len(own.read_text(encoding="utf-8").splitlines())
    yield
    names = ("server_cpu_s", "server_waited_s", "client_cpu_s")
    into[who] = {name: round(end - begin, 3) for name, begin, end in zip(names, began, now(), strict=True)}
    if lines := [json.loads(line) for line in own.read_text(encoding="utf-8").splitlines()[known:]]:
        into[who] |= {"server ttft": median(t for t, _ in lines), "server end_to_end": median(t for _, t in lines)}


def _at_its_times(arrivals: Sequence[Arrival], sent: Sequence[Request]) -> list[Arrival]:
    """The requests that another client answered for, when it had sent them: the one whose time is nearest is meant."""
    begin = arrivals[0].at
    found = [(min(arrivals, key=lambda a: abs(a.at - begin - r.scheduled)), r) for r in sent]
    return sorted((replace(a, at=r.sent or 0.0) for a, r in found), key=lambda arrival: arrival.at)


def _times(sent: Sequence[Request]) -> dict[str, Any]:
    """Medians of the requests that were answered."""
    answered = [request for request in sent if request.ok]
    late = [lateness(request) for request in answered]
    return {
        **{name: median(_time(r, name) for r in answered) for name in TIMES},
        "late": [median(late), max(late)],
    }


def _time(request: Request, name: str) -> float:
    what, _, sending = name.partition(" from ")
    since = request.scheduled if not sending else request.sent or 0.0
    return (request.times[0] if what == "ttft" else request.end or 0.0) - since
