"""The preference for the node of a worker's own CPUs: when it is asked for, what the kernel says, what is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from worker_made import set_up_request

from aiperf.protocol.messages import CloseRequest, ReadyReply, SetUpReply, SummaryReply, SummaryRequest, WorkerReply
from aiperf.protocol.wire import decode, encode
from aiperf.worker import memory_policy
from aiperf.worker.memory_policy import OwnNode, Policy, write_policy

SIDES = Path(__file__).with_name("benches.py")


def machine(root: Path, nodes: dict[int, set[int]]) -> Path:
    for node, cpus in nodes.items():
        (root / f"node/node{node}").mkdir(parents=True)
        for cpu in cpus:
            (root / f"cpu/cpu{cpu}/node{node}").mkdir(parents=True)
    (root / "node/possible").touch()
    return root


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[Policy]:
    """The policies that were set, the last one in force; this process is on CPUs 2 and 3."""
    written = [Policy()]
    monkeypatch.setattr(memory_policy, "read_policy", lambda: written[-1])
    monkeypatch.setattr(memory_policy, "write_policy", written.append)
    monkeypatch.setattr(memory_policy.os, "sched_getaffinity", lambda pid: {2, 3})
    return written


TWO = {0: {0, 1}, 1: {2, 3}}


def test_a_worker_on_one_of_two_nodes_prefers_it_and_says_so(tmp_path, kernel) -> None:
    memory = OwnNode(machine(tmp_path, TWO))
    memory.set_up({})
    assert kernel[1:] == [Policy(1, (1,))]
    assert memory.facts() == {"memory_policy": "preferred node 1"}
    memory.set_up({})
    assert memory.facts() == {"memory_policy": "preferred node 1"}


def test_nothing_changes_and_nothing_is_told_on_a_machine_of_one_node(tmp_path, kernel) -> None:
    memory = OwnNode(machine(tmp_path, {0: {0, 1, 2, 3}}))
    memory.set_up({})
    assert (kernel[1:], memory.facts()) == ([], {})


@pytest.mark.parametrize(
    ("nodes", "params", "before", "told"),
    [
        ({0: {2}, 1: {3}}, {}, Policy(), "none: its CPUs are on nodes 0, 1"),
        (TWO, {"numa": "remote"}, Policy(), "none: the side chooses its node itself (numa: remote)"),
        (TWO, {}, Policy(3, (0, 1)), "interleaved over nodes 0, 1, as it was given to aiperf"),
        (TWO, {}, Policy(1, (0,)), "preferred node 0, as it was given to aiperf"),
    ],
)
def test_where_there_is_no_one_node_to_prefer_the_reason_is_told(tmp_path, kernel, nodes, params, before, told) -> None:
    kernel.append(before)
    memory = OwnNode(machine(tmp_path, nodes))
    memory.set_up(params)
    assert kernel[2:] == []
    assert memory.facts() == {"memory_policy": told} | ({"memory_node": params["numa"]} if params else {})


def test_a_policy_of_the_touching_cpu_is_no_wish_of_anybody(tmp_path, kernel) -> None:
    kernel.append(Policy(4))
    memory = OwnNode(machine(tmp_path, TWO))
    memory.set_up({})
    assert kernel[-1] == Policy(1, (1,))


def test_a_side_that_chooses_its_node_after_another_in_the_same_process_gets_the_kernels_own_policy(tmp_path, kernel):
    memory = OwnNode(machine(tmp_path, TWO))
    memory.set_up({})
    memory.set_up({"numa": "remote"})
    assert kernel[-1] == Policy()
    assert "numa: remote" in memory.facts()["memory_policy"]


def test_a_kernel_that_refuses_or_does_something_else_is_told(tmp_path, kernel, monkeypatch) -> None:
    system = machine(tmp_path, TWO)
    monkeypatch.setattr(memory_policy, "write_policy", lambda policy: None)
    memory = OwnNode(system)
    memory.set_up({})
    told = "none: preferred node 1 was requested, but the kernel reports the node of the touching CPU"
    assert memory.facts() == {"memory_policy": told}

    def refuse(policy: Policy) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(memory_policy, "write_policy", refuse)
    memory.set_up({})
    assert memory.facts() == {"memory_policy": "none: the kernel refused (Operation not permitted)"}
    monkeypatch.setattr(memory_policy, "read_policy", lambda: None)
    memory.set_up({})
    assert memory.facts()["memory_policy"].startswith("none: how to ask for one on ")


def test_a_side_that_changes_the_policy_is_told(tmp_path, kernel) -> None:
    memory = OwnNode(machine(tmp_path, TWO))
    memory.set_up({})
    kernel.append(Policy(2, (0,)))
    assert memory.facts() == {"memory_policy": "preferred node 1 at set-up, bound to node 0 at the end"}


def test_the_kernel_itself_takes_the_preference_and_gives_it_back() -> None:
    """In a process of its own, which keeps what was set. Some containers forbid the calls: then that is the answer."""
    code = (
        "from aiperf.worker.memory_policy import *; first = read_policy(); "
        "own = min(int(p.name[4:]) for p in (SYSTEM / 'node').glob('node[0-9]*')); "
        "write_policy(Policy(1, (own,))); second = read_policy(); write_policy(Policy()); "
        "print(first.mode, second == Policy(1, (own,)), second.words == f'preferred node {own}', read_policy().mode)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    forbidden = "PermissionError" in ran.stderr
    assert ran.stdout.split() == ([] if forbidden else ["0", "True", "True", "0"]), ran.stderr


def test_a_node_that_does_not_exist_is_an_error_of_the_kernel() -> None:
    with pytest.raises(OSError, match=r"Invalid argument|not permitted"):
        write_policy(Policy(1, (900,)))


def test_the_worker_itself_reports_the_policy_beside_the_facts_of_its_side(tmp_path: Path) -> None:
    """A real worker process, with a machine of two nodes in the place of this one."""
    cpu = min(os.sched_getaffinity(0))
    system = machine(tmp_path / "system", {0: {cpu}, 1: {cpu + 1}})
    code = (
        "import sys, pathlib; from aiperf.worker import memory_policy, __main__ as worker; "
        f"worker.OwnNode = lambda: memory_policy.OwnNode(pathlib.Path({str(system)!r})); sys.exit(worker.main())"
    )
    there, here = os.pipe(), os.pipe()
    set_up = set_up_request(f"{SIDES}:healthy", folder=tmp_path, rule="none")
    argv = [sys.executable, "-c", code, str(there[0]), str(here[1]), "0", "1", "0", "-1"]
    pinned = {"preexec_fn": lambda: os.sched_setaffinity(0, {cpu})}
    with subprocess.Popen(argv, pass_fds=(there[0], here[1]), stderr=subprocess.PIPE, **pinned) as process:
        for end in (there[0], here[1]):
            os.close(end)
        with open(there[1], "w") as writer, open(here[0]) as reader:
            writer.write("".join(map(encode, (set_up, SummaryRequest("before"), CloseRequest()))))
            writer.flush()
            replies = [decode(line, WorkerReply) for line in reader]
        said = process.stderr.read().decode() if process.stderr else ""
    assert [type(reply) for reply in replies] == [ReadyReply, SetUpReply, SummaryReply, WorkerReply], said
    refused = "none: the kernel refused (Operation not permitted)"
    assert replies[2].facts["memory_policy"] in ("preferred node 0", refused)
    assert replies[2].facts["cpus"] == [cpu]
