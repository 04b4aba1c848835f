"""Two ways in which a loop reports its batches: a line of a text log for each, or counters behind a metrics endpoint.

What must not live here: the loop and its work (events.py), the process that scrapes (scraper.py).
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from aiperf.workloads.shared.child import Helper

KINDS = ("prefill", "decode")
NAMES = ("batches", "requests", "tokens")
Totals = dict[tuple[str, str], int]
"""(name, kind) -> sum over the batches of a step."""

_WORDS = "batch kind=%s requests=%d tokens=%d"
_LINE = re.compile(r" DEBUG engine batch kind=(\w+) requests=(\d+) tokens=(\d+)$")
_SAMPLE = re.compile(r'^(\w+)_total\{kind="(\w+)"\} (\d+)$', re.MULTILINE)
_SCRAPER = Path(__file__).with_name("scraper.py")


def _logger(path: Path, level: int) -> tuple[logging.Logger, logging.FileHandler]:
    """A logger of its own, which writes to ``path`` as basicConfig would: with the time, flushed after each line."""
    handler = logging.FileHandler(path, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.Logger("engine", level)
    logger.addHandler(handler)
    return logger, handler


class LogReporter:
    """A debug line for each batch, in a file that begins anew with every step."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "batches.log"
        self.log, self._handler = _logger(self.path, logging.DEBUG)

    def begin(self) -> None:
        """Empty the log."""
        stream = self._handler.stream
        assert stream is not None
        stream.seek(0)
        stream.truncate()

    def report(self, kind: str, requests: int, tokens: int) -> None:
        """Log a batch."""
        self.log.debug(_WORDS, kind, requests, tokens)

    def ask(self) -> None:
        """Nothing reads a log while it is written."""

    hear = ask

    def _lines(self) -> Iterator[re.Match[str]]:
        with self.path.open(encoding="utf-8") as lines:
            yield from filter(None, (_LINE.search(line) for line in lines))

    def totals(self) -> Totals:
        """Sums over the lines of the log since ``begin``."""
        found = dict.fromkeys(((name, kind) for name in NAMES for kind in KINDS), 0)
        for line in self._lines():
            kind, requests, tokens = line.groups()
            for name, amount in zip(NAMES, (1, int(requests), int(tokens)), strict=True):
                found[name, kind] += amount
        return found

    def counters(self) -> dict[str, float]:
        """Lines and bytes in the log, and scrapes of a step: none."""
        lines, size = sum(1 for _ in self._lines()), self.path.stat().st_size
        return {"log_lines": float(lines), "log_bytes": float(size), "scrapes": 0.0}

    def close(self) -> None:
        """Close the log."""
        self._handler.close()


class CounterReporter:
    """Counters of this process, which a thread exports over HTTP; debug lines are off. Another process scrapes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "batches.log"
        self.log, self._handler = _logger(self.path, logging.INFO)
        self._values = dict.fromkeys(((name, kind) for name in NAMES for kind in KINDS), 0)
        self._lock = threading.Lock()
        self._begun, self._scrapes = dict(self._values), 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler_class())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._scraper = Helper(_SCRAPER, [f"http://127.0.0.1:{self._server.server_port}/metrics"])

    def _handler_class(self) -> type[BaseHTTPRequestHandler]:
        exported = self.exported

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = exported().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                """Scrapes are not logged."""

        return Page

    def exported(self) -> str:
        """The counters in the text format of Prometheus."""
        with self._lock:
            values = list(self._values.items())
        return "".join(f'{name}_total{{kind="{kind}"}} {value}\n' for (name, kind), value in values)

    def _add(self, name: str, kind: str, amount: int) -> None:
        with self._lock:
            self._values[name, kind] += amount

    def begin(self) -> None:
        """Remember what the endpoint says: its counters only grow."""
        self._begun, self._scrapes = self._scraped(), 0

    def report(self, kind: str, requests: int, tokens: int) -> None:
        """Count a batch; the debug line stays in the code."""
        self._add("batches", kind, 1)
        self._add("requests", kind, requests)
        self._add("tokens", kind, tokens)
        self.log.debug(_WORDS, kind, requests, tokens)

    def ask(self) -> None:
        """Let the other process scrape, while the loop goes on."""
        self._scraper.send()

    def hear(self) -> None:
        """Wait until it has."""
        self._parsed(self._scraper.answer())
        self._scrapes += 1

    def _scraped(self) -> Totals:
        self._scraper.send()
        return self._parsed(self._scraper.answer())

    @staticmethod
    def _parsed(answer: bytes) -> Totals:
        found = _SAMPLE.findall(json.loads(answer))
        return {(name, kind): int(value) for name, kind, value in found}

    def totals(self) -> Totals:
        """What the endpoint's counters have grown by since ``begin``."""
        return {key: value - self._begun[key] for key, value in self._scraped().items()}

    def counters(self) -> dict[str, float]:
        """Lines and bytes in the log, and scrapes of a step."""
        text = self.path.read_text(encoding="utf-8")
        return {"log_lines": float(text.count("\n")), "log_bytes": float(len(text)), "scrapes": float(self._scrapes)}

    def close(self) -> None:
        """End the scraper, then the endpoint."""
        self._scraper.leave()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._handler.close()
