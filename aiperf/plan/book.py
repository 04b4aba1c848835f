"""The book's before/after pairs as data: what each row claims, and what is known to be wrong with the claim.

What must not live here: measured results, verdicts on claims, printing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from aiperf.errors import AiperfError, usage
from aiperf.paths import config_folder

Label = Literal["measured", "published", "illustrative", "arithmetic"]
"""measured: the book shows the output of a run. published: it quotes a paper or vendor. arithmetic: it follows from a
count or a model. illustrative: the book's own word for its tables, and every figure it states without any source."""
Weight = Literal["core", "useful", "marginal"]
WEIGHTS: tuple[str, ...] = get_args(Weight)
APPENDIX = "app"
_WANTED_WEIGHTS = ("core", "useful")
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Claim:
    """How many times as fast the book says the after side is; a single number has equal ends."""

    low: float
    high: float
    label: Label
    hardware: str = ""
    """As the book says; empty where it does not."""


@dataclass(frozen=True)
class Figure:
    """Another number of the book about the pair."""

    name: str
    unit: str
    label: Label
    before: str = ""
    after: str = ""
    hardware: str = ""


@dataclass(frozen=True)
class BookRow:
    """One before/after pair of the book."""

    id: str
    """``chNN/name`` or ``app/name``."""
    weight: Weight
    lane: str
    """Smallest place where a real version runs: cpu, gpu1, gpu2, gpu4, none."""
    section: str
    before: str
    after: str
    mechanism: str
    correctness: str
    claim: Claim | None = None
    figures: tuple[Figure, ...] = ()
    needs: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    """Workload family that serves it."""
    not_time: str = ""
    """What the row gains or shows where that is no time, as a clause; such a row claims no speed-up."""
    gains: str = ""
    """``memory`` where that is what a row without a claim of speed gains: then that is what it is judged by."""
    impossible: str = ""
    """The arithmetic by which the claim cannot hold as printed; empty when nothing is known against it."""
    note: str = ""
    """What else to know of the claim."""
    not_runnable: str = ""
    """Why there is no scenario of it."""
    nearest: str = ""
    """The scenario nearest to a row that cannot run."""
    marginal: str = ""
    """Why a row of little weight is left out."""

    @property
    def chapter(self) -> str:
        """``chNN`` or ``app``."""
        return self.id.partition("/")[0]

    @property
    def wanted(self) -> bool:
        """Whether a scenario must exist: a core or useful row of any chapter that can run somewhere."""
        return self.weight in _WANTED_WEIGHTS and not self.not_runnable


def book_folder() -> Path:
    """Where the rows lie, one file a chapter."""
    return config_folder() / "book"


def chapters() -> tuple[str, ...]:
    """Every chapter that has rows, in the book's order; the appendix comes last."""
    names = sorted(path.stem for path in book_folder().glob("*.yaml"))
    return (*(name for name in names if name != APPENDIX), *(name for name in names if name == APPENDIX))


def load_book(wanted: Iterable[str] = ()) -> tuple[BookRow, ...]:
    """Rows of the chapters ``wanted``, of all by default, in the book's order; ch06, ch6 and 6 name one chapter.

    Raises UserError for an unknown one.
    """
    wanted = tuple(wanted)
    known, asked = chapters(), tuple(map(_chapter_id, wanted))
    if unknown := [name for name, chapter in zip(wanted, asked, strict=True) if chapter not in known]:
        raise usage(f'"{unknown[0]}" is not a chapter of the book.', f"Chapters: {', '.join(known)}.")
    return tuple(row for name in known if not asked or name in asked for row in _chapter(name))


def _chapter_id(name: str) -> str:
    number = re.fullmatch(r"(?:ch)?(\d{1,2})", name.lower(), re.ASCII)
    return f"ch{int(number[1]):02d}" if number else name.lower()


def find_row(row_id: str) -> BookRow | None:
    """The row with this id; None when the book has none. Reads only its chapter."""
    chapter = row_id.partition("/")[0]
    if chapter not in chapters():
        return None
    return next((row for row in _chapter(chapter) if row.id == row_id), None)


@cache
def _chapter(name: str) -> tuple[BookRow, ...]:
    path = book_folder() / f"{name}.yaml"
    try:
        plain = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
        if plain["chapter"] != name:
            raise ValueError(f"it says that it is {plain['chapter']}")
        return tuple(_row(name, entry) for entry in plain["rows"])
    except (OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise AiperfError(f"the book's rows {path} cannot be read: {error}") from None


def _row(chapter: str, entry: Mapping[str, Any]) -> BookRow:
    values = {key: value for key, value in entry.items() if key not in ("speedup", "figures")}
    if not str(values["id"]).startswith(f"{chapter}/"):
        raise ValueError(f"row {values['id']} is of another chapter")
    if values["weight"] not in WEIGHTS:
        raise ValueError(f"row {values['id']}: weight {values['weight']}")
    if "not_time" in values and "speedup" in entry:
        raise ValueError(f"row {values['id']}: a speed-up is claimed of what is no time")
    if values.get("gains", "memory") != "memory" or ("gains" in values and "not_time" not in values):
        raise ValueError(f"row {values['id']}: gains may be memory, beside not_time")
    figures = tuple(_figure(f) for f in entry.get("figures", ()))
    return BookRow(**values, claim=_claim(entry["speedup"]) if "speedup" in entry else None, figures=figures)


def _claim(entry: Mapping[str, Any]) -> Claim:
    low, _, high = str(entry["times"]).partition("-")
    claim = Claim(float(low), float(high or low), _label(entry), entry.get("hardware", ""))
    if set(entry) - {"times", "label", "hardware"} or not 0 < claim.low <= claim.high:
        raise ValueError(f"speedup {dict(entry)}")
    return claim


def _figure(entry: Mapping[str, Any]) -> Figure:
    texts = {key: str(value) for key, value in entry.items() if key != "label"}
    return Figure(label=_label(entry), **texts)


def _label(entry: Mapping[str, Any]) -> Label:
    label: Label = entry["label"]
    if label not in get_args(Label):
        raise ValueError(f"label {label}")
    return label
