"""Finding scenario files by name, tag, path, folder or pattern, and listing them fast.

What must not live here: checking scenarios; a file with faults is still found.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.errors import Fault, UserError
from aiperf.paths import YAML_SUFFIXES, scenario_folder
from aiperf.scenario.citations import Citation, citations
from aiperf.scenario.document import Document
from aiperf.scenario.outline import outline
from aiperf.scenario.short_forms import read_scenario
from aiperf.scenario.wording import allowed, closest, shown_path

_MOST_TAGS = 20
"""As many are named where a word is none of them; aiperf list names them all."""


@dataclass(frozen=True)
class Listing:
    """One line of ``aiperf list``: what the file says of itself, unchecked."""

    name: str
    path: Path
    title: str = ""
    tags: tuple[str, ...] = ()
    workload: str = ""
    workloads: tuple[str, ...] = ()
    """What its sides run: that workload, unless a side names its own; none for programs."""
    gpus: int = 0
    """GPUs that it needs."""
    gpu_sizes: bool = False
    """It has a gpu block: it takes a GPU where there is one."""
    axes: tuple[str, ...] = ()
    book: tuple[str, ...] = ()
    """Rows of the book."""
    citations: tuple[Citation, ...] = ()
    """The same rows, with the sides that answer them."""
    problem: str = ""
    """Why the file cannot be read, where it cannot."""
    why: str = ""
    """Why its sides should differ."""

    def speaks_of(self, word: str) -> bool:
        """Whether ``word``, in any case, is part of its name, its title, its workload or a row of the book."""
        texts = (self.name, self.title, self.workload, *self.workloads, *self.book)
        return any(word.casefold() in text.casefold() for text in texts)


def list_scenarios(folders: Sequence[Path] | None = None) -> list[Listing]:
    """What lies in ``folders`` (the shipped scenarios by default), by name. Reads YAML, checks nothing else."""
    return sorted((_listing(p) for p in _files(folders)), key=lambda entry: (entry.name, str(entry.path)))


def find_scenarios(selectors: Iterable[str], *, folders: Sequence[Path] | None = None) -> list[Path]:
    """Scenario files that the selectors name: a name, a tag, a file, a folder, or a pattern of names or paths.

    Without selectors: everything in ``folders`` (the shipped scenarios by default). Each file comes once, in the order
    of the selectors. Raises UserError for every selector that finds nothing and for a name that two files share.
    """
    known = _files(folders)
    asked = list(selectors)
    if not asked:
        return _without_clashes(known)
    matches = {selector: _matches(selector, known) for selector in asked}
    nothing = [_nothing(selector, known) for selector in asked if not matches[selector]]
    return _without_clashes([path for paths in matches.values() for path in paths], faults=nothing)


def split_cases(selectors: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
    """(the selectors, with the scenario in place of each case's id, ``copy[size=1MiB]``, as tables print it; scenario
    -> these ids). A scenario that is also named without one is kept whole."""
    plain: list[str] = []
    ids: dict[str, list[str]] = {}
    for selector in selectors:
        name, _, point = selector.partition("[")
        if "=" in point and point.endswith("]") and "/" not in name and not any(c in name for c in "*?"):
            ids.setdefault(name, []).append(selector)
            plain.append(name)
        else:
            plain.append(selector)
    whole = {name for name in plain if plain.count(name) > len(ids.get(name, ()))}
    return plain, {name: found for name, found in ids.items() if name not in whole}


def find_subject(name: str, *, workloads: Collection[str], folders: Sequence[Path] | None = None) -> list[Path]:
    """Scenario files that ``name`` selects; none where it is one of the ``workloads`` instead.

    Raises UserError, with what was probably meant of either kind, for a name that is neither.
    """
    known = _files(folders)
    paths = _matches(name, known)
    if not paths and name not in workloads:
        raise UserError(_nothing(name, known, workloads))
    return _without_clashes(paths)


def _files(folders: Sequence[Path] | None) -> list[Path]:
    chosen = [scenario_folder()] if folders is None else folders
    return [p for folder in chosen for p in _inside(Path(folder))]


def _inside(folder: Path) -> list[Path]:
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        names = (name for name in (*folders, *files) if name.endswith(YAML_SUFFIXES) and not name.startswith("."))
        found += (Path(place, name) for name in names)
    return sorted(found, key=lambda path: path.parts)


def _matches(selector: str, known: list[Path]) -> list[Path]:
    if not selector:
        return []
    is_path = "/" in selector or selector.endswith(YAML_SUFFIXES)
    try:
        if any(c in selector for c in "*?["):
            if is_path:
                hits = (Path(p) for p in glob.glob(selector, recursive=True))
                return sorted(p for p in hits if p.suffix in YAML_SUFFIXES)
            return [p for p in known if fnmatch.fnmatch(p.stem, selector)]
        path = Path(selector).expanduser()
        if is_path:
            return [path] if path.is_file() else _inside(path) if path.is_dir() else []
        return _named(selector, known) or (_inside(path) if path.is_dir() else [])
    except (OSError, ValueError, RuntimeError):
        return []


def _named(selector: str, known: list[Path]) -> list[Path]:
    by_name = [p for p in known if p.stem == selector]
    return by_name or [p for p in known if selector in _listing(p).tags]


def _nothing(selector: str, known: list[Path], workloads: Collection[str] = ()) -> Fault:
    is_path = "/" in selector or selector.endswith(YAML_SUFFIXES)
    if is_path:
        hint = "" if any(c in selector for c in "*?[") else "Give a .yaml file, or a folder that holds some."
        if lies := _file_of(selector):
            hint = f"Did you mean {lies}?"
        return Fault("", f'"{selector}" matches no scenario file.', hint)
    entries = [_listing(p) for p in known]
    tags = sorted({t for e in entries for t in e.tags})
    near = [_file_of(f"./{selector}")]
    if not near[0]:
        near = [closest(selector, [e.name for e in entries] + tags), _near_workload(selector, workloads)]
    kinds, shows = "scenario, tag, file or folder", "aiperf list shows all names"
    if workloads:
        kinds, shows = "scenario, tag, file, folder or workload", f"{shows}, aiperf list --workloads the workloads"
    hint = f"Did you mean {', or '.join(filter(None, near))}?" if any(near) else f"{shows}."
    if len(tags) <= _MOST_TAGS and tags and not any(near):
        hint = f"Tags: {allowed(tags)}. {hint}"
    return Fault("", f'"{selector}" is not a {kinds}.', hint)


def _file_of(selector: str) -> str:
    """The scenario file of this path without its ending; empty where none lies there."""
    return next((f"{selector}{s}" for s in YAML_SUFFIXES if os.path.isfile(f"{selector}{s}")), "")


def _near_workload(selector: str, workloads: Collection[str]) -> str:
    family = [name for name in workloads if name.partition(".")[0] == selector]
    if len(family) > 1:
        return f"one of the workloads {allowed(family)}"
    near = family[0] if family else closest(selector, workloads)
    return f"the workload {near}" if near else ""


def _without_clashes(paths: Iterable[Path], *, faults: Sequence[Fault] = ()) -> list[Path]:
    """Each path once, in order. Raises UserError with ``faults`` and every name that two files share."""
    chosen = list(dict.fromkeys(path.resolve() for path in paths))
    if found := [*faults, *_clashes(chosen)]:
        raise UserError(found)
    return chosen


def _clashes(paths: list[Path]) -> list[Fault]:
    first: dict[str, Path] = {}
    faults = []
    for path in paths:
        other = first.setdefault(path.stem, path)
        if other != path:
            what = f"two scenarios have the name {path.stem}: {shown_path(other)} and {shown_path(path)}."
            faults.append(Fault("", what, "Select one by its path, or rename one: runs are stored under that name."))
    return faults


def _listing(path: Path) -> Listing:
    try:
        document = read_scenario(path)
    except UserError as error:
        return Listing(path.stem, path, problem=str(error))
    data = document.data
    needs, cited = data.get("needs"), citations(data)
    gpus = needs.get("gpus") if isinstance(needs, dict) else 0
    return Listing(
        name=path.stem,
        path=path,
        title=str(data.get("title") or ""),
        why=" ".join(str(data.get("why") or "").split()),
        tags=_texts(data.get("tags")),
        workload=str(data.get("workload") or ""),
        workloads=_workloads(document),
        gpus=gpus if isinstance(gpus, int) else 0,
        gpu_sizes="gpu" in data,
        axes=tuple(data["axes"]) if isinstance(data.get("axes"), dict) else (),
        book=tuple(c.row for c in cited),
        citations=cited,
    )


def _workloads(document: Document) -> tuple[str, ...]:
    sides = [side.data for side in outline(document).sides if not side.is_command]
    return tuple(dict.fromkeys(_texts([side.get("workload", document.data.get("workload")) for side in sides])))


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()
