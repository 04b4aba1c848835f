"""Files that programs write."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.launch.written import AskedFiles, WrittenFile
from aiperf.records import Case, Check, Side


def asked(folder: Path, *names: str) -> AskedFiles:
    side = Side("before", command=("a",), folder=str(folder))
    return AskedFiles(Case("pair", "pair", "", "", (side,), check=Check("none", files=names)), side)


def test_every_file_is_read_with_size_and_digest(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "out.bin").write_bytes(b"same")
    (tmp_path / "sub" / "link").symlink_to(tmp_path / "out.bin")
    (tmp_path / "other").write_bytes(b"")
    digests = [hashlib.blake2b(content).hexdigest() for content in (b"same", b"same", b"")]
    names = ("out.bin", "sub/link", "other")
    assert asked(tmp_path, *names).read() == tuple(
        WrittenFile(name, size, digest) for name, size, digest in zip(names, (4, 4, 0), digests, strict=True)
    )


def test_what_is_no_file_is_at_fault(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    faults = [file.fault for file in asked(tmp_path, "missing", ".", "pipe", "loop").read()]
    assert faults[:3] == ["was not written", "is not a regular file", "is not a regular file"]
    assert faults[3].startswith("cannot be read: ")


def test_files_are_removed_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("out.bin", "kept"):
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "folder").mkdir()
    files = asked(tmp_path, "out.bin", "link", "folder", "missing", "kept/below")
    assert files.existing() == ["out.bin", "link", "folder"]
    files.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "kept"]
    assert asked(tmp_path).existing() == []


def test_a_file_that_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.bin").write_bytes(b"old")

    def refuses(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuses)
    with pytest.raises(PermissionError):
        asked(tmp_path, "out.bin").remove()
    assert replace(asked(tmp_path, "out.bin").read()[0], digest="") == WrittenFile("out.bin", 3)
