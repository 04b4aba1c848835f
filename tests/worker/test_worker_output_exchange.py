"""Handing outputs over: what one worker writes another reads as it was, and nothing else is read."""

import os

import numpy as np
import pytest
import torch

from aiperf.protocol.claims import Piece
from aiperf.worker import arrays
from aiperf.worker.audit import Snapshot
from aiperf.worker.output_exchange import NotHandedOver, read_pieces, write_pieces


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal(20_000)


def octets(array):
    return arrays.host_octets(arrays.octets(array))


@pytest.mark.parametrize("count", [3, 20_000])
def test_pieces_are_read_as_they_were_written_whatever_their_size(x, tmp_path, count):
    half = torch.from_numpy(x[:7]).bfloat16()
    kept = {"out": octets(x[:count]), "half/1": octets(half), "empty": octets(np.zeros(0))}
    snapshots = [Snapshot(), Snapshot(kept=kept, references={"out": octets(x[:count] - 1)})]
    pieces = [Piece(1, name, "whole", whole.nbytes) for name, whole in kept.items()]
    pieces += [Piece(1, "out", "reference", kept["out"].nbytes)]
    write_pieces(snapshots, pieces, tmp_path / "f")
    found = read_pieces(tmp_path / "f", pieces)
    assert [np.array_equal(got, want) for got, want in zip(found, kept.values(), strict=False)] == [True] * 3
    assert np.array_equal(found[-1].view(np.float64), x[:count] - 1)
    found[0][:] = 0  # as a check may
    assert np.array_equal(read_pieces(tmp_path / "f", pieces)[0], kept["out"])


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_parts_are_cut_where_they_were_asked_for(x, tmp_path, library):
    snapshots = [Snapshot(held={"out": arrays.octets(library(x))})]
    piece = Piece(0, "out", "parts", 64 + 32, (128, x.nbytes - 32), 64)
    write_pieces(snapshots, [piece], tmp_path / "f")
    (found,) = read_pieces(tmp_path / "f", [piece])
    assert np.array_equal(found.view(np.float64), np.concatenate([x[16:24], x[-4:]]))


def test_what_was_never_kept_cannot_be_handed_over(tmp_path):
    with pytest.raises(LookupError):
        write_pieces([Snapshot()], [Piece(0, "out", "whole", 8)], tmp_path / "f")


def test_a_file_that_is_there_already_is_not_written_into(tmp_path):
    (tmp_path / "f").write_text("mine")
    with pytest.raises(FileExistsError):
        write_pieces([], [], tmp_path / "f")


def test_anything_but_the_bytes_that_were_asked_for_is_refused(x, tmp_path):
    piece = Piece(0, "out", "whole", 64)
    (tmp_path / "short").write_bytes(bytes(63))
    (tmp_path / "link").symlink_to(tmp_path / "short")
    os.mkfifo(tmp_path / "fifo")
    for name, why in (
        ("short", "has 63 bytes, not 64"),
        ("link", "cannot be read"),
        ("fifo", "not 64"),
        ("no", "read"),
    ):
        with pytest.raises(NotHandedOver, match=why):
            read_pieces(tmp_path / name, [piece])
