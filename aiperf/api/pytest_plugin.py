"""The pytest plug-in: fixture ``aiperf``, marker ``aiperf``, options. It loads nothing until a test uses it.

What must not live here: imports that every pytest run would pay for, measuring.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

_LINES = pytest.StashKey[list[str]]()
_DEFAULT_PRECISION = "quick"
_MARKER = (
    "aiperf: a benchmark; with --aiperf-against REF the test's body is measured at that commit and in the working "
    "tree, interleaved, and the test fails on a confirmed regression"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini settings of the same names."""
    group = parser.getgroup("aiperf", "before/after comparisons (aiperf)")
    group.addoption(
        "--aiperf-against",
        metavar="GIT_REF",
        default="",
        help="gate tests marked aiperf, and functions given to the fixture, against this commit",
    )
    group.addoption("--aiperf-precision", metavar="NAME|FILE", help="quick (default), standard, rigorous, or a file")
    group.addoption("--aiperf-threshold", metavar="SHARE", help="smallest difference that matters: 5%% or 0.05")
    group.addoption("--aiperf-results", metavar="FOLDER", help="where runs are stored; default: pytest's cache")
    parser.addini("aiperf_precision", "precision of comparisons in tests", default=_DEFAULT_PRECISION)
    parser.addini("aiperf_threshold", "smallest difference that matters: 5% or 0.05", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; a mistake in an option ends the run before a test has taken its time."""
    config.addinivalue_line("markers", _MARKER)
    config.stash[_LINES] = []
    if any(config.getoption(f"aiperf_{name}") for name in ("against", "precision", "threshold")):
        try:
            _asked(config).check(config.rootpath)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None


@pytest.fixture(name="aiperf")
def _aiperf(request: pytest.FixtureRequest) -> Any:
    """``aiperf.compare(before, after)`` fails the test unless after is as fast and returns the same;
    ``aiperf(function)`` gates one function with ``--aiperf-against REF`` and calls it once without."""
    return _benchmark(request.node)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Gate a marked test instead of calling it."""
    if not pyfuncitem.config.getoption("aiperf_against") or pyfuncitem.get_closest_marker("aiperf") is None:
        return None
    callspec = getattr(pyfuncitem, "callspec", None)
    params = dict(callspec.params) if callspec is not None else {}
    names = list(pyfuncitem._fixtureinfo.argnames)
    if names == ["aiperf"]:
        return None
    if others := [name for name in names if name not in params]:
        name = pyfuncitem.name.partition("[")[0]
        pytest.fail(
            f"{name} takes fixtures ({', '.join(others)}), which a fresh process does not have. "
            f"Write def {name}(aiperf): aiperf(function, setup=make_arguments)",
            pytrace=False,
        )
    _benchmark(pyfuncitem)(pyfuncitem.function, params=params)
    return True


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line for each comparison, and what they were asked."""
    lines = config.stash.get(_LINES, [])
    if not lines:
        return
    asked = _asked(config)
    against = f", against {asked.against}" if asked.against else ""
    threshold = f", threshold {asked.threshold}" if asked.threshold else ""
    terminalreporter.section("aiperf")
    terminalreporter.write_line(f"precision {asked.precision}{threshold}{against}")
    for line in lines:
        terminalreporter.write_line(line)
    if asked.precision == _DEFAULT_PRECISION and any(": inconclusive: " in line for line in lines):
        terminalreporter.write_line("inconclusive passes; --aiperf-precision standard takes longer but decides more")


def _benchmark(item: Any) -> Any:
    """The comparisons of one test, with what the run asks for."""
    config: pytest.Config = item.config
    if hasattr(config, "workerinput"):
        item.warn(pytest.PytestWarning("aiperf measures while other tests run: run it without -n"))

    def report(line: str, table: str) -> None:
        config.stash[_LINES].append(f"{item.nodeid}: {line}")
        if table:
            item.add_report_section("call", "aiperf", table)

    return importlib.import_module("aiperf.api.benchmark").ComparisonFixture(_asked(config), item.nodeid, report)


def _asked(config: pytest.Config) -> Any:
    """What the options and the ini file ask for."""
    results = config.getoption("aiperf_results")
    return importlib.import_module("aiperf.api.benchmark").Asked(
        against=config.getoption("aiperf_against"),
        precision=config.getoption("aiperf_precision") or config.getini("aiperf_precision"),
        threshold=config.getoption("aiperf_threshold") or config.getini("aiperf_threshold") or None,
        results=config.rootpath / results if results else config.rootpath / ".pytest_cache" / "aiperf",
    )
