"""Columns on demand: energy, cost and goodput of each side, as lines for people and as plain values for programs.

What must not live here: how any of it is computed, verdicts, the columns that every table has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiperf.analysis.cost import Goodput, cost_per_million, goodput, gpus_used, items_of, paid_seconds
from aiperf.analysis.energy import first_fault, gross_joules, mean_over, net_joules, watts
from aiperf.analysis.pairs import valid
from aiperf.analysis.rows import limit_of
from aiperf.errors import usage
from aiperf.plan.costs import Prices
from aiperf.records import CaseRecord, EnergyReading, Pair, Result
from aiperf.report.layout.table import listing
from aiperf.report.layout.text import cut_to
from aiperf.report.numbers import DASH, clean, format_interval, format_ratio, format_share, format_si
from aiperf.report.views.run_rows import Extras
from aiperf.units import significant

COLUMNS = ("energy", "cost", "goodput")
PairsOf = Callable[[CaseRecord], Sequence[Pair]]
"""The pairs of a record, with their samples where goodput is asked for."""
_LABEL = 36
_NAMES = {
    "energy": ("energy_j", "energy_above_idle_j", "items_per_joule", "power_w", "energy_problem"),
    "cost": ("cost_per_million", "cost_energy_part", "cost_problem"),
    "goodput": ("goodput", "goodput_of_limit", "goodput_whole", "item"),
}
_TITLES = {
    "energy": ("energy", "side", "J / iteration", "above idle", "J / item", "items / J", "power", "ratio, or why not"),
    "cost": ("cost", "side", "per 1e6 items", "of it energy", "item"),
    "goodput": ("goodput", "side", "items / s", "of limit", "with set-up and warm-up", "item"),
}
_WARM = "Nothing is flushed in those windows: the energy is that of warm caches, also where times are of cold ones."
_HELD = "Programs run alone for it and are never held back, also where their times are from slices, in which they are."
_NUMERIC = {"energy": (2, 3, 4, 5, 6), "cost": (2, 3), "goodput": (2, 3, 4)}
_NOTES = {
    "energy": "energy: each side alone in windows of its own, mean power times time per iteration. A power sensor is "
    "off by up to 5 %, so hold on to the ratio; items / J is performance per watt.",
    "goodput": "goodput: useful items per second of wall time of the iterations alone, gaps between kernels included; "
    "with set-up and warm-up it is that of these short launches, and grows towards the first number as a job lasts.",
}


def chosen_columns(text: str, *, cost: str = "") -> tuple[str, ...]:
    """The columns that ``--columns`` names. Raises UserError, also for costs that nobody has given prices for."""
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in named:
        if name not in COLUMNS:
            raise usage(f'"{name}" is not an extra column.', f"Allowed: {', '.join(COLUMNS)}.", where="--columns")
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
    tables = tuple(
        (listing(_TITLES[name], [s.line(name) for s in sides], right=_NUMERIC[name]), _notes(name, sides, prices))
        for name in wanted
    )
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
    """One side of one case: its plain values and its cells."""

    def __init__(
        self, record: CaseRecord, side: str, wanted: Sequence[str], prices: Prices | None, pairs: Sequence[Pair]
    ) -> None:
        self.record, self.side = record, side
        self.items, self.item = items_of(pairs, side)
        self.values: dict[str, Any] = {"item": clean(self.item) if self.items else None}
        self._prices = prices
        self.result = _energy_result(record, side)
        if "energy" in wanted or "cost" in wanted:
            self._energy(pairs)
        if "cost" in wanted and prices is not None:
            self._cost(prices)
        if "goodput" in wanted:
            self._goodput(goodput(pairs, side, seconds=paid_seconds(record, side)))

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
        seconds = paid_seconds(self.record, self.side)
        if seconds is None:
            self.values |= {"cost_per_million": None, "cost_energy_part": None, "cost_problem": "no time was measured"}
            return
        found = cost_per_million(
            prices,
            items=self.items,
            seconds=seconds,
            gpus=gpus_used(self.record),
            joules=self.values["energy_j"],
            no_energy=self.values["energy_problem"] or "",
        )
        part = None if found.total is None or prices.kwh is None else found.energy
        told = {"cost_per_million": found.total, "cost_energy_part": part, "cost_problem": clean(found.problem) or None}
        self.values |= told

    def _goodput(self, found: Goodput | None) -> None:
        limit = limit_of(self.record, self.side)
        self.values |= {
            "goodput": found.steady if found else None,
            "goodput_whole": found.whole if found else None,
            "goodput_of_limit": limit.share if limit else None,
        }

    def line(self, column: str) -> tuple[str, ...]:
        """The cells of one kind of column."""
        cells = {"energy": self._energy_cells, "cost": self._cost_cells, "goodput": self._goodput_cells}[column]()
        return (cut_to(clean(self.record.case.id), _LABEL), clean(self.side), *cells)

    def _energy_cells(self) -> tuple[str, ...]:
        gross, rate = self.values["energy_j"], self.values["items_per_joule"]
        each = gross / self.items if gross and self.items else None
        told = self.values["energy_problem"] or self._against()
        numbers = (gross, self.values["energy_above_idle_j"], each)
        power = format_si(self.values["power_w"], "W")
        return (*(format_si(x, "J") for x in numbers), format_si(rate, ""), power, told)

    def _against(self) -> str:
        if self.side == self.record.case.sides[0].name:
            return ""
        if self.result is None:
            return "no ratio: a pair lacks the energy of a side"
        found, word = self.result.comparison, self.record.outcome(self.result)
        ratio = format_ratio(found.ratio, found.low, found.high)
        return f"before / {clean(self.side)} {ratio} [{format_interval(found.low, found.high)}], {word}"

    def _cost_cells(self) -> tuple[str, ...]:
        total, energy = self.values["cost_per_million"], self.values["cost_energy_part"]
        currency = self._prices.currency if self._prices else ""
        told = self.values["cost_problem"] or self.values["item"] or ""
        return (_money(total, currency), _money(energy, currency), told)

    def _goodput_cells(self) -> tuple[str, ...]:
        steady, whole = self.values["goodput"], self.values["goodput_whole"]
        rates = (DASH if x is None else format_si(x, "") for x in (steady, whole))
        first, second = rates
        item = self.values["item"] or "the workload counts no items"
        # The same to three digits says it once.
        return (first, format_share(self.values["goodput_of_limit"]), "" if second == first else second, item)


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
    told: dict[str, Any] = {"case": record.case.id, "side": result.side, "against": result.against}
    for key in wanted:
        for name in _NAMES[key]:
            told[f"{name}_before"] = sides[result.against].values.get(name)
            told[f"{name}_after"] = sides[result.side].values.get(name)
    if "energy" in wanted:
        ends = (r.comparison for r in record.results if _same_sides(r, result) and r.comparison.metric == "energy")
        found = next(ends, None)
        told |= {f"energy_{name}": getattr(found, name, None) for name in ("ratio", "low", "high")}
    if "cost" in wanted:
        told["cost_currency"] = prices.currency if prices else None
    return told


def _same_sides(one: Result, other: Result) -> bool:
    return (one.side, one.against) == (other.side, other.against)


def _notes(column: str, sides: Sequence[_Side], prices: Prices | None) -> tuple[str, ...]:
    if column == "cost":
        if prices is None:
            return ()
        told = f"cost: gross, at the prices of {prices.name} ({prices.source}, {prices.date})"
        return (clean(told),)
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
    told = [f"{clean(name)} {min(heat):.0f} to {max(heat):.0f}" for name, heat in found.items() if heat]
    return f" Windows began at these temperatures: {', '.join(told)} °C." if told else ""


def _money(value: float | None, currency: str) -> str:
    if value is None:
        return DASH
    return f"{significant(value) if value >= 1e-3 or not value else format(value, '.3g')} {currency}"
