"""The ledger of readings: which scenarios somebody who did not write them has read, with row, code and record."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "results" / "reference" / "audit.yaml"
FOLDERS = ("cpu", "gpu", "gpu2", "nodes", "serve")
FIELDS = {"verdict", "commit", "reason", "done", "open"}


@pytest.fixture(scope="module")
def ledger() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = yaml.safe_load(LEDGER.read_text(encoding="utf-8"))
    return found


def test_every_scenario_is_in_the_ledger_and_nothing_else(ledger) -> None:
    there = {path.stem for folder in FOLDERS for path in (ROOT / "scenarios" / folder).glob("*.yaml")}
    assert set(ledger) == there


def test_what_was_read_has_a_verdict_with_its_commit_and_what_is_not_ok_says_what_was_done_or_is_open(ledger) -> None:
    for name, entry in ledger.items():
        assert set(entry) <= FIELDS, name
        assert entry["verdict"] in {"ok", "weak", "wrong", "unread"}, name
        if entry["verdict"] == "unread":
            # What was changed for a former reading keeps that reading until somebody has read it again.
            assert set(entry) == {"verdict"} or entry.get("open"), name
            continue
        assert entry["reason"], name
        assert len(entry["commit"]) >= 7, name
        if entry["verdict"] != "ok":
            assert entry.get("done") or entry.get("open"), name
