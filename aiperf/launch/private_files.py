"""Runs one program several times with the files that its first run left, and without them, in a view of the file
system of its own, and prints how much CPU time that took.

What must not live here: imports of this package: it is started bare with ``python -I -S FILE ORDER PROGRAM ...``
(kept_files.py). Nothing outside of the view is written, renamed or removed: what the program writes goes into a layer
in memory (overlayfs on tmpfs, in a mount namespace of this process), which the kernel drops with its last process.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import select
import shutil
import signal
import stat
import sys
import time
from statistics import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_SUBREAPER = 36
_ROUNDS, _SOON, _HINT = 9, ((3, 2.0), (5, 1.2)), 1.1
"""Rounds that a small difference takes; fewer that are enough, with the ratio of their extremes; and the ratio of
medians below which more of them show nothing."""
_POLL_S = 0.002
_FIRST_SHARE = 0.4
"""Of the time of all runs: with a longer first one there would be no two others."""
_MOST_FILES, _MOST_BYTES = 200, 64 << 20
"""Of which contents are looked at."""
_CODE_SUFFIXES = (
    ".py", ".pyc", ".pyo", ".nbi", ".nbc", ".so", ".o", ".a", ".lo", ".d", ".c", ".cc", ".cpp", ".cu", ".h", ".ll",
    ".bc", ".ptx", ".cubin", ".fatbin", ".hsaco", ".ttir", ".class", ".jar", ".ji", ".rlib", ".rmeta", ".wasm", ".hlo",
)  # fmt: skip
_CODE_FOLDERS = (
    "__pycache__", ".nv", "ComputeCache", ".triton", "torchinductor", "torch_extensions", "kernel_cache", ".cupy",
    ".numba", "ccache", ".ccache", "sccache", "go-build", ".cargo", ".julia", "jax", "xla", "tvm", "tilelang", ".keras",
    "matplotlib", "fontconfig", "mesa_shader_cache", "node_modules", "node-compile-cache", "CMakeFiles",
)  # fmt: skip
_TAG = "CACHEDIR.TAG"
"""A file by which a folder says that it is a cache (bford.info/cachedir), as those of compilers and checkers do."""
_CODE_BEGINS = (b"\x7fELF", b"!<arch>", b"BC\xc0\xde", b"\xca\xfe\xba\xbe", b"\0asm")


class Unable(Exception):
    """This host gives no view of its own, or the program failed in it."""


class View:
    """A program and the folders in which what it writes is kept apart."""

    def __init__(self, order: dict[str, Any], argv: Sequence[str]) -> None:
        self.argv, self.folder = argv, order["folder"]
        self.places: list[str] = order["places"]
        self.until = time.monotonic() + order["limit_s"]
        self._printed = order["printed"]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._layers = 0
        self._libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        self._enter()
        self._mount("none", "/", "", _RECURSIVE | _PRIVATE)
        self._mount("tmpfs", order["spool"], "tmpfs", 0, f"size={order['bytes']},mode=700")
        os.chdir(order["spool"])
        self._below = _mounts_below(self.places, order["spool"])
        os.mkdir("root")
        if self._below:
            self._mount("/", "root", "", _BIND | _RECURSIVE)

    def layer(self) -> str:
        """A new layer without any file."""
        self._layers += 1
        name = str(self._layers)
        for index, place in enumerate(self.places):
            os.makedirs(f"{name}/{index}/work")
            os.mkdir(f"{name}/{index}/upper")
            _like(place, f"{name}/{index}/upper")
        return name

    def run(self, layer: str, *, share: float = 1.0) -> float:
        """Run the program above a layer; seconds of CPU time from its exec on. Raises Unable where it fails, or lasts
        longer than this share of the time that is left."""
        until = time.monotonic() + share * (self.until - time.monotonic())
        told, tell = os.pipe()
        read, write = os.pipe() if self._printed else (-1, os.open(os.devnull, os.O_WRONLY))
        child = os.fork()
        if child == 0:
            self._become(layer, write, tell)
        os.close(write)
        os.close(tell)
        try:
            while (ended := os.wait4(child, os.WNOHANG))[0] == 0:
                if time.monotonic() > until:
                    raise Unable
                _drain(read) if read >= 0 else time.sleep(_POLL_S)
        finally:
            self._end_family()
            before = os.read(told, 64)
            for descriptor in (read, told) if read >= 0 else (told,):
                os.close(descriptor)
        if ended[1] != 0 or not before:
            raise Unable
        return max(ended[2].ru_utime + ended[2].ru_stime - float(before), 0.0)

    def _become(self, layer: str, output: int, tell: int) -> None:
        """In a child: be the program, above a layer, and say how much CPU time that took so far."""
        try:
            if self._libc.unshare(_NEW_MOUNTS) != 0:
                raise Unable
            for index, place in enumerate(self.places):
                folders = f"upperdir={layer}/{index}/upper,workdir={layer}/{index}/work"
                self._mount("overlay", place, "overlay", 0, f"lowerdir={place},{folders}")
            for mount in self._below:
                self._mount(f"root{mount}", mount, "", _BIND | _RECURSIVE)
            os.chdir(self.folder)
            null = os.open(os.devnull, os.O_RDWR)
            for ours, its in ((null, 0), (output, 1), (null, 2)):
                os.dup2(ours, its)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and its children with it
                signal.signal(number, signal.SIG_DFL)
            os.write(tell, b"%.6f" % time.process_time())
            os.execvp(self.argv[0], list(self.argv))
        finally:
            os._exit(127)

    def _enter(self) -> None:
        """Have mounts of our own, as a user of a namespace where this one may not mount."""
        if self._libc.unshare(_NEW_MOUNTS) == 0:
            return
        user, group = os.geteuid(), os.getegid()
        if self._libc.unshare(_NEW_USERS | _NEW_MOUNTS) != 0:
            raise Unable
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)

    def _mount(self, source: str, target: str, kind: str, flags: int, options: str = "") -> None:
        words = [os.fsencode(word) if word else None for word in (source, target, kind)]
        if self._libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) or None) != 0:
            raise Unable

    def _end_family(self) -> None:
        """Kill what the program left running, which comes to this process as its parents end."""
        while True:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                children = [int(word) for word in file.read().split()]
            for child in children:
                os.kill(child, signal.SIGKILL)
            for child in children:
                os.waitpid(child, 0)
            if not children:
                return


def _drain(descriptor: int) -> None:
    """Read what there is, or wait a little."""
    if select.select([descriptor], [], [], _POLL_S)[0] and not os.read(descriptor, 1 << 20):
        time.sleep(_POLL_S)


def _mounts_below(places: Sequence[str], spool: str) -> list[str]:
    """The mounts below some places, outer ones first, which views of the places would hide; without our own."""
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4].encode().decode("unicode_escape") for line in file]
    inside = [point for point in points if point.startswith(tuple(f"{place}/" for place in places))]
    return [point for point in inside if point != spool and os.path.exists(point)]


def _like(model: str, path: str) -> None:
    """Give a folder the mode and, where that is allowed, the owner of another one."""
    found = os.stat(model)
    with contextlib.suppress(OSError):
        os.chown(path, found.st_uid, found.st_gid)
    os.chmod(path, stat.S_IMODE(found.st_mode))


# ---- what a run left -------------------------------------------------------------------------------------------------


def left(layer: str, places: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(place, path below it) of files that a run wrote, and of whole folders that it made."""
    for index, place in enumerate(places):
        yield from ((index, path) for path in _left(f"{layer}/{index}/upper", place, ""))


def _left(upper: str, place: str, below: str) -> Iterator[str]:
    with os.scandir(os.path.join(upper, below)) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            path = os.path.join(below, entry.name)
            if entry.is_dir(follow_symlinks=False) and os.path.isdir(os.path.join(place, path)):
                yield from _left(upper, place, path)
            elif not stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode):  # the mark of a removed file
                yield path


def files_in(path: str) -> Iterator[str]:
    """The regular files in a folder and in those in it, or the file itself."""
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, names in os.walk(path):
            yield from (found for name in sorted(names) if os.path.isfile(found := os.path.join(folder, name)))
    elif os.path.isfile(path):
        yield path


def may_stay(layer: str, unit: tuple[int, str], places: Sequence[str]) -> bool:
    """Whether what a run left, as ``left`` gives it, holds code, or lies in a folder that says that it is a cache: what
    compilers keep is no answer, and a side that compiles nothing has none of it."""
    index, below = unit
    path, folder = os.path.join(f"{layer}/{index}/upper", below), os.path.dirname(os.path.join(places[index], below))
    while len(folder) > len(places[index]):
        if os.path.lexists(os.path.join(folder, _TAG)):
            return True
        folder = os.path.dirname(folder)
    return _is_named(below) or any(_is_code(file, file[len(path) :]) for file in files_in(path))


def _is_named(below: str) -> bool:
    return any(part.startswith(_CODE_FOLDERS) for part in below.split(os.sep))


def _is_code(file: str, below: str) -> bool:
    if file.endswith(_CODE_SUFFIXES) or os.path.basename(file) == _TAG or _is_named(below):
        return True
    with open(file, "rb") as opened:
        return opened.read(8).startswith(_CODE_BEGINS)


def _copy(path: str, target: str, place: str) -> None:
    """Copy a file or folder of one layer into another, with the folders above it."""
    missing, parent = [], os.path.dirname(target)
    while not os.path.isdir(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    for folder in reversed(missing):
        os.mkdir(folder)
        _like(os.path.join(place, folder.split("/upper/", 1)[1]), folder)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.copytree(path, target, symlinks=True)
    else:
        shutil.copy2(path, target, follow_symlinks=False)


def digests(layer: str, units: Sequence[tuple[int, str]], places: Sequence[str]) -> dict[str, str]:
    """Path -> digest of each file of some that a run left, as far as they are few and small."""
    found: dict[str, str] = {}
    total = 0
    for index, below in units:
        upper = f"{layer}/{index}/upper"
        for file in files_in(os.path.join(upper, below)):
            total += os.path.getsize(file)
            if len(found) >= _MOST_FILES or total > _MOST_BYTES:
                return found
            with open(file, "rb") as opened:
                digest = hashlib.blake2b(opened.read(), digest_size=8).hexdigest()
            found[os.path.join(places[index], os.path.relpath(file, upper))] = digest
    return found


def measure(view: View) -> dict[str, Any]:
    """CPU seconds of the first run, and of later ones with what it left (``kept``) and with the code of that alone
    (``without``), until these do not differ clearly; ``left``: paths; ``files``: those that two such runs wrote alike.
    """
    first = view.layer()
    found: dict[str, Any] = {
        "first": view.run(first, share=_FIRST_SHARE),
        "kept": [],
        "without": [],
        "left": [],
        "files": {},
    }
    units = list(left(first, view.places))
    code = [unit for unit in units if may_stay(first, unit, view.places)]
    data = [unit for unit in units if unit not in code]
    found["left"] = [os.path.join(view.places[index], below) for index, below in data]
    if not data:
        return found
    before = digests(first, data, view.places)
    rounds: list[tuple[float, float]] = []
    with contextlib.suppress(Unable):  # what is known by then remains
        while _goes_on(rounds):
            bare = view.layer()
            for index, below in code:
                upper = f"{bare}/{index}/upper"
                _copy(f"{first}/{index}/upper/{below}", f"{upper}/{below}", view.places[index])
            turns = [first, bare] if len(rounds) % 2 == 0 else [bare, first]
            took = {layer: view.run(layer) for layer in turns}
            rounds.append((took[first], took[bare]))
            if len(rounds) == 1:
                again = digests(bare, data, view.places)
                found["files"] = {path: digest for path, digest in before.items() if again.get(path) == digest}
            shutil.rmtree(bare, ignore_errors=True)
    return {**found, "kept": [kept for kept, _ in rounds], "without": [without for _, without in rounds]}


def _goes_on(rounds: Sequence[tuple[float, float]]) -> bool:
    """Whether another round can still show more than these do."""
    if not rounds:
        return True
    kept, without = zip(*rounds, strict=True)
    soon = any(len(rounds) >= few and min(without) > times * max(kept) for few, times in _SOON)
    hint = median(without) > _HINT * median(kept) and sum(bare <= own for own, bare in rounds) <= 1
    return hint and not soon and len(rounds) < _ROUNDS


def be_called_as(pid: int) -> None:
    """Have this process be listed with the command of another one, its parent: that is what a program sees as its own
    parent in every other run."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        command = file.read()
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = (int(fields[number - 3]) for number in (48, 49))  # arg_start and arg_end of proc(5)
    ctypes.memmove(start, command.ljust(end - start, b"\0"), end - start)


def main() -> int:
    """Print what was found as JSON; 1 where nothing can be."""
    try:
        be_called_as(os.getppid())
        print(json.dumps(measure(View(json.loads(sys.argv[1]), sys.argv[2:]))))
    except (Unable, OSError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
