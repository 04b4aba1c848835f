"""What there is to name, in every format: scenarios, suites, workloads, counters, cases of a run.

What must not live here: finding any of them, one of them being explained.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from types import MappingProxyType

from aiperf.plan.suites import FIRST, NOT_MEASURED, Suite
from aiperf.records import CaseRecord, RunRecord
from aiperf.report.counters import CounterListing, counter_meaning
from aiperf.report.layout.formats import Printed, document_json, printed_listing, records_csv
from aiperf.report.layout.page import Page, Sentences
from aiperf.report.layout.table import Table, listing, table_lines, text_column
from aiperf.report.layout.text import Line, sentence_lines
from aiperf.report.numbers import clean, counted
from aiperf.report.summary import count_outcomes
from aiperf.scenario.find import Listing
from aiperf.scenario.workloads import WorkloadListing
from aiperf.units import format_duration

_HEADERS = ("scenario", "runs on", "title")
_MOST_NAMES = 4
"""Scenarios of a stored run that are named; more are counted."""
STANDARD = "standard"
"""Precision of the records that a suite's duration is estimated from."""


@dataclass(frozen=True)
class SuiteRow:
    """One suite."""

    name: str
    title: str
    scenarios: int
    precision: str
    """Empty: the command's own default."""
    duration: str
    recorded: int = 0
    """How many of its scenarios have a record, where nobody measured how long the suite takes."""
    recorded_s: float = 0.0
    """Seconds of the cases in those records; of a suite of first cases, of one case of each scenario in the mean."""
    one_case: bool = False
    """Whether it takes one case of each scenario."""


@dataclass(frozen=True)
class CaseRow:
    """One case of a run."""

    case: str
    outcome: str
    command: str
    """What explains it."""


@dataclass(frozen=True)
class StoredRunRow:
    """One stored run."""

    run: str
    started: str
    command: str
    outcomes: str
    """How many of its cases came out how."""
    scenarios: tuple[str, ...]


def runs_view(found: Iterable[tuple[RunRecord, CaseRecord]], *, warnings: Sequence[str] = ()) -> Printed:
    """Every stored run with what it holds, oldest first, from the (run, case) pairs that were read of it."""
    of_run: dict[str, tuple[RunRecord, list[CaseRecord]]] = {}
    for run, record in found:
        of_run.setdefault(run.run, (run, []))[1].append(record)
    rows = [
        StoredRunRow(
            run=run.run,
            started=run.started,
            command=run.command,
            outcomes=", ".join(f"{count} {word}" for word, count in count_outcomes(records).items()),
            scenarios=tuple(dict.fromkeys(record.case.scenario for record in records)),
        )
        for run, records in of_run.values()
    ]
    table = listing(
        ("run", "command", "outcome", "scenarios"),
        [(clean(row.run), row.command, row.outcomes, clean(_first(row.scenarios))) for row in rows],
    )
    below = ["aiperf report RUN shows one; aiperf history NAME shows a scenario over all of them."]
    document = {"runs": rows, "warnings": list(warnings)}
    return Printed(
        [[table], [Sentences(below)]],
        json=lambda: document_json(document),
        csv=lambda: records_csv(rows, kind=StoredRunRow),
    )


def _first(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def cases_view(records: Sequence[CaseRecord], command: Callable[[str], str]) -> Printed:
    """The cases of a run, with the ``command`` that explains each by its id; people get the command of one."""
    rows = [CaseRow(record.case.id, _outcome(record), command(record.case.id)) for record in records]
    table = listing(("case", "verdict"), [(row.case, row.outcome) for row in rows])
    # Nobody can copy a command that was wrapped, so it is one line however long.
    below = [f"{row.command} explains the first; name another as here or as in the table." for row in rows[:1]]
    page: Page = [[table], [lambda width: [Line(line) for line in below]]]
    return printed_listing(rows, page, kind=CaseRow)


def _outcome(record: CaseRecord) -> str:
    words = [record.outcome(result) for result in record.results if result.primary]
    return ", ".join(dict.fromkeys(words)) or record.status


def suite_rows(
    found: Iterable[tuple[Suite, Collection[str]]], *, seconds: Mapping[str, Sequence[float]] = MappingProxyType({})
) -> list[SuiteRow]:
    """Rows of (suite, the scenarios it has); the duration of a suite that was never measured as a whole is estimated
    from the ``seconds`` that the cases of each scenario took."""
    return [_row(suite, names, seconds) for suite, names in found]


def _row(suite: Suite, names: Collection[str], seconds: Mapping[str, Sequence[float]]) -> SuiteRow:
    row = SuiteRow(suite.name, suite.title, len(names), suite.precision, suite.duration)
    if suite.duration != NOT_MEASURED or suite.precision not in ("", STANDARD):
        return row
    one_case = suite.cases == FIRST
    known = [(fmean if one_case else sum)(seconds[name]) for name in names if name in seconds]
    return replace(row, recorded=len(known), recorded_s=sum(known), one_case=one_case)


def scenarios_view(listings: Sequence[Listing], *, gpus: int = 0, most_lines: int | None = None) -> Printed:
    """Name, where it runs, title or what is wrong; then the tags to select them by.

    For a terminal what a host with so many ``gpus`` can run stands first, and ``most_lines`` are filled at most.
    """
    cells = [_cells(x) for x in listings]
    first = [_cells(x) for x in sorted(listings, key=lambda x: x.gpus > gpus)]
    tags = ", ".join(sorted({tag for x in listings for tag in x.tags}))
    below = [f"Tags: {tags}"] if tags else []
    below.append("aiperf show NAME explains one; aiperf run NAME or aiperf run TAG measures.")
    empty: Page = [[Sentences(["No scenario was found."])]]
    whole: Page = [[listing(_HEADERS, first, dialect="terminal")], [Sentences(below, indent="  ", dialect="terminal")]]
    page: Page = [
        *(whole if most_lines is None else [[lambda width: _screen(first, below, width=width, most=most_lines)]]),
        [listing(_HEADERS, cells, dialect="markdown")],
        [Sentences(below, dialect="markdown")],
    ]
    page = page if listings else empty
    return printed_listing(listings, page, kind=Listing)


def _cells(x: Listing) -> list[str]:
    return [x.name, _where(x), f"problem: {x.problem}" if x.problem else x.title]


def _screen(rows: Sequence[Sequence[str]], below: Sequence[str], *, width: int, most: int) -> list[Line]:
    """The table with what stands below it, or as many rows as ``most`` lines hold, a line each, and how to see more."""
    table = table_lines(listing(_HEADERS, rows), width=width)
    last = sentence_lines(below, width, indent="  ")
    if len(table) + 1 + len(last) <= most:
        return [*table, Line(""), *last]
    kept = max(1, most - 4)
    names = [text_column(name, name, place) for place, name in enumerate(_HEADERS[:2])]
    cut = Table([*names, text_column("title", "title", 2, fold="cut")], rows[:kept])
    more = f"and {len(rows) - kept} more: aiperf list WORD, aiperf list --all (with all tags)"
    return [*table_lines(cut, width=width), *sentence_lines([more, below[-1]], width, lead=" ", indent="   ")]


def suites_view(rows: Sequence[SuiteRow]) -> Printed:
    """The suites, with how to run one below."""
    cells = [(row.name, str(row.scenarios), f"{row.title}. Duration: {row.duration}{_expected(row)}.") for row in rows]
    table = listing(("suite", "scenarios", "what it is"), cells, right=(1,))
    below = Sentences(["aiperf run --suite NAME · aiperf profile --suite NAME"])
    return printed_listing(rows, [[table], [below]], kind=SuiteRow)


def workloads_view(listings: Sequence[WorkloadListing]) -> Printed:
    """Name, how many scenarios use it, what it does."""
    cells = [[entry.name, str(len(entry.scenarios)), docstring_text(entry.summary)] for entry in listings]
    table = listing(["workload", "scenarios", "what a step does"], cells, right=(1,))
    below = "aiperf show WORKLOAD lists its parameters; workload: ./my-file.py:function runs one of yours."
    return printed_listing(listings, [[table], [Sentences([below], indent="  ")]], kind=WorkloadListing)


def counters_view(rows: Sequence[CounterListing]) -> Printed:
    """The counters, then what else ``moves:`` takes."""
    cells = [[row.name, " or ".join(row.tools), counter_meaning(row)] for row in rows]
    below = "moves: also accepts the workload's own counters and any metric of Nsight Compute (smsp__...)."
    page: Page = [[listing(["counter", "read by", "meaning (unit)"], cells)], [Sentences([below], indent="  ")]]
    return printed_listing(rows, page, kind=CounterListing)


def docstring_text(doc: str) -> str:
    """A docstring's text for a terminal: one line, names in single backquotes."""
    return clean(doc.replace("``", "`"))


def _where(listing: Listing) -> str:
    if listing.problem:
        return "–"
    if listing.gpus:
        return counted(listing.gpus, "GPU")
    return "CPU or GPU" if listing.gpu_sizes else "CPU"


def _expected(row: SuiteRow) -> str:
    if not row.recorded:
        return ""
    whose = f"{row.recorded} of its {row.scenarios} scenarios"
    mean = ", counting a scenario's cases as one of mean length" if row.one_case else ""
    return f"; the newest records of {whose} took {format_duration(row.recorded_s)} in total{mean}"
