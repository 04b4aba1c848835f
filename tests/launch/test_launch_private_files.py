"""What a run left in its view of the file system, and when further runs can show more."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.launch.private_files import _copy, _goes_on, _mounts_below, digests, left, may_stay


def layers(tmp_path: Path) -> tuple[str, str, Path]:
    """A layer, the place below it, and the folder of the layer for what was written there."""
    place, upper = tmp_path / "place", tmp_path / "layer" / "0" / "upper"
    for folder in (place / "old" / "inner", upper / "old" / "inner", upper / "made" / "deep"):
        folder.mkdir(parents=True)
    return str(tmp_path / "layer"), str(place), upper


def test_what_a_run_left_is_each_file_in_old_folders_and_each_new_folder_as_a_whole(tmp_path: Path) -> None:
    layer, place, upper = layers(tmp_path)
    for name in ("answer", "old/inner/log", "made/deep/one", "made/two"):
        (upper / name).write_text(name)
    assert list(left(layer, [place])) == [(0, "answer"), (0, "made"), (0, "old/inner/log")]


@pytest.mark.parametrize(
    ("name", "begin", "stays"),
    [
        ("made/deep/answer", b"1 2 3", False),
        ("made/deep/answer", b"\x7fELF...", True),
        ("made/kernel.cubin", b"1 2 3", True),
        ("made/CACHEDIR.TAG", b"Signature", True),
        ("made/__pycache__/other", b"1 2 3", True),
    ],
)
def test_a_folder_that_holds_code_or_says_that_it_is_a_cache_may_stay(
    tmp_path: Path, name: str, begin: bytes, stays: bool
) -> None:
    layer, place, upper = layers(tmp_path)
    (upper / name).parent.mkdir(exist_ok=True)
    (upper / name).write_bytes(begin)
    assert may_stay(layer, (0, "made"), [place]) is stays


def test_a_file_in_an_old_folder_that_says_that_it_is_a_cache_may_stay(tmp_path: Path) -> None:
    layer, place, upper = layers(tmp_path)
    (upper / "old" / "inner" / "file").write_text("1")
    assert not may_stay(layer, (0, "old/inner/file"), [place])
    (Path(place) / "old" / "CACHEDIR.TAG").touch()
    assert may_stay(layer, (0, "old/inner/file"), [place])


def test_what_stays_is_copied_with_folders_of_the_modes_that_they_have_below(tmp_path: Path) -> None:
    _, place, upper = layers(tmp_path)
    (Path(place) / "old").chmod(0o700)
    (upper / "old" / "inner" / "file").write_text("1")
    target = tmp_path / "other" / "0" / "upper"
    target.mkdir(parents=True)
    _copy(f"{upper}/old/inner/file", f"{target}/old/inner/file", place)
    assert (target / "old" / "inner" / "file").read_text() == "1"
    assert (target / "old").stat().st_mode & 0o777 == 0o700


def test_files_are_known_by_their_path_in_the_place_and_their_contents(tmp_path: Path) -> None:
    layer, place, upper = layers(tmp_path)
    for name, text in (("made/one", "1"), ("made/two", "1"), ("old/inner/three", "3")):
        (upper / name).write_text(text)
    found = digests(layer, [(0, "made"), (0, "old/inner/three")], [place])
    assert list(found) == [f"{place}/made/one", f"{place}/made/two", f"{place}/old/inner/three"]
    assert found[f"{place}/made/one"] == found[f"{place}/made/two"] != found[f"{place}/old/inner/three"]


def test_mounts_below_a_place_are_found_and_the_place_of_the_layers_is_not_one_of_them() -> None:
    assert "/proc" in _mounts_below([""], "")
    assert "/proc" not in _mounts_below([""], "/proc")
    assert _mounts_below(["/proc/self"], "") == []


@pytest.mark.parametrize(
    ("rounds", "on"),
    [
        ([], True),
        ([(1.0, 1.05)], False),
        ([(1.0, 1.3)], True),
        ([(1.0, 2.5)] * 2, True),
        ([(1.0, 2.5)] * 3, False),
        ([(1.0, 1.3)] * 4, True),
        ([(1.0, 1.3)] * 5, False),
        ([(1.0, 1.15)] * 8, True),
        ([(1.0, 1.15)] * 9, False),
        ([(1.0, 1.5), (1.5, 1.4), (1.0, 1.5)], True),
        ([(1.0, 1.5), (1.5, 1.4), (1.6, 1.4), (1.0, 1.6), (1.0, 1.7)], False),
    ],
)
def test_rounds_go_on_while_they_can_show_more(rounds: list[tuple[float, float]], on: bool) -> None:
    assert _goes_on(rounds) is on
