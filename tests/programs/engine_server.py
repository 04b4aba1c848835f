"""The engine of serve.engine behind the OpenAI protocol, one thread for both: real passes of a random-weight decoder.

``--decode-delay SHARE``: every step of decoding takes that share longer; ``--first-delay SHARE``: the pass of a prompt
takes longer, until the time since its request came to the kernel is longer by that share than without the delays of
others. Meanwhile the server computes nothing. ``--times FILE``: its own times of each request, from the kernel's on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import selectors
import socket
import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import torch

from aiperf.workloads.decoder.model import PRESETS, Shape, draw
from aiperf.workloads.engine import engine as engine_module
from aiperf.workloads.engine.admission.everyone import everyone
from aiperf.workloads.engine.batching.continuous import ContinuousBatching
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.orders.fifo import fifo
from aiperf.workloads.engine.pages import PagePool
from aiperf.workloads.engine.passes import one_pass
from aiperf.workloads.engine.running import Running

MODEL = "engine"
SHAPES = {
    **PRESETS,
    # Layers of Llama 3.1 405B, 34 GB: each is so wide that a GPU needs longer for it than a CPU for its launches.
    "405b-4layer": Shape(layers=4, width=16384, heads=128, kv_heads=8, inner=53248, vocab=128256),
}
_LONGEST, _PAGE = 512, 16
_STAMPS = 35
"""SO_TIMESTAMPNS of Linux, which Python's socket does not name."""
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Streamed(Running):
    """A request whose every token is sent as soon as it is there."""

    told: Path | None = None
    """Where the times of each are kept."""

    def __init__(self, demand: Demand, tokens: list[int], peer: socket.socket) -> None:
        super().__init__(demand, tokens)
        self.peer = peer
        _sent(peer, _HEAD)

    def add(self, token: int, margin: float, at: float) -> None:
        super().add(token, margin, at)
        events = _event({"choices": [{"delta": {"content": f" t{token}"}}]})
        if self.done:
            usage = {"prompt_tokens": self.demand.prompt_tokens, "completion_tokens": len(self.times)}
            # This engine has no prefix cache.
            usage |= {"prompt_tokens_details": {"cached_tokens": 0}}
            events += _event({"choices": [{"delta": {}, "finish_reason": "length"}], "usage": usage})
            events += b"data: [DONE]\n\n"
        _sent(self.peer, events)
        if self.done:
            self.peer.close()
            if self.told is not None:
                with self.told.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([self.times[0] - self.demand.at, self.times[-1] - self.demand.at]) + "\n")


class Connections:
    """The requests that come over HTTP, one a connection, for ever."""

    more = True

    def __init__(self, port: int, vocab: int) -> None:
        self._vocab, self._number = vocab, 0
        self._open = socket.create_server(("127.0.0.1", port), backlog=512)
        # The kernel says when a request came, whatever was computed then; connections inherit it.
        self._open.setsockopt(socket.SOL_SOCKET, _STAMPS, 1)
        self._open.setblocking(False)
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._open, selectors.EVENT_READ)
        self._read: dict[socket.socket, bytes] = {}

    def begin(self) -> float:
        """Now."""
        self._began = time.perf_counter()
        return self._began

    def due(self, now: float) -> list[Running]:
        """Those whose last byte has come."""
        return self._come(0.0)

    def wait(self, now: float, until: float | None) -> None:
        """Sleep until something comes; it is read by ``due``."""
        self._ready.select(None if until is None else max(0.0, until - now))

    def _come(self, seconds: float) -> list[Running]:
        found: list[Running] = []
        while ready := self._ready.select(seconds):
            for key, _ in ready:
                if key.fileobj is self._open:
                    peer, _ = self._open.accept()
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._ready.register(peer, selectors.EVENT_READ)
                    self._read[peer] = b""
                else:
                    found += self._take(key.fileobj)  # type: ignore[arg-type]
        return found

    def _take(self, peer: socket.socket) -> list[Running]:
        """What a connection sent; the request, once it is whole."""
        stamps: list[tuple[int, int, bytes]] = []
        try:
            new, stamps, _, _ = peer.recvmsg(1 << 16, 64)
        except OSError:
            new = b""
        self._read[peer] += new
        head, end, body = self._read[peer].partition(b"\r\n\r\n")
        lines = head.lower().splitlines()
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if new and (not end or len(body) < length):
            return []
        self._ready.unregister(peer)
        del self._read[peer]
        if not new:
            peer.close()
            return []
        if not head.startswith(b"POST"):
            return self._told(peer, head.split()[1].decode())
        asked = json.loads(body)
        words = _text(asked["messages"][0]["content"]).split()
        tokens = [zlib.crc32(word.encode()) % self._vocab for word in words]
        came = time.perf_counter() - self._began - _age(stamps)
        most = asked.get("max_tokens") or asked["max_completion_tokens"]
        demand = Demand(self._number, came, len(tokens), most)
        self._number += 1
        return [Streamed(demand, tokens, peer)]

    @staticmethod
    def _told(peer: socket.socket, path: str) -> list[Running]:
        bodies = {"/health": {}, "/v1/models": {"data": [{"id": MODEL}]}}
        status, body = (200, bodies[path]) if path in bodies else (404, {})
        text = json.dumps(body).encode()
        _sent(peer, b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
        peer.close()
        return []


class DelayedEngine(Engine):
    """An engine whose passes take a known share longer."""

    decode_delay = first_delay = 0.0
    _step_began = 0.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._delays: deque[tuple[float, float]] = deque(maxlen=64)
        """Of prompts: from when to when, in the engine's time."""

    def advance(self, rows: Iterable[Running], *, most: int = 0, idle: Sequence[Running] = ()) -> None:
        """One pass, and its delay before its tokens leave."""
        self._going = list(rows)
        super().advance(self._going, most=most, idle=idle)
        self._step_began = self.now

    def wait(self, until: float | None = None) -> None:
        """As the engine waits: what follows is a new step."""
        super().wait(until)
        self._step_began = self.now

    def delayed_pass(self, *args: Any) -> Any:
        """A pass, then nothing until the delay is over."""
        came = [one.demand.at for one in self._going if one.missing > 1]
        found = one_pass(*args)
        began = self.now
        delay = fmean(map(self._first_delay_of, came)) if came else self.decode_delay * (began - self._step_began)
        while self.now < began + delay:
            pass
        if came:
            self._delays.append((began, self.now))
        return found

    def _first_delay_of(self, came: float) -> float:
        """What is missing of the share, of which others' delays have been a part since the request came."""
        others = sum(max(0.0, end - max(begin, came)) for begin, end in self._delays)
        return max(0.0, self.first_delay * (self.now - came - others) - others)


def _age(stamps: Sequence[tuple[int, int, bytes]]) -> float:
    """Seconds since the kernel had what was read; 0 where it does not say."""
    for _, kind, data in stamps:
        if kind == _STAMPS:
            whole, nanoseconds = struct.unpack("qq", data)
            return max(0.0, time.time() - whole - 1e-9 * nanoseconds)
    return 0.0


def _text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else " ".join(part["text"] for part in content)


def _event(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _sent(peer: socket.socket, data: bytes) -> None:
    """Sent, unless the other end has gone."""
    with contextlib.suppress(OSError):
        peer.sendall(data)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--preset", choices=sorted(SHAPES), default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--slots", type=int, default=16, help="requests in the batch at most")
    parser.add_argument("--decode-delay", type=float, default=0.0)
    parser.add_argument("--first-delay", type=float, default=0.0)
    parser.add_argument("--times", type=Path)
    return parser.parse_args()


def main() -> None:
    """Serve until the process is ended."""
    asked = _options()
    Streamed.told = asked.times
    torch.set_num_threads(1)
    shape = SHAPES[asked.preset]
    model = draw(shape, seed=0, max_tokens=_LONGEST, device=asked.device)
    pool = PagePool(shape, pages=asked.slots * (_LONGEST // _PAGE), page=_PAGE, device=asked.device)
    engine = DelayedEngine(model, pool, ContinuousBatching(asked.slots), fifo, everyone)
    engine.decode_delay, engine.first_delay = asked.decode_delay, asked.first_delay
    engine_module.one_pass = engine.delayed_pass
    connections = Connections(asked.port, shape.vocab)
    print(f"serving on port {asked.port}", flush=True)
    with torch.inference_mode():
        engine.serve(connections)


if __name__ == "__main__":
    main()
