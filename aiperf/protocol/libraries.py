"""Libraries that only some workloads import, and which extra of aiperf-ab brings each.

What must not live here: whether one is installed.
"""

from __future__ import annotations

EXTRAS = {
    "torch": "torch",
    "triton": "gpu",
    "cupy": "gpu",
    "kvikio": "gpu",
    "pandas": "data",
    "pyarrow": "data",
    "aiohttp": "serve",
}
"""Import name -> extra."""


def install_command(library: str, version: str = "") -> str:
    """How to install a library, by the extra where there is one: which distribution fits depends on the CUDA version.

    ``version``: a specifier such as ``>=2.9``.
    """
    extra = EXTRAS.get(library)
    return f"pip install '{f'aiperf-ab[{extra}]' if extra else f'{library}{version}'}'"


def needs_library(library: str, version: str = "") -> str:
    """The reason for a skip where a library is missing."""
    return f"needs {f'{library} {version}'.strip()}: {install_command(library, version)}"
