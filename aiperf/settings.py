"""How to measure: the one settings object, read from configs/measure/*.yaml and the command line.

What must not live here: what to measure (scenarios), and any measuring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import yaml

from aiperf.errors import Fault, UserError, usage
from aiperf.paths import config_file, config_names

ENERGY_SECONDS = 5.0
"""An energy reading shorter than this, or than 50 updates of a counter, is not reported: both in the sum of a side's
windows (METHOD 11)."""


@dataclass(frozen=True)
class Limits:
    """Seconds a worker may spend in each phase before it counts as hung."""

    start: float = 120.0
    setup: float = 300.0
    warmup: float = 300.0
    measure: float = 300.0
    check: float = 120.0
    close: float = 20.0
    command: float = 600.0


@dataclass(frozen=True)
class Precision:
    """One level of care; the fields of configs/measure/NAME.yaml."""

    name: str = "standard"
    looks: tuple[int, ...] = (6, 10, 16, 24, 40)
    """Numbers of pairs at which the verdict is looked at."""
    alpha: float = 0.0135
    """Two-sided error of each look: simulated, at most .05 over five looks (METHOD 6)."""
    delta: float = 0.02
    """Practical threshold, unless a scenario states its own."""
    width: float = 0.01
    """Half-width of the log interval at which to stop."""
    case_seconds: float = 300.0
    """Budget of one case."""
    round_seconds: float = 0.010
    """Length aimed at for one side's turn."""
    rounds: int = 60
    """Alternations in a pair, at most."""
    device_rounds: int = 12
    """The same for cases on the device clock: what the host does meanwhile is not in their readings. By the spread
    within and between the pairs of 66 cases on an H200, 24 rounds would narrow that of the pairs by 3 % (median)."""
    side_seconds: float = 1.0
    """Measured time aimed at per side and pair; longer when one iteration is."""
    gpu_side_seconds: float = 0.6
    """The same for cases on a GPU, where more pairs say more than longer ones: by the same spreads of 40 cases on the
    wall clock, 1 s would narrow that of the pairs by 5 % (median)."""
    warmup_seconds: float = 5.0
    """Warm-up budget per side; at least two iterations run whatever they cost."""
    warmup_window: int = 20
    """Readings that must be steady together."""
    audits: int = 2
    """Audited iterations of each side in each of the first two pairs that count: two, because work that leaves the
    timed stream must show twice in a launch. Later pairs have one: two took 18 % of the time of pairs on an H200."""
    provisional: bool = False
    """True: verdicts of this precision say that they are provisional."""


@dataclass(frozen=True)
class Settings:
    """Everything that `how` means in one run."""

    precision: Precision = field(default_factory=Precision)
    limits: Limits = field(default_factory=Limits)
    budget: float | None = None
    """Seconds for a run, or a session of it, from its first case on; None leaves only the cases' own budgets."""
    seed: int = 0
    pin: str = "auto"
    """auto, none, or a CPU list."""
    slice: Literal["auto", "off"] = "auto"
    results: Path = Path("results")
    peaks: bool = True
    """Measure a peak that a case needs and this host has not measured yet."""
    nvtx: bool = False
    """Emit ranges even when no profiler is attached."""
    strict: bool = False
    """Whether what could not be checked, and has no reason, makes a verdict invalid."""
    energy_seconds: float = 0.0
    """Seconds for which each side of each pair runs alone under the energy counters; 0 leaves that phase out."""


def load_precision(name: str) -> Precision:
    """Precision from ``configs/measure/NAME.yaml`` or from a path to such a file. Raises UserError."""
    path = config_file("measure", name)
    if not path.is_file():
        known = ", ".join(config_names("measure"))
        raise usage(f'precision "{name}" is not known.', f"Choose one of {known}, or the path of a file like them.")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise usage(f"cannot be read as YAML: {' '.join(str(error).split())}.", where=str(path)) from None
    return _precision(path, data)


def _precision(path: Path, data: Any) -> Precision:
    known = {f.name: f for f in fields(Precision)}
    if not isinstance(data, dict):
        raise usage("is not a mapping of settings.", where=str(path))
    unknown = [k for k in data if k not in known or k == "name"]
    if unknown:
        allowed = ", ".join(k for k in known if k != "name")
        raise UserError([Fault(str(path), f'"{k}" is not a setting.', f"Allowed: {allowed}.") for k in unknown])
    if faults := [Fault(str(path), told) for k, v in data.items() if (told := _fault(k, v, known[k].default))]:
        raise UserError(faults)
    values: dict[str, Any] = {k: tuple(v) if k == "looks" else v for k, v in data.items()}
    precision = Precision(name=path.stem, **values)
    if not precision.looks or list(precision.looks) != sorted(set(precision.looks)) or precision.looks[0] < 3:
        raise usage("looks must be rising numbers of pairs, the first at least 3.", where=str(path))
    return precision


def _fault(key: str, value: Any, default: Any) -> str:
    """What is wrong with a setting's value, judged by the kind of its default; empty when nothing is."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(default, bool):
        fine, wanted = isinstance(value, bool), "true or false"
    elif isinstance(default, tuple):
        fine, wanted = isinstance(value, list) and all(type(v) is int for v in value), "a list of whole numbers"
    elif isinstance(default, int):
        least = 0 if key == "audits" else 1
        fine, wanted = whole and value >= least, f"a whole number of at least {least}"
    else:
        most = 1.0 if key in ("alpha", "delta") else math.inf
        fine = (whole or isinstance(value, float)) and 0 < value < most
        wanted = "a number above 0" + (" and below 1" if most == 1.0 else "")
    return "" if fine else f'{key}: "{value}" is not {wanted}.'
