"""A worker in this process, and its sides, for the tests of the worker."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from aiperf.protocol.measuring import Check, Measure
from aiperf.protocol.messages import SetUpRequest, WorkerReply, WorkloadCall
from aiperf.worker import raw
from aiperf.worker.audit import Snapshot
from aiperf.worker.dispatch import Worker
from aiperf.worker.octets import Handed

BENCHES = str(Path(__file__).with_name("benches.py"))


def set_up_request(
    function: str = "healthy", *, folder: Path = Path(), side: str = "before", rule: Any = "bitwise",
    cache: Any = "hot", slowdown: float = 0.0, seed: int = 3, **params: Any,
) -> SetUpRequest:  # fmt: skip
    return SetUpRequest(
        side=side,
        call=WorkloadCall(function if ":" in function else f"{BENCHES}:{function}", params),
        measure=Measure(clock="wall", cache=cache, blocking_kernel=False, delta=0.05),
        check=Check(rule),
        device="cpu",
        seed=seed,
        scratch=str(folder / "own"),
        shared_scratch=str(folder / "all"),
        pad=256,
        slowdown=slowdown,
    )


def make_worker(rank: int = 0) -> Worker:
    return Worker(rank=rank, world_size=1, store_port=0, listen_fd=-1)


def set_side(worker: Worker, folder: Path, function: str = "healthy", **kwargs: Any) -> WorkerReply:
    return worker.handle(set_up_request(function, folder=folder, **kwargs))


def shown(snapshot: Snapshot, *, whole: Collection[str] | None = None) -> Handed:
    """What the judge holds of an audit that handed over these outputs whole; all by default."""
    held = {name: octets for name, octets in snapshot.kept.items() if whole is None or name in whole}
    return Handed(snapshot.claims, snapshot.pattern, whole=held, references=snapshot.references)


def values_of(snapshot: Snapshot) -> dict[str, Any]:
    """The outputs of an audit as arrays."""
    claims = snapshot.claims.outputs
    return {name: raw.decode(octets, claims[name].dtype, claims[name].shape) for name, octets in snapshot.kept.items()}
