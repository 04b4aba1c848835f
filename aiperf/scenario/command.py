"""A program and its arguments, written as one text.

What must not live here: running it, and which programs there are.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from aiperf.units import InvalidValue

_OPERATORS = "|&;<>\n*?"
"""Outside of quotes: pipes, redirections, sequences, and patterns of file names."""
_REPLACED = re.compile(r"\$[A-Za-z0-9_({@*#?!$-]|`")
"""Also between double quotes: names, commands and special parameters, which a shell puts its own text for."""
_AT_A_WORD = "~#"
"""At the begin of a word: a home folder, a comment."""


def words_of(text: str, *, other: str = "") -> tuple[str, ...]:
    """The words of a command, quotes taken as a shell takes them; empty for an empty text.

    Raises InvalidValue for a quote that is not closed and for what a shell
    would replace or take for itself: no shell runs the command, so the program would get it as an argument. ``other``:
    what else can be done then, where the command is typed.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        raise InvalidValue(f"{text!r} has a quote that is not closed.", "Close it, or put a \\ before it.") from None
    if words and (syntax := shell_syntax(text)):
        raise InvalidValue(
            f"{syntax!r} in {text!r} is shell syntax, but no shell runs this: {words[0]} would get it as an argument.",
            f"{f'{other}, or write' if other else 'Write'} sh -c {shlex.quote(text)}, or put it in single quotes where "
            "it is meant as an argument.",
        )
    return words


def shell_syntax(text: str) -> str:
    """The first sign that a shell would not hand on as it stands, where it would not; empty without any."""
    text = text.strip()
    quote, escaped = "", False
    for place, sign in enumerate(text):
        if escaped:
            escaped = False
        elif sign == "\\" and quote != "'":
            escaped = True
        elif quote:
            if quote == '"' and _REPLACED.match(text, place):
                return sign
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _OPERATORS or _REPLACED.match(text, place) or (sign in _AT_A_WORD and _begins(text, place)):
            return sign
    return ""


def files_fault(names: Sequence[str]) -> str:
    """What is wrong with names of files that programs have to write, as a sentence; empty where nothing is."""
    for place, name in enumerate(names):
        if "\0" in name or "\n" in name or name.rpartition("/")[2] in ("", ".", ".."):
            return f"{name!r} is not a valid file name."
        if name.startswith("~"):
            return f"{name!r} begins with ~, which is not expanded here."
        if os.path.normpath(name) in map(os.path.normpath, names[:place]):
            return f"{name} is named twice."
    return ""


def _begins(text: str, place: int) -> bool:
    return place == 0 or text[place - 1].isspace()
