"""What is installed for this interpreter, from metadata and text files: nothing is imported.

What must not live here: judging versions.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.host import proc
from aiperf.host.read import libraries

_CUDA = re.compile(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*>=\s*([0-9][0-9.]*)")


@dataclass(frozen=True)
class Packages:
    """Versions as the metadata says them."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Distribution or import name, lower case -> version."""
    torch_cuda: str = ""
    """CUDA version that torch was built for; empty for a CPU build or without torch."""
    minimums: Mapping[str, str] = field(default_factory=dict)
    """What aiperf itself asks for at least."""


def read_packages() -> Packages:
    """What this interpreter would import."""
    versions = libraries()
    return Packages(versions, _torch_cuda() if "torch" in versions else "", _minimums())


def at_least(version: str, least: str) -> bool:
    """Whether the leading numbers of a version reach those of another: ``2.11.0+cu130`` reaches ``2.6``."""
    return _numbers(version) >= _numbers(least)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.match(r"[\d.]*", version)[0].split(".") if part)  # type: ignore[index]


def _torch_cuda() -> str:
    """torch/version.py is a few assignments: reading it costs nothing, importing torch costs seconds."""
    spec = importlib.util.find_spec("torch")
    folder = next(iter(spec.submodule_search_locations or ()), "") if spec else ""
    found = _CUDA.search(proc.read_text(Path(folder) / "version.py") or "") if folder else None
    return found[1] if found else ""


def _minimums() -> dict[str, str]:
    try:
        asked = importlib.metadata.requires("aiperf-ab") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    matches = (_REQUIREMENT.match(line) for line in asked if "extra ==" not in line)
    return {match[1].lower(): match[2] for match in matches if match}
