"""Where workers and workloads keep between runs what can be made again: compiled modules, compiled libraries.

What must not live here: what is kept, and whether it can be written there.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(what: str) -> Path:
    """The folder for one kind of things, in the user's cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "aiperf" / what
