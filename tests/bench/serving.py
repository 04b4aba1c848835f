"""Sittings of a server against itself, equal and with a known delay in one side: how often equal sides are flagged, and
how often the delay is found. Each sitting is a line of JSON, so that several processes share the work and a broken one
is taken up again.

What must not live here: the delays themselves (tests/programs/delayed_serve.py, engine_server.py).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from aiperf.store.read import find_runs, open_run
from tests.bench.figures import Figure, at_least, seconds
from tests.bench.shell import ROOT, aiperf_within, machine, say


@dataclass(frozen=True)
class Kind:
    """What is wrong with the side after, and how long a sitting may look for it."""

    name: str
    decode: float = 0.0
    """By how much every decoding step is longer."""
    first: float = 0.0
    """By how much the first token is later."""
    metric: str = "inter_token"
    minutes: float = 10.0
    delta: float = 0.03
    device: str = "cpu"
    prompts: str = "[16, 64]"
    """Lengths; for the first token long ones, whose own pass takes most of the time."""
    preset: str = "tiny"
    """The engine's model; for the first token a larger one, beside whose pass what the client takes is little; on a GPU
    one whose steps the GPU should pace (not measured yet)."""

    @property
    def is_equal(self) -> bool:
        """Whether nothing is."""
        return not (self.decode or self.first)


KINDS: Mapping[str, Kind] = {
    "equal": Kind("equal"),
    "decode10": Kind("decode +10 %", decode=0.10),
    "decode5": Kind("decode +5 %", decode=0.05, minutes=25.0, delta=0.02),
    "ttft20": Kind("first token +20 %", first=0.20, metric="ttft", prompts="[128, 384]", preset="small"),
    "gpu-equal": Kind("equal on a GPU", delta=0.01, device="cuda", preset="405b-4layer"),
    "gpu-decode3": Kind("decode +3 % on a GPU", decode=0.03, delta=0.01, device="cuda", preset="405b-4layer"),
}
SCENARIO = """\
title: A server against itself
workload: serve.load
params:
  env: {{HF_HUB_OFFLINE: "1"{hidden}}}
  model: {model}
  trace: {{arrivals: poisson, rate: {rate}, requests: 144, prompt_tokens: {prompts}, output_tokens: [16, 32]}}
  segments: 12
before: {{server: "{before}"}}
after: {{server: "{after}"}}
needs: {{{needs}}}
measure: {{metric: {metric}, clock: wall, delta: {delta}, max_pairs: {pairs}}}
check: {{name: disagreement, bound: 0.05, reason: a batch is summed in another order}}
expect: {expect}
"""
_TRANSFORMERS = (
    "serve {model} --device {device} --port {port} --continuous-batching --cb-block-size 32 --cb-num-blocks 256 "
    "--cb-max-batch-tokens 512 --log-level error"
)
SERVERS = ("transformers", "engine")
_SHOWN = ("inter_token", "ttft")
_FOUND_SHARE = 0.8
_FLAGGED_SHARE = 0.05
_FLAGS = ("improved", "regressed")
_ENOUGH = 20
_NEARLY = 0.85
"""Of the minutes of a kind: a sitting that has as much of them may miss what it is to find."""
BEYOND_S = 90.0
"""What a sitting may take beyond its limit, for the pair that was under way and for the start; then it is cut off."""


@dataclass(frozen=True)
class Plan:
    """Which sittings there are to be, and which of them are this process's."""

    sittings: int
    """Of each kind."""
    pairs: int
    """That a sitting has at most."""
    server: str = "transformers"
    kinds: Sequence[str] = ("equal", "decode10", "decode5", "ttft20")
    shard: int = 0
    """Of ``shards``: sittings are dealt out to them one after the other."""
    shards: int = 1
    minutes: float = 0.0
    """In place of each kind's own; 0: those."""
    seed: int = 1000
    """Of the first sitting of each kind."""


def measure(out: Path, plan: Plan) -> list[Figure]:
    """Sit until each kind has as many sittings as asked for, kinds in turn; the rows of the table, of all processes."""
    folder = out / "serving" / plan.server
    folder.mkdir(parents=True, exist_ok=True)
    todo = [(kind, plan.seed + number) for number in range(plan.sittings) for kind in plan.kinds]
    known = {(line["kind"], line["seed"]) for line in read_lines(folder) if is_whole(line)}
    for kind, seed in todo[plan.shard :: plan.shards]:
        if (kind, seed) not in known:
            keep_line(folder, plan, _sit(folder, kind, seed, plan, state=out / f"state-{plan.shard}"))
    return figures(read_lines(folder))


def keep_line(folder: Path, plan: Plan, line: Mapping[str, Any]) -> None:
    """Add the line of a sitting to those of this process. Raises KeyboardInterrupt where a signal cut it off."""
    with (folder / f"sittings-{plan.shard}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    if line.get("cut") == "signal":
        raise KeyboardInterrupt


def is_whole(line: Mapping[str, Any]) -> bool:
    """Whether a sitting ended by itself: one that did not is shown, counts for nothing, and is sat again."""
    return not line.get("cut")


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """The sittings that are kept in a folder; a line that was cut off in the middle is none."""
    return [line for path in sorted(folder.glob("*.jsonl")) for line in whole_lines(path.read_text(encoding="utf-8"))]


def whole_lines(text: str) -> Iterator[dict[str, Any]]:
    """The JSON of each line; one that was cut off in the middle is none."""
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            say(f"left out, not JSON: {line[:80]}")


def figures(lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """What the sittings of each kind said: equal sides flagged at most once in twenty, a delay found in four of five.

    Fewer than twenty sittings are shown and not judged, and those that were cut off are counted apart.
    """
    found = {key: [line for line in lines if line["kind"] == key] for key in KINDS}
    rows = [row for key, own in found.items() for row in _of_kind(KINDS[key], [*filter(is_whole, own)])]
    cut = len(lines) - sum(map(is_whole, lines))
    return [*rows, Figure("serving: sittings cut off", "shown", f"{cut} of {len(lines)}")] if cut else rows


def _of_kind(kind: Kind, lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    if not lines:
        return []
    name = f"serving, {lines[0]['server']}, {kind.name}"
    if kind.is_equal:
        rows = [_flagged(f"{name}: {metric} flagged", metric, lines) for metric in _SHOWN]
    else:
        rows = [_found(f"{name}: found", kind, lines)]
    if len(lines) < _ENOUGH:
        rows = [Figure(row.name, f"{_ENOUGH} sittings", row.measured) for row in rows]
    took = [line["seconds"] for line in lines]
    times = f"{seconds(median(took))} in the middle, {seconds(max(took))} at most"
    return [*rows, Figure(f"{name}: time of a sitting", f"< {kind.minutes:g} min", times)]


def _found(name: str, kind: Kind, lines: Sequence[Mapping[str, Any]]) -> Figure:
    """How often a delay was found. One that was not, in less time than its kind has, is no miss of it, and no find."""
    count, of = [line["verdict"] for line in lines].count("regressed"), len(lines)
    row = at_least(name, count, of, round(_FOUND_SHARE * of))
    least = _NEARLY * 60 * kind.minutes
    short = sum(line["verdict"] != "regressed" and line.get("limit", least) < least for line in lines)
    if row.ok or not short:
        return row
    said = f"{row.measured}; {short} others had less time"
    return Figure(name, row.target, said, None if count + short >= round(_FOUND_SHARE * of) else False)


def _flagged(name: str, metric: str, lines: Sequence[Mapping[str, Any]]) -> Figure:
    """How often equal sides were called different; what was invalid, or has no verdict, is named besides."""
    words = [line["metrics"].get(metric, {}).get("word", "none") for line in lines]
    flagged, most = sum(word in _FLAGS for word in words), int(_FLAGGED_SHARE * len(words))
    others = [f"{words.count(word)} {word}" for word in ("equivalent", "inconclusive", "invalid", "none")]
    shown = ", ".join([f"{flagged} of {len(words)}", *(text for text in others if not text.startswith("0 "))])
    return Figure(name, f"<= {most} of {len(words)}", shown, flagged <= most)


# ---- one sitting -----------------------------------------------------------------------------------------------------


def scenario(kind: Kind, plan: Plan) -> str:
    """The file of a sitting."""
    needs, rate, model = "cpus: 2", 30, "engine"
    if plan.server == "transformers":
        needs += ', libraries: {transformers: ">=5", aiohttp: any, fastapi: any, uvicorn: any}'
        rate, model = 15, "tiny-random"
    if kind.device == "cuda":
        needs, rate = f"{needs}, gpus: 1", 15
    elif plan.server == "engine" and kind.preset == "small":
        rate = 8
    before, after = (_server(plan.server, kind, *delays) for delays in ((0.0, 0.0), (kind.decode, kind.first)))
    hidden = "" if kind.device == "cuda" else ', CUDA_VISIBLE_DEVICES: ""'
    return SCENARIO.format(
        hidden=hidden, before=before, after=after, needs=needs, rate=rate, model=model, metric=kind.metric,
        delta=kind.delta, prompts=kind.prompts, pairs=plan.pairs, expect="equivalent" if kind.is_equal else "regressed",
    )  # fmt: skip


def _server(server: str, kind: Kind, decode: float, first: float) -> str:
    programs = ROOT / "tests" / "programs"
    if server == "transformers":
        options = _TRANSFORMERS.replace("{device}", kind.device)
        return f"{sys.executable} {programs / 'delayed_serve.py'} {decode:g} {first:g} {options}"
    delays = f"--decode-delay {decode:g} --first-delay {first:g}"
    model = f"--preset {kind.preset} --device {kind.device}"
    return f"{sys.executable} {programs / 'engine_server.py'} --port {{port}} {model} {delays}"


def _sit(folder: Path, key: str, seed: int, plan: Plan, *, state: Path) -> dict[str, Any]:
    """The line of a sitting; of one that was cut off, with what it had until then."""
    kind, place = KINDS[key], folder / f"{key}-{seed}"
    shutil.rmtree(place, ignore_errors=True)  # of a sitting that did not end
    place.mkdir(parents=True)
    file = place / "server-against-itself.yaml"
    file.write_text(scenario(kind, plan), encoding="utf-8")
    say(f"serving, {plan.server}, {kind.name}, seed {seed}")
    began = machine()
    limit = 60 * (plan.minutes or kind.minutes)
    precision = place / "precision.yaml"
    standard = (ROOT / "configs" / "measure" / "standard.yaml").read_text(encoding="utf-8")
    precision.write_text(re.sub(r"case_seconds: \d+", f"case_seconds: {limit:g}", standard), encoding="utf-8")
    arguments = ("--precision", str(precision), "--budget", f"{limit:g}s", "--seed", str(seed), "--no-peaks", "--json")
    done = aiperf_within(
        limit + BEYOND_S, "run", str(file), *arguments, "--results", str(place / "results"), state=state
    )
    if done.code not in (0, 1):
        say(f"aiperf run ended with {done.code}: {done.err.strip()[-500:]}")
    return {
        "kind": key, "seed": seed, "server": plan.server, **_result(place / "results", kind.metric),
        "seconds": round(done.seconds, 1), "limit": limit, "cut": done.cut, **began, "host": platform.node(),
        "cpus": len(os.sched_getaffinity(0)),
    }  # fmt: skip


def _result(results: Path, metric: str) -> dict[str, Any]:
    """What a sitting's record says."""
    records = [record for run in find_runs(results) for record in open_run(run, results=results).read_cases()[0]]
    if not records:
        return {"verdict": "none", "reason": "no record", "pairs": 0, "metrics": {}}
    record = records[-1]
    found = {
        result.comparison.metric: {
            "word": result.verdict.word, "reason": result.verdict.reason,
            **{name: round(getattr(result.comparison, name), 5) for name in ("ratio", "low", "high", "sd")},
        }
        for result in record.results
        if result.comparison.metric in _SHOWN
    }  # fmt: skip
    own = found.get(metric, {})
    return {
        "verdict": own.get("word", record.status), "reason": own.get("reason", record.stop),
        "estimate": own.get("ratio"), "interval": [own.get("low"), own.get("high")],
        "pairs": len(record.pairs), "stop": record.stop, "metrics": found,
    }  # fmt: skip
