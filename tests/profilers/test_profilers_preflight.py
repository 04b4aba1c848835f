"""What each profiler can do on made-up hosts, and how to fix what it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from profilers_made import host, program

from aiperf.profilers import ncu, nsys, perf, permissions, tools, torch_profiler
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.registry import NAMES, chosen, passed_over, statuses

ROOT_CAPS, NO_CAPS, PERFMON = "000001ffffffffff", "0000000000000000", "0000004000000000"


@pytest.fixture(autouse=True)
def _no_usual_places(monkeypatch: pytest.MonkeyPatch):
    for module in (nsys, ncu, perf):
        monkeypatch.setattr(module, "PLACES", ())
    monkeypatch.setattr(ncu, "has_ncu_report", lambda tool: Path())
    monkeypatch.setattr(nsys, "importers", lambda path: ())


class Machine:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.path = folder / "bin"
        self.environ = {"PATH": f"{self.path}:{os.environ['PATH']}"}

    def has(self, name: str, text: str) -> Path:
        return program(self.path / name, f"cat <<'END'\n{text}\nEND")

    def proc(self, name: str, text: str) -> None:
        file = self.root / "proc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def capable(self, mask: str) -> None:
        self.proc("self/status", f"Name:\tpython\nCapInh:\t{NO_CAPS}\nCapEff:\t{mask}\n")

    def told(self, name: str, *, gpu: bool = True, **environ: str) -> ToolStatus:
        own = {**self.environ, **environ}
        if not self.path.exists():
            own["PATH"] = "/nowhere"
        return dict(zip(NAMES, statuses(host(gpu=gpu), environ=own, root=self.root), strict=True))[name]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    # Tools of this machine's own PATH are out of sight.
    monkeypatch.setattr(tools.shutil, "which", lambda name, path: str(tmp_path / "bin" / name))
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("name", "variable", "package"),
    [("nsys", "AIPERF_NSYS", "Install Nsight Systems"), ("ncu", "AIPERF_NCU", "Install Nsight Compute"),
     ("perf", "AIPERF_PERF", "Install the linux-perf")],
)  # fmt: skip
def test_a_tool_that_is_not_here_says_what_to_install(machine: Machine, name: str, variable: str, package: str):
    status = machine.told(name)
    assert (status.usable, status.reason, status.found) == (False, f"{name} was not found", None)
    assert status.fix.startswith(package)
    assert status.fix.endswith(f"or set {variable} to its path.")


def test_a_variable_that_names_no_tool_is_what_is_wrong(machine: Machine):
    machine.has("nsys", "version 2025.3.1")
    status = machine.told("nsys", AIPERF_NSYS="/no/nsys")
    assert (status.usable, status.where) == (False, "/no/nsys")
    assert status.reason == "AIPERF_NSYS names /no/nsys, which does not answer as nsys"
    assert status.fix == "Correct AIPERF_NSYS, or unset it to search for nsys."


@pytest.mark.parametrize(("gpu", "what"), [(True, "kernels"), (False, "no GPU here")])
def test_nsys_is_usable_and_says_what_it_traces(machine: Machine, gpu: bool, what: str):
    path = machine.has("nsys", "NVIDIA Nsight Systems version 2025.3.1.90")
    status = machine.told("nsys", gpu=gpu)
    assert (status.usable, status.where) == (True, f"{path} 2025.3.1")
    assert what in status.reason


def lacking(machine: Machine, monkeypatch: pytest.MonkeyPatch, *importers: str) -> None:
    """The linker finds libdw in /my/libs alone; an importer named whole needs none."""
    machine.has("nsys", "version 2025.3.1")
    monkeypatch.setattr(nsys, "importers", lambda path: tuple(map(Path, importers)))
    program(
        machine.path / "ldd",
        'case "$1:$LD_LIBRARY_PATH" in whole*|*:/my/libs*) ;; *) printf "\\tlibdw.so.1 => not found\\n";; esac',
    )


def test_nsys_without_its_importers_libraries_is_not_usable(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    lacking(machine, monkeypatch, "one", "two")
    status = machine.told("nsys")
    assert (status.usable, status.reason) == (False, "its importer lacks libdw.so.1")
    assert status.fix == "apt-get install libdw1, or name a folder that holds them in AIPERF_LIBS"
    assert status.found is not None


def test_the_folder_that_the_user_names_may_hold_the_libraries(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    lacking(machine, monkeypatch, "one")
    assert machine.told("nsys", AIPERF_LIBS="/my/libs").usable


def test_one_whole_importer_is_enough(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    lacking(machine, monkeypatch, "one", "whole")
    assert machine.told("nsys").usable


def test_ncu_needs_a_gpu(machine: Machine):
    machine.has("ncu", "Version 2025.3.1.0")
    status = machine.told("ncu", gpu=False)
    assert (status.usable, status.reason) == (False, "no GPU here (no NVML library)")


def test_ncu_needs_the_module_that_reads_its_reports(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    machine.has("ncu", "Version 2025.3.1.0")
    monkeypatch.setattr(ncu, "has_ncu_report", lambda tool: None)
    status = machine.told("ncu")
    assert (status.usable, status.fix) == (False, "pip install 'aiperf-ab[profile]'")


@pytest.mark.parametrize(
    ("params", "mask", "usable"),
    [
        ("RmProfilingAdminOnly: 1\n", NO_CAPS, False),
        ("RmProfilingAdminOnly: 1\n", PERFMON, False),
        ("RmProfilingAdminOnly: 1\n", ROOT_CAPS, True),
        ("Other: 1\nRmProfilingAdminOnly: 0\n", NO_CAPS, True),
        ("RmProfilingAdminOnly: 10\n", NO_CAPS, True),
        (None, NO_CAPS, True),
    ],
)
def test_ncu_needs_the_right_to_read_counters(machine: Machine, params: str | None, mask: str, usable: bool):
    machine.has("ncu", "Version 2025.3.1.0")
    machine.capable(mask)
    if params is not None:
        machine.proc("driver/nvidia/params", params)
    status = machine.told("ncu")
    assert status.usable == usable
    if not usable:
        assert "ERR_NVGPUCTRPERM" in status.reason
        assert "NVreg_RestrictProfilingToAdminUsers=0" in status.fix
        assert "--cap-add=SYS_ADMIN" in status.fix


def test_a_running_dcgm_is_named_beside_ncu_with_how_to_pause_it(machine: Machine):
    machine.has("ncu", "Version 2025.3.1.0")
    machine.proc("17/comm", "bash\n")
    assert machine.told("ncu").fix == ""
    machine.proc("18/comm", "nv-hostengine\n")
    status = machine.told("ncu")
    assert status.usable
    assert "nv-hostengine (DCGM) runs here" in status.reason
    assert "dcgmi profile --pause" in status.fix


def test_what_is_left_out_of_all_usable_tools_is_told_with_the_reason_and_the_fix():
    found = (ToolStatus("nsys", True, "", "traces"), ToolStatus("ncu", False, "", "no rights", "Ask root."))
    assert passed_over(found, "") == passed_over(found, "all") == ("ncu is not used: no rights. Ask root.",)
    # What is named is tried, and its artefact has the reason.
    assert passed_over(found, "ncu") == ()
    assert [a.tool for a in chosen(found, "ncu")] == ["ncu"]


def test_where_the_kernel_tells_no_capabilities_root_may(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    machine.has("ncu", "Version 2025.3.1.0")
    machine.proc("driver/nvidia/params", "RmProfilingAdminOnly: 1\n")
    for user, usable in ((0, True), (1000, False)):
        monkeypatch.setattr(permissions.os, "geteuid", lambda user=user: user)
        assert machine.told("ncu").usable == usable


@pytest.mark.parametrize(
    ("paranoid", "mask", "usable"),
    [("4", NO_CAPS, False), ("3", NO_CAPS, False), ("2", NO_CAPS, True), ("-1", NO_CAPS, True), ("4", PERFMON, True),
     ("4", ROOT_CAPS, True), ("what", NO_CAPS, True)],
)  # fmt: skip
def test_perf_needs_the_kernels_leave(machine: Machine, paranoid: str, mask: str, usable: bool):
    machine.has("perf", "perf version 6.1.187\n  --control <fd:ctl>")
    machine.capable(mask)
    machine.proc("sys/kernel/perf_event_paranoid", f"{paranoid}\n")
    status = machine.told("perf")
    assert status.usable == usable
    if not usable:
        assert status.reason == f"the kernel forbids it (perf_event_paranoid is {paranoid})"
        assert status.fix == "As root: sysctl kernel.perf_event_paranoid=2"


def test_a_perf_that_cannot_be_switched_on_and_off_is_too_old(machine: Machine):
    machine.has("perf", "perf version 4.15.18\n  --delay <n>")
    status = machine.told("perf")
    assert status.usable is False
    assert "too old" in status.reason


@pytest.mark.parametrize(("gpu", "what"), [(True, "operators and kernels"), (False, "operators on the CPU")])
def test_torch_is_usable_where_it_is_installed(machine: Machine, gpu: bool, what: str):
    status = machine.told("torch", gpu=gpu)
    assert (status.usable, status.where) == (True, "torch 2.9")
    assert status.reason.endswith(what)


def test_without_torch_its_profiler_is_not_here(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch_profiler.importlib.util, "find_spec", lambda name: None)
    status = machine.told("torch")
    assert (status.usable, status.fix) == (False, "pip install torch")
