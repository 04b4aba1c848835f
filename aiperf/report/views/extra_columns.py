"""Columns on demand: energy, cost and goodput of each side, as tables for people and as plain values for programs.

What must not live here: how any of it is computed, verdicts, the columns that every table has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiperf.analysis.cost import Goodput, cost_per_million, good_requests, goodput, gpus_used, items_of, paid_seconds
from aiperf.analysis.energy import first_fault, gross_joules, mean_over, net_joules, watts
from aiperf.analysis.pairs import valid
from aiperf.analysis.rows import comparison_row, limit_of
from aiperf.errors import UserError, invalid_value, usage
from aiperf.plan.costs import Prices
from aiperf.records import CaseRecord, EnergyReading, Pair, Result
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.layout.text import cut_to
from aiperf.report.numbers import DASH, clean, format_share, format_si
from aiperf.report.views.cells import ratio_interval_text, ratio_text
from aiperf.report.views.run_rows import Extras
from aiperf.units import significant

COLUMNS = ("energy", "cost", "goodput")
PairsOf = Callable[[CaseRecord], Sequence[Pair]]
"""The pairs of a record, with their samples where goodput is asked for."""
_LABEL = 36
_NAMES = {
    "energy": ("energy_j", "energy_above_idle_j", "items_per_joule", "power_w", "energy_problem"),
    "cost": ("cost_per_million", "cost_energy_part", "cost_problem"),
    "goodput": ("goodput", "goodput_per_gpu", "goodput_of_limit", "goodput_whole", "item"),
}
_WARM = "Caches are not flushed in those windows: energy is with warm caches, even where times are with cold ones."
_HELD = "Programs run alone for it and are never paused, even where their times come from slices, which pause them."
_NOTES = {
    "energy": "energy: each side runs alone in its own windows; mean power times time per iteration. Power sensors can "
    "be off by up to 5 %, so rely on the ratio; items / J is performance per watt.",
    "goodput": "goodput: useful items per second of iteration wall time, gaps between kernels included; with set-up "
    "and warm-up, it is the rate of these short launches, and approaches the first number as a job runs longer.",
}


def chosen_columns(text: str, *, cost: str = "") -> tuple[str, ...]:
    """The columns that ``--columns`` names. Raises UserError, also for costs that nobody has given prices for."""
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in named:
        if name not in COLUMNS:
            raise UserError(invalid_value("--columns", name, COLUMNS))
    if "cost" in named and not cost:
        hint = "Name a file with yours: --cost ./prices.yaml; configs/cost/example.yaml shows the form."
        raise usage("the column cost needs your prices.", hint, where="--columns")
    if cost and "cost" not in named:
        raise usage("needs the column cost.", "Add --columns cost.", where="--cost")
    return named


def build_extras(
    records: Sequence[CaseRecord], wanted: Sequence[str], *, prices: Prices | None = None, pairs_of: PairsOf
) -> Extras | None:
    """The columns that are wanted, of every record with results; None when none are."""
    if not wanted:
        return None
    sides = [side for record in records if record.results for side in _sides(record, wanted, prices, pairs_of)]
    tables = tuple((_table(name, sides), _notes(name, sides, prices)) for name in wanted)
    names = tuple(f"{name}_{end}" for key in wanted for name in _NAMES[key] for end in ("before", "after"))
    more = ("energy_ratio", "energy_low", "energy_high") if "energy" in wanted else ()
    fixed = ("cost_currency",) if "cost" in wanted else ()
    values = tuple(
        _values(record, result, {s.side: s for s in sides if s.record is record}, wanted, prices)
        for record in records
        for result in record.results
        if result.primary
    )
    return Extras(tables, (*names, *more, *fixed), values)


class _Side:
    """One side of one case: its plain values, and the texts that several of its columns share."""

    def __init__(
        self, record: CaseRecord, side: str, wanted: Sequence[str], prices: Prices | None, pairs: Sequence[Pair]
    ) -> None:
        self.record, self.side = record, side
        self.items, self.item = items_of(pairs, side)
        self._good = good_requests(record, side)
        if self._good:
            self.items, self.item = 0.0, "requests within objectives"
        self.values: dict[str, Any] = {"item": clean(self.item) if self.items or self._good else None}
        self._prices = prices
        self.result = _energy_result(record, side)
        if "energy" in wanted or "cost" in wanted:
            self._energy(pairs)
        if "cost" in wanted and prices is not None:
            self._cost(prices)
        if "goodput" in wanted:
            known = goodput(pairs, side, seconds=paid_seconds(record, side))
            self._goodput(Goodput(self._good, None) if self._good else known)

    def _energy(self, pairs: Sequence[Pair]) -> None:
        why = first_fault(pairs, self.side)
        gross = None if why else mean_over(pairs, self.side, gross_joules)
        self.values |= {
            "energy_j": gross,
            "energy_above_idle_j": None if why else mean_over(pairs, self.side, net_joules),
            "items_per_joule": self.items / gross if gross and self.items else None,
            "power_w": None if why else mean_over(pairs, self.side, watts),
            "energy_problem": clean(why) or None,
        }

    def _cost(self, prices: Prices) -> None:
        seconds, items, joules = paid_seconds(self.record, self.side), self.items, self.values["energy_j"]
        if self._good:
            # An iteration is a segment: what energy one request takes is not known.
            seconds, items, joules = 1 / self._good, 1.0, None
        if seconds is None:
            self.values |= {"cost_per_million": None, "cost_energy_part": None, "cost_problem": "no time was measured"}
            return
        found = cost_per_million(
            prices,
            items=items,
            seconds=seconds,
            gpus=gpus_used(self.record, self.side),
            joules=joules,
            no_energy=self.values["energy_problem"] or "",
        )
        part = None if found.total is None or prices.kwh is None else found.energy
        self.values |= {"cost_per_million": found.total, "cost_energy_part": part}
        self.values["cost_problem"] = clean(found.problem) or None

    def _goodput(self, found: Goodput | None) -> None:
        limit, gpus = limit_of(self.record, self.side), gpus_used(self.record, self.side)
        self.values |= {
            "goodput": found.steady if found else None,
            "goodput_per_gpu": found.steady / gpus if found and gpus else None,
            "goodput_whole": found.whole if found else None,
            "goodput_of_limit": limit.share if limit else None,
        }

    @property
    def against(self) -> str:
        """The ratio of its energy to that of the first side, or why there is none."""
        if self.side == self.record.case.sides[0].name:
            return ""
        if self.result is None:
            return "no ratio: a pair lacks the energy of a side"
        row = comparison_row(self.record, self.result)
        return f"before / {clean(self.side)} {ratio_text(row)} [{ratio_interval_text(row)}], {row.verdict}"

    def money(self, name: str) -> str:
        """A cost with its currency; a dash for none."""
        value, currency = self.values[name], self._prices.currency if self._prices else ""
        if value is None:
            return DASH
        return f"{significant(value) if value >= 1e-3 or not value else format(value, '.3g')} {currency}"

    def rate(self, name: str) -> str:
        """Items per second; a dash for none."""
        value = self.values[name]
        return DASH if value is None else format_si(value, "")


def _joules_per_item(side: _Side) -> str:
    gross = side.values["energy_j"]
    return format_si(gross / side.items if gross and side.items else None, "J")


def _whole_rate(side: _Side) -> str:
    whole = side.rate("goodput_whole")
    # The same to three digits is shown once.
    return "" if whole == side.rate("goodput") else whole


def _rate_per_gpu(side: _Side) -> str:
    return "" if side.values["goodput_per_gpu"] is None else side.rate("goodput_per_gpu")


def _column(key: str, header: str, text: Callable[[_Side], str], **more: Any) -> TableColumn[_Side]:
    return TableColumn(key, header, text, **({"right": True} | more))


def _last(key: str, header: str, text: Callable[[_Side], str]) -> TableColumn[_Side]:
    return TableColumn(key, header, text, fold="wrap")


_COLUMNS_OF: dict[str, tuple[TableColumn[_Side], ...]] = {
    "energy": (
        _column("energy_j", "J / iteration", lambda s: format_si(s.values["energy_j"], "J")),
        _column("energy_above_idle_j", "above idle", lambda s: format_si(s.values["energy_above_idle_j"], "J")),
        _column("energy_per_item_j", "J / item", _joules_per_item),
        _column("items_per_joule", "items / J", lambda s: format_si(s.values["items_per_joule"], "")),
        _column("power_w", "power", lambda s: format_si(s.values["power_w"], "W")),
        _last("energy_problem", "ratio, or why not", lambda s: s.values["energy_problem"] or s.against),
    ),
    "cost": (
        _column("cost_per_million", "per 1e6 items", lambda s: s.money("cost_per_million")),
        _column("cost_energy_part", "of which energy", lambda s: s.money("cost_energy_part")),
        _last("item", "item", lambda s: s.values["cost_problem"] or s.values["item"] or ""),
    ),
    "goodput": (
        _column("goodput", "items / s", lambda s: s.rate("goodput")),
        _column("goodput_per_gpu", "per GPU", _rate_per_gpu, optional=True),
        _column("goodput_of_limit", "of limit", lambda s: format_share(s.values["goodput_of_limit"])),
        _column("goodput_whole", "with set-up and warm-up", _whole_rate),
        _last("item", "item", lambda s: s.values["item"] or "the workload counts no items"),
    ),
}


def _table(name: str, sides: Sequence[_Side]) -> Table[_Side]:
    case = TableColumn[_Side]("case", name, lambda s: cut_to(clean(s.record.case.id), _LABEL))
    return Table([case, TableColumn("side", "side", lambda s: clean(s.side)), *_COLUMNS_OF[name]], sides)


def _sides(record: CaseRecord, wanted: Sequence[str], prices: Prices | None, pairs_of: PairsOf) -> list[_Side]:
    pairs = valid(pairs_of(record))
    return [_Side(record, side.name, wanted, prices, pairs) for side in record.case.sides]


def _energy_result(record: CaseRecord, side: str) -> Result | None:
    first = record.case.sides[0].name
    found = (r for r in record.results if (r.comparison.metric, r.side, r.against) == ("energy", side, first))
    return next(found, None)


def _values(
    record: CaseRecord, result: Result, sides: dict[str, _Side], wanted: Sequence[str], prices: Prices | None
) -> dict[str, Any]:
    values: dict[str, Any] = {"case": record.case.id, "side": result.side, "against": result.against}
    for key in wanted:
        for name in _NAMES[key]:
            values[f"{name}_before"] = sides[result.against].values.get(name)
            values[f"{name}_after"] = sides[result.side].values.get(name)
    if "energy" in wanted:
        ends = (r.comparison for r in record.results if _same_sides(r, result) and r.comparison.metric == "energy")
        found = next(ends, None)
        values |= {f"energy_{name}": getattr(found, name, None) for name in ("ratio", "low", "high")}
    if "cost" in wanted:
        values["cost_currency"] = prices.currency if prices else None
    return values


def _same_sides(one: Result, other: Result) -> bool:
    return (one.side, one.against) == (other.side, other.against)


def _notes(column: str, sides: Sequence[_Side], prices: Prices | None) -> tuple[str, ...]:
    if column == "cost":
        if prices is None:
            return ()
        return (clean(f"cost: gross, at the prices of {prices.name} ({prices.source}, {prices.date})"),)
    if column == "goodput":
        return (_NOTES["goodput"],)
    readings = [(s, r) for s in sides for p in s.record.pairs if (r := p.energy.get(s.side))]
    if not readings:
        return ("energy was not measured in this run; aiperf run --columns energy measures it",)
    sources = sorted({r.source for s, r in readings if s.values.get("energy_j") is not None})
    if not sources:
        return ()
    warm = f" {_WARM}" if any(s.record.case.measure.cache == "cold" for s, _ in readings) else ""
    held = f" {_HELD}" if any("energy" in r.facts for s, _ in readings for p in s.record.pairs for r in p.runs) else ""
    return (f"{_NOTES['energy']}{warm}{held}{_heat(readings)} Source: {clean('; '.join(sources))}.",)


def _heat(readings: Sequence[tuple[_Side, EnergyReading]]) -> str:
    """How warm the windows of each side began: a hot device leaks more current, so they should begin alike."""
    found: dict[str, list[float]] = {}
    for side, reading in readings:
        found.setdefault(side.side, []).extend(reading.temperatures)
    spans = [f"{clean(name)} {min(heat):.0f} to {max(heat):.0f}" for name, heat in found.items() if heat]
    return f" Windows began at these temperatures: {', '.join(spans)} °C." if spans else ""
