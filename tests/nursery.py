"""Workers are forked from a process that has imported what every worker imports, which is most of their CPU time.

What must not live here: what a worker does. Started afresh is whatever a command starts in a process of its own, and
what has another interpreter, a checkout's folder, or variables that an interpreter or a library reads as it starts.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = {
    ("-m", "aiperf.worker"): "aiperf.worker.__main__",
    ("-P", "-m", "aiperf.worker.judge"): "aiperf.worker.judge",
    ("-m", "aiperf.worker.standalone"): "aiperf.worker.standalone",
}
"""Options of the interpreter -> the module whose ``main`` they run."""
USED = ("numpy.random",)
"""What no program imports at its beginning and every worker does as it draws its first numbers."""
HARMLESS = (
    "AIPERF_", "TEST_", "PYTEST_", "GITHUB_", "MY_API_TOKEN", "CUFILE_", "GLOO_", "NCCL_", "RANK", "LOCAL_RANK",
    "WORLD_SIZE", "COLUMNS", "TORCHINDUCTOR_CACHE_DIR", "_TORCHINDUCTOR_",
)  # fmt: skip
"""What variables begin with that are not read before a worker takes requests."""
JUDGES_OWN = {"MKL_NUM_THREADS", "OMP_NUM_THREADS"}
"""Of libraries that a judge does not load."""
_ALONE = ("-m", "aiperf.worker.standalone")
"""What runs under a profiler, in an environment of which little is left. It needs torch to trace itself."""
LOADS = "TEST_WORKERS_LOAD"
"""A variable that tests set whose workers all load one of these, which take long."""
LIBRARIES = ("", "torch.distributed", "aiohttp")
_LONGEST = 1 << 17
_LINE, _ROOM = 300, 1 << 14
"""Characters for which there is room in the command line and in the environment, so that a worker shows its own."""
_HIGH = 1000
"""Descriptors that come are kept above this number, until each gets the one that it had."""


class Forked:
    """As much of ``subprocess.Popen`` as aiperf.launch.child uses."""

    def __init__(self, args: list[str], pid: int) -> None:
        self.args, self.pid, self.returncode = args, pid, None


class Forker:
    """The other end of a process that forks workers, which has imported ``library`` besides when it is asked first."""

    def __init__(self, env: Mapping[str, str], library: str) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), library, " " * _LINE],
                env={**env, "ROOM": " " * _ROOM}, pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def ask(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Have a worker forked that has these descriptors; its number."""
        with self._turn:
            socket.send_fds(self._channel, [json.dumps(order).encode()], descriptors)
            return int(self._channel.recv(64))

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self._process.wait()


class Nursery:
    """What forks workers, as ``subprocess`` in the eyes of aiperf.launch.child."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self, root: Path) -> None:
        self._paths = [str(root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(self._paths), "OPENBLAS_NUM_THREADS": "1"}
        # All at once: tests count the processes that are there before and after.
        self._forkers = {library: Forker(self._env, library) for library in LIBRARIES}

    def close(self) -> None:
        """End the processes."""
        for forker in self._forkers.values():
            forker.close()

    def Popen(self, argv: list[str], *, env: dict[str, str], pass_fds: tuple[int, ...], **how: Any) -> Any:
        """Start a process: a worker or a judge by a fork, everything else afresh."""
        options = next((each for each in PROGRAMS if tuple(argv[1 : 1 + len(each)]) == each), None)
        if argv[0] != sys.executable or options is None or how["cwd"] or not self._fits(options, env):
            return subprocess.Popen(argv, env=env, pass_fds=pass_fds, **how)
        with open(os.devnull, "r+b") as null:
            given = {1: how["stdout"], 2: how["stderr"]} | {number: number for number in pass_fds}
            sent = [null if file == subprocess.DEVNULL else file for file in given.values()]
            order = {
                "module": PROGRAMS[options],
                "argv": argv,
                "arguments": argv[1 + len(options) :],
                "path": ([os.getcwd()] if "-P" not in options else []) + env["PYTHONPATH"].split(os.pathsep),
                "env": env,
                "cwd": os.getcwd(),
                "cpus": sorted(os.sched_getaffinity(0)),
                "descriptors": list(given),
                "parent": os.getpid(),
            }
            library = env.get(LOADS, "")
            if options == _ALONE:
                library = "torch.distributed" if json.loads(Path(argv[-1]).read_bytes()).get("trace") else ""
            forker = self._forkers[library]
            return Forked(argv, forker.ask(order, [file if isinstance(file, int) else file.fileno() for file in sent]))

    def _fits(self, options: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether a new interpreter would begin as this one did."""
        differ = {name for name in env.keys() | self._env.keys() if env.get(name) != self._env.get(name)}
        differ -= JUDGES_OWN if "-P" in options else set()
        differ -= {name for name in differ if name not in env or name == "TMPDIR"} if options == _ALONE else set()
        odd = {name for name in differ - {"PYTHONPATH"} if not name.startswith(HARMLESS)}
        return not odd and set(env["PYTHONPATH"].split(os.pathsep)) <= set(self._paths)


def serve(channel: socket.socket, library: str) -> None:
    """Fork as often as asked; returns in the process that nothing is asked any more, and exits in the others."""
    if library and not channel.recv(1, socket.MSG_PEEK):
        return
    for module in (*PROGRAMS.values(), *USED, *filter(None, [library])):
        importlib.import_module(module)
    own = len(os.environ["PYTHONPATH"].split(os.pathsep))
    always = sys.path[own:]
    gc.freeze()
    while True:
        line, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 16)
        if not line:
            return
        if not (between := os.fork()):
            # Who forks twice and ends leaves its child to aiperf, which adopts orphans before it starts a worker.
            if os.fork():
                os._exit(0)
            become(json.loads(line), descriptors, channel, always)
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def become(order: dict[str, Any], descriptors: list[int], channel: socket.socket, always: list[str]) -> None:
    """Be the worker that was ordered, to its end."""
    os.setsid()
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, _HIGH) for number in (*descriptors, channel.fileno())]
    os.closerange(3, _HIGH)
    for number, target in zip(high, order["descriptors"], strict=False):
        os.dup2(number, target)
    os.chdir(order["cwd"])
    os.sched_setaffinity(0, order["cpus"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[:] = [*order["path"], *always]
    module = sys.modules["__main__"] = sys.modules[order["module"]]
    sys.argv = [str(module.__file__), *order["arguments"]]
    show(order["argv"], order["env"])
    while os.getppid() != order["parent"]:
        time.sleep(0.0002)
    with socket.socket(fileno=high[-1]) as asked:
        asked.send(str(os.getpid()).encode())
    os.closerange(_HIGH, high[-1] + 1)
    sys.exit(module.main())


def show(argv: list[str], env: dict[str, str]) -> None:
    """Have /proc show these, in place of the command line and the environment that this process began with."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    # arg_start, arg_end, env_start and env_end of proc(5).
    for place, words in ((45, argv), (47, [f"{name}={value}" for name, value in env.items()])):
        begin, end = int(fields[place]), int(fields[place + 1])
        text = "\0".join(words).encode()
        assert len(text) < end - begin
        ctypes.memset(begin, 0, end - begin)
        ctypes.memmove(begin, text, len(text))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
