"""Where the project's data lies (beside the package in a checkout, inside it in a wheel), and the user's folders.

What must not live here: reading or writing any of it.
"""

from __future__ import annotations

import os
from pathlib import Path

YAML_SUFFIXES = (".yaml", ".yml")
_PACKAGE = Path(__file__).resolve().parent


def _data(name: str) -> Path:
    checkout = _PACKAGE.parent / name
    if (_PACKAGE.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    return _PACKAGE / "data" / name


def scenario_folder() -> Path:
    """The shipped scenarios."""
    return _data("scenarios")


def config_folder() -> Path:
    """The shipped configurations."""
    return _data("configs")


def config_file(kind: str, name: str) -> Path:
    """The path that ``name`` is, or the file of this name in configs/``kind``, which may not be there."""
    return Path(name) if name.endswith(YAML_SUFFIXES) else config_folder() / kind / f"{name}.yaml"


def config_names(kind: str) -> list[str]:
    """What ``config_file`` finds in configs/``kind``, by name."""
    return sorted(path.stem for path in (config_folder() / kind).glob("*.yaml"))


def workload_folder() -> Path:
    """The source of the shipped workloads, read (not imported) by the parent."""
    return _PACKAGE / "workloads"


def state_folder() -> Path:
    """Where facts of this host are kept between runs (peaks, calibration): AIPERF_STATE or the user's state folder."""
    if explicit := os.environ.get("AIPERF_STATE"):
        return Path(explicit)
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "aiperf-ab"


def cache_folder() -> Path:
    """Where workers keep what can be made again, as workloads/shared/user_cache.py has it."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "aiperf"
