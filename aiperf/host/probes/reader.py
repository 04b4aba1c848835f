"""What probes look through: files under a root, variables, NVML, short commands, installed metadata, all replaceable.

What must not live here: judging, and anything that changes the host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, overload

from aiperf.host import proc
from aiperf.host.facts import HostFacts
from aiperf.host.git import quiet_environment
from aiperf.host.nvml import Nvml, open_nvml
from aiperf.host.probes.counter_window import CounterWindow, watch
from aiperf.host.probes.packages import Packages, read_packages
from aiperf.host.read import read_host

T = TypeVar("T")
_COMMAND_S = 2.0
_NVIDIA = "0x10de"
Phase = Literal["doctor", "start", "measuring"]
"""When the host is read. ``start``: of a run, which reads some facts by probes of its own. ``measuring``: the run has
measured already, so that averages over the last minute hold its own work."""
_DISPLAY = "0x03"
"""First digits of the PCI class of VGA and 3D controllers."""


class Unreadable(Exception):
    """A fact that applies to this host and cannot be read; says why, where, and what would read it."""

    def __init__(self, reason: str, where: str = "", fix: str = "") -> None:
        super().__init__(reason)
        self.reason, self.where, self.fix = reason, where, fix


class Absent(Exception):
    """A fact that does not apply to this host; says why."""


@dataclass(frozen=True)
class CommandOutput:
    """Exit status and output of a command."""

    code: int
    out: str
    err: str = ""


def run_command(argv: tuple[str, ...]) -> CommandOutput | None:
    """Run a reading command for two seconds at most; None when it is missing or too slow."""
    env = quiet_environment(Path(argv[argv.index("-C") + 1])) if argv[0] == "git" else None
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_COMMAND_S, check=False, errors="replace", env=env
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return CommandOutput(done.returncode, done.stdout, done.stderr)


class once(Generic[T]):  # noqa: N801 - reads as the decorator it is
    """A property computed by whichever thread asks first, while the others that ask for it wait."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self._name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, reader: None, owner: Any = None) -> once[T]: ...
    @overload
    def __get__(self, reader: HostReader, owner: Any = None) -> T: ...
    def __get__(self, reader: HostReader | None, owner: Any = None) -> Any:
        if reader is None:
            return self
        with reader.locks.setdefault(self._name, threading.RLock()):
            if self._name not in reader.kept:
                reader.kept[self._name] = self._make(reader)
            return reader.kept[self._name]


@dataclass(frozen=True)
class GpuSight:
    """One visible GPU, or slice of one, for asking."""

    index: int
    handle: Any
    nvml: Nvml

    def ask(self, name: str, *arguments: Any) -> Any:
        """What NVML answers for this GPU, or None."""
        return self.nvml.ask(name, self.handle, *arguments)

    def need(self, name: str, *arguments: Any) -> Any:
        """What NVML answers for this GPU. Raises Unreadable."""
        answer = self.ask(name, *arguments)
        if answer is None:
            what = "this MIG slice" if self.sliced else "this GPU"
            raise Unreadable(f"NVML does not answer {name} on {what}", name)
        return answer

    @property
    def sliced(self) -> bool:
        """Whether this is a MIG slice."""
        return self.nvml.whole(self.handle) is not self.handle

    @property
    def whole(self) -> GpuSight:
        """The GPU that this slice is cut from, or itself."""
        return GpuSight(self.index, self.nvml.whole(self.handle), self.nvml)

    @property
    def busy(self) -> int | None:
        """Per cent of the last moment in which a kernel ran."""
        rates = self.ask("nvmlDeviceGetUtilizationRates")
        return None if rates is None else int(rates.gpu)


@dataclass(frozen=True)
class HostReader:
    """One look at a host. Everything read through it is read at most once where that costs time."""

    root: Path = proc.ROOT
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    library: Any = None
    """Stands in for pynvml."""
    data: Path = field(default_factory=Path.cwd)
    """Where the training data lies: its mount and its disk are judged. Also the checkout that is judged."""
    command: Callable[[tuple[str, ...]], CommandOutput | None] = run_command
    installed: Packages | None = None
    """Stands in for the packages of this interpreter."""
    host: HostFacts | None = None
    """What is known of the host already; read when it is needed otherwise."""
    phase: Phase = "doctor"
    readings: int = 5
    """How often the counters are read, a tenth of a second apart."""
    wait: Callable[[float], None] | None = None
    """Stands in for the pauses between those readings."""
    locks: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """A file's text. Raises Unreadable with the reason, and with the command that would read it as root."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            raise Unreadable(f"there is no /{path} here", f"/{path}") from None
        except PermissionError:
            raise Unreadable(f"/{path} needs permission", f"/{path}", f"sudo cat /{path}") from None
        except OSError as error:
            raise Unreadable(f"/{path} does not answer ({error.strerror})", f"/{path}") from None

    def maybe(self, path: str) -> str:
        """A file's text without the space around it, or empty."""
        return (proc.read_text(self.root / path) or "").strip()

    def number(self, path: str) -> int:
        """A file's first word as a whole number. Raises Unreadable."""
        words = self.text(path).split()
        if not words or not words[0].lstrip("-").isdigit():
            raise Unreadable(f'/{path} says "{" ".join(words)[:40]}"', f"/{path}")
        return int(words[0])

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies in a folder, sorted; nothing when there is none."""
        try:
            return tuple(sorted(os.listdir(self.root / folder)))
        except OSError:
            return ()

    def run(self, *argv: str) -> CommandOutput:
        """What a command says within two seconds. Raises Unreadable when it cannot be started or is too slow."""
        output = self.command(argv)
        if output is None:
            raise Unreadable(f"{argv[0]} is not installed or does not answer in {_COMMAND_S:g} s", argv[0])
        return output

    def which(self, name: str) -> str:
        """Where PATH finds a program, or empty."""
        if self.root == proc.ROOT:
            return shutil.which(name, path=self.environ.get("PATH")) or ""
        folders = (folder for folder in self.environ.get("PATH", "").split(":") if folder)
        return next((f"{f}/{name}" for f in folders if (self.root / f.lstrip("/") / name).is_file()), "")

    @once
    def cpus(self) -> tuple[int, ...]:
        """CPUs that this process may use. Raises Unreadable."""
        try:
            return proc.parse_cpu_list(proc.status(self.root)["Cpus_allowed_list"])
        except (KeyError, ValueError):
            raise Unreadable("/proc/self/status lists no CPUs", "/proc/self/status") from None

    @once
    def packages(self) -> Packages:
        """What is installed for this interpreter."""
        return self.installed or read_packages()

    @once
    def facts(self) -> HostFacts:
        """What every run records of this host."""
        return self.host or read_host(root=self.root, environ=self.environ, library=self.library)

    @once
    def processes(self) -> frozenset[str]:
        """Names of everything that runs here."""
        return frozenset(self.maybe(f"proc/{pid}/comm") for pid in proc.pids(self.root))

    @once
    def watch(self) -> CounterWindow:
        """This host's counters over half a second."""
        return watch(self.root, self.busy_gpus, self.wait, readings=self.readings)

    @once
    def nvml(self) -> tuple[Nvml | None, str]:
        """The open library, or why there is none."""
        return open_nvml(self.library)

    def busy_gpus(self) -> tuple[int | None, ...]:
        """Per cent busy now, of each visible GPU; nothing without one."""
        try:
            return tuple(gpu.busy for gpu in self.gpus)
        except (Absent, Unreadable):
            return ()

    @property
    def gpus(self) -> tuple[GpuSight, ...]:
        """Visible GPUs, at least one. Raises Absent without a GPU, Unreadable for one that NVML cannot show."""
        nvml, problem = self.nvml
        visible = self.environ.get("CUDA_VISIBLE_DEVICES")
        if nvml is None:
            if cards := self.nvidia_cards:
                raise Unreadable(f"there is an NVIDIA GPU ({cards[0]}), but {problem}", "NVML")
            raise Absent(f"there is no GPU here: {problem}")
        handles = nvml.visible(visible)
        if handles:
            return tuple(GpuSight(place, handle, nvml) for place, handle in enumerate(handles))
        if count := len(nvml.devices()):
            raise Absent(f'CUDA_VISIBLE_DEVICES="{visible}" leaves none of {count} GPUs')
        raise Absent("there is no GPU here: NVML sees none")

    def require_gpu(self) -> None:
        """Go on only with a visible GPU. Raises Absent, Unreadable."""
        _ = self.gpus

    def several_gpus(self) -> tuple[GpuSight, ...]:
        """Visible GPUs, at least two. Raises Absent, Unreadable."""
        found = self.gpus
        if len(found) < 2:
            raise Absent("one GPU has no other to talk to")
        return found

    @once
    def nvidia_cards(self) -> tuple[str, ...]:
        """PCI addresses of NVIDIA display and compute cards, seen without the driver."""
        base = "sys/bus/pci/devices"
        mine = (n for n in self.names(base) if self.maybe(f"{base}/{n}/vendor") == _NVIDIA)
        return tuple(n for n in mine if self.maybe(f"{base}/{n}/class").startswith(_DISPLAY))

    def close(self) -> None:
        """Give NVML back, if it was ever opened."""
        nvml, _ = self.kept.get("nvml", (None, ""))
        if nvml is not None:
            nvml.close()
