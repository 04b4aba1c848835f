"""Case records without their pairs, taken out of the text unread: what a long history can afford to open.

What must not live here: finding files, samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aiperf.records import CaseRecord
from aiperf.store.codec import decode_case

_BEGIN, _END, _PAIR = b'\n "pairs": [\n', b'\n ],\n "limits": ', b"\n  {\n"
"""Where the pairs lie in a file of the store: its indent is the depth, and no text in JSON holds a newline."""
_RESULTS, _RESULTS_END = b'\n "results": [\n', b'\n ],\n "pairs": '
_VOID = b'"voids": true'


@dataclass(frozen=True)
class Light:
    """A case record without its pairs, and what a reader of its samples must know of them."""

    record: CaseRecord
    """``pairs`` is empty unless they were asked for."""
    pairs: int
    void: tuple[int, ...] = ()
    """Places of the pairs that do not count."""


def without_pairs(data: bytes) -> tuple[bytes, bytes]:
    """Split a case file's text into the record with an empty list of pairs, and the text of that list.

    A file in another layout (edited by hand, written by another tool) stays whole and the second part is empty.
    """
    begin = data.find(_BEGIN)
    # From the end: there is much less behind the pairs than in them.
    end = data.rfind(_END)
    if not 0 <= begin < end:
        return data, b""
    begin += len(_BEGIN) - 1
    return data[:begin] + data[end + 2 :], data[begin:end]


def decode_light(data: bytes, *, where: str = "") -> CaseRecord:
    """Decode a case file without its pairs, which are not looked at either. Raises as ``decode_case``."""
    record = decode_case(without_pairs(data)[0], where=where)
    return replace(record, pairs=()) if record.pairs else record


def decode_counted(data: bytes, *, where: str = "", results: bool = True, pairs: bool = False) -> Light:
    """Decode a case file with only those large parts that are wanted, and count its pairs. Raises as ``decode_case``.

    A part that is not wanted need not be looked at: it may be damaged, and ``results`` may be there all the same.
    """
    rest, text = without_pairs(data)
    if text and not pairs and _VOID not in text:
        return Light(decode_case(rest if results else _without_results(rest), where=where), text.count(_PAIR))
    record = decode_case(data, where=where)
    void = tuple(place for place, pair in enumerate(record.pairs) if pair.void)
    return Light(record if pairs else replace(record, pairs=()), len(record.pairs), void)


def _without_results(data: bytes) -> bytes:
    begin = data.find(_RESULTS)
    end = data.find(_RESULTS_END, begin)
    return data[: begin + len(_RESULTS) - 1] + data[end + 2 :] if 0 <= begin < end else data
