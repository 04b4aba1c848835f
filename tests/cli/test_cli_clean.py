"""``aiperf clean``: what goes, what stays, what is only listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiperf.paths import cache_folder
from aiperf.workloads.shared import user_cache


@pytest.fixture
def cached(tmp_path_factory, monkeypatch) -> Path:
    """A cache with the bytecode of two environments and one library."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    for name in ("bytecode/1-a/torch.pyc", "bytecode/2-b/deep/torch.pyc", "launches/library.so"):
        path = folder / "aiperf" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 512)
    return folder / "aiperf"


def test_the_cache_that_is_cleaned_is_the_one_that_workers_fill(monkeypatch, tmp_path) -> None:
    for value in ("", "relative", str(tmp_path)):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert user_cache.cache_folder("bytecode") == cache_folder() / "bytecode"


def test_a_dry_run_lists_what_would_go_and_removes_nothing(here, cached) -> None:
    shown = here("clean", "--dry-run")
    assert shown.code == 0
    assert shown.out.splitlines() == [
        f"{cached}/bytecode/1-a  512 B",
        f"{cached}/bytecode/2-b  512 B",
        f"{cached}/launches/library.so  512 B",
        "3 cache entries, 1.5 KiB, would be removed",
    ]
    assert len(list(cached.glob("*/*"))) == 3


def test_caches_go_and_what_was_measured_stays(here, user, reader, cached) -> None:
    kept = user.write("results/2026-11-01T00-00-00-here/run.json", (reader.latest() / "run.json").read_bytes())
    assert "3 cache entries, 1.5 KiB, removed" in here("clean").out
    assert not list(cached.glob("*/*"))
    assert kept.is_file()
    assert here("clean").out == "nothing to remove\n"


def test_json_names_every_path_with_its_kind_and_size(here, cached) -> None:
    rows = json.loads(here("clean", "--dry-run", "--json").out)
    assert [(row["kind"], row["bytes"]) for row in rows] == [("cache", 512)] * 3


def test_what_cannot_be_removed_is_named(here, cached, monkeypatch) -> None:
    def refuses(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("aiperf.recipes.clean.shutil.rmtree", refuses)
    shown = here("clean")
    assert shown.code == 2
    assert f"{cached}/bytecode/1-a: cannot be removed: Permission denied." in shown.err
