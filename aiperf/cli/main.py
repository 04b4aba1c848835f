"""The command: which subcommands there are, and the one place where errors become exit codes.

What must not live here: what a subcommand does. Each is imported when it is called, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import functools
import gc
import importlib
import os
import re
import shlex
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import typer
import typer.core

from aiperf import __version__
from aiperf.cli.defaults import Defaults, InForce, misspelt, read_defaults
from aiperf.cli.examples import EXAMPLES, help_epilog
from aiperf.cli.namesake import refuse_namesake
from aiperf.cli.resources import MORE_RESOURCES, is_exhausted
from aiperf.cli.signals import interruptible
from aiperf.cli.streams import AnswerLost, guarded_streams, open_closed
from aiperf.errors import AiperfError, Exit, UserError, usage
from aiperf.launch.environment import EXIT_NOTE_VARIABLE
from aiperf.report.faults import print_faults
from aiperf.report.layout.terminal import use_colour
from aiperf.scenario.wording import nearest


class _Entry(NamedTuple):
    module: str
    function: str
    help: str


COMMANDS = {
    "run": _Entry("run", "run", "Run scenarios by name, tag, path or glob; print the comparison table."),
    "ab": _Entry("ab", "ab", "Compare programs: wall, user and system time, and peak memory."),
    "list": _Entry("list", "list_command", "List scenarios, suites, workloads or counters."),
    "show": _Entry("show", "show", "Explain a scenario with its latest measurement, a workload, or a verdict."),
    "new": _Entry("new", "new", "Create a small working scenario and its two functions to edit."),
    "report": _Entry("report", "report", "Print a stored run as a table or HTML page."),
    "profile": _Entry("profile", "profile", "Run both sides under profilers and compare their counters."),
    "clean": _Entry("clean", "clean", "Remove raw profiler reports and caches."),
    "compare": _Entry("compare", "compare", "Compare stored runs, case by case."),
    "gate": _Entry("gate", "gate", "Pass or fail a change against a git ref or a stored baseline."),
    "comment": _Entry("comment", "comment", "Write a summary as the one comment on a pull or merge request."),
    "history": _Entry("history", "history", "Show the trend of a scenario over stored runs, with its change points."),
    "query": _Entry("query", "query", "Query stored runs with SQL."),
    "book": _Entry("book", "book", "Compare the book's claims with what was measured here."),
    "export": _Entry("export", "export", "Export stored runs as Parquet, CSV or JSON."),
    "import": _Entry("import_", "import_", "Import results of other benchmark tools."),
    "doctor": _Entry("doctor", "doctor", "Check this host for settings that bias benchmarks, with advice."),
    "peaks": _Entry("peaks", "peaks", "Measure the peaks of this host."),
    "survey": _Entry("survey", "survey", "Find the slow node or link of a fleet."),
    "calibrate": _Entry("calibrate", "calibrate", "Estimate this host's noise floor with A/A runs."),
}


_HELP = {"help_option_names": ["-h", "--help"]}
_ALSO_CALLED = {
    "explain": "show",
    "diff": "compare",
    "bench": "run",
    "measure": "run",
    "init": "new",
}
"""What other tools call a command."""
_TAKES = {"<str>": "TEXT", "<int>": "N", "<float>": "NUMBER", "<path>": "PATH", "<int range>": "N"}
"""What help says that an option takes, instead of Python's types."""
_NOT_PARSED = {
    "int_parsing": "is not a whole number",
    "float_parsing": "is not a number",
    "greater_than_equal": "is too small: the least value is {ge}",
    "less_than_equal": "is too large: the greatest value is {le}",
}


class _Commands(typer.core.TyperGroup):
    """Subcommands by name, imported on use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {flag for parameter in self.get_params(ctx) for flag in parameter.opts}
        first = next((arg for arg in args if arg not in own), "")
        if first[:1] == "-" and first not in ("-", "--") and not own & {first[:2], first.partition("=")[0]}:
            raise self._not_own(ctx, first.partition("=")[0], args, own)
        return super().parse_args(ctx, args)

    def _not_own(self, ctx: Any, option: str, args: list[str], own: set[str]) -> UserError:
        """An option before the command that only commands have, or none has: the line that works, if it is known."""
        named = [place for place, arg in enumerate(args) if arg in COMMANDS]
        taking = [place for place in named if any(option in p.opts for p in self.get_command(ctx, args[place]).params)]
        if taking:
            place = taking[0]
            kept, moved = ([arg for arg in args[:place] if (arg in own) is mine] for mine in (True, False))
            way = f"Write it after the command: aiperf {shlex.join([*kept, args[place], *moved, *args[place + 1 :]])}"
        elif named:
            way = f"{nearest(option, own)} aiperf {args[named[0]]} -h lists the options of that command.".strip()
        else:
            way = f"{nearest(option, own)} Options of a command follow its name; aiperf -h lists all commands.".strip()
        return usage(f'"{option}" is not an option of aiperf itself.', way)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and args[0][:1] != "-" and not ctx.resilient_parsing:
            meant = nearest(_ALSO_CALLED.get(args[0], args[0]), COMMANDS)
            raise usage(f'"{args[0]}" is not an aiperf command.', f"{meant} aiperf -h lists them all.".strip())
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        entry = COMMANDS[cmd_name]
        function = getattr(importlib.import_module(f"aiperf.cli.{entry.module}"), entry.function)
        if not gc.isenabled():  # as __main__ left it: what was imported stays, and need not be looked through
            gc.freeze()
            gc.enable()
        command = copy.copy(_built(cmd_name, function))
        _set_defaults(ctx, cmd_name, command)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@functools.cache
def _built(name: str, function: Any) -> Any:
    """The command of a function, which takes its time: a process that calls several builds each once."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, epilog=help_epilog(name), context_settings=_HELP)(function)
    command = typer.main.get_command(single)
    _speak_plainly(command)
    return command


def _speak_plainly(command: Any) -> None:
    """Keep the names of Python's types out of the help of a command, and pydantic's wording out of its errors."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":  # its metavar is written as in a usage line already
            parameter.get_usage_pieces = lambda ctx, usage=parameter.metavar: [usage]
        shown = getattr(parameter, "display_type", None)
        if shown is None:
            continue
        argument = parameter.param_type_name == "argument"
        parameter.display_type = lambda ctx, shown=shown, argument=argument: (
            "" if argument else _TAKES.get(shown(ctx), shown(ctx).strip("<>"))
        )
    parse = command.parse_args

    def parsed(ctx: Any, args: list[str]) -> Any:
        try:
            return parse(ctx, args)
        except typer.BadParameter as error:
            lacking: Any = error.param if hasattr(error, "param_type") else None  # what is wrong otherwise has no type
            if lacking is not None and lacking.param_type_name == "argument":
                raise _missing(command.name, lacking.metavar.split()[0]) from error
            found: list[Any] = getattr(error.__cause__, "errors", list)()
            if found and (what := _NOT_PARSED.get(found[0]["type"])):
                error.message = f'"{found[0]["input"]}" {what.format_map(found[0].get("ctx", {}))}.'
            elif found and "error" in found[0].get("ctx", {}):
                error.message = str(found[0]["ctx"]["error"])
            raise

    command.parse_args = parsed


def _missing(name: str, argument: str) -> UserError:
    example = EXAMPLES[name][0][0]
    return usage(f"aiperf {name} needs a {argument}.", f"For example: aiperf {example}; aiperf {name} -h explains it.")


def _set_defaults(ctx: Any, name: str, command: Any) -> None:
    """Give the command what the user set once, before its options are parsed; not where only its help is listed."""
    if ctx is None or _State.defaults is None:
        return
    options = {flag[2:]: parameter.name for parameter in command.params for flag in parameter.opts}
    ctx.default_map = {**(ctx.default_map or {}), name: _State.defaults.of_command(options)}
    defaults, invoke = _State.defaults, command.invoke

    def invoked(own: Any) -> Any:
        sources = {option: own.get_parameter_source(parameter) for option, parameter in options.items()}
        InForce.taken = defaults.taken([o for o, source in sources.items() if source and source.name == "DEFAULT_MAP"])
        InForce.typed = [
            max(parameter.opts, key=len)
            if parameter.opts[0].startswith("-")
            else re.sub(r"^\[(.*)\]$", r"\1", parameter.metavar)
            for parameter in command.params
            if (source := own.get_parameter_source(parameter.name)) and source.name == "COMMANDLINE"
        ]
        return invoke(own)

    command.invoke = invoked


app = typer.Typer(
    name="aiperf",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_HELP,
    help="Is the after really better than the before, by how much, and how sure are we? "
    "Measures before/after pairs, interleaved and checked, and reports an interval and a verdict.",
    epilog="Exit codes: 0 success, 1 confirmed regression (gate), 2 usage or scenario error, 3 inconclusive, which the "
    "gate forbids, 4 no or incomparable baseline, 5 wrong output, impossible result or failed case, 6 host unfit, "
    "70 internal error in aiperf, 71 not enough memory for aiperf itself, 74 the output could not be written, "
    "77 everything skipped, 130 interrupted.",
)


class _State:
    debug = False
    defaults: Defaults | None = None


def _version(wanted: bool) -> None:
    if wanted:
        print(f"aiperf {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    no_color: bool = typer.Option(False, "--no-color", help="No colour, as with NO_COLOR in the environment."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    _State.debug = debug
    use_colour(not no_color)


def entry() -> int:
    """Run the command and return its exit code."""
    # Whatever it starts has no say in it.
    note = os.environ.pop(EXIT_NOTE_VARIABLE, "")
    code = _answered()
    if note and os.environ.get("SLURM_PROCID", "0") == "0":
        _note_exit(note, code)
    return code


def _note_exit(path: str, code: int) -> None:
    """Tell the job of which this is the head. The place of the code is there already, should its folder be full."""
    place = os.O_WRONLY | os.O_CREAT
    with contextlib.suppress(OSError), open(os.open(path, place, 0o644), "w", encoding="ascii") as file:
        file.write(f"{int(code):<4}\n")


def _answered() -> int:
    if 1 in open_closed():
        print("aiperf: stdout is closed, so nothing could be printed.\n  Redirect it: > /dev/null.", file=sys.stderr)
        return Exit.OUTPUT
    with guarded_streams() as streams:
        code = _outcome()
        if (lost := streams.finish()) is None:
            return code
        if lost.errno == errno.EIO:
            return code or Exit.INTERRUPTED
        print(f"aiperf: the output could not be written: {lost.strerror}", file=sys.stderr)
        return code or Exit.OUTPUT


def _outcome() -> int:
    """Exit code of every outcome. A reader that has seen enough (head, less) is not an error."""
    try:
        with interruptible():
            refuse_namesake()
            _State.defaults = read_defaults(Path.cwd(), os.environ)
            for sentence in misspelt(os.environ):
                print(sentence, file=sys.stderr)
            app(prog_name="aiperf")  # also as python -m aiperf: completion and help are of the command
    except UserError as error:
        print_faults(error)
        _say_defaults()
        return _trace(error.exit)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except SystemExit as request:
        return _requested(request)
    except AnswerLost:
        return Exit.OK  # what becomes of that is for entry to say
    except Exception as error:
        return _unforeseen(error)
    return Exit.OK


def _say_defaults() -> None:
    if _State.defaults and _State.defaults.sentence:
        print(_State.defaults.sentence, file=sys.stderr)


def _requested(request: SystemExit) -> int:
    """Exit code of a command that ended by itself; Typer's own word for a broken pipe is 1, here a regression."""
    if hasattr(request.__context__, "format_message"):  # it refused a value, which may not have been typed
        _say_defaults()
    if request.code == Exit.REGRESSION and not isinstance(request.__context__, typer.Exit):
        return Exit.OK if isinstance(request.__context__, BrokenPipeError) else Exit.INTERRUPTED
    return request.code if isinstance(request.code, int) else Exit.OK


def _unforeseen(error: Exception) -> int:
    if is_exhausted(error):
        with contextlib.suppress(MemoryError):
            print(f"aiperf: {type(error).__name__}: {error}\n  {MORE_RESOURCES}", file=sys.stderr)
        return _trace(Exit.RESOURCES)
    if isinstance(error, AiperfError):
        print(f"aiperf: {error}", file=sys.stderr)
        return _trace(Exit.USAGE)
    # It may not happen again, so the traceback is printed without being asked for.
    traceback.print_exc()
    print(f"aiperf: internal error: {type(error).__name__}: {error}", file=sys.stderr)
    return Exit.INTERNAL


def _trace(code: Exit) -> Exit:
    if _State.debug:
        traceback.print_exc()
    return code
