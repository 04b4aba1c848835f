"""The worker's end of its pipes."""

import os

import pytest

from aiperf.protocol.messages import CloseRequest, FailureReply, FirstIterationRequest, ReadyReply
from aiperf.protocol.wire import ProtocolError, decode, encode
from aiperf.worker.channel import Channel


@pytest.fixture
def ends():
    to_worker, to_parent = os.pipe(), os.pipe()
    for fd in (to_worker[0], to_parent[1]):
        os.set_inheritable(fd, True)
    channel = Channel(to_worker[0], to_parent[1])
    yield channel, to_worker[1], os.fdopen(to_parent[0], encoding="utf-8")
    channel._reader.close()
    channel._writer.close()


def test_requests_and_replies_cross_the_pipe_as_lines(ends):
    channel, requests, replies = ends
    sent = [FirstIterationRequest("bé"), CloseRequest()]
    os.write(requests, "".join(map(encode, sent)).encode())
    assert [channel.receive(), channel.receive()] == sent
    channel.send(FailureReply(message="two\nlines"))
    assert decode(replies.readline(), FailureReply).message == "two\nlines"
    os.close(requests)
    assert channel.receive() is None
    replies.close()
    with pytest.raises(BrokenPipeError):
        channel.send(ReadyReply())
    with open(os.devnull, "wb") as nowhere:
        # What could not be written is flushed once more when the fixture closes the channel.
        os.dup2(nowhere.fileno(), channel._writer.fileno())


def test_a_line_that_holds_no_request_is_an_error_and_the_next_one_is_read(ends):
    channel, requests, replies = ends
    os.write(requests, f"dance\n{encode(CloseRequest())}".encode())
    with pytest.raises(ProtocolError, match="not JSON"):
        channel.receive()
    assert channel.receive() == CloseRequest()
    os.close(requests)
    replies.close()


def test_a_sides_own_children_do_not_inherit_the_pipe(ends):
    channel, requests, replies = ends
    assert not os.get_inheritable(channel._reader.fileno())
    assert not os.get_inheritable(channel._writer.fileno())
    os.close(requests)
    replies.close()
