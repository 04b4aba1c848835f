"""One stored case in plain sentences: what ran, how, what was found, and why this verdict and not its neighbour.

What must not live here: deciding, reading files, tables.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from aiperf.analysis.notes import note_sentences
from aiperf.paths import YAML_SUFFIXES, scenario_folder
from aiperf.records import Case, CaseRecord, Incident, Limit, Result, RunRecord, Side
from aiperf.records.profiled import Profile
from aiperf.report.book_words import row_sentences
from aiperf.report.explain_clock import clock_sentences
from aiperf.report.explain_facts import fact_sentences
from aiperf.report.explain_gpu import gpu_sentences
from aiperf.report.explain_host import meanwhile_sentences, placement_sentences, rank_sentences
from aiperf.report.explain_outside import outside_sentences
from aiperf.report.layout.text import clean_keep, wrap
from aiperf.report.mechanism import mechanism_sentences
from aiperf.report.numbers import clean, format_interval, format_value
from aiperf.report.output_changes import change_sentences
from aiperf.report.program_facts import program_sentences
from aiperf.report.reasons import result_sentences
from aiperf.report.scenarios import check_sentence, measure_sentences, value_text
from aiperf.report.traceback import own_lines
from aiperf.report.views.run_rows import failure_sentence
from aiperf.scenario.text import axis_text, ref_text
from aiperf.settings import options_again
from aiperf.units import format_duration, format_percent, format_rate, format_time

_OF_A_CHECKOUT = ("PYTHONPATH", "AIPERF_COMMIT", "AIPERF_REPOSITORY")
_LAST_LINES = 12
"""Of what a failed process wrote."""
_STOPS = {
    "verdict": "every verdict was reached",
    "precision": "the interval reached the requested width",
    "budget": "the next look did not fit in the time left",
    "max_pairs": "the maximum number of pairs was reached",
    "futility": "a verdict was too unlikely even with more pairs",
    "failure": "a launch failed",
    "unfit": "the host disturbed too many pairs",
}
_LEAST_SHARE = 0.02
"""Share of a pair's time from which a phase is named."""
_OF_ALL_CPUS = "cpu_"
"""Begin of the names of peaks that are measured with every CPU at work."""
_LISTED = 3
"""How many failures are listed one by one."""
_FINDINGS = "Host findings"


@dataclass(frozen=True)
class CaseBlock:
    """Sentences about a case under one heading."""

    key: str
    heading: str
    sentences: Sequence[str]


def explain_case(run: RunRecord, record: CaseRecord, *, profile: Profile | None = None, width: int = 100) -> str:
    """Explain one case of ``run``; ``record`` may be without samples. Lines have at most ``width`` cells."""
    texts = []
    for block in case_blocks(run, record, profile=profile):
        if block.sentences or block.key == "title":
            lines = [block.heading] * bool(block.heading)
            lines += [f"  {sentence}" if block.heading else sentence for sentence in block.sentences]
            texts.append("\n".join(part for line in lines for part in wrap(clean_keep(line), width, indent="    ")))
    return "\n\n".join(texts) + "\n"


def case_blocks(run: RunRecord, record: CaseRecord, *, profile: Profile | None = None) -> list[CaseBlock]:
    """All blocks of a case in their order, those without sentences included."""
    case, imported = record.case, record.status == "imported"
    return [
        CaseBlock("title", case.id if case.title == case.scenario else f"{case.id}: {case.title}", []),
        CaseBlock("why", "", [f"Why: {case.why}"] if case.why else []),
        CaseBlock("sides", "What was run", [] if imported else side_sentences(case)),
        CaseBlock("outcome", "Outcome", outcome_sentences(record) + _last_words(record)),
        CaseBlock("measured", "How it was measured", _imported(record) if imported else _measured(record)),
        CaseBlock("outside", "Outside the timed steps, median per call", outside_sentences(record)),
        CaseBlock("checks", "What was checked", [] if imported else _checks(record)),
        *(
            CaseBlock(
                "result",
                f"{r.comparison.metric}: {r.side} vs {r.against}",
                result_sentences(r, word=record.outcome(r), said=_said(record, r)) + clock_sentences(record, r),
            )
            for r in record.results
        ),
        CaseBlock("mechanism", "What explains it", [] if imported else mechanism_sentences(record, profile)),
        CaseBlock("gpu", "What the GPU did", gpu_sentences(record)),
        CaseBlock("facts", "What the sides report about themselves", [] if imported else fact_sentences(record)),
        CaseBlock("limits", "The limit", _limits(run, record)),
        CaseBlock("host", "Host activity during the measurement", [] if imported else meanwhile_sentences(record)),
        CaseBlock("incidents", "Incidents and notes", _disturbances(record)),
        _findings(run, record),
        CaseBlock("book", "The book", row_sentences(case.book, record)),
        CaseBlock("reproduce", "To reproduce it", reproduce(run, record)),
    ]


def _said(record: CaseRecord, result: Result) -> str:
    """Why the primary metric of the same two sides has its verdict, where that stands above ``result``."""
    before = record.results[: record.results.index(result)]
    of_sides = [r for r in before if r.primary and (r.side, r.against) == (result.side, result.against)]
    return of_sides[0].verdict.sentence if of_sides else ""


def side_sentences(case: Case) -> list[str]:
    """Say what each side does, what they share, and the keys in which they differ."""
    views = {side.name: _view(side, case) for side in case.sides}
    keys = list(dict.fromkeys(key for view in views.values() for key in view))
    shared = [k for k in keys if len({value_text(v.get(k)) for v in views.values()}) == 1]
    differing = [k for k in keys if k not in shared]
    runs = {
        side.name: shlex.join(side.command) if side.command else _in_checkout(side, side.workload)
        for side in case.sides
    }
    first = next(iter(runs.values()))
    if len(set(runs.values())) == 1:
        given = (
            f" with {', '.join(f'{k} {value_text(views[case.sides[0].name][k])}' for k in shared)}" if shared else ""
        )
        said = [f"Every side runs {first}{given}."]
    else:
        said = [f"{name} runs {what}." for name, what in runs.items()]
    prepared = {side.name: shlex.join(side.prepare) for side in case.sides if side.prepare}
    said += [f"{name} is prepared before each run by {what}." for name, what in prepared.items()]
    for key in differing:
        values = ", ".join(f"{name}: {value_text(view[key]) if key in view else '–'}" for name, view in views.items())
        said.append(f"They differ in {key} ({values}).")
    return (
        said if differing or len(set(runs.values())) > 1 else [*said, "They do not differ: this is a negative control."]
    )


def reproduce(run: RunRecord, record: CaseRecord) -> list[str]:
    """Give the commands that measure this case again."""
    said = [f"The run: {shlex.join(['aiperf', *run.argv[1:]])}"] if run.argv else []
    command = reproduce_command(run, record)
    said += [f"The case: {command}"] if command else []
    if run.nodes:
        count = len(run.nodes) + 1
        said.append(f"It ran on {count} nodes: use --slurm -N {count}, or a launcher (--launcher env).")
    return said if run.known else [*said, "The run's own record is damaged: its seed and command line are unknown."]


def reproduce_command(run: RunRecord, record: CaseRecord) -> str:
    """Give the one command that measures this case again; empty when there is none."""
    by_file = record.case.path.endswith(YAML_SUFFIXES)
    if record.status != "imported" and (by_file or not (record.case.is_command or record.case.sides[0].plain)):
        # The run's seed: each case draws its own from it.
        gated = run.command == "gate" and bool(record.case.sides[0].ref)
        words = ["aiperf", *(_gate_words(record.case) if gated else ["run", _named(record.case)])]
        words += [] if record.strict is gated else ["--strict" if record.strict else "--no-strict"]
        precision = _typed(run, "--precision") or record.precision
        words += ["--precision", precision, *(["--seed", str(run.seed)] if run.known else [])]
        words += [word for key, value in record.case.axes.items() for word in ("--only", f"{key}={axis_text(value)}")]
        return shlex.join([*words, *_options(run, gated=gated)])
    return ""


def _options(run: RunRecord, *, gated: bool) -> list[str]:
    """What else changes how a case is measured. A session of a gate stored its share of the budget that was typed."""
    given = dict(run.settings)
    typed = _typed(run, "--budget") if gated else ""
    words = ["--budget", typed] if typed else []
    words += options_again({**given, "budget": None} if gated else given)
    return [*words, *(["--columns", "energy"] if given.get("energy_seconds") and not gated else [])]


def _typed(run: RunRecord, option: str) -> str:
    """The value that an option was typed with; empty where it was not."""
    words = iter(run.argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else next(words, "")
    return ""


def _gate_words(case: Case) -> list[str]:
    base, head = (side.ref for side in case.sides)
    return ["gate", case.path, "--against", base, *(["--head", head] if head != "working-tree" else [])]


def _named(case: Case) -> str:
    """Name the scenario as ``aiperf run`` finds it: by name when it is shipped, else by its path."""
    shipped = not case.path or Path(case.path).resolve().is_relative_to(scenario_folder().resolve())
    return case.scenario if shipped else case.path


def _view(side: Side, case: Case) -> dict[str, Any]:
    """Everything a side may differ in; swept values as the user wrote them."""
    shared = {k for k in side.params if len({value_text(s.params.get(k)) for s in case.sides}) == 1}
    params = {k: case.axes.get(k, v) if k in shared else v for k, v in side.params.items()}
    view: dict[str, Any] = {**params, **_of_setup(side, case), **{f"env {k}": v for k, v in _env(side).items()}}
    if side.ranks != 1 or any(s.ranks != 1 for s in case.sides):
        view["ranks"] = side.ranks
    view |= {key: value for key, value in (("python", side.python), ("ref", ref_text(side.ref))) if value}
    return view


def _of_setup(side: Side, case: Case) -> dict[str, Any]:
    """The function that makes the arguments, and what it is given."""
    if not side.setup:
        return {}
    return {
        **{name: case.axes.get(name, value) for name, value in side.setup_params.items()},
        "setup": _in_checkout(side, side.setup),
    }


def _env(side: Side) -> dict[str, str]:
    """Variables of a side, without those that a checkout brings: its ref says the same."""
    return {name: value for name, value in side.env.items() if not (side.ref and name in _OF_A_CHECKOUT)}


def _in_checkout(side: Side, path: str) -> str:
    """``path`` within the checkout of a side that names a ref; else as it is."""
    root = side.env.get("PYTHONPATH", "").partition(os.pathsep)[0] if side.ref else ""
    return path.removeprefix(f"{root}/") if root else path


def outcome_sentences(record: CaseRecord) -> list[str]:
    """Say why a case has no verdicts, or not all of them; nothing for one that was measured to its end."""
    if record.status == "skipped":
        return [f"Skipped: {record.skip_reason}", *([f"To run it: {record.skip_fix}"] if record.skip_fix else [])]
    if record.status == "failed":
        failed = failure_sentence(record.failure, pointing=False) if record.failure else "no reason was recorded"
        return [f"Failed: {failed}"]
    return ["The case was interrupted; what it measured until then is below."] if record.status == "interrupted" else []


def stderr_lines(record: CaseRecord) -> list[str]:
    """The last lines that the failed process wrote to stderr; of a traceback the frames of the user's code."""
    return own_lines(record.failure.stderr_tail) if record.failure else []


def stdout_lines(record: CaseRecord) -> list[str]:
    """The last lines that the failed program printed."""
    return [clean(line) for line in record.failure.stdout_tail.splitlines()] if record.failure else []


def _last_words(record: CaseRecord) -> list[str]:
    if record.status != "failed":
        return []
    streams = (("stderr", stderr_lines(record)), ("printed", stdout_lines(record)))
    return [f"  {name}: {line}" for name, lines in streams for line in lines[-_LAST_LINES:] if line]


def _measured(record: CaseRecord) -> list[str]:
    if not record.pairs:
        return []
    used = [p for p in record.pairs if not p.void]
    firsts = Counter(p.order[0] for p in used if p.order)
    order = ", ".join(f"{side} went first in {count}" for side, count in sorted(firsts.items()))
    voided = len(record.pairs) - len(used)
    again = f"; {voided} more were voided" if voided else ""
    said = [f"{len(used)} pairs{again}. {order}." if order else f"{len(used)} pairs{again}."]
    said += measure_sentences(
        record.case.measure,
        gpus=record.case.needs.gpus,
        programs=record.case.is_command,
        metrics=record.case.program_metrics,
    )
    said += program_sentences(record)
    said += placement_sentences(record)
    said += rank_sentences(record)
    said += [_span(record), *_phases(record)]
    unsteady = Counter(r.side for p in used for r in p.runs if r.warmup and not r.warmup.steady)
    said += [f"{side} was not steady after its warm-up in {n} of {len(used)} pairs." for side, n in unsteady.items()]
    return said


def _span(record: CaseRecord) -> str:
    # That it was interrupted stands above.
    said = record.stop and record.stop != "interrupted"
    stop = f" It ended because {_STOPS.get(record.stop, record.stop)}." if said else ""
    own = (
        f", including {format_duration(record.harness_seconds)} of aiperf overhead"
        if record.harness_seconds >= 0.5
        else ""
    )
    return (
        f"Precision {record.precision}, seed of this case {record.seed}; {format_duration(record.seconds)}{own}.{stop}"
    )


def _phases(record: CaseRecord) -> list[str]:
    """Say where the time of a pair went; what is too short to matter is left out."""
    timed = [pair for pair in record.pairs if pair.spent]
    if not timed:
        return []
    whole = median(pair.seconds for pair in timed)
    phases = {name: median(pair.spent.get(name, 0.0) for pair in timed) for name in timed[0].spent}
    parts = [f"{name} {format_time(s)}" for name, s in phases.items() if s >= _LEAST_SHARE * whole]
    return [f"The median pair took {format_time(whole)}: {', '.join(parts)}."]


def _imported(record: CaseRecord) -> list[str]:
    """Say what another tool's file holds of one side."""
    said = [f"Measured by another tool; its replicate is the {record.replicate}, with {len(record.pairs)} in its file."]
    for summary in record.summaries:
        spread = "its spread is not known" if summary.log_sd is None else f"spread {format_percent(summary.log_sd)}"
        said.append(f"{summary.side}: {format_value(summary.value, 's')}, {spread}.")
    return [*said, "aiperf checked no outputs and compared no sides."]


def _checks(record: CaseRecord) -> list[str]:
    if not record.pairs:
        return []
    said = [check_sentence(record.case.check)]
    if any(side.plain for side in record.case.sides) and record.case.check.kind in ("bitwise", "tolerance"):
        exact = "" if record.case.check.kind == "bitwise" else ": floats within the tolerance, all else exactly"
        said.append(f"What each call returned was compared by value{exact}.")
    checks = [c for p in record.pairs if not p.void for c in p.checks]
    for compared in dict.fromkeys(c.compared for c in checks):
        same = [c for c in checks if c.compared == compared]
        count = sum(c.audits for c in same)
        audits = f", {count} audit{'s' if count != 1 else ''}" if count else ""
        errors = [c.max_error for c in same if c.max_error is not None]
        largest = f", largest error {max(errors):.3g}" if errors else ""
        said.append(f"{compared}{audits}: passed in {sum(c.passed for c in same)} of {len(same)} pairs{largest}.")
    said += [f"{sentence}." for sentence in change_sentences(checks)]
    said += [f"Not passed: {c.detail}" for c in checks if not c.passed and c.detail][:_LISTED]
    return said


def _limits(run: RunRecord, record: CaseRecord) -> list[str]:
    said = [_limit(limit) for limit in record.limits]
    every, bound = len(run.host.get("cpus") or ()), max((len(p.cpus) for p in record.pairs), default=0)
    if 0 < bound < every and any(limit.peak_name.startswith(_OF_ALL_CPUS) for limit in record.limits):
        said.append(f"This peak is for all {every} CPUs of the host; the sides were bound to {bound}.")
    return said


def _limit(limit: Limit) -> str:
    peak = format_rate(limit.peak, limit.unit)
    held = ""
    if limit.surely is not None and limit.share > 1:
        held = f" ({format_percent(limit.surely)} not counting data that may still be in a cache)"
    return (
        f"{limit.side} reached {format_percent(limit.share)} of the peak {limit.peak_name}{held}; "
        f"the peak measured on this host is {peak}."
    )


def _disturbances(record: CaseRecord) -> list[str]:
    said = list(_incidents(i for p in record.pairs for i in p.incidents))
    retried = [f for f in record.failures if f != record.failure]
    said += [f"An earlier launch failed: {failure_sentence(f, pointing=False)}" for f in retried[:_LISTED]]
    if len(retried) > _LISTED:
        said.append(f"{len(retried) - _LISTED} more launches failed earlier.")
    return said + [f"Note: {note}" for note in note_sentences(record)]


def _findings(run: RunRecord, record: CaseRecord) -> CaseBlock:
    """Findings that touch this case where that was judged, else all of the run."""
    if run.known and run.settings.get("host_check", "off") == "off":
        return CaseBlock("run_findings", _FINDINGS, [f"Finding, {clean(str(finding))}" for finding in run.findings])
    said = [f"Finding, {clean(str(finding))}" for finding in record.findings]
    if not said and not run.known:
        said = ["The host findings are unknown: the run's own record is damaged."]
    elif not said and record.pairs:
        said = ["No host finding affects this case."]
    elif said and (result := next((r for r in record.results if r.primary), None)) is not None:
        span = format_interval(result.comparison.low, result.comparison.high)
        said += [
            f"Findings do not change the verdict ({record.outcome(result)}): what differed from pair to pair is in the "
            f"interval ({span}) already; what favoured one side in every pair would not show."
        ]
        if any(finding.level == "unfit" for finding in record.findings):
            said.append("With --host-check strict, a case that the host is unfit for is not measured.")
    return CaseBlock("findings", _FINDINGS, said)


def _incidents(incidents: Iterable[Incident]) -> list[str]:
    groups: dict[tuple[str, str, bool], list[Incident]] = {}
    for incident in incidents:
        groups.setdefault((incident.kind, incident.side, incident.voids), []).append(incident)
    return [_incident(group) for group in groups.values()]


def _incident(group: Sequence[Incident]) -> str:
    one = group[0]
    times = f" ({len(group)} times)" if len(group) > 1 else ""
    side = f" on {one.side}" if one.side else ""
    void = "; the pair was voided" if one.voids else ""
    return f"{one.kind.replace('_', ' ')}{side}{times}: {one.detail}{void}."
