"""Older records brought to today's schema, one step per version, on the plain dict before it is decoded.

What must not live here: files, checking what a record holds (codec.py), changing any number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from aiperf.records import SCHEMA_VERSION, RunCommand
from aiperf.units import parse_time

Step = Callable[[dict[str, Any]], dict[str, Any]]
FIRST_VERSION = 1


def _only_added(plain: dict[str, Any]) -> dict[str, Any]:
    """A version that only added fields: their defaults say what the older record did or could not know."""
    return plain


_RENAMED_IN_3: dict[tuple[str, ...], str] = {
    ("own_seconds",): "harness_seconds",
    ("settings", "fit"): "host_check",
    ("case", "measure", "headline"): "metric",
    ("case", "measure", "blocker"): "blocking_kernel",
    ("results", "headline"): "primary",
    ("limits", "roof"): "peak_name",
    ("pairs", "watch", "standing"): "invariants",
    ("pairs", "runs", "work", "roofs"): "peaks",
    ("pairs", "runs", "work", "held"): "maybe_cached",
    ("facts", "work", "*", "roofs"): "peaks",
    ("facts", "work", "*", "held"): "maybe_cached",
}
"""Path of a key in a record or profile, through lists and (*) whatever the key, -> its name from version 3 on."""


def _in_words_of_3(plain: dict[str, Any]) -> dict[str, Any]:
    for path, name in _RENAMED_IN_3.items():
        plain = _with_key(plain, path, name)
    plain = _with_finding_fields(plain)
    if "argv" in plain:
        return _with_command(plain)
    if "artefacts" in plain:
        notes = [_profile_note(note) if isinstance(note, str) else note for note in plain.get("notes", ())]
        artefacts = [_with_artefact_code(artefact) for artefact in plain["artefacts"]]
        return {**plain, "notes": notes, "artefacts": artefacts}
    if "case" in plain and "status" in plain:
        # Nothing asks which note a sentence is, so that it may stay one.
        plain = {**plain, "notes": [{"code": "text", "values": {"text": text}} for text in plain.get("notes", ())]}
    return _with_check_fields(plain)


_TIMELINE_CUT = re.compile(
    r"the timeline of (?P<side>.+) has the first (?P<until>.+) of (?P<end>.+): (?P<shown>\d+) of (?P<bars>\d+) bars"
)


def _profile_note(text: str) -> dict[str, Any]:
    """A profile's note with its code, where one is asked for; until then all were sentences."""
    cut = _TIMELINE_CUT.fullmatch(text)
    if cut is None:
        return {"code": "text", "values": {"text": text}}
    times = {"until_s": parse_time(cut["until"]), "end_s": parse_time(cut["end"])}
    return {
        "code": "timeline_cut",
        "values": {"side": cut["side"], **times, "shown": int(cut["shown"]), "bars": int(cut["bars"])},
    }


_NO_KERNEL = "nsys saw no kernel of this side, and ncu reads kernels alone"


def _with_artefact_code(artefact: dict[str, Any]) -> dict[str, Any]:
    return {**artefact, "code": "no_kernel"} if artefact.get("reason") == _NO_KERNEL else artefact


def _with_command(run: dict[str, Any]) -> dict[str, Any]:
    """The command that made a run, which was known by its command line alone."""
    word = next((word for word in run["argv"][1:] if not word.startswith("-")), "run") if run["argv"] else ""
    return {**run, "command": word if word in get_args(RunCommand) else "run"}


_AUDITS = re.compile(r", (\d+) audits?(?=,|$)")


def _with_check_fields(plain: dict[str, Any]) -> dict[str, Any]:
    """Each check of each pair with its kind, the sides it judges and its audits, until then the words of a sentence."""
    if not plain.get("pairs"):
        return plain
    names = {side["name"] for side in plain["case"]["sides"]}
    pairs = [{**p, "checks": [_check_fields(c, names) for c in p.get("checks", ())]} for p in plain["pairs"]]
    return {**plain, "pairs": pairs}


def _check_fields(check: dict[str, Any], names: set[str]) -> dict[str, Any]:
    compared = check["compared"]
    audits = _AUDITS.search(compared)
    first, _, rest = compared.partition(" ")
    kind = "outputs"
    if compared == "work per step":
        kind, first = "work", ""
    elif "standard output of " in compared:
        kind, first = "printed", ""
    elif compared.startswith(("exit status 0 on all sides", "nothing: ")):
        kind, first = "none", ""
    elif rest == "by itself":
        kind = "own_outputs"
    return {
        **check,
        "compared": _AUDITS.sub("", compared, count=1),
        "kind": kind,
        # What named no side was held against every one of them.
        "sides": [first] if first in names else [],
        "audits": int(audits[1]) if audits else 0,
    }


_FINDING_TITLES = {
    "Work of others on the CPUs": "cpu-oversubscription",
    "CPUs and memory for each GPU": "cpu-gpu-balance",
    "GPUDirect Storage": "gds-available",
    "Frequency governor and kernel": "hpc-kernel-governor",
    "CPU quota": "container-cpu-limit",
    "Swap": "swap-disabled",
    "Headroom of memory": "monitor-memory",
    "NUMA node of process and GPU": "numa-awareness",
}
"""Title of a finding, with which a case's sentence began -> id of its probe."""
_FINDING_WORDS = {
    "The CPU frequency governor is ": "hpc-kernel-governor",
    "CPU ": "cpu-oversubscription",
    "The cgroup may use ": "container-cpu-limit",
    "Other processes use the GPUs": "gpu_processes",
    "Variables are set that change": "debug_env",
}
"""How a run's sentence began -> id of its probe."""
_ALWAYS_UNFIT = ("gpu_processes",)
_BUSY = re.compile(r" is (\d+)% busy ")


def _with_finding_fields(plain: dict[str, Any]) -> dict[str, Any]:
    """Findings as id, level, title and value; until then they were sentences, a case's with its level in front."""
    of_case = "case" in plain
    found = [_case_finding(text) if of_case else _run_finding(text) for text in plain.get("findings", ())]
    return {**plain, "findings": found} if found else plain


def _case_finding(text: str) -> dict[str, str]:
    level, _, rest = text.partition(": ")
    title, _, value = rest.partition(": ")
    if level not in ("warn", "unfit"):
        return {"id": "unknown", "level": "warn", "title": "", "value": text}
    if title not in _FINDING_TITLES:
        return {"id": "unknown", "level": level, "title": "", "value": rest}
    return {"id": _FINDING_TITLES[title], "level": level, "title": title, "value": value}


def _run_finding(text: str) -> dict[str, str]:
    id_ = next((id_ for words, id_ in _FINDING_WORDS.items() if text.startswith(words)), "unknown")
    busy = _BUSY.search(text)
    unfit = id_ in _ALWAYS_UNFIT or (busy is not None and int(busy[1]) > 50)
    return {"id": id_, "level": "unfit" if unfit else "warn", "title": "", "value": text}


def _with_key(plain: Any, path: tuple[str, ...], name: str) -> Any:
    """``plain`` with the last key of ``path`` renamed, in place among its neighbours; untouched where it is absent."""
    if isinstance(plain, list):
        return [_with_key(item, path, name) for item in plain]
    key, *rest = path
    if key == "*" and isinstance(plain, dict):
        return {k: _with_key(value, tuple(rest), name) for k, value in plain.items()}
    if not isinstance(plain, dict) or key not in plain:
        return plain
    if rest:
        return {**plain, key: _with_key(plain[key], tuple(rest), name)}
    return {name if k == key else k: value for k, value in plain.items()}


def _with_withheld(plain: dict[str, Any]) -> dict[str, Any]:
    """Whether a run was begun with a secret, which until then a word in its place said."""
    argv = plain.get("argv")
    if not isinstance(argv, list):
        return plain
    return {**plain, "withheld": any(isinstance(word, str) and "[withheld" in word for word in argv)}


STEPS: dict[int, Step] = {
    # 2 added Summary.log_sd, Side.folder, CaseRecord.replicate and a status that version 1 never wrote.
    1: _only_added,
    # 3 renamed keys to the words of the field, and holds as data what was read out of sentences.
    2: _in_words_of_3,
    # 4 says of a run whether its command line had secrets.
    3: _with_withheld,
}
"""Version -> the function that makes a plain case or run record of it one of the next version."""


def migrated(plain: dict[str, Any], *, steps: Mapping[int, Step] = STEPS, to: int = SCHEMA_VERSION) -> dict[str, Any]:
    """Return ``plain`` as version ``to`` holds it: every step from its own version upwards, in order.

    Its ``schema_version`` must lie between FIRST_VERSION and ``to``; a record of today comes back untouched.
    """
    for version in range(plain["schema_version"], to):
        plain = {**steps[version](plain), "schema_version": version + 1}
    return plain
