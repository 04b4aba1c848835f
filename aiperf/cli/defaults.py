"""Defaults of options that a user sets once: ``[tool.aiperf]`` of pyproject.toml, and variables over it.

What must not live here: what an option means. ``AIPERF_HOST_CHECK=strict`` and ``host-check = "strict"`` stand for
``--host-check strict`` in every command that has the option; what is typed wins over a variable, a variable over the
file. The option's own type checks the value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiperf.errors import UserError, usage
from aiperf.scenario.wording import allowed, closest, nearest, shown

DEFAULTS = {
    "precision": "quick, standard, rigorous, or a file",
    "budget": "time for a whole run, e.g. 10min",
    "seed": "random seed of orders, inputs and offsets",
    "results": "folder of the stored runs",
    "pin": "CPUs of both sides: auto, none, or a list like 0-3",
    "peaks": "true or false: measure peaks that are not stored yet",
    "timeout": "time limit for one phase of a side, or one run of a program, e.g. 2min",
    "host-check": "off, warn or strict",
    "columns": "extra columns: energy, cost, goodput",
    "cost": "file of prices",
    "quiet": "true or false: hide progress",
    "on-inconclusive": "how a gate treats inconclusive cases: pass, warn or fail",
    "config": "configuration of a gate: a name or a file",
}
"""Option without its dashes -> what it takes."""
OTHER_VARIABLES = (
    *("AIPERF_STATE", "AIPERF_SCRATCH", "AIPERF_NSYS", "AIPERF_NCU", "AIPERF_PERF", "AIPERF_LIBS", "AIPERF_NVTX"),
    *("AIPERF_CUPTI", "AIPERF_GITLAB_TOKEN", "AIPERF_COMMIT", "AIPERF_REPOSITORY", "AIPERF_JOIN_TIMEOUT"),
    "AIPERF_NODE_SCRATCH",
    "AIPERF_STORE",
)
"""Variables that are the default of no option: those that users meet, and those that aiperf itself sets."""
CHANGE_A_RUN = ("precision", "budget", "seed", "pin", "peaks", "timeout", "host-check")
"""Those that say how is measured: a run records where they came from."""
_TRUTHS, _TRUE_OR_FALSE = ("peaks", "quiet"), ("true", "false", "1", "0", "yes", "no", "on", "off", "t", "f", "y", "n")
_FILE = "pyproject.toml"
_TABLE = "tool.aiperf"


@dataclass(frozen=True)
class Defaults:
    """The defaults in force here, and where each comes from."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Option without its dashes -> value."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Option -> the variable, or the file."""

    def of_command(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Defaults by parameter, for a command whose options (without dashes) have these parameters."""
        return {parameters[option]: value for option, value in self.values.items() if option in parameters}

    def taken(self, options: Collection[str]) -> dict[str, str]:
        """``{"budget": "10min (AIPERF_BUDGET)"}``: those among the ``options`` that say how is measured."""
        return {
            option: f"{str(self.values[option]).lower() if option == 'peaks' else self.values[option]} "
            f"({Path(self.sources[option]).name})"
            for option in CHANGE_A_RUN
            if option in options
        }

    @property
    def sentence(self) -> str:
        """What is in force, for somebody whose command was refused; empty without any."""
        said = ", ".join(f"--{option} {self.values[option]} ({self.sources[option]})" for option in self.values)
        return f"defaults in force: {said}" if said else ""


class InForce:
    """Where the present command has its options from."""

    taken: Mapping[str, str] = MappingProxyType({})
    """From the defaults, because they were not typed."""
    typed: Collection[str] = ()
    """With their dashes; an argument by its name in the help."""


def variable(option: str) -> str:
    """``AIPERF_HOST_CHECK`` for ``host-check``."""
    return f"AIPERF_{option.replace('-', '_').upper()}"


def read_defaults(folder: Path, environ: Mapping[str, str]) -> Defaults:
    """Defaults for a command typed in ``folder``. Raises UserError for a table with a key that is none of them."""
    path = _project(folder)
    found = _table(path) if path else {}
    values, sources = dict(found), dict.fromkeys(found, str(path))
    for option in DEFAULTS:
        if text := environ.get(variable(option)):
            if option in _TRUTHS and text.lower() not in _TRUE_OR_FALSE:
                raise usage(f"{shown(text)} is not true or false.", where=variable(option))
            values[option], sources[option] = text, variable(option)
    return Defaults(values, sources)


def misspelt(environ: Mapping[str, str]) -> list[str]:
    """A sentence on each variable that is nearly one of aiperf's; others may be anybody's own."""
    prefix = variable("")
    known = {name.removeprefix(prefix) for name in (*map(variable, DEFAULTS), *OTHER_VARIABLES)}
    met = {name.removeprefix(prefix) for name in environ if name.startswith(prefix)} - known
    meant = {name: closest(name, known) for name in sorted(met)}
    return [
        f"{prefix}{name} is set, but aiperf reads no such variable. Did you mean {prefix}{other}?"
        for name, other in meant.items()
        if other
    ]


def _project(folder: Path) -> Path | None:
    """The nearest pyproject.toml, not beyond the repository that holds the folder."""
    for candidate in (folder, *folder.parents):
        if (candidate / _FILE).is_file():
            return candidate / _FILE
        if (candidate / ".git").exists():
            return None
    return None


def _table(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if _TABLE not in text:
            return {}
        table = tomllib.loads(text).get("tool", {}).get("aiperf", {})
    except tomllib.TOMLDecodeError as error:
        way = 'Correct that line: quote text (precision = "quick"), but not numbers, true or false.'
        raise usage(f"is not valid TOML: {error}.", way, where=str(path)) from None
    except (OSError, ValueError) as error:
        raise usage(f"cannot be read: {error}.", "Make it a readable UTF-8 file.", where=str(path)) from None
    faults = [_fault(path, key, value) for key, value in table.items() if not _is_default(key, value)]
    if faults:
        raise UserError([fault for error in faults for fault in error.faults])
    return dict(table)


def _is_default(key: str, value: Any) -> bool:
    return key in DEFAULTS and isinstance(value, str | int | bool)


def _fault(path: Path, key: str, value: Any) -> UserError:
    where = f"{path}: [{_TABLE}]"
    if key not in DEFAULTS:
        way = nearest(key, DEFAULTS) or f"Allowed: {allowed(DEFAULTS)}."
        return usage(f'"{key}" is not an option with a default.', way, where=where)
    what = f"{key}: {value!r} is not text, a number, true or false."
    return usage(what, f"It takes {DEFAULTS[key]}.", where=where)
