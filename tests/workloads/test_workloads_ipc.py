"""ipc.transfer: what arrives is what was sent, in order, over every transport; a rest under way is not forgotten."""

from __future__ import annotations

import hashlib
import threading

import numpy as np
import pytest
from cpu_pairs import audit, run

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.ipc import sender
from aiperf.workloads.ipc import workload as ipc
from aiperf.workloads.shared.child import HelperEnded


@pytest.fixture
def side(tmp_path):
    made = []

    def make(**params):
        made.append(ipc.transfer(Context(seed=3, scratch=tmp_path), **params))
        return made[-1]

    yield make
    for workload in made:
        workload.close()


@pytest.mark.parametrize(
    "params",
    [
        {"transport": "tcp", "messages": 3, "size": 70000},
        {"transport": "file", "size": 200000},
        {"transport": "shm", "size": 200000},
        {"messages": 7, "size": 16, "flush_every": 3},
        {"messages": 3, "size": 64, "exchange": "write_write_read"},
    ],
)
def test_what_arrives_is_what_was_sent(side, params):
    workload = side(**params)
    run(workload)
    first = audit(workload, seed=5)["received"]
    assert np.array_equal(first, workload.inputs()["payload"])
    assert not np.array_equal(first, audit(workload, seed=6)["received"])


@pytest.mark.parametrize("flush_every", [0, 1, 3])
def test_a_message_that_is_made_is_a_digest_keyed_with_the_one_before(side, flush_every):
    workload = side(messages=7, size=16, flush_every=flush_every, make=1000)
    found = audit(workload, seed=5)["received"]
    payload, token, expected = workload.inputs()["payload"].tobytes(), b"", b""
    for start in range(0, len(payload), 16):
        worked = payload[start : start + 16] + (bytes(range(256)) * 4)[: 1000 - 16]
        token = hashlib.blake2b(worked, digest_size=16, key=token).digest()
        expected += token
    assert found.tobytes() == expected
    assert np.array_equal(found, workload.reference()["received"])
    assert not np.array_equal(found, audit(workload, seed=6)["received"])


def test_the_sender_computes_in_its_own_process_at_every_step(side):
    workload = side(messages=10, size=16, make=1 << 20)
    stat = f"/proc/{workload.step.__self__.child.pid}/stat"

    def ticks():
        with open(stat, encoding="ascii") as file:
            return int(file.read().rsplit(")", 1)[1].split()[11])

    before = ticks()
    for _ in range(10):
        workload.step()
    assert ticks() > before, "a hundred digests of 1 MiB cost the sender CPU time"


@pytest.mark.long
def test_a_step_that_ends_with_the_first_message_takes_the_rest_before_the_next(side):
    streaming = side(messages=10, size=16, flush_every=2, until="first", make=1 << 23)
    whole = side(messages=10, size=16, flush_every=0, until="first", make=1 << 20)
    for workload in (streaming, whole):
        for seed in (4, 5):
            found = audit(workload, seed=seed)["received"]
            assert np.array_equal(found, workload.reference()["received"])
    receiver = streaming.step.__self__
    assert 0 < receiver.owed <= 8 * 16, "two messages came together, others are still to come"
    assert whole.step.__self__.owed == 0
    streaming.prepare()
    assert receiver.owed == 0
    assert np.array_equal(receiver.received, receiver.sent)


@pytest.mark.long
def test_a_rest_that_differs_from_what_was_sent_is_an_error(side):
    # So many that the first of them is not read together with the last, however late this process wakes up.
    workload = side(messages=256, size=16, until="first", make=1 << 20)
    assert "comes after the message" in workload.done_outside
    assert side(messages=4, size=16).done_outside == ""
    run(workload)
    receiver = workload.step.__self__
    receiver.sent = receiver.sent.copy()
    receiver.sent[-1] ^= 1
    with pytest.raises(RuntimeError, match="differs"):
        workload.prepare()


def test_a_sender_that_died_is_an_error_not_a_hang(side):
    workload = side(messages=2, size=1000)
    child = workload.step.__self__.child
    child.kill()
    child.wait()
    with pytest.raises(HelperEnded, match="ended with status -9"):
        workload.step()


def test_the_sender_ends_with_the_side(tmp_path):
    workload = ipc.transfer(Context(seed=3, scratch=tmp_path), transport="file", size=4096)
    run(workload)
    child = workload.step.__self__.child
    workload.close()
    assert child.returncode == 0
    assert not list(tmp_path.iterdir())


def test_nagle_is_read_back_and_writes_are_counted(side):
    assert side(size=64, nodelay=False).facts["nodelay"] == "off"
    assert side(size=64).facts["nodelay"] == "on"
    assert side(messages=9, size=4, flush_every=2).counters()["socket_writes"] == 5
    assert side(messages=9, size=4, flush_every=0).counters()["socket_writes"] == 1
    assert side(messages=9, size=4, exchange="write_write_read").counters()["socket_writes"] == 18
    assert set(side(size=64, transport="shm").counters().values()) == {0}


def test_socket_buffers_of_both_ends_are_those_asked_for_and_small_ones_take_more_reads(side):
    small, large = (side(size=4 << 20, socket_buffer=size) for size in (16384, 131072))
    kernels = side(size=4 << 20)
    for workload in (small, large, kernels):
        audit(workload, seed=5)
        run(workload)
        assert np.array_equal(workload.outputs()["received"], workload.inputs()["payload"])
    assert small.facts["first_send_buffer_bytes"] == small.counters()["receive_buffer_bytes"] == 2 * 16384
    assert large.facts["first_send_buffer_bytes"] == large.counters()["receive_buffer_bytes"] == 2 * 131072
    assert kernels.counters()["receive_buffer_bytes"] > 2 * 16384
    # what one read finds is no more than the buffer held, and it held no more than was asked for
    assert small.counters()["socket_reads"] >= (4 << 20) / (2 * 16384)
    assert 0 < large.counters()["socket_reads"] < small.counters()["socket_reads"]


def test_what_was_read_after_a_first_message_is_not_counted_with_it(side):
    workload = side(messages=64, size=16, until="first", make=1 << 20)
    run(workload)
    reads = workload.counters()["socket_reads"]
    assert 0 < reads < 16
    workload.prepare()
    assert workload.counters()["socket_reads"] == reads


def test_a_buffer_that_the_kernel_does_not_give_skips_the_side_and_ends_the_sender(side, monkeypatch):
    started, plain = [], ipc.Helper

    def watched(*args, **options):
        started.append(plain(*args, **options))
        return started[-1]

    monkeypatch.setattr(ipc, "Helper", watched)
    with pytest.raises(SkipSide, match=r"1073741823 bytes: the kernel gave \d+, see net.core.wmem_max"):
        side(size=64, socket_buffer=(1 << 30) - 1)
    assert started[0].returncode == 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"messages": 0}, "1 or more"),
        ({"transport": "shm", "make": 64}, "transport tcp"),
        ({"transport": "file", "socket_buffer": 4096}, "transport tcp"),
        ({"socket_buffer": -1}, "or more"),
        ({"exchange": "write_write_read", "size": 1}, "two parts"),
        ({"make": 32}, "a digest"),
        ({"make": 4096, "size": 65}, "a digest"),
        ({"exchange": "write_write_read", "make": 64}, "with until, make"),
        ({"exchange": "write_write_read", "until": "first"}, "with until"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(side, params, message):
    with pytest.raises(ValueError, match=message):
        side(**{"size": 64, **params})


CONFIRMED = {"messages": 9, "size": 16, "make": 4096, "exchange": "confirmed", "take": 2048}


@pytest.mark.parametrize("flush_every", [1, 4, 0])
def test_a_thread_behind_a_queue_sends_the_same_bytes_in_the_same_order(side, flush_every):
    inline, queued = (side(**CONFIRMED, flush_every=flush_every, queue=bound) for bound in (0, 2))
    for seed in (5, 6):
        found = [audit(workload, seed=seed)["received"] for workload in (inline, queued)]
        assert np.array_equal(*found)
        assert np.array_equal(found[0], queued.reference()["received"])
    assert "queue of 2" in queued.facts["written_by"]


def test_a_queue_alone_needs_no_confirmation(side):
    workload = side(messages=7, size=16, make=1000, queue=3)
    run(workload)
    assert np.array_equal(audit(workload, seed=5)["received"], workload.reference()["received"])


def test_whoever_makes_messages_waits_where_a_queue_is_full_and_for_all_of_it_in_the_end():
    held, sent = threading.Event(), []

    def send(message):
        held.wait(10)
        sent.append(message)

    put, drain = sender._queued(send, 2)
    for number in range(3):  # one is being sent, two wait
        put(bytes([number]))
    more = threading.Thread(target=put, args=(b"3",))
    more.start()
    more.join(0.1)
    assert more.is_alive(), "the queue took more than its bound"
    held.set()
    more.join()
    drain()
    assert sent == [b"\0", b"\1", b"\2", b"3"]


def test_what_the_sending_thread_meets_is_raised_by_whoever_waits_for_it():
    def send(message):
        raise ConnectionError("gone")

    put, drain = sender._queued(send, 1)
    for _ in range(4):
        put(b"x")
    with pytest.raises(ConnectionError, match="gone"):
        drain()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"queue": 2}, "messages that are made"),
        ({"exchange": "confirmed", "make": 64, "size": 16}, "needs take"),
        ({"take": 64, "make": 64, "size": 16}, "needs take"),
        ({**CONFIRMED, "until": "first"}, "takes all messages"),
        ({"transport": "file", "queue": 2, "make": 64, "size": 16}, "need transport tcp"),
    ],
)
def test_queues_and_confirmations_that_cannot_be_are_refused(side, params, message):
    with pytest.raises(ValueError, match=message):
        side(**params)


@pytest.mark.parametrize("transport", ["tcp", pytest.param("file", marks=pytest.mark.long)])
def test_an_array_that_is_handed_over_is_the_other_process_s(transport, tmp_path):
    workload = ipc.handover(Context(seed=3, scratch=tmp_path), transport=transport, size=300_000)
    try:
        run(workload)
        first = audit(workload, seed=5)["received"]
        assert np.array_equal(first, workload.inputs()["payload"])
        assert not np.array_equal(first, audit(workload, seed=6)["received"])
    finally:
        workload.close()
    assert not list(tmp_path.iterdir())


def test_the_memory_of_a_gpu_is_not_opened_without_one_nor_odd_bytes_handed_over():
    with pytest.raises(SkipSide, match="memory of a GPU"):
        ipc.handover(Context(), transport="cuda_ipc")
    with pytest.raises(ValueError, match="whole fours"):
        ipc.handover(Context(), size=10)
