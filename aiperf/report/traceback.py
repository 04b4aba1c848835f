"""A Python traceback as its reader needs it: the frames of their own code, and how many others there were.

What must not live here: which stream a text comes from, where it is shown. The record keeps the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aiperf.report.numbers import clean, counted

_FRAME = re.compile(r'^ *File "(?P<path>[^"]*)", line \d+')
_UNDER_A_FRAME = "    "
_MARKS = re.compile(r"^[\s^~]+$")
_OF_AIPERF = re.compile(r"/aiperf/(worker|launch|protocol|recipes|scenario|workloads/shared)/[\w/]+\.py$")
_OF_LIBRARIES = re.compile(r"^<|/(site|dist)-packages/|/lib(64)?/python3(\.\d+)?t?/")


def own_lines(text: str) -> list[str]:
    """``text`` without control characters, and of a traceback in it only the frames of the user's code.

    Where it has none, the frames of libraries stay. A last line counts those that are left out.
    """
    if not any(_FRAME.match(line) for line in text.splitlines()):
        return [clean(line) for line in text.splitlines()]
    blocks = _blocks(text.splitlines())
    kinds = [_kind(block) for block in blocks]
    hidden = {"aiperf", "libraries"} if "own" in kinds else {"aiperf"} if "libraries" in kinds else set()
    shown = [line for block, kind in zip(blocks, kinds, strict=True) if kind not in hidden for line in block]
    said = [f"{counted(kinds.count(kind), 'frame')} of {kind}" for kind in sorted(hidden) if kind in kinds]
    lines = [clean(line) for line in shown if not _MARKS.match(line)]
    return [*lines, f"({' and '.join(said)} left out; the record has them)"] if said else lines


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """Each frame with the lines of source below it, each other line alone; the rest of a frame whose head is cut off
    is dropped."""
    blocks: list[list[str]] = []
    for line in lines:
        below = line.startswith(_UNDER_A_FRAME) and not _FRAME.match(line)
        if below and blocks and _FRAME.match(blocks[-1][0]):
            blocks[-1].append(line)
        elif blocks or not below:
            blocks.append([line])
    return blocks


def _kind(block: Sequence[str]) -> str:
    frame = _FRAME.match(block[0])
    if frame is None:
        return ""
    if _OF_AIPERF.search(frame["path"]):
        return "aiperf"
    return "libraries" if _OF_LIBRARIES.search(frame["path"]) else "own"
