"""Reference runs, which are run folders that git keeps, and the newest record of every case, here or there.

What must not live here: judging a claim, writing, printing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from aiperf.analysis.book import Measured
from aiperf.analysis.metrics import speed_metric
from aiperf.analysis.over_hosts import CaseOverHosts, predictions
from aiperf.analysis.recompute import recompute
from aiperf.analysis.rows import row_fields
from aiperf.errors import UserError
from aiperf.paths import config_folder
from aiperf.records import CaseRecord, RunRecord
from aiperf.records.profiled import Profile
from aiperf.store.counted import COUNTED, read_counted
from aiperf.store.history import Entry, entries
from aiperf.store.profiles import PROFILES, read_profiles
from aiperf.store.read import Damaged, StoredRun, find_runs, no_collection, open_run, read_pairs
from aiperf.store.same import same_results
from aiperf.store.write import file_name

REFERENCE = "reference"
_Ahead = Mapping[tuple[str, str, str, str], CaseOverHosts]
"""(run, case, side, against) -> what hosts of its kind predict for another one."""


@dataclass(frozen=True)
class Measurement:
    """The newest stored record of a case."""

    run: RunRecord
    record: CaseRecord
    """Without samples."""
    folder: Path
    """Of the run."""
    reference: bool
    """Whether it is a reference run rather than one of the user's own."""
    another: Mapping[tuple[str, str], CaseOverHosts] = field(default_factory=dict)
    """(side, against) -> what hosts of its kind predict for another one, where they are enough."""


def reference_folder(results: Path) -> Path:
    """Where reference runs lie: in ``results``, else in the project's own results."""
    own = results / REFERENCE
    return own if own.is_dir() else config_folder().parent / "results" / REFERENCE


def all_concluded_again(
    run: StoredRun, records: Sequence[CaseRecord]
) -> tuple[tuple[CaseRecord, ...], tuple[str, ...]]:
    """``records`` with results computed afresh, and a sentence for each of which this does not confirm what was stored.

    One whose samples cannot be read stays as it is stored.
    """
    fresh, problems = [], []
    for record in records:
        try:
            with no_collection():
                again = _concluded_again(run, record)
        except UserError as error:
            again = record
            problems.append(f"{record.case.id} cannot be recomputed: {error.faults[0].where}: {error.faults[0].what}")
        if not same_results(record.results, again.results):
            problems.append(f"{record.case.id} differs from what was stored")
        fresh.append(again)
    return tuple(fresh), tuple(problems)


def _concluded_again(run: StoredRun, record: CaseRecord) -> CaseRecord:
    """A record without results stays as it is. Raises UserError."""
    if not record.results:
        return record
    pairs = read_pairs(run, record)
    return replace(record, results=recompute(record, pairs, width=record.width, scale=record.scale))


def measured_entries(results: Path, *, scenarios: Sequence[str] = ()) -> tuple[tuple[Entry, ...], tuple[Damaged, ...]]:
    """What was measured of these scenarios or cases, or of all, in order of time; and what is damaged. Gated commits,
    calibration sessions and other tools' numbers are left out."""
    found = [entries(results, scenario=name) for name in scenarios or ("",)]
    return (
        tuple(entry for history in found for entry in history.entries if _counts(entry)),
        tuple(damaged for history in found for damaged in history.damaged),
    )


def newest_measured(results: Path, *, host_id: str) -> tuple[tuple[Measured, ...], tuple[Damaged, ...]]:
    """Headlines of the newest record of every case, and of the newest that ran on a GPU where that is another one: of
    this host, else of a reference run; and what is damaged.

    Every side is shown against each that it was compared with: the first one and the one before it. Gated commits,
    calibration sessions and other tools' numbers are no measurement of a scenario and are left out.
    """
    own, references = entries(results), entries(reference_folder(results))
    kept = [(entry, False) for entry in references.entries if _counts(entry)]
    kept += [(entry, True) for entry in own.entries if _counts(entry) and entry.record.host_id == host_id]
    newest = {entry.record.case.id: (entry, here) for entry, here in kept}
    on_gpu = {entry.record.case.id: (entry, here) for entry, here in kept if entry.record.case.needs.gpus}
    older = (found for case, found in on_gpu.items() if found != newest[case])
    ahead = _predictions((*references.entries, *own.entries))
    told = (_told(entry, ahead, here=here, newest=True) for entry, here in newest.values())
    others = (_told(entry, ahead, here=here, newest=False) for entry, here in older)
    return tuple(chain.from_iterable((*told, *others))), (*own.damaged, *references.damaged)


@dataclass(frozen=True)
class Profiled:
    """A record and the newest profile of its case, of the same scenario file."""

    record: CaseRecord
    """Without samples."""
    profile: Profile
    origin: str = ""
    """Where the profile was made; empty without one."""


def profiled_record(found: Measured, results: Path) -> Profiled | None:
    """The record that ``found`` is of, with a profile of ``results``, else with the counters that are kept beside the
    reference runs; None if it cannot be read. Raises UserError for damaged counters."""
    folder = results if found.here else reference_folder(results)
    try:
        records, _ = open_run(folder / found.run, results=folder).read_cases()
    except UserError:
        return None
    record = next((record for record in records if record.case.id == found.case), None)
    return None if record is None else _own_profile(record, results) or _kept_counters(record, results)


def _own_profile(record: CaseRecord, results: Path) -> Profiled | None:
    name = Path(PROFILES) / f"{file_name(record.case)}.json"
    for run in reversed(find_runs(results)):
        profiles = read_profiles(run, spans=False)[0] if (run / name).is_file() else ()
        for one in profiles:
            if one.case == record.case.id and one.facts.get("scenario") == record.case.scenario_hash:
                return Profiled(record, one, f"run {run.name}")
    return None


def _kept_counters(record: CaseRecord, results: Path) -> Profiled:
    own = (record.case.id, record.case.scenario_hash)
    kept = read_counted(reference_folder(results) / COUNTED)
    lines = [line for line in kept if (line.case, line.scenario_hash) == own]
    profile = Profile(record.case.id, mechanism=tuple(line.held for line in lines))
    return Profiled(record, profile, "; ".join(dict.fromkeys(line.origin for line in lines)))


def latest_measurements(scenario: str, results: Path) -> tuple[tuple[Measurement, ...], tuple[Damaged, ...]]:
    """The newest record of every case of a scenario: of ``results`` or, if it was never measured there, of the
    reference runs; and the damaged files that were passed over."""
    own, stored = entries(results, scenario=scenario), entries(reference_folder(results), scenario=scenario)
    folder, found, damaged = results, [e for e in own.entries if _counts(e)], own.damaged
    if not found:
        folder = reference_folder(results)
        found, damaged = [e for e in stored.entries if _counts(e)], (*damaged, *stored.damaged)
    newest = {entry.record.case.id: entry for entry in found}
    reference, ahead = folder != results, _predictions((*stored.entries, *own.entries))
    return tuple(
        Measurement(
            e.run, e.record, folder / e.run.run, reference,
            {key[2:]: over for key, over in ahead.items() if key[:2] == (e.run.run, e.record.case.id)},
        )
        for e in newest.values()
    ), damaged  # fmt: skip


def recorded_seconds(results: Path) -> dict[str, list[float]]:
    """Scenario -> seconds of each of its cases at standard precision, by its newest record, of whichever host."""
    stored = (*entries(reference_folder(results)).entries, *entries(results).entries)
    kept = [entry.record for entry in filter(_counts, stored) if entry.record.precision == "standard"]
    newest = {record.case.id: record for record in kept}
    seconds: dict[str, list[float]] = defaultdict(list)
    for record in newest.values():
        seconds[record.case.scenario].append(record.seconds)
    return dict(seconds)


def _counts(entry: Entry) -> bool:
    case = entry.record.case
    made = case.rebuilt or "@" in case.id or any(side.slowdown for side in case.sides)
    return entry.record.status == "measured" and bool(entry.record.results) and not made


def _predictions(found: Iterable[Entry]) -> _Ahead:
    measured = sorted(filter(_counts, found), key=lambda entry: entry.record.started)
    return predictions((entry.run, entry.record) for entry in measured)


def _told(entry: Entry, ahead: _Ahead, *, here: bool, newest: bool) -> Iterable[Measured]:
    """What a record says by the metric that its scenario judges, of speed, and of the memory of its device."""
    run, record, case = entry.run, entry.record, entry.record.case
    wanted = (case.measure.metric, speed_metric(case), case.memory_metric)
    for result in record.results:
        first = result.against == case.sides[0].name
        if result.comparison.metric in wanted:
            yield Measured(
                **row_fields(record, result),
                first=first,
                last=result.side == case.sides[-1].name,
                expect=case.expect if first and result.primary else "",
                host=_host(run.host) or record.host_id,
                here=here,
                run=run.run,
                scenario_hash=case.scenario_hash,
                gpu=bool(case.needs.gpus),
                newest=newest,
                another=ahead.get((run.run, case.id, result.side, result.against)) if result.primary else None,
            )


def _host(host: Mapping[str, Any]) -> str:
    """The class of machine: its GPU, else its CPU."""
    gpus = [str(g.get("name")) for g in host.get("gpus") or () if isinstance(g, Mapping)]
    return gpus[0] if gpus else str(host.get("cpu_model") or "")
