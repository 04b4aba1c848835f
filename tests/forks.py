"""``pytest --processes 3``: tests in processes forked from one that has collected them all, a file at a time.

Collecting takes as long as ten of the longest tests, so it is done once. Files that took long go first, so that none is
left alone at the end; tests marked ``alone`` come last, one after the other and with nothing beside them.

What must not live here: anything on what is tested.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

LONGEST = (
    "cli/test_cli_serve",
    "launch/test_launch_standalone",
    "store/test_store_reference",
    "api/test_api_pytest_plugin",
    "analysis/test_analysis_survey",
    "workloads/test_workloads_imports",
    "workloads/test_workloads_triton_interpreted",
    "workloads/test_workloads_cuda_pairs",
    "launch/test_launch_evidence",
    "launch/test_launch_pair",
    "cli/test_cli_pages",
    "cli/test_cli_light",
    "cli/test_cli_run",
    "workloads/test_workloads_parallel_gang",
    "cli/test_cli_streams",
    "api/test_api_compare",
    "shelves/test_shelves_misbehave",
    "cli/test_cli_profile",
    "shelves/test_shelves_cheaters",
    "cli/test_cli_gate",
    "recipes/test_recipes_survey",
    "cli/test_cli_ab",
    "workloads/test_workloads_cuda_sources",
    "cli/test_cli_interrupts",
    "recipes/test_recipes_run",
    "report/test_report_html_page",
    "recipes/test_recipes_checkouts",
    "workloads/test_workloads_compile_process",
)
"""Files of tests, those that take longest first; the summary of a run says which they are."""
SHOWN = 12
"""Files that the summary of a run names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, help="fork this many processes, which share the tests")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: judges processes by the clock, so that nothing may run beside it")
    config.addinivalue_line("markers", "long: simulated statistics or recorded runs, for make test-long")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in other processes if that is asked for, there are any, and collecting them met no error."""
    count = session.config.option.processes
    if count < 1 or session.config.option.collectonly or session.testsfailed or not session.items:
        return None
    Family(session).run(count)
    return True


def by_file(session: pytest.Session) -> tuple[list[list[int]], list[list[int]]]:
    """The numbers of the tests of each file, in the order in which they are begun: of those that share the machine, and
    of those that have it alone."""
    shared: dict[str, list[int]] = {}
    alone: dict[str, list[int]] = {}
    for number, item in enumerate(session.items):
        files = alone if item.get_closest_marker("alone") else shared
        files.setdefault(item.nodeid.partition("::")[0], []).append(number)
    rank = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
    ordered = sorted(shared, key=lambda name: rank.get(name, len(rank)))
    return [shared[name] for name in ordered], list(alone.values())


@dataclass(eq=False)
class Member:
    """A process that runs tests, as seen by the one that forked it."""

    pid: int
    channel: Connection
    left: list[int] = field(default_factory=list)
    """Tests that it was given and has not ended, the one under way first."""


class Family:
    """The process that collected, and those that it forks."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._config = session, session.config
        self._waiting: deque[list[int]] = deque()
        self._members: dict[Connection, Member] = {}
        self._forked = 0

    def run(self, count: int) -> None:
        """Run all tests. Raises as pytest's own loop does where a run is to stop."""
        try:
            for files, processes in zip(by_file(self._session), (count, 1), strict=True):
                self._waiting.extend(files)
                for _ in range(min(processes, len(files))):
                    self._fork()
                while self._members:
                    for channel in wait(list(self._members)):
                        self._heed(self._members[channel])
                    self._stop_if_asked()
        finally:
            for member in self._members.values():
                os.kill(member.pid, signal.SIGTERM)
                os.waitpid(member.pid, 0)

    def _stop_if_asked(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _fork(self) -> None:
        self._forked += 1
        base = self._config._tmp_path_factory.getbasetemp()
        capture = self._config.pluginmanager.getplugin("capturemanager")
        capture.read_global_capture()  # what was caught while tests were collected is nobody's
        ours, theirs = Pipe()
        if pid := os.fork():
            theirs.close()
            self._members[ours] = Member(pid, ours)
            return
        for channel in (ours, *self._members):
            channel.close()
        work(self._session, theirs, base / f"p{self._forked}")

    def _heed(self, member: Member) -> None:
        try:
            word, told = member.channel.recv()
        except (EOFError, OSError):
            word, told = "gone", None
        hook = self._config.hook
        if word == "gone":
            self._ended(member)
        elif word == "next":
            given = self._waiting.popleft() if self._waiting else []
            member.left += given
            member.channel.send(given)
        elif word == "report":
            hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=self._config, data=told))
        elif word == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=told)
        else:
            item = self._session.items[told]
            if word == "end":
                member.left.remove(told)
            log = hook.pytest_runtest_logstart if word == "begin" else hook.pytest_runtest_logfinish
            log(nodeid=item.nodeid, location=item.location)

    def _ended(self, member: Member) -> None:
        """A process is gone: where it left tests, the first of them ended it, and another process does the rest."""
        del self._members[member.channel]
        member.channel.close()
        _, status = os.waitpid(member.pid, 0)
        if not member.left:
            return
        first, *rest = member.left
        item, how = self._session.items[first], os.waitstatus_to_exitcode(status)
        said = f"the process of this test ended with {f'signal {-how}' if how < 0 else f'exit status {how}'}"
        report = pytest.TestReport(
            nodeid=item.nodeid, location=item.location, keywords={}, outcome="failed", longrepr=said, when="call"
        )
        self._config.hook.pytest_runtest_logreport(report=report)
        if rest:
            self._waiting.appendleft(rest)
        if self._waiting:
            self._fork()


class Teller:
    """Hooks of a forked process: what pytest is told of a test, it tells the process that collected."""

    def __init__(self, config: pytest.Config, channel: Connection) -> None:
        self._config, self._channel = config, channel
        # Who registers is told first of all warnings until then, which the other process knows.
        config.pluginmanager.register(self)
        self._telling = True

    _telling = False

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(("report", data))

    @pytest.hookimpl
    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        if self._telling:
            warning_message.source = None
            told = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
            self._channel.send(("warning", told))


def work(session: pytest.Session, channel: Connection, folder: Any) -> NoReturn:
    """Run what is asked for until nothing is, and leave."""
    status = 1
    try:
        config = session.config
        folder.mkdir()
        config._tmp_path_factory._basetemp = folder
        # Files into which output is caught have one place to write at, which the processes would share.
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        config.pluginmanager.getplugin("terminalreporter")._tw._file = open(os.devnull, "w")  # noqa: SIM115
        Teller(config, channel)
        run_files(session, channel)
        status = 0
    finally:
        # What is left in memory goes with the process: there are a million objects.
        os._exit(status)


def run_files(session: pytest.Session, channel: Connection) -> None:
    """Run files, each asked for before the last test of the one before it: pytest wants to know what comes next."""

    def asked() -> list[int]:
        channel.send(("next", None))
        return channel.recv()

    numbers = asked()
    while numbers:
        following: list[int] = []
        for place, number in enumerate(numbers, start=1):
            if place == len(numbers):
                following = asked()
            upcoming = (numbers[place:] or following)[:1]
            channel.send(("begin", number))
            session.config.hook.pytest_runtest_protocol(
                item=session.items[number], nextitem=session.items[upcoming[0]] if upcoming else None
            )
            channel.send(("end", number))
        numbers = following


def slowest(reports: Iterable[pytest.TestReport]) -> list[tuple[str, float]]:
    """File -> seconds of its tests, those that took longest first."""
    spent: Counter[str] = Counter()
    for report in reports:
        spent[report.nodeid.partition("::")[0]] += report.duration
    return spent.most_common(SHOWN)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the files that took longest: where the time of ``make test`` has to be looked for once it grows."""
    if config.option.processes:
        kinds = ("passed", "failed", "error", "skipped", "")
        reports = [each for kind in kinds for each in terminalreporter.stats.get(kind, []) if hasattr(each, "duration")]
        terminalreporter.section("files that took longest")
        for name, seconds in slowest(reports):
            terminalreporter.write_line(f"{seconds:6.1f} s  {name}")
