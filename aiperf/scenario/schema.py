"""The keys of a scenario file and the type of each, as pydantic models.

What must not live here: rules between keys, the workload's own parameters, reading files.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from aiperf.records import Cache, Clock, Isolation, Statistic
from aiperf.scenario.command import words_of
from aiperf.scenario.wording import allowed, nearest, shown
from aiperf.units import InvalidValue, parse_share, parse_size

SIZE_PATTERN = r"^\s*[0-9]+(\.[0-9]+)?\s*(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB)?\s*$"
RESERVED = ("env", "ranks", "nodes", "python", "venv", "ref", "command", "prepare", "workload", "metrics")
"""Side keys that are aiperf's own; every other key of a side is a parameter of its workload."""
MOST_WORDS = 20
Verdict = Literal["improved", "equivalent", "regressed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""What a scenario may expect."""


def _specifier(value: Any) -> str:
    advice = 'Write it in quotes like ">=9.0".'
    if not isinstance(value, str):
        raise InvalidValue(f"{value} is not a version specifier.", advice)
    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        raise InvalidValue(f'"{value}" is not a version specifier.', advice) from None
    return value


def _library(value: Any) -> str:
    return "" if value in ("", "any") else _specifier(value)


def _command(value: Any) -> tuple[str, ...]:
    advice = "Write the program and its arguments as text or as a list."
    if isinstance(value, str):
        words = list(words_of(value))
    elif isinstance(value, list) and all(isinstance(v, str) for v in value):
        words = list(value)
    else:
        raise InvalidValue(f"{shown(value)} is not a command.", advice)
    if not words or not words[0]:
        raise InvalidValue(f"{shown(value)} is an empty command.", advice)
    return tuple(words)


def _env_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidValue(f"{shown(value)} is not text.", 'Quote it, e.g. "1".')
    return str(value)


def _check(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in ("bitwise", "tolerance", "none"):
        advice = "Write bitwise, {rtol: …, atol: …}, {name: …, bound: …} or {kind: none, reason: …}."
        raise InvalidValue(f'"{value}" is not a check.', advice)
    return {"kind": value}


def _cited(value: Any) -> Any:
    advice = "Write chNN/name, or {row: chNN/name, ...} to name the side or the case that answers it."
    if isinstance(value, str) and value.strip():
        return {"row": value}
    if not isinstance(value, dict):
        raise InvalidValue(f"{shown(value)} is not a row of the book.", advice)
    return value


def _expected(value: Any) -> Any:
    if isinstance(value, list):
        return value
    if value not in VERDICTS:
        raise InvalidValue(
            f"{shown(value)} is not allowed; allowed: {allowed(VERDICTS)}.",
            nearest(value, VERDICTS) or f"Write one of {allowed(VERDICTS)}.",
        )
    return [{"verdict": value}]


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value.split()) > MOST_WORDS:
        raise InvalidValue(
            f"has {len(value.split())} words.", f"Write at most {MOST_WORDS}, such as: no decode, no resize."
        )
    return value


def _names(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SIZE_PATTERN}]}),
]
Text = Annotated[str, Field(min_length=1)]
CasePoint = Annotated[dict[Text, Any], Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Specifier = Annotated[str, BeforeValidator(_specifier), WithJsonSchema({"type": "string"})]
Library = Annotated[str, BeforeValidator(_library), WithJsonSchema({"type": "string"})]
EnvText = Annotated[str, BeforeValidator(_env_text), WithJsonSchema({"type": ["string", "number"]})]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Command = Annotated[
    tuple[str, ...],
    BeforeValidator(_command),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]
StepName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
PrintedMetrics = Annotated[
    dict[Text, Any],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {
                        "type": "object",
                        "properties": {
                            "pattern": {"type": "string"},
                            "json": {"type": "string"},
                            "unit": {"type": "string"},
                            "better": {"enum": ["lower", "higher"]},
                        },
                        "additionalProperties": False,
                    },
                ]
            },
        }
    ),
]
AxisValues = Annotated[list[Any], Field(min_length=1)]
Names = Annotated[
    list[Text],
    Field(min_length=1),
    BeforeValidator(_names),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ]
        }
    ),
]
Share = Annotated[
    float,
    BeforeValidator(parse_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%?\s*$"},
            ]
        }
    ),
]
Tolerance = Annotated[float, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class SharedFile(_Strict):
    """Parameters of the workload that both sides share, and how both are started."""

    model_config = ConfigDict(extra="allow")

    env: dict[EnvName, EnvText] = {}
    """Variables set before the process starts."""
    ranks: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes started together with one rendezvous."""
    nodes: Annotated[int, Field(ge=1, le=1024)] = 1
    """Nodes to spread the ranks over evenly; skipped if the run has fewer. A function with a parameter of this name
    gets the value instead."""
    python: Text = ""
    """Interpreter that runs the side."""
    venv: Text = ""
    """Virtual environment that runs the side."""
    ref: Text = ""
    """Branch, tag or commit of the repository that holds this file, or working-tree; empty runs the code as it is."""


class SideFile(SharedFile):
    """One side: parameters of the workload that differ, and how it is started."""

    workload: Text = ""
    """Workload for this side only: family.function, ./file.py:function or module:function."""
    command: Command = ()
    """A whole program, timed from start to exit; started without a shell, in the folder of this file."""
    prepare: Text = ""
    """Shell line to run, untimed, before each run of the command, as `aiperf ab --prepare` does."""
    metrics: PrintedMetrics = {}
    """Numbers that this side's program prints, if its lines differ from the other side's."""


class NeedsFile(_Strict):
    """What the scenario needs from a host; without it, the scenario is skipped with a reason."""

    gpus: Count = 0
    """GPUs; 1 or more makes the scenario run on the GPU."""
    compute_capability: Specifier = ""
    """Version specifier over the GPU's compute capability, e.g. ">=9.0"."""
    peer_access: bool = False
    """GPUs that can read each other's memory."""
    gds: bool = False
    """GPUDirect Storage must be active."""
    libraries: dict[Text, Library] = {}
    """Import name -> version specifier, "" for any version."""
    cpus: Count = 0
    """CPUs that aiperf may use."""
    whole_cores: bool = False
    """The CPUs that aiperf chooses are all hardware threads of their cores."""
    memory: Size = 0
    """Free host memory."""
    gpu_memory: Size = 0
    """Free memory of one GPU."""
    disk: Size = 0
    """Free disk space where results and scratch files go."""
    ranks: Count = 0
    """Processes that need a CPU each."""
    root: bool = False
    """Root privileges."""
    compiler: bool = False
    """A C++ compiler."""
    programs: list[Text] = []
    """Commands on PATH, e.g. [llama-server]."""


class MeasureFile(_Strict):
    """How the scenario is timed."""

    clock: Clock = "auto"
    """auto: the device clock on a GPU, else wall time; gpu: for programs, also the time of their kernels."""
    cache: Cache = "hot"
    """State of the caches before each iteration."""
    isolation: Isolation = "process"
    """process: one for each side; in_process: both sides in one."""
    exclusive: bool = False
    """Whether the sides run one after the other in each pair. If omitted, they do only if a server of serve.load ends
    during set-up or warm-up beside the other one."""
    statistic: Statistic = "mean"
    """How a side's iterations become one time."""
    delta: Share = 0.02
    """Practical threshold, such as 2% or 0.02."""
    reentry: Count = 0
    """Untimed iterations after a side's turn begins."""
    blocking_kernel: bool = True
    """Hold the stream with a blocking kernel while launches queue."""
    max_pairs: Annotated[int, Field(ge=3, le=10_000)] = 40
    """Maximum number of launch pairs."""
    metric: Text = "time"
    """The metric that the verdict and expect refer to, from metrics or one of aiperf's own; memory means GPU memory if
    a GPU is used."""


class CheckFile(_Strict):
    """How the outputs of the sides are compared; the kind follows from the keys."""

    kind: Literal["bitwise", "tolerance", "named", "none"] = "tolerance"
    """none needs a reason."""
    rtol: Tolerance = 0.0
    """Relative tolerance."""
    atol: Tolerance = 0.0
    """Absolute tolerance."""
    reference: bool = False
    """Also compare with the workload's float64 reference."""
    name: Text = ""
    """The workload's own named check."""
    bound: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """Largest value of the named check's quality metric that still passes."""
    reason: Text = ""
    """Why the sides differ by design."""
    files: Names = []
    """Commands: files that each run writes, which must have the same bytes on all sides; relative to this file's
    folder."""


class CitationFile(_Strict):
    """A row of the book's catalogue, with the sides of a ladder and the cases that answer it."""

    row: Text
    """The row, as chNN/name or app/name."""
    side: Names = []
    """The side that is the row's after, or several if the book means the best of them; default: the last side."""
    against: Text = ""
    """The side that is the row's before, which must come right before side; default: the first side."""
    case: CasePoint = {}
    """The case that answers the row: each axis with one of its values. Required if the scenario has axes."""
    cases: Annotated[list[CasePoint], Field(min_length=1)] = []
    """The cases that answer it together: a sweep or a list of modes. The row is reproduced only if all of them are."""
    differs: Annotated[Text, BeforeValidator(_short)] = ""
    """How the pair differs from the row's set-up though it answers the row, in at most 20 words."""
    lacks: Annotated[Text, BeforeValidator(_short)] = ""
    """What the row asks for and no cited case measures, in at most 20 words: the row is at best partly reproduced."""


class ExpectationFile(_Strict):
    """A verdict, and the cases that should give it."""

    verdict: Verdict
    """improved, equivalent or regressed."""
    case: CasePoint = {}
    """Axes and the value that the cases have; an axis not named may have any value. Without it: all other cases."""


class ScenarioFile(_Strict):
    """One before/after question for aiperf."""

    title: Text = ""
    """What is compared, for people; the file's name by default."""
    why: Text = ""
    """Why after should differ from before: the mechanism."""
    before: SideFile = Field(default_factory=SideFile)
    """The first side, or the workload that it runs. Without before and after, a workload is compared with itself."""
    after: SideFile = Field(default_factory=SideFile)
    """The second side, or the workload that it runs."""
    ladder: Annotated[dict[StepName, SideFile], Field(min_length=1)] = {}
    """Instead of after: named sides, each compared with before and with the previous one."""
    book: list[Annotated[CitationFile, BeforeValidator(_cited)]] = []
    """Rows of the book's catalogue that this covers: chNN/name, or {row: chNN/name, side: name} for a ladder; with axes
    {row: chNN/name, case: {axis: value}}."""
    tags: list[Text] = []
    """Words to select it by."""
    workload: Text = ""
    """What both sides run: family.function, ./file.py:function beside this file, or module:function. A plain function
    is a step, and what it returns is the output."""
    setup: Text = ""
    """For plain functions: the function that makes their arguments from a seed, ./file.py:function. It returns a tuple
    of arguments in order, a mapping of arguments by name, or a single argument."""
    params: SharedFile = Field(default_factory=SharedFile)
    """Parameters shared by the sides."""
    metrics: PrintedMetrics = {}
    """Numbers that the programs of both sides print: name -> pattern of the line, with one group for the number, or
    {pattern or json, unit, better}."""
    range: Annotated[Names, Field(description="NVTX ranges in the programs whose time is measured, too.")] = []
    axes: dict[Text, AxisValues] = {}
    """Parameter -> values to sweep; NAME.ENTRY sweeps one entry of a mapping."""
    gpu: dict[str, Any] = {}
    """Shared parameters and axes to use instead when the device is a GPU."""
    needs: NeedsFile = Field(default_factory=NeedsFile)
    """What the host must have."""
    measure: MeasureFile = Field(default_factory=MeasureFile)
    """How to time it."""
    check: Annotated[CheckFile, BeforeValidator(_check)] = Field(default_factory=CheckFile)
    """How to compare the outputs: bitwise, tolerances, or a named check."""
    moves: dict[Text, Literal["up", "down", "same"]] = {}
    """Counters that prove the mechanism, and the direction in which they move from before to after."""
    expect: Annotated[list[ExpectationFile], Field(min_length=1), BeforeValidator(_expected)] = []
    """The verdict that this scenario should give: one word for all its cases, or with axes a list of {verdict: word,
    case: {axis: value}}; the first entry that matches a case counts."""
