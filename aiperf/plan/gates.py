"""What a gate asks: the keys of configs/gates/*.yaml, read strictly, every fault of a file at once.

What must not live here: measuring, judging, the flags of a command.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from aiperf.errors import UserError
from aiperf.paths import YAML_SUFFIXES, config_file, config_names
from aiperf.records import Case, LatencyMetric
from aiperf.scenario.document import KeyPath, read_document
from aiperf.scenario.keys import KeyReader
from aiperf.scenario.program_metrics import METRIC_NAME
from aiperf.scenario.text import axis_text
from aiperf.scenario.wording import allowed, arranged, nearest, shown, shown_path, unknown_config
from aiperf.settings import Settings, options_again
from aiperf.units import share_number

OnInconclusive = Literal["pass", "warn", "fail"]
DEFAULT_GATE = "default"
ON_INCONCLUSIVE: tuple[OnInconclusive, ...] = ("pass", "warn", "fail")
GATED_METRICS = (
    *("time", "wall", "user", "system", "first_iteration", "peak_memory", "gpu_memory"),
    *(*get_args(LatencyMetric), "energy"),
    *("gpu_busy", "gpu_kernel_time", "gpu_copy_time", "gpu_span", "gpu_kernels", "gpu_copied"),
)
"""What may be gated; a test holds it equal to analysis.metrics."""
MOST_LOSS = 100.0
DOCUMENTATION = ("*.md", "*.rst", "docs/*", "LICENSE*")
"""Files that no side is thought to read, as patterns of paths from the repository's root; a star takes slashes, too."""


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
    strict: bool = True
    """Whether what could not be checked, and has no reason, makes a verdict invalid."""
    on_inconclusive: OnInconclusive = "warn"
    confirm: bool = True
    """Measure what looks worse again in a fresh session; without it nothing can fail as a regression."""
    metrics: tuple[MetricRule, ...] = (MetricRule("time"),)
    ignore: tuple[str, ...] = DOCUMENTATION
    """Patterns of files: a head that differs from base in nothing else passes without being measured."""

    def ignores(self, path: str) -> bool:
        """Whether a change of this file, a path from the repository's root, is no change of what is measured."""
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.ignore)


def load_gate(name: str) -> GateConfig:
    """Gate from ``configs/gates/NAME.yaml`` or from a path. Raises UserError with every fault of the file."""
    path = config_file("gates", name)
    if not path.is_file():
        raise unknown_config("gate", name, config_names("gates"))
    reader = _GateReader(read_document(path), kind="gate")
    config = reader.config()
    if reader.faults:
        raise UserError(arranged(reader.faults))
    return config


def gate_command(config: GateConfig, case: Case, *, base: str, settings: Settings) -> str:
    """The command that gates one case again; ``base`` is the commit it was held against, empty with a baseline."""
    words = ["aiperf", "gate", shown_path(Path(case.path)) if case.path else case.scenario]
    words += [word for key, value in case.axes.items() for word in ("--only", f"{key}={axis_text(value)}")]
    if config.path and Path(config.path) != config_file("gates", DEFAULT_GATE):
        words += ["--config", shown_path(Path(config.path))]
    if config.baseline:
        words += ["--baseline", shown_path(Path(config.baseline)), *(["--absolute"] if config.absolute else [])]
    else:
        words += ["--against", base, *(["--head", config.head] if config.head else [])]
        words += ["--build", config.build] if config.build else []
    words += ["--side", config.side] if config.side else []
    words += [] if config.strict else ["--no-strict"]
    words += ["--precision", config.precision, "--seed", str(settings.seed)]
    return shlex.join([*words, *options_again(asdict(settings))])


class _GateReader(KeyReader):
    """Reads the keys of a gate."""

    def config(self) -> GateConfig:
        values = self.values(
            {
                "scenarios": self.selectors,
                "against": self.text,
                "head": self.text,
                "side": self.text,
                "build": self.text,
                "baseline": self._path,
                "absolute": self._bool,
                "precision": self._precision,
                "strict": self._bool,
                "on_inconclusive": self._on_inconclusive,
                "confirm": self._bool,
                "metrics": self._metrics,
                "ignore": self._patterns,
            }
        )
        if values.get("against") and values.get("baseline"):
            what = "against and baseline are mutually exclusive: a gate compares with a git ref or with a file."
            self.fault(("baseline",), what, "Keep one here; --against and --baseline choose the other.", key=True)
        if values.get("absolute") and not values.get("baseline"):
            self.fault(("absolute",), "absolute needs a baseline to compare values with.", "Add baseline: FILE.")
        if self.faults:
            return GateConfig()
        return GateConfig(name=self.document.path.stem, path=str(self.document.path), **values)

    def _bool(self, at: KeyPath, value: Any) -> bool:
        if not isinstance(value, bool):
            self.fault(at, f"{at[-1]}: {shown(value)} is not true or false.")
        return value is True

    def _patterns(self, at: KeyPath, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(pattern, str) for pattern in value):
            what = f"ignore: {shown(value)} is not a list of patterns."
            self.fault(at, what, 'For example: ignore: ["*.md", "docs/*"]; [] measures after any change.')
            return ()
        return tuple(value)

    def _path(self, at: KeyPath, value: Any) -> str:
        text = self.text(at, value)
        return self.from_here(text) if text else ""

    def _precision(self, at: KeyPath, value: Any) -> str:
        text = self.text(at, value)
        return self.from_here(text) if text.endswith(YAML_SUFFIXES) else text

    def _on_inconclusive(self, at: KeyPath, value: Any) -> OnInconclusive:
        if value not in ON_INCONCLUSIVE:
            what = f"invalid value for on_inconclusive: {shown(value)}."
            self.fault(at, what, f"Allowed: {allowed(ON_INCONCLUSIVE)}.")
            return "warn"
        return value  # type: ignore[no-any-return]

    def _metrics(self, at: KeyPath, value: Any) -> tuple[MetricRule, ...]:
        if not isinstance(value, dict) or not value:
            what = f"metrics: {shown(value)} is not a mapping of metrics."
            self.fault(at, what, "For example: metrics: {time: {}, peak_memory: {threshold: 0.1}}.")
            return ()
        return tuple(self._metric((*at, name), name, rule) for name, rule in value.items())

    def _metric(self, at: KeyPath, name: str, rule: Any) -> MetricRule:
        close = nearest(name, GATED_METRICS)
        # Programs print metrics of names that only their scenarios know; one that no case has is a note of the gate.
        if name not in GATED_METRICS and (close or not METRIC_NAME.fullmatch(str(name))):
            self.fault(at, f'"{name}" is not a metric.', close or f"Allowed: {allowed(GATED_METRICS)}.", key=True)
        rule = {} if rule is None else rule
        if not isinstance(rule, dict):
            self.fault(at, f"metrics.{name}: {shown(rule)} is not a mapping.", "Write {} or {threshold: 0.1}.")
            return MetricRule(name)
        for key in rule:
            if key not in ("threshold", "allow"):
                self.unknown((*at, key), ("threshold", "allow"))
        threshold = self._loss((*at, "threshold"), rule["threshold"], most=1.0) if "threshold" in rule else None
        return MetricRule(name, threshold, self._allow((*at, "allow"), rule.get("allow", {})))

    def _allow(self, at: KeyPath, value: Any) -> dict[str, float]:
        """A number is for every case, a mapping for the cases that it names."""
        if isinstance(value, dict):
            return {name: self._loss((*at, name), loss, most=MOST_LOSS) for name, loss in value.items()}
        return {"*": self._loss(at, value, most=MOST_LOSS)}

    def _loss(self, at: KeyPath, value: Any, *, most: float) -> float:
        share = share_number(value)
        if not 0 < share < most:
            what = f"{at[-1]}: {shown(value)} is not a share above 0 and below {most:g}."
            self.fault(at, what, "For 10 % write 10% or 0.1.")
            return 0.0
        return share
