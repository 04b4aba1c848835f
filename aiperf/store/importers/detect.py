"""Which tool wrote a file, by what it holds; and the bytes of the file, unpacked and within bounds.

What must not live here: any tool's format beyond its outline.
"""

from __future__ import annotations

import gzip
import json
import stat
import zlib
from pathlib import Path

from aiperf.errors import usage
from aiperf.store.importers import google_benchmark, hyperfine, nvbench, pyperf, pytest_benchmark
from aiperf.store.importers.common import Foreign, ForeignError, Node, ToolFormat

MOST_BYTES = 200 * 1024**2
"""Largest file that is read, before and after unpacking."""
MOST_READINGS = 2_000_000
"""Most single readings that are taken from one file; each needs about a kilobyte of memory on its way."""
AUTO = "auto"
_GZIP = b"\x1f\x8b"
_KEYS_SHOWN = 8


FORMATS = {
    form.tool: form
    for form in (pyperf.FORMAT, hyperfine.FORMAT, nvbench.FORMAT, pytest_benchmark.FORMAT, google_benchmark.FORMAT)
}
"""Tool -> its format; no two outlines fit one file."""


def load(path: Path) -> bytes:
    """Read a file's content, unpacked when it is gzipped. Raises UserError."""
    where = str(path)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise usage("is not a file.", "Name the JSON file that the tool wrote.", where)
        data = b"" if found.st_size > MOST_BYTES else path.read_bytes()
        size = found.st_size
        if data.startswith(_GZIP):
            with gzip.open(path) as packed:
                data = packed.read(MOST_BYTES + 1)
            size = len(data)
    except (OSError, EOFError, zlib.error) as error:
        raise usage(f"cannot be read ({getattr(error, 'strerror', None) or error}).", where=where) from None
    if size > MOST_BYTES:
        limit = f"{MOST_BYTES // 1024**2} MiB"
        raise usage(f"holds more than {limit}.", "Split it by benchmark, or leave out what is not needed.", where)
    if not data.strip():
        raise usage("is empty.", "Was the tool interrupted? Write the file again.", where)
    return data


def parse(data: bytes, path: Path, *, tool: str = AUTO) -> Foreign:
    """Read the content of a file of ``tool``, or of the tool that its outline shows. Raises UserError."""
    where = str(path)
    try:
        document = Node(json.loads(data))
    except (ValueError, RecursionError) as error:
        # The document begins the message of some errors; one line of it is enough.
        reason = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise usage(f"is not JSON ({reason}).", "Was the tool interrupted? Write the file again.", where) from None
    try:
        chosen = detect(document) if tool == AUTO else tool
        if not chosen:
            outlines = "; ".join(form.outline for form in FORMATS.values())
            raise usage(f"was not written by a supported tool: {_found(document)}.", f"Supported: {outlines}.", where)
        found = FORMATS[chosen].read(document, path)
    except ForeignError as error:
        named = "" if tool == AUTO else f" (read as {tool}, as --tool asks)"
        raise usage(f"is damaged{named}: {error}.", "Write the file again with the tool.", where) from None
    if not found.benchmarks:
        raise usage(f"contains no benchmark of {chosen}.", "Write the file again with the tool.", where)
    readings = sum(len(r.timings) for benchmark in found.benchmarks for r in benchmark.replicates)
    if readings > MOST_READINGS:
        what = f"holds {readings} readings; at most {MOST_READINGS} are imported from one file."
        raise usage(what, "Split it by benchmark, or let the tool keep fewer.", where)
    return found


def detect(document: Node) -> str:
    """Name the tool whose outline the document has; empty when it is none's."""
    return next((tool for tool, form in FORMATS.items() if _fits(form, document)), "")


def _fits(form: ToolFormat, document: Node) -> bool:
    try:
        return form.recognises(document)
    except ForeignError:
        return False


def _found(document: Node) -> str:
    if not isinstance(document.value, dict):
        kinds = {list: "a list", str: "a text", type(None): "null", bool: "true or false"}
        return f"the file holds {kinds.get(type(document.value), 'a number')}, not an object"
    keys = [str(key)[:20] for key in document.value]
    more = ", ..." if len(keys) > _KEYS_SHOWN else ""
    return f"its keys are {', '.join(keys[:_KEYS_SHOWN])}{more}" if keys else "it is an empty object"
