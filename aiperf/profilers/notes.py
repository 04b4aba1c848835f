"""The sentences of a profile's notes, one per code.

What must not live here: deciding whether a profile gets a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiperf.records.profiled import ProfileNote, ProfileNoteCode
from aiperf.units import format_bytes, format_time

_ALIKE, _NAMED = 3, 8
"""Names of variables that begin alike from which only the beginning stands; beginnings that are listed."""


def note_sentence(note: ProfileNote) -> str:
    """Word one note. Raises KeyError when a value that its code needs is missing."""
    return _SENTENCES[note.code](note.values)


def joined_sentences(notes: Iterable[ProfileNote]) -> str:
    """Several notes as one text, each once."""
    return "; ".join(dict.fromkeys(map(note_sentence, notes)))


def distinct(notes: Iterable[ProfileNote]) -> tuple[ProfileNote, ...]:
    """The notes in their order, each once."""
    found: list[ProfileNote] = []
    for note in notes:
        if note not in found:
            found.append(note)
    return tuple(found)


def _withheld(v: Mapping[str, Any]) -> str:
    names, secrets = v["names"], v["secrets"]
    groups = _grouped(names)
    listed = [*groups[:_NAMED], *([f"{len(groups) - _NAMED} more"] if len(groups) > _NAMED else [])]
    listed += [f"{secrets} named like secrets"] if secrets else []
    count = len(names) + secrets
    many = "1 variable" if count == 1 else f"{count} variables"
    return f"profiled without {many} of the environment ({', '.join(listed)}); a side that needs one sets it under env"


def _grouped(names: Sequence[str]) -> list[str]:
    """``GITHUB_* (31)`` for names that begin alike."""
    leads = [name.partition("_")[0] for name in names]
    count = Counter(leads)
    said = [
        f"{lead}_* ({count[lead]})" if count[lead] > _ALIKE else name for name, lead in zip(names, leads, strict=True)
    ]
    return list(dict.fromkeys(said))


def _no_range(v: Mapping[str, Any]) -> str:
    lacking = f"{v['tool']} saw no range of {v['side']}"
    if v.get("processes"):
        return f"{lacking}: those in process {_list(v['processes'])} belong to another launch"
    if v.get("seen"):
        return f"{lacking}: there are {_list(v['seen'])}"
    return f"{lacking}: there are no ranges" if "seen" in v else lacking


def _timeline_cut(v: Mapping[str, Any]) -> str:
    part = f"the first {format_time(v['until_s'])} of {format_time(v['end_s'])}"
    return f"the timeline of {v['side']} has {part}: {v['shown']} of {v['bars']} bars"


def _unknown_metrics(v: Mapping[str, Any]) -> str:
    why = "this ncu lists no such counter for the GPU here" if v["offered"] else "ncu lists no counters here"
    return f"{_list(v['names'])}: not requested, because {why}"


def _list(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


_NOT_KEPT: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "size": lambda v: f"{format_bytes(v['bytes'])}, over {format_bytes(v['most'])}",
    "room": lambda v: f"raw reports of this run already take {format_bytes(v['most'])} (aiperf clean frees space)",
    "secret": lambda v: "it contains the value of a variable that is named like a secret",
}
_SENTENCES: dict[ProfileNoteCode, Callable[[Mapping[str, Any]], str]] = {
    "withheld": _withheld,
    "no_range": _no_range,
    "no_range_in_rank": lambda v: f"{v['tool']} saw no range of {v['side']} in rank {_list(v['ranks'])}",
    "range_unended": lambda v: f"a range of {v['side']} never ended, so its work is left out",
    "no_ranges_emitted": lambda v: f"no ranges were emitted: {v['reason']}",
    "taken_as_ranks": lambda v: (
        f"{v['side']} is a range of processes {_list(v['processes'])}: taken as ranks, in this order; "
        "work of others is left out"
    ),
    "timeline_cut": _timeline_cut,
    "no_kernel": lambda v: f"ncu profiled no kernel of {v['side']}",
    "kernels_outside": lambda v: f"kernels outside every side's range: {v['count']}",
    "no_arithmetic": lambda v: "ncu lists no arithmetic counters here, so FLOPs of kernels are unknown",
    "unknown_metrics": _unknown_metrics,
    "uncountable_events": lambda v: f"perf cannot count {_list(v['events'])} on this host",
    "nothing_counted": lambda v: f"perf counted nothing of {v['side']}",
    "nothing_sampled": lambda v: f"perf sampled nothing of {v['side']}",
    "not_kept": lambda v: f"{v['name']} was read but not kept: {_NOT_KEPT[v['why']](v)}",
    "text": lambda v: str(v["text"]),
}
