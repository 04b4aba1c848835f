"""A user with a folder of tiny scenarios, who types commands."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_user import SCENARIO, Typed, User, processes_with
from host_once import host_read_anew, the_host_is_looked_at_once  # noqa: F401 - fixtures

from aiperf.cli.main import entry
from aiperf.host.placement import place
from aiperf.host.probes.reader import HostReader
from aiperf.paths import scenario_folder
from aiperf.recipes import cpu_choice
from aiperf.scenario import find
from aiperf.store import reference
from aiperf.store.history import Entry, History
from aiperf.store.reference import reference_folder


@pytest.fixture(scope="session", autouse=True)
def _short_looks_at_the_host() -> Iterator[None]:
    """Which CPUs are quiet and what else runs is looked for in each run of this process, for most of a second unless
    shortened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_choice, "place", functools.partial(place, probe_seconds=0.01))
        patch.setattr(HostReader, "readings", 2)
        yield


@pytest.fixture(scope="session", autouse=True)
def _shipped_scenarios_are_listed_once() -> Iterator[None]:
    """Hundreds of files that no test changes, which each command that finds scenarios would look into again."""
    shipped, read = scenario_folder(), find._listing
    remembered = functools.cache(read)

    def listing(path: Path) -> find.Listing:
        return (remembered if path.is_relative_to(shipped) else read)(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "_listing", listing)
        yield


@pytest.fixture(scope="session", autouse=True)
def _the_projects_own_runs_are_read_once() -> Iterator[None]:
    """Hundreds of records that no test changes, which each command about the book would read, and predict by, again."""
    shipped, read = reference_folder(Path("nowhere")), reference.entries
    remembered = functools.cache(functools.partial(read, shipped))

    predict = reference._predictions
    told = functools.cache(lambda: predict(remembered().entries))

    def entries(results: Path, *, scenario: str = "") -> History:
        return remembered() if results == shipped and not scenario else read(results, scenario=scenario)

    def predictions(found: tuple[Entry, ...]) -> reference._Ahead:
        # The same objects: to compare a thousand records by value takes as long as to predict.
        known = remembered().entries if remembered.cache_info().currsize else ()
        return told() if len(found) == len(known) > 0 and all(map(operator.is_, found, known)) else predict(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "entries", entries)
        patch.setattr(reference, "_predictions", predictions)
        yield


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user who has measured once, each side in processes of its own; for tests that only look at the run."""
    user = User(tmp_path_factory.mktemp("reader"))
    user.write("tiny.yaml", SCENARIO)
    user.done = user.runs("tiny.yaml")
    return user


@pytest.fixture
def here(user: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Typed]:
    """Type a command that measures nothing, in this process: any exception it does not handle fails the test."""
    monkeypatch.chdir(user.folder)

    def types(*argv: str) -> Typed:
        monkeypatch.setattr(sys, "argv", ["aiperf", *argv])
        capsys.readouterr()
        code = entry()
        told = capsys.readouterr()
        return Typed(int(code), told.out, told.err)

    return types


@pytest.fixture
def marked(user: User) -> Iterator[User]:
    """A user whose processes, of each side its own, can be told from all others; those left at the end are killed."""
    user.write("tiny.yaml", SCENARIO)
    user.env["TEST_MARK"] = f"mark-{os.getpid()}-{user.folder.name}"
    yield user
    for pid in processes_with(user.env["TEST_MARK"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
