"""A server as a process: started on a free port, waited for, asked what it counts, ended with all that it started.

What must not live here: requests of the load.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from aiperf.workloads.contract import ProgramEnded, ProgramNotReady

_POLL_S = 0.05
_LEAVE_S = 10.0
_FIRST_PORT, _LAST_PORT, _PORTS_TRIED = 20_000, 32_768, 50
"""Where a server's port is drawn from, and how often."""
_TAIL_LINES, _TAIL_BYTES = 15, 4096
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+([-+0-9.eE]+)\s*$", re.MULTILINE)
_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total")
_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total")
_COUNTED = {
    "prefix_hits": _HITS,
    "prefix_queries": _QUERIES,
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    "drafts": ("vllm:spec_decode_num_drafts_total", "llamacpp:spec_decode_num_drafts_total"),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total", "llamacpp:spec_decode_num_draft_tokens_total"),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total", "llamacpp:spec_decode_num_accepted_tokens_total"),
    "verifications": ("sglang:spec_verify_calls_total",),
    "generated_tokens": ("sglang:generation_tokens_total",),
}
"""What a server counts from its start on -> how engines call it at /metrics."""
_ACCEPT_LENGTH = "sglang:spec_accept_length"
"""SGLang's own mean of its latest steps; 0 without speculative decoding."""
_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
METRICS_PATH = "/metrics"
_FLUSHES = ("/reset_prefix_cache", "/flush_cache")
"""Where vLLM and SGLang take the request to empty their prefix caches."""


class ServerFault(RuntimeError):
    """A server that cannot be used; the first line says why, the others are the end of its log."""


class ServerEnded(ServerFault, ProgramEnded):
    """A server whose process has ended by itself."""


class ServerNotReady(ServerFault, ProgramNotReady):
    """A server that was started here, runs, and was not ready in time."""


class Server:
    """A server under load: one that this process started, or one that runs already at ``base``."""

    def __init__(self, base: str, process: subprocess.Popen[bytes] | None = None, log: Path | None = None) -> None:
        self.base = base
        self._process, self._log = process, log

    @classmethod
    def start(
        cls,
        command: str,
        *,
        port: int,
        log: Path,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        cpus: Sequence[int] = (),
    ) -> Server:
        """Start ``command``, in which ``{port}`` is a free port unless ``port`` says which. Raises ServerFault."""
        if "{port}" not in command and not port:
            raise ServerFault(f"{command}: the server's port is not known. Write {{port}} in the command, or port: N")
        port = port or _free_port()
        if _answers(port):
            raise ServerFault(f"port {port} is taken by another process. Write {{port}} in the command for a free one")
        argv = [word.replace("{port}", str(port)) for word in shlex.split(command)]
        full = child_environment(env or {})
        with log.open("ab") as into:
            try:
                with _bound_to(cpus):
                    process = subprocess.Popen(
                        argv,
                        env=full,
                        cwd=cwd or None,
                        stdin=subprocess.DEVNULL,
                        stdout=into,
                        stderr=into,
                        process_group=0,
                    )
            except FileNotFoundError as error:
                if error.filename == cwd:
                    raise ServerFault(f"{argv[0]} cannot be started: there is no folder {cwd}") from None
                raise ServerFault(f"there is no program {argv[0]}: install it, or write its path") from None
            except OSError as error:
                raise ServerFault(f"{argv[0]} cannot be started: {error.strerror}: {error.filename}") from None
        return cls(f"http://127.0.0.1:{port}", process, log)

    @property
    def pid(self) -> int:
        """Of its first process; 0 for one that ran already."""
        return self._process.pid if self._process else 0

    def await_ready(self, path: str, limit: float) -> None:
        """Wait until ``path`` is answered with 200, at most ``limit`` seconds.

        Raises ServerFault; where time might have made it ready, ServerNotReady: a refused ``path`` stays refused.
        """
        deadline, answer, status = time.monotonic() + limit, "no connection", 0
        while time.monotonic() < deadline:
            self.raise_if_ended()
            status, text = fetch(self.base + path, timeout=max(0.1, min(5.0, deadline - time.monotonic())))
            if status == 200:
                return
            answer = f"status {status}" if status else text
            time.sleep(_POLL_S)
        fault = ServerFault if self._process is None or 400 <= status < 500 else ServerNotReady
        raise fault(self._with_log(f"the server was not ready within {limit:g} s ({path}: {answer})"))

    def raise_if_ended(self) -> None:
        """Raise ServerEnded when its process has ended."""
        if self._process is not None and (status := self._process.poll()) is not None:
            how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
            raise ServerEnded(self._with_log(f"the server ended by itself {how}"))

    def fault(self, message: str) -> ServerFault:
        """An error with the end of the server's log."""
        return ServerFault(self._with_log(message))

    def _with_log(self, message: str) -> str:
        tail = self.log_tail()
        return f"{message}\nthe end of the server's log:\n{tail}" if tail else message

    def log_tail(self) -> str:
        """The last lines that it wrote; empty for one that ran already."""
        return "" if self._log is None else tail_of(self._log)

    def first_model(self) -> str:
        """The name of the first model that it serves. Raises ServerFault."""
        status, text = fetch(self.base + "/v1/models", timeout=10.0)
        name = _model_of(text) if status == 200 else ""
        if not name:
            raise self.fault("the server names no model at /v1/models: write model: NAME")
        return name

    def flush(self) -> bool:
        """Empty its prefix cache; whether it knows how to."""
        return any(fetch(self.base + path, timeout=30.0, data=b"")[0] == 200 for path in _FLUSHES)

    def counted(self) -> dict[str, float]:
        """What it exports at /metrics of those that are known here; empty where it exports none."""
        return counts_of(self._metrics())

    def latest_acceptance(self) -> float | None:
        """The acceptance length of its latest steps, where it exports that."""
        return latest_acceptance_of(self._metrics())

    def batch(self) -> tuple[int, int] | None:
        """How many requests it runs and how many wait; None where it does not export both."""
        return batch_of(self._metrics())

    def _metrics(self) -> str:
        status, text = fetch(self.base + METRICS_PATH, timeout=5.0)
        return text if status == 200 else ""

    def end(self) -> None:
        """End its whole process group; nothing happens to one that ran already."""
        if self._process is not None:
            end_group(self._process, patience=_LEAVE_S)


def batch_of(metrics: str) -> tuple[int, int] | None:
    """Requests in the server's batch, and in its queue, by the text of its metrics; None where it has not both."""
    lines = "\n".join(line for line in metrics.splitlines() if line.startswith((*_RUNNING, *_WAITING)))
    sums = _sums(lines)
    found = [next((sums[name] for name in names if name in sums), None) for names in (_RUNNING, _WAITING)]
    running, waiting = found
    return None if running is None or waiting is None else (round(running), round(waiting))


def counts_of(metrics: str) -> dict[str, float]:
    """What a server has counted from its start on, by the text of its metrics; without what it does not export."""
    sums = _sums(metrics)
    found = {key: next((sums[name] for name in names if name in sums), None) for key, names in _COUNTED.items()}
    return {key: value for key, value in found.items() if value is not None}


def latest_acceptance_of(metrics: str) -> float | None:
    """The acceptance length of a server's latest steps, the mean of its ranks; None where none speculates."""
    found = [float(value) for name, value in _SAMPLE.findall(metrics) if name == _ACCEPT_LENGTH]
    known = [value for value in found if value > 0]
    return sum(known) / len(known) if known else None


def _sums(metrics: str) -> dict[str, float]:
    """Name of a metric -> its value, the sum over labels."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(metrics):
        with contextlib.suppress(ValueError):
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def end_group(process: subprocess.Popen[bytes], *, patience: float) -> None:
    """End the process group that a process leads: asked to, and after ``patience`` seconds killed."""
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, _LEAVE_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    process.wait()


def child_environment(env: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The environment of what is started here: programs of this interpreter's folder are found."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PYTHONUNBUFFERED": "1", **env, "PATH": path}


def tail_of(log: Path) -> str:
    """The last lines of a log; empty where there is none."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:])


def fetch(url: str, *, timeout: float, data: bytes | None = None) -> tuple[int, str]:
    """Status and text of an answer; status 0 and the reason where there is none."""
    request = urllib.request.Request(url, data=data, method="GET" if data is None else "POST")
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return int(answer.status), answer.read(1 << 22).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return 0, str(getattr(reason, "strerror", None) or reason)


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Goes to the server itself, whatever the environment says of proxies."""


@contextlib.contextmanager
def _bound_to(cpus: Sequence[int]) -> Iterator[None]:
    """Bind this thread for a moment: a process that it starts is bound from its first instruction, and so are the
    threads and processes that that one starts. Raises OSError."""
    former = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus or former)
    try:
        yield
    finally:
        os.sched_setaffinity(0, former)


def _model_of(text: str) -> str:
    """The ``id`` of the first entry of ``data`` in a list of models; empty where there is none."""
    try:
        name = json.loads(text)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return ""
    return name if isinstance(name, str) else ""


def _free_port() -> int:
    """A free port below those that the kernel gives to connections, of which one could take it before the server."""
    draw = random.SystemRandom()
    for port in (*draw.sample(range(_FIRST_PORT, _first_of_connections()), k=_PORTS_TRIED), 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as found:
            return int(found.getsockname()[1])
    raise ServerFault("no port is free")


def _first_of_connections() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = _LAST_PORT
    return max(_FIRST_PORT + _PORTS_TRIED, min(first, _LAST_PORT))


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
