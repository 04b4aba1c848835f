"""The shipped workloads as their signatures and the scenarios tell of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.errors import UserError
from aiperf.paths import workload_folder
from aiperf.scenario import signature, source, workloads
from aiperf.scenario.find import Listing, list_scenarios
from aiperf.scenario.signature import read_signature, shipped_workloads
from aiperf.scenario.workloads import describe_workload, list_workloads

FAMILY = '''
from typing import Literal

def _hidden(ctx) -> Workload: ...
def helper(folder) -> Path: ...
def lent_to_nobody(x): ...

def copy(
    ctx, *, size: Size = 64 << 20, way: Literal["h2d", "d2h"], depth: int | None = None
) -> Workload:
    """Copy ``size`` bytes, i.e. all of them, e.g. from
    here to there. Then wait.

    More is said below."""

def bare(ctx) -> contract.Workload: ...
'''


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A family with two workloads, and one that lends its only one from a private module."""
    folder = tmp_path / "w"
    folder.mkdir()
    for module in (signature, source, workloads):
        monkeypatch.setattr(module, "workload_folder", lambda: folder)
    for family in ("transfer", "memory"):
        (folder / family).mkdir()
    (folder / "transfer" / "workload.py").write_text(FAMILY)
    (folder / "memory" / "alloc.py").write_text("def alloc(ctx) -> Workload: ...\ndef other(ctx) -> Workload: ...\n")
    (folder / "memory" / "workload.py").write_text(
        "from aiperf.workloads.memory.alloc import alloc, other\n__all__ = ['alloc', 'constant']\nconstant = 3\n"
    )
    return folder


def test_a_workload_is_a_public_function_that_returns_one_or_is_lent_by_its_family(shipped):
    assert shipped_workloads() == ["memory.alloc", "transfer.bare", "transfer.copy"]


def test_a_workload_tells_its_first_sentence_and_what_it_takes(shipped):
    found = describe_workload("transfer.copy", [])
    assert found.summary == "Copy ``size`` bytes, i.e. all of them, e.g. from here to there."
    assert found.doc.endswith("More is said below.")
    told = [(p.name, p.takes, p.allowed, p.required, p.default, p.written) for p in found.parameters]
    assert told == [
        ("size", "size", None, False, 64 << 20, "64MiB"),
        ("way", "one of h2d, d2h", ("h2d", "d2h"), True, None, ""),
        ("depth", "whole number, or null", None, False, None, "null"),
    ]


def test_a_workload_without_a_docstring_is_still_listed(shipped):
    bare = list_workloads([])[1]
    assert (bare.name, bare.summary, bare.parameters, bare.scenarios) == ("transfer.bare", "", (), ())


def test_the_scenarios_of_a_workload_are_those_of_which_a_side_runs_it(shipped):
    entries = [
        Listing("a", Path("a.yaml"), workload="transfer.copy", workloads=("transfer.copy",)),
        Listing("b", Path("b.yaml"), workload="transfer.copy", workloads=("transfer.bare", "transfer.copy")),
        Listing("c", Path("c.yaml"), workload="transfer.copy"),
    ]
    used = {entry.name: entry.scenarios for entry in list_workloads(iter(entries))}
    assert used == {"memory.alloc": (), "transfer.bare": ("b",), "transfer.copy": ("a", "b")}


def test_a_workload_that_is_not_there_is_a_mistake(shipped):
    with pytest.raises(UserError, match="has no function cpoy"):
        describe_workload("transfer.cpoy", [])


def test_every_workload_of_a_shipped_scenario_is_listed_and_says_what_it_does():
    named = {workload for entry in list_scenarios() for workload in entry.workloads}
    known = {name: read_signature(name, base=workload_folder()).doc for name in shipped_workloads()}
    assert len(named) > 20
    assert named <= set(known)
    assert [name for name, doc in known.items() if not doc] == []
