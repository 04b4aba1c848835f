"""checkpoint.suspend: a process is suspended and restored, keeps its memory, and skips where the driver cannot."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from cpu_pairs import audit, finish, run, snapshot

from aiperf.workloads.checkpoint import cuda_state, suspension
from aiperf.workloads.checkpoint import workload as checkpoint
from aiperf.workloads.checkpoint.cuda_state import CudaState, CudaStateError
from aiperf.workloads.contract import Context, SkipSide, Workload

SMALL = {"kept_bytes": 2 << 20, "freed_bytes": 6 << 20}


class Driver:
    """libcuda, of one process: states as cuda.h numbers them, calls in order."""

    NEXT: ClassVar = {"Lock": (0, 1), "Checkpoint": (1, 2), "Restore": (2, 1), "Unlock": (1, 0)}

    def __init__(self, *, refused: dict[str, int] | None = None, stuck: bool = False) -> None:
        self.refused, self.stuck, self.state = refused or {}, stuck, 0
        self.calls: list[tuple[str, int]] = []
        self.meanwhile: Callable[[], object] = bool
        for name in self.NEXT:
            setattr(self, f"cuCheckpointProcess{name}", self._call(name))

    def _call(self, name: str) -> Callable[[int, Any], int]:
        def call(pid: int, arguments: Any) -> int:
            words = list(arguments._obj)
            assert ctypes.sizeof(arguments._obj) == 64, "each struct of cuda.h has 64 bytes"
            assert words[1:] == [0] * 7
            self.calls.append((name, words[0]))
            if code := self.refused.get(name, 0):
                return code
            before, after = self.NEXT[name]
            if self.state != before:
                return 401
            self.state = before if self.stuck else after
            if name == "Checkpoint":
                self.meanwhile()
            return 0

        return call

    def cuInit(self, flags: int) -> int:
        return self.refused.get("cuInit", flags)

    def cuCheckpointProcessGetState(self, pid: int, found: Any) -> int:
        found._obj.value = self.state
        return 0

    def cuGetErrorName(self, code: int, text: Any) -> int:
        text._obj.value = {401: b"CUDA_ERROR_ILLEGAL_STATE", 801: b"CUDA_ERROR_NOT_SUPPORTED"}[code]
        return 0


def test_a_process_is_locked_before_it_is_copied_and_unlocked_after_it_is_restored() -> None:
    driver = Driver()
    state = CudaState(7, library=driver)
    state.suspend()
    state.require("checkpointed")
    state.resume()
    state.require("running")
    assert driver.calls == [("Lock", 60_000), ("Checkpoint", 0), ("Restore", 0), ("Unlock", 0)]


def test_an_error_names_the_driver_call_and_its_code() -> None:
    state = CudaState(7, library=Driver(refused={"Checkpoint": 801}))
    with pytest.raises(
        CudaStateError, match=r"^cuCheckpointProcessCheckpoint returned CUDA_ERROR_NOT_SUPPORTED \(801\)$"
    ):
        state.suspend()
    with pytest.raises(CudaStateError, match=r"process is locked where it should be checkpointed"):
        state.require("checkpointed")
    with pytest.raises(CudaStateError, match="Restore returned CUDA_ERROR_ILLEGAL_STATE"):
        state.resume()
    with pytest.raises(CudaStateError, match="cuInit returned"):
        CudaState(7, library=Driver(refused={"cuInit": 801}))


def test_a_driver_without_the_calls_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    older = Driver()
    del older.cuCheckpointProcessLock
    with pytest.raises(CudaStateError, match=r"no cuCheckpointProcessLock; 570 and newer"):
        CudaState(7, library=older)

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(cuda_state.ctypes, "CDLL", missing)
    with pytest.raises(CudaStateError, match=r"cannot be loaded: libcuda\.so\.1"):
        CudaState(7)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Workload]]:
    """Makes sides whose process computes on the CPU, with a driver that only counts."""
    made: list[Workload] = []
    monkeypatch.setattr(Context, "use_gpu", lambda context, fault: torch.device("cpu"))
    free = iter(range(0, 1 << 20, 100))
    monkeypatch.setattr(suspension, "free_memory", lambda device: next(free))

    def side(driver: Driver, **params: Any) -> Workload:
        monkeypatch.setattr(cuda_state.ctypes, "CDLL", lambda name: driver)
        made.append(checkpoint.suspend(Context(seed=3), **{**SMALL, **params}))
        return made[-1]

    yield side
    finish(*made)


@pytest.mark.long
def test_both_sides_keep_the_same_memory_and_a_changed_word_of_it_shows(make: Callable[..., Workload]) -> None:
    driver = Driver()
    before, after = make(driver), make(Driver(), trim="empty_cache")
    for side in (before, after):
        for seed in (4, 5):
            found, truth = audit(side, seed=seed), side.reference()
            assert all(np.array_equal(found[name], truth[name]) for name in ("digest", "passed"))
            assert {array.dtype for array in found.values()} == {np.dtype(np.float64)}
    process, honest, other = before.step.__self__, snapshot(before), snapshot(after)
    assert all(np.array_equal(honest[name], other[name]) for name in honest)

    def change() -> None:
        process.row[1000] ^= 1
        process._ask("load")

    driver.meanwhile = change
    run(before)
    found = snapshot(before)
    assert np.flatnonzero(found["digest"] != honest["digest"]).tolist() == [1000]
    assert np.array_equal(found["passed"], honest["passed"]), "the pass came before the suspension"


@pytest.mark.long
def test_suspensions_are_timed_and_the_process_ends_with_the_side(make: Callable[..., Workload]) -> None:
    driver = Driver()
    side = make(driver)
    side.values()
    for _ in range(2):
        run(side)
    assert len(driver.calls) == 4 * 3, "set-up suspends once"
    values = side.values()
    assert set(values) == set(suspension.METRICS["suspend"])
    assert all(seconds > 0 for seconds in values.values())
    assert side.values() == {}
    assert side.counters()["released_bytes"] == 100
    assert {"image_bytes", "suspend_bytes_per_s", "restore_bytes_per_s"} < set(side.counters())
    assert side.work.peaks == {"d2h": 8 << 20, "h2d": 8 << 20}
    assert make(Driver(), trim="empty_cache").work.peaks == {"d2h": 2 << 20, "h2d": 2 << 20}
    child = side.step.__self__._child
    driver.state = 2
    finish(side)
    assert child.returncode == 0, "it ends by itself also while it is suspended"


@pytest.mark.long
def test_a_suspension_that_did_not_happen_is_an_error_and_one_that_cannot_skips(
    make: Callable[..., Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    side = make(driver)
    driver.stuck = True
    with pytest.raises(CudaStateError):
        side.step()
    children = []
    true_leave = suspension.Helper.leave
    monkeypatch.setattr(suspension.Helper, "leave", lambda child: (children.append(child), true_leave(child)))
    with pytest.raises(SkipSide, match=r"cannot suspend .*: cuCheckpointProcessLock returned CUDA_ERROR_NOT_SUPPORTED"):
        make(Driver(refused={"Lock": 801}))
    assert [child.returncode for child in children] == [0]


def test_a_side_on_the_cpu_is_skipped() -> None:
    with pytest.raises(SkipSide, match="runs on the CPU"):
        checkpoint.suspend(Context(seed=3))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kept_bytes": 0}, "kept_bytes is 0"),
        ({"kept_bytes": (1 << 20) + 4}, "whole MiB"),
        ({"kept_bytes": 33 << 30}, "to 32 GiB"),
        ({"freed_bytes": 3 << 20}, "multiple of kept_bytes"),
        ({"freed_bytes": -(2 << 20)}, "multiple of kept_bytes"),
    ],
)
def test_sizes_that_cannot_work_are_refused(params: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checkpoint.suspend(Context(seed=3), **{**SMALL, **params})
