"""The fault shelf: hosts of tests/fixtures/hosts planted under a folder, with the NVML that answers for them.

What must not live here: tests.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from host_fake_nvml import NOT_SUPPORTED, NVMLError

from aiperf.host.checklist import load_checklist
from aiperf.host.host_report import HostReport, check_host
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.packages import Packages
from aiperf.host.probes.reader import CommandOutput, HostReader

SHELF = Path(__file__).resolve().parents[1] / "fixtures" / "hosts"
HOSTS = sorted(path.stem for path in SHELF.glob("*.yaml"))
_ITEMS = cache(load_checklist)
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGED = ("files", "links", "later", "environ", "commands")


class Device:
    """A handle: which recorded answers are asked for."""

    def __init__(self, index: int, answers: Mapping[str, Any], whole: Device | None = None) -> None:
        self.index, self.answers, self.whole = index, answers, whole


class FabricStruct:
    state, cliqueId, clusterUuid = 0, 0, b""


class ShelfNvml:
    """Answers as recorded; whatever a device has no answer for is not supported."""

    NVMLError = NVMLError
    c_nvmlGpuFabricInfo_v2_t = FabricStruct

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.recorded = recorded
        self.handles = [Device(i, d) for i, d in enumerate(recorded.get("devices", ()))]
        self.slices = {
            part["uuid"]: Device(0, part["answers"], whole)
            for whole in self.handles
            for part in whole.answers.get("slices", ())
        }
        self.open = 0

    def nvmlInit(self) -> None:
        if "init_error" in self.recorded:
            raise NVMLError(self.recorded["init_error"])
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.handles)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        return self.handles[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Device:
        if uuid not in self.slices:
            raise NVMLError(6)
        return self.slices[uuid]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device: Device) -> Device:
        if device.whole is None:
            raise NVMLError(2)
        return device.whole

    def nvmlDeviceGetFieldValues(self, device: Device, numbers: list[int]) -> list[Any]:
        told = device.answers.get("nvmlDeviceGetFieldValues", {})
        return [
            SimpleNamespace(fieldId=n, nvmlReturn=0 if n in told else 3, value=SimpleNamespace(ullVal=told.get(n, 0)))
            for n in numbers
        ]

    def nvmlDeviceGetGpuFabricInfoV(self, device: Device, struct: FabricStruct) -> int:
        told = device.answers.get("nvmlDeviceGetGpuFabricInfoV")
        if told is None:
            raise NVMLError(NOT_SUPPORTED)
        struct.state, struct.cliqueId, struct.clusterUuid = (
            told["state"],
            told["clique"],
            bytes.fromhex(told["cluster"]),
        )
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvmlSystem") and name in self.recorded.get("system", {}):
            return lambda: self.recorded["system"][name]
        if not name.startswith("nvmlDevice"):
            raise AttributeError(name)

        def answer(device: Device, *arguments: Any) -> Any:
            if name not in device.answers:
                raise NVMLError(NOT_SUPPORTED)
            return _answer(device.answers[name], arguments)

        return answer


def _answer(told: Any, arguments: tuple[Any, ...]) -> Any:
    """``by``: an answer for each argument (another device counts by its index). A mapping: a struct."""
    if isinstance(told, Mapping) and "by" in told:
        key = ",".join(str(a.index if isinstance(a, Device) else a) for a in arguments)
        if key not in told["by"]:
            raise NVMLError(NOT_SUPPORTED)
        return _answer(told["by"][key], ())
    if isinstance(told, Mapping):
        return SimpleNamespace(**told)
    if isinstance(told, list) and told and isinstance(told[0], Mapping):
        return [SimpleNamespace(**entry) for entry in told]
    return tuple(told) if isinstance(told, list) else told


@cache
def _written(name: str) -> dict[str, Any]:
    return yaml.load((SHELF / f"{name}.yaml").read_text(encoding="utf-8"), Loader=_LOADER)


def recorded(name: str) -> dict[str, Any]:
    """A host of the shelf; what it is ``like`` comes first and is overridden file by file, answer by answer."""
    plain = copy.deepcopy(_written(name))
    if "like" not in plain:
        return plain
    base = recorded(plain["like"])
    merged = {**base, **plain}
    for key in _MERGED:
        merged[key] = {k: v for k, v in {**base.get(key, {}), **plain.get(key, {})}.items() if v is not None}
    changes = plain.get("nvml", {})
    devices = [{**device, **changes.get("every", {})} for device in base.get("nvml", {}).get("devices", [])]
    merged["nvml"] = {**base.get("nvml", {}), "devices": devices}
    return merged


def plant(root: Path, files: Mapping[str, str], links: Mapping[str, str] | None = None) -> Path:
    """Write files and links below a folder that stands for the root."""
    for folder in {os.path.dirname(path) for path in (*files, *(links or {}))}:
        os.makedirs(root / folder, exist_ok=True)
    for path, text in files.items():
        (root / path).write_text(text, encoding="utf-8")
    for path, target in (links or {}).items():
        (root / path).symlink_to(target)
    return root


def sight_of(root: Path, host: Mapping[str, Any]) -> HostReader:
    """A look at a planted host: nothing of this machine is seen through it."""
    plant(root, host.get("files", {}), host.get("links", {}))
    commands = {text: CommandOutput(**told) for text, told in host.get("commands", {}).items()}
    later = host.get("later", {})
    return HostReader(
        root=root,
        environ={"PATH": "/usr/local/bin:/usr/bin", **host.get("environ", {})},
        library=ShelfNvml(host.get("nvml") or {"init_error": 12}),
        data=Path(host.get("data", "/data")),
        command=lambda argv: commands.get(" ".join(argv)),
        installed=Packages(**host.get("packages", {})),
        wait=lambda seconds: plant(root, later) and None,
    )


def check(root: Path, name: str, *, only: str = "", **changes: Any) -> HostReport:
    """Run every probe, or one, on a host of the shelf, some of its parts replaced."""
    host = recorded(name)
    for key, value in changes.items():
        host[key] = {**host.get(key, {}), **value} if isinstance(value, dict) else value
    probes = [probe for probe in PROBES if only in ("", probe.id)]
    return check_host(probes, sight_of(root, host), items=_ITEMS())
