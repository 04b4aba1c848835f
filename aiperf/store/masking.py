"""Secrets that users type into commands and variables, taken out of what is stored; measured is with them.

What must not live here: reading and writing files, and what a profiled process gets (profilers/environment.py).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

WITHHELD = "[withheld]"
_ALWAYS = re.compile(r"passw(or)?d|passphrase|secrets?|credentials?|apikey|jwt")
_AT_THE_END = re.compile(r"(token|auth|cookie|(api|access|private|signing|account|encryption) key)$")
_OF_A_TEXT = re.compile(
    r"(first|last|next|per|inter|new|prompt|output|bos|eos|sep|cls|mask|pad|unk|stop|start|end) token$"
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_ASSIGNED = re.compile(r"([A-Za-z][\w.-]*)=([^\s\"']+|\"[^\"]*\"|'[^']*')")
_FLAG = re.compile(r"(?:^|\s)--?([A-Za-z][\w.-]*)(?:\s+(?=[^-\s])([^\s\"']+|\"[^\"]*\"|'[^']*')|$)")
_SHORTEST = 6
_UNLIKE_A_WORD = re.compile(r"[0-9]|.{16}")
"""What is taken out wherever it stands; another value only where it was given, as it may be a word of the record."""
_KNOWN = re.compile(
    r"(?<![\w-])(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}|AKIA[0-9A-Z]{16}"
    r"|xox[abprs]-[\w-]{10,}|hf_[A-Za-z0-9]{20,}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"
    r"|(?<=://)[^\s/:@\"]+:[^\s/@\"]+(?=@)"
)
_TYPED = ("argv", "case", "facts", "failure")
"""Fields of records that hold what users typed."""


def named_like_secret(name: str) -> bool:
    """Whether the name of a variable or an option says that its value is a secret: not that of a number of tokens, or
    of a token of a text."""
    words = " ".join(word.lower() for word in _WORD.findall(name))
    at_the_end = _AT_THE_END.search(words) and not _OF_A_TEXT.search(words)
    return bool(_ALWAYS.search(words.replace(" ", "")) or at_the_end)


def masked(plain: Any) -> Any:
    """A record's plain form in which the first secret reads ``[withheld]``, the next one ``[withheld 2]``, and so on:
    what differed still differs."""
    found = list(dict.fromkeys(_secrets(plain)))
    text = json.dumps(plain, ensure_ascii=False)
    found += [each for each in dict.fromkeys(_KNOWN.findall(text)) if each not in found]
    if not found:
        return plain
    names = {secret: WITHHELD if not i else f"[withheld {i + 1}]" for i, secret in enumerate(found)}
    # The longest first: one may hold another.
    ordered = sorted(found, key=len, reverse=True)
    everywhere = [secret for secret in ordered if _UNLIKE_A_WORD.search(secret)]
    for secret in everywhere:
        text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], names[secret])
    rest = [secret for secret in ordered if secret not in everywhere]
    return _without(json.loads(text), {secret: names[secret] for secret in rest}) if rest else json.loads(text)


def _secrets(plain: Any, *, typed: bool = False) -> Iterator[str]:
    """Values in what users typed that are named like secrets."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            if typed and isinstance(value, str) and named_like_secret(name):
                yield from _secret(value)
            yield from _secrets(value, typed=typed or name in _TYPED)
    elif isinstance(plain, list):
        for i, value in enumerate(plain):
            if typed and isinstance(value, str) and isinstance(before := plain[i - 1] if i else "", str):
                flag = before.startswith("-") and "=" not in before and " " not in before
                yield from _secret(value) if flag and named_like_secret(before) else ()
            yield from _secrets(value, typed=typed)
    elif isinstance(plain, str) and typed:
        for found in (*_ASSIGNED.findall(plain), *_FLAG.findall(plain)):
            yield from _secret(found[1]) if named_like_secret(found[0]) else ()


def _secret(value: str) -> Iterator[str]:
    value = value.strip("\"'")
    known = value.startswith((WITHHELD[:-1], "-", "$")) or value.isdigit() or os.path.lexists(value)
    if len(value) >= _SHORTEST and not known:
        yield value


def _without(plain: Any, names: dict[str, str], *, typed: bool = False) -> Any:
    if isinstance(plain, dict):
        return {n: _without(value, names, typed=typed or n in _TYPED) for n, value in plain.items()}
    if isinstance(plain, list):
        return [_without(value, names, typed=typed) for value in plain]
    if isinstance(plain, str) and typed:
        for secret, name in names.items():
            plain = plain.replace(secret, name)
    return plain
