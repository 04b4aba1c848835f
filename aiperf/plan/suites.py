"""Suites: which scenarios belong together, and how long they took where somebody measured it.

What must not live here: measuring, the flags of a command, printing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiperf.errors import UserError, usage
from aiperf.host.facts import HostFacts
from aiperf.paths import config_file, config_names
from aiperf.plan.book import APPENDIX, WEIGHTS, chapters, load_book
from aiperf.plan.cases import expand
from aiperf.plan.cited import citing
from aiperf.plan.plan import Plan, host_cases, make_plan, narrow
from aiperf.records import Case
from aiperf.scenario.document import KeyPath, read_document
from aiperf.scenario.find import Listing, find_scenarios, list_scenarios, split_cases
from aiperf.scenario.keys import KeyReader
from aiperf.scenario.load import load_scenario, load_scenarios
from aiperf.scenario.model import Scenario
from aiperf.scenario.text import axis_text
from aiperf.scenario.wording import allowed, arranged, nearest, shown
from aiperf.settings import Settings

LANES = ("cpu", "gpu1", "gpu2", "gpu4")
FIRST = "first"
CASES = ("all", FIRST)
NOT_MEASURED = "not measured yet"
BOOK_PREFIX = "book-"
LAST_BOOK_SUITE = "ch14"
"""Later chapters have suites too, which are not listed."""
_RAN = ("took", "on", "precision", "commit")


@dataclass(frozen=True)
class Suite:
    """What a suite file says; a scenario belongs to it when any of ``scenarios``, ``book`` and ``lanes`` names it."""

    name: str
    title: str
    scenarios: tuple[str, ...] = ()
    """Names, ids of cases, tags, paths and patterns; paths are taken from the file's folder."""
    book: tuple[str, ...] = ()
    """Rows of the book, or chapters that stand for all of theirs: every scenario that cites one."""
    lanes: tuple[str, ...] = ()
    """cpu: what runs without a GPU; gpuN: what needs N GPUs, or takes them where they are."""
    weight: str = ""
    """Of what ``book`` and ``lanes`` name only scenarios that cite a row of this weight; empty leaves them all."""
    without: tuple[str, ...] = ()
    """Names, tags and patterns that are left out."""
    only: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Scenario -> axis -> the one value that is measured."""
    precision: str = ""
    """Unless the command names one; empty leaves the command's own default."""
    duration: str = NOT_MEASURED
    """How long it took, on what, as somebody measured it."""
    cases: str = "all"
    """``first`` leaves a scenario the first of its cases, in the order of the file and of what ``only`` keeps."""


def suite_names() -> tuple[str, ...]:
    """Every suite by name: the files, then one for each of the book's chapters 1 to 14 and its appendix."""
    return (
        *config_names("suites"),
        *(f"{BOOK_PREFIX}{c}" for c in chapters() if c == APPENDIX or c <= LAST_BOOK_SUITE),
    )


def load_suite(name: str) -> Suite:
    """The suite of configs/suites/NAME.yaml, of a path, or ``book-CHAPTER``. Raises UserError with every fault."""
    if match := re.fullmatch(rf"{BOOK_PREFIX}(\w+)", name):
        return _of_chapter(match[1])
    path = config_file("suites", name)
    if not path.is_file():
        hint = nearest(name, suite_names()) or f"Suites: {allowed(suite_names())}; or the path of a file like them."
        raise usage(f'"{name}" is not a suite.', hint)
    reader = _SuiteReader(read_document(path), kind="suite")
    suite = reader.suite()
    if reader.faults:
        raise UserError(arranged(reader.faults))
    return suite


def members(suite: Suite, *, entries: Sequence[Listing] | None = None) -> list[Path]:
    """Scenario files of the suite, by name; ``entries`` are the shipped ones, where they were listed already.

    Raises UserError for a selector that finds nothing.
    """
    entries = list_scenarios() if entries is None else entries
    paths = dict.fromkeys(find_scenarios(split_cases(suite.scenarios)[0])) if suite.scenarios else {}
    named = (*citing(entries, suite.book), *_in_lanes(entries, suite.lanes))
    paths |= dict.fromkeys(
        e.path.resolve() for e in (citing(named, _of_weight(suite.weight)) if suite.weight else named)
    )
    dropped = set(find_scenarios(suite.without)) if suite.without else set()
    return sorted((p for p in paths if p not in dropped), key=lambda p: p.stem)


def plan_suite(suite: Suite, host: HostFacts, settings: Settings, *, only: Mapping[str, str] | None = None) -> Plan:
    """The plan of a suite; ``only`` keeps cases of every scenario, as on the command line. Raises UserError."""
    loaded = load_scenarios(members(suite))
    if unknown := [name for name in suite.only if name not in {s.name for s in loaded}]:
        raise usage(f"suite {suite.name}: only names {unknown[0]}, which is not in it.", "Take it out, or add it.")
    narrowed = narrow(loaded, host, only or {})
    plans, ids = [], split_cases(suite.scenarios)[1]
    for scenario in loaded:
        if scenario.name not in narrowed.values:
            continue
        kept = {**suite.only.get(scenario.name, {}), **narrowed.values[scenario.name]}
        whole = make_plan([scenario], host, settings, only=kept, ids=ids)
        plans.append(_first(whole, host_cases(scenario, host, only=kept)) if suite.cases == FIRST else whole)
    return Plan(tuple(c for p in plans for c in p.cases), tuple(s for p in plans for s in p.skips), narrowed.notes)


def _wanted(value: Any) -> str:
    """One value of an axis or a list of them, as ``--only`` takes them: ``1MiB,16MiB``."""
    return (
        ",".join(map(_wanted, value))
        if isinstance(value, list)
        else value
        if isinstance(value, str)
        else axis_text(value)
    )


def _first(plan: Plan, cases: Sequence[Case]) -> Plan:
    """What the plan of a scenario says of the first of its cases."""
    first = cases[0].id
    return Plan(tuple(c for c in plan.cases if c.id == first), tuple(s for s in plan.skips if s.case.id == first))


def selected(selectors: Iterable[str], suite: str) -> list[Scenario]:
    """The scenarios that a command names, by themselves or by a suite. Raises UserError."""
    paths = members(load_suite(suite)) if suite else find_scenarios(split_cases(selectors)[0])
    return load_scenarios(paths)


def plan_selected(
    selectors: Iterable[str],
    suite: Suite | None,
    host: HostFacts,
    settings: Settings,
    *,
    only: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of what a command names: scenarios or a suite, one of them. Raises UserError."""
    selectors = list(selectors)
    if suite is not None and selectors:
        raise usage("a suite already lists its scenarios.", f"Leave out {selectors[0]}, or --suite.", where="--suite")
    if suite is not None:
        return plan_suite(suite, host, settings, only=only)
    if not selectors:
        advice = "Name scenarios, tags or files, or a suite: --suite cpu."
        raise usage("no scenario given.", advice)
    plain, ids = split_cases(selectors)
    return make_plan(load_scenarios(find_scenarios(plain)), host, settings, only=only, ids=ids)


def _of_chapter(chapter: str) -> Suite:
    if chapter not in chapters():
        raise usage(f'"{chapter}" is not a chapter of the book.', f"Chapters: {allowed(chapters())}.")
    which = "the appendix" if chapter == APPENDIX else f"chapter {int(chapter.removeprefix('ch'))}"
    return Suite(f"{BOOK_PREFIX}{chapter}", f"Every scenario that covers a row of {which} of the book", book=(chapter,))


def _of_weight(weight: str) -> list[str]:
    return [row.id for row in load_book() if row.weight == weight]


def _in_lanes(entries: Iterable[Listing], lanes: tuple[str, ...]) -> list[Listing]:
    return [e for e in entries if lanes and any(lane in lanes for lane in _lanes(e, lanes))]


def _lanes(entry: Listing, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Lanes of a scenario; only one that also takes GPUs has to be loaded to know how many."""
    if entry.gpus:
        return (f"gpu{entry.gpus}",)
    if not entry.gpu_sizes or set(wanted) == {"cpu"}:
        return ("cpu",)
    return ("cpu", f"gpu{_smallest(load_scenario(entry.path))}")


def _smallest(scenario: Scenario) -> int:
    return min(case.needs.gpus for case in expand(scenario, on_gpu=True))


class _SuiteReader(KeyReader):
    """Reads the keys of a suite."""

    def suite(self) -> Suite:
        data = self.document.data
        values = self.values(
            {
                "title": self.text,
                "scenarios": self.selectors,
                "book": self._book,
                "lanes": self._lanes,
                "weight": self._weight,
                "without": self.selectors,
                "only": self._only,
                "cases": self._cases,
                "precision": self.text,
                "duration": self._duration,
            }
        )
        if "title" not in data:
            values["title"] = self.document.path.stem
        if not any(data.get(key) for key in ("scenarios", "book", "lanes")):
            self.fault((), "it selects nothing.", "Write scenarios: [name, tag, ...], book: [ch07] or lanes: [cpu].")
        return Suite(self.document.path.stem, **{"title": "", **values})

    def _book(self, at: KeyPath, value: Any) -> tuple[str, ...]:
        texts = self.texts(at, value)
        for place, text in enumerate(texts):
            if text.partition("/")[0] not in chapters():
                self.fault((*at, place), f'"{text}" is not a chapter of the book.', f"Chapters: {allowed(chapters())}.")
        return texts

    def _lanes(self, at: KeyPath, value: Any) -> tuple[str, ...]:
        texts = self.texts(at, value)
        for place, text in enumerate(texts):
            if text not in LANES:
                self.fault((*at, place), f'"{text}" is not a lane.', f"Allowed: {allowed(LANES)}.")
        return texts

    def _weight(self, at: KeyPath, value: Any) -> str:
        if value in WEIGHTS:
            return str(value)
        self.fault(at, f"weight: {shown(value)} is not a weight of the book's rows.", f"Allowed: {allowed(WEIGHTS)}.")
        return ""

    def _only(self, at: KeyPath, value: Any) -> dict[str, dict[str, str]]:
        if not isinstance(value, dict) or not all(isinstance(axes, dict) for axes in value.values()):
            self.fault(at, "only is not a mapping of scenarios.", "Write {my-scenario: {size: 1MiB}}.")
            return {}
        return {name: {axis: _wanted(v) for axis, v in axes.items()} for name, axes in value.items()}

    def _cases(self, at: KeyPath, value: Any) -> str:
        if value in CASES:
            return str(value)
        self.fault(at, f"cases: {shown(value)} is not a choice of cases.", f"Allowed: {allowed(CASES)}.")
        return ""

    def _duration(self, at: KeyPath, value: Any) -> str:
        """What was measured, with where and when; a bare number would be somebody's guess."""
        if value == NOT_MEASURED:
            return NOT_MEASURED
        if not isinstance(value, dict) or set(value) != set(_RAN):
            what = f"duration: {shown(value)} is not a measured duration."
            self.fault(at, what, f"Write {NOT_MEASURED}, or a mapping with {allowed(_RAN)}.")
            return NOT_MEASURED
        ran = {key: self.text((*at, key), value[key]) for key in _RAN}
        return f"{ran['took']} at {ran['precision']} precision on {ran['on']} (commit {ran['commit']})"
