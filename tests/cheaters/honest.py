"""``python -m tests.cheaters.honest FOLDER ... [--json FILE]``: what today's rules say of the sides of stored runs that
are taken for honest, judged again from their samples, and which of the rules could have spoken.

What must not live here: running anything, what is a sign of a cheat (judge.py), and the rules (rules.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.analysis.recompute import recompute
from aiperf.host.fingerprint import git_state
from aiperf.records import CaseRecord
from aiperf.store.read import StoredRun, find_runs, open_run, read_pairs
from tests.cheaters.judge import PLAIN_FAILURES, PLAIN_INCIDENTS, PLAIN_NOTES
from tests.cheaters.rules import RULES, heard
from tests.cheaters.runner import ROOT

COMMAND = "python -m tests.cheaters.honest results/reference --json results/reference/figures/honest.json"
ADDED_UP = ("sessions", "judged", "every_rule", "accused", "strictly")
"""What is also written by run."""


@dataclass(frozen=True)
class Session:
    """One case of a run, and what is said of its sides."""

    name: str
    word: str
    """Of the primary verdict by today's rules; ``failed`` without one."""
    signs: tuple[str, ...]
    false: bool
    """Whether a side was accused: the verdict is invalid, or the case failed for a reason that no honest side has."""
    strictly: bool
    """Whether strict mode alone refuses it."""
    run: str = ""
    stored: str = ""
    """The word that the run stored."""
    could_speak: tuple[str, ...] = ()
    """Rules that concern it and would have found a lie in its numbers."""
    silent: tuple[str, ...] = ()
    """Rules that concern it and would not: it was measured before they were, or they have nothing to read."""


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
                yield Session(record.case.id, "failed", signs, bool(signs), False, run.folder.name, "failed")
            elif record.results:
                yield _concluded(run, record)


def _concluded(run: StoredRun, record: CaseRecord) -> Session:
    pairs = read_pairs(run, record)
    usual, strict = (
        [r.verdict for r in recompute(replace(record, strict=how), pairs, width=record.width, scale=record.scale)]
        for how in (False, True)
    )
    invalid = any(v.word == "invalid" for v in usual)
    signs = {f"verdict:{v.reason}" for v in usual if v.word == "invalid"}
    signs |= {f"note:{n.code}" for n in record.notes if n.code not in PLAIN_NOTES}
    signs |= {f"incident:{i.kind}" for p in record.pairs for i in p.incidents if i.kind not in PLAIN_INCIDENTS}
    signs |= {f"{c.kind}:{'+'.join(c.sides)}" for p in record.pairs for c in p.checks if not c.passed}
    strictly = not invalid and any(v.word == "invalid" for v in strict)
    stored = record.results[0].verdict.word
    about = (record.case.id, usual[0].word, tuple(sorted(signs)), invalid, strictly)
    return Session(*about, run.folder.name, stored, *heard(pairs, record.case))


def counts(found: Sequence[Session]) -> dict[str, Any]:
    """What a list of sessions comes to."""
    judged = [each for each in found if each.word != "failed"]
    could, silent = (Counter(code for each in judged for code in getattr(each, n)) for n in ("could_speak", "silent"))
    accused = Counter(sign for each in found if each.false for sign in each.signs if sign.startswith("verdict:"))
    return {
        "sessions": len(found),
        "judged": len(judged),
        "every_rule": sum(not each.silent for each in judged),
        "accused": sum(each.false for each in found),
        "accused_by": dict(accused),
        "accused_where_every_rule": sum(each.false and not each.silent for each in judged),
        "strictly": sum(each.strictly for each in found),
        "rules": {r.code: {"could_speak": could[r.code], "silent": silent[r.code]} for r in RULES},
    }


def _print(found: Sequence[Session], total: dict[str, Any]) -> None:
    for each in found:
        if each.signs or each.strictly or each.word == "failed":
            mark = "ACCUSED" if each.false else "strict" if each.strictly else "told" if each.signs else ""
            print(f"{mark:8} {each.name:60} {each.word:12} {' '.join(each.signs)}".rstrip())
    for each in (each for each in found if each.word != each.stored):
        print(f"changed  {each.name:60} {each.word:12} was {each.stored} in {each.run}")
    for code, row in total["rules"].items():
        print(f"{code:18} could have spoken of {row['could_speak']}, not of {row['silent']} that it concerns")
    words = ", ".join(f"{count} {word}" for word, count in Counter(each.word for each in found).most_common())
    names = len({each.name for each in found})
    print(f"{total['sessions']} sessions of {names} cases ({words}), of which {total['every_rule']} carry what every "
          f"rule reads: {total['accused']} accused, {total['strictly']} refused by strict mode alone, "
          f"{sum(bool(each.signs) and not each.false for each in found)} told of")  # fmt: skip


def main(folders: Sequence[Path], file: Path | None = None) -> int:
    """Print them, and write what they come to into ``file``; 1 where a side was accused."""
    found = [each for folder in folders for each in sessions(folder)]
    total = counts(found)
    _print(found, total)
    if file is not None:
        runs = {name: counts([s for s in found if s.run == name]) for name in sorted({s.run for s in found})}
        by_run = {name: {key: total[key] for key in ADDED_UP} for name, total in runs.items()}
        accused = [{"case": s.name, "run": s.run, "signs": s.signs} for s in found if s.false]
        by = {"command": COMMAND, "commit": str(git_state(ROOT).get("sha", ""))[:8]}
        text = json.dumps({**by, **total, "accusations": accused, "runs": by_run}, indent=1)
        file.write_text(f"{text}\n", encoding="utf-8")
    return 1 if total["accused"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.cheaters.honest")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what they come to")
    asked = parser.parse_args()
    sys.exit(main(asked.folders, asked.json))
