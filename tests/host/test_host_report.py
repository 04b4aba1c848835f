"""Running probes: whatever one of them does, the others' rows stand and every row says why."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from host_fake_nvml import LIBRARY_NOT_FOUND, FakeNvml
from host_shelf import ShelfNvml, check, plant, recorded, sight_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S

from aiperf.host.checklist import load_checklist
from aiperf.host.host_report import check_host, differences
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.packages import Packages
from aiperf.host.probes.probe import GROUPS, Finding, Probe
from aiperf.host.probes.reader import HostReader, run_command

ITEMS = load_checklist()


def probe(read, id_="thp"):
    return Probe(id_, "CPU", "title", "source", "good", "why", "fix", read)


def nothing(root: Path, **more) -> HostReader:
    return HostReader(
        root=root, environ={}, library=FakeNvml(init_error=LIBRARY_NOT_FOUND), data=Path("/data"),
        command=lambda argv: None, installed=Packages(), wait=lambda seconds: None, **more,
    )  # fmt: skip


def test_on_an_empty_root_every_probe_says_why_and_none_fails(tmp_path) -> None:
    rows = check_host(PROBES, nothing(tmp_path), items=ITEMS).findings
    assert len(rows) == len(PROBES)
    for row in rows:
        assert "probe failed" not in row.reason, row
        assert row.reason or row.level in ("ok", "warn"), row
    good = [row.id for row in rows if row.level not in ("unreadable", "absent", "warn")]
    # What the variables tell does not need a file.
    assert set(good) <= {"minimise-sync", "nccl-env"}


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_probe_fails_on_files_that_say_nonsense(tmp_path_factory, data) -> None:
    host = recorded(data.draw(st.sampled_from(["numa-server", "laptop", "half-cpu-container"])))
    nonsense = st.sampled_from(["", "\n", "max", "-1", "x y z", "0-", "9" * 30, "[", "]:[", "\0", "a:b\n:c\n d"])
    names = sorted(host["files"])
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=12, unique=True))
    host["files"] |= {name: data.draw(nonsense) for name in chosen}
    rows = check_host(PROBES, sight_of(tmp_path_factory.mktemp("root"), host), items=ITEMS).findings
    assert [row for row in rows if "probe failed" in row.reason] == []


@pytest.mark.parametrize("call", sorted({n for d in recorded("numa-server")["nvml"]["devices"] for n in d}))
def test_no_probe_fails_when_a_call_of_nvml_is_not_supported(tmp_path, call) -> None:
    nvml = recorded("numa-server")["nvml"]
    nvml["devices"] = [{k: v for k, v in device.items() if k != call} for device in nvml["devices"]]
    rows = check(tmp_path, "numa-server", nvml=nvml).findings
    assert [row for row in rows if "probe failed" in row.reason] == []


def test_a_probe_that_raises_is_a_row_and_the_others_stand(tmp_path) -> None:
    def broken(reader):
        raise ZeroDivisionError("by zero")

    probes = [probe(broken), probe(lambda reader: Finding("ok", "fine", "here"), "mig")]
    first, second = check_host(probes, nothing(tmp_path), items=ITEMS).findings
    assert (first.level, first.reason) == ("unreadable", "the probe failed: ZeroDivisionError: by zero")
    assert (second.level, second.value, second.fix) == ("ok", "fine", "")


@pytest.mark.long
def test_a_probe_that_hangs_is_cut_at_the_limit_and_nvml_is_left_open(tmp_path) -> None:
    release = threading.Event()
    library = ShelfNvml(recorded("h200-vm")["nvml"])
    reader = HostReader(root=tmp_path, environ={}, library=library, installed=Packages(), command=lambda argv: None)
    slow = probe(lambda s: release.wait() and Finding("ok"))
    probes = [slow, probe(lambda s: Finding("ok", str(s.gpus[0].busy), "x"))]
    try:
        first, second = check_host(probes, reader, items=ITEMS, limit=2.0).findings
        assert (first.level, first.reason) == ("unreadable", "the probe took longer than 2 s")
        assert second.value == "0"
        assert library.open == 1
    finally:
        release.set()


def test_nvml_is_opened_once_and_closed_again(tmp_path) -> None:
    library = ShelfNvml(recorded("h200-vm")["nvml"])
    check_host(PROBES, HostReader(root=tmp_path, library=library, command=lambda argv: None), items=ITEMS)
    assert library.open == 0


def test_a_file_that_needs_permission_says_the_command_that_would_read_it(tmp_path, monkeypatch) -> None:
    def refused(self, *arguments, **more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    row = check_host([p for p in PROBES if p.id == "swap-disabled"], nothing(tmp_path), items=ITEMS).findings[0]
    assert (row.level, row.reason, row.fix) == ("unreadable", "/proc/swaps needs permission", "sudo cat /proc/swaps")


def test_a_command_that_hangs_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr("aiperf.host.probes.reader._COMMAND_S", 0.2)
    begin = time.monotonic()
    assert run_command(("sleep", "600")) is None
    assert time.monotonic() - begin < PATIENCE_S
    assert run_command(("no-such-program-of-aiperf",)) is None


def test_every_probe_is_declared_in_full_and_once() -> None:
    assert len({p.id for p in PROBES}) == len(PROBES)
    for p in PROBES:
        assert p.group in GROUPS
        assert all((p.id, p.title, p.source, p.good, p.why, p.fix)), p.id
    assert {p.group for p in PROBES} == set(GROUPS)


def test_the_same_host_twice_has_no_differences_and_a_changed_one_only_what_changed(tmp_path) -> None:
    before = check(tmp_path / "a", "h200-vm")
    assert differences(before, check(tmp_path / "b", "h200-vm")) == ()
    files = {"proc/sys/net/ipv4/tcp_congestion_control": "reno", "proc/loadavg": "1.00 1 1 1/1 1"}
    after = check(tmp_path / "c", "h200-vm", files=files)
    assert [(old.value, new.value) for old, new in differences(before, after)] == [("cubic", "reno")]


def test_a_momentary_value_differs_by_its_level_only(tmp_path) -> None:
    before = check(tmp_path / "a", "h200-vm")
    after = check(tmp_path / "b", "h200-vm", files={"proc/loadavg": "99.00 1 1 1/1 1"})
    assert {new.id for _, new in differences(before, after)} == {"background-services", "cpu-oversubscription"}


def test_rows_that_one_checkup_lacks_are_differences(tmp_path) -> None:
    whole = check(tmp_path / "a", "h200-vm")
    part = check_host(PROBES[:70], sight_of(tmp_path / "b", recorded("h200-vm")), items=ITEMS)
    assert [(new, old.id) for old, new in differences(whole, part)] == [(None, p.id) for p in PROBES[70:]]
    assert [(old, new.id) for old, new in differences(part, whole)] == [(None, p.id) for p in PROBES[70:]]


def test_the_probes_load_no_library_that_they_report_on() -> None:
    code = (
        "import sys; from aiperf.recipes.doctor import examine; from aiperf.host.probes.reader import HostReader\n"
        "examine(HostReader())\n"
    )
    code += "print([m for m in ('torch', 'numpy', 'pandas', 'scipy', 'cupy', 'psutil', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_planted_under_a_root_is_all_that_is_read(tmp_path) -> None:
    reader = nothing(plant(tmp_path, {"proc/swaps": "Filename\n"}))
    rows = check_host([p for p in PROBES if p.group == "memory"], reader, items=ITEMS).findings
    assert [row.id for row in rows if row.level == "ok"] == ["swap-disabled"]
