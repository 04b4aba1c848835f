"""What a GPU's public datasheet says of it, what the book's table says, and how near a measured peak is to them.

What must not live here: measuring a peak, and the judgement of anything but its share of the datasheet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from aiperf.errors import Fault, UserError
from aiperf.host.facts import HostFacts
from aiperf.host.peaks import Peak
from aiperf.paths import config_folder
from aiperf.units import format_rate

FAR_BELOW = 0.6
"""Share of its datasheet below which a measured peak is a finding."""
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNITS = {"memory_bandwidth": "B/s", "l2": "B", "sms": "", "tdp": "W"} | dict.fromkeys(
    ("fp32", "tf32", "bf16", "fp16", "fp8"), "FLOP/s"
)
_LINKS = {"pcie": "B/s", "nvlink": "B/s", "nvlink_total": "B/s"}
FIGURE_OF = {
    "dram": "memory_bandwidth",
    "h2d": "pcie",
    "d2h": "pcie",
    "p2p": "nvlink",
    "all_reduce_nccl": "nvlink",
    **{f"gemm_{dtype}": dtype for dtype in ("fp32", "tf32", "bf16", "fp16", "fp8")},
}
"""Peak -> the figure that it reaches for; links count one way."""
_GIGATRANSFERS = {3: 8.0, 4: 16.0, 5: 32.0}
"""Per second and lane, by PCIe generation; all of these send 130 bits for 128 (PCI-SIG)."""
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?) ([kMGTP]?)(B/s|FLOP/s|B|W)$")
_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_MARKS = {
    "vendor": "[checked in other files of the vendor]",
    "third party": "[checked in a third party's copy]",
    "": "[from memory, unchecked]",
}
"""Best witness of a figure -> what is said behind the title of its document, wherever the figure is shown."""


@dataclass(frozen=True)
class Witness:
    """Something that was really read, and that says what a document says."""

    by: str
    """vendor or third party."""
    what: str
    """What it is, where, and when it was read."""


@dataclass(frozen=True)
class SheetFigure:
    """One number of a document."""

    value: float
    unit: str
    """B/s, FLOP/s, B, W; empty for a count."""
    source: str
    """Title of the document, and how sure it is that the figure stands there."""
    checked: str = ""
    """Where it was read; empty for one that is from memory."""


@dataclass(frozen=True)
class BookClaim:
    """What the book says of one figure."""

    value: float
    unit: str
    lines: str
    """Of the book's text."""
    error: str = ""
    """What is known to be wrong with it."""


@dataclass(frozen=True)
class Sheet:
    """One model of GPU."""

    model: str
    names: tuple[str, ...]
    """Patterns of NVML's name."""
    figures: Mapping[str, SheetFigure]
    """Figure -> number; dense, links one way (``nvlink_total``: both ways added up)."""
    book: Mapping[str, BookClaim] = field(default_factory=dict)


@dataclass(frozen=True)
class PeakShare:
    """A measured peak held against the datasheet of the GPU that it was measured on."""

    peak_name: str
    model: str
    figure: SheetFigure | None
    """None where no document that we know states it."""
    share: float | None
    """Of the figure: the best sample of the latest occasion."""
    claim: BookClaim | None = None
    """What the book says of it."""

    @property
    def far_below(self) -> bool:
        """Whether the peak is so far below its datasheet that something is likely to hold it down."""
        return self.share is not None and self.share < FAR_BELOW


def load_datasheets(folder: Path | None = None) -> tuple[Sheet, ...]:
    """Every model of ``configs/hardware``. Raises UserError with every fault of every file."""
    place = folder or config_folder() / "hardware"
    if folder is not None:
        return _load(place)
    return _shipped(place)


def sheet_of(name: str, sheets: Iterable[Sheet]) -> Sheet | None:
    """The model that NVML calls ``name``; None for an unknown one and for a MIG slice, which is less than its GPU."""
    if " MIG " in name:
        return None
    return next((s for s in sheets if any(fnmatchcase(name, pattern) for pattern in s.names)), None)


def held_against(facts: HostFacts, peaks: Mapping[str, Peak], sheets: Iterable[Sheet]) -> dict[str, PeakShare]:
    """Peak -> how near it is to the datasheet of this host's first GPU, which is where peaks are measured.

    Empty without a GPU, for an unknown one, and while MIG cuts it into slices.
    """
    if not facts.gpus or facts.gpus[0].mig:
        return {}
    sheet = sheet_of(facts.gpus[0].name, sheets)
    if sheet is None:
        return {}
    return {name: held for name, peak in peaks.items() if (held := _held(peak, sheet)) is not None}


def shortfalls(facts: HostFacts, peaks: Mapping[str, Peak]) -> tuple[tuple[str, str], ...]:
    """(peak, sentence) of every peak that came out far below the datasheet of this host's GPU."""
    held = held_against(facts, peaks, load_datasheets())
    return tuple((name, _sentence(entry, peaks[name])) for name, entry in held.items() if entry.far_below)


def _sentence(held: PeakShare, peak: Peak) -> str:
    figure = held.figure
    if figure is None or held.share is None:
        return ""
    reached, stated = format_rate(peak.latest or peak.value, peak.unit), format_rate(figure.value, figure.unit)
    return f"{held.peak_name} reached {reached} here, {held.share * 100:.0f} % of the {stated} in the {figure.source}"


def _held(peak: Peak, sheet: Sheet) -> PeakShare | None:
    wanted = FIGURE_OF.get(peak.name, "")
    figure, claim = sheet.figures.get(wanted), sheet.book.get(wanted)
    if figure is None and claim is None:
        return None
    share = (peak.latest or peak.value) / figure.value if figure is not None else None
    return PeakShare(peak.name, sheet.model, figure, share, claim)


@lru_cache(maxsize=4)
def _shipped(folder: Path) -> tuple[Sheet, ...]:
    return _load(folder)


def _load(folder: Path) -> tuple[Sheet, ...]:
    faults: list[Fault] = []
    sheets = [sheet for path in sorted(folder.glob("*.yaml")) for sheet in _file(path, faults)]
    seen: dict[str, str] = {}
    for sheet in sheets:
        for pattern in sheet.names:
            if pattern in seen:
                faults.append(Fault(str(folder), f'"{pattern}" names both {seen[pattern]} and {sheet.model}.'))
            seen[pattern] = sheet.model
    if faults:
        raise UserError(faults)
    return tuple(sheets)


class _SheetReader:
    """Takes keys out of one mapping and gathers what is wrong with it."""

    def __init__(self, where: str, data: Any, faults: list[Fault]) -> None:
        self.where, self.faults = where, faults
        self.data: dict[Any, Any] = dict(data) if isinstance(data, dict) else {}
        if not isinstance(data, dict):
            self.fault("", "is not a mapping.")

    def fault(self, key: str, what: str) -> None:
        """Note a mistake."""
        self.faults.append(Fault(f"{self.where}: {key}" if key else self.where, what))

    def take(self, key: str, kind: type, *, needed: bool = True) -> Any:
        """The value of a key, or None with a fault."""
        value = self.data.pop(key, None)
        if value is None and not needed:
            return None
        if not isinstance(value, kind) or isinstance(value, bool) or (kind in (str, list) and not value):
            noun = {str: "a text", list: "a list", dict: "a mapping", int: "a whole number"}[kind]
            self.fault(key, "is missing." if value is None else f'"{value}" is not {noun}.')
            return None
        return value

    def quantity(self, key: str, unit: str) -> float | None:
        """A number with its unit, such as ``3.35 TB/s``; a bare whole number for a count."""
        if not unit:
            count = self.take(key, int)
            return None if count is None else float(count)
        text = self.take(key, str)
        if text is None:
            return None
        match = _QUANTITY.match(text)
        if match is None or match[3] != unit or not float(match[1]) > 0:
            self.fault(key, f'"{text}" is not a number in {unit}; write for instance "3.35 T{unit}".')
            return None
        return float(match[1]) * _PREFIX[match[2]]

    def end(self) -> None:
        """Refuse the keys that nobody took."""
        for key in self.data:
            self.fault(str(key), "is not a known key.")


def _file(path: Path, faults: list[Fault]) -> list[Sheet]:
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        faults.append(Fault(str(path), f"cannot be read as YAML: {' '.join(str(error).split())}."))
        return []
    top = _SheetReader(str(path), data, faults)
    top.take("family", str)
    documents = top.take("documents", dict) or {}
    for name, title in documents.items():
        if not isinstance(title, str) or not title:
            top.fault(f"documents: {name}", "is not the title of a document.")
    papers = _Papers(documents, _witnesses(top))
    models = top.take("models", list) or []
    top.end()
    return [_sheet(_SheetReader(f"{path}: model {place}", entry, faults), papers) for place, entry in enumerate(models)]


@dataclass(frozen=True)
class _Papers:
    documents: Mapping[str, str]
    witnesses: Mapping[str, Witness]


def _witnesses(top: _SheetReader) -> dict[str, Witness]:
    found = {}
    for name, plain in (top.take("checks", dict, needed=False) or {}).items():
        part = _SheetReader(f"{top.where}: checks: {name}", plain, top.faults)
        by, *what = (part.take(key, str) or "" for key in ("by", "what", "address", "date"))
        part.end()
        if by and by not in _MARKS:
            part.fault("by", f'"{by}" is not vendor or third party.')
        found[str(name)] = Witness(by, "{}, {}, read {}".format(*what))
    return found


def _sheet(entry: _SheetReader, papers: _Papers) -> Sheet:
    model = entry.take("model", str) or ""
    names = entry.take("names", list) or []
    if not all(isinstance(name, str) and name for name in names):
        entry.fault("names", "are not all texts.")
    figures = {
        name: found
        for name, plain in (entry.take("figures", dict) or {}).items()
        if (found := _figure(entry, str(name), plain, papers)) is not None
    }
    figures |= _pcie(entry, papers) | _nvlink(entry, papers)
    book = _book(entry)
    entry.end()
    return Sheet(model, tuple(map(str, names)), figures, book)


def _figure(entry: _SheetReader, name: str, plain: Any, papers: _Papers) -> SheetFigure | None:
    if name not in _UNITS:
        entry.fault(f"figures: {name}", f"is not a figure. Known: {', '.join(_UNITS)}.")
        return None
    part = _SheetReader(f"{entry.where}: figures: {name}", plain, entry.faults)
    value, origin = part.quantity("value", _UNITS[name]), _origin(part, papers)
    part.end()
    return None if value is None else SheetFigure(value, _UNITS[name], *origin)


def _pcie(entry: _SheetReader, papers: _Papers) -> dict[str, SheetFigure]:
    plain = entry.take("pcie", dict, needed=False)
    if plain is None:
        return {}
    part = _SheetReader(f"{entry.where}: pcie", plain, entry.faults)
    generation, lanes, origin = part.take("generation", int), part.take("lanes", int), _origin(part, papers)
    part.end()
    if generation is None or lanes is None:
        return {}
    if generation not in _GIGATRANSFERS or lanes not in (1, 2, 4, 8, 16):
        part.fault("", f"generation {generation} with {lanes} lanes is not known.")
        return {}
    return {"pcie": SheetFigure(_GIGATRANSFERS[generation] * 1e9 * 128 / 130 / 8 * lanes, "B/s", *origin)}


def _nvlink(entry: _SheetReader, papers: _Papers) -> dict[str, SheetFigure]:
    plain = entry.take("nvlink", dict, needed=False)
    if plain is None:
        return {}
    part = _SheetReader(f"{entry.where}: nvlink", plain, entry.faults)
    one_way, total = part.quantity("one_way", "B/s"), part.quantity("total", "B/s")
    origin = _origin(part, papers)
    part.end()
    if one_way is None or total is None:
        return {}
    if not math.isclose(total, 2 * one_way):
        part.fault("total", "is not twice one_way.")
    return {"nvlink": SheetFigure(one_way, "B/s", *origin), "nvlink_total": SheetFigure(total, "B/s", *origin)}


def _book(entry: _SheetReader) -> dict[str, BookClaim]:
    """The book's claims; where it gives NVLink both ways only, half of that is its claim one way."""
    found: dict[str, BookClaim] = {}
    for place, plain in enumerate(entry.take("book", list, needed=False) or []):
        part = _SheetReader(f"{entry.where}: book {place}", plain, entry.faults)
        name = part.take("figure", str) or ""
        unit = (_UNITS | _LINKS).get(name)
        if unit is None:
            part.fault("figure", f'"{name}" is not a figure. Known: {", ".join(_UNITS | _LINKS)}.')
            continue
        value, lines, error = (
            part.quantity("value", unit),
            part.take("lines", str),
            part.take("error", str, needed=False),
        )
        part.end()
        if value is not None and lines is not None:
            found[name] = BookClaim(value, unit, lines, error or "")
    if (both := found.get("nvlink_total")) is not None:
        found.setdefault("nvlink", replace(both, value=both.value / 2))
    return found


def _origin(part: _SheetReader, papers: _Papers) -> tuple[str, str]:
    """The title of a figure's document with its mark, and where the figure was read."""
    named = part.take("source", str)
    if named is not None and named not in papers.documents:
        part.fault("source", f'"{named}" is none of the documents.')
    names = part.data.pop("checked", [])
    found = []
    for name in names if isinstance(names, list) else [names]:
        if isinstance(name, str) and name in papers.witnesses:
            found.append(papers.witnesses[name])
        else:
            part.fault("checked", f'"{name}" is none of the checks.')
    best = next((by for by in _MARKS if any(one.by == by for one in found)), "")
    title = f"{papers.documents.get(named or '', '')} {_MARKS[best]}"
    return title, "; ".join(one.what for one in found)
