"""Writers of runs in processes of their own, to be killed: ``python store_writers.py RESULTS``.

For each line ``start NAME`` of stdin a process is forked that saves cases to a slow disk until it dies; its pid is told
and every case that is saved. ``reap PID`` waits for the end of one that was killed.

What must not live here: tests.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from factory_of_runs import make_measured

from aiperf.records import RunRecord
from aiperf.store.write import RunWriter, open_new

_PIECE = 1024


class SlowDisk:
    """A file that takes its bytes in pieces, so that a kill finds files half written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __enter__(self) -> SlowDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        for begin in range(0, len(data), _PIECE):
            self._file.write(data[begin : begin + _PIECE])
            self._file.flush()
            time.sleep(0.0005)
        return len(data)


def write_for_ever(results: Path, name: str) -> None:
    """Save one case after the other, each told when ``write_case`` has come back."""
    writer = RunWriter.create(results, hostname=name, opener=lambda path: SlowDisk(open_new(path)))  # type: ignore[arg-type,return-value]
    writer.write_run(RunRecord(run=writer.name, argv=("aiperf", "run"), started="2026-11-20T18:00:00+00:00"))
    for number in range(100_000):
        # A case is saved again, with more pairs, at every look.
        for pairs in (2, 4):
            writer.write_case(make_measured(f"case-{number}", pairs=pairs))
            say(f"saved {writer.name} case-{number} {pairs}")


def say(text: str) -> None:
    """One line on stdout, whole: several processes write there."""
    os.write(1, f"{text}\n".encode())


def main() -> None:
    """Do what stdin says."""
    for line in sys.stdin:
        word, value = line.split()
        if word == "reap":
            os.waitpid(int(value), 0)
            say("dead")
        elif (pid := os.fork()) == 0:
            write_for_ever(Path(sys.argv[1]), value)
        else:
            say(f"pid {pid}")


if __name__ == "__main__":
    # Loaded once for all writers.
    import duckdb  # noqa: F401

    main()
