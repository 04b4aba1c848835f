"""The sentences of the notes on a case, one per code.

What must not live here: deciding whether a case gets a note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from aiperf.records import CaseRecord, Note, NoteCode
from aiperf.units import format_bytes, format_duration, format_percent, format_time, significant


def note_sentence(note: Note) -> str:
    """Word one note. Raises KeyError when a value that its code needs is missing."""
    return _SENTENCES[note.code](note.values)


BELOW_THE_ROW: frozenset[NoteCode] = frozenset((
    "same_sides", "sliced", "uneven_runs", "first_run_slower", "prints_otherwise", "unequal_gpu_work", "memory_below",
    "no_cpu_time", "one_after_another",
))  # fmt: skip
"""Notes that stand below the row of a case, because its numbers are read wrong without them."""


def note_sentences(record: CaseRecord) -> tuple[str, ...]:
    """The notes of a record as sentences, in its order."""
    return tuple(note_sentence(note) for note in record.notes)


def _and(v: Mapping[str, Any]) -> str:
    return " and ".join(v["sides"])


def _budget_spent(v: Mapping[str, Any]) -> str:
    left = f"only {format_duration(max(v['left'], 0))} of {format_duration(max(v['budget'], 0))} is left"
    return f"{v['pairs']} pairs would take {format_duration(v['seconds'])} more, but {left}{_needed(v)}"


def _needed(v: Mapping[str, Any]) -> str:
    return f"; a decision would need about {v['needed']} pairs" if v["needed"] else ""


def _drift(v: Mapping[str, Any]) -> str:
    changes: dict[str, float] = v["changes"]
    if v["alike"]:
        sizes = [_size(change) for change in sorted(changes.values(), key=lambda change: abs(math.expm1(change)))]
        span = sizes[0] if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
        whole = "both sides" if len(changes) == 2 else f"all {len(changes)} sides"
        word = _direction(next(iter(changes.values())))
        return f"{whole} {word} by {span} over the case, by the same amount; the ratio within pairs did not change"
    moved = ", ".join(f"{side} {_direction(change)} by {_size(change)}" for side, change in changes.items())
    return f"{moved} over the case; the sides did not drift alike, so the ratio changed while it was measured"


def _direction(change: float) -> str:
    return "slowed" if change > 0 else "sped up"


def _size(change: float) -> str:
    return format_percent(abs(math.expm1(change)), 2)


def _invariant_moved(v: Mapping[str, Any]) -> str:
    return f"{v['name']} went from {v['was']} to {v['now']} between the starts of pairs {v['before']} and {v['after']}"


def _invariant_changed(v: Mapping[str, Any]) -> str:
    return f"{v['name']} changed {v['count']} times during the pairs, from {v['first']} at first to {v['last']}"


def _temperature(v: Mapping[str, Any]) -> str:
    cool, hot = f"{v['low']:g} °C when pair {v['cool']} began", f"{v['high']:g} °C when pair {v['hot']} began"
    return f"{v['gpu']} was at {cool} and at {hot}"


def _same_code(v: Mapping[str, Any]) -> str:
    first, *others = (f"{sides[0]} and {', '.join(sides[1:])}" for sides in v["groups"])
    also = "".join(f"; so are {group}" for group in others)
    return f"{first} are the same machine code, launched the same way: identical by construction{also}"


def _latencies_few(v: Mapping[str, Any]) -> str:
    lacking = ", ".join(f"{metric} needs {units}, {units - v['fewest']} more" for metric, units in v["lacking"].items())
    return f"a launch has only {v['fewest']} units of series {v.get('series', 'latency')}: {lacking}"


def _units_missing(v: Mapping[str, Any]) -> str:
    return (
        f"{v['metric']} needs {v['missing']} more units per launch: the {v['units']} of {v['side']} are correlated and "
        f"worth {v['worth']} independent ones; make each launch do more work"
    )


def _latency_bounds(v: Mapping[str, Any]) -> str:
    def span(low: float, high: float | None) -> str:
        return f"above {format_time(low)}" if high is None else f"{format_time(low)} to {format_time(high)}"

    parts = (
        f"{metric} {', '.join(f'{side} {span(*bounds)}' for side, bounds in sides.items())}"
        for metric, sides in v["metrics"].items()
    )
    return f"95 % bounds of a launch's percentile, from its units: {'; '.join(parts)}"


def _metric_zero(v: Mapping[str, Any]) -> str:
    means = ", ".join(f"{side} {_own_figure(mean, v['unit'])}" for side, mean in v["means"].items())
    return f"{v['metric']} of {_and(v)} was 0 in at least one launch, so there is no ratio with it; means: {means}"


def _memory_below(v: Mapping[str, Any]) -> str:
    size = format_bytes(v["bytes"])
    return (
        f"peak memory is not compared: for {' and '.join(v['sides'])} it is below {size}, the smallest measurable value"
    )


def _uneven_runs(v: Mapping[str, Any]) -> str:
    times = f"{format_time(v['s'])} of CPU time, the others {format_time(v['rest_s'])}"
    return f"{v['runs']} of {v['of']} runs of {v['side']} take {times}: not every run does the same work"


def _first_run_slower(v: Mapping[str, Any]) -> str:
    kind = " of CPU time" if v["kind"] == "cpu" else ""
    times = f"took {format_time(v['first_s'])}{kind}, but later ones {format_time(v['later_s'])}"
    return f"the first run of {v['side']}, which is not measured, {times}: they may reuse its results"


def _first_run_files(v: Mapping[str, Any]) -> str:
    first, later = format_bytes(v["first"]), format_bytes(v["later"])
    did = f"wrote {first}, but later ones at most {later}"
    if v["kind"] == "read_chars":
        did = f"read {first}, but later ones up to {later}"
    return f"the first run of {v['side']}, which is not measured, {did}: they may reuse its results"


def _inputs_unnamed(v: Mapping[str, Any]) -> str:
    who = f"the step of {_and(v)} uses" if len(v["sides"]) == 1 else f"the steps of {_and(v)} each use"
    if v["count"] == 1:
        what, it = f"an array that is not named as an input ({v['largest']})", "it"
    else:
        what, it = f"{v['count']} arrays that are not named as inputs (largest: {v['largest']})", "them"
    changes = f"no audit changes {it}, so answers that depend on {it} are not checked with other values"
    return f"{who} {what}; {changes}{_because(v)}"


def _prints_otherwise(v: Mapping[str, Any]) -> str:
    base, own = (f'"{text}"' if text else "nothing" for text in (v["base"], v["own"]))
    where = f"on line {v['line']}: {base} against {own}" if v["line"] else "far from the beginning"
    way = f" ({v['strict']} rejects this)" if v["strict"] else ""
    return f"the outputs of {v['against']} and {v['side']} differ {where}{way}"


def _unequal_gpu_work(v: Mapping[str, Any]) -> str:
    written = {
        "gpu_kernels": lambda n: f"{n:g} kernel{'' if n == 1 else 's'}",
        "gpu_copied": lambda n: f"{format_bytes(n)} copied",
    }
    parts = [
        ", ".join(f"{side} {written[name](count)}" for side, count in by_side.items())
        for name, by_side in sorted(v.items(), reverse=True)
    ]
    return f"the sides gave the GPU unequal work: {'; '.join(parts)}; check that both compute the same result"


def _unverified(v: Mapping[str, Any]) -> str:
    """What strict mode refuses, and the line to write."""
    code = v["code"]
    return f"not verified (strict): {_SENTENCES[code](v)}; {_REMEDIES[code]}"


def _doubted(v: Mapping[str, Any]) -> str:
    """By what a side is better that no check saw, and the line to write."""
    return f"{_SENTENCES[v['code']](v)}; {_REMEDIES[v['code']]}"


def _because(v: Mapping[str, Any]) -> str:
    return f" ({v['reason']})" if v.get("reason") else ""


def _source_figures(v: Mapping[str, Any]) -> str:
    """What another tool states; the time of the record is computed here."""
    known = [
        *(f"{key} {_own_figure(v[key], v['unit'])}" for key in ("mean", "median") if v[key] is not None),
        *([f"n {v['n']}"] if v["n"] else []),
        *v["others"],
    ]
    return f"{v['tool']}'s own figures: {', '.join(known)}; the time is aiperf's, a geometric mean of the replicates"


def _own_figure(value: float, unit: str) -> str:
    """A number that aiperf did not measure itself; ``unit`` may be empty."""
    known = {"s": format_time, "B": format_bytes}
    return known[unit](value) if unit in known else f"{significant(value)} {unit}".strip()


_SAY_WHY = 'or say why not with done_outside="..." in a Workload'
_REMEDIES = {
    "nothing_returned": 'return the results, or say why not with check: {kind: none, reason: "..."}',
    "inputs_undeclared": 'name them with inputs=lambda: {...}, or say why not with fixed_inputs="..." in the Workload',
    "inputs_fixed": (
        "let setup draw them from its seed, or in a Workload redraw them with redraw=..., or say why not with "
        'fixed_inputs="..."'
    ),
    "outputs_unpoisoned": 'say why not with kept_outputs="..." in the Workload',
    "outputs_unmoved": (
        "return what depends on the inputs, name every input with inputs=lambda: {...}, or say why not with "
        'fixed_inputs="..." in a Workload'
    ),
    "latencies_reported": 'say how they are taken with latency_source="..." in the Workload',
    "stragglers": "the program must stop every process it starts",
    "time_outside": f"move it into the step, where it is timed, {_SAY_WHY}",
    "first_elsewhere": f"let the first iteration build what it needs, compare whole programs, {_SAY_WHY}",
    "memory_elsewhere": f"let the process itself hold it, compare whole programs, {_SAY_WHY}",
    "batches_only": f"let every step finish its own work, {_SAY_WHY}",
    "scheduled_apart": (
        'leave CPUs and priorities unchanged, or run with --pin none; a Workload can say why with done_outside="..."'
    ),
    "tolerance_used": 'say why that is close enough with check: {kind: named, ..., reason: "..."}',
    "first_run_slower": 'remove what earlier runs left behind with --prepare "rm -r ..."',
}
"""What satisfies strict mode."""
_PHASES = {
    "set_up": "in set-up",
    "prepare": "a step in prepare()",
    "inputs": "a call in inputs()",
    "outputs": "a call in outputs()",
    "redraw": "a call in redraw()",
}
_SENTENCES: dict[NoteCode, Callable[[Mapping[str, Any]], str]] = {
    "verdict_reached": lambda v: f"every verdict was reached at {v['pairs']} pairs",
    "narrow_enough": lambda v: (
        f"the interval reached the requested width (±{format_percent(v['width'])}) at {v['pairs']} pairs"
    ),
    "most_pairs": lambda v: f"{v['pairs']} pairs were measured, the maximum{_needed(v)}",
    "budget_spent": _budget_spent,
    "ended_at_look": lambda v: f"the run was interrupted; the verdict is from the look at {v['pairs']} pairs",
    "voided": lambda v: f"{v['voids']} of {v['pairs']} pairs were voided by the environment",
    "host_unfit": lambda v: str(v["reason"]),
    "drift": _drift,
    "invariant_moved": _invariant_moved,
    "invariant_changed": _invariant_changed,
    "temperature": _temperature,
    "same_code": _same_code,
    "same_sides": lambda v: f"{' and '.join(v['sides'])} are the same: any difference is noise",
    "latencies_missing": lambda v: (
        f"series {v.get('series', 'latency')} is not compared: a launch of {' and '.join(v['sides'])} has none"
    ),
    "latencies_few": _latencies_few,
    "latency_bounds": _latency_bounds,
    "units_missing": _units_missing,
    "not_launched": lambda v: (
        f"the server of {' and '.join(v['sides'])} was already running, so the interval leaves out variation between "
        "server starts; let aiperf start the servers (server: COMMAND)"
    ),
    "counted_apart": lambda v: (
        f"times count from {' and from '.join(f'{since} on {side}' for side, since in v['sides'].items())}; use one "
        "client for both sides"
    ),
    "one_after_another": lambda v: (
        f"side by side, {v['side']} failed in {v['phase']} ({': '.join(filter(None, (v['message'], v.get('log'))))}); "
        "aiperf then launched the sides one after the other"
    ),
    "metric_zero": _metric_zero,
    "latencies_zero": lambda v: f"{' and '.join(v['metrics'])} not compared: 0 in at least one launch",
    "no_cpu_time": lambda v: (
        f"{v['metric']} time is not compared: in at least one pair the kernel reported none for a side"
    ),
    "memory_below": _memory_below,
    "fresh_inputs": lambda v: (
        f"iterations of {v['side']} took {format_time(v['fresh_s'])} on new inputs and "
        f"{format_time(v['repeated_s'])} on inputs seen before: at least half of its advantage comes from repetition"
    ),
    "hidden_time": lambda v: (
        f"a turn of {v['side']} took {format_time(v['turn_s'])}, but its readings leave {format_time(v['hidden_s'])} "
        "unaccounted for: they are too short, or work continues between them"
    ),
    "audit_time": lambda v: (
        f"{v['side']} took {format_time(v['fresh_s'])} on fresh inputs and {format_time(v['repeated_s'])} on "
        "repeated ones: it reuses earlier results"
    ),
    "no_verdict_in_reach": lambda v: (
        f"stopped at {v['pairs']} pairs: given the scatter so far, the chance of a verdict at {v['last']} pairs is "
        f"{format_percent(v['chance'], 2)}"
    ),
    "unequal_gpu_work": _unequal_gpu_work,
    "sliced": lambda v: (
        f"sliced: the programs took turns of {format_time(v['slice_s'])} on one core; time is what each ran or waited "
        "in its own turns, without queueing for the core"
    ),
    "uneven_runs": _uneven_runs,
    "first_run_slower": _first_run_slower,
    "first_run_files": _first_run_files,
    "prints_otherwise": _prints_otherwise,
    "files_uncompared": lambda v: (
        f"besides what is printed, {' and '.join(f'{side} writes {format_bytes(n)}' for side, n in v['bytes'].items())}"
        f" a run, to files or to pipes between its processes; files are compared only with {v['way']}"
    ),
    "work_in_outputs": lambda v: (
        f"outputs() of {v['side']} takes {format_time(v['seconds'])} longer right after a step than when called again "
        f"(other sides: {format_time(v['other_s'])}): it finishes work of the step, which is not timed"
    ),
    "time_outside": lambda v: (
        f"{v['side']} spends {format_time(v['own_s'])} {_PHASES[v['phase']]}, {v['base']} {format_time(v['base_s'])}: "
        f"not timed{_because(v)}"
    ),
    "first_elsewhere": lambda v: (
        f"the first iteration of {v['side']} takes {format_time(v['own_s'])}, "
        f"that of {v['base']} {format_time(v['base_s'])}, "
        f"but {v['side']} spends {format_time(v['more_s'])} more before it, in set-up or prepare(){_because(v)}"
    ),
    "cpu_time_same": lambda v: (
        f"CPU time per step did not fall with the time: it went from {format_time(v['before_cpu_s'])} to "
        f"{format_time(v['after_cpu_s'])}, while the time fell from {format_time(v['before_s'])} to "
        f"{format_time(v['after_s'])}; {v['side']} uses more CPUs at once, or works outside its timed steps"
    ),
    "nothing_returned": lambda v: (
        f"{'neither' if len(v['sides']) == 2 else 'no'} side returned anything, so equal work was not checked"
    ),
    "nothing_printed": lambda v: (
        f"{'neither' if len(v['sides']) == 2 else 'no'} program wrote anything to standard output, so equal work was "
        f"not checked{_because(v)}"
    ),
    "inputs_undeclared": lambda v: (
        f"the inputs of {_and(v)} have no names, so every audit used those of the rounds{_because(v)}"
    ),
    "inputs_fixed": lambda v: (
        f"audits of {_and(v)} used the same {', '.join(v['inputs'])} every time: not redrawn{_because(v)}"
    ),
    "inputs_unnamed": _inputs_unnamed,
    "outputs_unpoisoned": lambda v: f"outputs of {_and(v)} are not overwritten before audits{_because(v)}",
    "outputs_unmoved": lambda v: (
        f"{', '.join(v['inputs'])} of {_and(v)} were the same in every audit, although inputs changed: no audit "
        f"shows that they are computed from them{_because(v)}"
    ),
    "inputs_unused": lambda v: (
        f"no value of the named inputs, not even an extreme one, changed {', '.join(v['outputs'])} of {v['base']} or "
        f"{v['side']}: they are computed from something else, so no audit checks it; name that with "
        'inputs=lambda: {...}, or say why not with fixed_inputs="..." in a Workload'
    ),
    "values_reported": lambda v: (
        f"{', '.join(v['inputs'])} is as reported by the code of {_and(v)}; nothing checks it{_because(v)}"
    ),
    "latencies_reported": lambda v: (
        f"latencies are as reported by the code of {_and(v)}; nothing checks them{_because(v)}"
    ),
    "memory_forgotten": lambda v: (
        f"{v['side']} was seen using {format_bytes(v['seen_bytes'])} of memory, but reports a peak of "
        f"{format_bytes(v['peak_bytes'])}: the peak was reset"
    ),
    "memory_elsewhere": lambda v: (
        f"{v['side']} holds {format_bytes(v['own_bytes'])} outside its own process (other processes, files in "
        f"memory), {v['base']} {format_bytes(v['base_bytes'])}: not included in peak memory{_because(v)}"
    ),
    "tolerance_used": lambda v: (
        f"outputs of {v['side']} are off by up to {v['error']:.2g}: within the scenario's tolerance of "
        f"{v['declared']:.2g}, but beyond the {v['usual']:.2g} that is usual for their type"
        if v["declared"] is not None
        else f"outputs of {v['side']} are off by more than the {v['usual']:.2g} that is usual for their type: they "
        "pass only the workload's own check, and the scenario gives no reason"
    ),
    "suspected": lambda v: (
        f"iterations of {v['side']} took {format_time(v['fresh_s'])} on new inputs and "
        f"{format_time(v['repeated_s'])} on known ones: it may owe a part of its advantage to repeated inputs, but too "
        "few readings say so"
    ),
    "batches_only": lambda v: (
        f"{v['side']} is {v['batches']:.3g}x as fast as {v['against']} when many steps are timed together, but "
        f"{v['single']:.3g}x when each is timed alone: steps overlap, or it does less work when not checked"
    ),
    "scheduled_apart": lambda v: f"{v['side']} is no longer scheduled as it was started: {v['detail']}",
    "stragglers": lambda v: f"processes started by {_and(v)} were still running after it ended",
    "unverified": _unverified,
    "doubted": _doubted,
    "source_figures": _source_figures,
    "text": lambda v: str(v["text"]),
}
