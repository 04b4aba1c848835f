"""The object store of storage.read: what its server answers, and that a broken one is an error and leaves nothing."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from cpu_pairs import finish
from patience import PATIENCE_S

from aiperf.workloads.contract import Context
from aiperf.workloads.storage import range_client, range_server
from aiperf.workloads.storage import workload as storage

SIZE = 1 << 20


def _side(folder, **params):
    return storage.read(Context(seed=3, scratch=folder, shared_scratch=folder), source="http", bytes=SIZE, **params)


@pytest.fixture
def ask(tmp_path):
    """Sends bytes to the server's half of a connection, in pieces, and returns all that it answers."""
    (tmp_path / "object").write_bytes(bytes(range(100)))
    file = os.open(tmp_path / "object", os.O_RDONLY)

    def said(*pieces):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            mine = socket.create_connection(listener.getsockname())
            its, _ = listener.accept()
        serving = threading.Thread(target=range_server.serve, args=(its, file, 100))
        serving.start()
        with mine:
            mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                mine.sendall(piece)
            mine.shutdown(socket.SHUT_WR)
            found = b"".join(iter(lambda: mine.recv(4096), b""))
        serving.join(timeout=PATIENCE_S)
        assert not serving.is_alive()
        return found

    yield said
    os.close(file)


def test_a_range_is_answered_with_its_bytes_and_with_where_they_are(ask):
    head, _, body = ask(b"GET /set HTTP/1.1\r\nHost: a\r\nRange: bytes=10-12\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 206 ")
    assert b"Content-Range: bytes 10-12/100" in head
    assert b"Content-Length: 3" in head
    assert body == bytes([10, 11, 12])


def test_requests_that_come_together_or_in_pieces_are_answered_one_by_one(ask):
    one = b"GET / HTTP/1.1\r\nrange:bytes=%d-%d\r\n\r\n"
    found = ask(one % (0, 0) + one % (98, 99) + b"GET / HT", b"TP/1.1\r\nRange: bytes=5-5\r\n\r", b"\n")
    assert [part.partition(b"\r\n\r\n")[2] for part in found.split(b"HTTP/1.1 206")[1:]] == [b"\0", b"bc", b"\5"]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1\r\nRange: bytes=99-100", b"416"),
        (b"GET / HTTP/1.1\r\nRange: bytes=3-2", b"416"),
        (b"PUT / HTTP/1.1", b"405"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_status(ask, request_line, status):
    assert ask(request_line + b"\r\n\r\n").split()[1] == status


def test_the_server_ends_with_the_side(tmp_path, monkeypatch):
    clients = []
    true_client = storage.RangeClient
    monkeypatch.setattr(storage, "RangeClient", lambda *a, **k: clients.append(true_client(*a, **k)) or clients[0])
    side = _side(tmp_path, depth=2)
    assert clients[0].server.poll() is None
    finish(side)
    assert clients[0].server.returncode == 0


def test_every_connection_has_its_share_of_the_requests(tmp_path, monkeypatch):
    side = _side(tmp_path, depth=4, read_size=1 << 16)
    shares = []
    true_get = range_client._get_all
    monkeypatch.setattr(range_client, "_get_all", lambda *a: (shares.append((a[0], len(a[1]))), true_get(*a))[1])
    side.step()
    assert [count for _, count in shares] == [4] * 4
    assert len({line for line, _ in shares}) == 4
    finish(side)


def test_an_object_that_has_become_shorter_fails_the_step(tmp_path):
    side = _side(tmp_path)
    os.truncate(next(tmp_path.rglob("*.bin")), SIZE // 2 + 1)
    with pytest.raises(OSError, match="ends after"):
        side.step()
    finish(side)


def test_an_answer_that_is_not_the_range_fails_the_step(tmp_path):
    side = _side(tmp_path)
    client = side.close.__self__
    with pytest.raises(OSError, match="416"):
        client.read([((memoryview(bytearray(2)),), SIZE - 1, 2)])
    finish(side)
