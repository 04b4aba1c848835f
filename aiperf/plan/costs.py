"""Prices as a user states them: configs/cost/NAME.yaml or a file of the user's own, read strictly.

What must not live here: a price that nobody named, and what anything costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from datetime import date
from typing import Any

import yaml

from aiperf.errors import Fault, UserError, usage
from aiperf.paths import config_file, config_folder, config_names

_TEXTS = ("currency", "source")
_PRICES = ("gpu_hour", "host_hour", "kwh")
_MOST_CURRENCY = 8


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
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise usage(f"cannot be read as YAML: {' '.join(str(error).split())}.", where=str(path)) from None
    if not isinstance(data, dict):
        raise usage("is not a mapping of prices.", where=str(path))
    if faults := [Fault(str(path), *fault) for fault in _faults(data)]:
        raise UserError(faults)
    prices = {key: float(data[key]) for key in _PRICES if key in data}
    return Prices(name, data["currency"].strip(), data["source"].strip(), str(data["date"]), **prices)


def _faults(data: dict[Any, Any]) -> list[tuple[str, str]]:
    known = [f.name for f in fields(Prices) if f.name != "name"]
    faults = [(f'"{key}" is not a price.', f"Allowed: {', '.join(known)}.") for key in data if key not in known]
    for key in _TEXTS:
        value = data.get(key)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            faults.append(
                (f"{key} is missing or not a text.", "A price is worth what is known of where it comes from.")
            )
    if isinstance(data.get("currency"), str) and len(data["currency"]) > _MOST_CURRENCY:
        faults.append((f'currency: "{data["currency"]}" is too long.', "For example: USD."))
    if not _is_date(data.get("date")):
        faults.append(("date is missing or not a date.", "Write when the prices were read, e.g. 2026-01-31."))
    for key in _PRICES:
        if key in data and not _is_price(data[key]):
            faults.append((f'{key}: "{data[key]}" is not a number of 0 or above.', ""))
    if not any(key in data for key in _PRICES):
        faults.append(("holds no price.", f"Give at least one of {', '.join(_PRICES)}."))
    return faults


def _is_date(value: Any) -> bool:
    # YAML reads 2026-01-31 as a date, and as a datetime when a time follows.
    if isinstance(value, str):
        try:
            date.fromisoformat(value)
        except ValueError:
            return False
        return True
    return type(value) is date


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
