"""The checklist as data, and the walk over it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from host_shelf import check

from aiperf.errors import AiperfError
from aiperf.host import checklist
from aiperf.host.checklist import load_checklist
from aiperf.host.checklist_status import checklist_status
from aiperf.host.host_report import HostReport
from aiperf.host.probes.every import PROBES
from aiperf.scenario.find import Listing, list_scenarios

ITEMS = load_checklist()


def test_every_item_that_a_probe_can_check_has_its_probe() -> None:
    assert {item.id for item in ITEMS if item.auto == "probe"} <= {probe.id for probe in PROBES}


def test_the_checklist_holds_every_item_of_the_book_once() -> None:
    assert Counter(item.auto for item in ITEMS) == {"probe": 72, "scenario": 88, "process": 31}
    assert len({item.id for item in ITEMS}) == len(ITEMS)
    assert sum(not item.parent for item in ITEMS) == 180
    assert {item.parent for item in ITEMS if item.parent} <= {item.id for item in ITEMS}


def test_an_item_says_how_it_is_checked() -> None:
    for item in ITEMS:
        assert item.lines.replace("-", "").isdigit()
        assert bool(item.ask) == (item.auto == "process"), item.id
        assert not item.ask or item.ask.endswith("?"), item.id
        assert item.pair or item.auto != "scenario", item.id
        assert item.item
        assert item.book == f"{item.section}, line {item.lines}"


def test_a_scenario_that_comes_close_to_an_item_is_shipped() -> None:
    shipped = {listing.name for listing in list_scenarios()}
    named = [name for item in ITEMS for name in item.see]
    assert named
    assert set(named) <= shipped
    steps = checklist_status(ITEMS, HostReport("", {}, ()), list_scenarios())
    assert sum(bool(step.see) for step in steps) == sum(bool(item.see) for item in ITEMS)
    assert not [step.id for step in steps if step.see and step.scenarios]


def test_every_item_has_a_probe_a_question_or_a_scenario_that_shows_it_or_comes_close() -> None:
    steps = checklist_status(ITEMS, HostReport("", {}, ()), list_scenarios())
    assert not [s.id for s in steps if s.auto == "scenario" and not s.scenarios and not s.see]


def test_what_comes_close_is_not_named_beside_a_scenario_that_shows_the_item() -> None:
    item = replace(next(item for item in ITEMS if item.id == "cuda-graphs"), see=("near", "unshipped"))
    listings = [Listing("near", Path("a.yaml"))]
    checkup = HostReport("", {}, ())
    assert [step.see for step in checklist_status([item], checkup, listings)] == [("near",)]
    listings.append(Listing(item.pair, Path("b.yaml")))
    assert [(step.scenarios, step.see) for step in checklist_status([item], checkup, listings)] == [((item.pair,), ())]


def test_a_damaged_checklist_is_told(tmp_path, monkeypatch) -> None:
    (tmp_path / "doctor").mkdir()
    (tmp_path / "doctor" / "checklist.yaml").write_text("- {section: a, items: [{id: x, wrong: 1}]}\n")
    monkeypatch.setattr(checklist, "config_folder", lambda: tmp_path)
    with pytest.raises(AiperfError, match=r"checklist\.yaml cannot be read"):
        load_checklist()


def test_the_walk_has_a_verdict_a_scenario_or_a_question_for_every_item(tmp_path) -> None:
    listings = [
        Listing("thp-pair", Path("a.yaml"), book=("app/small-pages-vs-thp", "ch03/other")),
        Listing("pageable-vs-pinned-h2d", Path("b.yaml")),
        Listing("nagle-vs-tcp-nodelay", Path("c.yaml")),
    ]
    steps = {step.id: step for step in checklist_status(ITEMS, check(tmp_path, "laptop"), listings)}
    assert list(steps) == [item.id for item in ITEMS]
    assert (steps["thp"].level, steps["thp"].said, steps["thp"].scenarios) == (
        "warn", "never, defrag madvise", ("thp-pair",),
    )  # fmt: skip
    assert steps["pinned-host-memory"].scenarios == ("pageable-vs-pinned-h2d",)
    assert (steps["streams"].scenarios, steps["streams"].pair) == ((), "one-stream-vs-multi-stream")
    near = steps["tcp-stack"]
    assert (near.scenarios, near.see) == ((), ("nagle-vs-tcp-nodelay",))
    assert steps["plan-data-locality"].said.startswith("Is tightly coupled work")
    assert steps["mig"].said == "NVML does not answer nvmlDeviceGetMigMode on this GPU"
