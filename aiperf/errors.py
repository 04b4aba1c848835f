"""The errors a user can cause and the exit codes of the command.

What must not live here: anything that decides when to raise, or prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command, as documented in the README."""

    OK = 0
    REGRESSION = 1
    USAGE = 2
    INCONCLUSIVE = 3
    NO_BASELINE = 4
    WRONG = 5
    UNFIT = 6
    INTERNAL = 70
    """A fault of aiperf itself: software error in sysexits.h; Python's own code for it is 1, here a regression."""
    RESOURCES = 71
    """EX_OSERR of sysexits.h: Python's own code for it is 1."""
    OUTPUT = 74
    """EX_IOERR of sysexits.h."""
    SKIPPED = 77
    INTERRUPTED = 130


MEANING = {
    Exit.OK: "fine",
    Exit.REGRESSION: "confirmed regression",
    Exit.USAGE: "usage or scenario error",
    Exit.INCONCLUSIVE: "inconclusive, which the gate forbids",
    Exit.NO_BASELINE: "no or incomparable baseline",
    Exit.WRONG: "wrong output, impossible result or failed case",
    Exit.UNFIT: "host unfit",
    Exit.INTERNAL: "internal error in aiperf",
    Exit.RESOURCES: "not enough memory, processes or open files for aiperf itself",
    Exit.OUTPUT: "the output could not be written",
    Exit.SKIPPED: "everything skipped",
    Exit.INTERRUPTED: "interrupted; the measurements so far are saved",
}


@dataclass(frozen=True, order=True)
class Fault:
    """One mistake: where it is, what is wrong, and the way out."""

    where: str
    """``path:line:column`` or the flag's name; empty when there is no place."""
    what: str
    """The value found against what is allowed, one sentence."""
    hint: str = ""
    """What to do about it, one sentence."""
    line: int = 0
    column: int = 0


class AiperfError(Exception):
    """Base of every error that aiperf raises on purpose."""


class CalledInWorker(AiperfError):
    """A script that a worker imports asked for a measurement of its own."""


class UserError(AiperfError):
    """One or more mistakes of the user: printed without a traceback, exit code 2."""

    exit = Exit.USAGE

    def __init__(self, faults: Iterable[Fault] | Fault) -> None:
        self.faults: tuple[Fault, ...] = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(f"{f.where}: {f.what}" if f.where else f.what for f in self.faults))


class NoBaseline(UserError):
    """There is no baseline to hold against: exit code 4."""

    exit = Exit.NO_BASELINE


def usage(what: str, hint: str = "", where: str = "") -> UserError:
    """Build a UserError that holds a single fault."""
    return UserError(Fault(where=where, what=what, hint=hint))


def invalid_value(where: str, value: object, allowed: Iterable[object]) -> Fault:
    """The fault of a value that is not one of those allowed."""
    return Fault(where, f'invalid value "{value}" (allowed: {", ".join(map(str, allowed))}).')


def system_words(error: OSError) -> str:
    """What the operating system says, and of which file."""
    said = error.strerror or str(error) or type(error).__name__
    return f"{said}: {error.filename}" if error.filename else said
