"""Files that programs write."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.launch.written import AskedFiles, WrittenFile
from aiperf.records import Case, Check, Side

SIDES = (Side("before", command=("a",)), Side("after", command=("b",)))
CASE = Case("pair", "pair", "", "", SIDES, check=Check("none", files=("out.bin",)))


def asked(folder: Path) -> AskedFiles:
    return AskedFiles(CASE, folder)


def rewrite(path: Path) -> None:
    path.write_bytes(b"same")


def touch_back(path: Path) -> None:
    """Written, and given the time of modification that it had."""
    path.write_bytes(b"same")
    os.utime(path, ns=(0, 0))


def put_another_there(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"same")
    other.rename(path)


@pytest.mark.parametrize("write", [rewrite, touch_back, put_another_there])
def test_a_file_that_is_written_again_with_the_same_bytes_is_written(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "out.bin"
    for _ in range(5):
        # Right after it was written before: the stamps of a file system move in steps of milliseconds.
        path.write_bytes(b"same")
        os.utime(path, ns=(0, 0))
        files = asked(tmp_path)
        write(path)
        (file,) = files.read()
        assert (file.fault, file.size, len(file.digest)) == ("", 4, 128)


def test_a_file_that_was_there_and_is_not_written_is_at_fault(tmp_path: Path) -> None:
    (tmp_path / "out.bin").write_bytes(b"old")
    files = asked(tmp_path)
    assert files.read() == (WrittenFile("out.bin", fault="was there before, and this run did not write it"),)


def test_what_is_no_file_is_at_fault(tmp_path: Path) -> None:
    files = asked(tmp_path)
    assert files.read()[0].fault == "was not there when it ended"
    (tmp_path / "out.bin").mkdir()
    assert files.read()[0].fault == "is not a regular file"
    (tmp_path / "out.bin").rmdir()
    os.mkfifo(tmp_path / "out.bin")
    assert files.read()[0].fault == "is not a regular file"
    strange = replace(CASE, check=Check("none", files=("a\0b",)))
    assert AskedFiles(strange, tmp_path).read()[0].fault == "is no name of a file"
