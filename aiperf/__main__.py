"""The command before any of it is imported: what may go wrong until then must not end with Python's own exit code.

What must not live here: the commands, and imports that take time.

Python's code for whatever it cannot handle is 1, which here means a confirmed regression.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 128 + signal.SIGINT
_SPARE = [bytearray(1 << 19)]
"""Memory that is given back where there is none left to say so."""


def main() -> int:
    """Run the command and return its exit code."""
    early = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if early:
        signal.signal(signal.SIGINT, _leave)
    # Imports leave nothing to collect, and looking for it takes an eighth of their time: until the command is there.
    gc.disable()
    try:
        entry = importlib.import_module("aiperf.cli.main").entry
        if early:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return int(entry())
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (MemoryError, ImportError, OSError, SystemError) as error:
        # Of the import alone: a broken installation, or too little memory to map it, whose error Python may lose.
        _SPARE.clear()
        with open(os.devnull if sys.stderr is None else 2, "w", closefd=sys.stderr is None) as words:
            words.write(f"aiperf: it cannot be loaded: {type(error).__name__}: {error}\n")
        return os.EX_OSERR
    finally:
        # Nothing is left to interrupt, and Python would show a traceback.
        if early:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has begun yet, and an exception in the middle of an import may be printed or swallowed."""
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
