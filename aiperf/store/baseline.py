"""Baseline files: what earlier runs found, promoted on purpose, sorted and rounded so that people can review a change.

What must not live here: holding anything against a baseline, printing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.analysis.differences import differing
from aiperf.analysis.gate_base import Baseline, BaselineEntry, BaselineSession, Promotion, session_of
from aiperf.errors import Fault, NoBaseline, UserError, usage
from aiperf.records import CaseRecord, RunRecord
from aiperf.store.codec import CorruptRecord, dump_json, from_plain
from aiperf.store.write import write_whole

VERSION = 2
_DIGITS = 7
"""Significant digits that are kept: finer than any interval, short enough to read."""
_SHOWN = 5


@dataclass(frozen=True)
class PromotedRun:
    """One stored run to be promoted."""

    run: RunRecord
    records: tuple[CaseRecord, ...]
    tau: Mapping[str, float]
    """Case -> noise between sessions that this host's calibration knows."""

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """Fields of the host that it was measured on."""
        found = self.run.host.get("fingerprint")
        return found if isinstance(found, Mapping) else {}


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file. Raises UserError when it is missing, damaged, or of a newer aiperf."""
    try:
        plain = json.loads(path.read_bytes().decode("utf-8"))
        if not isinstance(plain, dict) or type(plain.get("baseline_version")) is not int:
            raise CorruptRecord("has no baseline_version")
        version = plain.pop("baseline_version")
        if version > VERSION:
            raise usage(
                f"was written as version {version}; this aiperf reads up to {VERSION}.", "Update aiperf.", str(path)
            )
        return from_plain(Baseline, _in_words_of_2(plain) if version == 1 else plain)
    except FileNotFoundError:
        hint = "Write one: aiperf gate --promote RUN [RUN ...] --baseline FILE --why TEXT."
        raise NoBaseline(Fault(str(path), "does not exist.", hint)) from None
    except OSError as error:
        raise usage(f"cannot be read: {error.strerror}.", where=str(path)) from None
    except (ValueError, RecursionError, CorruptRecord) as error:
        hint = "Restore the committed version, or promote again into a new file."
        raise usage(f"is not a baseline: {error}.", hint, str(path)) from None


def _in_words_of_2(plain: dict[str, Any]) -> dict[str, Any]:
    """A file of version 1, whose entries called their sessions sittings."""
    entries = plain.get("entries")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return plain
    renamed = [{"sessions" if k == "sittings" else k: v for k, v in entry.items()} for entry in entries]
    return {**plain, "entries": renamed}


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline, whole or not at all. Raises UserError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, encode_baseline(baseline))
    except OSError as error:
        raise usage(f"cannot be written: {error.strerror}.", "Choose another file.", str(path)) from None


def encode_baseline(baseline: Baseline) -> bytes:
    """The file's bytes: the same for the same baseline, keys in order, numbers rounded, a newline at the end."""
    entries = sorted(baseline.entries, key=lambda e: (e.case, e.side, e.metric))
    entries = [replace(e, sessions=tuple(_rounded(s) for s in e.sessions)) for e in entries]
    tau = {case: _round(value) for case, value in sorted(baseline.tau.items())}
    ordered = replace(baseline, entries=tuple(entries), tau=tau, must_match=_sorted(baseline.must_match))
    return dump_json({"baseline_version": VERSION, **ordered.__dict__})


def promote(sessions: Sequence[PromotedRun], *, who: str, why: str, when: str, into: Baseline | None) -> Baseline:
    """A baseline with these sessions added to what it holds.

    Raises UserError with everything that speaks against it: no reason, other hosts, cases that failed, were invalid,
    were changed since, compare two commits, or are in it already.
    """
    faults = [] if why.strip() else [Fault("--why", "is empty.", "Say why these runs are the new baseline.")]
    faults += [] if who.strip() else [Fault("--who", "is empty.", "Say who promotes: git knows no user.name here.")]
    for session in sessions:
        faults += _against_session(session)
    first = into.must_match if into is not None else dict(_must_match(sessions[0]))
    faults += [fault for session in sessions for fault in _against_host(session, first, into)]
    held = into or Baseline(sessions[0].run.host_id, first)
    faults += _against_known(sessions, held)
    entries = {(e.case, e.side, e.metric): e for e in held.entries}
    for session in sessions:
        faults += _add(session, entries)
    if faults:
        raise UserError(faults)
    git = sessions[-1].run.git
    runs = tuple(session.run.run for session in sessions)
    promotion = Promotion(who.strip(), why.strip(), when, git.get("sha", ""), git.get("diff", ""), runs)
    tau = dict(held.tau)
    for session in sessions:
        for case, value in session.tau.items():
            tau[case] = max(value, tau.get(case, 0.0))
    return replace(held, promotions=(*held.promotions, promotion), entries=tuple(entries.values()), tau=tau)


def _against_session(session: PromotedRun) -> list[Fault]:
    """What is wrong with a run by itself."""
    where, faults = session.run.run, []
    if session.run.status != "finished":
        faults.append(Fault(where, f"the run is {session.run.status}, not finished.", "Promote a finished one."))
    if not any(record.results for record in session.records):
        faults.append(Fault(where, "the run has no result.", "Promote one that measured something."))
    for record in session.records:
        if wrong := _wrong(record):
            faults.append(Fault(where, f"{record.case.id} {wrong}.", "A baseline takes good results only."))
    return faults


def _wrong(record: CaseRecord) -> str:
    if record.status == "skipped":
        return ""
    if record.status != "measured":
        return f"is {record.status}"
    if record.stop == "unfit":
        return "was measured on a host that disturbed it"
    if any(r.verdict.word == "invalid" for r in record.results):
        return "is invalid"
    if not record.case.scenario_hash:
        return "has no scenario file, so no gate can measure it again"
    if any(side.ref for side in record.case.sides):
        return "compares commits, not the sides of its scenario"
    return ""


def _against_host(session: PromotedRun, must_match: Mapping[str, Any], into: Baseline | None) -> list[Fault]:
    found = differing({"must_match": must_match}, session.fingerprint)
    if not found:
        return []
    apart = "; ".join(f"{d.name}: {d.then} there, {d.now} here" for d in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    other = "the baseline" if into is not None else "the first run"
    hint = "Keep one baseline file for each kind of host."
    return [Fault(session.run.run, f"was not measured on the same kind of host as {other}: {apart}{more}.", hint)]


def _against_known(sessions: Sequence[PromotedRun], held: Baseline) -> list[Fault]:
    known = {s.run for e in held.entries for s in e.sessions}
    faults = []
    for session in sessions:
        if session.run.run in known:
            faults.append(
                Fault(session.run.run, "is already in the baseline.", "Each run is one session: leave it out.")
            )
        known.add(session.run.run)
    return faults


def _must_match(session: PromotedRun) -> Mapping[str, Any]:
    found = session.fingerprint.get("must_match")
    return found if isinstance(found, Mapping) else {}


def _add(session: PromotedRun, entries: dict[tuple[str, str, str], BaselineEntry]) -> list[Fault]:
    """Add every result of a run to ``entries``, in place; what its scenarios contradict comes back as faults."""
    faults = []
    stale = {
        record.case.id
        for record in session.records
        for entry in entries.values()
        if entry.case == record.case.id and entry.scenario_hash != record.case.scenario_hash
    }
    for case in sorted(stale):
        what = f"{case} differs from the scenario in the baseline: its file has changed."
        faults.append(Fault(session.run.run, what, "Promote the new runs into a new file."))
    for record in session.records:
        base = record.case.sides[0].name
        for result in record.results:
            key = (record.case.id, result.side, result.comparison.metric)
            found = session_of(result, run=session.run.run, when=session.run.started, precision=record.precision)
            if result.against != base or found is None or not math.isfinite(found.se):
                continue
            entries[key] = _with(entries.get(key), record, result.comparison.unit, result.comparison.better, key, found)
    return faults


def _with(
    entry: BaselineEntry | None, record: CaseRecord, unit: str, better: Any, key: tuple[str, str, str],
    found: BaselineSession,
) -> BaselineEntry:  # fmt: skip
    if entry is not None:
        return replace(entry, sessions=(*entry.sessions, found))
    case = record.case
    return BaselineEntry(case.id, case.scenario, case.scenario_hash, key[1], key[2], unit, better, (found,))


def _rounded(session: BaselineSession) -> BaselineSession:
    return replace(session, ratio=_round(session.ratio), se=_round(session.se), value=_round(session.value))


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _sorted(value: Any) -> Any:
    """Mappings with their keys in order, all the way down."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value
