"""A side's launch without a parent that sends requests: its spec, command, environment, and what it reported.

What must not live here: any profiler, and the process itself (child.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.launch.child import Child, Ended, tail_of
from aiperf.launch.environment import import_path, side_environment
from aiperf.launch.guardian import Guardian
from aiperf.launch.setup import setup_request
from aiperf.protocol.standalone import StandaloneReport, StandaloneSpec
from aiperf.protocol.wire import decode, encode
from aiperf.records import Case, Side
from aiperf.units import format_bytes

MOST_BYTES = 4 << 30
"""What a profiler may write in one pass: a busy program fills a disk in minutes."""
_DELTA = 0.02
"""Practical threshold of the warm-up's verdict, which a standalone side does not wait for."""
_LOOK_S = 0.5
_SILENT = "it ended before it reported anything"


@dataclass(frozen=True)
class Standalone:
    """How one side is to run by itself."""

    case: Case
    side: Side
    folder: Path
    """A folder of its own: spec, reports, scratch."""
    seed: int = 0
    warmup_seconds: float = 1.0
    target_seconds: float = 0.3
    """Length aimed at for the profiled iterations."""
    most_iterations: int = 50
    trace: bool = False
    """Whether torch.profiler records it."""
    control: bool = False
    """Whether perf is switched on and off through FIFOs."""

    @property
    def fifos(self) -> tuple[Path, Path]:
        """Commands to perf, and its acknowledgements."""
        return self.folder / "control.fifo", self.folder / "answer.fifo"

    @property
    def temporary(self) -> Path:
        """TMPDIR of the launch: what a killed profiler leaves there, environments among it, goes with the folder."""
        return self.folder / "tmp"

    @property
    def traces(self) -> tuple[Path, ...]:
        """Where torch.profiler writes, by rank."""
        return tuple(self.folder / f"trace-{rank}.json.gz" for rank in range(self.side.ranks))

    @property
    def reports(self) -> tuple[Path, ...]:
        """Where the ranks say what they did."""
        return tuple(self.folder / f"report-{rank}.json" for rank in range(self.side.ranks))

    def prepare(self) -> Path:
        """Make the folder, the FIFOs and the spec; returns the spec's path. Raises OSError."""
        for folder in (self.folder / "shared", self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        if self.control:
            for fifo in self.fifos:
                # A spec that was printed before is prepared again.
                fifo.unlink(missing_ok=True)
                os.mkfifo(fifo, 0o600)
        spec = StandaloneSpec(
            setup=setup_request(self.case, self.side, seed=self.seed, delta=_DELTA, folder=self.folder),
            ranks=self.side.ranks,
            warmup_seconds=self.warmup_seconds,
            target_seconds=self.target_seconds,
            most_iterations=self.most_iterations,
            report=str(self.folder / "report-{rank}.json"),
            trace=str(self.folder / "trace-{rank}.json.gz") if self.trace else "",
            control=tuple(str(fifo) for fifo in self.fifos) if self.control else (),
        )
        path = self.folder / "spec.json"
        path.write_text(encode(spec), encoding="utf-8")
        return path

    def argv(self, spec: Path) -> list[str]:
        """Command that runs the side."""
        return [self.side.python or sys.executable, "-m", "aiperf.worker.standalone", str(spec)]

    def environment(self) -> dict[str, str]:
        """Whole environment of the side, before a profiler's allow-list."""
        env = side_environment(self.side.env, seed=self.seed, gang=self.side.ranks > 1, logs=self.folder)
        env["PYTHONPATH"] = import_path(env.get("PYTHONPATH", ""), checkout=bool(self.side.folder))
        # A lone rank knows its rank as in a gang; the ranks of a gang get theirs from the process that starts them.
        env |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(self.side.ranks)}
        return {**env, "TMPDIR": self.side.env.get("TMPDIR", str(self.temporary))}

    def read_reports(self) -> list[StandaloneReport]:
        """What each rank reported; the report of a rank that ended before it wrote one holds an error."""
        return [_report(path) for path in self.reports]


def _report(path: Path) -> StandaloneReport:
    try:
        return decode(path.read_text(encoding="utf-8"), StandaloneReport)
    except (OSError, ValueError):
        return StandaloneReport(error=_SILENT)


def failure(reports: Sequence[StandaloneReport]) -> str:
    """What went wrong in a launch, in the words of the rank that has any; empty when nothing did."""
    errors = [report.error for report in reports if report.error]
    # Peers of a rank that died are ended by force and say nothing.
    return next((error for error in errors if error != _SILENT), errors[0] if errors else "")


class TooLarge(AiperfError):
    """A profiler was stopped because of what it had written; the text says how much is allowed."""


def run_to_end(
    argv: list[str],
    *,
    env: Mapping[str, str],
    log: Path,
    limit: float,
    guardian: Guardian,
    cwd: Path | None = None,
    most_bytes: int = MOST_BYTES,
) -> tuple[Ended | None, str]:
    """Run a program to its end, at most ``limit`` seconds; (None, tail of its output) when it was killed for that.

    Errors go to ``log``, the output to a file of the same name that ends in ``.out``; the tail has the errors first,
    because profilers print their verdict to the output. Raises StartError; TooLarge after killing it when the files
    beside ``log`` and those of nsys in TMPDIR exceed ``most_bytes``; KeyboardInterrupt after killing it.
    """
    output = log.with_name(f"{log.name}.out")
    deadline = time.monotonic() + limit
    with Child.start(argv, env=env, cwd=cwd, stderr_path=log, stdout=output, guardian=guardian) as child:
        ended = None
        while ended is None and (left := deadline - time.monotonic()) > 0:
            ended = child.wait(min(left, _LOOK_S))
            if ended is None and _written(log.parent, env) > most_bytes:
                allowed = format_bytes(most_bytes)
                raise TooLarge(f"stopped: it had written more than {allowed}; let the program do less under a profiler")
    # Leaving the block has killed what still ran, agents in sessions of their own among it.
    return ended, "\n".join(filter(None, [child.stderr_tail(), tail_of(output)]))


def _written(folder: Path, env: Mapping[str, str]) -> int:
    """Bytes of the reports in a folder, and of what nsys collects in TMPDIR before it makes one; not the workload's."""
    collected = Path(env["TMPDIR"]) / "nvidia" if "TMPDIR" in env else None
    total = 0
    for path in (*folder.glob("*"), *(collected.rglob("*") if collected else ())):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total
