"""GitLab's code quality report (JSON, what needs attention) and metrics report (OpenMetrics text, the numbers).

What must not live here: outcomes being decided, files, the environment.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiperf.analysis.rows import ComparisonRow
from aiperf.errors import Exit
from aiperf.report.ci.entries import CiEntry, CiFormat, counts
from aiperf.report.ci.places import inside
from aiperf.report.numbers import clean, known

_SEVERITY = {"error": "critical", "warning": "minor", "notice": "info"}
_UNITS = {"s": "seconds", "B": "bytes", "bytes": "bytes"}
_FAMILY = re.compile(r"[^a-z0-9_]+")


def render_code_quality(entries: Sequence[CiEntry], *, root: Path, elsewhere: str) -> str:
    """Return one issue for each entry that asks for attention, none for the others.

    ``root`` is the repository, from which GitLab wants its paths; ``elsewhere`` stands for a scenario outside it.
    """
    issues = [_issue(entry, inside(entry.path, root) or elsewhere) for entry in entries if entry.level]
    return json.dumps(issues, ensure_ascii=False, indent=1) + "\n"


def _issue(entry: CiEntry, path: str) -> dict[str, Any]:
    word = clean(entry.word)
    # No figure goes in: the same finding has the same fingerprint in every run.
    identity = "\0".join(map(clean, (entry.group, entry.name, entry.word)))
    return {
        "description": clean(f"{entry.name}: {entry.summary}"),
        "check_name": f"aiperf/{word.replace(' ', '-')}",
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:32],
        "severity": _SEVERITY[entry.level],
        "location": {"path": path, "lines": {"begin": entry.line}},
    }


def render_metrics(entries: Sequence[CiEntry], *, exit_code: Exit) -> str:
    """Return OpenMetrics text: values by side, ratios with their ends, the words, the counts and the exit code."""
    families: dict[str, list[str]] = {}
    for entry in entries:
        _verdict(families, entry)
        for metric in entry.metrics if entry.comparable else ():
            _values(families, entry, metric)
            _ratios(families, entry, metric)
    for outcome, count in counts(entries).items():
        _sample(families, "aiperf_cases", "gauge", "Number of cases with this outcome.", {"outcome": outcome}, count)
    _sample(families, "aiperf_exit_code", "gauge", "Exit code of the command.", {}, int(exit_code))
    return "".join(f"{line}\n" for lines in families.values() for line in lines) + "# EOF\n"


def _verdict(families: dict[str, list[str]], entry: CiEntry) -> None:
    labels = {**_labels(entry), "word": entry.word, "outcome": entry.outcome}
    _sample(families, "aiperf_verdict", "info", "The verdict of a case, or why it has none.", labels, 1)


def _values(families: dict[str, list[str]], entry: CiEntry, metric: ComparisonRow) -> None:
    unit = _UNITS.get(metric.unit, _plain(metric.unit))
    family = f"aiperf_{_plain(metric.metric)}{'_' + unit if unit else ''}"
    for side, value in metric.values:
        labels = {**_labels(entry), "side": side}
        _sample(families, family, "gauge", f"{metric.metric.replace('_', ' ')} of a side.", labels, value, unit=unit)


def _ratios(families: dict[str, list[str]], entry: CiEntry, metric: ComparisonRow) -> None:
    labels = {**_labels(entry), "metric": metric.metric, "side": metric.side, "against": metric.against}
    for family, said, value in (
        ("aiperf_ratio", "Side against the other, above 1 is better.", metric.ratio),
        ("aiperf_ratio_low", "Lower end of the ratio's interval.", metric.low),
        ("aiperf_ratio_high", "Upper end of the ratio's interval.", metric.high),
    ):
        _sample(families, family, "gauge", said, labels, value)


def _sample(
    families: dict[str, list[str]],
    family: str,
    kind: str,
    said: str,
    labels: dict[str, str],
    value: float | None,
    *,
    unit: str = "",
) -> None:
    """Add a sample to its family, whose lines stand together; what was not measured is left out."""
    if value is None or not known(value):
        return
    described = [f"# TYPE {family} {kind}", *([f"# UNIT {family} {unit}"] if unit else []), f"# HELP {family} {said}"]
    lines = families.setdefault(family, described)
    given = ",".join(f'{name}="{_label(text)}"' for name, text in labels.items())
    name = f"{family}_info" if kind == "info" else family
    lines.append(f"{name}{'{' + given + '}' if given else ''} {value:.6g}")


def _labels(entry: CiEntry) -> dict[str, str]:
    return {"scenario": entry.group, "case": entry.name}


def _label(text: str) -> str:
    """Escape a label's value; GitLab takes any # for the beginning of a comment, so a wide one stands for it."""
    return clean(text).replace("#", "＃").replace("\\", "\\\\").replace('"', '\\"')


def _plain(name: str) -> str:
    return _FAMILY.sub("_", name.lower().replace("/s", "_per_second")).strip("_")


CODE_QUALITY = CiFormat(
    "gitlab",
    "Write a GitLab code quality report (JSON).",
    lambda report: {"": render_code_quality(report.entries, root=report.root, elsewhere=report.elsewhere)},
)
METRICS = CiFormat(
    "metrics",
    "Write the numbers as OpenMetrics text (GitLab metrics).",
    lambda report: {"": render_metrics(report.entries, exit_code=report.exit_code)},
)
