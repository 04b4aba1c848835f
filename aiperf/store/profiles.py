"""Profiles in a run's folder: a JSON and its pictures for each case, the tools' raw reports in profiles/raw/.

What must not live here: profiling, drawing, printing. Raw reports may hold the environment of processes: they stay
where they were made, and nothing here copies them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from aiperf.errors import UserError
from aiperf.records import Case
from aiperf.records.profiled import Profile
from aiperf.store.codec import CorruptRecord, dump_json, from_plain, load_plain
from aiperf.store.read import Damaged, find_runs
from aiperf.store.write import file_name, write_whole

PROFILES, RAW = "profiles", "raw"


def raw_folder(run: Path) -> Path:
    """Where a run keeps the tools' own reports."""
    return run / PROFILES / RAW


def write_profile(run: Path, case: Case, profile: Profile, *, pictures: Mapping[str, str] | None = None) -> Path:
    """Save the profile of a case, and its pictures (name -> SVG text) beside it; the JSON's path. Raises OSError."""
    folder = run / PROFILES
    folder.mkdir(exist_ok=True)
    for name, text in (pictures or {}).items():
        write_whole(folder / f"{file_name(case)}.{name}.svg", text.encode())
    path = folder / f"{file_name(case)}.json"
    write_whole(path, dump_json(profile))
    return path


def read_profiles(run: Path, *, spans: bool = True) -> tuple[tuple[Profile, ...], tuple[Damaged, ...]]:
    """Every profile of a run, by file name, and what was passed over; the timelines only where ``spans`` are wanted."""
    found = list(_entries(run, spans))
    profiles = tuple(entry for entry in found if isinstance(entry, Profile))
    return profiles, tuple(entry for entry in found if isinstance(entry, Damaged))


def _entries(run: Path, spans: bool) -> Iterator[Profile | Damaged]:
    for path in sorted((run / PROFILES).glob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            plain = load_plain(path.read_bytes(), where=str(path))
            # The timeline is most of a profile: where it is not wanted it is not made into objects.
            yield from_plain(Profile, plain if spans else {**plain, "spans": []})
        except (CorruptRecord, UserError, OSError) as error:
            yield Damaged.by(error, path)


def raw_reports(results: Path) -> dict[Path, int]:
    """Raw reports of every run in a results folder, with their sizes in bytes."""
    found: dict[Path, int] = {}
    for run in find_runs(results):
        for path in sorted(raw_folder(run).glob("*")):
            if path.is_file() and not path.is_symlink():
                found[path] = path.stat().st_size
    return found
