"""What is read in NCCL's log: lines as NCCL 2.28 writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiperf.workloads.comm.nccl_log import chosen, logged, read

PEER = """vm:7:7 [0] NCCL INFO NCCL_ALGO set by environment to Tree.
vm:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
vm:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
vm:7:7 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..3}
"""
SOCKET = "vm:7:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0\n"


def test_transport_algorithm_protocol_and_channels_are_named() -> None:
    facts = {"nccl_transport": "P2P", "nccl_algorithm": "TREE", "nccl_protocol": "LL", "nccl_channels": 4}
    assert read(PEER, {}) == facts
    assert read(SOCKET, {}) == {"nccl_transport": "NET/Socket"}
    assert read(SOCKET.replace("Socket/0", "IB/1/GDRDMA"), {}) == {"nccl_transport": "NET/IB"}
    assert read(SOCKET.replace("Socket/0", "AWS Libfabric/1(2)/GDRDMA"), {}) == {"nccl_transport": "NET/AWS Libfabric"}
    assert read(SOCKET + PEER, {})["nccl_transport"] == "NET/Socket, P2P"
    kernel = (
        "vm:7:7 [0] NCCL INFO AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_RSxLD_AGxST nchannels 32 nthreads 512"
    )
    facts = {"nccl_algorithm": "symmetric AllReduce_RSxLD_AGxST", "nccl_channels": 32}
    assert read(kernel, {}) == facts
    assert read(f"{kernel.replace('32', '6')}\n{kernel}", {}) == facts
    assert read("", {"NCCL_ALGO": "Ring"}) == {}


@pytest.mark.parametrize(
    ("settings", "ignored"),
    [
        ({"NCCL_ALGO": "Tree"}, None),
        ({"NCCL_ALGO": "Ring,Tree"}, None),
        ({"NCCL_ALGO": "Ring"}, "NCCL_ALGO=Ring"),
        ({"NCCL_PROTO": "Simple"}, "NCCL_PROTO=Simple"),
        ({"NCCL_P2P_DISABLE": "1"}, "NCCL_P2P_DISABLE=1"),
        ({"NCCL_P2P_DISABLE": "0"}, None),
        ({"NCCL_MAX_NCHANNELS": "2"}, "NCCL_MAX_NCHANNELS=2"),
        ({"NCCL_MAX_NCHANNELS": "4"}, None),
        ({"NCCL_NO_SUCH_THING": "8"}, "NCCL_NO_SUCH_THING=8"),
        ({"PATH": "/bin"}, None),
    ],
)
def test_a_setting_that_nccl_did_not_follow_is_named(settings: dict[str, str], ignored: str | None) -> None:
    assert read(PEER, settings).get("nccl_ignored") == ignored


def test_the_log_is_on_within_the_block_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    with logged(tmp_path) as path:
        assert (os.environ["NCCL_DEBUG"], os.environ["NCCL_DEBUG_FILE"]) == ("INFO", str(path))
        path.write_text(PEER, encoding="utf-8")
    assert not {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"} & {*os.environ}
    assert chosen(path)["nccl_algorithm"] == "TREE"


def test_a_log_of_the_users_own_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    with logged(tmp_path) as path:
        assert os.environ["NCCL_DEBUG"] == "WARN"
    assert chosen(path) == {}
