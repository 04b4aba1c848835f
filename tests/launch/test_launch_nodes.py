"""A job of two nodes, played by two processes of this host as torchrun would start them."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from patience import PATIENCE_S, until

from aiperf import __version__
from aiperf.errors import UserError
from aiperf.host.fingerprint import fingerprint
from aiperf.host.read import read_host
from aiperf.launch.child import StartError
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.guardian import Guardian
from aiperf.launch.nodes.agent import HeadKnows, follow_head
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.nodes.links import Link, Meeting, join, meeting_file
from aiperf.launch.nodes.place import Place
from aiperf.launch.scratch import Scratch
from aiperf.launch.sides import Started
from aiperf.plan.order import PairPlan
from aiperf.records import Case, Side

SCENARIO = """
title: All-reduce over two nodes
why: Both sides are the same.
workload: comm.collective
params: {op: all_reduce, nodes: 2, size: 4KiB}
before: {calls: 1}
after: {calls: 1}
expect: equivalent
check: {rtol: 0.00001}
measure: {max_pairs: 3}
"""
PLACE = Place("torchrun", 0, 0, 2, 2, "n1", "job")


def command(results: Path, rank: int) -> subprocess.Popen[str]:
    scenario = results / "two.yaml"
    scenario.write_text(SCENARIO)
    env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    env |= {"MASTER_ADDR": "h", "MASTER_PORT": str(os.getpid()), "AIPERF_NODE": f"n{rank + 1}"}
    argv = [sys.executable, "-m", "aiperf", "run", str(scenario), "--launcher", "env", "--results", str(results)]
    argv += ["--precision", "quick", "--no-peaks", "--host-check", "off"]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def job(results: Path):
    both = [command(results, rank) for rank in (0, 1)]
    try:
        yield both
    finally:
        for process in both:
            process.kill()
            process.wait()


def record(results: Path) -> tuple[dict, dict]:
    (folder,) = [path.parent for path in results.glob("*/run.json") if not path.parent.is_symlink()]
    return json.loads((folder / "run.json").read_text()), json.loads((folder / "cases" / "two.json").read_text())


def living(marker: str) -> list[str]:
    """Command lines of the processes whose own variables hold ``marker``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().decode().replace("\0", " "))
        except OSError:
            continue
    return [line for line in found if "aiperf.worker" in line]


@pytest.mark.timeout(240)
def test_a_node_that_is_killed_fails_the_case_by_its_name_and_leaves_no_process(tmp_path):
    with job(tmp_path) as (head, agent):
        marker = f"MASTER_PORT={os.getpid()}"
        assert until(lambda: len(living(marker)) >= 4)
        agent.send_signal(signal.SIGKILL)
        head.communicate(timeout=PATIENCE_S)
        # The killed node's guardian ends its ranks.
        assert until(lambda: not living(marker)), living(marker)
    _, case = record(tmp_path)
    assert (head.returncode, case["status"]) == (5, "failed")
    assert "n2" in case["failure"]["message"]


def test_nodes_that_do_not_come_are_told_before_anything_runs(tmp_path):
    with pytest.raises(UserError, match=r"1 of 2 nodes joined within 0\.1 s: n1"), Nodes(PLACE, tmp_path, wait_s=0.1):
        pass
    assert list((tmp_path / ".nodes").iterdir()) == []


def test_a_node_that_does_not_see_the_shared_folder_says_so(tmp_path):
    with pytest.raises(UserError, match=r"node n2 did not find the head within 0\.1 s") as caught:
        follow_head(replace(PLACE, rank=1, node="n2"), tmp_path, read_host(), wait_s=0.1)
    assert "every node shares" in caught.value.faults[0].hint


def test_a_node_that_cannot_reach_the_head_names_it_and_where_it_tried(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with (
        Meeting("n1", ("127.0.0.1",), port, "secret").written(meeting_file(tmp_path, "job")),
        pytest.raises(UserError, match=rf"node n2 cannot reach the head on n1 at 127\.0\.0\.1:{port}"),
    ):
        follow_head(replace(PLACE, rank=1, node="n2"), tmp_path, read_host(), wait_s=0.3)


def test_a_head_that_a_node_cannot_reach_learns_it_through_the_folder_and_says_it_alone(tmp_path, monkeypatch):
    def firewall(*_: object) -> Link:
        raise ConnectionRefusedError

    monkeypatch.setattr("aiperf.launch.nodes.agent.join", firewall)
    monkeypatch.setattr("aiperf.launch.nodes.agent._UNREACHED_S", 0.1)
    quiet: list[type[BaseException]] = []

    def node() -> None:
        try:
            follow_head(replace(PLACE, rank=1, node="n2"), tmp_path, read_host(), wait_s=20)
        except BaseException as error:
            quiet.append(type(error))

    thread = threading.Thread(target=node)
    thread.start()
    began = time.monotonic()
    with (
        pytest.raises(UserError, match=r"node n2 sees the results folder, but cannot reach .*:"),
        Nodes(PLACE, tmp_path),
    ):
        pass
    thread.join()
    assert time.monotonic() - began < 15, "long before nodes are given up"
    assert quiet == [HeadKnows]
    assert list((tmp_path / ".nodes").iterdir()) == []


def test_a_full_folder_is_told_before_nodes_are_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("aiperf.launch.nodes.links.LEAST_SPACE", 1 << 62)
    with pytest.raises(UserError, match="its file system is full") as caught, Nodes(PLACE, tmp_path, wait_s=20):
        pass
    assert "--results" in caught.value.faults[0].hint


def test_a_node_on_which_the_folder_is_full_does_not_wait_for_the_head_and_says_so_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("aiperf.launch.nodes.links.LEAST_SPACE", 1 << 62)
    (tmp_path / ".nodes").mkdir()
    began = time.monotonic()
    with pytest.raises(UserError, match=r"file system is full on node n2: \d+ MiB are free"):
        follow_head(replace(PLACE, rank=1, node="n2"), tmp_path, read_host(), wait_s=20)
    assert time.monotonic() - began < 10


def test_a_folder_of_which_no_size_can_be_read_is_not_called_full(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", _fails)
    (tmp_path / ".nodes").mkdir()
    with pytest.raises(UserError, match=r"node n2 did not find the head within 0\.1 s"):
        follow_head(replace(PLACE, rank=1, node="n2"), tmp_path, read_host(), wait_s=0.1)


def test_only_a_folder_that_cannot_be_written_is_called_so(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", _fails)
        with pytest.raises(UserError, match="the results folder cannot be written: stale"), Nodes(PLACE, tmp_path):
            pass
    monkeypatch.setattr(Nodes, "_await_all", _fails)
    nodes = Nodes(PLACE, tmp_path)
    with pytest.raises(OSError, match="stale"), nodes:
        pass
    assert nodes._listener is not None
    assert nodes._listener.fileno() == -1
    assert list((tmp_path / ".nodes").iterdir()) == []


def _fails(*_: object) -> NoReturn:
    raise OSError(errno.ESTALE, "stale")


def test_a_node_that_joins_says_of_which_class_it_is(tmp_path):
    host = read_host()
    thread = threading.Thread(target=follow_head, args=(replace(PLACE, rank=1, node="n2"), tmp_path, host))
    thread.start()
    with Nodes(PLACE, tmp_path) as nodes:
        (facts,) = nodes.facts
    thread.join()
    host_id, fields = fingerprint(host)
    assert (facts["node"], facts["host_id"], facts["host"]["hostname"]) == ("n2", host_id, host.hostname)
    assert facts["host"]["fingerprint"] == json.loads(json.dumps(fields))


def test_a_node_for_which_the_heads_locks_do_not_hold_is_named_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("aiperf.launch.nodes.agent.sees_lock", lambda path: False)
    place = replace(PLACE, rank=1, node="n2")
    thread = threading.Thread(target=follow_head, args=(place, tmp_path, read_host()))
    thread.start()
    with (
        pytest.raises(UserError, match="a file that n1 locks is not locked for node n2") as caught,
        Nodes(PLACE, tmp_path),
    ):
        pass
    thread.join()
    assert caught.value.faults[0].where == str(tmp_path / ".nodes")
    assert list((tmp_path / ".nodes").iterdir()) == []


def test_a_node_that_says_nothing_of_locks_has_an_older_aiperf_and_is_not_blamed_for_its_folder(tmp_path):
    file, links = meeting_file(tmp_path, "job"), list[Link]()

    def comes() -> None:
        hello = {"role": "node", "node": "n2", "rank": 1, "version": __version__, "facts": {}}
        assert until(lambda: Meeting.read(file) is not None)
        meeting = Meeting.read(file)
        links.append(join(("127.0.0.1", meeting.port), meeting.token, hello))

    thread = threading.Thread(target=comes)
    thread.start()
    older = rf"node n2 runs aiperf {re.escape(__version__)} \(an older checkout\), this one {re.escape(__version__)}"
    with pytest.raises(UserError, match=older) as caught, Nodes(PLACE, tmp_path):
        pass
    thread.join()
    links[0].close()
    assert "same version" in caught.value.faults[0].hint


def test_ranks_over_nodes_meet_in_a_file_that_only_their_user_can_reach_and_open_no_port(tmp_path, monkeypatch):
    class Job(Nodes):
        names = ("n1", "n2")

        def start(self, index: int, *, program: tuple[str, ...], env: dict[str, str], **_: object) -> NoReturn:
            asked.append((program[-2:], env["AIPERF_STORE"]))
            raise StartError("seen")

    def no_port(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a port was opened")

    asked: list[tuple[tuple[str, ...], str]] = []
    monkeypatch.setattr(socket, "create_server", no_port)
    with Guardian() as guardian, Scratch(guardian, "run", area=tmp_path) as scratch:
        case = Case("s", "s", "t", "w", tuple(Side(n, ranks=2, nodes=2) for n in ("before", "after")))
        started = Started.empty(PairPlan(case, 0, ("before", "after"), 1), scratch)
        for name in ("before", "after", "before"):
            with pytest.raises(LaunchFailed, match="seen"):
                started.start([name], cpus=None, everywhere=(), guardian=guardian, cluster=Job(PLACE, tmp_path))
            started.end_sides()
        files = [Path(file) for _, file in asked]
        assert [numbers for numbers, _ in asked] == [("0", "-1")] * 3, "neither a port nor a socket that listens"
        assert len(set(files)) == 3, "each launch has a file of its own"
        assert {file.parent for file in files} == {started.folder}
        assert {path.stat().st_mode & 0o777 for path in (started.folder, scratch)} == {0o700}


@pytest.mark.long
def test_a_job_that_does_without_a_node_names_it_and_turns_it_away_when_it_comes_late(tmp_path, monkeypatch):
    file = meeting_file(tmp_path, "job")
    hello = {"role": "node", "version": __version__, "locks": True, "facts": {}}
    met: list[Meeting] = []

    def comes() -> None:
        while (meeting := Meeting.read(file)) is None:
            time.sleep(0.01)
        links.append(join(("127.0.0.1", meeting.port), meeting.token, {**hello, "node": "n3", "rank": 2}))
        met.append(meeting)

    links: list[Link] = []
    thread = threading.Thread(target=comes)
    thread.start()
    nodes = Nodes(replace(PLACE, world=3, nodes=3), tmp_path, wait_s=7.0, all_needed=False)
    wait_for = nodes._came.wait_for

    def awaited(met: Callable[[], Any], limit: float) -> bool:
        """The seven seconds are over once n3 has come."""
        assert limit == 7.0
        return wait_for(lambda: met() or nodes.others, PATIENCE_S)

    monkeypatch.setattr(nodes._came, "wait_for", awaited)
    with nodes:
        thread.join()
        assert (nodes.names, nodes.absent, len(nodes)) == (
            ("n1", "n3"), {"rank 1": "did not join within 7 s"}, 2,
        )  # fmt: skip
        late = join(("127.0.0.1", met[0].port), met[0].token, {**hello, "node": "n2", "rank": 1})
        with pytest.raises(ConnectionResetError, match="the other end is gone"):
            late.receive(PATIENCE_S)
        assert nodes.names == ("n1", "n3")
    for link in (*links, late):
        link.close()


def test_nodes_that_did_not_come_have_names_of_their_own() -> None:
    """Containers may all be called alike."""
    place = SimpleNamespace(node="a", world=5, nodes=5, launcher="env")
    nodes: Any = SimpleNamespace(place=place, _others=[SimpleNamespace(name="b", rank=1)], _wait_s=7.0)
    unreached = {2: ("b", "cannot be reached"), 3: ("c", "cannot be reached"), 4: ("c", "cannot be reached")}
    assert [name for name, _ in Nodes._absent(nodes, unreached)] == ["b#2", "c", "c#4"]
