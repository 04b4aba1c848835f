"""From what nsys left to a clean export, with stand-ins for nsys, its importer and the linker."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from profilers_made import Export, host, notes_of, program

from aiperf.profilers import nsys_export, tools
from aiperf.profilers.nsys import nsys_profile
from aiperf.profilers.nsys_export import nsys_sqlite
from aiperf.profilers.nsys_read import read_nsys
from aiperf.profilers.reading import NoReport, Pass
from aiperf.profilers.registry import statuses
from aiperf.profilers.tools import FoundTool

# nsys export ... --output FILE REPORT: the ninth word and the tenth.
EXPORTS = 'cp "${10}" "$9"'
IMPORTS = 'cp "$2" "$4"'


class Place:
    """A folder with an installation in it and a raw report beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "out" / "nsys"
        self.output.parent.mkdir()
        self.raw = self.output.with_name("nsys.qdstrm")
        self.env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        self.nsys(EXPORTS)
        self.ldd("")

    def nsys(self, script: str) -> None:
        path = program(self.folder / "nsight" / "target-linux-x64" / "nsys", script)
        self.tool = FoundTool("nsys", path, (2025, 3, 1))

    def importer(self, script: str, *, folder: str = "host-linux-x64") -> Path:
        return program(self.folder / "nsight" / folder / "QdstrmImporter", script)

    def ldd(self, text: str) -> None:
        program(self.folder / "bin" / "ldd", f"printf '{text}'")

    def left(self, name: str) -> Path:
        """What nsys left, with a whole export as its content."""
        path = self.output.with_name(name)
        Export(path).domain().range("before", 1, 9).done()
        return path

    def run(self) -> Path:
        return nsys_sqlite(self.tool, self.output, env=self.env)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    near = tools.importers
    own = str(tmp_path)
    # The installation of this machine, if any, is not what is tested.
    monkeypatch.setattr(nsys_export, "importers", lambda path: tuple(p for p in near(path) if str(p).startswith(own)))
    return Place(tmp_path)


def test_a_report_that_nsys_imported_itself_is_exported_and_scrubbed_and_the_raw_one_removed(place: Place):
    place.left("nsys.nsys-rep")
    place.raw.write_bytes(b"gigabytes")
    sqlite = place.run()
    assert sqlite == place.output.with_name("nsys.sqlite")
    assert len(read_nsys(sqlite, [Pass("before", 1)]).sides) == 1
    with sqlite3.connect(sqlite) as base:
        assert ("[Unknown]",) not in base.execute("SELECT value FROM StringIds").fetchall()
    assert not place.raw.exists()


def test_a_raw_report_is_imported_by_hand_and_removed(place: Place):
    place.left("nsys.qdstrm")
    place.importer(IMPORTS)
    assert len(read_nsys(place.run(), [Pass("before", 1)]).sides) == 1
    assert not place.raw.exists()


def test_an_importer_that_fails_is_followed_by_the_next(place: Place):
    place.left("nsys.qdstrm")
    place.importer("exit 1", folder="host-linux-armv8")
    place.importer(IMPORTS)
    assert place.run().is_file()


def refused(place: Place) -> str:
    with pytest.raises(NoReport) as caught:
        place.run()
    assert not place.raw.exists()
    assert not place.output.with_name("nsys.sqlite").exists()
    return str(caught.value)


def test_nothing_left_is_said(place: Place):
    assert refused(place) == "nsys left neither a report nor a .qdstrm"


def test_a_missing_importer_is_said(place: Place):
    place.raw.write_bytes(b"x")
    assert refused(place) == f"no QdstrmImporter near {place.tool.path}: the installation is incomplete"


def test_an_importer_that_lacks_libraries_is_not_run_and_they_are_named(place: Place):
    place.raw.write_bytes(b"x")
    importer = place.importer(f"touch {place.folder}/ran; {IMPORTS}")
    place.ldd("\\tlibdw.so.1 => not found\\n")
    assert refused(place) == (
        f"{importer} lacks libdw.so.1: apt-get install libdw1, or name a folder that holds them in AIPERF_LIBS"
    )
    assert not (place.folder / "ran").exists()


def test_an_importer_that_ends_well_and_writes_nothing_has_failed(place: Place):
    place.raw.write_bytes(b"x")
    importer = place.importer("echo first; echo 'Import failed: unexpected end' >&2; exit 0")
    assert refused(place) == f"{importer} made no report (Import failed: unexpected end)"


def test_an_importer_that_cannot_be_started_or_hangs_has_failed(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nsys_export, "_IMPORT_S", 0.3)
    place.raw.write_bytes(b"x")
    odd = place.importer("")
    odd.write_bytes(b"\x7fELFnot")
    hanging = place.importer("exec sleep 60", folder="linux-desktop-x64")
    said = refused(place)
    assert f"{odd} made no report ([Errno 8] Exec format error" in said
    assert f"{hanging} made no report (timed out after 0.3 s)" in said


def test_an_export_that_ends_well_and_writes_nothing_has_failed(place: Place):
    place.left("nsys.nsys-rep")
    place.nsys("echo 'unknown type' >&2; exit 0")
    assert refused(place) == "nsys export wrote nothing (unknown type)"


def test_an_export_that_breaks_off_is_not_taken_for_whole_and_leaves_no_unscrubbed_file(place: Place):
    place.left("nsys.nsys-rep")
    place.nsys(f"{EXPORTS}; echo 'disk full' >&2; exit 1")
    assert refused(place) == "nsys export did not finish (disk full)"


def test_an_export_that_is_no_database_is_removed(place: Place):
    place.output.with_name("nsys.nsys-rep").write_bytes(b"no database " * 100)
    assert refused(place) == "what nsys exported cannot be scrubbed (file is not a database)"


def test_what_nsys_leaves_on_this_machine_is_recovered(tmp_path: Path):
    """With nsys itself where it is installed, else that it is said to be absent."""
    nsys = next(status for status in statuses(host(gpu=False)) if status.tool == "nsys")
    if not nsys.usable or nsys.found is None:
        print("nsys cannot be used here")
        assert nsys.reason
        return
    print("the real nsys")
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    argv = nsys_profile(nsys.found, [sys.executable, "-c", "pass"], output=tmp_path / "nsys", gpu=False)
    subprocess.run(argv, env=env, capture_output=True, timeout=60, check=True)
    reading = read_nsys(nsys_sqlite(nsys.found, tmp_path / "nsys", env=env), [Pass("before", 1)])
    assert reading.facts["schema"]
    assert notes_of(reading) == ("nsys saw no range of before: there are no ranges",)
    assert not (tmp_path / "nsys.qdstrm").exists()
