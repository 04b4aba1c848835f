"""dataset.decode and dataset.parse: every codec and format gives back the same data, and says what was stored."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from cpu_pairs import audit, finish, run

from aiperf.workloads.contract import Context
from aiperf.workloads.dataset import codecs, tables
from aiperf.workloads.dataset import workload as dataset

SIZE = 1 << 21
LOSSLESS = ("lz4", "zstd", "zlib1")
WAYS = ("csv_pandas", "csv_pyarrow", "npy_load", "npy_mapped")


def _context(folder):
    return Context(seed=3, scratch=folder, shared_scratch=folder)


def _decode(folder, **params):
    return dataset.decode(_context(folder), **{"bytes": SIZE, "samples": 16, **params})


def _parse(folder, way, **params):
    return dataset.parse(_context(folder), way=way, rows=64, columns=3, **params)


@pytest.mark.long
@pytest.mark.parametrize("content", ["text", "features", "labels"])
def test_every_codec_gives_the_samples_back_in_the_order_of_the_visit(tmp_path, content):
    drawn = codecs.CONTENTS[content](SIZE, seed=3).reshape(16, -1)
    sides = [_decode(tmp_path, content=content, codec=codec) for codec in ("none", *LOSSLESS)]
    sides += [_decode(tmp_path, content=content, codec=codec, decode_in="other_thread") for codec in LOSSLESS]
    for side in sides:
        assert np.array_equal(audit(side, seed=0)["samples"], np.roll(drawn, -2, axis=0))
        assert np.array_equal(audit(side, seed=1)["samples"], np.roll(drawn, -4, axis=0))
        assert side.work == sides[0].work
    finish(*sides)


def test_half_precision_is_near_the_truth_and_half_as_large(tmp_path):
    whole, half = (_decode(tmp_path, content="features", codec=codec) for codec in ("none", "float16"))
    one, other = audit(whole, seed=5)["samples"], audit(half, seed=5)["samples"]
    assert np.allclose(one, other, rtol=1e-3, atol=1e-6)
    assert not np.array_equal(one, other)
    assert half.counters()["stored_bytes"] == whole.counters()["stored_bytes"] / 2 == SIZE / 2


def test_text_shrinks_as_prose_does_and_noise_does_not(tmp_path):
    prose = {codec: _decode(tmp_path, codec=codec).facts["decoded_to_stored"] for codec in LOSSLESS}
    assert 1.4 < prose["lz4"] < prose["zlib1"] < prose["zstd"] < 3.5
    noise = _decode(tmp_path, content="features", codec="zstd")
    assert 1 < noise.facts["decoded_to_stored"] < 1.15


def test_label_maps_are_long_runs_of_few_classes_and_shrink_to_a_fraction(tmp_path):
    one, other = (codecs.labels(SIZE, seed=seed) for seed in (1, 2))
    assert len(one) == SIZE
    assert not np.array_equal(one, other)
    assert set(np.unique(one)) == set(range(19))
    rows = one.reshape(-1, 512)
    edges = (rows[:, 1:] != rows[:, :-1]).sum(axis=1)
    assert 4 < edges.mean() < 60
    assert 0 < (rows[1:] != rows[:-1]).mean() < 0.1, "edges wander from row to row"
    assert len(codecs.labels(1000, seed=1)) == 1000
    assert _decode(tmp_path, content="labels", codec="lz4").facts["decoded_to_stored"] > 4


@pytest.mark.parametrize("size", [1 << 12, 1 << 16, pytest.param(1 << 20, marks=pytest.mark.long)])
def test_text_of_any_length_is_full_of_words_and_another_one_for_another_seed(size):
    one, other = (codecs.text(size, seed=seed).tobytes() for seed in (1, 2))
    assert len(one) == size
    assert size - len(one.rstrip()) <= 1
    assert one != other


def test_a_cold_step_fetches_what_is_stored_and_not_what_it_becomes(tmp_path):
    side = _decode(tmp_path, codec="zstd", cache="cold")
    run(side)
    counts = side.counters()
    assert counts["resident_share_before"] == 0
    assert counts["stored_bytes"] == side.facts["stored_bytes"] == side.work.peaks["disk_read"] < SIZE / 1.5
    assert counts["stored_bytes"] <= counts["disk_bytes"] < SIZE / 1.5


def test_the_other_thread_decodes_and_its_errors_are_the_steps(tmp_path, monkeypatch):
    names = []
    true_decode = codecs.decoder("zlib1")

    def watched(stored, row):
        names.append(threading.current_thread().name)
        true_decode(stored, row)

    monkeypatch.setattr(codecs, "decoder", lambda codec: watched)
    here = _decode(tmp_path, codec="zlib1")
    assert set(names) == {threading.current_thread().name}
    names.clear()
    there = _decode(tmp_path, codec="zlib1", decode_in="other_thread")
    assert len(names) == 16
    assert {name[:7] for name in names} == {"decoder"}
    file = next(tmp_path.glob("*zlib1/samples.bin"))
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(Exception, match="decompress"):
        there.step()
    finish(here, there)


@pytest.mark.parametrize(
    "params",
    [{}, pytest.param({"codec": "lz4"}, marks=pytest.mark.long), {"codec": "lz4", "decode_in": "other_thread"}],
)
def test_a_file_that_has_become_shorter_fails_the_step(tmp_path, params):
    side = _decode(tmp_path, **params)
    file = next(tmp_path.glob("*/samples.bin"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(OSError, match="short read"):
        side.step()
    finish(side)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_table_back_bit_for_bit(tmp_path, way):
    truth = tables.table(64, 3, seed=3).astype(np.float32)
    side = _parse(tmp_path, way)
    assert np.array_equal(audit(side, seed=0)["table"], np.roll(truth, -8, axis=0))
    assert np.array_equal(audit(side, seed=3)["table"], np.roll(truth, -32, axis=0))
    assert (side.work.items, side.work.bytes) == (64, 64 * 3 * 4)
    finish(side)


@pytest.mark.parametrize("way", ["csv_pyarrow", "npy_mapped"])
def test_a_table_can_be_evicted_again_after_a_step_has_read_it(tmp_path, way):
    side = _parse(tmp_path, way, cache="cold")
    for _ in range(2):
        run(side)
        assert side.counters()["disk_bytes"] >= side.counters()["stored_bytes"] > 0


def test_text_is_larger_than_the_numbers_it_spells(tmp_path):
    sizes = [_parse(tmp_path, way).counters()["stored_bytes"] for way in WAYS]
    assert sizes[0] == sizes[1] > 64 * 3 * 6
    assert sizes[2] == sizes[3] == 64 * 3 * 4 + 8 * 128


@pytest.mark.parametrize(
    ("function", "params", "message"),
    [
        (dataset.decode, {"samples": 0}, "equal samples"),
        (dataset.decode, {"samples": 12}, "equal samples"),
        (dataset.decode, {"bytes": 1001, "samples": 8}, "equal samples"),
        (dataset.decode, {"codec": "float16"}, "content features"),
        (dataset.decode, {"codec": "float16", "content": "labels"}, "labels has no floats"),
        (dataset.decode, {"decode_in": "other_thread"}, "nothing to decode"),
        (dataset.parse, {"rows": 12}, "8 files"),
        (dataset.parse, {"columns": 0}, "1 or more"),
    ],
)
def test_parameters_that_cannot_work_are_refused(tmp_path, function, params, message):
    with pytest.raises(ValueError, match=message):
        function(_context(tmp_path), **params)
