"""One run's folder being written: exclusively created, every file whole or not there at all.

What must not live here: reading back (read.py), printing, deciding what is worth keeping.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from aiperf.errors import AiperfError, UserError, usage
from aiperf.records import Case, CaseRecord, RunRecord
from aiperf.store.claim import RunClaim
from aiperf.store.codec import encode_case, encode_run
from aiperf.store.samples import encode_samples, strip_samples

CASES, SAMPLES, RUN_FILE, LATEST = "cases", "samples", "run.json", "latest"
TEMPORARY = ".part"
_NAME_BYTES = 200
_MARK_DIGITS = 8
_PROBE = b"\0" * 65536
_TRIES = 1000
_GIT_IGNORES = b"# aiperf: runs are data, not source. Curated ones go into reference/.\n*\n!reference/\n!reference/**\n"

Opener = Callable[[Path], BinaryIO]


class StoreError(AiperfError):
    """A record could not be saved in mid-run; ``saved`` names the cases that are safe, ``lost`` the one that is not."""

    def __init__(self, message: str, *, saved: tuple[str, ...], lost: str) -> None:
        super().__init__(message)
        self.saved = saved
        self.lost = lost


def file_name(case: Case) -> str:
    """File name of a case without its extension: unique in a run and short enough for every file system.

    An id that is a good file name stays itself; any other carries eight digits of its hash, so that two ids that
    differ only in replaced characters do not meet.
    """
    stem = case.file_stem
    if stem == case.id and len(stem.encode()) <= _NAME_BYTES - 8 and not stem.startswith("."):
        return stem
    mark = "-" + hashlib.sha256(case.id.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_DIGITS]
    return _short(stem) + mark


def name_stem(name: str) -> str:
    """Beginning that the files of every case of the scenario ``name``, or of the case with that id, share."""
    return _short(Case(scenario=name, id=name, title="", why="", sides=()).file_stem)


def _short(stem: str) -> str:
    """``stem`` cut so that the hash and the extension find room behind it."""
    room = _NAME_BYTES - 8 - 1 - _MARK_DIGITS
    return stem.lstrip(".").encode("utf-8", "ignore")[:room].decode("utf-8", "ignore")


def open_new(path: Path) -> BinaryIO:
    """Open a new file for writing; fails when it is there already."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb")


def write_whole(path: Path, data: bytes, *, opener: Opener = open_new) -> None:
    """Write ``data`` to ``path`` so that a reader, or a kill at any moment, finds the old file or the new one.

    Raises OSError; then nothing is left behind.
    """
    with whole_file(path, opener=opener) as file:
        file.write(data)


@contextlib.contextmanager
def whole_file(path: Path, *, opener: Opener = open_new) -> Iterator[BinaryIO]:
    """A file that becomes ``path`` when all of it is on disk; nothing is left behind otherwise."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with opener(part) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # Some network file systems refuse to open or sync a folder; the rename itself stands without it.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class RunWriter:
    """The folder of one run: ``run.json``, ``cases/NAME.json``, ``samples/NAME.parquet``."""

    def __init__(self, folder: Path, *, opener: Opener = open_new) -> None:
        self.folder = folder
        self._opener = opener
        self._saved: list[str] = []
        self.claim = RunClaim(folder)
        """Whoever measures into the folder takes it, and lets it go when done."""

    @classmethod
    def create(
        cls, results: Path, *, hostname: str = "", now: datetime | None = None, opener: Opener = open_new
    ) -> RunWriter:
        """Make ``results/<UTC time>-<host>/`` and prove that it can be written, before anything is measured.

        Raises UserError when the folder is read-only, full or not a folder.
        """
        stamp = (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H-%M-%S")
        name = f"{stamp}-{_host_part(hostname or socket.gethostname())}"
        made: list[Path] = []
        try:
            _make_results(results)
            writer = cls(_new_folder(results, name), opener=opener)
            made.append(writer.folder)
            for part in (CASES, SAMPLES):
                made.append(writer.folder / part)
                made[-1].mkdir()
            writer._probe()
        except OSError as error:
            for path in reversed(made):
                with contextlib.suppress(OSError):
                    path.rmdir()
            raise _unwritable(results, error) from None
        return writer

    @property
    def name(self) -> str:
        """Folder name: the run's name."""
        return self.folder.name

    @property
    def saved(self) -> tuple[str, ...]:
        """Ids of the cases that are safe on disk, in the order in which they were saved."""
        return tuple(self._saved)

    def write_run(self, record: RunRecord) -> None:
        """Write or replace ``run.json`` and point ``results/latest`` at this run. Raises StoreError."""
        self._write("run.json", self.folder / RUN_FILE, encode_run(record))
        self._link_latest()

    def write_case(self, record: CaseRecord) -> Path:
        """Save one case: its samples as Parquet, then its record without them as JSON. Returns the JSON's path.

        The record comes last, so that a record that can be read has its samples. Raises StoreError.
        """
        name = file_name(record.case)
        if record.pairs:
            self._write(record.case.id, self.folder / SAMPLES / f"{name}.parquet", encode_samples(record))
        path = self.folder / CASES / f"{name}.json"
        self._write(record.case.id, path, encode_case(strip_samples(record)))
        if record.case.id not in self._saved:
            self._saved.append(record.case.id)
        return path

    def _write(self, what: str, path: Path, data: bytes) -> None:
        try:
            write_whole(path, data, opener=self._opener)
        except OSError as error:
            count = len(self._saved)
            kept = f"{count} case{'s' if count != 1 else ''} saved before it in {self.folder}"
            message = f"{what} could not be saved: {_plainly(error)}; {kept}"
            raise StoreError(message, saved=self.saved, lost=what) from None

    def _probe(self) -> None:
        probe = self.folder / f".probe{TEMPORARY}"
        write_whole(probe, _PROBE, opener=self._opener)
        probe.unlink()

    def _link_latest(self) -> None:
        # A convenience: where links are not allowed, "latest" is found by name instead (read.py).
        link = self.folder.parent / LATEST
        part = link.with_name(f".{LATEST}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
        try:
            os.symlink(self.name, part)
            os.replace(part, link)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()


def _make_results(results: Path) -> None:
    """Make the folder that holds the runs. In a new one git overlooks everything but ``reference/``: a run must not
    make the checkout that it measures look changed."""
    if results.is_dir():
        return
    results.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), open_new(results / ".gitignore") as file:
        file.write(_GIT_IGNORES)


def _host_part(hostname: str) -> str:
    short = hostname.split(".")[0][:63]
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in short) or "host"


def _new_folder(results: Path, name: str) -> Path:
    """``results/name``, or with -2, -3, ... when another run was first: mkdir is the lock."""
    for count in range(1, _TRIES):
        folder = results / (name if count == 1 else f"{name}-{count}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(17, "too many runs of this second", str(results / name))


def _plainly(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def _unwritable(results: Path, error: OSError) -> UserError:
    what = f"the results folder cannot be written: {_plainly(error)}."
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = (
        "Free some space, or choose another folder with --results PATH." if full else "Choose another: --results PATH."
    )
    return usage(what, hint, str(results))
