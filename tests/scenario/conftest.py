"""A folder with a workload and a way to write scenario files beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.errors import UserError
from aiperf.scenario.load import load_scenario

BENCH = '''
from typing import Literal

KIB = 1024
Direction = Literal["h2d", "d2h"]


def copy(
    ctx,
    *,
    size: Size,
    direction: Direction = "h2d",
    pinned: bool = False,
    wait: Seconds = 0.0,
    n: int = 4 * KIB,
    share: float = 0.5,
    label: str = "none",
    shape: list[int] = [2, 2],
    defines: dict[str, int] = {},
    limit: Size | None = None,
):
    """Copies a buffer."""


def other(ctx, *, depth: int, size: Size = 1):
    """Needs something else."""


def nothing():
    """Takes no context: a plain function."""


def anything(text: str = "", count: int = 3, **more):
    """Another one."""


def counted(xs, count: int):
    return xs


def make(seed, *, count: int, rows: int = 5):
    """Makes arguments."""


def bare() -> "Workload":
    """Makes a workload without a context."""


async def later():
    """Computes when it is awaited."""


class Parser:
    def parse(self):
        """Needs an object."""

    @staticmethod
    def fast(text: str):
        """Needs none."""

    @classmethod
    def made(cls, text: str):
        """Needs none either."""


quick = nothing
TABLE = [1]
'''

GOOD = """\
title: Pageable against pinned
why: The copy engine reads pinned memory directly.
workload: ./bench.py:copy
params: {size: 1MiB}
before: {pinned: false}
after: {pinned: true}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bench.py").write_text(BENCH, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    def _write(text: str | bytes = GOOD, name: str = "x.yaml") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _write


@pytest.fixture
def faults(write: Callable[..., Path]) -> Callable[..., list[str]]:
    """Lines as a user would read them: place, fault, way out."""

    def _faults(text: str | bytes) -> list[str]:
        with pytest.raises(UserError) as caught:
            load_scenario(write(text))
        return [f"{f.where}: {f.what} {f.hint}".rstrip() for f in caught.value.faults]

    return _faults


@pytest.fixture
def good() -> str:
    return GOOD
