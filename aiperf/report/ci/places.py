"""Where an entry stands in the repository that a CI system shows, and what of a text its formats can hold.

What must not live here: any format.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aiperf.report.layout.text import clean_keep
from aiperf.report.numbers import clean


def repository(environ: Mapping[str, str], *, folder: Path | None = None) -> Path:
    """Return the root of the checkout around ``folder`` (the current one), else what the CI system calls its own."""
    here = (folder or Path.cwd()).resolve()
    for candidate in (here, *here.parents):
        if (candidate / ".git").exists():
            return candidate
    named = environ.get("GITHUB_WORKSPACE") or environ.get("CI_PROJECT_DIR")
    return Path(named).resolve() if named else here


def inside(path: str, root: Path) -> str:
    """``path`` as seen from the repository's root, with forward slashes; empty when it lies elsewhere."""
    if not path:
        return ""
    try:
        # A path of a stored record may be relative to the repository already.
        full = (root / path).resolve()
    except (OSError, ValueError, RuntimeError):
        # No path that this system knows: a record of another one.
        return ""
    return clean(full.relative_to(root).as_posix()) if full.is_relative_to(root) and full != root else ""


def legal(text: str) -> str:
    """``text`` in its lines without the characters that XML and UTF-8 cannot hold, none of which is printable."""
    return "\n".join(clean_keep(line).rstrip() for line in text.splitlines())
