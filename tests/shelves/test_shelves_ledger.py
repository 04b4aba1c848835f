"""What the ledger of checks says: of every scenario that needs no GPU, that its check noticed every broken side."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from aiperf.host.facts import Gpu, HostFacts
from tests.library_check.__main__ import names
from tests.library_check.children import Outcome
from tests.library_check.ledger import BROKEN, LEDGER, ON_GPU, ROOT, keep, keeper, seen_at

HOST = HostFacts("h", "Linux", "a CPU", (0, 1), 1 << 34, 1 << 33)


@pytest.fixture(scope="module")
def ledger() -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = json.loads(LEDGER.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", names())
def test_the_check_of_every_scenario_without_a_gpu_was_seen_to_notice_broken_sides(name: str, ledger) -> None:
    seen = ledger[BROKEN][name]
    assert seen["status"] == "passed" or (seen["status"] == "skipped" and seen["detail"]), seen
    assert "caught" in seen["detail"] or seen["status"] == "skipped"
    assert len(seen["commit"]) == 40, "from a commit, without changes"


def test_nothing_in_the_ledger_failed_and_all_of_it_is_of_scenarios_that_there_are(ledger) -> None:
    there = {path.stem for path in (ROOT / "scenarios").rglob("*.yaml")}
    for seen in ledger.values():
        assert set(seen) <= there
        assert {one["status"] for one in seen.values()} <= {"passed", "skipped", "clean"}


def test_every_outcome_is_kept_as_it_comes_and_none_without_a_file(tmp_path: Path) -> None:
    path = tmp_path / "checks.json"
    heard = keeper(path, ON_GPU, HOST)
    heard(Outcome("a", "passed", "caught"))
    assert set(json.loads(path.read_text())[ON_GPU]) == {"a"}
    heard(Outcome("b", "skipped", "no GPU"))
    assert {name: e["status"] for name, e in json.loads(path.read_text())[ON_GPU].items()} == {
        "a": "passed", "b": "skipped",
    }  # fmt: skip
    keeper(None, ON_GPU, HOST)(Outcome("c", "passed"))


def test_an_entry_takes_the_place_of_the_same_scenarios_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "checks.json"
    keep(path, BROKEN, {"b": ("failed", "why"), "a": ("passed", "caught")}, seen=seen_at(HOST))
    keep(path, "memcheck", {"a": ("clean", "")}, seen=seen_at(HOST))
    gpus = tuple(Gpu(i, "NVIDIA H200", f"GPU-{i}", "9.0", 1, 1) for i in range(2))
    keep(path, BROKEN, {"b": ("passed", "caught")}, seen=seen_at(HostFacts(**{**vars(HOST), "gpus": gpus})))
    found = json.loads(path.read_text())
    assert {kind: {name: (e["status"], e["host"]) for name, e in by.items()} for kind, by in found.items()} == {
        BROKEN: {"a": ("passed", "a CPU"), "b": ("passed", "NVIDIA H200")},
        "memcheck": {"a": ("clean", "a CPU")},
    }
    assert list(found[BROKEN]) == ["a", "b"]
    assert all(len(e["date"]) == 10 for by in found.values() for e in by.values())
