"""What was seen of every scenario's checks and kernels, kept with the reference runs: which broken sides were noticed,
and what the sanitizers said. ``results/reference/checks.json``: kind of check -> scenario -> what came of it.

What must not live here: checking anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import git_state
from tests.library_check.children import Outcome

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "results/reference/checks.json"
BROKEN = "broken sides"
"""The kind of what the checks of scenarios noticed without a GPU; the others are the tools of compute-sanitizer."""
ON_GPU = "broken sides on a GPU"


def seen_at(host: HostFacts) -> dict[str, str]:
    """What an entry says of its occasion: to be asked before the first check, for what is changed meanwhile was not
    what ran."""
    git = git_state(ROOT)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": git.get("sha", "") + ("+changes" if git.get("diff") else ""),
        "host": ", ".join(dict.fromkeys(gpu.name for gpu in host.gpus)) or host.cpu_model,
    }


def keeper(path: Path | None, kind: str, host: HostFacts) -> Callable[[Outcome], None]:
    """What enters every outcome as it comes, so that a run cut short keeps what it saw; without a path nothing."""
    seen = seen_at(host)

    def enter(outcome: Outcome) -> None:
        if path is not None:
            keep(path, kind, {outcome.name: (outcome.status, outcome.detail)}, seen=seen)

    return enter


def keep(path: Path, kind: str, told: Mapping[str, tuple[str, str]], *, seen: Mapping[str, str]) -> None:
    """Enter what came of some scenarios (name -> status, detail), in place of what is known of them, into a file."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    entries = {name: {"status": status, "detail": detail, **seen} for name, (status, detail) in told.items()}
    merged = {**known, kind: dict(sorted({**known.get(kind, {}), **entries}.items()))}
    path.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
