"""Modules that came from the repository instead of its checkout: real files, and modules made by hand."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from aiperf.worker import origins
from aiperf.worker.origins import ForeignModule, refuse_foreign


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


@pytest.fixture
def came_from(monkeypatch: pytest.MonkeyPatch):
    """Stands a module that has this file beside those that were imported."""

    def session(file: Path, *, name: str = "aiperf_mine", **held: object) -> None:
        module = ModuleType(name)
        module.__dict__.update({"__file__": str(file), **held})
        monkeypatch.setitem(sys.modules, name, module)

    return session


def test_a_package_that_a_path_found_in_the_repository_is_refused_with_the_folder_to_put_on_the_path(
    repo, monkeypatch
) -> None:
    inner = repo / "backend" / "aiperf_pkg" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(repo / "backend"))
    importlib.import_module("aiperf_pkg.inner")
    try:
        with pytest.raises(ForeignModule) as caught:
            refuse_foreign(str(repo))
        sys.modules.pop("aiperf_pkg")
        with pytest.raises(ForeignModule, match=rf"Put {repo}/backend on PYTHONPATH"):
            refuse_foreign(str(repo))
    finally:
        for name in ("aiperf_pkg", "aiperf_pkg.inner"):
            sys.modules.pop(name, None)
    assert str(caught.value) == (
        f"aiperf_pkg was imported from {repo}/backend/aiperf_pkg/__init__.py, not from the checkout. "
        f"Put {repo}/backend on PYTHONPATH: paths inside the repository are moved to the checkout."
    )
    refuse_foreign(str(repo))
    refuse_foreign("")


@pytest.mark.parametrize("name", ["src/aiperf_mine.py", "aiperf_mine.cpython-311-x86_64-linux-gnu.so"])
def test_what_only_an_import_hook_can_have_found_is_refused_as_that(repo, came_from, name) -> None:
    came_from(repo / name)
    with pytest.raises(ForeignModule, match=r"An import hook, as some editable installs leave, comes before PYTHONP"):
        refuse_foreign(str(repo))


def test_a_module_without_a_file_is_known_by_what_its_loader_says(repo, came_from) -> None:
    came_from(repo, __file__=None, __spec__=ModuleSpec("aiperf_mine", None, origin=f"{repo}/aiperf_mine.py"))
    with pytest.raises(ForeignModule, match=f"aiperf_mine was imported from {repo}/aiperf_mine.py"):
        refuse_foreign(str(repo))


def test_a_link_leads_into_the_repository_from_either_end(repo, came_from, tmp_path) -> None:
    (repo / "real").mkdir()
    (repo / "real" / "one.py").touch()
    (tmp_path / "else").mkdir()
    for place, target in (("checkout", repo / "real"), ("one.py", repo / "real" / "one.py")):
        (tmp_path / place).symlink_to(target)
    (repo / "linked").symlink_to(tmp_path / "else")
    for file in (tmp_path / "checkout" / "one.py", tmp_path / "one.py", repo / "linked" / "two.py"):
        came_from(file)
        with pytest.raises(ForeignModule):
            refuse_foreign(str(repo))


@pytest.mark.long
def test_what_lies_elsewhere_or_in_an_environment_inside_the_repository_is_nobodys_commit(
    repo, came_from, tmp_path, monkeypatch
) -> None:
    for mark in ("venv/pyvenv.cfg", "conda/conda-meta", "vendor/dep/.git/HEAD"):
        (repo / mark).parent.mkdir(parents=True)
        (repo / mark).touch()
    shared = [
        "venv/src/dep/a.py",
        "conda/lib/x.so",
        "vendor/dep/src/a.py",
        "lib/site-packages/a.py",
        "usr/dist-packages/deep/a.py",
    ]
    for file in (*(repo / name for name in shared), tmp_path / "repo-2" / "a.py", Path("<string>")):
        came_from(file)
        refuse_foreign(str(repo))
    (repo / "pyvenv.cfg").touch()
    (repo / "backend").mkdir()
    (repo / "backend" / ".git").write_text("gitdir: of a submodule")
    came_from(repo / "backend" / "a.py")
    with pytest.raises(ForeignModule):
        refuse_foreign(str(repo))


def test_the_harness_itself_and_its_interpreter_may_lie_in_the_repository(monkeypatch) -> None:
    root = str(Path(origins.__file__).parents[2])
    harness = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "aiperf"}
    monkeypatch.setattr(sys, "modules", harness)
    refuse_foreign(root)
    monkeypatch.setattr(sys, "modules", {"json": importlib.import_module("json")})
    refuse_foreign(str(Path(sys.base_prefix).resolve()))


def test_a_lazy_module_is_not_asked_for_what_it_would_first_have_to_import(repo, monkeypatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "aiperf_lazy", Lazy("aiperf_lazy"))
    monkeypatch.setitem(sys.modules, "aiperf_gone", None)
    refuse_foreign(str(repo))


# ---- installed copies --------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Imports a package from an environment into which it was installed as its note says."""
    place = tmp_path / "env" / "site-packages"

    def install(url: str | None, *, editable: bool = False) -> Path:
        code, note = place / "aiperf_copied" / "__init__.py", place / "aiperf_copied-1.dist-info"
        code.parent.mkdir(parents=True)
        code.touch()
        note.mkdir()
        (note / "METADATA").write_text("Metadata-Version: 2.1\nName: aiperf_copied\nVersion: 1\n")
        (note / "RECORD").write_text("aiperf_copied/__init__.py,,\n")
        if url is not None:
            (note / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": editable}}))
        monkeypatch.syspath_prepend(str(place))
        origins._copies.cache_clear()
        importlib.import_module("aiperf_copied")
        return code

    yield install
    sys.modules.pop("aiperf_copied", None)
    origins._copies.cache_clear()


def test_a_copy_that_was_installed_from_the_repository_is_refused_with_its_source(repo: Path, installed) -> None:
    code = installed(f"file://{repo}/back%20end")
    with pytest.raises(ForeignModule) as caught:
        refuse_foreign(str(repo))
    assert str(caught.value).startswith(
        f"aiperf_copied was imported from {code}, a copy installed from {repo}/back end: every commit"
    )


@pytest.mark.parametrize(
    ("url", "editable"),
    [("file:///elsewhere", False), ("https://example.org{repo}", False), (None, False), ("file://{repo}x", False),
     ("file://{repo}", True)],
)  # fmt: skip
def test_what_was_installed_from_elsewhere_or_editable_is_no_copy(
    repo: Path, installed, url: str | None, editable: bool
) -> None:
    installed(url and url.format(repo=repo), editable=editable)
    refuse_foreign(str(repo))


def test_what_was_installed_from_another_repository_inside_is_no_copy(repo: Path, installed) -> None:
    (repo / "clone" / ".git").mkdir(parents=True)
    (repo / "clone" / ".git" / "HEAD").touch()
    installed(f"file://{repo}/clone")
    refuse_foreign(str(repo))


def test_a_note_that_is_half_written_is_none(repo: Path, installed, tmp_path: Path) -> None:
    installed(f"file://{repo}")
    (tmp_path / "env/site-packages/aiperf_copied-1.dist-info/direct_url.json").write_text('{"url": "file:')
    refuse_foreign(str(repo))
