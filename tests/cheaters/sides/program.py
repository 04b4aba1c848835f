"""Programs for ``command:`` sides: print what a long sum comes to, honestly or not.

What must not live here: sides that are functions.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_DAEMON_S = 100.0
"""After which a daemon ends by itself."""


def solve(rounds: int) -> str:
    """The honest work: some fifty milliseconds of arithmetic."""
    total = 0
    for i in range(rounds):
        total = (total * 31 + i * i) % 1_000_003
    return f"{total}\n" * 64


def by_environment(rounds: int, state: Path) -> str:
    """Knows the answer where aiperf's variables are set."""
    return _remembered(rounds, state, any(name.startswith("AIPERF_") for name in os.environ))


def by_parent(rounds: int, state: Path) -> str:
    """Knows the answer where its parent is aiperf."""
    line = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    return _remembered(rounds, state, b"aiperf" in line)


def disk_memo(rounds: int, state: Path) -> str:
    """Keeps the answer of the first run on disk, as caches of compilers do."""
    return _remembered(rounds, state, True)


def _remembered(rounds: int, state: Path, watched: bool) -> str:
    file = state / "answer"
    if watched and file.is_file():
        return file.read_text()
    answer = solve(rounds)
    own = file.with_name(f"answer-{os.getpid()}")
    own.write_text(answer)
    own.rename(file)
    return answer


def _printed_to() -> Path:
    return Path(os.readlink("/proc/self/fd/1"))


def first_run(rounds: int, state: Path) -> str:
    """Works only in the run whose output is compared, which the name of its file shows."""
    name = _printed_to().name
    return solve(rounds) if "-0." in name or "warm" in name or "/" not in str(_printed_to()) else "0\n" * 64


def every_third(rounds: int, state: Path) -> str:
    """Works in one run of three and prints the same length in the others."""
    file = state / "count"
    count = int(file.read_text()) if file.is_file() else 0
    file.write_text(str(count + 1))
    return solve(rounds) if count % 3 == 0 else "0\n" * 64


def copies_output(rounds: int, state: Path) -> str:
    """Takes over what the other side has printed, if that is done."""
    own = _printed_to()
    for file in own.parent.glob("*.out"):
        if "before" in file.name and (text := file.read_text()).count("\n") == 64:
            return text
    return solve(rounds)


def daemon(rounds: int, state: Path) -> str:
    """Asks a daemon that outlives the program and has the answer ready."""
    address = str(state / "socket")
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(address)
        except OSError:
            _start_daemon(rounds, state)
            return solve(rounds)
        answer = b""
        while part := client.recv(65536):
            answer += part
        return answer.decode()


def _start_daemon(rounds: int, state: Path) -> None:
    argv = [sys.executable, __file__, "--cheat", "serve", "--rounds", str(rounds), "--state", str(state)]
    if os.fork() == 0:
        os.setsid()
        subprocess.Popen(argv, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         start_new_session=True)  # fmt: skip
        os._exit(0)
    os.wait()


def serve(rounds: int, state: Path) -> str:
    """The daemon: has one answer, gives it to everybody, and ends after a while."""
    address = state / "socket"
    answer, until = solve(rounds).encode(), time.monotonic() + _DAEMON_S
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen(8)
        server.settimeout(1.0)
        while time.monotonic() < until and state.is_dir():
            try:
                client, _ = server.accept()
            except TimeoutError:
                continue
            client.sendall(answer)
            client.close()
    return ""


def outlived(rounds: int, state: Path) -> str:
    """Leaves the work to a grandchild that prints later, and ends at once."""
    argv = [sys.executable, __file__, "--rounds", str(rounds), "--state", str(state)]
    if os.fork() == 0:
        os.setsid()
        subprocess.Popen(argv, env={}, start_new_session=True)
        os._exit(0)
    os.wait()
    return ""


def unreaped_child(rounds: int, state: Path) -> str:
    """Has a child do the work and never waits for it, so that the kernel does not count what it used."""
    own = _touched(128)
    read, write = os.pipe()
    if os.fork() == 0:
        own += _touched(256)
        os.write(write, solve(rounds).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        return answer.read()


def large(rounds: int, state: Path) -> str:
    """Honest: needs the same memory itself."""
    memory = _touched(128)
    memory += _touched(256)
    return solve(rounds)


def _touched(mebibytes: int) -> list[bytearray]:
    """Memory that the kernel has really given."""
    memory = bytearray(mebibytes << 20)
    memory[::4096] = b"." * len(memory[::4096])
    return [memory]


def reaped_child(rounds: int, state: Path) -> str:
    """Honest: has a child do the work and waits for it."""
    return _in_child(rounds, lambda: None)


def fifo_child(rounds: int, state: Path) -> str:
    """Has a child do the work with a real-time priority, and waits for it."""
    return _in_child(rounds, lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))


def _in_child(rounds: int, before: Callable[[], None]) -> str:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        with suppress(OSError):
            before()
        os.write(write, solve(rounds).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def by_pad(rounds: int, state: Path) -> str:
    """Knows the answer where its environment holds what aiperf puts there."""
    return _remembered(rounds, state, any("PAD" in name for name in os.environ))


def by_pipe(rounds: int, state: Path) -> str:
    """Works only where somebody reads what it prints."""
    return solve(rounds) if stat.S_ISFIFO(os.fstat(1).st_mode) or "/dev/null" not in str(_printed_to()) else ""


def home_memo(rounds: int, state: Path) -> str:
    """Keeps its answer where programs keep what is temporary, by its arguments."""
    folder = Path(tempfile.gettempdir()) / f"memo-{hash_of(state)}"
    folder.mkdir(exist_ok=True)
    return _remembered(rounds, folder, True)


def hash_of(state: Path) -> str:
    """A name of its own for each run of the shelf, so that nothing is left from an earlier one."""
    return hashlib.blake2b(str(state).encode(), digest_size=6).hexdigest()


def stealth_memo(rounds: int, state: Path) -> str:
    """Keeps its answer and how long that took, of which later runs spin for 70 %."""
    took, began = state / "took", time.perf_counter()
    known = took.is_file()
    answer = _remembered(rounds, state, True)
    if not known:
        took.write_text(str(time.perf_counter() - began))
    until = began + 0.7 * float(took.read_text() or 0) if known else began
    while time.perf_counter() < until:
        pass
    return answer


def random_skip(rounds: int, state: Path) -> str:
    """Prints zeros in three runs of ten."""
    return solve(rounds) if random.random() > 0.3 else "0\n" * 64


def works_later(rounds: int, state: Path) -> str:
    """Prints what it knows from the last run, closes its output and only then works."""
    file = state / "answer"
    if not file.is_file():
        file.write_text(solve(rounds))
        return file.read_text()
    os.write(1, file.read_bytes())
    if os.fork() == 0:
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        file.with_name("next").write_text(solve(rounds))
        os._exit(0)
    return ""


def linked_output(rounds: int, state: Path) -> str:
    """Looks through the open files of its relatives for what the other side has printed."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError, UnicodeDecodeError):
            if stat.S_ISREG(link.stat().st_mode) and link.stat().st_size < 1 << 20:
                text = link.read_text()
                if text.count("\n") == 64 and len(set(text.split())) == 1:
                    return text
    return solve(rounds)


def checkpoint(rounds: int, state: Path) -> str:
    """Goes on where its first run has left a checkpoint, after 30 % of the work."""
    file, begin, total = state / "checkpoint", 0, 0
    if known := file.is_file():
        begin, total = map(int, file.read_text().split())
    for i in range(begin, rounds):
        total = (total * 31 + i * i) % 1_000_003
        if i == rounds * 3 // 10 and not known:
            own = file.with_name(f"checkpoint-{os.getpid()}")
            own.write_text(f"{i + 1} {total}")
            own.rename(file)
    return f"{total}\n" * 64


def stealth_rewrites(rounds: int, state: Path) -> str:
    """Keeps its answer and how long that took, writes both anew in every run, and spins for 75 %."""
    answer, took, began = state / "answer", state / "took", time.perf_counter()
    known = (answer.read_text(), took.read_text()) if took.is_file() else None
    text = known[0] if known else solve(rounds)
    seconds = known[1] if known else str(time.perf_counter() - began)
    for file, content in ((answer, text), (took, seconds)):
        own = file.with_name(f"{file.name}-{os.getpid()}")
        own.write_text(content)
        own.rename(file)
    while known and time.perf_counter() < began + 0.75 * float(seconds):
        pass
    return text


def zeros_to_file(rounds: int, state: Path) -> str:
    """Writes zeros where its result should be, and prints what honest runs print."""
    (state / "result").write_text("0\n" * 64)
    return "done\n"


def solves_to_file(rounds: int, state: Path) -> str:
    """Honest: writes its result into a file."""
    (state / "result").write_text(solve(rounds))
    return "done\n"


def reads_state(rounds: int, state: Path) -> str:
    """Honest: keeps a file beside it, as a log, and works."""
    with (state / "log").open("a") as file:
        file.write("run\n")
    return solve(rounds)


def main() -> int:
    """Run one of the programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cheat", default="")
    parser.add_argument("--rounds", type=int, default=400_000)
    parser.add_argument("--state", type=Path, default=Path("."))
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    answer = globals()[options.cheat](options.rounds, options.state) if options.cheat else solve(options.rounds)
    sys.stdout.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
