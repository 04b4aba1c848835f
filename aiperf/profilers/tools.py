"""Finds nsys, ncu, perf and their helpers, on PATH and off it, and says what each can do and what it lacks.

What must not live here: running a profile, and the permissions of this host (preflight.py).
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIBRARIES_VARIABLE = "AIPERF_LIBS"
"""A folder with shared libraries that a profiler needs and this host lacks."""
_ASK_S = 30.0
_PACKAGES = {
    "libdw.so.1": "libdw1",
    "libelf.so.1": "libelf1",
    "libbz2.so.1.0": "libbz2-1.0",
    "liblzma.so.5": "liblzma5",
}
_PLACES = {
    "nsys": (
        "{cuda}/bin/nsys",
        "/opt/nvidia/nsight-systems/*/bin/nsys",
        "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
        "{cuda}/nsight-systems*/bin/nsys",
        "/usr/lib/nsight-systems/bin/nsys",
        "/usr/lib/*/nsight-systems/target-linux-*/nsys",
        # The copy inside Nsight Compute: complete but for libraries.
        "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
        "{cuda}/nsight-compute*/host/target-linux-*/nsys",
    ),
    "ncu": (
        "{cuda}/bin/ncu",
        "/opt/nvidia/nsight-compute/*/ncu",
        "{cuda}/nsight-compute*/ncu",
        "/usr/lib/nsight-compute/ncu",
    ),
    "perf": ("/usr/lib/linux-tools/*/perf", "/usr/lib/linux-tools-*/perf"),
}


@dataclass(frozen=True)
class Tool:
    """A profiler that was found."""

    name: str
    path: Path
    version: tuple[int, ...]
    help: str = ""
    """What ``--help`` prints: capabilities are read from it, not from the version."""
    libraries: str = ""
    """Folder to put on LD_LIBRARY_PATH; empty when it needs none."""

    @property
    def version_text(self) -> str:
        """``2025.3.1``."""
        return ".".join(map(str, self.version))

    def can(self, flag: str) -> bool:
        """Whether ``--help`` knows a flag."""
        return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", self.help) is not None


def find_tool(name: str, *, environ: Mapping[str, str] | None = None) -> Tool | None:
    """Find the newest that answers; where AIPERF_NSYS, AIPERF_NCU or AIPERF_PERF names one, that one or none."""
    env = os.environ if environ is None else environ
    found = [tool for path in candidates(name, environ=env) if (tool := _ask(name, path, env)) is not None]
    return max(found, key=lambda tool: tool.version, default=None)


def named(name: str, *, environ: Mapping[str, str]) -> tuple[str, str]:
    """Variable that may name this tool, and what it names; empty when it names nothing."""
    variable = f"AIPERF_{name.upper()}"
    return variable, environ.get(variable, "")


def candidates(name: str, *, environ: Mapping[str, str]) -> Iterator[Path]:
    """Executables of this name in the order of search, each real file once; a named one stands alone."""
    _, own = named(name, environ=environ)
    cuda = [
        environ.get("CUDA_HOME"),
        environ.get("CUDA_PATH"),
        "/usr/local/cuda",
        *sorted(glob.glob("/usr/local/cuda-*")),
    ]
    patterns = (place.format(cuda=root) for place in _PLACES[name] for root in cuda if root)
    paths = [own or shutil.which(name, path=environ.get("PATH"))]
    paths += [found for pattern in patterns for found in sorted(glob.glob(pattern), reverse=True)] if not own else []
    seen: set[str] = set()
    for path in paths:
        if path and os.access(path, os.X_OK) and os.path.isfile(path) and os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield Path(path)


def has_ncu_report(ncu: Tool | None) -> Path | None:
    """Where the ncu_report module lies: an empty path when it is installed, a folder of Nsight Compute, or None."""
    if importlib.util.find_spec("ncu_report") is not None:
        return Path()
    if ncu is None:
        return None
    folder = Path(os.path.realpath(ncu.path)).parent / "extras" / "python"
    return folder if (folder / "ncu_report.py").is_file() else None


def offered_counters(ncu: Tool) -> frozenset[str]:
    """Names of the counters that an ncu lists for the GPUs here, without suffix; none when it does not answer."""
    told = _answer(str(ncu.path), "--query-metrics", ncu.libraries)
    return frozenset(re.findall(r"^\s*([a-z]\w*__\w+)\s", told, re.MULTILINE))


def importers(nsys: Path) -> tuple[Path, ...]:
    """Every QdstrmImporter beside an nsys, beside what it links to, and in the host folders around both."""
    homes = Path(os.path.realpath(nsys)).parent, nsys.absolute().parent
    roots = [root for home in homes for root in (home, home.parent, home.parent.parent)]
    roots += [Path("/usr/lib/nsight-systems"), *map(Path, sorted(glob.glob("/opt/nvidia/nsight-systems/*")))]
    found: dict[str, Path] = {}
    for root in roots:
        for path in (*root.glob("host-linux-*/QdstrmImporter"), *root.glob("linux-desktop-*/QdstrmImporter")):
            found.setdefault(os.path.realpath(path), path)
    return tuple(found.values())


def missing_libraries(binary: Path, *, env: Mapping[str, str]) -> tuple[str, ...]:
    """Shared libraries that the dynamic linker does not find for a program; empty when ldd cannot tell."""
    done = _run(["ldd", str(binary)], env)
    return tuple(sorted(set(re.findall(r"^\s*(\S+) => not found", done, re.MULTILINE))))


def packages_of(libraries: Sequence[str]) -> str:
    """Say what to install for missing libraries: ``apt-get install libdw1``."""
    known = [_PACKAGES[name] for name in libraries if name in _PACKAGES]
    unknown = [name for name in libraries if name not in _PACKAGES]
    said = [f"apt-get install {' '.join(known)}"] if known else []
    said += [f"install the package that holds {', '.join(unknown)}"] if unknown else []
    return f"{'; '.join(said)}, or name a folder that holds them in {LIBRARIES_VARIABLE}"


def _ask(name: str, path: Path, env: Mapping[str, str]) -> Tool | None:
    version = version_in(_answer(str(path), "--version", env.get(LIBRARIES_VARIABLE, "")))
    if not version:
        return None
    told = [_answer(str(path), *words, env.get(LIBRARIES_VARIABLE, "")) for words in _HELP.get(name, (("--help",),))]
    return Tool(name, path, version, "\n".join(told), env.get(LIBRARIES_VARIABLE, ""))


_HELP = {"nsys": (("profile", "--help"), ("export", "--help")), "perf": (("record", "-h"), ("stat", "-h"))}


def version_in(text: str) -> tuple[int, ...]:
    """Numbers of the first dotted version in a text: ``(2025, 3, 1)``; empty when there is none."""
    match = re.search(r"(?i)version\s+(\d+(?:\.\d+)+)", text)
    return tuple(int(part) for part in match.group(1).split(".")[:3]) if match else ()


@cache
def _answer(*words: str) -> str:
    *command, libraries = words
    env = dict(os.environ)
    if libraries:
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [libraries, env.get("LD_LIBRARY_PATH", "")]))
    return _run(command, env)


def _run(command: Sequence[str], env: Mapping[str, str]) -> str:
    """What a program prints; empty when it cannot be run."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", timeout=_ASK_S, env=dict(env), check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
