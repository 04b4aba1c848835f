"""A fleet of network namespaces on one bridge of this host, with the link between two of them limited by the kernel's
traffic control: a link that is really slow, where ``aiperf survey --slow`` only makes calls longer.

What must not live here: sessions and what is made of them (survey.py).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiperf.workloads.serve.server import end_group
from tests.bench.shell import ROOT, Done, run_within

_BRIDGE = "aiperfbr"
_PORT = "29511"
_LIMIT_S = 900.0
_LEAVE_S = 10.0


def missing() -> str:
    """Why there can be no such fleet here; empty where there can."""
    tools = [tool for tool in ("ip", "tc", "unshare", "hostname") if not shutil.which(tool)]
    return f"no {', '.join(tools)}" if tools else "" if os.geteuid() == 0 else "only root makes network namespaces"


def survey(nodes: int, limited: tuple[int, int], rate: str, *typed: str, state: Path) -> Done:
    """``aiperf survey`` over namespaces called group0, group1, ...; what its head did. ``rate`` as tc takes it."""
    with _fleet(nodes, limited, rate):
        none, others = subprocess.DEVNULL, list[subprocess.Popen[bytes]]()
        try:
            for number in range(1, nodes):
                command = _inside(number, nodes, *typed, state=state)
                others.append(
                    subprocess.Popen(command, cwd=ROOT, stdin=none, stdout=none, stderr=none, process_group=0)
                )
            return run_within(_LIMIT_S, *_inside(0, nodes, *typed, state=state))
        finally:
            for process in others:
                end_group(process, patience=_LEAVE_S)


def _inside(number: int, nodes: int, *typed: str, state: Path) -> list[str]:
    """aiperf as one node, with a host name of its own."""
    place = {
        "RANK": number, "LOCAL_RANK": 0, "WORLD_SIZE": nodes, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": _address(0),
        "MASTER_PORT": _PORT, "AIPERF_STATE": f"{state}-{number}",
    }  # fmt: skip
    told = [f"{name}={value}" for name, value in place.items()]
    command = ["env", *told, sys.executable, "-m", "aiperf", *typed, "--launcher", "env"]
    named = f"hostname group{number} && exec {shlex.join(command)}"
    return ["ip", "netns", "exec", _name(number), "unshare", "--uts", "sh", "-c", named]


@contextmanager
def _fleet(nodes: int, limited: tuple[int, int], rate: str) -> Iterator[None]:
    # Only one at a time: where the bridge is another's, nothing is touched.
    _do(f"ip link add {_BRIDGE} type bridge")
    try:
        _do(f"ip link set {_BRIDGE} up")
        for number in range(nodes):
            name = _name(number)
            _do(
                f"ip netns add {name}",
                f"ip link add {name} type veth peer name eth0 netns {name}",
                f"ip link set {name} master {_BRIDGE} up",
                f"ip -n {name} link set lo up",
                f"ip -n {name} addr add {_address(number)}/24 dev eth0",
                f"ip -n {name} link set eth0 up",
            )
        one, other = limited
        for here, there in ((one, other), (other, one)):
            tc = f"tc -n {_name(here)}"
            _do(
                f"{tc} qdisc add dev eth0 root handle 1: htb default 10",
                f"{tc} class add dev eth0 parent 1: classid 1:10 htb rate 100gbit quantum 60000",
                f"{tc} class add dev eth0 parent 1: classid 1:20 htb rate {rate} quantum 60000",
                f"{tc} filter add dev eth0 protocol ip parent 1: u32 match ip dst {_address(there)} flowid 1:20",
            )
        yield
    finally:
        for number in range(nodes):
            # A namespace takes its end of a link with it at some later time.
            for gone in ("link", "netns"):
                subprocess.run(["ip", gone, "del", _name(number)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", _BRIDGE], capture_output=True, check=False)


def _do(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr.strip() or done.returncode}")


def _name(number: int) -> str:
    return f"aiperf{number}"


def _address(number: int) -> str:
    return f"10.213.0.{number + 1}"
