"""Workloads that go wrong, each in one way, and the healthy one that they are compared with."""

import ctypes
import fcntl
import itertools
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload

ITEMS = 4096
ORPHAN = "orphan-of-a-misbehaving-side"
"""Last argument of the process that ``leaves_child`` leaves behind, to find it by."""


def healthy(context: Context) -> Workload:
    """Tanh of a vector."""
    x = np.random.default_rng(context.seed).standard_normal(ITEMS)
    out = np.empty_like(x)

    def step() -> None:
        np.tanh(x, out=out)

    return Workload(step, Work(items=ITEMS), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _spoilt(context: Context, spoil: Callable[[], object], *, at: int = 1) -> Workload:
    """The healthy workload, whose step does something bad when it is called for the ``at``-th time."""
    well = healthy(context)
    count = itertools.count(1)

    def step() -> None:
        well.step()
        if next(count) == at:
            spoil()

    return replace(well, step=step)


def _forever() -> NoReturn:
    while True:
        time.sleep(3600)


def _raise(error: Exception) -> NoReturn:
    raise error


def set_up_raises(context: Context) -> Workload:
    """Fail before there is a workload."""
    raise RuntimeError("no such model")


def step_raises(context: Context) -> Workload:
    """Fail in the fifth step."""
    return _spoilt(context, lambda: _raise(ValueError("the fifth batch is broken")), at=5)


def segfaults(context: Context) -> Workload:
    """Read address zero."""
    return _spoilt(context, lambda: ctypes.string_at(0))


def exits(context: Context) -> Workload:
    """Leave without a word."""
    return _spoilt(context, lambda: os._exit(3))


def killed(context: Context) -> Workload:
    """End by a signal that cannot be caught."""
    return _spoilt(context, lambda: os.kill(os.getpid(), signal.SIGKILL))


def hangs_in_step(context: Context) -> Workload:
    """Never come back from a step."""
    return _spoilt(context, _forever)


def hangs_in_set_up(context: Context) -> Workload:
    """Never come back from set-up."""
    _forever()


def hangs_in_close(context: Context) -> Workload:
    """Never come back from close."""
    return replace(healthy(context), close=_forever)


def ignores_sigterm(context: Context) -> Workload:
    """Hang and shrug off a polite request to end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return _spoilt(context, _forever)


def out_of_memory(context: Context) -> Workload:
    """Ask for more memory than there are addresses."""
    return _spoilt(context, lambda: np.empty(1 << 58, dtype=np.uint8))


def out_of_device_memory(context: Context) -> Workload:
    """Raise what torch raises when a GPU is full."""
    import torch

    return _spoilt(context, lambda: _raise(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")))


def prints(context: Context) -> Workload:
    """Write to standard output in set-up and step, through Python and past it."""
    print('{"ok": false}')

    def chatter() -> None:
        print('{"ok": true}\x00 not json', flush=True)
        os.write(1, b"\xff\xfe no utf-8 either\n" * 1000)

    return _spoilt(context, chatter)


def writes_to_pipes(context: Context) -> Workload:
    """Write garbage to every pipe that this process may write to."""
    return _spoilt(context, _write_to_pipes)


def _write_to_pipes() -> None:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
            writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        except OSError:
            continue
        if is_pipe and writable:
            os.write(fd, b"!! garbage !!\n")


def dead_rank(context: Context) -> Workload:
    """Lose rank 1 in the first step; rank 0 is well."""
    return _spoilt(context, lambda: os._exit(3)) if context.rank == 1 else healthy(context)


def outputs_raise(context: Context) -> Workload:
    """Fail when the outputs are read."""

    def outputs() -> Mapping[str, Any]:
        raise KeyError("logits")

    return replace(healthy(context), outputs=outputs)


def outputs_differ(context: Context) -> Workload:
    """Compute something else."""
    well = healthy(context)

    def step() -> None:
        well.step()
        well.outputs()["out"][7] += 1.0

    return replace(well, step=step)


def leaves_child(context: Context) -> Workload:
    """Start a process in a session of its own and forget it."""
    program = "import time; time.sleep(3600)"
    subprocess.Popen([sys.executable, "-c", program, ORPHAN], start_new_session=True, stdin=subprocess.DEVNULL)
    return healthy(context)


def leaves_orphan(context: Context) -> Workload:
    """Fork twice, so that a process with an empty environment has no parent below this one."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 64)
            os.execve(sys.executable, [sys.executable, "-S", "-c", "import signal; signal.pause()", ORPHAN], {})
        os._exit(0)
    os.wait()
    return healthy(context)


def no_workload(context: Context) -> Any:
    """Return a dictionary that looks like one."""
    return {"step": lambda: None, "work": Work(), "outputs": dict}
