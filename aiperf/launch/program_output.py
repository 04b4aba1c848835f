"""What a run of a program printed, read for the numbers that are asked of it: of each metric the last one counts.

What must not live here: starting a program, and what a pair makes of its numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from aiperf.errors import AiperfError
from aiperf.records import FailureKind, ProgramMetric
from aiperf.scenario.program_metrics import number_group

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_TAIL_BYTES, _TAIL_LINES = 8192, 20
_SHOWN_LINE = 200
_LAST_WORDS = 80
_SHOWN_CHANGE = 40


Unseen = Literal["unseen", "too_long", "failed"]
"""Why outputs were not compared: nobody looked, another run of each would take too long, or one of these failed."""
PrintedRelation = Literal["same", "nothing", "otherwise", "varies"] | Unseen
"""How a program's output relates to another's: the same, both empty, different, varying from run to run, or not
compared."""


@dataclass(frozen=True)
class PrintedChange:
    """The first line in which two programs print different things, each time that they run."""

    line: int
    """Counted from 1; 0 where it lies beyond what is kept."""
    base: str
    """The line as the first program prints it, shortened; empty where it prints no more."""
    own: str


class NoValue(AiperfError):
    """A run ended well, and gave no number of a metric; the text says which metric, and what is missing."""

    kind: FailureKind = "metric"


def printed(metrics: Sequence[ProgramMetric]) -> tuple[ProgramMetric, ...]:
    """Those that a program prints."""
    return tuple(metric for metric in metrics if metric.pattern or metric.path)


def read_values(metrics: Sequence[ProgramMetric], out: bytes, err: bytes) -> dict[str, float]:
    """The value of every metric that one run printed, unit of the metric.

    The last match counts: of its standard output, or of its standard error where the other has none. Raises NoValue.
    """
    asked = printed(metrics)
    found: dict[str, str] = {}
    for text in (out, err):
        open_ = [metric for metric in asked if metric.name not in found]
        found |= _last(open_, text) if open_ else {}
    for metric in asked:
        if metric.name not in found:
            said = f'its last line is "{words}"' if (words := _last_words(out, err)) else "it printed nothing"
            raise NoValue(
                f"it printed no line for the metric {metric.name}: {_wanted(metric)} was expected, but {said}"
            )
    return {metric.name: _number(metric, found[metric.name]) for metric in asked}


def last_line(metrics: Sequence[ProgramMetric], out: bytes) -> str:
    """The last line with a number of the first metric in what a program under way has printed; empty without one."""
    for line in reversed(_lines(out)):
        for metric in printed(metrics)[:1]:
            if _texts(metric, line):
                return " ".join(line.split())[:_SHOWN_LINE]
    return ""


def output_tail(out: bytes) -> str:
    """The last lines of what a run printed, without the sequences that colour a terminal."""
    return _ESCAPE.sub("", "\n".join(out[-_TAIL_BYTES:].decode("utf-8", errors="replace").splitlines()[-_TAIL_LINES:]))


def first_change(base: bytes, own: bytes) -> PrintedChange:
    """Where two outputs part, with what is there on both sides of the difference."""
    # Bytes that are no text keep their difference.
    texts = [[*out.decode("utf-8", errors="backslashreplace").split("\n"), ""] for out in (base, own)]
    lines = zip_longest(*texts, fillvalue="")
    line, pair = next(((n, pair) for n, pair in enumerate(lines, start=1) if pair[0] != pair[1]), (0, ("", "")))
    alike = next((place for place, (a, b) in enumerate(zip_longest(*pair)) if a != b), 0)
    start = max(0, alike - _SHOWN_CHANGE // 2)
    return PrintedChange(line, *(_shortened(text, start) for text in pair))


def _shortened(text: str, start: int) -> str:
    end = start + _SHOWN_CHANGE
    return "…" * (0 < start < len(text)) + _ESCAPE.sub("", text[start:end]) + "…" * (len(text) > end)


def _last(metrics: Sequence[ProgramMetric], out: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _lines(out):
        for metric in metrics:
            for text in _texts(metric, line):
                found[metric.name] = text
    return found


def _last_words(out: bytes, err: bytes) -> str:
    """The last line of a run's standard output, or of its standard error where the other is empty; shortened."""
    lines = (_ESCAPE.sub("", line).strip() for text in (out, err) for line in reversed(_lines(text[-_TAIL_BYTES:])))
    words = "".join(c for c in next(filter(None, lines), "") if c.isprintable())
    return words[:_LAST_WORDS] + "…" * (len(words) > _LAST_WORDS)


def _lines(out: bytes) -> list[str]:
    # A progress bar's carriage returns end lines, too.
    return re.split(r"[\r\n]+", out.decode("utf-8", errors="replace"))


def _texts(metric: ProgramMetric, line: str) -> list[str]:
    line = _ESCAPE.sub("", line) if "\x1b" in line else line
    if metric.path:
        return _of_json(metric.path, line)
    group = number_group(metric.pattern)
    return [match.group(group) for match in re.finditer(metric.pattern, line) if match.group(group) is not None]


def _of_json(path: str, line: str) -> list[str]:
    begin = line.find("{")
    if begin < 0:
        return []
    try:
        value: Any = json.loads(line[begin:])
    except (ValueError, RecursionError):
        return []
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return []
    return [str(value)]


def _wanted(metric: ProgramMetric) -> str:
    return f'a line that matches "{metric.pattern}"' if metric.pattern else f"a line of JSON that has {metric.path}"


def _number(metric: ProgramMetric, text: str) -> float:
    plain = text.strip().replace(",", "") if _THOUSANDS.fullmatch(text.strip()) else text.strip()
    try:
        value = float(plain) * metric.factor
    except ValueError:
        raise NoValue(f'"{text}", printed for the metric {metric.name}, is not a number ({_wanted(metric)})') from None
    if not (math.isfinite(value) and value > 0):
        raise NoValue(f"{metric.name} is {text}: a ratio needs numbers above 0")
    return value
