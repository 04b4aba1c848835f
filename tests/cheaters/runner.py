"""Runs entries of the shelf through ``aiperf run``, several in one run, and keeps what came of them in a file.

What must not live here: judging a record (judge.py), and tables (figures.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aiperf.analysis.recompute import recompute
from aiperf.errors import Exit
from aiperf.records import CaseRecord
from aiperf.store.read import StoredRun, find_runs, open_run, read_pairs
from tests.cheaters.entries import SIDES, Entry, commands, write
from tests.cheaters.judge import Judged, judge
from tests.cheaters.lanes import Lane, Lanes

ROOT = Path(__file__).parents[2]
Run = tuple[CaseRecord, CaseRecord | None]
"""The record of an entry, and the same as strict mode concludes it."""
_START_S = 60.0
"""What one run may need beside its cases."""


@dataclass(frozen=True)
class How:
    """How the entries are run."""

    precision: str = "quick"
    case_s: float = 75.0
    """Time that one case may take; a run of several may take as much as all of them."""
    together: int = 8
    """Cases of one run."""
    lanes: int = 1
    """Runs side by side, each on CPUs of its own, of which the last one is both sides'."""


def code() -> str:
    """A short hash of aiperf and of the sides."""
    digest = hashlib.blake2b(digest_size=6)
    for folder in (ROOT / "aiperf", SIDES):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def run_all(
    entries: Sequence[Entry],
    seeds: Iterable[int],
    how: How,
    heard: Callable[[Judged], None],
    known: set[tuple[str, int]],
) -> None:
    """Run every entry with every seed but those that are known, and report each as soon as its run has ended."""
    due = ((seed, [entry for entry in entries if (entry.name, seed) not in known]) for seed in seeds)
    batches = [
        (seed, left[start : start + how.together]) for seed, left in due for start in range(0, len(left), how.together)
    ]
    crew, lock = Lanes(how.lanes), threading.Lock()

    def run(batch: tuple[int, Sequence[Entry]], lane: Lane) -> None:
        found = run_together(batch[1], batch[0], how, crew, lane)
        with lock:
            for judged in found if not crew.stopped else ():
                heard(judged)

    crew.each(batches, run)


def run_together(
    entries: Sequence[Entry], seed: int, how: How, crew: Lanes | None = None, lane: Lane = ()
) -> list[Judged]:
    """What came of entries that share a run; programs have one each. Those of which it leaves no record run alone
    afterwards: one of them may have ended it for all."""
    where = crew or Lanes(1), lane or tuple(os.sched_getaffinity(0))
    functions = [entry for entry in entries if not entry.is_program]
    records = _records(functions, seed, how, *where) if functions else {}
    alone = [e for e in entries if e.name not in records and (e.is_program or len(functions) > 1)]
    for entry in alone:
        records |= _records([entry], seed, how, *where)
    mark, host = code(), _host()
    found = (judge(e, seed, *records.get(e.name, (None, None))) for e in entries)
    return [replace(each, code=mark, host=host) for each in found]


def _host() -> str:
    return f"{os.cpu_count()} CPUs"


def _records(entries: Sequence[Entry], seed: int, how: How, crew: Lanes, lane: Lane) -> dict[str, Run]:
    folder = Path(tempfile.mkdtemp(prefix="cheaters-"))
    try:
        library = compiled(folder)
        # A cheat that needs a compiler is one that this host cannot run.
        able = [entry for entry in entries if library or not entry.preload]
        if able:
            arguments = _options(_arguments(able, folder, library), folder, seed, how)
            pinned = arguments if any(entry.gpus for entry in able) else [*arguments, "--pin", str(max(lane))]
            limit_s = _START_S + how.case_s * len(able)
            run_aiperf(pinned, folder, lambda argv, env: crew.call(argv, lane, folder, env, limit_s))
        found = read_records(folder / "results")
        # A pair of programs is called the same whatever they are.
        return dict(zip([entries[0].name], found.values(), strict=False)) if entries[0].is_program else found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compiled(folder: Path) -> Path | None:
    """The library of clock.c; None where no compiler makes one."""
    compiler, library = shutil.which("cc"), folder / "clock.so"
    if compiler is None:
        return None
    argv = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SIDES / "clock.c"), "-ldl"]
    return library if subprocess.run(argv, capture_output=True, check=False).returncode == 0 else None


def read_records(results: Path) -> dict[str, Run]:
    """Entry -> its record, of the one run in a folder; empty where there is none."""
    if not results.is_dir() or not find_runs(results):
        return {}
    run = open_run(results=results)
    cases, _ = run.read_cases()
    return {r.case.scenario: (r, _strictly(run, r)) for r in cases if r.status != "interrupted"}


def _strictly(run: StoredRun, record: CaseRecord) -> CaseRecord | None:
    """The record as strict mode concludes it; None where nothing was concluded."""
    if not record.results:
        return None
    strict = replace(record, strict=True)
    results = recompute(strict, read_pairs(run, record), width=record.width, scale=record.scale)
    return replace(strict, results=results)


def _arguments(entries: Sequence[Entry], folder: Path, library: Path | None) -> list[str]:
    """What aiperf is asked to do."""
    if not entries[0].is_program:
        return ["run", *(str(write(entry, folder, library)) for entry in entries), "--no-peaks"]
    state, file = folder / "state-of-programs", entries[0].file
    before, after = commands(entries[0], state)
    return ["ab", before, after, "--same-output", *(["--same-file", str(state / file)] if file else [])]


def _options(arguments: Sequence[str], folder: Path, seed: int, how: How) -> list[str]:
    own = ["--precision", how.precision, "--seed", str(seed), "--results", str(folder / "results")]
    return [*arguments, *own, "--quiet", "--host-check", "off"]


def run_aiperf(arguments: Sequence[str], folder: Path, call: Callable[[Sequence[str], Mapping[str, str]], int]) -> None:
    """Run aiperf with what it keeps beside its results in ``folder``, too; ``call`` runs a command (argv, environment).
    Raises RuntimeError where it does not take its arguments."""
    (folder / "scratch").mkdir()
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "AIPERF_SCRATCH": str(folder / "scratch"), "NO_COLOR": "1"}
    env.setdefault("AIPERF_STATE", str(folder / "state"))
    if call([sys.executable, "-m", "aiperf", *arguments], env) == Exit.USAGE:
        log_text = (folder / "log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"aiperf does not take what the shelf asks of it:\n{log_text}")


# ---- the file of what came of them -----------------------------------------------------------------------------------


def load(file: Path) -> list[Judged]:
    """Rows of a file; empty where there is none."""
    if not file.is_file():
        return []
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return [Judged(**{**row, "signs": tuple(row["signs"])}) for row in rows]


def keep(file: Path, rows: Iterable[Judged]) -> None:
    """Write rows, one a line, the latest of each entry and seed."""
    last = {row.key: row for row in rows}
    lines = ",\n".join(json.dumps(asdict(last[key])) for key in sorted(last))
    own = file.with_name(f".{file.name}-{os.getpid()}")
    file.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(f'{{"rows": [\n{lines}\n]}}\n', encoding="utf-8")
    own.rename(file)
