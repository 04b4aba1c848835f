"""Which tool wrote a file, by what it holds; and the bytes of the file, unpacked and within bounds.

What must not live here: any tool's format beyond its outline.
"""

from __future__ import annotations

import gzip
import json
import stat
import zlib
from pathlib import Path

from aiperf.errors import UserError, usage
from aiperf.formats.document import ForeignError, Node
from aiperf.store.importers import (
    asv,
    benchmarkdotnet,
    criterion,
    go_test,
    google_benchmark,
    hyperfine,
    jmh,
    load_clients,
    nccl_tests,
    nvbench,
    pyperf,
    pytest_benchmark,
)
from aiperf.store.importers.common import Foreign, ToolFormat

MOST_BYTES = 200 * 1024**2
"""Largest file that is read, before and after unpacking."""
MOST_READINGS = 2_000_000
"""Most single readings that are taken from one file; each needs about a kilobyte of memory on its way."""
AUTO = "auto"
_GZIP = b"\x1f\x8b"
_KEYS_SHOWN = 8


FORMATS = {
    form.tool: form
    for form in (
        pyperf.FORMAT, hyperfine.FORMAT, nvbench.FORMAT, pytest_benchmark.FORMAT, google_benchmark.FORMAT, asv.FORMAT,
        criterion.FORMAT, jmh.FORMAT, benchmarkdotnet.FORMAT, go_test.FORMAT, nccl_tests.FORMAT,
        *load_clients.FORMATS,
    )
}  # fmt: skip
"""Tool -> its format; no two outlines fit one file."""


def load(path: Path) -> bytes:
    """Read a file's content, unpacked when it is gzipped, or the results of a folder of criterion. Raises UserError."""
    where = str(path)
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            return _folder(path)
        if not stat.S_ISREG(found.st_mode):
            raise usage("is not a file.", "Name the file that the tool wrote.", where)
        data = b"" if found.st_size > MOST_BYTES else path.read_bytes()
        size = found.st_size
        if data.startswith(_GZIP):
            with gzip.open(path) as packed:
                data = packed.read(MOST_BYTES + 1)
            size = len(data)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise usage(f"cannot be read ({why}).", "Name a complete file that you can read.", where) from None
    if size > MOST_BYTES:
        limit = f"{MOST_BYTES // 1024**2} MiB"
        raise usage(f"holds more than {limit}.", "Split it by benchmark, or leave out what is not needed.", where)
    if not data.strip():
        raise usage("is empty.", "Was the tool interrupted? Write the file again.", where)
    return data


def _folder(path: Path) -> bytes:
    try:
        data = criterion.gather(path)
    except ForeignError as error:
        raise usage(f"cannot be imported: {error}.", where=str(path)) from None
    if data is None:
        what = "is a folder without results of criterion (.../new/sample.json)."
        raise usage(what, "Name the file that the tool wrote, or criterion's target/criterion.", str(path))
    return data


def parse(data: bytes, path: Path, *, tool: str = AUTO) -> Foreign:
    """Read the content of a file of ``tool``, or of the tool that its outline shows. Raises UserError."""
    where = str(path)
    document = _document(data, where)
    try:
        chosen = detect(document) if tool == AUTO else tool
        if not chosen:
            raise _unknown(_found(document), where)
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


def _document(data: bytes, where: str) -> Node:
    """The JSON of a file, or the text of one that is none. Raises UserError for JSON that ends too early."""
    try:
        return Node(json.loads(data))
    except (ValueError, RecursionError) as error:
        broken = error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _unknown("it is neither JSON nor text", where) from None
    if text.lstrip()[:1] in ("{", "[") and not _begins_with_json(text.lstrip()):
        # The document begins the message of some errors; one line of it is enough.
        reason = str(broken).splitlines()[0][:100] if str(broken) else type(broken).__name__
        raise usage(f"is not JSON ({reason}).", "Was the tool interrupted? Write the file again.", where)
    return Node(text)


def _begins_with_json(text: str) -> bool:
    """Whether a whole value stands first, as in JSON lines."""
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _unknown(found: str, where: str) -> UserError:
    outlines = "; ".join(form.outline for form in FORMATS.values())
    return usage(f"is not a format that aiperf reads: {found}.", f"It reads {outlines}.", where)


def detect(document: Node) -> str:
    """Name the tool whose outline the document has; empty when it is none's."""
    return next((tool for tool, form in FORMATS.items() if _fits(form, document)), "")


def _fits(form: ToolFormat, document: Node) -> bool:
    try:
        return form.recognises(document)
    except ForeignError:
        return False


def _found(document: Node) -> str:
    if isinstance(document.value, str):
        return "it is text without results of such a tool"
    if not isinstance(document.value, dict):
        kinds = {list: "a list", type(None): "null", bool: "true or false"}
        return f"the file holds {kinds.get(type(document.value), 'a number')}, not an object"
    keys = [str(key)[:20] for key in document.value]
    more = ", ..." if len(keys) > _KEYS_SHOWN else ""
    return f"its keys are {', '.join(keys[:_KEYS_SHOWN])}{more}" if keys else "it is an empty object"
