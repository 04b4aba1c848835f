"""Libraries that only some workloads import, and which extra of aiperf-ab brings each.

What must not live here: whether one is installed.
"""

from __future__ import annotations

from collections.abc import Mapping

EXTRAS = {
    "torch": "torch",
    "triton": "gpu",
    "cupy": "gpu",
    "kvikio": "gpu",
    "torchvision": "vision",
    "PIL": "vision",
    "cutlass_library": "cutlass",
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
    return needs_libraries({library: version})[0]


def needs_libraries(missing: Mapping[str, str]) -> list[str]:
    """The reasons for a skip where libraries are missing (import name -> specifier): one for each thing to install."""
    brings_torch = "gpu" in (EXTRAS.get(library) for library in missing)
    groups: dict[str, list[str]] = {}
    for library, version in missing.items():
        command = install_command("cupy") if library == "torch" and brings_torch else install_command(library, version)
        groups.setdefault(command, []).append(f"{library} {version}".strip())
    return [
        f"needs {' and '.join([', '.join(own[:-1]), own[-1]][len(own) < 2 :])}: {how}" for how, own in groups.items()
    ]
