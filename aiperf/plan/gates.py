"""What a gate asks: the keys of configs/gates/*.yaml, read strictly, every fault of a file at once.

What must not live here: measuring, judging, the flags of a command.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from aiperf.errors import UserError, usage
from aiperf.paths import config_folder
from aiperf.records import Case
from aiperf.scenario.document import Document, KeyPath, read_document
from aiperf.scenario.text import axis_text
from aiperf.scenario.wording import allowed, arranged, nearest, shown, shown_path

OnInconclusive = Literal["pass", "warn", "fail"]
DEFAULT_GATE = "default"
ON_INCONCLUSIVE: tuple[OnInconclusive, ...] = ("pass", "warn", "fail")
GATED_METRICS = ("time", "wall", "user", "system", "first_iteration", "peak_memory", "gpu_memory", "energy")
"""What may be gated; a test holds it equal to analysis.metrics."""
MOST_LOSS = 100.0


@dataclass(frozen=True)
class MetricRule:
    """How one metric is gated."""

    metric: str
    threshold: float | None = None
    """Smallest loss that matters, as a ratio minus 1; None takes the scenario's own, else the precision's."""
    allow: Mapping[str, float] = field(default_factory=dict)
    """Scenario, case id or pattern of names -> loss that is accepted there, as a ratio minus 1."""

    def allowed(self, scenario: str, case: str) -> float:
        """The loss declared for a case; the most exact name wins, 0 when nothing is declared."""
        for name in (case, scenario):
            if name in self.allow:
                return self.allow[name]
        return next((loss for name, loss in self.allow.items() if fnmatch.fnmatchcase(scenario, name)), 0.0)


@dataclass(frozen=True)
class GateConfig:
    """A gate as its file describes it; flags of the command replace single fields."""

    name: str = ""
    path: str = ""
    scenarios: tuple[str, ...] = ()
    """Names, tags, paths, patterns; paths are taken from the file's folder."""
    against: str = ""
    """Git ref of the base."""
    head: str = ""
    """Git ref of what is gated; empty for the working tree."""
    side: str = ""
    """Which side of each scenario is gated; empty for its last one."""
    build: str = ""
    """Command that builds a checkout, run in its folder."""
    baseline: str = ""
    """File of stored ratios and values; excludes ``against``."""
    absolute: bool = False
    """Hold values, not ratios, against the baseline."""
    precision: str = "standard"
    on_inconclusive: OnInconclusive = "warn"
    confirm: bool = True
    """Measure what looks worse again in a fresh sitting; without it nothing can fail as a regression."""
    metrics: tuple[MetricRule, ...] = (MetricRule("time"),)


def load_gate(name: str) -> GateConfig:
    """Gate from ``configs/gates/NAME.yaml`` or from a path. Raises UserError with every fault of the file."""
    folder = config_folder() / "gates"
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise usage(f'gate "{name}" is not known.', f"Choose one of {known}, or the path of a file like them.")
    document = read_document(path)
    reader = _Reader(document)
    config = reader.config()
    if reader.faults:
        raise UserError(arranged(reader.faults))
    return config


def gate_command(config: GateConfig, case: Case, *, base: str, seed: int) -> str:
    """The command that gates one case again; ``base`` is the commit it was held against, empty with a baseline."""
    words = ["aiperf", "gate", shown_path(Path(case.path)) if case.path else case.scenario]
    words += [word for key, value in case.axes.items() for word in ("--only", f"{key}={axis_text(value)}")]
    if config.path and Path(config.path) != config_folder() / "gates" / f"{DEFAULT_GATE}.yaml":
        words += ["--config", shown_path(Path(config.path))]
    if config.baseline:
        words += ["--baseline", shown_path(Path(config.baseline)), *(["--absolute"] if config.absolute else [])]
    else:
        words += ["--against", base, *(["--head", config.head] if config.head else [])]
        words += ["--build", config.build] if config.build else []
    words += ["--side", config.side] if config.side else []
    return shlex.join([*words, "--precision", config.precision, "--seed", str(seed)])


class _Reader:
    """Reads one document key by key and collects what is wrong with it."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.faults = list(document.faults)

    def config(self) -> GateConfig:
        data = self._document.data
        readers: dict[str, Callable[[KeyPath, Any], Any]] = {
            "scenarios": self._scenarios,
            "against": self._text,
            "head": self._text,
            "side": self._text,
            "build": self._text,
            "baseline": self._path,
            "absolute": self._bool,
            "precision": self._precision,
            "on_inconclusive": self._on_inconclusive,
            "confirm": self._bool,
            "metrics": self._metrics,
        }
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key in readers:
                values[key] = readers[key]((key,), value)
            else:
                self._unknown((key,), readers)
        if values.get("against") and values.get("baseline"):
            what = "against and baseline exclude each other: a gate holds against a git ref or against a file."
            self._fault(("baseline",), what, "Keep one here; --against and --baseline choose the other.", key=True)
        if values.get("absolute") and not values.get("baseline"):
            self._fault(("absolute",), "absolute needs a baseline to hold values against.", "Add baseline: FILE.")
        if self.faults:
            return GateConfig()
        return GateConfig(name=self._document.path.stem, path=str(self._document.path), **values)

    def _fault(self, at: KeyPath, what: str, hint: str = "", *, key: bool = False) -> None:
        self.faults.append(self._document.fault(at, what, hint, key=key))

    def _unknown(self, at: KeyPath, known: Mapping[str, Any]) -> None:
        hint = nearest(at[-1], known) or f"Allowed: {allowed(known)}."
        self._fault(at, f'"{at[-1]}" is not a key of a gate.', hint, key=True)

    def _text(self, at: KeyPath, value: Any) -> str:
        # A ref or a word that looks like a number is still text.
        text = self._document.texts.get(at, value) if not isinstance(value, bool | None) else value
        if isinstance(text, str) and text.strip():
            return text
        self._fault(at, f"{at[-1]}: {shown(value)} is not a text.")
        return ""

    def _bool(self, at: KeyPath, value: Any) -> bool:
        if not isinstance(value, bool):
            self._fault(at, f"{at[-1]}: {shown(value)} is not true or false.")
        return value is True

    def _path(self, at: KeyPath, value: Any) -> str:
        text = self._text(at, value)
        return self._from_here(text) if text else ""

    def _from_here(self, text: str) -> str:
        return os.path.normpath(self._document.path.parent / Path(text).expanduser())

    def _scenarios(self, at: KeyPath, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list):
            self._fault(at, f"scenarios: {shown(value)} is not a list of names, tags or paths.", "Write [name, ...].")
            return ()
        texts = [self._text((*at, i), entry) for i, entry in enumerate(value)]
        is_path = [os.sep in t or t.endswith((".yaml", ".yml")) for t in texts]
        return tuple(self._from_here(t) if p else t for t, p in zip(texts, is_path, strict=True))

    def _precision(self, at: KeyPath, value: Any) -> str:
        text = self._text(at, value)
        return self._from_here(text) if text.endswith((".yaml", ".yml")) else text

    def _on_inconclusive(self, at: KeyPath, value: Any) -> OnInconclusive:
        if value not in ON_INCONCLUSIVE:
            what = f"on_inconclusive: {shown(value)} is not a way out of doubt."
            self._fault(at, what, f"Allowed: {allowed(ON_INCONCLUSIVE)}.")
            return "warn"
        return value  # type: ignore[no-any-return]

    def _metrics(self, at: KeyPath, value: Any) -> tuple[MetricRule, ...]:
        if not isinstance(value, dict) or not value:
            what = f"metrics: {shown(value)} is not a mapping of metrics."
            self._fault(at, what, "Write for instance metrics: {time: {}, peak_memory: {threshold: 0.1}}.")
            return ()
        return tuple(self._metric((*at, name), name, rule) for name, rule in value.items())

    def _metric(self, at: KeyPath, name: str, rule: Any) -> MetricRule:
        if name not in GATED_METRICS:
            hint = nearest(name, GATED_METRICS) or f"Allowed: {allowed(GATED_METRICS)}."
            self._fault(at, f'"{name}" is not a metric.', hint, key=True)
        rule = {} if rule is None else rule
        if not isinstance(rule, dict):
            self._fault(at, f"metrics.{name}: {shown(rule)} is not a mapping.", "Write {} or {threshold: 0.1}.")
            return MetricRule(name)
        for key in rule:
            if key not in ("threshold", "allow"):
                self._unknown((*at, key), {"threshold": 0, "allow": 0})
        threshold = self._loss((*at, "threshold"), rule["threshold"], most=1.0) if "threshold" in rule else None
        return MetricRule(name, threshold, self._allow((*at, "allow"), rule.get("allow", {})))

    def _allow(self, at: KeyPath, value: Any) -> dict[str, float]:
        """A number is for every case, a mapping for the cases that it names."""
        if isinstance(value, dict):
            return {name: self._loss((*at, name), loss, most=MOST_LOSS) for name, loss in value.items()}
        return {"*": self._loss(at, value, most=MOST_LOSS)}

    def _loss(self, at: KeyPath, value: Any, *, most: float) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < most:
            what = f"{at[-1]}: {shown(value)} is not a share above 0 and below {most:g}."
            self._fault(at, what, "0.1 stands for 10 %.")
            return 0.0
        return float(value)
