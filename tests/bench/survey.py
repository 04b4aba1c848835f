"""Sessions of ``aiperf survey`` over groups of this host: a healthy fleet, one node of it a tenth slower, two of them,
a link whose calls take a fifth longer, and a link that the kernel limits. Each session is a line of JSON as soon as it
ends, so that a broken run is taken up again.

What must not live here: the delay itself (``aiperf survey --slow``), verdicts (aiperf/analysis/survey.py).
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import networks
from tests.bench.figures import Figure, at_least, percent, seconds
from tests.bench.serving import whole_lines
from tests.bench.shell import Done, aiperf, machine, say


@dataclass(frozen=True)
class Kind:
    """What is slowed on purpose."""

    name: str
    nodes: int = 0
    """How many nodes."""
    link: bool = False
    """In place of nodes the link between two."""
    share: float = 0.1
    rate: str = ""
    """What the link is limited to, as tc takes it; its nodes are network namespaces then, which root makes."""


KINDS: Mapping[str, Kind] = {
    "healthy": Kind("a healthy fleet"),
    "one": Kind("one slow node", nodes=1),
    "two": Kind("two slow nodes", nodes=2),
    "link": Kind("a slow link", link=True, share=0.2),
    "limited": Kind("a link limited to 200 Mbit/s", link=True, share=0.0, rate="200mbit"),
}
_FOUND_SHARE = 0.95
_ENOUGH = 20


def measure(out: Path, *, seeds: Sequence[int], kinds: Sequence[str], groups: int) -> list[Figure]:
    """Survey until each kind has a session of every seed, kinds in turn; the rows of the table."""
    file = out / "survey.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for kind in kinds or KINDS:
            if KINDS[kind].rate and (why := networks.missing()):
                say(f"survey {kind}: left out, {why}")
                continue
            known = {(line["kind"], line["seed"], line["groups"]) for line in _lines(file)}
            if (kind, seed, groups) in known:
                continue
            line = _session(out, kind, seed, groups)
            with file.open("a", encoding="utf-8") as sink:
                sink.write(json.dumps(line) + "\n")
    return figures(_lines(file))


def _lines(file: Path) -> list[dict[str, Any]]:
    return list(whole_lines(file.read_text(encoding="utf-8"))) if file.is_file() else []


def drawn(kind: Kind, seed: int, groups: int) -> list[str]:
    """What is slowed in a session, as the rows of the table name it: nodes, or a link."""
    draw = random.Random(f"{kind.name}-{seed}")
    numbers = sorted(draw.sample(range(groups), 2 if kind.link else kind.nodes))
    names = [f"group{number}" for number in numbers]
    return [" – ".join(names)] if kind.link else names


def _option(slowed: Sequence[str], share: float) -> str:
    """As ``--slow`` takes it."""
    return ",".join(slowed).replace("group", "").replace(" – ", "-") + f"={share:g}"


def _session(out: Path, kind: str, seed: int, groups: int) -> dict[str, Any]:
    slowed = drawn(KINDS[kind], seed, groups)
    results = out / "survey" / f"{kind}-{seed}-{groups}"
    before = set((results / "surveys").glob("*.json"))
    typed = ["survey", "--seed", str(seed), "--json", "--quiet", "--results", str(results)]
    began = machine()
    done = _started(typed, KINDS[kind], slowed, groups, out / "state")
    new = set((results / "surveys").glob("*.json")) - before
    stored = json.loads(new.pop().read_text(encoding="utf-8")) if new else {}
    line = {
        "kind": kind,
        "seed": seed,
        "groups": groups,
        "slowed": slowed,
        **began,
        "cpus": len(os.sched_getaffinity(0)),
    }
    line |= told(done, stored, slowed)
    say(f"survey {kind} {seed}: slowed {slowed}, named {line['named']}, {seconds(done.seconds)}")
    return line


def _started(typed: Sequence[str], kind: Kind, slowed: Sequence[str], groups: int, state: Path) -> Done:
    if kind.rate:
        one, other = (int(name.removeprefix("group")) for name in slowed[0].split(" – "))
        return networks.survey(groups, (one, other), kind.rate, *typed, state=state)
    drill = ("--slow", _option(slowed, kind.share)) if slowed else ()
    return aiperf(*typed, "--groups", str(groups), *drill, state=state)


def told(done: Done, stored: Mapping[str, Any], slowed: Sequence[str]) -> dict[str, Any]:
    """What a session said: what it named, and whether that is what was slowed and nothing else."""
    rows = json.loads(done.out) if done.code in (0, 6) else None
    found = [row for row in rows or [] if row["verdict"] == "slow"]
    named = sorted({row["node"] for row in found})
    words = [row["verdict"] for row in rows or []]
    return {
        "named": named,
        "right": rows is not None and named == sorted(slowed),
        "verdicts": {word: words.count(word) for word in sorted(set(words))},
        "slow": [{key: row[key] for key in ("node", "metric", "part", "deficit", "low", "high")} for row in found],
        "of_slowed": [
            {key: row[key] for key in ("node", "metric", "verdict", "deficit", "low", "high")}
            for row in rows or []
            if row["node"] in slowed
        ],
        "code": done.code,
        "error": "" if rows is not None else done.err[-400:],
        "skipped": stored.get("skipped", []),
        "plan_seconds": stored.get("seconds", {}),
        "seconds": round(done.seconds, 1),
    }


def figures(lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """How many sessions of each kind named what was slowed and nobody else. Fewer than twenty are shown, not judged."""
    rows = []
    for groups in sorted({line["groups"] for line in lines}):
        for key, kind in KINDS.items():
            own = [line for line in lines if (line["kind"], line["groups"]) == (key, groups)]
            if own:
                slowed = f" by {percent(kind.share)}" if kind.share and (kind.nodes or kind.link) else ""
                name = f"survey of {groups} groups, {kind.name}{slowed}"
                need = math.ceil(round(_FOUND_SHARE * len(own), 6))
                row = at_least(f"{name}: told", sum(line["right"] for line in own), len(own), need)
                rows.append(row if len(own) >= _ENOUGH else Figure(row.name, f"{_ENOUGH} sessions", row.measured))
                if not (kind.nodes or kind.link):
                    # A session that is undecided about everything names nobody either.
                    ok, of = (sum(map(count, own)) for count in (_ok, _all))
                    rows.append(Figure(f"{name}: verdicts that are ok", "-", f"{ok} of {of}"))
                took = seconds(median(line["seconds"] for line in own))
                rows.append(Figure(f"{name}: time of a session", "-", f"{took} in the middle"))
    return rows


def _ok(line: Mapping[str, Any]) -> int:
    return int(line["verdicts"].get("ok", 0))


def _all(line: Mapping[str, Any]) -> int:
    return sum(line["verdicts"].values())
