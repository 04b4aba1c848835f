"""The comments of a pull request or merge request, as GitHub's and GitLab's API serve them, on this machine.

What must not live here: tests.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Forge(ThreadingHTTPServer):
    """Keeps comments and what was asked; refuses whoever has another token."""

    def __init__(self, *, token: str, comments: list[dict]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        self.comments = comments
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        """Root of the API."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Forge

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _reply(self, code: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _serve(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        self.server.asked.append((self.command, path))
        given = (self.headers.get("Authorization", "").removeprefix("Bearer "), self.headers.get("PRIVATE-TOKEN", ""))
        if self.server.token not in given:
            self._reply(403, {"message": "Resource not accessible by integration"})
        elif self.command == "GET":
            size, page = int(query["per_page"][0]), int(query["page"][0])
            self._reply(200, self.server.comments[(page - 1) * size : page * size])
        elif self.command == "POST":
            self.server.comments.append({"id": 1000 + len(self.server.comments), **body})
            self._reply(201, self.server.comments[-1])
        else:
            (found,) = [one for one in self.server.comments if str(one["id"]) == path.rpartition("/")[2]]
            found.update(body)
            self._reply(200, found)

    do_GET = do_POST = do_PATCH = do_PUT = _serve


@contextmanager
def forge(*, token: str = "secret", others: int = 0) -> Iterator[Forge]:
    """A forge whose request has ``others`` comments of people."""
    comments = [{"id": number, "body": f"comment {number} about aiperf"} for number in range(others)]
    with Forge(token=token, comments=comments) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
