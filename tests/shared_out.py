"""A plugin that runs tests in several processes (``--processes N``), forked once all tests are collected: importing and
collecting takes ten seconds, which processes of their own would each spend again.

A process takes one file after the other, so that fixtures of a module are made once. Tests marked ``alone`` come last,
in one process, when no other runs. What must not live here: which tests there are, and in which order they begin.
"""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import pytest

Files = list[list[pytest.Item]]
_DONE: list[int] = []
"""In place of a file's number: there is none any more."""
_NUMBERS = itertools.count()
"""Of processes: their folders are named by them."""


class Process:
    """One of the processes as the session sees it."""

    def __init__(self, session: pytest.Session, name: str, files: Files) -> None:
        self.channel, theirs = Pipe()
        self.at = ""
        """The test that is under way."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.pid = os.fork()
        if not self.pid:
            self.channel.close()
            _be_one(session, name, files, theirs)
        theirs.close()

    def end(self) -> int:
        """Wait for its end; how it ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Have it asked for."""
    parser.addoption("--processes", type=int, default=0, help="Run the tests in so many processes, file by file.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run what was collected: what shares the machine first."""
    processes = session.config.getoption("processes")
    if not processes or session.config.option.collectonly or session.testsfailed:
        return None
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # one, in which each has a folder
    together = [item for item in session.items if item.get_closest_marker("alone") is None]
    alone = [item for item in session.items if item.get_closest_marker("alone") is not None]
    for items, count in ((together, processes), (alone, 1)):
        files = [list(of_file) for _, of_file in itertools.groupby(items, lambda item: item.path)]
        _Round(session, files).run(min(count, len(files)))
    return True


class _Round:
    """Files that processes take as they become free."""

    def __init__(self, session: pytest.Session, files: Files) -> None:
        self._session, self._hook, self._files = session, session.config.hook, files
        self._next = iter(range(len(files)))
        self._processes: dict[Connection, Process] = {}

    def run(self, count: int) -> None:
        try:
            for _ in range(count):
                self._start()
            while self._processes:
                for channel in wait(list(self._processes)):
                    assert isinstance(channel, Connection)
                    self._hear(self._processes[channel])
                if fault := self._session.shouldfail:
                    raise self._session.Failed(fault)
                if fault := self._session.shouldstop:
                    raise self._session.Interrupted(fault)
        finally:
            for process in self._processes.values():
                os.kill(process.pid, signal.SIGKILL)
                process.end()

    def _start(self) -> None:
        process = Process(self._session, f"process-{next(_NUMBERS)}", self._files)
        self._processes[process.channel] = process

    def _hear(self, process: Process) -> None:
        try:
            kind, told = process.channel.recv()
        except (EOFError, ConnectionError):
            del self._processes[process.channel]
            if ended := process.end():
                self._say_lost(process, ended)
                self._start()
            return
        if kind == "next":
            process.channel.send([number] if (number := next(self._next, None)) is not None else _DONE)
        elif kind == "begins":
            process.at = told
        elif kind == "fault":
            raise RuntimeError(told)
        elif kind == "report":
            self._hook.pytest_runtest_logreport(
                report=self._hook.pytest_report_from_serializable(config=self._session.config, data=told)
            )
        elif kind == "warning":
            self._hook.pytest_warning_recorded.call_historic(kwargs=told)

    def _say_lost(self, process: Process, ended: int) -> None:
        """Report the end of a process as the failure of its test. Another one takes the files that are left."""
        how = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
        if not process.at:
            raise RuntimeError(f"A process ended before its first test ({how}).")
        what = f"The process of the tests ended in this one ({how}); what it was to run next did not run."
        report = pytest.TestReport(process.at, ("", None, ""), {}, "failed", what, "call")
        self._hook.pytest_runtest_logreport(report=report)


class _Tell:
    """Hands what is to be shown to the session."""

    def __init__(self, config: pytest.Config, channel: Connection) -> None:
        self._config, self._channel = config, channel

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(("report", data))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        # A warning may hold what cannot be sent.
        warning_message.message = warning_message.category = UserWarning(str(warning_message.message))
        warning_message.category, warning_message.source = UserWarning, None
        told = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._channel.send(("warning", told))


def _be_one(session: pytest.Session, name: str, files: Files, channel: Connection) -> NoReturn:
    """Be a process that runs files, to its end."""
    code = 1
    try:
        _settle(session.config, name)
        session.config.pluginmanager.register(_Tell(session.config, channel))
        for item, following in _with_next(_ordered(files, channel)):
            channel.send(("begins", item.nodeid))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        code = 0
    except BaseException:
        channel.send(("fault", traceback.format_exc()))
    finally:
        # What was imported is left as it is: only what libraries and tests asked for is done at the end.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ordered(files: Files, channel: Connection) -> Iterable[pytest.Item]:
    while True:
        channel.send(("next", None))
        if not (number := channel.recv()):
            return
        yield from files[number[0]]


def _with_next(items: Iterable[pytest.Item]) -> Iterable[tuple[pytest.Item, pytest.Item | None]]:
    """Each with the one that follows, so that fixtures that both use stay; a file is asked for before the last test of
    another begins."""
    before: pytest.Item | None = None
    for item in items:
        if before is not None:
            yield before, item
        before = item
    if before is not None:
        yield before, None


def _settle(config: pytest.Config, name: str) -> None:
    """Have files of its own for what tests print and leave, and nothing to show."""
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    config.pluginmanager.getplugin("terminalreporter")._tw._file = open(os.devnull, "w")  # noqa: SIM115
    folders = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.getbasetemp() / name
    folders._basetemp.mkdir()
