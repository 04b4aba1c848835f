"""The command's stdout and stderr: what becomes of a write that fails, on a full disk or a terminal that is gone.

What must not live here: what is written, and exit codes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO


class AnswerLost(Exception):
    """What the command has to say could not be written to stdout; no OSError, which a reader of files would take."""


class _Guarded:
    """A stream whose failed writes are handled in one place; all else is the stream's own."""

    def __init__(self, stream: TextIO, failed: Callable[[OSError], None]) -> None:
        self.lost: OSError | None = None
        self._stream, self._failed = stream, failed
        self._terminal = stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, unless an earlier write failed."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush, unless an earlier write failed."""
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        """Whether it is a terminal; one that is gone is noticed here, as displays ask before they write."""
        is_one = self._stream.isatty()
        if self._terminal and not is_one:
            self._terminal = False
            self._try(_raise_eio)
        return is_one

    def _try(self, work: Callable[[], Any]) -> None:
        if self.lost is not None:
            return
        try:
            work()
        except OSError as error:
            self.lost = error
            # What lies in the buffer would fail once more when Python closes the file.
            with contextlib.suppress(OSError, ValueError):
                self._stream.flush()
            with contextlib.suppress(OSError, ValueError):
                _lead_nowhere(self._stream.fileno())
            if error.errno == errno.EIO:
                _hang_up()
            self._failed(error)


@dataclass(frozen=True)
class Streams:
    """Both streams of a command."""

    out: _Guarded
    err: _Guarded

    def finish(self) -> OSError | None:
        """Flush both; the error that kept the answer from being written, if one did."""
        with contextlib.suppress(AnswerLost, BrokenPipeError):
            self.out.flush()
        self.err.flush()
        return None if isinstance(self.out.lost, BrokenPipeError) else self.out.lost


@contextlib.contextmanager
def guarded_streams() -> Iterator[Streams]:
    """Stand before ``sys.stdout`` and ``sys.stderr``.

    A failed write to stdout raises AnswerLost, BrokenPipeError where the reader has seen enough; one to stderr raises
    nothing: a run is worth more than what it says of itself. A terminal that is gone interrupts as its hang-up does,
    unless that signal is ignored. Later writes to a stream that failed go nowhere.
    """
    out, err = _Guarded(sys.stdout, _answer_lost), _Guarded(sys.stderr, lambda error: None)
    former = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        yield Streams(out, err)
    finally:
        sys.stdout, sys.stderr = former


def open_closed() -> set[int]:
    """Which of the descriptors 0, 1 and 2 were closed; they lead nowhere now, or the next file would take them."""
    found = set()
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            found.add(number)
            os.open(os.devnull, os.O_RDWR)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
    return found


def _answer_lost(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        raise error
    raise AnswerLost(error.strerror or str(error)) from error


def _hang_up() -> None:
    if callable(signal.getsignal(signal.SIGHUP)):
        os.kill(os.getpid(), signal.SIGHUP)


def _raise_eio() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _lead_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
