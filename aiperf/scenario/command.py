"""A program and its arguments, written as one text.

What must not live here: running it, and which programs there are.
"""

from __future__ import annotations

import shlex

_OPERATORS = "|&;<>`"
_NAMED = "$"


def words_of(text: str) -> tuple[str, ...]:
    """The words of a command, quotes taken as a shell takes them; empty for an empty text.

    Raises ValueError, with a sentence of fault and one of advice, for a quote that is not closed and for what only a
    shell would understand: no shell runs the command, so the program would get it as an argument.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        raise ValueError(f"{text!r} has a quote that is not closed. Close it, or put a \\ before it.") from None
    if syntax := shell_syntax(text):
        raise ValueError(
            f"{syntax!r} in {text!r} is for a shell, and no shell runs it: {words[0]} would get it as an argument. "
            f"Write sh -c {shlex.quote(text)}, or quote it where it is meant as an argument."
        )
    return words


def shell_syntax(text: str) -> str:
    """The first operator of a shell, or name for it to replace, that stands outside of quotes; empty without any."""
    quote, escaped = "", False
    for place, sign in enumerate(text):
        if escaped:
            escaped = False
        elif sign == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _OPERATORS or (sign == _NAMED and _names(text[place + 1 : place + 2])):
            return sign
    return ""


def _names(following: str) -> bool:
    return following.isalpha() or following in tuple("_({")
