"""What must hold in a scenario's ``check:`` beyond the types of its keys.

What must not live here: types, values (schema.py), and comparing anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiperf.errors import Fault
from aiperf.scenario.command import files_fault
from aiperf.scenario.document import Document
from aiperf.scenario.outline import Outline


def check_faults(document: Document, parts: Outline) -> Iterator[Fault]:
    """Mistakes in how the outputs of the sides are to be compared."""
    check = document.data.get("check")
    if isinstance(check, str):
        check = {"kind": check}
    if not isinstance(check, dict):
        return
    kind = check_kind(check)
    if kind == "none" and not check.get("reason") and "files" not in check:
        hint = "Write check: {kind: none, reason: why the outputs cannot be compared}."
        yield document.fault(("check",), "check: none needs a reason.", hint)
    if parts.is_command:
        yield from _command_check(document, check, kind)
        return
    if kind == "named" and not check.get("name"):
        yield document.fault(("check",), "check: a named check needs its name.", "Write {name: …, bound: …}.")
    fitting = {"tolerance": {"rtol", "atol"}, "named": {"name", "bound"}}.get(str(kind), set())
    for key in ("rtol", "atol", "name", "bound"):
        if key in check and key not in fitting:
            what = f"check.{key} does not apply to a {kind} check."
            yield document.fault(("check", key), what, "Write {rtol: …, atol: …} or {name: …, bound: …}.", key=True)
    if "files" in check:
        what = "check.files applies only to commands."
        yield document.fault(("check", "files"), what, "Return what a function computes as its outputs.", key=True)


def _command_check(document: Document, check: dict[str, Any], kind: Any) -> Iterator[Fault]:
    hint = "Write bitwise for standard output, {files: out.bin} for files, or leave check out."
    unfit = [key for key in check if key in ("rtol", "atol", "name", "bound", "reference")]
    for key in unfit:
        yield document.fault(("check", key), f"check.{key} does not apply to commands.", hint, key=True)
    if "kind" not in check and not unfit and "files" not in check:
        yield document.fault(("check",), "check: nothing is named that is compared.", hint, key=True)
    elif kind not in ("none", "bitwise") and not unfit:
        yield document.fault(("check",), f"check: commands cannot have a {kind} check.", hint, key=True)
    files = check.get("files")
    names = [files] if isinstance(files, str) else files if isinstance(files, list) else []
    if fault := files_fault([name for name in names if isinstance(name, str)]):
        yield document.fault(("check", "files"), f"check.files: {fault}", "Name files that each run creates.", key=True)
    elif any(isinstance(name, str) and name.startswith("/") for name in names):
        what = "check.files: a path in a scenario must be relative."
        yield document.fault(("check", "files"), what, "Write it relative to the folder of this file.", key=True)


def check_kind(check: dict[str, Any]) -> Any:
    """The kind that a check block states, or that its keys imply."""
    if "kind" in check:
        return check["kind"]
    if "files" in check:
        return "none"
    return "named" if "name" in check or "bound" in check else "tolerance"
