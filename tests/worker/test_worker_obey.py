"""One rank in this process: loading a workload, every command in turn, and exceptions as replies of the right kind."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from aiperf.worker import obey
from aiperf.worker.channel import Channel
from aiperf.worker.clocks import Reading
from aiperf.worker.load import NotAWorkload, set_up, workload_function
from aiperf.worker.obey import Worker
from aiperf.worker.ranges import Ranges
from aiperf.worker.slot import Order, Slot
from aiperf.workloads.contract import Context, Workload

BENCHES = str(Path(__file__).with_name("benches.py"))
BITWISE = {"kind": "bitwise", "rtol": None, "atol": None, "name": "", "bound": None, "reference": False}


def order(function="healthy", *, side="before", rule="bitwise", cache="hot", slowdown=0.0, **params):
    return Order(
        side, f"{BENCHES}:{function}", params, "wall", cache, False, 0.05, rule, reference=False, slowdown=slowdown
    )


def make_slot(function="healthy", **kwargs):
    return Slot(order(function, **kwargs), Context(seed=3), Ranges.open())


def make_worker(rank=0):
    return Worker(rank=rank, world_size=1, store_port=0, listen_fd=-1)


def set_side(worker, folder, function="healthy", *, seed=3, **kwargs):
    context = {
        "device": "cpu", "seed": seed, "scratch": str(folder / "own"), "shared_scratch": str(folder / "all"),
        "pad": 256, "gpus": 0,
    }  # fmt: skip
    return worker.obey({"op": "setup", "order": order(function, **kwargs).__dict__, "context": context})


# ---- loading -------------------------------------------------------------------------------------------------------


def test_a_workload_is_found_by_family_or_by_path():
    assert workload_function("tensor.op").__module__ == "aiperf.workloads.tensor"
    assert workload_function(f"{BENCHES}:healthy").__name__ == "healthy"
    assert isinstance(set_up(f"{BENCHES}:healthy", Context(), {"items": 5}), Workload)


def test_a_users_file_imports_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "aiperf_neighbour.py").write_text("NAME = 'next door'\n")
    (tmp_path / "aiperf_bench.py").write_text("from aiperf_neighbour import NAME\ndef f(context): return NAME\n")
    assert workload_function(f"{tmp_path}/aiperf_bench.py:f")(None) == "next door"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("gives_none", "returned NoneType, not an aiperf Workload"),
        ("bad_step", "step is NoneType, not a function"),
        ("bad_close", "close is str, not a function"),
        ("NOT_CALLABLE", "is no function"),
    ],
)
def test_what_breaks_the_contract_is_told(function, message):
    with pytest.raises(NotAWorkload, match=message):
        set_up(f"{BENCHES}:{function}", Context(), {})


def test_a_missing_function_is_named():
    with pytest.raises(AttributeError, match="absent"):
        workload_function(f"{BENCHES}:absent")
    with pytest.raises(ModuleNotFoundError, match=r"aiperf\.workloads\.nowhere"):
        workload_function("nowhere.step")


# ---- one side ------------------------------------------------------------------------------------------------------


def test_prepare_runs_before_every_iteration_and_outside_the_time():
    log = []
    slot = make_slot("prepares", log=log)
    slot.first()
    slot.warm_up(readings=2, iterations=1, window=5)
    slot.turn(reentry=2, samples=3, iterations=1, wall_too=False)
    assert log == ["prepare", "step"] * 8


def test_a_turn_has_as_many_readings_as_asked_of_as_many_iterations():
    log = []
    slot = make_slot("prepares", log=log)
    taken = slot.turn(reentry=4, samples=3, iterations=5, wall_too=True)
    assert log.count("step") == 4 + 3 * 5 + 5
    assert len(taken["wall"]) == 3
    assert min(taken["wall"]) > 0
    assert taken["device"] == [None] * 3
    assert taken["wall_block"] > 0
    assert slot.turn(reentry=0, samples=1, iterations=1, wall_too=False)["wall_block"] is None


def test_a_turn_tells_the_latencies_of_its_readings_and_of_nothing_before_them():
    slot = make_slot("tells")
    slot.first()
    slot.warm_up(readings=2, iterations=3, window=5)
    assert slot.turn(reentry=2, samples=2, iterations=3, wall_too=True)["latencies"] == list(range(9, 18))
    slot.audit(1, 1, lead=1)
    assert slot.turn(reentry=0, samples=1, iterations=1, wall_too=False)["latencies"] == [20.0]
    assert make_slot().turn(reentry=0, samples=1, iterations=1, wall_too=False)["latencies"] == []


def test_units_that_waited_behind_a_hold_tell_no_latency_and_those_of_the_wall_block_do():
    slot = make_slot("tells")
    slot.clock.holds = True
    assert slot.turn(reentry=2, samples=2, iterations=3, wall_too=True)["latencies"] == list(range(8, 11))


@pytest.mark.parametrize("odd", [-1.0, float("nan"), float("inf")])
def test_latencies_that_are_no_times_fail_the_turn(odd):
    with pytest.raises(ValueError, match=r"latencies\(\) told (-1\.0|nan|inf)"):
        make_slot("tells", odd=odd).turn(reentry=0, samples=1, iterations=1, wall_too=False)


def test_a_cold_side_is_flushed_before_every_reading_and_wall_block():
    slot = make_slot(cache="cold")
    flushes = []
    slot.clock.flush = lambda: flushes.append(1)
    slot.turn(reentry=2, samples=3, iterations=1, wall_too=True)
    assert len(flushes) == 4
    slot.first()
    slot.audit(1, 1)
    assert len(flushes) == 5


def test_warm_up_reports_seconds_per_iteration():
    slot = make_slot(items=50_000)
    told = slot.warm_up(readings=3, iterations=4, window=5)
    assert len(told["seconds"]) == 3
    assert sum(told["seconds"]) * 4 <= told["reading_s"] * 3
    assert (told["steady"], told["reason"]) == (False, "only 3 of 6 warm-up readings")


def test_an_audit_is_timed_and_one_without_outputs_gives_no_reading_but_a_fault():
    slot = make_slot()
    slot.first()
    told = slot.audit(5, 2)
    assert len(told["wall"]) == 1
    assert told["wall"][0] > 0
    assert slot.auditor.faults == []
    broken = make_slot("lazy")
    broken.first()
    assert broken.audit(5, 2) == {"wall": [], "device": []}
    assert "builtins.list is no torch.Tensor" in broken.auditor.faults[0]


def test_what_audits_take_of_a_gpu_is_not_the_sides(monkeypatch):
    held = [100]
    monkeypatch.setattr("aiperf.worker.slot.gpu_peak", lambda: held[0])
    slot = make_slot()
    slot.first()
    held[0] = 300
    assert slot.peak_gpu_bytes == 300
    for seed in (1, 2):
        slot.audit(seed, 1)
        held[0] += 1000
        assert slot.peak_gpu_bytes == 300


def test_what_a_rehearsal_takes_of_a_gpu_is_not_the_sides_and_what_its_turns_take_is(monkeypatch):
    held, log = [100], []
    monkeypatch.setattr("aiperf.worker.slot.gpu_peak", lambda: held[0])
    monkeypatch.setattr("aiperf.worker.slot.rehearse", lambda workload: held.insert(0, held[0] + 1000))
    slot = make_slot("prepares", log=log)
    slot.first()
    assert slot.peak_gpu_bytes == 100
    slot.rehearse()
    assert slot.peak_gpu_bytes == 100
    held[0] += 300
    slot.audit(5, 1)
    held[0] += 5000
    assert slot.peak_gpu_bytes == 400
    assert log == ["prepare", "step"] * 2


def test_a_step_finds_its_preparation_and_a_cold_cache_in_every_attempt_at_a_reading():
    log = []
    slot = make_slot("prepares", log=log)
    slot.order = replace(slot.order, cache="cold")
    slot.clock = Twice(log)
    slot.turn(reentry=0, samples=2, iterations=1, wall_too=False)
    assert log == ["prepare", "flush", "step"] * 4


class Twice:
    """A clock that needs two attempts for every reading."""

    holds = False

    def __init__(self, log):
        self.log = log

    def settle(self):
        pass

    def flush(self):
        self.log.append("flush")

    def read(self, step, iterations, around=None, *, ready):
        for _ in range(2):
            ready()
            step()
        return Reading(1.0)


def test_untimed_steps_lead_to_an_audit():
    log = []
    slot = make_slot("prepares", log=log)
    slot.first()
    slot.audit(5, 1, lead=1)
    assert log == ["prepare", "step"] * 3


def test_a_slot_can_slow_its_step_for_calibration():
    plain, slow = make_slot(items=300_000), make_slot(items=300_000, slowdown=1.0)
    # In turns, so that what others take of the CPU hits both.
    times = [(slow.first()["seconds"], plain.first()["seconds"]) for _ in range(40)]
    slowest, fastest = map(min, zip(*times, strict=True))
    assert 1.5 < slowest / fastest < 2.7


def test_a_slot_tells_what_of_its_work_a_cache_may_hold():
    slot = make_slot(items=10)
    slot.workload = replace(slot.workload, work=replace(slot.workload.work, held={"cpu_stream": 60.0}))
    assert slot.told()["work"]["held"] == {"cpu_stream": 60.0}


def test_a_slot_tells_work_counters_and_facts():
    told = make_slot(items=10).told()
    assert told["work"] == {
        "bytes": 160.0, "flops": 0, "items": 10, "item": "samples", "roofs": {"cpu_stream": 160.0}, "held": {},
    }  # fmt: skip
    assert told["counters"] == {"launches": 2}


# ---- commands ------------------------------------------------------------------------------------------------------


def test_a_worker_obeys_a_whole_pair_of_sides(tmp_path):
    worker = make_worker()
    for side in ("before", "after"):
        reply = set_side(worker, tmp_path, side=side)
        assert reply["ok"]
        assert reply["pid"] == os.getpid()
        assert not reply["prepares"]
        assert worker.obey({"op": "first", "side": side})["seconds"] > 0
        for seed in (1, 2):
            assert worker.obey({"op": "audit", "side": side, "seed": seed, "lead": 0, "iterations": 1})["ok"]
        saved = worker.obey({"op": "save", "side": side, "folder": str(tmp_path / "saved"), "whole": False})
        assert saved["faults"] == []
    check = {"op": "check", "base": "before", "other": "after", "folder": str(tmp_path / "saved"), "rule": BITWISE}
    answer = worker.obey(check)
    assert (answer["ok"], answer["passed"]) == (True, True)
    assert answer["compared"] == "after with before, 2 audits, bit for bit"
    told = worker.obey({"op": "tell", "side": "after"})
    assert told["facts"]["cpus"] == sorted(os.sched_getaffinity(0))
    assert told["peak_bytes"] > 10 << 20
    assert told["work"]["items"] == 64
    assert (tmp_path / "own" / "0").is_dir()
    assert (tmp_path / "all").is_dir()
    assert worker.obey({"op": "close"})["ok"]


def test_a_side_is_compared_with_what_another_worker_handed_over(tmp_path):
    check = {"op": "check", "base": "before", "other": "after", "folder": str(tmp_path / "saved"), "rule": BITWISE}
    for scale, whole in ((1.0, False), (1.0, True), (1.5, False)):
        for side, of in (("before", 1.0), ("after", scale)):
            worker = make_worker()
            set_side(worker, tmp_path, side=side, scale=of)
            worker.obey({"op": "first", "side": side})
            worker.obey({"op": "audit", "side": side, "seed": 1, "lead": 0, "iterations": 1})
            worker.obey({"op": "save", "side": side, "folder": str(tmp_path / "saved"), "whole": whole})
            if side == "before":
                base = worker
        asked = {"op": "hand_over", "side": "before", "folder": str(tmp_path / "saved"), "to": ["after"]}
        assert base.obey({**asked, "everything": False})["ok"]
        files = list((tmp_path / "saved" / "before" / "0").glob("*.npy"))
        assert bool(files) is (whole or scale != 1.0)
        answer = worker.obey(check)
        assert (answer["passed"], "differs in" in answer["detail"]) == (scale == 1.0, scale != 1.0)
        shutil.rmtree(tmp_path / "saved")


def test_every_rank_saves_and_compares_its_own_outputs(tmp_path):
    check = {"op": "check", "base": "before", "other": "after", "folder": str(tmp_path / "saved"), "rule": BITWISE}
    workers = [make_worker(rank) for rank in (0, 1)]
    for rank, worker in enumerate(workers):
        for side in ("before", "after"):
            scale = 1.0 + rank + (0.5 if (side, rank) == ("after", 1) else 0.0)
            set_side(worker, tmp_path, side=side, scale=scale)
            worker.obey({"op": "first", "side": side})
            worker.obey({"op": "audit", "side": side, "seed": 1, "lead": 0, "iterations": 1})
    for worker in workers:
        worker._world_size = 2
        for side in ("before", "after"):
            worker.obey({"op": "save", "side": side, "folder": str(tmp_path / "saved"), "whole": False})
    assert [worker.obey(check)["passed"] for worker in workers] == [True, False]


def test_rank_0_never_passes_for_lack_of_outputs(tmp_path):
    worker = make_worker()
    set_side(worker, tmp_path, side="after")
    worker.obey({"op": "first", "side": "after"})
    worker.obey({"op": "audit", "side": "after", "seed": 1, "lead": 0, "iterations": 1})
    worker.obey({"op": "save", "side": "after", "folder": str(tmp_path / "saved"), "whole": False})
    answer = worker.obey(
        {"op": "check", "base": "before", "other": "after", "folder": str(tmp_path / "saved"), "rule": BITWISE}
    )
    assert (answer["passed"], answer["detail"]) == (False, "before has 0 audited outputs, after has 1")


def test_a_worker_with_fewer_ranks_than_the_sides_that_it_compares_looks_at_all_of_theirs(tmp_path):
    for wrong in (None, 0, 1):
        for rank in (0, 1):
            for side in ("before", "third"):
                worker = make_worker(rank)
                set_side(worker, tmp_path, side=side, scale=1.5 if (side, rank) == ("third", wrong) else 1.0)
                worker.obey({"op": "first", "side": side})
                worker.obey({"op": "audit", "side": side, "seed": 1, "lead": 0, "iterations": 1})
                worker.obey({"op": "save", "side": side, "folder": str(tmp_path / "saved"), "whole": True})
        alone = make_worker()
        set_side(alone, tmp_path, side="after")
        asked = {"op": "check", "base": "before", "other": "third", "folder": str(tmp_path / "saved"), "rule": BITWISE}
        assert alone.obey(asked)["passed"] is (wrong is None)
        shutil.rmtree(tmp_path / "saved")


def test_a_check_that_writes_into_the_base_does_not_touch_what_the_next_side_is_compared_with(tmp_path):
    worker = make_worker()
    for side in ("before", "second", "third"):
        set_side(worker, tmp_path, "spoiling", side=side, rule="named")
        worker.obey({"op": "first", "side": side})
        worker.obey({"op": "audit", "side": side, "seed": 1, "lead": 0, "iterations": 1})
        worker.obey({"op": "save", "side": side, "folder": str(tmp_path / "saved"), "whole": False})
    for other in ("second", "third"):
        rule = {**BITWISE, "kind": "named", "name": "equal, then spoilt"}
        asked = {"op": "check", "base": "before", "other": other, "folder": str(tmp_path / "saved"), "rule": rule}
        assert worker.obey(asked)["passed"]


def test_a_rank_that_one_side_lacks_compares_nothing(tmp_path):
    worker = make_worker(rank=1)
    set_side(worker, tmp_path, side="after")
    worker.obey({"op": "first", "side": "after"})
    worker.obey({"op": "audit", "side": "after", "seed": 1, "lead": 0, "iterations": 1})
    worker.obey({"op": "save", "side": "after", "folder": str(tmp_path / "saved"), "whole": False})
    check = {"op": "check", "base": "before", "other": "after", "folder": str(tmp_path / "saved"), "rule": BITWISE}
    answer = worker.obey(check)
    assert (answer["passed"], answer["compared"]) == (True, "")


def test_the_seed_reaches_the_workload_and_the_global_generators(tmp_path):
    drawn = []
    for seed in (7, 7, 8):
        worker = make_worker()
        set_side(worker, tmp_path, seed=seed)
        drawn.append(worker.obey({"op": "tell", "side": "before"})["facts"]["drawn"])
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    ("fail", "kind", "message"),
    [
        ("memory", "oom_host", "MemoryError: no room"),
        ("numpy", "oom_host", "Unable to allocate"),
        ("torch", "oom_device", "OutOfMemoryError: CUDA out of memory"),
        ("the batch is broken", "error", "ValueError: the batch is broken"),
        ("skip", "skip", "this disk has no O_DIRECT"),
    ],
)
def test_an_exception_becomes_a_reply_of_its_kind(tmp_path, capfd, fail, kind, message):
    worker = make_worker()
    set_side(worker, tmp_path, fail=fail)
    reply = worker.obey({"op": "first", "side": "before"})
    assert (reply["ok"], reply["kind"]) == (False, kind)
    assert message in reply["message"]
    assert "\n" not in reply["message"]
    assert ("Traceback" in capfd.readouterr().err) == (kind != "skip")


def test_an_out_of_memory_of_cupy_is_known_by_its_name():
    error = type("OutOfMemoryError", (Exception,), {"__module__": "cupy.cuda.memory"})("out of memory")
    assert obey._kind(error) == "oom_device"
    assert obey._kind(type("OutOfMemoryError", (Exception,), {"__module__": "mine"})()) == "error"
    assert obey._kind(torch.OutOfMemoryError("full")) == "oom_device"


def test_an_unknown_command_is_an_error_and_no_end(capfd):
    reply = make_worker().obey({"op": "dance"})
    assert (reply["ok"], reply["kind"]) == (False, "error")
    assert "on_dance" in reply["message"]


def test_a_worker_tells_how_long_it_was_busy_and_what_it_burnt_between_commands(tmp_path):
    from time import process_time

    worker = make_worker()
    set_side(worker, tmp_path)
    until = process_time() + 0.05
    while process_time() < until:
        pass
    reply = worker.obey({"op": "first", "side": "before"})
    assert 0.05 <= reply["idle_cpu_s"] < 0.5
    assert 0 < reply["busy_s"] < 5
    assert worker.obey({"op": "first", "side": "before"})["idle_cpu_s"] < 0.04


def test_close_lets_every_side_go(tmp_path):
    log = []
    worker = make_worker()
    for side in ("before", "after"):
        set_side(worker, tmp_path, "closes", side=side, log=log)
    worker.obey({"op": "close"})
    assert log == ["close", "close"]


# ---- the pipe ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends():
    to_worker, to_parent = os.pipe(), os.pipe()
    for fd in (to_worker[0], to_parent[1]):
        os.set_inheritable(fd, True)
    channel = Channel(to_worker[0], to_parent[1])
    yield channel, to_worker[1], os.fdopen(to_parent[0], encoding="utf-8")
    channel._reader.close()
    channel._writer.close()


def test_commands_and_replies_cross_the_pipe_as_lines(ends):
    channel, commands, replies = ends
    os.write(commands, b'{"op": "first", "side": "b\xc3\xa9"}\n{"op": "close"}\n')
    assert channel.receive() == {"op": "first", "side": "bé"}
    assert channel.receive() == {"op": "close"}
    channel.send({"ok": True, "text": "two\nlines"})
    assert json.loads(replies.readline()) == {"ok": True, "text": "two\nlines"}
    os.close(commands)
    assert channel.receive() is None
    replies.close()
    with pytest.raises(BrokenPipeError):
        channel.send({"ok": True})
    with open(os.devnull, "wb") as nowhere:
        # What could not be written is flushed once more when the fixture closes the channel.
        os.dup2(nowhere.fileno(), channel._writer.fileno())


def test_a_reply_may_hold_what_workloads_like_to_tell(ends):
    channel, commands, replies = ends
    channel.send(
        {
            "numpy": np.float32(2.5), "many": np.arange(3), "torch": torch.tensor(7), "path": Path("/x"),
            "dtype": torch.bfloat16, "complex": np.complex64(1j), "none": None,
        }
    )  # fmt: skip
    assert json.loads(replies.readline()) == {
        "numpy": 2.5, "many": [0, 1, 2], "torch": 7, "path": "/x", "dtype": "torch.bfloat16", "complex": "1j",
        "none": None,
    }  # fmt: skip
    replies.close()
    os.close(commands)


def test_a_sides_own_children_do_not_inherit_the_pipe(ends):
    channel, commands, replies = ends
    assert not os.get_inheritable(channel._reader.fileno())
    assert not os.get_inheritable(channel._writer.fileno())
    os.close(commands)
    replies.close()


@pytest.mark.parametrize(
    ("there", "open_gpu", "told"),
    [(True, True, ["set_device", 1, "synchronize", 1]), (True, False, []), (False, True, [])],
)
def test_who_waits_makes_the_context_of_its_rank_where_it_is_told_to(monkeypatch, there, open_gpu, told):
    done: list[object] = []
    cuda = SimpleNamespace(
        is_available=lambda: there,
        set_device=lambda device: done.extend(["set_device", device]),
        synchronize=lambda device: done.extend(["synchronize", device]),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    worker = Worker(rank=1, world_size=2, store_port=0, listen_fd=-1)
    assert worker.on_load(modules=[], asked=[], device="cpu", open_gpu=open_gpu) == {}
    assert done == []
    assert worker.on_load(modules=[], asked=[], device="cuda", open_gpu=open_gpu) == {}
    assert done == told


def test_a_gpu_that_cannot_be_opened_is_left_to_set_up(monkeypatch):
    def fail() -> bool:
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=fail)))
    assert make_worker().on_load(modules=[], asked=[], device="cuda", open_gpu=True) == {}


def test_what_a_side_will_compile_with_is_imported_ahead_and_what_is_missing_is_left_to_set_up(monkeypatch):
    asked: list[str] = []

    def hash_itself():
        asked.append("hashed")

    def take(name):
        asked.append(name)
        if name == "not_here":
            raise ImportError(name)
        # As if this release of torch had no such function.
        return SimpleNamespace(triton_key=hash_itself) if name == "triton.runtime.cache" else SimpleNamespace()

    monkeypatch.setattr(obey.importlib, "import_module", take)
    sides = [("tensor.op", {"impl": "torch"}), ("tensor.op", {"impl": "compiled"})]
    assert make_worker().on_load(modules=["not_here", "json"], asked=sides, device="cpu", open_gpu=False) == {}
    compiler = ["torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache", "triton.runtime.cache"]
    assert asked == ["not_here", "json", *compiler, "hashed"]
