"""``python -m tests.cheaters.honest FOLDER ...``: what is said of the sides of stored runs that are taken for honest.

What must not live here: running anything, and what a sign of a cheat is (judge.py).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.analysis.recompute import recompute
from aiperf.records import CaseRecord
from aiperf.store.read import StoredRun, find_runs, open_run, read_pairs
from tests.cheaters.judge import PLAIN_FAILURES, PLAIN_INCIDENTS, PLAIN_NOTES


@dataclass(frozen=True)
class Session:
    """One case of a run, and what is said of its sides."""

    name: str
    word: str
    """Of the primary verdict; ``failed`` without one."""
    signs: tuple[str, ...]
    false: bool
    """Whether a side was accused: the verdict is invalid, or the case failed for a reason that no honest side has."""
    strictly: bool
    """Whether strict mode alone refuses it."""


def sessions(folder: Path) -> Iterator[Session]:
    """The cases of every run in a folder that were concluded or failed."""
    for path in find_runs(folder):
        run = open_run(path, results=folder)
        for record in run.read_cases()[0]:
            if record.status == "interrupted":
                continue
            if record.failure is not None:
                kind = record.failure.kind
                signs = () if kind in PLAIN_FAILURES else (f"failure:{kind}",)
                yield Session(record.case.id, "failed", signs, bool(signs), False)
            elif record.results:
                yield _concluded(run, record)


def _concluded(run: StoredRun, record: CaseRecord) -> Session:
    verdicts = [r.verdict for r in record.results]
    invalid = any(v.word == "invalid" for v in verdicts)
    strict = replace(record, strict=True)
    refused = recompute(strict, read_pairs(run, record), width=record.width, scale=record.scale)
    signs = {f"verdict:{v.reason}" for v in verdicts if v.word == "invalid"}
    signs |= {f"note:{n.code}" for n in record.notes if n.code not in PLAIN_NOTES}
    signs |= {f"incident:{i.kind}" for p in record.pairs for i in p.incidents if i.kind not in PLAIN_INCIDENTS}
    signs |= {f"{c.kind}:{'+'.join(c.sides)}" for p in record.pairs for c in p.checks if not c.passed}
    strictly = not invalid and any(r.verdict.word == "invalid" for r in refused)
    return Session(record.case.id, verdicts[0].word, tuple(sorted(signs)), invalid, strictly)


def main(folders: Sequence[Path]) -> int:
    """Print them; 1 where a side was accused."""
    found = [each for folder in folders for each in sessions(folder)]
    accused = [each for each in found if each.false]
    for each in found:
        if each.signs or each.strictly or each.word == "failed":
            mark = "ACCUSED" if each.false else "strict" if each.strictly else "told" if each.signs else ""
            print(f"{mark:8} {each.name:60} {each.word:12} {' '.join(each.signs)}".rstrip())
    words = ", ".join(f"{count} {word}" for word, count in Counter(each.word for each in found).most_common())
    names = len({each.name for each in found})
    print(f"{len(found)} sessions of {names} cases ({words}): {len(accused)} accused, "
          f"{sum(each.strictly for each in found)} refused by strict mode alone, "
          f"{sum(bool(each.signs) and not each.false for each in found)} told of")  # fmt: skip
    return 1 if accused else 0


if __name__ == "__main__":
    sys.exit(main([Path(word) for word in sys.argv[1:]]))
