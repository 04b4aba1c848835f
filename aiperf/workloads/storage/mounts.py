"""A folder seen through a mount of its own, which is attached nowhere: a bind mount, or an overlay over the folder.

What must not live here: reading, which files there are. The calls are Linux's since 5.2 (open_tree(2), fsmount(2)); the
C library has no names for them everywhere.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from aiperf.workloads.contract import SkipSide

_LIBC = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE, _FSOPEN, _FSCONFIG, _FSMOUNT = 428, 430, 431, 432
_HERE, _CLONE = -100, 1
_SET_STRING, _CREATE = 1, 6
_CLOSE = 1
_OVERLAY = 0x794C7630
"""What statfs(2) calls an overlay."""


def _call(number: int, *arguments: object) -> int:
    """A system call. Raises OSError."""
    wide = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    found = int(_LIBC.syscall(ctypes.c_long(number), *wide))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _bind(folder: Path, scratch: Path) -> int:
    del scratch
    return _call(_OPEN_TREE, _HERE, os.fsencode(folder), _CLONE | os.O_CLOEXEC)


def _overlay(folder: Path, scratch: Path) -> int:
    """The folder as the lower layer, below an empty one that takes what is written."""
    upper, work = scratch / "upper", scratch / "work"
    for made in (upper, work):
        made.mkdir(exist_ok=True)
    system = _call(_FSOPEN, b"overlay", _CLOSE)
    try:
        for key, value in ((b"lowerdir", folder), (b"upperdir", upper), (b"workdir", work)):
            _call(_FSCONFIG, system, _SET_STRING, key, os.fsencode(value), 0)
        _call(_FSCONFIG, system, _CREATE, None, None, 0)
        return _call(_FSMOUNT, system, _CLOSE, 0)
    finally:
        os.close(system)


_KINDS: dict[str, Callable[[Path, Path], int]] = {"bind": _bind, "overlay": _overlay}


class PrivateMount:
    """``folder`` by another way, below ``path``."""

    def __init__(self, kind: str, folder: Path, scratch: Path) -> None:
        """``scratch``: where an overlay keeps what is its own. Raises SkipSide where this process may not mount, or the
        file system cannot be a layer."""
        self._kind, self._folder, self._scratch = kind, folder, scratch
        try:
            self._descriptor = _KINDS[kind](folder, scratch)
        except OSError as error:
            raise SkipSide(f"{kind} mount of {folder}: {error}; it takes CAP_SYS_ADMIN and Linux 5.2") from error
        self.path = Path(f"/proc/self/fd/{self._descriptor}")

    def renew(self) -> None:
        """Mount it anew in the same place: an overlay has looked up no name yet."""
        os.close(self._descriptor)
        found = _KINDS[self._kind](self._folder, self._scratch)
        if found != self._descriptor:
            os.dup2(found, self._descriptor, inheritable=False)
            os.close(found)

    @property
    def is_overlay(self) -> bool:
        """Whether it is one by what the kernel says."""
        told = ctypes.create_string_buffer(256)
        if _LIBC.fstatfs(self._descriptor, told):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return ctypes.c_long.from_buffer(told).value == _OVERLAY

    def close(self) -> None:
        """It is gone with its last user."""
        os.close(self._descriptor)
