"""The recipe of `aiperf clean`: find and remove what aiperf keeps beside its records, all of which can be made again.

What must not live here: anything that removes records or samples, printing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aiperf.errors import usage
from aiperf.paths import cache_folder
from aiperf.recipes.profile_by_hand import left_by_hand, remove_by_hand
from aiperf.store.profiles import raw_reports

Kind = Literal["raw report", "by hand", "cache"]


@dataclass(frozen=True)
class Leftover:
    """Something that may go."""

    kind: Kind
    path: Path
    """A file, or a folder of the cache: the bytecode of one environment."""
    bytes: int


def find_leftovers(results: Path) -> tuple[Leftover, ...]:
    """Raw profiler reports of stored runs, files made for profiling by hand, and the caches of workers."""
    reports = [Leftover("raw report", path, size) for path, size in raw_reports(results).items()]
    by_hand = [Leftover("by hand", path, size) for path, size in left_by_hand(results).items()]
    return (*reports, *by_hand, *_cached())


def remove_leftovers(found: Sequence[Leftover], results: Path) -> None:
    """Remove what ``find_leftovers`` found. Raises UserError with the path that cannot be removed."""
    try:
        for one in found:
            if one.path.is_dir() and not one.path.is_symlink():
                shutil.rmtree(one.path)
            elif one.kind != "by hand":
                one.path.unlink()
        remove_by_hand(results)
    except OSError as error:
        raise usage(
            f"cannot be removed: {error.strerror}.", "Remove it yourself.", where=str(error.filename or results)
        ) from None


def _cached() -> list[Leftover]:
    """What the cache holds, two levels deep: kind, then environment or build."""
    return [Leftover("cache", path, _size(path)) for path in sorted(cache_folder().glob("*/*"))]


def _size(place: Path) -> int:
    """Bytes of a file, or of all files of a folder; links are not followed."""
    if place.is_symlink() or not place.is_dir():
        return place.lstat().st_size
    return sum(path.lstat().st_size for path in place.rglob("*") if path.is_symlink() or path.is_file())
