"""The name by which a fresh process imports a function, and why there is none."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

import pytest
from api_made import functions_in

from aiperf.api.references import import_environment, reference_of, source_of
from aiperf.errors import UserError


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    with functions_in(tmp_path_factory.mktemp("functions")) as module:
        yield module


def test_a_function_is_named_by_its_file_and_its_place_in_it(mine):
    for function, name in (
        (mine.loop, "loop"),
        (mine.wrapped, "wrapped"),
        (mine.Parser.fast, "Parser.fast"),
        (mine.Parser.made, "Parser.made"),
        (mine.named, "named"),
    ):
        assert reference_of(function) == f"{mine.__file__}:{name}"


def test_what_is_installed_or_built_in_is_named_by_its_module():
    assert reference_of(json.loads) == "json:loads"
    assert reference_of(sorted) == "builtins:sorted"
    assert reference_of("json:loads") == "json:loads"
    assert source_of("json:loads") == ""
    assert source_of("/a/b.py:f") == "/a/b.py"


def test_a_text_is_taken_from_the_current_folder(mine, monkeypatch):
    monkeypatch.chdir(Path(mine.__file__).parent)
    assert reference_of("aiperf_api_functions.py:loop") == f"{mine.__file__}:loop"
    assert reference_of("aiperf_api_functions:loop") == f"{mine.__file__}:loop"


def refusal(function):
    with pytest.raises(UserError) as caught:
        reference_of(function, role="before")
    return " ".join(f"{fault.what} {fault.hint}" for fault in caught.value.faults)


def test_a_function_that_no_process_can_import_is_refused_with_what_to_do(mine, monkeypatch):
    assert refusal(lambda: 1).startswith("before: a lambda has no name that a fresh process could import. Write")
    assert "%%writefile" not in refusal(lambda: 1)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert "%%writefile mine.py" in refusal(lambda: 1)
    assert refusal(mine.outer()) == (
        "before: inner is defined inside another function, where a fresh process cannot import it. "
        "Move it to the top of its file."
    )
    assert "has no name to import it by" in refusal(functools.partial(mine.loop, [1]))
    assert refusal(mine.Parser().parse) == (
        "before: parse cannot be imported by its name from aiperf_api_functions. "
        "Write def run(...): ... in a file, which calls it, and pass run."
    )
    assert refusal(3) == "before: int is not a function. Pass a function, or its name as text."
    assert "there is no file" in refusal("nowhere.py:f")


def test_a_function_of_a_notebook_cell_is_told_to_go_into_a_file(monkeypatch):
    def parse():
        return 1

    parse.__module__, parse.__qualname__ = "__main__", "parse"
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "parse", parse, raising=False)
    assert refusal(parse) == (
        "before: parse is defined in a notebook cell or at a prompt, which a fresh process cannot import. Put it into "
        "a file: begin the cell with %%writefile mine.py, then import mine and pass mine.parse; or pass "
        '"mine.py:parse".'
    )


def test_folders_that_only_this_process_imports_from_are_passed_on(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(tmp_path), str(tmp_path / "absent")])
    monkeypatch.setenv("PYTHONPATH", "/kept")
    places = import_environment()["PYTHONPATH"].split(os.pathsep)
    assert str(tmp_path) in places
    assert places[-1] == "/kept"
    assert not any(place.endswith(("absent", "site-packages")) for place in places)
