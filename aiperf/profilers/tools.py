"""Finds the programs of profilers and their helpers, on PATH and off it, and what each can do and lacks.

What must not live here: running a profile, and the permissions of this host (permissions.py).
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


@dataclass(frozen=True)
class FoundTool:
    """The program of a profiler, found on this host."""

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

    @property
    def where(self) -> str:
        """Path and version."""
        return f"{self.path} {self.version_text}"

    def can(self, flag: str) -> bool:
        """Whether ``--help`` knows a flag."""
        return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", self.help) is not None


def find_tool(
    name: str,
    *,
    places: Sequence[str],
    help_words: Sequence[Sequence[str]] = (("--help",),),
    environ: Mapping[str, str] | None = None,
) -> FoundTool | None:
    """Find the newest that answers; where AIPERF_NSYS, AIPERF_NCU or AIPERF_PERF names one, that one or none.

    ``places`` are patterns of paths to look at beside PATH, ``{cuda}`` in them the CUDA toolkit; ``help_words`` make
    the program print what it can do.
    """
    env = os.environ if environ is None else environ
    paths = candidates(name, places, environ=env)
    found = [tool for path in paths if (tool := _ask(name, path, help_words, env)) is not None]
    return max(found, key=lambda tool: tool.version, default=None)


def variable_of(name: str) -> str:
    """The variable that may name this tool's program."""
    return f"AIPERF_{name.upper()}"


def candidates(name: str, places: Sequence[str], *, environ: Mapping[str, str]) -> Iterator[Path]:
    """Executables of this name in the order of search, each real file once; a named one stands alone."""
    own = environ.get(variable_of(name), "")
    cuda = [
        environ.get("CUDA_HOME"),
        environ.get("CUDA_PATH"),
        "/usr/local/cuda",
        *sorted(glob.glob("/usr/local/cuda-*")),
    ]
    patterns = (place.format(cuda=root) for place in places for root in cuda if root)
    paths = [own or shutil.which(name, path=environ.get("PATH"))]
    paths += [found for pattern in patterns for found in sorted(glob.glob(pattern), reverse=True)] if not own else []
    seen: set[str] = set()
    for path in paths:
        if path and os.access(path, os.X_OK) and os.path.isfile(path) and os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield Path(path)


def has_ncu_report(ncu: FoundTool | None) -> Path | None:
    """Where the ncu_report module lies: an empty path when it is installed, a folder of Nsight Compute, or None."""
    if importlib.util.find_spec("ncu_report") is not None:
        return Path()
    if ncu is None:
        return None
    folder = Path(os.path.realpath(ncu.path)).parent / "extras" / "python"
    return folder if (folder / "ncu_report.py").is_file() else None


def offered_counters(ncu: FoundTool) -> frozenset[str]:
    """Names of the counters that an ncu lists for the GPUs here, without suffix; none when it does not answer."""
    listed = _answer(str(ncu.path), "--query-metrics", ncu.libraries)
    return frozenset(re.findall(r"^\s*([a-z]\w*__\w+)\s", listed, re.MULTILINE))


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
    """Shared libraries that the dynamic linker does not find for a program; empty when ldd fails."""
    done = _printed(["ldd", str(binary)], env)
    return tuple(sorted(set(re.findall(r"^\s*(\S+) => not found", done, re.MULTILINE))))


def packages_of(libraries: Sequence[str]) -> str:
    """Say what to install for missing libraries: ``apt-get install libdw1``."""
    known = [_PACKAGES[name] for name in libraries if name in _PACKAGES]
    unknown = [name for name in libraries if name not in _PACKAGES]
    said = [f"apt-get install {' '.join(known)}"] if known else []
    said += [f"install the package that holds {', '.join(unknown)}"] if unknown else []
    return f"{'; '.join(said)}, or name a folder that holds them in {LIBRARIES_VARIABLE}"


def _ask(name: str, path: Path, help_words: Sequence[Sequence[str]], env: Mapping[str, str]) -> FoundTool | None:
    libraries = env.get(LIBRARIES_VARIABLE, "")
    version = version_in(_answer(str(path), "--version", libraries))
    if not version:
        return None
    printed = [_answer(str(path), *words, libraries) for words in help_words]
    return FoundTool(name, path, version, "\n".join(printed), libraries)


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
    return _printed(command, env)


@dataclass(frozen=True)
class HelperRun:
    """How a helper program ended, and what it printed."""

    status: int | None
    """None when it did not end in time, or could not be started: why is in ``err``."""
    out: str = ""
    err: str = ""


def run_helper(command: Sequence[str], env: Mapping[str, str], *, limit: float) -> HelperRun:
    """Run a program of a profiler for at most ``limit`` seconds."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", timeout=limit, env=dict(env), check=False
        )
    except subprocess.TimeoutExpired:
        return HelperRun(None, err=f"timed out after {limit:g} s")
    except OSError as error:
        return HelperRun(None, err=str(error))
    return HelperRun(done.returncode, done.stdout, done.stderr)


def _printed(command: Sequence[str], env: Mapping[str, str]) -> str:
    """What a program prints; empty when it cannot be run."""
    ended = run_helper(command, env, limit=_ASK_S)
    return "" if ended.status is None else ended.out + ended.err
