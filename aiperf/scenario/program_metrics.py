"""Metrics of a program's own, as users write them: a pattern of the line that it prints, a path in a line of JSON, or
the name of its NVTX ranges.

What must not live here: reading what a program printed, and places in files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from aiperf.records import Better, PrimaryMetric, ProgramMetric
from aiperf.scenario.wording import allowed, nearest, shown
from aiperf.units import InvalidValue, unit_factor

METRIC_KEYS = ("pattern", "json", "unit", "better")
BETTER = get_args(Better)
GPU_METRICS = ("gpu_busy", "gpu_kernel_time", "gpu_copy_time", "gpu_span", "gpu_kernels", "gpu_copied")
"""What the GPU's clock gives of a program; a test holds them equal to analysis.metrics."""
RESERVED_NAMES = (*get_args(PrimaryMetric), "wall", "energy", *GPU_METRICS)
"""Names that a program's metric must not take; a test holds them equal to analysis.metrics and memory."""
COMMAND_METRICS = ("time", "user", "system", "peak_memory")
"""What aiperf itself measures of every program, and a case of programs can be about."""
DEFAULT_GPU_METRIC = "gpu_busy"
"""What a case by the GPU's clock is about."""
_JSON = "json:"
METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
"""What a metric of a program may be called."""
_WORD = re.compile(r"[A-Za-zµ%][A-Za-z0-9µ%_/.-]*")
_RATE = re.compile(r"[A-Za-z]+/(s|sec|second)")
_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]")
_WILD = re.compile(r"\\[sSdDwWbBAZ]|(?<!\\)[.^$]")
_REPEATED = re.compile(r"(?<!\\)([*+?]|\{[0-9,]*\})")
_HINT = "For example: --metric 'tokens/s: ([0-9.]+)', or --metric json:stats.tokens_per_s."
_SUFFIXES = {"_ns": "ns", "_us": "us", "_ms": "ms", "_s": "s", "_seconds": "s", "_bytes": "B"}
"""What the end of a key of JSON says of its unit."""


def typed_metrics(texts: Sequence[str], better: Sequence[str]) -> tuple[ProgramMetric, ...]:
    """The metrics of ``--metric`` and ``--better``: one direction for each, or one for all. Raises InvalidValue."""
    if len(better) not in (0, 1, len(texts)):
        what = f"--better is given {len(better)} times, but --metric {len(texts)} times."
        raise InvalidValue(what, "Give it once for all, or once for each --metric, in the same order.")
    each = list(better) * (len(texts) if len(better) == 1 else 1) or [""] * len(texts)
    found = tuple(typed_metric(text, better=one) for text, one in zip(texts, each, strict=True))
    if len(better) == 1 < len(texts):
        _check_for_all(texts, found)
    names = [metric.name for metric in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        paths = all(metric.path for metric in found if metric.name == twice)
        named = "In a scenario you can name each: metrics: {NAME: {json: PATH}}."
        hint = named if paths else f"Name the group of one of them: {_named(twice + '_2')}."
        raise InvalidValue(f"two metrics have the name {twice}.", hint)
    return found


def _check_for_all(texts: Sequence[str], found: Sequence[ProgramMetric]) -> None:
    """One direction for all must not turn round a rate, a time or a size that stands among others."""
    for text, metric in zip(texts, found, strict=True):
        if (own := _own_direction(text)) and own != metric.better:
            what = f"--better {metric.better} contradicts the unit of {metric.name}, for which {own} is better."
            raise InvalidValue(what, "Give --better once for each --metric, in the same order.")


def _own_direction(text: str) -> str:
    try:
        return typed_metric(text).better
    except InvalidValue:
        return ""


def typed_metric(text: str, *, better: str = "") -> ProgramMetric:
    """The metric that one text declares, ``pattern`` or ``json:path``; its name and unit are read from the text.

    Raises InvalidValue.
    """
    if text.startswith(_JSON):
        return metric_of_path("", text.removeprefix(_JSON), better=better)
    return metric_of_pattern("", text, better=better)


def metric_of_pattern(name: str, pattern: str, *, unit: str = "", better: str = "") -> ProgramMetric:
    """A metric that the program prints in a line; what is not given is read from the pattern. Raises InvalidValue."""
    group = _group_of(pattern)
    before, after = _around(pattern)
    words = [word.strip("._-") for word in _WORD.findall(before)]
    label_unit = next((word for word in reversed(words) if _is_unit(word)), "")
    next_word = _WORD.match(after.strip(" ([")) if after.strip(" ([") else None
    follows = next_word.group() if next_word and _is_unit(next_word.group()) else ""
    words = [word for word in words if word != label_unit][-3:] or [(label_unit or follows).replace("/", "_per_")]
    made = re.sub(r"[^A-Za-z0-9_.-]", "_", "_".join(filter(None, words))).strip("_.-")
    return _metric(name or group or _free(made), unit or follows or label_unit, better, pattern=pattern)


def metric_of_path(name: str, path: str, *, unit: str = "", better: str = "") -> ProgramMetric:
    """A metric in a line of JSON that the program prints. Raises InvalidValue."""
    parts = path.split(".")
    if not all(parts):
        raise InvalidValue(f'"{path}" is not a JSON path.', "For example: json:stats.tokens_per_s.")
    last = next((part for part in reversed(parts) if not part.isdecimal()), "value")
    thing, per, second = last.rpartition("_per_")
    found = f"{thing}/s" if per and second in ("s", "sec", "second") else ""
    found = found or next((u for end, u in _SUFFIXES.items() if last.endswith(end)), "")
    made = re.sub(r"[^A-Za-z0-9_.-]", "_", last)
    return _metric(name or _free(made), unit or found, better, path=path)


def range_metrics(names: Sequence[str]) -> tuple[ProgramMetric, ...]:
    """Time of one range, of all of them and their count, for each name. Raises InvalidValue."""
    found = []
    for name in dict.fromkeys(names):
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_.-")
        if not stem or not METRIC_NAME.fullmatch(stem):
            raise InvalidValue(f'"{name}" is not the name of a range.', "For example: --range step.")
        stem = _free(stem)
        found += [
            ProgramMetric(stem, "s", range=name),
            ProgramMetric(f"{stem}_total", "s", range=name, part="total"),
            ProgramMetric(f"{stem}_count", range=name, part="count"),
        ]
    return tuple(found)


def metric_from_keys(name: str, value: Any) -> ProgramMetric:
    """A metric of a scenario file: its pattern as text, or a mapping of keys. Raises InvalidValue."""
    if isinstance(value, str):
        value = {"json": value.removeprefix(_JSON)} if value.startswith(_JSON) else {"pattern": value}
    if not isinstance(value, Mapping) or not value:
        advice = "Write the pattern of the line, or {pattern: …, unit: …, better: higher}, or {json: path}."
        raise InvalidValue(f"{shown(value)} is not a metric.", advice)
    for key, given in value.items():
        if key not in METRIC_KEYS:
            advice = nearest(str(key), METRIC_KEYS) or f"Allowed: {allowed(METRIC_KEYS)}."
            raise InvalidValue(f'"{key}" is not a key of a metric.', advice)
        if not isinstance(given, str) or not given:
            raise InvalidValue(f"{key}: {shown(given)} is not text.", "Quote it.")
    given = {key: value[key] for key in ("unit", "better") if key in value}
    if ("pattern" in value) == ("json" in value):
        raise InvalidValue("a metric needs either a pattern or a JSON path.", "Write either pattern: or json:.")
    if "json" in value:
        return metric_of_path(name, value["json"].removeprefix(_JSON), **given)
    return metric_of_pattern(name, value["pattern"], **given)


def side_metrics(top: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[ProgramMetric, ...]:
    """The metrics of one side: of the whole file, by its own where it says otherwise, then the ranges of the file.

    Raises InvalidValue.
    """
    given = {**(top.get("metrics") or {}), **own}
    ranges = top.get("range") or []
    printed = (metric_from_keys(name, value) for name, value in given.items())
    return (*printed, *range_metrics([ranges] if isinstance(ranges, str) else ranges))


def check_primary(name: str, metrics: Sequence[ProgramMetric], others: Collection[str]) -> str:
    """``name`` when a case of such metrics can be about it. Raises InvalidValue."""
    names = [*(metric.name for metric in metrics), *others]
    if name not in names:
        raise InvalidValue(f'"{name}" is not a metric of these programs.', f"Allowed: {allowed(names)}.")
    return name


def _metric(name: str, unit: str, better: str, *, pattern: str = "", path: str = "") -> ProgramMetric:
    if not METRIC_NAME.fullmatch(name):
        where = f"Name its group, e.g. {_named('throughput')}." if pattern else "Use letters, digits and _ - . only."
        raise InvalidValue(f'"{name}" cannot be the name of a metric.', where)
    if name in RESERVED_NAMES:
        raise InvalidValue(f'"{name}" is a metric that aiperf measures itself.', "Choose another name.")
    if better and better not in BETTER:
        raise InvalidValue(f'better: "{better}" is not allowed.', f"Allowed: {allowed(BETTER)}.")
    base, factor = unit_factor(unit)
    known = better or ("higher" if unit.endswith(("/s", "/sec", "/second")) else "lower" if base in ("s", "B") else "")
    if not known:
        advice = "Add --better higher or --better lower; in a scenario, better: higher or better: lower."
        raise InvalidValue(f"the unit of {name} does not show whether higher or lower is better.", advice)
    made = ProgramMetric(name, base, pattern=pattern, path=path, factor=factor)
    return replace(made, better="higher" if known == "higher" else "lower")


def _group_of(pattern: str) -> str:
    """The name of the one group of a pattern, empty without one. Raises InvalidValue for any other pattern."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidValue(f'"{pattern}" is not a regular expression: {error}.', _HINT) from None
    named = list(compiled.groupindex)
    if len(named) == 1:
        return named[0]
    if compiled.groups == 0:
        raise InvalidValue(f'"{pattern}" has no group to capture the number.', _HINT)
    if compiled.groups > 1:
        advice = f"Name the one that counts, e.g. {_named('throughput')}, or write the others as (?:…)."
        raise InvalidValue(f'"{pattern}" has {compiled.groups} groups, but a metric is one number.', advice)
    return ""


def number_group(pattern: str) -> int | str:
    """The group of a pattern that holds the number."""
    return next(iter(re.compile(pattern).groupindex), 1)


def _named(name: str) -> str:
    return f"(?P<{name}>[0-9.]+)"


def _around(pattern: str) -> tuple[str, str]:
    """What a pattern has literally before and after the group of its number."""
    plain = _CLASS.sub(" ", pattern)
    opens = [m.start() for m in re.finditer(r"(?<!\\)\((?!\?[:=!<#])|(?<!\\)\(\?P<", plain)]
    named = plain.find("(?P<")
    start = named if named >= 0 else opens[0]
    depth, end = 0, len(plain)
    for place in range(start, len(plain)):
        if plain[place - 1 : place] == "\\":
            continue
        depth += {"(": 1, ")": -1}.get(plain[place], 0)
        if not depth:
            end = place + 1
            break
    return _literal(plain[:start]), _literal(plain[end:])


def _literal(part: str) -> str:
    part = _REPEATED.sub("", _WILD.sub(" ", part))
    return re.sub(r"\\(.)", r"\1", part).replace("(?:", " ").replace("|", " ")


def _is_unit(word: str) -> bool:
    return bool(_RATE.fullmatch(word)) or unit_factor(word) != (word, 1.0) or word in ("s", "B", "J")


def _free(name: str) -> str:
    """A name made from a text that takes none of aiperf's own."""
    return f"printed_{name}" if name in RESERVED_NAMES else name
