"""Where compiled modules are kept, in an interpreter of its own with a made-up torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, os, subprocess, sys
from aiperf.protocol.messages import LoadRequest
from aiperf.worker.dispatch import Worker

if "NO_WRITING" in os.environ:  # what a user who is not root finds
    os.access = lambda path, mode, real=os.access: real(path, mode) and "site" not in str(path)
if "NOT_MINE" in os.environ:
    os.geteuid = lambda: 54321
sys.prefix = os.environ.get("PREFIX", sys.prefix)
where = lambda: [sys.pycache_prefix, sys.dont_write_bytecode]
before = where()
worker = Worker(rank=0, world_size=1, store_port=0, listen_fd=-1)
worker.handle(LoadRequest(("torch.part",), (), device="cpu", open_gpu=False))
import torch.part, torch.late
code = "import sys, json; print(json.dumps([sys.pycache_prefix, sys.dont_write_bytecode]))"
child = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
from aiperf.workloads.shared.bytecode import kept_variables
told = kept_variables()
print(json.dumps({"before": before, "after": where(), "child": child, "value": torch.part.value, "told": told}))
"""
FORBIDDEN = {"PYTHONDONTWRITEBYTECODE": "1"}


class House:
    """A torch of three modules and a cache folder."""

    def __init__(self, folder: Path) -> None:
        self.site, self.cache = folder / "site", folder / "cache"
        self.torch = self.site / "torch"
        self.torch.mkdir(parents=True)
        (self.torch / "__init__.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
        (self.torch / "late.py").write_text("")
        self.install("1.0", value=1)

    def install(self, version: str, *, value: int) -> None:
        """Another version whose source has the same size and time."""
        for old in self.site.glob("torch-*.dist-info"):
            old.rmdir()
        (self.site / f"torch-{version}.dist-info").mkdir()
        part = self.torch / "part.py"
        part.write_text(f"value = {value}\n")
        os.utime(part, (1_000_000_000, 1_000_000_000))

    def start(self, **variables: str) -> dict[str, Any]:
        """What a worker that loads torch.part came to; torch.late is imported afterwards."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.cache.parent), "PYTHONPATH": f"{self.site}:{ROOT}"}
        env |= {"XDG_CACHE_HOME": str(self.cache), "OPENBLAS_NUM_THREADS": "1", **variables}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    @property
    def kept(self) -> list[str]:
        """Modules of torch that lie compiled in the cache."""
        return _names(self.cache.rglob("site/torch/*.pyc"))

    @property
    def beside(self) -> list[str]:
        """Those that lie beside their sources."""
        return _names(self.torch.glob("__pycache__/*.pyc"))


def _names(paths: Any) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in paths)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_where_writing_is_forbidden_what_is_loaded_is_kept_and_nothing_else_notices(house: House) -> None:
    told = house.start(**FORBIDDEN)
    assert told["before"] == told["after"] == told["child"] == [None, True]
    assert (house.kept, house.beside) == (["__init__", "part"], [])


def test_a_process_to_come_is_told_of_the_same_place_and_keeps_there_all_that_it_imports(house: House) -> None:
    told = house.start(**FORBIDDEN)["told"]
    code = "import torch.late, torch.part"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(house.site), **FORBIDDEN, **told}
    times = {path: path.stat().st_mtime_ns for path in house.cache.rglob("*.pyc")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert (house.kept, house.beside) == (["__init__", "late", "part"], [])
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_a_process_to_come_is_told_nothing_where_modules_lie_beside_their_sources(house: House) -> None:
    assert house.start()["told"] == {}


def test_where_the_sources_lie_in_a_place_that_cannot_be_written_it_is_kept(house: House) -> None:
    house.start(NO_WRITING="1")
    assert house.kept == ["__init__", "part"]


def test_the_second_process_reads_what_the_first_has_kept(house: House) -> None:
    house.start(**FORBIDDEN)
    times = {path: path.stat().st_mtime_ns for path in house.cache.rglob("*.pyc")}
    house.start(**FORBIDDEN)
    assert {path: path.stat().st_mtime_ns for path in house.cache.rglob("*.pyc")} == times


@pytest.mark.long
def test_another_version_of_equal_size_and_time_is_not_taken_for_the_first(house: House) -> None:
    assert house.start(**FORBIDDEN)["value"] == 1
    house.install("1.1", value=2)
    assert house.start(**FORBIDDEN)["value"] == 2


@pytest.mark.long
def test_another_version_of_a_library_that_lies_elsewhere_is_not_taken_for_the_first(
    house: House, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "other-1.0.dist-info").mkdir(parents=True)
    house.start(**FORBIDDEN, PYTHONPATH=f"{house.site}:{elsewhere}:{ROOT}")
    (elsewhere / "other-1.0.dist-info").rename(elsewhere / "other-1.1.dist-info")
    house.start(**FORBIDDEN, PYTHONPATH=f"{house.site}:{elsewhere}:{ROOT}")
    assert len(list((house.cache / "aiperf" / "bytecode").iterdir())) == 2


def old(folder: Path) -> Path:
    """The folder, last used two hours ago."""
    os.utime(folder, (time.time() - 7200,) * 2)
    return folder


def test_a_new_version_clears_those_that_are_no_longer_used(house: House) -> None:
    folders = house.cache / "aiperf" / "bytecode"
    house.start(**FORBIDDEN)
    (own,) = folders.iterdir()
    house.start(**FORBIDDEN, PREFIX="/another/environment")
    foreign = next(folder for folder in folders.iterdir() if folder != own)
    before = {old(folder) for folder in (own, foreign)}
    house.install("1.1", value=2)
    assert house.start(**FORBIDDEN)["value"] == 2
    now = set(folders.iterdir())
    assert now & before == {foreign}
    assert len(now) == 2


@pytest.mark.long
def test_a_version_that_another_side_may_still_use_stays(house: House) -> None:
    house.start(**FORBIDDEN)
    (first,) = (house.cache / "aiperf" / "bytecode").iterdir()
    house.install("1.1", value=2)
    house.start(**FORBIDDEN)
    assert first.is_dir()
    old(first)
    house.install("1.0", value=1)
    house.start(**FORBIDDEN)
    assert time.time() - first.stat().st_mtime < 3600
    assert first.is_dir()


def test_a_folder_named_as_earlier_releases_did_goes_too(house: House) -> None:
    stale = house.cache / "aiperf" / "bytecode" / "0123456789abcdef"
    stale.mkdir(parents=True)
    old(stale)
    house.start(**FORBIDDEN)
    assert not stale.exists()


@pytest.mark.long
def test_each_environment_has_its_own(house: House) -> None:
    house.start(**FORBIDDEN)
    house.start(**FORBIDDEN, PREFIX="/another/environment")
    assert len(list((house.cache / "aiperf" / "bytecode").iterdir())) == 2


def test_a_cache_of_another_user_is_left_alone(house: House) -> None:
    house.start(**FORBIDDEN, NOT_MINE="1")
    assert house.kept == []


def test_a_torch_that_nobody_can_find_is_no_error(house: House) -> None:
    (house.site / "torch" / "__init__.py").write_text(
        "__spec__ = None\n" + "class cuda:\n    is_available = staticmethod(lambda: False)\n"
    )
    assert house.start(**FORBIDDEN)["value"] == 1


def test_where_they_can_be_written_they_lie_beside_their_sources(house: House) -> None:
    assert house.start()["before"] == [None, False]
    assert (house.kept, house.beside) == ([], ["__init__", "late", "part"])


@pytest.mark.long
def test_those_that_lie_there_are_read_although_writing_is_forbidden(house: House) -> None:
    house.start()
    house.start(**FORBIDDEN)
    assert house.kept == []


@pytest.mark.long
def test_a_place_that_the_user_chose_stays(house: House, tmp_path: Path) -> None:
    mine = str(tmp_path / "mine")
    assert house.start(PYTHONPYCACHEPREFIX=mine, **FORBIDDEN)["after"] == [mine, True]
    assert house.kept == []


@pytest.mark.long
def test_a_cache_that_others_may_write_is_left_alone(house: House) -> None:
    house.start(**FORBIDDEN)
    (folder,) = (house.cache / "aiperf" / "bytecode").iterdir()
    for path in house.cache.rglob("*.pyc"):
        path.unlink()
    folder.chmod(0o777)
    house.start(**FORBIDDEN)
    assert house.kept == []


@pytest.mark.long
def test_a_relative_cache_folder_does_not_count(house: House, tmp_path: Path) -> None:
    house.start(XDG_CACHE_HOME="relative", **FORBIDDEN)
    assert list((tmp_path / ".cache").rglob("site/torch/part*.pyc"))


def test_without_a_cache_folder_it_is_imported_all_the_same(house: House) -> None:
    house.cache.write_text("a file")
    assert house.start(**FORBIDDEN)["value"] == 1
