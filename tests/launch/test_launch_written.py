"""Files that programs write."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import UserError
from aiperf.launch.written import AskedFiles, WrittenFile, refuse_existing
from aiperf.records import Case, Check, Side


def asked(folder: Path, *names: str) -> AskedFiles:
    side = Side("before", command=("a",), folder=str(folder))
    return AskedFiles(Case("pair", "pair", "", "", (side,), check=Check("none", files=names)), side)


def test_every_file_is_read_with_size_and_digest(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "out.bin").write_bytes(b"same")
    (tmp_path / "sub" / "more").write_bytes(b"same")
    (tmp_path / "other").write_bytes(b"")
    digests = [hashlib.blake2b(content).hexdigest() for content in (b"same", b"same", b"")]
    names = ("out.bin", "sub/more", "other")
    assert asked(tmp_path, *names).read() == tuple(
        WrittenFile(name, size, digest) for name, size, digest in zip(names, (4, 4, 0), digests, strict=True)
    )


def test_what_is_no_file_is_at_fault(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    faults = [file.fault for file in asked(tmp_path, "missing", ".", "pipe", "link", "file/below").read()]
    assert faults[:4] == ["was not written", *["is not a regular file"] * 3]
    assert faults[4].startswith("cannot be read: Not a directory")


def test_files_are_removed_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("out.bin", "kept"):
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "folder").mkdir()
    files = asked(tmp_path, "out.bin", "link", "folder", "missing", "kept/below")
    assert files.existing() == [tmp_path / name for name in ("out.bin", "link", "folder")]
    files.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "kept"]
    assert asked(tmp_path).existing() == []


def test_files_that_exist_are_refused_by_their_place_and_those_of_checkouts_are_not_known_yet(tmp_path: Path) -> None:
    (tmp_path / "out.bin").write_bytes(b"mine")
    side = Side("before", command=("a",), folder=str(tmp_path))
    case = Case("pair", "pair", "", "", (side, replace(side, name="after")), check=Check("none", files=("out.bin",)))
    with pytest.raises(UserError) as caught:
        refuse_existing([case])
    (fault,) = caught.value.faults
    assert (fault.where, fault.what) == ("pair", f"{tmp_path / 'out.bin'} exists already.")
    refuse_existing([replace(case, sides=(replace(side, ref="main"),)), replace(case, check=Check("none"))])
