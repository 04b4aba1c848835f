"""Options that several subcommands share, and the settings they make.

What must not live here: options of a single subcommand.
"""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from aiperf.cli.completion import precisions
from aiperf.cli.defaults import InForce
from aiperf.errors import UserError, usage
from aiperf.host.placement import parse_cpus
from aiperf.plan.precision import load_precision
from aiperf.report.layout.formats import OutputFormat, chosen_format
from aiperf.settings import Limits, Precision, Settings
from aiperf.units import InvalidValue, parse_share, parse_time

DEFAULT_RESULTS = Path("results")


def in_results(command: str, results: Path) -> str:
    """``command`` as it is to be typed again, where the runs lie in ``results``."""
    return command if results == DEFAULT_RESULTS else f"{command} --results {shlex.quote(str(results))}"


PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        help="quick (provisional), standard, rigorous, or a file like configs/measure/*.",
        autocompletion=precisions,
    ),
]
BudgetOption = Annotated[
    str,
    typer.Option("--budget", help="Time for the whole run, e.g. 10min; every case still gets its first look."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Random seed for orders, inputs and offsets (recorded).")]
OnlyOption = Annotated[
    list[str],
    typer.Option(
        "--only",
        metavar="AXIS=VALUE[,VALUE]",
        help="Only cases with these values of an axis; scenarios without it keep all cases. Repeatable.",
    ),
]
ShardOption = Annotated[
    str, typer.Option("--shard", metavar="I/N", help="Run part I of N of the plan, e.g. one part per GPU or host.")
]
EveryMetricOption = Annotated[bool, typer.Option("--all-metrics", help="Show every metric, not only the primary one.")]
ResultsOption = Annotated[Path, typer.Option("--results", help="Folder for stored runs.")]
PinOption = Annotated[
    str,
    typer.Option("--pin", help="CPUs for both sides: auto (idle ones near the GPUs in use), none, or a list like 0-3."),
]
PeaksOption = Annotated[
    bool,
    typer.Option(
        "--peaks/--no-peaks",
        help="Measure the peaks not yet stored for this host; one that a case exceeds is always measured again.",
    ),
]
StrictOption = Annotated[
    bool | None,
    typer.Option(
        "--strict/--no-strict", help="Invalid if something is not verified and no reason is given; default for gate."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress.")]
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns", metavar="NAMES", help="Extra columns: energy (adds half a minute per pair), cost, goodput."
    ),
]
CostOption = Annotated[
    str, typer.Option("--cost", metavar="FILE", help="YAML file of prices, such as configs/cost/example.yaml.")
]
ResumeOption = Annotated[
    str, typer.Option("--resume", metavar="RUN|latest", help="Continue this run, by default with its original options.")
]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", help="Time limit for one phase of a side (set-up, warm-up, ...), e.g. 2min.")
]


def not_together(flag: str, other: str) -> UserError:
    """The mistake of giving two options that exclude each other."""
    return usage(f"cannot be combined with {other}.", "Leave one of them out.", where=flag)


def refuse_beside(flag: str, *kept: str) -> None:
    """Raise UserError where something is typed beside ``flag`` that is not among ``kept``: it would have no effect."""
    if other := next((typed for typed in InForce.typed if typed not in (flag, *kept)), ""):
        raise not_together(flag, other)


def parts_of_line(argv: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """What was typed before the name of the command, that name, and what came after it."""
    start = next((place for place, word in enumerate(argv) if place and not word.startswith("-")), len(argv))
    return list(argv[1:start]), "".join(argv[start : start + 1]), list(argv[start + 1 :])


Command = Callable[..., None]


def with_options(
    command: Command, name: str, options: Mapping[str, tuple[Any, Any]], value: Callable[[dict[str, Any]], Any]
) -> Command:
    """Give a command options in place of its parameter ``name``, which gets the ``value`` of what was typed.

    ``options`` are annotation and default of each, by the name of its parameter.
    """
    signature = inspect.signature(command, eval_str=True)
    kept = [p for p in signature.parameters.values() if p.name != name]
    added = [
        inspect.Parameter(own, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for own, (annotation, default) in options.items()
    ]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        typed = {own: given.pop(own) for own in options}
        command(**given, **{name: value(typed)})

    parameters = [*kept, *added]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def with_format(*allowed: OutputFormat) -> Callable[[Command], Command]:
    """Give a command ``--format`` and ``--json``; its parameter ``form`` gets the format, one of those ``allowed``.

    Without any all are allowed; the first is the default.
    """
    forms = allowed or tuple(OutputFormat)
    options = {
        "format_": (
            Annotated[str, typer.Option("--format", metavar="|".join(forms), help="Output format.")],
            forms[0].value,
        ),
        "as_json": (Annotated[bool, typer.Option("--json", help="Same as --format json.")], False),
    }

    def decorated(command: Command) -> Command:
        return with_options(
            command,
            "form",
            options,
            lambda typed: chosen_format(typed["format_"], as_json=typed["as_json"], allowed=forms),
        )

    return decorated


def make_settings(
    *,
    precision: str,
    results: Path,
    budget: str = "",
    seed: int = 0,
    pin: str = "auto",
    peaks: bool = True,
    timeout: str = "",
    slicing: bool = True,
) -> Settings:
    """Settings from the flags. Raises UserError."""
    limits = Limits()
    if timeout:
        seconds = time_of("--timeout", timeout)
        limits = Limits(*(seconds,) * 7)
    if pin not in ("auto", "none"):
        parse_cpus(pin)
    return Settings(
        precision=_precision(precision),
        limits=limits,
        budget=time_of("--budget", budget) if budget else None,
        seed=seed,
        pin=pin,
        results=results,
        peaks=peaks,
        slice="auto" if slicing else "off",
        taken=dict(InForce.taken),
    )


def _precision(name: str) -> Precision:
    """A precision by its name or file. Raises UserError, which names the option if that was typed."""
    try:
        return load_precision(name)
    except UserError as error:
        if "--precision" not in InForce.typed:
            raise
        raise UserError([f if f.where else replace(f, where="--precision") for f in error.faults]) from None


def with_delta(settings: Settings, text: str) -> Settings:
    """The settings with the threshold that ``--delta`` gives, if any. Raises UserError."""
    if not text:
        return settings
    delta = share_of("--delta", text)
    return replace(settings, precision=replace(settings.precision, delta=delta, width=delta / 2))


def share_of(flag: str, text: str) -> float:
    """A share above 0 and below 1 from a flag's text, ``0.02`` or ``2%``. Raises UserError."""
    try:
        return parse_share(text)
    except InvalidValue as error:
        raise usage(error.what, error.hint, where=flag) from None


def time_of(flag: str, text: str) -> float:
    """Seconds above zero from a flag's text. Raises UserError."""
    try:
        seconds = parse_time(text)
    except InvalidValue as error:
        raise usage(error.what, error.hint, where=flag) from None
    if seconds <= 0:
        raise usage(f'"{text}" is not a duration above zero.', "For example: 30s.", where=flag)
    return seconds


def axis_values(only: list[str]) -> dict[str, str]:
    """``AXIS=VALUE`` arguments as a mapping, the values of one axis between commas. Raises UserError."""
    values: dict[str, str] = {}
    for text in only:
        axis, equals, value = text.partition("=")
        if not (equals and axis and all(value.split(","))):
            hint = "For example: --only size=1MiB, or --only size=1MiB,16MiB."
            raise usage(f'"{text}" is not AXIS=VALUE or AXIS=VALUE,VALUE.', hint, where="--only")
        values[axis] = f"{values[axis]},{value}" if axis in values else value
    return values


def shard_of(text: str) -> tuple[int, int]:
    """``I/N`` as part and count. Raises UserError."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise usage(f'"{text}" is not I/N.', "For example: 1/2, and 2/2 for the other half.", where="--shard")
    return int(number), int(count)


def progress_note(quiet: bool) -> Callable[[str], None]:
    """What prints progress in single lines on stderr, or nothing."""
    return (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr, flush=True))
