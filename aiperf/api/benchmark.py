"""What a test gets as the fixture ``aiperf``: comparisons that fail it, and functions gated against a commit.

What must not live here: hooks and options of pytest (pytest_plugin.py), measuring.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aiperf.analysis.gate import GateOutcome, GateRow
from aiperf.api.compare import Compared, compare, settings_of, worded
from aiperf.api.references import Function, import_environment, reference_of, source_of
from aiperf.errors import Exit, UserError
from aiperf.host.read import read_host
from aiperf.protocol.arguments import names_of, not_in_order, seeded, shared_out
from aiperf.recipes.function_gate import check_commit, gate_function
from aiperf.recipes.functions import Functions
from aiperf.report.layout.page import page_lines
from aiperf.report.layout.text import plain
from aiperf.report.numbers import known
from aiperf.report.views.gate_table import gate_view
from aiperf.scenario.checks import check_of
from aiperf.units import format_time

_FAILS = (Exit.REGRESSION, Exit.WRONG, Exit.USAGE, Exit.UNFIT)
_SEED = 0


@dataclass(frozen=True)
class Asked:
    """What the options of a pytest run ask for."""

    against: str
    """Git ref that functions are gated against; empty for none."""
    precision: str
    threshold: float | str | None
    results: Path

    def check(self, folder: Path) -> None:
        """Raise ValueError where these options cannot be met for the tests of a folder."""
        try:
            settings_of(self.precision, threshold=self.threshold, budget=None, seed=_SEED, results=self.results)
            if self.against:
                check_commit(folder, self.against)
        except UserError as error:
            raise ValueError(worded(error)) from None


@dataclass(frozen=True)
class ComparisonFixture:
    """Compares functions inside a test, which fails where after is slower or returns something else."""

    asked: Asked
    test: str
    """The test's own name, which names its case and the command that repeats it."""
    report: Callable[[str, str], None] = field(default=lambda line, table: None)
    """Given a line and the table of each comparison."""

    def compare(self, before: Function, after: Function, **options: Any) -> Compared:
        """``aiperf.compare`` with the precision and threshold of the run; fails the test unless the result is ``ok``.

        An inconclusive comparison passes: it shows no regression. What this host cannot run skips the test.
        """
        given = {
            "precision": self.asked.precision,
            "threshold": self.asked.threshold,
            "results": self.asked.results,
            "name": _case_name(self.test),
            "quiet": True,
            **options,
        }
        refused = ""
        try:
            came = compare(before, after, **given)
        except ValueError as error:
            refused = str(error)
        if refused:
            pytest.fail(refused, pytrace=False)
        self.report(f"{came!r}"[len("<aiperf ") : -1] + _times(came.before, came.after), came.table)
        if came.verdict == "skipped":
            pytest.skip(came.reason)
        if not came.ok:
            pytest.fail(f"{came.verdict}: {came.reason}", pytrace=False)
        return came

    def __call__(
        self,
        function: Function,
        *,
        setup: Function | None = None,
        args: Sequence[Any] = (),
        params: Mapping[str, Any] | None = None,
        check: str | Mapping[str, Any] = "tolerance",
    ) -> Any:
        """Call a function once, and return what it returns; with ``--aiperf-against REF`` gate it instead.

        A gate interleaves the function of that commit with the one that lies here, and fails the test on a regression
        that a fresh session confirms, or where both return something else. It returns None.
        """
        params = dict(params or {})
        if not self.asked.against:
            return _once(function, setup, args, params)
        refused = ""
        try:
            self.gate(function, setup=setup, args=args, params=params, check=check)
        except UserError as error:
            refused = worded(error)
        if refused:
            pytest.fail(refused, pytrace=False)
        return None

    def gate(
        self,
        function: Function,
        *,
        setup: Function | None = None,
        args: Sequence[Any] = (),
        params: Mapping[str, Any],
        check: str | Mapping[str, Any] = "tolerance",
    ) -> None:
        """Fail, skip or pass the test by what a gate says of the function. Raises UserError."""
        asked, name = self.asked, reference_of(function)
        functions = Functions(
            name,
            name,
            setup=reference_of(setup, role="setup") if setup is not None else "",
            args=args,
            params=params,
            check=check_of(check),
            env=import_environment(),
            name=_case_name(self.test),
            path=source_of(name),
        )
        settings = settings_of(
            asked.precision, threshold=asked.threshold, budget=None, seed=_SEED, results=asked.results
        )
        again = ["pytest", self.test, "--aiperf-against", asked.against, "--aiperf-precision", asked.precision]
        again += ["--aiperf-threshold", str(asked.threshold)] if asked.threshold else []
        self._judge(
            gate_function(
                functions, against=asked.against, host=read_host(), settings=settings, reproduce=shlex.join(again)
            )
        )

    def _judge(self, outcome: GateOutcome) -> None:
        table = plain(page_lines(gate_view(outcome).page, width=120))
        self.report("; ".join(map(_line, outcome.rows)) or outcome.sentence, table)
        if outcome.exit is Exit.INTERRUPTED:
            raise KeyboardInterrupt
        if outcome.exit in _FAILS:
            pytest.fail(_fault(outcome), pytrace=False)
        new_at_head = {row.status for row in outcome.rows} == {"no_baseline"}
        if new_at_head or outcome.exit is Exit.SKIPPED:
            pytest.skip(next((row.sentence for row in outcome.rows if row.sentence), outcome.sentence))


def _once(function: Function, setup: Function | None, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """One plain call, with the arguments that a set-up makes where there is one."""
    if not callable(function) or not (setup is None or callable(setup)):
        pytest.fail("without --aiperf-against the function is called here: pass it, not its name.", pytrace=False)
    if setup is None:
        return function(*args, **params)
    own, given = shared_out(params, function=names_of(function), setup=names_of(setup))
    first, seed = seeded(setup, args, _SEED)
    made = setup(*first, **given, **seed)
    if isinstance(made, dict):
        return function(**{**own, **made})
    in_order = () if made is None else made if isinstance(made, tuple) else (made,)
    return function(*in_order, **not_in_order(function, own, given=len(in_order)))


def _line(row: GateRow) -> str:
    """``regressed: 0.81x [0.78 ... 0.84], 3.3 ms -> 4.1 ms`` of one row."""
    if not known(row.ratio):
        return row.status
    return f"{row.status}: {row.ratio:.3g}x [{row.low:.3g} ... {row.high:.3g}]{_times(row.before, row.after)}"


def _times(before: float | None, after: float | None) -> str:
    return f", {format_time(before)} -> {format_time(after)}" if before is not None and after is not None else ""


def _fault(outcome: GateOutcome) -> str:
    """Why a gate fails a test, in one line: what it was held against, and by how much it is worse."""
    row = next((row for row in outcome.rows if row.status == "regressed"), None)
    if row is None:
        return next((f"{r.status}: {r.sentence}" for r in outcome.rows if r.status == "invalid"), outcome.sentence)
    return f"{_line(row)} against {outcome.base}, confirmed in a fresh session"


def _case_name(test: str) -> str:
    """A test's name as a case's: ``test_parse[10]`` of ``tests/test_a.py::test_parse[10]``."""
    return test.rpartition("::")[2]
