"""Sittings of ``transformers serve`` against itself, equal and with a known delay in every decoding step of one side:
how often equal sides are flagged, and how often the delay is found.

What must not live here: the delay itself (tests/programs/delayed_serve.py).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.store.read import find_runs, open_run
from tests.bench.figures import Figure, at_least
from tests.bench.shell import ROOT, aiperf, keep, machine, say

KINDS: Mapping[str, float] = {"equal": 0.0, "decode +10 %": 0.10}
"""Kind of a sitting -> by how much every decoding step of the side after is longer."""
SCENARIO = """\
title: A server against itself
workload: serve.load
params:
  env: {{HF_HUB_OFFLINE: "1"}}
  model: tiny-random
  trace: {{arrivals: poisson, rate: 15, requests: 240, prompt_tokens: [16, 64], output_tokens: [16, 32]}}
  segments: 12
before: {{server: "{serve} 0 {options}"}}
after: {{server: "{serve} {share} {options}"}}
needs: {{cpus: 2, libraries: {{transformers: ">=5", aiohttp: any, fastapi: any, uvicorn: any}}}}
measure: {{metric: inter_token, clock: wall, delta: 0.03, max_pairs: {pairs}}}
check: {{name: disagreement, bound: 0.05, reason: a batch is summed in another order}}
"""
_OPTIONS = (
    "serve {model} --device cpu --port {port} --continuous-batching --cb-block-size 32 --cb-num-blocks 256 "
    "--log-level error"
)
_FOUND_SHARE = 0.8
_FLAGGED_SHARE = 0.05


def measure(out: Path, *, sittings: int, minutes: float, pairs: int) -> list[Figure]:
    """Sit until each kind has as many sittings as asked for, kinds in turn; the rows of the table."""
    for number in range(sittings):
        for place, (kind, share) in enumerate(KINDS.items()):
            folder = out / "serving" / str(place)
            if len(_words(folder)) <= number:
                _sit(out, folder, kind, share, seed=1000 + number, minutes=minutes, pairs=pairs)
    return figures({kind: _words(out / "serving" / str(place)) for place, kind in enumerate(KINDS)})


def figures(words: Mapping[str, Sequence[str]]) -> list[Figure]:
    """What the sittings of each kind said: equal sides flagged at most once in twenty, a delay found in four of five.

    Fewer than twenty sittings are shown and not judged.
    """
    rows = []
    for kind, found in words.items():
        of, enough = len(found), len(found) >= 20
        if KINDS[kind]:
            row = at_least(f"serving, {kind}: found", found.count("regressed"), of, round(_FOUND_SHARE * of))
        else:
            flagged, most = sum(word in ("improved", "regressed") for word in found), int(_FLAGGED_SHARE * of)
            row = Figure(f"serving, {kind}: flagged", f"<= {most} of {of}", f"{flagged} of {of}", flagged <= most)
        rows.append(row if enough else Figure(row.name, "20 sittings", row.measured))
    return rows


def _sit(out: Path, folder: Path, kind: str, share: float, *, seed: int, minutes: float, pairs: int) -> None:
    serve = f"{sys.executable} {ROOT / 'tests' / 'programs' / 'delayed_serve.py'}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "server-against-itself.yaml"
    file.write_text(SCENARIO.format(serve=serve, share=share, options=_OPTIONS, pairs=pairs), encoding="utf-8")
    say(f"serving, {kind}, seed {seed}")
    began = machine()
    arguments = ("--seed", str(seed), "--budget", f"{minutes:g}min", "--results", str(folder / "results"), "--json")
    done = aiperf("run", str(file), *arguments, state=out / "state")
    keep(folder / f"sitting-{seed}.json", {**began, "seconds": done.seconds, "exit": done.code})
    if done.code not in (0, 1):
        say(f"aiperf run ended with {done.code}: {done.err.strip()[-500:]}")


def _words(folder: Path) -> list[str]:
    """The verdict of every sitting that is kept there; of one without a verdict, its status."""
    results = folder / "results"
    found = []
    for run in find_runs(results):
        for record in open_run(run, results=results).read_cases()[0]:
            primary = next((result for result in record.results if result.primary), None)
            found.append(primary.verdict.word if primary else record.status)
    return found
