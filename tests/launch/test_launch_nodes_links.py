"""The links between the nodes of a job: who does not know the token gets nowhere, and nothing waits for it."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import PATIENCE_S

from aiperf.errors import UserError
from aiperf.launch.nodes.links import Meeting, NotOurs, admit, interface_of, interfaces, join, sees_lock


def meet(token: str, told: str, hello=None):
    """Both ends of a link: the link and hello at the head, and what ``join`` gave or raised."""
    listener = socket.create_server(("127.0.0.1", 0))
    found = {}

    def head() -> None:
        connection, _ = listener.accept()
        try:
            found["head"] = admit(connection, token)
        except OSError as error:
            found["head"] = error
            connection.close()

    thread = threading.Thread(target=head)
    thread.start()
    try:
        found["node"] = join(listener.getsockname(), told, hello or {"role": "node"})
    except OSError as error:
        found["node"] = error
    thread.join(PATIENCE_S)
    listener.close()
    return found["head"], found["node"]


def test_messages_pass_both_ways_between_those_who_know_the_token():
    (link, said), node = meet("secret", "secret", {"role": "node", "rank": 4})
    assert said["rank"] == 4
    node.send({"op": "x", "text": "two\nlines"})
    node.send({"op": "y"})
    assert [link.receive(1), link.receive(1)] == [{"op": "x", "text": "two\nlines"}, {"op": "y"}]
    link.send({"beat": 1})
    assert node.receive(1) == {"beat": 1}
    node.close()
    with pytest.raises(ConnectionResetError):
        link.receive(1)
    link.close()


def test_a_node_without_the_token_is_refused():
    head, node = meet("secret", "guess")
    assert isinstance(head, NotOurs)
    assert isinstance(node, OSError)


def test_a_node_refuses_a_head_that_does_not_know_the_token():
    listener = socket.create_server(("127.0.0.1", 0))

    def pretend() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            connection.sendall(b'{"nonce": "0"}\n')
            connection.recv(4096)
            connection.sendall(b'{"proof": "0"}\n')

    threading.Thread(target=pretend, daemon=True).start()
    with pytest.raises(NotOurs):
        join(listener.getsockname(), "secret", {"role": "node"})
    listener.close()


def test_only_its_user_can_read_where_a_job_meets(tmp_path):
    file, meeting = tmp_path / "a" / "job.json", Meeting("n1", ("10.0.0.1",), 4711, "secret")
    with meeting.written(file):
        assert file.stat().st_mode & 0o777 == 0o600
        assert Meeting.read(file) == meeting
        assert [path.name for path in file.parent.iterdir()] == ["job.json"]
    assert list(file.parent.iterdir()) == []


def test_the_file_of_a_meeting_is_locked_for_others_from_the_moment_they_see_it(tmp_path, monkeypatch):
    file, replaced = tmp_path / "job.json", Path.replace

    def replace(path: Path, target: Path) -> Path:
        assert sees_lock(path), "a node that reads the file next finds it locked"
        return replaced(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    with Meeting("n1", ("10.0.0.1",), 4711, "secret").written(file):
        assert sees_lock(file)
    file.write_text("")
    assert not sees_lock(file)


@pytest.mark.parametrize(
    ("function", "found", "message"),
    [
        ("fcntl.flock", OSError(errno.ENOSYS, "Function not implemented"), "no file locks: Function not implemented"),
        ("os.fstat", SimpleNamespace(st_mode=0o100644), "ignores permissions: others could read the token"),
    ],
)
def test_a_folder_that_has_no_locks_or_shows_the_token_is_refused_and_keeps_nothing(
    tmp_path, monkeypatch, function, found, message
):
    def called(*_: object) -> object:
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(f"aiperf.launch.nodes.links.{function}", called)
    with (
        pytest.raises(UserError, match=message) as caught,
        Meeting("n1", ("10.0.0.1",), 4711, "secret").written(tmp_path / "job.json"),
    ):
        pass
    monkeypatch.undo()
    assert "--results" in caught.value.faults[0].hint
    assert list(tmp_path.iterdir()) == []


def test_a_meeting_that_is_not_there_or_not_whole_is_none(tmp_path):
    (tmp_path / "half").write_text('{"node": "n')
    assert Meeting.read(tmp_path / "half") is None
    assert Meeting.read(tmp_path / "absent") is None


def test_loopback_is_named_by_its_address_and_comes_last():
    assert interface_of("127.0.0.1") == "lo"
    assert list(interfaces())[-1][0] == "lo"
    assert interface_of("192.0.2.250") == ""
