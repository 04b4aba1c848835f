"""The size budget: what is too long, too complex, takes too much or has another's name, and the exceptions by name.

An exception that is no longer needed fails too: remove its line here (and in pyproject.toml's per-file-ignores).
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from package_sources import sources, statements

CHECKOUT = Path(__file__).resolve().parent.parent
FUNCTION_LINES = 60
FILE_LINES = 400
FOLDER_LINES = {"workloads/decoder/": 1500}
"""Folder -> its files together have fewer lines."""
LINT = ("C901", "PLR0913")

TOP = {
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "action.yml",
    "constraints.txt",
}
TOP |= {"mkdocs.yml", "pyproject.toml"}
"""Files outside folders: what somebody tried out is not among them."""

LONG_FILES: dict[str, str] = {}
"""File -> why it has more lines."""

OPTIONS = "a command's options"
KEYS = "a workload's parameters, the keys of its scenarios"
LONG_FUNCTIONS: dict[str, str] = {
    "cli/run.py run": OPTIONS,
    "workloads/comm/workload.py collective": KEYS,
    "workloads/compile/workload.py process": KEYS,
    "workloads/cuda/workload.py kernel": KEYS,
    "workloads/data/workload.py loader": KEYS,
    "workloads/serve/workload.py load": KEYS,
    "workloads/linalg/workload.py matmul": KEYS,
    "workloads/llm/drafted.py drafted": KEYS,
    "workloads/llm/workload.py generate": KEYS,
    "workloads/memory/allocation.py alloc": KEYS,
    "workloads/model/workload.py step": KEYS,
    "workloads/quant/workload.py linear": KEYS,
    "workloads/serve/workload.py cluster": KEYS,
    "workloads/serve/workload.py engine": KEYS,
    "workloads/startup/workload.py request": KEYS,
    "workloads/storage/workload.py read": KEYS,
}
"""File and function -> why it has more lines."""

SHARED_NAMES: tuple[str, ...] = ()
"""Class names that still mean more than one thing."""


def functions() -> Iterator[tuple[str, int]]:
    """(file and name, lines from ``def`` to the end) of every function and method."""
    for path, _, tree in sources():
        for node in statements(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield f"{path} {node.name}", node.end_lineno - node.lineno + 1


def compare(found: set[str], excepted: set[str]) -> dict[str, list[str]]:
    """What breaks the budget without being excepted, and what is excepted without need; empty when all is well."""
    sides = {"over the budget": sorted(found - excepted), "remove from the exceptions": sorted(excepted - found)}
    return {name: these for name, these in sides.items() if these}


def test_a_function_fits_a_screen() -> None:
    assert compare({name for name, lines in functions() if lines > FUNCTION_LINES}, set(LONG_FUNCTIONS)) == {}


def test_a_file_has_at_most_400_lines() -> None:
    found = {path for path, text, _ in sources() if text.count("\n") > FILE_LINES}
    assert compare(found, set(LONG_FILES)) == {}


def test_a_folder_with_a_budget_keeps_it() -> None:
    found = dict.fromkeys(FOLDER_LINES, 0)
    for path, text, _ in sources():
        for folder in filter(path.startswith, FOLDER_LINES):
            found[folder] += text.count("\n")
    assert all(found.values()), "a folder was moved"
    assert {folder: lines for folder, lines in found.items() if lines >= FOLDER_LINES[folder]} == {}


def test_the_top_of_the_checkout_holds_only_what_belongs_there() -> None:
    told = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    files = {name for name in told.splitlines() if "/" not in name}
    assert files == TOP


def test_a_class_name_has_one_meaning_in_the_package() -> None:
    places = defaultdict(list)
    for path, _, tree in sources():
        for node in statements(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    assert compare({name for name, paths in places.items() if len(paths) > 1}, set(SHARED_NAMES)) == {}


def test_the_linter_excepts_only_files_that_need_it() -> None:
    ruff = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    limits = [f"lint.mccabe.max-complexity={ruff['mccabe']['max-complexity']}"]
    limits += [f"lint.pylint.max-args={ruff['pylint']['max-args']}"]
    options = [word for limit in limits for word in ("--config", limit)]
    argv = [sys.executable, "-m", "ruff", "check", "--isolated", "--output-format=json", "--select", ",".join(LINT)]
    done = subprocess.run(
        [*argv, *options, "aiperf", "tests"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    found = {f"{Path(each['filename']).relative_to(CHECKOUT)} {each['code']}" for each in json.loads(done.stdout)}
    ignored = ruff["per-file-ignores"].items()
    excepted = {f"{path} {code}" for path, codes in ignored for code in codes if code in LINT}
    assert compare(found, excepted) == {}


def test_the_budget_names_what_breaks_it_and_what_is_excepted_without_need() -> None:
    assert compare({"a.py f", "b.py g"}, {"b.py g", "c.py h"}) == {
        "over the budget": ["a.py f"],
        "remove from the exceptions": ["c.py h"],
    }
