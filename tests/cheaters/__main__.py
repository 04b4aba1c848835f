"""``python -m tests.cheaters``: run the shelf and print what was caught, told and missed, by class.

What must not live here: running, judging, tables.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from time import monotonic

from tests.cheaters.entries import Entry
from tests.cheaters.figures import details, false_alarm, shares, table, write_page
from tests.cheaters.judge import Judged
from tests.cheaters.runner import ROOT, How, code, keep, load, run_all
from tests.cheaters.table import BY_NAME, SHELF

PAGE = ROOT / "docs" / "trust.md"
FIGURES = ROOT / "results" / "reference" / "figures" / "cheaters.json"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cheaters", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME|CLASS|GLOB", help="these, and their twins")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each entry")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first of them")
    parser.add_argument("--gpus", type=int, choices=(0, 1), default=0, help="1: the entries that need a GPU instead")
    parser.add_argument(
        "--json", type=Path, default=Path("build/cheaters.json"), help="rows are kept and taken up here"
    )
    parser.add_argument("--fresh", action="store_true", help="run again what the file holds of this code")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th entry, from the I-th on")
    parser.add_argument("--precision", default="quick", help="a name, or a file like short.yaml beside this")
    parser.add_argument("--together", type=int, default=8, help="cases of one aiperf run")
    parser.add_argument("--timeout", type=float, default=75.0, help="seconds that a case may take")
    parser.add_argument("--lanes", type=int, default=1, metavar="N", help="runs side by side, each on CPUs of its own")
    parser.add_argument("--no-twins", action="store_true", help="cheats only")
    parser.add_argument("--details", action="store_true", help="a line for each entry as well")
    parser.add_argument("--list", action="store_true", help="name the entries and run none")
    parser.add_argument("--print", action="store_true", help="the tables of the file as it is; run nothing")
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"keep the rows in {FIGURES.name} and what {PAGE.name} says of them",
    )
    return parser.parse_args()


def chosen(only: Sequence[str], *, gpus: int, twins: bool = True, shard: str = "1/1") -> list[Entry]:
    """Entries by name, class or pattern, with the twins of the cheats among them."""
    able = [entry for entry in SHELF if entry.gpus == gpus]
    found = [e for e in able if not only or any(w == e.group or fnmatch(e.name, w) for w in only)]
    names = {entry.name for entry in found} | {entry.twin for entry in found}
    picked = [e for e in able if e.name in names and (twins or not e.honest)]
    index, count = map(int, shard.split("/"))
    return picked[index - 1 :: count]


def _say(row: Judged) -> None:
    entry = BY_NAME[row.name]
    outcome = ("FALSE ALARM" if false_alarm(row) else "honest") if entry.honest else row.outcome
    ratio = f"{row.ratio:.3g}x" if row.ratio is not None else ""
    print(f"{outcome:11} {row.name:28} seed {row.seed}  {row.word:12} {ratio:8} {' '.join(row.signs)}", flush=True)


def main() -> int:
    """Run what was asked for; 1 when a cheat was missed or a twin gave a false alarm."""
    # So that folders go and no run is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = _options()
    entries = chosen(options.only, gpus=options.gpus, twins=not options.no_twins, shard=options.shard)
    if options.list:
        for entry in entries:
            print(f"{entry.name:28} {entry.group:9} {'honest' if entry.honest else entry.intent:9} {entry.does}")
        return 0
    rows, mark, began = load(options.json), code(), monotonic()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    fresh = set() if options.fresh else {row.key for row in rows if row.code == mark}

    def heard(row: Judged) -> None:
        rows.append(row)
        _say(row)
        keep(options.json, rows)

    if not options.print:
        file = Path(options.precision)
        precision = str(file.resolve()) if file.is_file() else options.precision
        how = How(precision, options.timeout, options.together, options.lanes)
        run_all(entries, seeds, how, heard, fresh)
    names = {entry.name for entry in entries}
    last = {row.key: row for row in rows if row.name in names and (options.print or row.code == mark)}
    if options.details:
        print(details(last.values()))
    print(table(last.values()))
    print(shares(last.values()))
    print(f"\ncode {mark}, {len(last)} runs, {monotonic() - began:.0f} s")
    if options.write:
        keep(FIGURES, [*load(FIGURES), *last.values()])
        write_page(PAGE, load(FIGURES))
    bad = [row for row in last.values() if (false_alarm(row) if BY_NAME[row.name].honest else row.outcome == "missed")]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
