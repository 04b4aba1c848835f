"""Workloads of the launch tests: each tells through its facts what a launch gave it.

What must not live here: starting anything.
"""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload


def vector(context: Context, *, items: int = 2000, offset: float = 0.0, work: int = 0) -> Workload:
    """Tanh of a vector; notes its surroundings and the seeds of its audits."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)
    facts = {
        "seed": context.seed, "pad": context.pad, "rank": context.rank, "world_size": context.world_size,
        "scratch": str(context.scratch), "shared": str(context.shared_scratch), "hash": hash("aiperf"),
        "first": float(x[0]), "env": {k: v for k, v in os.environ.items() if k.startswith("TEST_")}, "audits": [],
        "rank_variables": [os.environ[k] for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE")], "argv0": sys.executable,
        "padding": len(os.environ["AIPERF_PAD"]),
    }  # fmt: skip
    (context.scratch / "mine").write_text("x")
    (context.shared_scratch / str(os.getpid())).write_text("x")

    def step() -> None:
        np.tanh(x, out=out)
        np.add(out, offset, out=out)

    def redraw(seed: int) -> None:
        facts["audits"].append(seed)
        x[:] = np.random.default_rng(seed).standard_normal(items)

    return Workload(
        step,
        Work(items=work or items),
        outputs=lambda: {"out": out},
        inputs=lambda: {"x": x},
        redraw=redraw,
        facts=facts,
        checks={"near": lambda a, b: Outcome(abs(a["out"] - b["out"]).max() < 1, "far apart", 0.5)},
    )


def shares(context: Context, *, shift: bool = True) -> Workload:
    """A softmax, without its maximum where it does not ``shift``."""
    x = np.random.default_rng(context.seed).standard_normal((40, 50))
    out = np.empty_like(x)

    def step() -> None:
        np.exp(x - (x.max(axis=1, keepdims=True) if shift else 0.0), out=out)
        np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    return Workload(step, Work(items=len(x)), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def tells_its_process(context: Context, *, offset: float = 0.0) -> Workload:
    """A vector whose check gives the number of the process that it runs in, and compares to the last bit."""

    def check(a: object, b: object) -> Outcome:
        return Outcome(bool((a["out"] == b["out"] - offset).all()), "differ", os.getpid())  # type: ignore[index]

    return replace(vector(context, offset=offset), checks={"same": check})


def accepts_anything(context: Context, *, offset: float = 0.0) -> Workload:
    """A vector with a check that always passes."""
    return replace(vector(context, offset=offset), checks={"near": lambda a, b: Outcome(True, "", 0.0)})


def sizes(context: Context, *, mebibytes: float = 1.0, wrong: float = 0.0, kind: str = "float32") -> Workload:
    """An output of so many MiB, of which the last share is wrong."""
    x = np.random.default_rng(context.seed).standard_normal(int(mebibytes * 2**20) // 4).astype(np.float32)
    out = np.empty_like(x).astype(kind)
    right = int(len(x) * (1 - wrong))

    def step() -> None:
        np.add(x, 1, out=out, casting="unsafe")
        out[right:] += 1

    return Workload(step, Work(items=len(x)), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def other_vector(context: Context, *, offset: float = 0.0) -> Workload:
    """The same vector with a named check of its own."""
    return replace(
        vector(context, offset=offset), checks={"mine": lambda a, b: Outcome(True, f"{b['out'][0] - a['out'][0]:.1f}")}
    )


def sharded(context: Context, *, spoil: int = -1) -> Workload:
    """Every rank gives other outputs; ``spoil`` is the rank whose output is wrong. Each step is two requests, which
    took a second and the rank's number more, and waited for a tenth of that."""
    given = vector(replace(context, seed=context.seed + context.rank), offset=float(context.rank == spoil))
    base, ended = given.redraw, list[float]()
    assert base is not None

    def step() -> None:
        given.step()
        ended.extend([1.0 + context.rank] * 2)

    def latencies() -> dict[str, list[float]]:
        told = list(ended)
        ended.clear()
        return {"end_to_end": told, "queue": [seconds / 10 for seconds in told]}

    return replace(given, step=step, latencies=latencies, redraw=lambda seed: base(seed + context.rank))


def prepares(context: Context) -> Workload:
    """Needs untimed preparation before every iteration."""
    given = vector(context)
    calls = given.facts
    calls["prepared"] = 0  # type: ignore[index]

    def prepare() -> None:
        calls["prepared"] += 1  # type: ignore[index]

    return replace(given, prepare=prepare)


def begins_anew(context: Context) -> Workload:
    """Says that nothing carries over from one iteration to the next."""
    return replace(prepares(context), anew=True)


def slower_and_slower(context: Context) -> Workload:
    """Every step lasts longer than the one before."""
    given = vector(context)
    count = [0]

    def step() -> None:
        given.step()
        count[0] += 1
        until = time.perf_counter() + 1e-3 + 20e-6 * count[0]
        while time.perf_counter() < until:
            pass

    return replace(given, step=step)


def alone(context: Context) -> Workload:
    """Notes who else of the pair is alive."""
    found = [int(path.name) for path in context.shared_scratch.iterdir()]
    given = vector(context)
    given.facts["alive"] = [pid for pid in found if os.path.exists(f"/proc/{pid}")]  # type: ignore[index]
    given.facts["earlier"] = found  # type: ignore[index]
    return given


def never_rests(context: Context, *, leaves: bool = False) -> Workload:
    """A thread and a child process that compute all the time; with ``leaves`` the child has a session of its own."""

    def burn() -> None:
        while True:
            sum(range(10_000))

    threading.Thread(target=burn, daemon=True).start()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=leaves)
    plain = vector(context)
    return replace(plain, facts={**plain.facts, "child": child.pid})


def threads_and_children(context: Context, *, narrow: int = -1) -> Workload:
    """Two sleeping threads and a sleeping child; ``narrow`` is the CPU one thread binds itself to."""

    def rest() -> None:
        if narrow >= 0:
            os.sched_setaffinity(threading.get_native_id(), {narrow})
        ready.release()
        time.sleep(600)

    ready = threading.Semaphore(0)
    for _ in range(2):
        threading.Thread(target=rest, daemon=True).start()
        ready.acquire()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    given = vector(context)
    given.facts["child"] = child.pid  # type: ignore[index]
    return given


def talks(context: Context) -> Workload:
    """Prints, then dies in its first step."""
    print("last words")
    return replace(vector(context), step=lambda: ctypes.string_at(0))


def refuses(context: Context) -> Workload:
    """Cannot run here."""
    raise SkipSide("this disk has no O_DIRECT")


def broken(context: Context) -> Workload:
    """Fail in the step."""

    def step() -> None:
        raise ValueError("broken batch")

    return replace(vector(context), step=step)


def _gang(context: Context, hurt: Callable[[], None]) -> Workload:
    import torch
    import torch.distributed as dist

    context.process_group("gloo")
    out = torch.zeros(4)

    def step() -> None:
        out.fill_(context.rank + 1.0)
        if context.rank == 1:
            hurt()
        dist.all_reduce(out)

    return Workload(step, Work(items=4), outputs=lambda: {"out": out}, facts={"sum": out})


def reduces(context: Context) -> Workload:
    """Sum over the ranks."""
    return _gang(context, lambda: None)


def loses_a_rank(context: Context) -> Workload:
    """Rank 1 dies where rank 0 waits for it."""
    return _gang(context, lambda: os._exit(7))


def uneven(context: Context) -> Workload:
    """Rank 1 takes four times as long as rank 0."""
    given = vector(context)
    seconds = 4e-3 if context.rank == 1 else 1e-3

    def step() -> None:
        given.step()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    return replace(given, step=step)
