"""``python -m tests.bench [PART ...]``: measure the figures and print one table.

What must not live here: how a figure is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.bench import (
    calibrate,
    clients,
    device,
    gate,
    knee,
    mechanisms,
    overhead,
    peers,
    programs,
    ranges,
    recorded,
    serving,
    startup,
    store,
    survey,
    telemetry,
)
from tests.bench.figures import Figure, table
from tests.bench.shell import keep, say

PARTS = (
    "startup", "store", "ranges", "telemetry", "overhead", "peers", "programs", "calibrate", "serving", "knee",
    "clients", "device", "gate", "survey", "recorded", "mechanisms",
)  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without any (hours)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="what was measured; taken up again")
    parser.add_argument("--fresh", action="store_true", help="overhead: measure again what is kept")
    parser.add_argument("--sessions", type=int, default=12, help="peers, programs: sessions of each kind")
    parser.add_argument("--scenario", default="same-vs-same", help="calibrate: which scenario")
    parser.add_argument("--aa", type=int, default=40, help="calibrate: A/A sessions")
    parser.add_argument("--power", type=int, default=10, help="calibrate: sessions of each slowdown")
    parser.add_argument("--sittings", type=int, default=20, help="serving, knee: sittings of each kind")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="serving, knee: what a sitting may take; 0: by its kind"
    )
    parser.add_argument("--pairs", type=int, default=40, help="serving, knee: pairs that a sitting has at most")
    parser.add_argument("--server", choices=serving.SERVERS, default="transformers", help="serving: which one")
    parser.add_argument("--seed", type=int, default=1000, help="serving, knee: of the first sitting of each kind")
    parser.add_argument("--shard", default="0/1", help="serving, knee: the share of this process, 0/6 to 5/6 of six")
    parser.add_argument("--guidellm", default="guidellm", help="clients: the program")
    parser.add_argument("--rounds", type=int, default=12, help="clients: rounds of each load")
    parser.add_argument("--device-aa", type=int, default=15, help="device: A/A sessions of each control")
    parser.add_argument("--device-power", type=int, default=4, help="device: sessions of each slowdown and control")
    parser.add_argument("--gates", type=int, default=20, help="gate: runs of each kind of commit")
    parser.add_argument("--surveys", type=int, default=20, help="survey: sessions of each kind")
    parser.add_argument("--first-survey", type=int, default=0, help="survey: seed of the first session of each kind")
    parser.add_argument("--groups", type=int, default=8, help="survey: groups of processes that stand for nodes")
    parser.add_argument(
        "--kinds",
        default="",
        help="gate, serving, survey, clients: only these, e.g. plus5,noop; healthy,one; late-token",
    )
    options = parser.parse_args()
    if options.pairs < 3:
        parser.error("a verdict needs --pairs 3 or more")
    kinds = [kind for kind in options.kinds.split(",") if kind]
    if "serving" in options.parts and (unknown := [kind for kind in kinds if kind not in serving.KINDS]):
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(serving.KINDS)}")
    if "clients" in options.parts and (unknown := [kind for kind in kinds if kind not in clients.LOADS]):
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(clients.LOADS)}")
    if "survey" in options.parts and (unknown := [kind for kind in kinds if kind not in survey.KINDS]):
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(survey.KINDS)}")
    shard, _, shards = options.shard.partition("/")
    if not (shard.isdecimal() and shards.isdecimal() and int(shard) < int(shards)):
        parser.error("write --shard as 0/6 to 5/6")
    options.plan = serving.Plan(
        options.sittings, options.pairs, options.server, kinds or serving.Plan.kinds, int(shard), int(shards),
        options.minutes, options.seed,
    )  # fmt: skip
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return options


def main() -> int:
    """Measure the parts asked for; 1 when a figure was missed."""
    options = _options()
    out: Path = options.out.resolve()
    how: dict[str, Callable[[], list[Figure]]] = {
        "startup": lambda: startup.measure(out),
        "store": lambda: store.measure(out),
        "ranges": lambda: ranges.measure(out),
        "telemetry": telemetry.measure,
        "recorded": recorded.measure,
        "mechanisms": lambda: mechanisms.measure(out),
        "overhead": lambda: overhead.measure(out, fresh=options.fresh),
        "peers": lambda: peers.measure(out, sessions=options.sessions),
        "programs": lambda: programs.measure(out, sessions=options.sessions),
        "calibrate": lambda: calibrate.measure(
            out, scenario=options.scenario, sessions=options.aa, power_sessions=options.power
        ),
        "serving": lambda: serving.measure(out, options.plan),
        "device": lambda: device.measure(out, sessions=options.device_aa, power_sessions=options.device_power),
    }
    how["gate"] = lambda: gate.measure(out, gates=options.gates, kinds=[k for k in options.kinds.split(",") if k])
    how["knee"] = lambda: knee.measure(out, options.plan)
    seeds = range(options.first_survey, options.first_survey + options.surveys)
    wanted = [k for k in options.kinds.split(",") if k]
    how["survey"] = lambda: survey.measure(out, seeds=seeds, kinds=wanted, groups=options.groups)
    how["clients"] = lambda: clients.measure(
        out, guidellm=options.guidellm, rounds=options.rounds, loads=wanted or tuple(clients.LOADS)
    )
    figures: list[Figure] = []
    for part in options.parts or PARTS:
        say(f"part {part}")
        found = how[part]()
        keep(out / f"figures-{part}.json", [asdict(f) for f in found])
        figures += found
    print(table(figures))
    return 1 if any(f.ok is False for f in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
