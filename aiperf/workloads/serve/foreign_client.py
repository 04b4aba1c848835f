"""A client of another project: its command is run once for a segment, and the requests are what its file says.

What must not live here: formats of clients' files (formats/load_clients.py), our own client (client.py), what the times
mean (metrics.py).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from aiperf.formats.document import ForeignError
from aiperf.formats.load_clients import PLACEHOLDERS, ClientFile, ClientRequest, ClientRun, is_time, read_client
from aiperf.workloads.serve.client import Endpoint, Request, Sent
from aiperf.workloads.serve.server import child_environment, end_group, tail_of
from aiperf.workloads.serve.trace import Arrival, Segment

_POLL_S = 0.02
_START_UP_S = 60.0
"""What a client may need beyond its schedule and the time of its last answer, where no limit is given."""
_LEAVE_S = 2.0
_MOST_BYTES = 200 * 1024**2
_SHOWN = 3
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")


class ClientFault(RuntimeError):
    """A client that brought no numbers; the first line says why, the others are the end of its log."""


@dataclass(frozen=True)
class ForeignSent(Sent):
    """A segment that another client sent."""

    client: str = ""
    """Tool and version."""
    counted_from: str = "schedule"
    """schedule or sending: from when its times count."""


@dataclass(frozen=True)
class ForeignClient:
    """The command of a client."""

    command: str
    folder: Path
    """Where its trace, its file and its log lie."""
    limit: float = 0.0
    """Seconds that one run may take; 0: the segment's, the time of an answer, and a minute."""
    cwd: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a command without a place for its file."""
        if "output" not in self.given:
            raise ValueError("client: write {output} where the command names the file that it writes")
        if unknown := [name for name in self.given if name not in PLACEHOLDERS]:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise ValueError(f"client: {{{unknown[0]}}} is not known; allowed: {known}")

    @property
    def given(self) -> list[str]:
        """The placeholders of the command."""
        return _PLACEHOLDER.findall(self.command)

    @property
    def follows_trace(self) -> bool:
        """Whether it is given the schedule itself."""
        return "trace" in self.given

    @property
    def is_counted(self) -> bool:
        """Whether it is told how many requests to send."""
        return "trace" in self.given or "requests" in self.given

    def send(self, segment: Segment, to: Endpoint, *, timeout: float, seed: int) -> tuple[Segment, ForeignSent]:
        """Run it once and read its file: the segment that it sent, and the requests. Raises ClientFault."""
        work, trace, log = self.folder / "client", self.folder / "client-trace.jsonl", self.folder / "client.log"
        shutil.rmtree(work, ignore_errors=True)
        output = work / "output"
        (output if "{output}/" in self.command else work).mkdir(parents=True)
        write_trace(trace, segment.arrivals)
        values = {
            "url": to.base, "port": str(urlsplit(to.base).port or ""), "model": to.model, "output": str(output),
            "trace": str(trace), "rate": f"{segment.rate:.6g}", "requests": str(len(segment.arrivals)),
            "seed": str(seed),
        }  # fmt: skip
        try:
            limit = self.limit or segment.seconds + timeout + _START_UP_S
            status = _run(_filled(self.command, values), limit, log=log, cwd=self.cwd)
            if status:
                how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
                raise ClientFault(f"the client ended {how}")
            found = _read(work)
            return self._sent(segment, found, self._checked(found, len(segment.arrivals)))
        except ClientFault as fault:
            tail = tail_of(log)
            raise ClientFault(f"{fault}\nthe end of the client's log:\n{tail}" if tail else str(fault)) from None

    def _checked(self, found: ClientFile, asked: int) -> ClientRun:
        """Its one run. Raises ClientFault where the file cannot be what was asked for."""
        if len(found.runs) != 1:
            raise ClientFault(f"the client's file holds {len(found.runs)} runs: have it make one, at one rate")
        (run,) = found.runs
        if not run.requests:
            raise ClientFault("the client's file holds no request")
        if self.is_counted and len(run.requests) > asked:
            raise ClientFault(f"the client's file holds {len(run.requests)} requests, and it was to send {asked}")
        for name, said in (("ttft", "to the first token"), ("end_to_end", "to the end of the answer")):
            if bad := sum(not is_time(getattr(request, name)) for request in run.answered):
                raise ClientFault(
                    f"{bad} of {len(run.answered)} answered requests of the client's file have no time {said}: have "
                    "it stream, and keep single requests"
                )
        if bad := sum((r.tokens or 2) > 1 and not is_time(r.inter_token) for r in run.answered):
            raise ClientFault(
                f"{bad} of {len(run.answered)} answered requests have no time between tokens: have it stream"
            )
        return run

    def _sent(self, segment: Segment, found: ClientFile, run: ClientRun) -> tuple[Segment, ForeignSent]:
        requests = _on_one_clock(run)
        if self.is_counted:
            # Clients lose requests without a word: what is not in the file was not answered.
            lost = len(segment.arrivals) - len(requests)
            requests += [Request(0.0, 0, error="it is not in the client's file", planned=False) for _ in range(lost)]
        if self.follows_trace and len(run.answered) == len(requests):
            # The k-th request by its time is the k-th of the trace: how many tokens were asked for is known.
            ordered = sorted(requests, key=lambda request: request.scheduled)
            pairs = zip(ordered, sorted(segment.arrivals, key=lambda arrival: arrival.at), strict=True)
            requests = [replace(request, asked_tokens=arrival.output_tokens) for request, arrival in pairs]
        known = all(request.sent is not None for request in requests if request.ok)
        counted = all(request.tokens for request in run.answered)
        seconds = max((request.end or 0.0 for request in requests if request.ok), default=0.0) if known else 0.0
        sent = ForeignSent(
            tuple(requests),
            seconds if counted else 0.0,
            None,
            client=f"{found.tool} {found.version}".strip(),
            counted_from="schedule" if run.scheduled else "sending",
        )
        if self.follows_trace:
            return segment, sent
        # What another schedule lasts: by the rate that it was given, else from its start to its last answer.
        lasts = len(requests) / segment.rate if "rate" in self.given else seconds
        return Segment((), lasts), sent


def write_trace(path: Path, arrivals: Sequence[Arrival]) -> None:
    """Write a schedule as ``trace:`` takes it: JSON lines; ``prompt_tokens`` are words."""
    lines = (
        {
            "timestamp": a.at,
            "prompt": a.prompt,
            "prompt_tokens": len(a.prompt.split()),
            "output_tokens": a.output_tokens,
        }
        for a in arrivals
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _filled(command: str, values: Mapping[str, str]) -> list[str]:
    return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in shlex.split(command)]


def _run(argv: Sequence[str], limit: float, *, log: Path, cwd: str) -> int:
    """Run it on the CPUs of this process and return its exit status; nothing of its process group stays.

    Raises ClientFault.
    """
    with log.open("wb") as into:
        try:
            process = subprocess.Popen(
                argv, env=child_environment(), cwd=cwd or None, stdin=subprocess.DEVNULL, stdout=into, stderr=into,
                process_group=0,
            )  # fmt: skip
        except OSError as error:
            raise ClientFault(f"the client {argv[0]} cannot be started: {error.strerror}: {error.filename}") from None
    deadline = time.monotonic() + limit
    try:
        # Not reaped before its group is ended: its number stays its own.
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > deadline:
                raise ClientFault(f"the client had not ended after {limit:g} s")
            time.sleep(_POLL_S)
    finally:
        end_group(process, patience=_LEAVE_S)
    return process.returncode


def _read(work: Path) -> ClientFile:
    """The one file of a known client in a folder. Raises ClientFault."""
    files = sorted(path for path in work.rglob("*") if path.is_file())
    if not files:
        raise ClientFault("the client wrote no file at {output}")
    found = []
    for path in files:
        try:
            known = read_client(path.read_bytes()) if path.stat().st_size <= _MOST_BYTES else None
        except ForeignError as error:
            raise ClientFault(f"the client's file {path.name} is damaged: {error}") from None
        except OSError as error:
            raise ClientFault(f"the client's file {path.name} cannot be read: {error.strerror}") from None
        found += [] if known is None else [(path, known)]
    if len(found) == 1:
        return found[0][1]
    names = ", ".join(path.name for path in (files if not found else [path for path, _ in found])[:_SHOWN])
    if found:
        raise ClientFault(f"the client wrote {len(found)} files with requests ({names}): have it write one")
    raise ClientFault(
        f"the client wrote nothing that is known ({names}): requests of vllm bench serve --save-detailed, guidellm, "
        "NVIDIA's aiperf and genai-perf are read"
    )


def _on_one_clock(run: ClientRun) -> list[Request]:
    """The requests with times from the first one's schedule on, else from its sending."""
    starts = [r.sent - _waited(r, run) for r in run.answered if r.sent is not None]
    begin = min(starts, default=0.0)
    return [_request(request, run, begin) for request in run.requests]


def _waited(request: ClientRequest, run: ClientRun) -> float:
    return (request.waited or 0.0) if run.scheduled else 0.0


def _request(found: ClientRequest, run: ClientRun, begin: float) -> Request:
    if found.error:
        return Request(0.0, 0, error=found.error, planned=False)
    wait = _waited(found, run)
    scheduled = 0.0 if found.sent is None else found.sent - wait - begin
    at = scheduled + wait
    times = [at + (found.ttft or 0.0)]
    for gap in found.gaps:
        times.append(times[-1] + gap)
    return Request(
        scheduled,
        0,
        sent=at if found.sent is not None else None,
        times=times,
        end=at + (found.end_to_end or 0.0),
        counted=found.tokens,
        planned=run.scheduled,
        gap=found.inter_token,
    )
