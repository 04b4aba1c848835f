"""``aiperf.compare``: two plain functions against each other, measured as ``aiperf run`` does, with the same records.

What must not live here: measuring, statistics, layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.analysis.notes import note_sentence
from aiperf.api.references import Function, import_environment, reference_of
from aiperf.api.within import compare as refuse
from aiperf.api.within import in_worker
from aiperf.errors import Exit, UserError, usage
from aiperf.host.read import read_host
from aiperf.plan.precision import load_precision
from aiperf.recipes.functions import Functions, run_functions
from aiperf.recipes.run import RunOutcome
from aiperf.records import CaseRecord, Invocation, RunRecord
from aiperf.report.explain import explain_case
from aiperf.report.layout.html import page_html
from aiperf.report.layout.page import Page, page_lines
from aiperf.report.layout.text import plain
from aiperf.report.live import choose_progress
from aiperf.report.summary import summary_line
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.run_table import run_page
from aiperf.scenario.checks import check_of
from aiperf.scenario.signature import read_signature
from aiperf.scenario.wording import allowed
from aiperf.settings import Settings
from aiperf.units import InvalidValue, parse_share, parse_time

_WIDTH = 120


@dataclass(frozen=True, repr=False)
class Compared:
    """What came of a comparison. A notebook shows its table."""

    verdict: str
    """improved, regressed, equivalent, inconclusive or invalid; failed or skipped where nothing could be compared."""
    ratio: float | None
    """Time of before over time of after: above 1, after is faster. None where nothing was compared."""
    interval: tuple[float, float] | None
    """Ends of the ratio's interval; None where there are too few pairs for one."""
    before: float | None
    """Seconds of one call."""
    after: float | None
    reason: str
    """Why this verdict, in a sentence."""
    folder: Path
    """The stored run, which ``aiperf report`` and ``aiperf show`` read."""
    record: CaseRecord
    """All that was measured and concluded."""
    run: RunRecord

    @property
    def ok(self) -> bool:
        """Whether both computed the same and after is not slower: neither regressed, invalid nor failed."""
        return self.verdict not in ("regressed", "invalid", "failed")

    @property
    def table(self) -> str:
        """The comparison table, as a terminal shows it."""
        return plain(page_lines(self._page, width=_WIDTH))

    @property
    def explanation(self) -> str:
        """What ``aiperf show`` says of it."""
        return explain_case(self.run, self.record, width=_WIDTH)

    @property
    def _page(self) -> Page:
        built = build_rows([self.record], run=self.run, profiles={})
        return run_page(self.run, built, summary=summary_line([self.record]), every_metric=False)

    def __str__(self) -> str:
        return self.table

    def __repr__(self) -> str:
        if self.ratio is None or self.interval is None:
            return f"<aiperf {self.verdict}: {self.reason}>"
        low, high = self.interval
        return f"<aiperf {self.verdict}: {self.ratio:.3g}x [{low:.3g} ... {high:.3g}]>"

    def _repr_html_(self) -> str:
        return page_html(self._page)


def compare(
    before: Function,
    after: Function,
    *,
    setup: Function | None = None,
    args: Sequence[Any] = (),
    params: Mapping[str, Any] | None = None,
    check: str | Mapping[str, Any] = "tolerance",
    precision: str = "standard",
    threshold: float | str | None = None,
    budget: float | str | None = None,
    seed: int = 0,
    name: str = "",
    results: str | Path = "results",
    quiet: bool = False,
) -> Compared:
    """Is ``after`` really faster than ``before``, and do both return the same?

    Both are called in fresh processes, in finely alternating random rounds, and returned values are compared. These
    processes import them by file and name: pass functions of a file or module, or texts such as ``"json:loads"``. They
    import a script up to this call: functions stand above it, or it stands under ``if __name__ == "__main__":``.

    ``setup``: makes the arguments of both from a seed, ``def setup(seed, ...)``: a tuple holds them in order, a dict by
    name, anything else is the only one. Audits call it anew with other seeds, which shows what was cached.
    ``params``: by name, for each of ``setup`` and the functions that takes the name, as ``params:`` of a scenario;
    ``args``: in order, for ``setup`` besides the seed, or else for both functions. Both are pickled.
    ``check``: ``tolerance``, ``bitwise``, ``{"rtol": 1e-3}`` or ``{"kind": "none", "reason": "..."}``.
    ``precision``: quick, standard or rigorous; ``threshold``: smallest share that matters, 0.02 or "2%"; ``budget``:
    seconds or ``"2min"`` at most, but for the first look; ``name``: of the case in the stored run under ``results``.

    Raises ValueError for what cannot be compared, and KeyboardInterrupt after what was measured is saved. A side that
    fails raises nothing: then ``ok`` is False, and ``reason`` says why.
    """
    if in_worker():
        refuse()
    try:
        functions = Functions(
            reference_of(before, role="before"),
            reference_of(after, role="after"),
            setup=reference_of(setup, role="setup") if setup is not None else "",
            args=args,
            params=dict(params or {}),
            check=check_of(check),
            env=import_environment(),
            name=name,
        )
        settings = settings_of(precision, threshold=threshold, budget=budget, seed=seed, results=Path(results))
        _refuse_without_arguments(functions)
        outcome = run_functions(
            functions,
            host=read_host(),
            settings=settings,
            progress=choose_progress(quiet=quiet),
            invocation=Invocation("python", ()),
        )
    except UserError as error:
        raise ValueError(worded(error)) from None
    if outcome.exit is Exit.INTERRUPTED:
        raise KeyboardInterrupt(f"interrupted; the measurements so far are in {outcome.folder}")
    return compared(outcome)


def compared(outcome: RunOutcome) -> Compared:
    """What came of a run of one case."""
    (record,) = outcome.records
    result = next((r for r in record.results if r.primary), None)
    if result is None or record.status == "failed":
        failure = record.failure
        reason = record.skip_reason or (f"{failure.side}: {failure.message}" if failure else record.status)
        return Compared(record.status, None, None, None, None, reason, outcome.folder, record, outcome.run)
    found = result.comparison
    return Compared(
        verdict=record.outcome(result),
        ratio=found.ratio,
        interval=(found.low, found.high) if found.low > 0 and math.isfinite(found.high) else None,
        before=found.before.value,
        after=found.after.value,
        reason="; ".join([result.verdict.sentence, *_same_sides(record)]),
        folder=outcome.folder,
        record=record,
        run=outcome.run,
    )


def _same_sides(record: CaseRecord) -> list[str]:
    """The sentence that both sides are the same thing, where they are."""
    return [note_sentence(note) for note in record.notes if note.code == "same_sides"]


def settings_of(
    precision: str, *, threshold: float | str | None, budget: float | str | None, seed: int, results: Path
) -> Settings:
    """Settings of a measurement that a program asks for. Raises UserError."""
    level = load_precision(precision)
    if threshold is not None:
        share = _share(threshold)
        level = replace(level, delta=share, width=share / 2)
    if budget is not None:
        level = replace(level, case_seconds=_seconds(budget))
    return Settings(precision=level, seed=seed, results=results)


def _refuse_without_arguments(functions: Functions) -> None:
    """Raise UserError for the first function that cannot be called without any, where none are given."""
    if functions.setup or functions.args or functions.params:
        return
    for role, function in (("before", functions.before), ("after", functions.after)):
        signature = read_signature(function, base=Path.cwd())
        needed = [name for name in signature.parameters if name not in signature.defaults]
        if needed and not signature.open:
            what = f"{role}: {function.rpartition(':')[2]} takes {allowed(needed)}, but no arguments are given."
            raise usage(what, "Pass args=(...), params={...}, or setup=function, which makes them from a seed.")


def _share(threshold: float | str) -> float:
    try:
        return parse_share(threshold)
    except InvalidValue as error:
        raise usage(f"threshold: {error.what}", error.hint) from None


def _seconds(budget: float | str) -> float:
    try:
        seconds = parse_time(budget) if isinstance(budget, str) else float(budget)
    except InvalidValue as error:
        raise usage(f"budget: {error.what}", error.hint or 'Write 30 or "30s".') from None
    if not seconds > 0:
        raise usage(f"budget={seconds:g} is not a number of seconds above 0.", "Write 30 for half a minute.")
    return seconds


def worded(error: UserError) -> str:
    """Every fault of an error, with what to do."""
    faults = ((f"{f.where}: {f.what}" if f.where else f.what, f.hint) for f in error.faults)
    return "\n".join(f"{what} {hint}".rstrip() for what, hint in faults)
