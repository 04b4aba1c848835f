"""The tables of what was measured: runs, cases, comparisons, samples, counters, findings, telemetry.

What must not live here: profiles (profiled.py), DuckDB, files.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

from aiperf.analysis.notes import note_sentences
from aiperf.analysis.rows import ComparisonRow, comparison_row
from aiperf.records import CaseRecord, Pair, Summary
from aiperf.records.machines import node_names
from aiperf.store.light import Light
from aiperf.store.tables.columns import DataColumn, DataRow, DataTable, Kind, Read, RunSource, column, place_columns

_ALL_READINGS = "all readings"


# ---- reading ---------------------------------------------------------------------------------------------------------


def _of_run(path: str) -> Read:
    """Read a field of the run's record; None where that is damaged."""
    read = attrgetter(path)
    return lambda row: read(row.run.record) if row.run.record.known else None


def _of_case(path: str) -> Read:
    """Read a field of the case's record; None in a row of the run as a whole."""
    read = attrgetter(path)
    return lambda row: None if row.case is None else read(row.case.record)


def _if_measured_here(path: str) -> Read:
    """Read a field of the case's record that has no meaning for numbers of another tool."""
    read = attrgetter(path)

    def value(row: DataRow) -> Any:
        record = _record(row)
        return None if "imported" in (record.status, record.precision) else read(record)

    return value


def _of_failure(path: str) -> Read:
    read = attrgetter(path)
    return lambda row: read(failure) if (failure := _record(row).failure) else None


def _record(row: DataRow) -> CaseRecord:
    assert row.case is not None
    return row.case.record


def _reason(record: CaseRecord) -> str:
    """Why a case has no result."""
    failure = record.failure
    if failure is not None:
        return ", ".join(part for part in (failure.side, failure.phase, failure.message) if part)
    return record.skip_reason


def _imported(record: CaseRecord, summary: Summary) -> ComparisonRow:
    """Make the row of an imported side, which is compared with none: its value under ``after``."""
    return ComparisonRow(
        scenario=record.case.scenario, case=record.case.id, metric="time", side=summary.side, unit="s",
        after=summary.value, sd=summary.log_sd, pairs=sum(summary.side in pair.order for pair in record.pairs),
        sentence="; ".join(note_sentences(record)),
    )  # fmt: skip


def _void(row: DataRow) -> bool:
    assert row.pair is not None
    return row.pair.void


def _position(row: DataRow) -> int | None:
    assert row.pair is not None
    return row.pair.order.index(row.item.side) if row.item.side in row.pair.order else None


# ---- rows ------------------------------------------------------------------------------------------------------------


def _run_rows(run: RunSource) -> Iterator[DataRow]:
    yield DataRow(run, None)


def _case_rows(run: RunSource) -> Iterator[DataRow]:
    return (DataRow(run, None, case) for case in run.cases)


def _comparison_rows(run: RunSource) -> Iterator[DataRow]:
    for case in run.cases:
        for result in case.record.results:
            yield DataRow(run, comparison_row(case.record, result), case)


def _exported_comparison_rows(run: RunSource) -> Iterator[DataRow]:
    """One row for each comparison, each imported side, and each case that has neither (without an item)."""
    for case in run.cases:
        record = case.record
        rows = [comparison_row(record, result) for result in record.results]
        rows += [_imported(record, summary) for summary in record.summaries]
        for item in rows or (None,):
            yield DataRow(run, item, case)


def _comparison_columns() -> Iterator[DataColumn]:
    """Every field of the comparison record, named and described as there."""
    kinds: dict[str, Kind] = {"float": "number", "int": "whole", "bool": "flag"}
    for one in fields(ComparisonRow):
        name = {"primary": "is_primary"}.get(one.name, one.name)  # PRIMARY is a word of SQL
        if one.name not in ("scenario", "case"):
            kind = kinds.get(str(one.type).partition(" ")[0], "text")
            yield column(name, kind, one.metadata["meaning"], _of_comparison(one.name))


def _of_comparison(name: str) -> Read:
    """Read a field of the comparison record; of a case that has none only why."""
    if name == "reason":
        return lambda row: row.item.reason if row.item else _reason(_record(row))
    return lambda row: getattr(row.item, name) if row.item else None


def _pairs(run: RunSource) -> Iterator[tuple[Light, int, Pair]]:
    return ((case, slot, pair) for case in run.cases for slot, pair in enumerate(case.record.pairs))


def _sample_rows(run: RunSource) -> Iterator[DataRow]:
    return (DataRow(run, sample, case, slot, pair) for case, slot, pair in _pairs(run) for sample in pair.samples)


def _latency_rows(run: RunSource) -> Iterator[DataRow]:
    for row in _sample_rows(run):
        for part in row.item.latencies:
            for place, seconds in enumerate(part.seconds):
                yield row._replace(item=(row.item, place, seconds, part))


def _counter_rows(run: RunSource) -> Iterator[DataRow]:
    for case, slot, pair in _pairs(run):
        for side in pair.runs:
            for name, value in side.counters.items():
                yield DataRow(run, (side.side, name, value), case, slot, pair)


def _finding_rows(run: RunSource) -> Iterator[DataRow]:
    """Items are (kind, id, level, side, voids, detail)."""
    for finding in run.record.findings:
        yield DataRow(run, ("host", finding.id, finding.level, None, None, str(finding)))
    for case in run.cases:
        for finding in case.record.findings:
            yield DataRow(run, ("case", finding.id, finding.level, None, None, str(finding)), case)
        for slot, pair in enumerate(case.record.pairs):
            for incident in pair.incidents:
                item = (incident.kind, None, None, incident.side, incident.voids, incident.detail)
                yield DataRow(run, item, case, slot, pair)


def _telemetry_rows(run: RunSource) -> Iterator[DataRow]:
    """Items are (mark, kind, name, value)."""
    for case, slot, pair in _pairs(run):
        for item in _telemetry(pair):
            yield DataRow(run, item, case, slot, pair)


def _telemetry(pair: Pair) -> Iterator[tuple[str, str, str, float]]:
    for mark, readings in pair.telemetry.items():
        yield from ((mark or _ALL_READINGS, "median", name, value) for name, value in readings.items())
    for side in pair.runs:
        yield from ((side.side, "sum", name, value) for name, value in side.usage.items())
    for gpu, degrees in pair.watch.temperatures.items():
        yield _ALL_READINGS, "start", f"temperature_c of {gpu}", degrees
    if pair.watch.cost is not None:
        yield _ALL_READINGS, "share", "sampling_cost", pair.watch.cost


def _part(place: int) -> Read:
    """Read a part of an item that is a tuple."""
    return lambda row: row.item[place]


def _of_latency(name: str) -> Read:
    return lambda row: getattr(row.item[0], name)


# ---- the tables ------------------------------------------------------------------------------------------------------

RUN = column("run", "text", "name of the run's folder", "run.folder.name")
CASE = column("case", "text", 'id of the case; an SQL keyword, so write "case" or c.case', _of_case("case.id"))
SCENARIO = column("scenario", "text", "name of the scenario", _of_case("case.scenario"))
STARTED = column("started", "time", "when the run began, UTC", _of_run("started"))
HOST = column("host_id", "text", "fingerprint of the class of host", _of_run("host_id"))
_OF_A_CASE = (RUN, CASE, SCENARIO)
_OF_A_PAIR = (
    *_OF_A_CASE,
    column("slot", "whole", "place of the pair in the record, from 0", "slot"),
    column("pair", "whole", "number of the pair; one that was measured again keeps it",
           lambda row: row.pair.index if row.pair else None),
)  # fmt: skip
_VOID = column("void", "flag", "the pair does not count", _void)
_SIDE = "before, after, or a step of a ladder"

RUNS = DataTable(
    "runs",
    "one row for each run",
    (
        RUN,
        STARTED,
        column("finished", "time", "when it ended, UTC", _of_run("finished")),
        column("status", "text", "running, finished, interrupted; unknown: its record is damaged", "run.record.status"),
        column("precision", "text", "quick, standard, rigorous, or a file's name", _of_run("precision")),
        column("seed", "whole", "seed of orders, inputs and offsets", _of_run("seed")),
        column("argv", "text", "the command line",
               lambda row: shlex.join(row.run.record.argv) if row.run.record.known else None),
        column("hostname", "text", "name of the host", lambda row: row.run.record.host.get("hostname")),
        HOST,
        column("nodes", "texts",
               "names of the nodes that its ranks were spread over, the head's first; without those of later sessions",
               lambda row: node_names(row.run.record) if row.run.record.known else None),
        column("gpus", "texts", "names of the GPUs",
               lambda row: [str(gpu.get("name", "")) for gpu in row.run.record.host.get("gpus") or ()
                            if isinstance(gpu, dict)] if row.run.record.known else None),
        column("software", "json", "name -> version", _of_run("software")),
        column("git", "json", "state of the checkout", _of_run("git")),
        column("git_sha", "text", "commit of the checkout", lambda row: row.run.record.git.get("sha")),
        column("git_diff", "text", "hash of its uncommitted changes",
               lambda row: row.run.record.git.get("diff")),
        column("settings", "json", "how it measured", _of_run("settings")),
        column("planned", "whole", "cases planned",
               lambda row: len(row.run.record.planned) if row.run.record.known else None),
        column("cases", "whole", "case records that can be read", lambda row: sum(1 for _ in row.run.cases)),
        column("folder", "text", "path of the run's folder", lambda row: str(row.run.folder)),
    ),
    _run_rows,
    level="run",
)  # fmt: skip
CASES = DataTable(
    "cases",
    "one row for each case of each run",
    (
        *_OF_A_CASE,
        column("title", "text", "title of the scenario", "case.record.case.title"),
        column("axes", "json", "axis -> value, e.g. axes->>'size'", "case.record.case.axes"),
        column("tags", "texts", "tags of the scenario", "case.record.case.tags"),
        column("expect", "text", "verdict that the scenario expects", _of_case("case.expect")),
        column("clock", "text", "clock of the samples: wall, device, ...", "case.record.case.measure.clock"),
        column("cache", "text", "state of the caches before an iteration", "case.record.case.measure.cache"),
        column("isolation", "text", "what a launch is: a process, ...", "case.record.case.measure.isolation"),
        column("status", "text", "measured, skipped, failed, interrupted, imported", _of_case("status")),
        column("stop", "text", "rule that ended the case: verdict, precision, budget, ...", _of_case("stop")),
        column("reason", "text", "why it was skipped or how it failed", lambda row: _reason(_record(row))),
        column("skip_reason", "text", "why it was skipped", _of_case("skip_reason")),
        column("failure_kind", "text", "crash, hang, oom_device, ...", _of_failure("kind")),
        column("failure_side", "text", "side that failed", _of_failure("side")),
        column("failure_phase", "text", "phase in which it failed", _of_failure("phase")),
        column("failure_message", "text", "its error message", _of_failure("message")),
        column("notes", "texts", "the run's notes on the case", lambda row: note_sentences(_record(row))),
        column("pairs", "whole", "pairs in the record, including void ones", "case.pairs"),
        column("void_pairs", "whole", "pairs that do not count", lambda row: len(row.case.void) if row.case else None),
        column("replicate", "text", "unit of replication", _of_case("replicate")),
        column("precision", "text", "quick, standard, rigorous, or a file's name", _of_case("precision")),
        column("threshold", "number", "requested threshold, as a ratio minus 1", _if_measured_here("threshold")),
        column("alpha", "number", "two-sided error of the intervals", _if_measured_here("alpha")),
        column("scale", "number", "factor on the intervals' width, from calibration", _if_measured_here("scale")),
        column("seed", "whole", "seed of the case", "case.record.seed"),
        column("seconds", "number", "time that the case took", "case.record.seconds", unit="s"),
        column("harness_seconds", "number", "part of seconds that aiperf added to its workers' own time",
               _if_measured_here("harness_seconds"), unit="s"),
        column("host_id", "text", HOST.meaning, "case.record.host_id"),
        column("case_started", "time", "when the case began, UTC", _of_case("started")),
        column("case_finished", "time", "when it ended, UTC", _of_case("finished")),
    ),
    _case_rows,
)  # fmt: skip
COMPARISONS = DataTable(
    "comparisons",
    "one row for each metric of each two sides compared",
    (
        *_OF_A_CASE,
        *_comparison_columns(),
        column("host_id", "text", HOST.meaning, "case.record.host_id"),
        STARTED,
    ),
    _comparison_rows,
    needs="results",
    other_rows=_exported_comparison_rows,
)  # fmt: skip
SAMPLES = DataTable(
    "samples",
    "one row for each timed reading; a query reads them from the Parquet files",
    (
        *_OF_A_PAIR,
        _VOID,
        column("position", "whole", "place of the side in the pair's order", _position),
        column("pair_started", "number", "when the pair began, since the epoch",
               lambda row: row.pair.started or None if row.pair else None, unit="s"),
        column("side", "text", _SIDE),
        column("round", "whole", "alternation within the pair"),
        column("index", "whole", "place of the sample within the side"),
        column("iterations", "whole", "calls of step in this reading"),
        column("wall_s", "number", "wall time of all iterations", unit="s"),
        column("device_s", "number", "device time of all iterations", unit="s"),
        column("user_s", "number", "user CPU time", unit="s"),
        column("system_s", "number", "system CPU time", unit="s"),
        column("peak_bytes", "whole", "peak memory", unit="B"),
        column("audit", "flag", "an audited iteration: never part of the statistics"),
        column("rank", "whole", "the slowest rank of a gang: by device_s where it is read, else by wall_s"),
        *place_columns(attrgetter("item.side"), attrgetter("item.rank")),
        column("latencies_s", "numbers", "time of each unit of work that ended in the turn this sample ends",
               lambda row: [s for part in row.item.latencies for s in part.seconds], unit="s"),
        column("latency_series", "names", "what each of these units is: latency, ttft, inter_token, ...",
               lambda row: [part.series for part in row.item.latencies for _ in part.seconds]),
        column("latency_ranks", "wholes", "rank that reported each of these units",
               lambda row: [part.rank for part in row.item.latencies for _ in part.seconds]),
    ),
    _sample_rows,
    needs="samples",
)  # fmt: skip
LATENCIES = DataTable(
    "latencies",
    "one row for each unit of work that was timed on its own",
    (
        *_OF_A_PAIR,
        _VOID,
        column("side", "text", _SIDE, _of_latency("side")),
        column("round", "whole", "alternation within the pair", _of_latency("round")),
        column("index", "whole", "sample of the side that ends the turn", _of_latency("index")),
        column("audit", "flag", "an audited iteration: never part of the statistics", _of_latency("audit")),
        column("series", "text", "what was timed: latency, ttft, inter_token, ...", lambda row: row.item[3].series),
        column("rank", "whole", "rank that reported it", lambda row: row.item[3].rank),
        *place_columns(_of_latency("side"), lambda row: row.item[3].rank),
        column("unit", "whole", "place of the unit of work within its series, turn and rank", _part(1)),
        column("latency_s", "number", "time of the unit of work", _part(2), unit="s"),
    ),
    _latency_rows,
    needs="samples",
)
COUNTERS = DataTable(
    "counters",
    "one row for each count that a side of a pair reported of itself",
    (
        *_OF_A_PAIR,
        column("side", "text", _SIDE, _part(0)),
        column("name", "text", "name of the counter", _part(1)),
        column("value", "number", "its value", _part(2)),
    ),
    _counter_rows,
    needs="pairs",
)
FINDINGS = DataTable(
    "findings",
    "one row for each finding of a run's host, each finding that affects a case, and each incident of a pair",
    (
        *_OF_A_PAIR,
        column("side", "text", _SIDE, _part(3)),
        column("kind", "text", "host (of the run as a whole), case, thermal, foreign_gpu_process, ...", _part(0)),
        column("id", "text", "id of the probe that found it; null for an incident", _part(1)),
        column("level", "text", "warn or unfit; null for an incident", _part(2)),
        column("voids", "flag", "the pair does not count because of it", _part(4)),
        column("detail", "text", "the finding in words", _part(5)),
    ),
    _finding_rows,
    needs="pairs",
)
TELEMETRY = DataTable(
    "telemetry",
    "one row for each reading of clocks, power and counters in a pair, and for each count of what a side used",
    (
        *_OF_A_PAIR,
        _VOID,
        column("mark", "text", "a side's turns, a phase (warm-up of before, energy of before), or all readings",
               _part(0)),
        column("kind", "text", "median of the readings, sum over the side's turns, start of the pair, share of a core",
               _part(1)),
        column("name", "text", "sm_clock_mhz, power_w, gpu1_temperature_c, minor_faults, iterations, ...", _part(2)),
        column("value", "number", "its value, in the unit at the end of the name", _part(3)),
    ),
    _telemetry_rows,
    needs="pairs",
)  # fmt: skip
MEASURED = (RUNS, CASES, COMPARISONS, SAMPLES, LATENCIES, COUNTERS, FINDINGS, TELEMETRY)


def _picked(table: DataTable, *names: str) -> tuple[DataColumn, ...]:
    return tuple(next(c for c in table.columns if c.name == name) for name in names)


LEAD = (
    *_picked(RUNS, "run", "started", "host_id", "hostname", "git_sha", "git_diff"),
    *_picked(CASES, "scenario", "case", "status", "replicate", "precision"),
)
"""Columns that an export puts in front of each table of cases."""
