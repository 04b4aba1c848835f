"""Whether an error says that this process may not have what it needs: memory, processes, open files.

What must not live here: exit codes, printing.
"""

from __future__ import annotations

import errno
import resource

MORE_RESOURCES = "Raise this process's limits (ulimit -v, -u, -n; the memory limit of its cgroup), then try again."
_ERRNOS = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)


def is_exhausted(error: BaseException) -> bool:
    """Whether the error, or what caused it, is the lack of something that the operating system gives out."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or (isinstance(seen, OSError) and seen.errno in _ERRNOS):
            return True
        # A library that cannot be mapped is an ImportError, a thread that cannot be started a RuntimeError, an error
        # that Python lost for lack of memory a SystemError.
        if isinstance(seen, ImportError | RuntimeError | SystemError) and _limited():
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _limited() -> bool:
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
