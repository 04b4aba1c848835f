"""``python -m tests.cheaters.honest_runs FILE``: measure scenarios of the library, whose sides are honest, again and
again, and keep what is said of their sides, a line of JSON a session; ``--print``: what a file comes to.

What must not live here: what is a sign of a cheat (judge.py), and reading a run (honest.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from aiperf.host.fingerprint import git_state
from tests.cheaters.honest import sessions
from tests.cheaters.lanes import Lane, Lanes
from tests.cheaters.runner import ROOT, run_aiperf

FOLDERS = ("cpu", "controls")
OF_GPUS = ("gpu", "controls-gpu")
Line = dict[str, Any]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cheaters.honest_runs", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="where lines are added")
    parser.add_argument("--print", action="store_true", help="what the file comes to; run nothing")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="these scenarios; else all")
    parser.add_argument("--gpus", action="store_true", help="scenarios of one GPU instead, one after another")
    parser.add_argument("--seconds", type=float, default=1500.0, help="begin no other scenario after so long")
    parser.add_argument("--most", type=float, default=150.0, help="seconds of one scenario, then its next is begun")
    parser.add_argument("--lanes", type=int, default=1, metavar="N", help="runs side by side, each on CPUs of its own")
    parser.add_argument("--precision", default="quick", help="a name, or a file like short.yaml beside this")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first round of all scenarios")
    return parser.parse_args()


def names(*, gpus: bool) -> list[str]:
    """Every scenario that needs no GPU, or those of one."""
    folders = OF_GPUS if gpus else FOLDERS
    return sorted(path.stem for folder in folders for path in (ROOT / "scenarios" / folder).glob("*.yaml"))


def rounds(wanted: Sequence[str], first_seed: int) -> Iterator[tuple[str, int]]:
    """(scenario, seed) without end: all in an order of the round's own, then all with the next seed."""
    for seed in itertools.count(first_seed):
        order = list(wanted)
        random.Random(seed).shuffle(order)
        yield from ((name, seed) for name in order)


def measure(name: str, seed: int, options: argparse.Namespace, crew: Lanes, lane: Lane) -> list[Line]:
    """The sessions of one run of a scenario, as many as were concluded before it was ended."""
    folder = Path(tempfile.mkdtemp(prefix="honest-"))
    argv = ["run", name, "--precision", options.precision, "--seed", str(seed), "--results", str(folder / "results")]
    try:
        env = {} if options.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        run_aiperf([*argv, "--quiet", "--no-peaks", "--host-check", "off"], folder,
                   lambda words, own: crew.call(words, lane, folder, {**own, **env}, options.most))  # fmt: skip
        found = list(sessions(folder / "results"))
        return [{"scenario": name, "seed": seed, **asdict(session)} for session in found]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(options: argparse.Namespace) -> None:
    """Measure until the time is over."""
    until, lock, crew = monotonic() + options.seconds, threading.Lock(), Lanes(1 if options.gpus else options.lanes)
    git = git_state(ROOT)
    where = {"commit": git.get("sha", "")[:8] + "+" * bool(git.get("diff")), "host": f"{os.cpu_count()} CPUs"}
    options.file.parent.mkdir(parents=True, exist_ok=True)

    def one(job: tuple[str, int], lane: Lane) -> None:
        try:
            found = measure(*job, options, crew, lane)
        except RuntimeError as error:  # of one scenario, which the others do not suffer for
            print(f"{job[0]}: {error}", flush=True)
            return
        at = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1)}
        with lock, options.file.open("a", encoding="utf-8") as file:
            for line in found:
                file.write(json.dumps({**line, **where, **at, "lanes": options.lanes}) + "\n")
                print(said(line), flush=True)

    jobs = rounds(options.only or names(gpus=options.gpus), options.first_seed)
    crew.each(itertools.takewhile(lambda _: monotonic() < until, jobs), one)


def said(line: Line) -> str:
    """One session, for people."""
    mark = "ACCUSED" if line["false"] else "strict" if line["strictly"] else "told" if line["signs"] else ""
    return f"{mark:8} {line['name']:60} seed {line['seed']:<3} {line['word']:12} {' '.join(line['signs'])}".rstrip()


def summary(lines: Iterable[Line]) -> str:
    """How many sessions there are, who was accused, and by what."""
    found = list(lines)
    accused, signs = [line for line in found if line["false"]], Counter[str]()
    for line in found:
        signs.update({sign for sign in line["signs"] if not line["false"]})
    words = Counter(line["word"] for line in found)
    reasons = Counter(sign for line in accused for sign in line["signs"])
    told = [
        *map(said, accused),
        f"{len(found)} sessions of {len({line['name'] for line in found})} cases: "
        + ", ".join(f"{count} {word}" for word, count in words.most_common()),
        f"{len(accused)} accused: " + ", ".join(f"{count} {sign}" for sign, count in reasons.most_common()),
        f"{sum(line['strictly'] for line in found)} refused by strict mode alone",
        "told of others: " + ", ".join(f"{count} {sign}" for sign, count in signs.most_common()),
    ]
    return "\n".join(told)


def read(file: Path) -> list[Line]:
    """The lines of a file; the last one may have been cut."""
    found = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def main() -> int:
    """Measure, and print what the file comes to; 1 where a side was accused."""
    # So that folders go and no run is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = _options()
    precision = Path(options.precision)
    options.precision = str(precision.resolve()) if precision.is_file() else options.precision
    if not options.print:
        run(options)
    lines = read(options.file)
    print(summary(lines))
    return 1 if any(line["false"] for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
