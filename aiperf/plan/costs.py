"""Prices as a user states them: configs/cost/NAME.yaml or a file of the user's own, read strictly.

What must not live here: a price that nobody named, and what anything costs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date
from typing import Any

from aiperf.errors import Fault, UserError, usage
from aiperf.paths import config_file, config_folder, config_names
from aiperf.scenario.document import Document, read_document
from aiperf.scenario.wording import arranged

_TEXTS = ("currency", "source")
_PRICES = ("gpu_hour", "host_hour", "kwh")
_MOST_CURRENCY = 8
_MOST_PRICE = 1e9
"""Of an hour or a kilowatt-hour, in any currency."""


@dataclass(frozen=True)
class Prices:
    """What a user pays, and where that was read."""

    name: str
    """The file, as it was named."""
    currency: str
    source: str
    date: str
    """When the prices were read, ISO 8601."""
    gpu_hour: float | None = None
    """One GPU for an hour."""
    host_hour: float | None = None
    """The machine for an hour, beside its GPUs."""
    kwh: float | None = None
    """One kilowatt-hour, where the hours do not hold the power."""


def load_prices(name: str) -> Prices:
    """Prices from ``configs/cost/NAME.yaml`` or from a path to such a file. Raises UserError."""
    path = config_file("cost", name)
    if not path.is_file():
        known, folder = ", ".join(config_names("cost")), config_folder() / "cost"
        raise usage(f'price file "{name}" not found.', f"Give a YAML file like {known} in {folder}.", "--cost")
    document = read_document(path)
    if faults := [*document.faults, *_faults(document)]:
        raise UserError(arranged(faults))
    data = document.data
    prices = {key: float(data[key]) for key in _PRICES if key in data}
    return Prices(name, data["currency"].strip(), data["source"].strip(), data["date"], **prices)


def _faults(document: Document) -> list[Fault]:
    data, known = document.data, [f.name for f in fields(Prices) if f.name != "name"]
    allowed = f"Allowed: {', '.join(known)}."
    faults = [document.fault((key,), f'"{key}" is not a price.', allowed, key=True) for key in data if key not in known]
    for key in _TEXTS:
        value = data.get(key)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            hint = "Write the currency, e.g. USD, and where the prices come from."
            faults.append(document.fault((key,), f"{key} is missing or not text.", hint))
    if isinstance(data.get("currency"), str) and len(data["currency"]) > _MOST_CURRENCY:
        faults.append(
            document.fault(("currency",), f'currency: "{data["currency"]}" is too long.', "For example: USD.")
        )
    if not _is_date(data.get("date")):
        hint = "Write when the prices were read, e.g. 2026-01-31."
        faults.append(document.fault(("date",), "date is missing or not a date.", hint))
    for key in _PRICES:
        if key in data and not _is_price(data[key]):
            faults.append(document.fault((key,), f'{key}: "{str(data[key])[:40]}" is not a number of 0 or above.'))
    if not any(key in data for key in _PRICES):
        faults.append(document.fault((), "has no price.", f"Give at least one of {', '.join(_PRICES)}."))
    return faults


def _is_date(value: Any) -> bool:
    try:
        date.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_PRICE
