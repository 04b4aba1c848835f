"""Did a side that runs a checkout import code from the repository that was checked out instead?

What must not live here: making checkouts, and where anything is imported from: it is only seen afterwards.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType

_HARNESS = str(Path(__file__).resolve().parent.parent)
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_NO_PART = ("pyvenv.cfg", "conda-meta", ".git/HEAD")
"""What marks a folder as an environment, or as a repository of its own that is not a submodule: both sides share it."""


class ForeignModule(Exception):
    """A module came from the repository itself, where the code of another commit lies."""


def refuse_foreign(repository: str) -> None:
    """Raise ForeignModule when anything imported so far lies in ``repository``, which a checkout stands for, or in an
    installed copy of it; an empty ``repository`` allows all.

    Aiperf itself, environments and other repositories may lie there. What a side's own child processes import,
    libraries that are not modules, and copies of which no installer left a note, are not seen.
    """
    if not repository:
        return
    loaded = list(_files(list(sys.modules.items())))
    for name, file in loaded:
        if _is_foreign(file, repository):
            raise ForeignModule(f"{name} was imported from {file}, not from the checkout. {_advice(name, file)}")
    copies = _copies(repository)
    for name, file in loaded if copies else ():
        if (source := copies.get(file)) and not file.startswith(os.path.join(_HARNESS, "")):
            raise ForeignModule(
                f"{name} was imported from {file}, a copy installed from {source}: every commit would run it. "
                "Uninstall it, and put the folder of its code on PYTHONPATH: paths inside the repository are moved to "
                "the checkout."
            )


def _files(modules: Iterable[tuple[str, ModuleType]]) -> Iterator[tuple[str, str]]:
    for name, module in modules:
        # Not getattr: lazy modules import more when they are asked.
        held = getattr(module, "__dict__", {})
        for file in (held.get("__file__"), getattr(held.get("__spec__"), "origin", None)):
            if isinstance(file, str) and os.path.isabs(file):
                yield name, file


def _is_foreign(file: str, repo: str) -> bool:
    # A link in the checkout may lead into the repository, and one in the repository to anywhere.
    real = os.path.realpath(file) if os.path.islink(file) else os.path.join(_real(os.path.dirname(file)), "")
    return any(
        place.startswith(os.path.join(repo, "")) and not _is_shared(os.path.dirname(place), repo)
        for place in (file, real)
    )


@lru_cache(maxsize=4096)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


@lru_cache(maxsize=4096)
def _is_shared(where: str, repo: str) -> bool:
    """Whether a folder inside the repository holds what no commit does: aiperf, an interpreter, an environment."""
    folder = Path(where)
    paths = sysconfig.get_paths()
    if any(folder.is_relative_to(known) for known in (_HARNESS, paths["stdlib"], paths["platstdlib"])):
        return True
    below = [folder, *folder.parents][: len(folder.relative_to(repo).parts)]
    marked = (parent / mark for parent in below for mark in _NO_PART)
    return bool(_INSTALLED & set(folder.relative_to(repo).parts)) or any(mark.exists() for mark in marked)


@lru_cache(maxsize=8)
def _copies(repo: str) -> dict[str, str]:
    """File -> the folder inside the repository that its distribution was installed from, as installers note it;
    editable installs are seen by their own files."""
    import importlib.metadata
    import json
    import urllib.parse

    found: dict[str, str] = {}
    real = _real(repo)
    for distribution in importlib.metadata.distributions():
        try:
            noted = json.loads(distribution.read_text("direct_url.json") or "{}")
            place = urllib.parse.urlparse(str(noted.get("url", "")))
            source = _real(urllib.parse.unquote(place.path)) if place.scheme == "file" else ""
            inside = f"{source}/".startswith(f"{real}/") and not _is_shared(source, real)
            if not inside or noted.get("dir_info", {}).get("editable"):
                continue
            found |= {str(distribution.locate_file(file)): source for file in distribution.files or ()}
        except (OSError, ValueError, AttributeError):
            continue  # what an installer left half written notes nothing
    return found


def _advice(name: str, file: str) -> str:
    """What to do, for a module that a path led to and for one that an import hook made."""
    package = os.path.basename(file).startswith("__init__.")
    above = Path(file).parents
    root = above[min(name.count(".") + package, len(above) - 1)]
    if _real(str(root)) in {_real(part) for part in sys.path if part}:
        return f"Put {root} on PYTHONPATH: paths inside the repository are moved to the checkout."
    hook = "An import hook, as some editable installs leave, comes before PYTHONPATH"
    return f"{hook}: uninstall it, or name an interpreter without it (python:)."
