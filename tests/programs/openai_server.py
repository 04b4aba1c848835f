"""A small server of the OpenAI protocol that serves at a known rate: --service seconds an answer, --slots at once.
With ``--exponential --slots 1`` it is an M/M/1 queue where requests come as a Poisson process.

Its ``--fault`` options are what real servers do wrong. Run it by its path; it needs Python only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import random
import sys
from collections.abc import AsyncIterator
from typing import Any


class Engine:
    """Slots, a prefix cache of whole prompts, and a count of requests."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.slots = asked, asyncio.Semaphore(asked.slots)
        self.seen: set[str] = set()
        self.first = ""
        self.free_at = 0.0
        self.hits = self.queries = self.requests = self.running = self.waiting = 0

    @property
    def service(self) -> float:
        """Seconds that the next answer takes."""
        return random.expovariate(1 / self.asked.service) if self.asked.exponential else self.asked.service

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """A place in the batch, once there is one."""
        self.waiting += 1
        async with self.slots:
            self.waiting -= 1
            self.running += 1
            try:
                yield
            finally:
                self.running -= 1

    def look_up(self, prompt: str) -> int:
        """Words of the prompt that are in the cache: all of them or none."""
        found = len(prompt.split()) if prompt in self.seen else 0
        self.queries += len(prompt.split())
        self.hits += found
        self.seen.add(prompt)
        return found

    def is_faulty(self) -> bool:
        """Whether this request, counted from 1, meets the fault."""
        self.requests += 1
        return self.requests >= self.asked.after


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Engine) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            path = head.split()[1].decode()
            length = next(
                (int(line[15:]) for line in head.splitlines() if line.lower().startswith(b"content-length:")), 0
            )
            body = await reader.readexactly(length)
            if not await _answer(path, json.loads(body) if body.strip() else {}, reader, writer, engine):
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _answer(
    path: str, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Engine
) -> bool:
    """Answer one request; whether the connection stays."""
    asked = engine.asked
    if path == "/health":
        return _whole(writer, 503 if asked.fault == "never_ready" else 200, {})
    if path == "/v1/models":
        return _whole(writer, 200, {"data": [{"permission": [{"id": "modelperm-1"}], "id": asked.model}]})
    if path == "/metrics":
        counted = {
            "prefix_cache_hits_total": engine.hits, "prefix_cache_queries_total": engine.queries,
            "num_requests_running": engine.running, "num_requests_waiting": engine.waiting,
        }  # fmt: skip
        lines = (f'vllm:{name}{{engine="0"}} {n}' for name, n in counted.items())
        return _whole(writer, 200, "\n".join(lines) + "\n") if asked.metrics else _whole(writer, 404, {})
    if path == "/reset_prefix_cache" and asked.metrics and not asked.no_flush:
        engine.seen.clear()
        return _whole(writer, 200, {})
    if not path.endswith("completions"):
        return _whole(writer, 404, {})
    if body["model"] != asked.model:
        return _whole(writer, 404, {"error": {"message": f"The model {body['model']} does not exist."}})
    prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
    if isinstance(prompt, list):
        prompt = " ".join(part["text"] for part in prompt)
    if asked.strict and "stream_options" in body:
        return _whole(writer, 422, {"detail": "Unexpected fields in the request: stream_options"})
    tokens = body.get("max_tokens") or body["max_completion_tokens"]
    usage: dict[str, Any] = {
        "completion_tokens": round(tokens * asked.length),
        "prompt_tokens": len(prompt.split()),
    }
    cached = engine.look_up(prompt)
    if asked.cached_tokens and body.get("stream_options"):
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    await asyncio.sleep(asked.prefill * (len(prompt.split()) - cached))
    return await _stream(prompt, usage, reader, writer, engine)


async def _stream(
    prompt: str, usage: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Engine
) -> bool:
    asked = engine.asked
    fault = asked.fault if engine.is_faulty() else ""
    if fault == "die":
        print("out of cache blocks", file=sys.stderr, flush=True)
        os._exit(3)
    if fault in ("500", "503"):
        return _whole(writer, int(fault), {"error": {"message": "the engine gave up"}})
    if fault == "hang":
        await asyncio.sleep(3600)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    if fault == "garbage":
        writer.write(b"<html>\n<p>an error page\n\n")
        return False
    if fault == "reports":
        _event(writer, {"error": {"message": "the engine gave up"}})
        return False
    if fault == "unescaped":
        writer.write(b'data: {"error": "out of cache\nblocks"}\n\n')
        return False
    engine.first = engine.first or prompt
    words = (engine.first if fault == "mixed_up" else prompt).split()[::-1] or ["empty"]
    many = usage["completion_tokens"]
    loop = asyncio.get_running_loop()
    came = loop.time()
    async with engine.slot():
        if asked.abort and reader.at_eof():
            return False
        # By the clock, so that what a busy host adds to one sleep does not add up: the next one begins where this ends.
        begin = max(came, engine.free_at) if asked.slots == 1 else loop.time()
        service = engine.service
        engine.free_at = begin + service
        for place in range(many):
            await asyncio.sleep(begin + service * (place + 1) / many - loop.time())
            if fault == "close_early" and place == many // 2:
                return False
            text = f" {words[place % len(words)]}{asked.says}"
            _event(writer, {"choices": [{"delta": {"content": text}}]})
            await writer.drain()
    last: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "length"}], "usage": usage}
    if asked.accepted:
        last["timings"] = {"predicted_n": many, "draft_n": 2 * asked.accepted, "draft_n_accepted": asked.accepted}
    _event(writer, last)
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
    return False


def _event(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    writer.write(b"data: " + json.dumps({"object": "chat.completion.chunk", **event}).encode() + b"\n\n")


def _whole(writer: asyncio.StreamWriter, status: int, body: Any) -> bool:
    text = (body if isinstance(body, str) else json.dumps(body)).encode()
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--service", type=float, default=0.01)
    parser.add_argument("--exponential", action="store_true", help="draw each service; --service is the mean")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--model", default="small")
    parser.add_argument("--fault", default="")
    parser.add_argument("--after", type=int, default=1, help="the first request that meets the fault")
    parser.add_argument("--length", type=float, default=1.0, help="tokens given for each that was asked for")
    parser.add_argument("--says", default="", help="what is added to every token")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--no-flush", action="store_true")
    parser.add_argument("--prefill", type=float, default=0.0, help="seconds a word of a prompt that is not cached")
    parser.add_argument("--cached-tokens", action="store_true", help="say in answers what was cached")
    parser.add_argument("--accepted", type=int, default=0, help="drafted tokens of an answer, as llama.cpp says it")
    parser.add_argument("--abort", action="store_true", help="leave a waiting request whose client has gone")
    parser.add_argument("--strict", action="store_true", help="refuse requests with stream_options")
    parser.add_argument("--exit", type=int, default=0, help="end at once with this status")
    parser.add_argument("--device", default="", help="a file of which one server at a time has all the memory")
    parser.add_argument("--patient", action="store_true", help="wait until that memory is free")
    return parser.parse_args()


async def _main(asked: argparse.Namespace) -> None:
    engine = Engine(asked)
    server = await asyncio.start_server(lambda r, w: _serve(r, w, engine), "127.0.0.1", asked.port)
    print(f"serving on port {asked.port}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    options = _options()
    if options.exit:
        print("no such checkpoint", file=sys.stderr)
        sys.exit(options.exit)
    if options.device:
        device = open(options.device, "a")  # noqa: SIM115 - held until this process ends
        try:
            fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("out of memory on the device", file=sys.stderr, flush=True)
            if not options.patient:
                sys.exit(1)
            fcntl.flock(device, fcntl.LOCK_EX)
    asyncio.run(_main(options))
