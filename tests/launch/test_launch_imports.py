"""Whether a worker would import a checkout's packages: asked of real interpreters with real import hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.launch.imports import foreign_import
from aiperf.records import Side

HOOK = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mine":
            return importlib.util.spec_from_file_location(name, {origin!r}, submodule_search_locations=[])

sys.meta_path.insert(0, Finder)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for package in ("checkout/mine", "checkout/src/other"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('imported')")
    return tmp_path / "checkout"


def side(checkout: Path, *before: Path, **fields: object) -> Side:
    path = ":".join(str(p) for p in (*before, checkout, checkout / "src"))
    return Side("before", workload="/w.py:f", env={"PYTHONPATH": path}, folder=str(checkout), **fields)


def test_packages_that_the_import_path_finds_in_the_checkout_are_its_own(checkout) -> None:
    assert foreign_import(side(checkout), checkout) == ""


def test_an_import_hook_of_an_editable_install_is_found_out(checkout, tmp_path) -> None:
    origin = tmp_path / "installed" / "mine" / "__init__.py"
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(HOOK.format(origin=str(origin)))
    assert foreign_import(side(checkout, tmp_path / "hooks"), checkout) == f"mine would be imported from {origin}"
    assert foreign_import(side(checkout, tmp_path / "hooks", command=("x",)), checkout) == ""


def test_a_path_that_comes_first_is_found_out(checkout, tmp_path) -> None:
    (tmp_path / "first" / "other").mkdir(parents=True)
    (tmp_path / "first" / "other" / "__init__.py").touch()
    assert foreign_import(side(checkout, tmp_path / "first"), checkout).startswith("other would be imported from ")


def test_an_interpreter_that_does_not_start_is_left_for_the_worker_to_tell(checkout) -> None:
    assert foreign_import(side(checkout, python="/no/such/python"), checkout) == ""
