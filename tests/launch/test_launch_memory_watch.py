"""Real processes that hold memory: in themselves, in a child, in a file that nobody has mapped."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aiperf.launch.memory_watch import MemoryWatch

BYTES = 64 << 20
_SAYS = "print(flush=True); sys.stdin.read(1)"
HOLDERS = {
    "itself": f"import sys; held = b'x' * {BYTES}; {_SAYS}",
    "child": (
        f"import os, sys, time; early = b'x' * {BYTES}; child = os.fork()\n"
        f"if not child: held = b'y' * {BYTES}; print(flush=True); time.sleep(60)\n"
        "sys.stdin.read(1); os.kill(child, 9)"
    ),
    "file": f"import os, sys; file = os.memfd_create('x'); os.write(file, b'x' * {BYTES}); {_SAYS}",
    "mapped": (
        f"import mmap, os, sys; file = os.memfd_create('x'); os.ftruncate(file, {BYTES}); "
        f"held = mmap.mmap(file, {BYTES}); held.write(b'x' * {BYTES}); {_SAYS}"
    ),
    "fork": (
        f"import os, sys, time; held = b'x' * {BYTES}; child = os.fork()\n"
        "if not child: time.sleep(60)\n"
        "print(flush=True); sys.stdin.read(1); os.kill(child, 9)"
    ),
}


@pytest.mark.parametrize(
    ("where", "resident", "elsewhere"),
    [
        ("itself", True, False),
        ("child", True, True),
        ("file", False, True),
        ("mapped", True, False),
        ("fork", True, False),
    ],
)
def test_memory_is_seen_where_it_is_and_counted_once(where: str, resident: bool, elsewhere: bool) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDERS[where]], start_new_session=True, **pipes) as process:
        process.stdout.readline()
        watch = MemoryWatch({"after": (process.pid,)})
        watch._look(watch._seen["after"], (process.pid,), everywhere=True)
        process.communicate(b".", timeout=10)
    seen = watch.of("after")
    assert (seen["resident_bytes"] > BYTES) == resident
    assert (seen["elsewhere_bytes"] > 0.9 * BYTES) == elsewhere
    assert seen["elsewhere_bytes"] < 1.5 * BYTES


def test_a_thread_sees_a_peak_that_has_gone_again_and_is_gone_itself() -> None:
    code = f"import sys, time; held = b'x' * {BYTES}; time.sleep(0.2); del held; print(flush=True); sys.stdin.read(1)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes) as process:
        watch = MemoryWatch({"after": (process.pid,)})
        watch.start()
        process.stdout.readline()
        watch.stop()
        watch.stop()
        process.communicate(b".", timeout=10)
    assert watch.of("after")["resident_bytes"] > BYTES
    assert not watch._thread.is_alive()


def test_without_workers_nothing_is_looked_at() -> None:
    watch = MemoryWatch({"before": ()})
    watch.start()
    watch.stop()
    assert watch.of("before") == watch.of("after") == {}
