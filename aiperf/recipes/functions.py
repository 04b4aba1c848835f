"""The recipe of `aiperf.compare`: two plain functions become one case, which is measured as any other.

What must not live here: measuring, finding out where a function is defined, printing.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiperf.errors import usage
from aiperf.host.facts import HostFacts
from aiperf.plan.plan import Plan
from aiperf.recipes.run import RunOutcome, run_plan
from aiperf.records import Case, Check, Invocation, Measure, Side
from aiperf.report.live import Progress
from aiperf.settings import Settings


@dataclass(frozen=True)
class Functions:
    """Two plain functions to compare, as fresh processes import them."""

    before: str
    """``/path/file.py:function`` or ``module:function``."""
    after: str
    setup: str = ""
    """Function that makes the arguments of both from a seed; empty without one."""
    args: Sequence[Any] = ()
    """Arguments in order, of the set-up where there is one, else of both functions."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Arguments by name, of the set-up and of both functions, as ``params:`` of a scenario."""
    check: Check = field(default_factory=Check)
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    """Of the case; made of the functions' names by default."""
    path: str = ""
    """File whose repository a gate rebuilds; empty without a gate."""


def run_functions(
    functions: Functions, *, host: HostFacts, settings: Settings, progress: Progress, invocation: Invocation
) -> RunOutcome:
    """Measure two functions against each other. Raises UserError for arguments that no other process can get."""
    with function_case(functions) as case:
        return run_plan(Plan((case,), ()), host=host, settings=settings, progress=progress, invocation=invocation)


@contextmanager
def function_case(functions: Functions) -> Iterator[Case]:
    """The case of two functions, whose arguments lie in a file as long as it is used. Raises UserError."""
    with TemporaryDirectory(prefix="aiperf-arguments-") as folder:
        held = _written(functions, Path(folder) / "arguments.pickle")
        before, after = (
            Side(name, function, plain=True, setup=functions.setup, arguments=held, env=dict(functions.env))
            for name, function in (("before", functions.before), ("after", functions.after))
        )
        alone = functions.before == functions.after
        short = [_short(functions.before)] if alone else [_short(functions.before), _short(functions.after)]
        name = functions.name or "-vs-".join(short)
        yield Case(
            scenario=name,
            id=name,
            title=f"{short[0]} against {'itself' if alone else short[-1]}",
            why="",
            sides=(before, after),
            measure=Measure(clock="wall"),
            check=functions.check,
            expect="equivalent" if alone else "",
            path=functions.path,
        )


def _written(functions: Functions, path: Path) -> str:
    """The file with the arguments; empty where there are none."""
    if not functions.args and not functions.params:
        return ""
    try:
        path.write_bytes(pickle.dumps((tuple(functions.args), dict(functions.params))))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        hint = "Give setup=, a function of a module that makes them from a seed."
        raise usage(f"the arguments cannot be sent to fresh processes: {error}.", hint) from None
    return str(path)


def _short(reference: str) -> str:
    """``parse`` of ``/path/file.py:parse``, safe in the name of a case."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rpartition(":")[2])
