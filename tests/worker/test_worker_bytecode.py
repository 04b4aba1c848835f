"""Where compiled modules are kept, in an interpreter of its own with a made-up torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, subprocess, sys
from aiperf.worker.bytecode import keep_compiled
keep_compiled()
import torch.part
own = {"prefix": sys.pycache_prefix, "forbidden": sys.dont_write_bytecode}
code = "import json, sys; print(json.dumps({'prefix': sys.pycache_prefix, 'forbidden': sys.dont_write_bytecode}))"
child = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
print(json.dumps([own, child]))
"""


class House:
    """A torch of two modules and a cache folder."""

    def __init__(self, folder: Path) -> None:
        self.torch, self.cache = folder / "site" / "torch", folder / "cache"
        self.torch.mkdir(parents=True)
        (self.torch / "__init__.py").write_text("")
        (self.torch / "part.py").write_text("value = 1\n")

    def start(self, **variables: str) -> list[dict[str, object]]:
        """What a process that keeps compiled modules came to, and its child."""
        import json

        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{self.torch.parent}:{ROOT}"}
        env |= {"XDG_CACHE_HOME": str(self.cache), **variables}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    @property
    def kept(self) -> list[str]:
        """Modules of torch that lie compiled in the cache."""
        return sorted(path.name.partition(".")[0] for path in self.cache.rglob("site/torch/*.pyc"))

    @property
    def beside(self) -> list[str]:
        """Those that lie beside their sources."""
        return sorted(path.name.partition(".")[0] for path in self.torch.glob("__pycache__/*.pyc"))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_where_writing_is_forbidden_they_are_kept_in_the_cache_and_children_see_nothing_of_it(house: House) -> None:
    own, child = house.start(PYTHONDONTWRITEBYTECODE="1")
    assert own == {"prefix": str(house.cache / "aiperf" / "bytecode"), "forbidden": False}
    assert child == {"prefix": None, "forbidden": True}
    assert (house.kept, house.beside) == (["__init__", "part"], [])


def test_the_second_process_reads_what_the_first_has_kept(house: House) -> None:
    house.start(PYTHONDONTWRITEBYTECODE="1")
    times = {path: path.stat().st_mtime_ns for path in house.cache.rglob("*.pyc")}
    house.start(PYTHONDONTWRITEBYTECODE="1")
    assert {path: path.stat().st_mtime_ns for path in house.cache.rglob("*.pyc")} == times


def test_where_they_can_be_written_they_lie_beside_their_sources(house: House) -> None:
    own, _ = house.start()
    assert own == {"prefix": None, "forbidden": False}
    assert (house.kept, house.beside) == ([], ["__init__", "part"])


def test_those_that_lie_there_are_read_although_writing_is_forbidden(house: House) -> None:
    house.start()
    own, _ = house.start(PYTHONDONTWRITEBYTECODE="1")
    assert own == {"prefix": None, "forbidden": True}
    assert house.kept == []


def test_a_place_that_the_user_chose_stays(house: House, tmp_path: Path) -> None:
    own, _ = house.start(PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX=str(tmp_path / "mine"))
    assert own == {"prefix": str(tmp_path / "mine"), "forbidden": True}


def test_without_a_cache_folder_nothing_changes(house: House) -> None:
    house.cache.write_text("a file")
    own, _ = house.start(PYTHONDONTWRITEBYTECODE="1")
    assert own == {"prefix": None, "forbidden": True}
