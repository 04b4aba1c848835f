"""The man page aiperf.1, made from the parser. ``python -m docs.generate.manual FILE`` writes it.

What must not live here: the Markdown pages.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from aiperf import __version__
from aiperf.cli.defaults import DEFAULTS, variable
from aiperf.cli.examples import EXAMPLES
from aiperf.cli.main import COMMANDS, app
from aiperf.errors import MEANING
from docs.generate.reference import command_of, option_takes


def manual() -> str:
    """The page in roff's man macros."""
    lines = [
        f'.TH AIPERF 1 "" "aiperf {__version__}" "User Commands"',
        ".SH NAME",
        "aiperf \\- before/after experiments for AI systems",
        ".SH SYNOPSIS",
        ".B aiperf\n.I COMMAND\n[\\fIOPTION\\fR]...",
        ".SH DESCRIPTION",
        _text(str(app.info.help)),
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        lines += [f".SS aiperf {name}", _text(inspect.cleandoc(command_of(name).help or "")), *_options(name)]
        lines += [
            line for typed, said in EXAMPLES[name] for line in (".TP", f".B {_text(f'aiperf {typed}')}", _text(said))
        ]
    lines += [".SH EXIT STATUS"]
    lines += [line for code, said in MEANING.items() for line in (".TP", f".B {int(code)}", _text(said))]
    lines += [".SH ENVIRONMENT", "Defaults of options; \\fB[tool.aiperf]\\fR in pyproject.toml holds them, too."]
    lines += [line for option, said in DEFAULTS.items() for line in (".TP", f".B {variable(option)}", _text(said))]
    return "\n".join(lines) + "\n"


def _options(name: str) -> Iterator[str]:
    for parameter in command_of(name).params:
        if parameter.name == "help":
            continue
        option = parameter.param_type_name == "option"
        shown = (
            ", ".join((*parameter.opts, *parameter.secondary_opts)) if option else parameter.metavar or parameter.name
        )
        takes = f" \\fI{_text(taken)}\\fR" if option and (taken := option_takes(parameter)) else ""
        yield from (".TP", f".B {_text(shown)}{takes}", _text(parameter.help or ""))


def _text(text: str) -> str:
    """Text that no line of is taken for a macro."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manual(), encoding="utf-8")
