"""data.loader: every way of feeding gives the same batches in order; transforms agree wherever they run."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.data import datasets, feeds, images, loader_cpus
from aiperf.workloads.data import workload as data

SMALL = {"batches": 3, "batch_size": 2, "sample_shape": [3, 16, 16]}


@pytest.fixture(autouse=True)
def _as_many_threads_afterwards():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _side(folder, **params):
    folder.mkdir(exist_ok=True)
    return data.loader(Context(seed=3, scratch=folder), **{**SMALL, **params})


def _features(folder, seed=7, **params):
    workload = _side(folder, **params)
    try:
        first = audit(workload, seed=seed)
        assert not np.isnan(next(iter(first.values()))).any()
        return first
    finally:
        if workload.close is not None:
            workload.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"num_workers": 0}, {"num_workers": 2, "worker_kind": "thread"}),
        ({"source": "files"}, {"source": "synthetic"}),
        ({"source": "files", "num_workers": 1}, {"source": "memory"}),
        ({"source": "synthetic", "num_workers": 1}, {"source": "memory"}),
        ({"log": "per_row"}, {"log": "none"}),
        ({"heavy_every": 2, "heavy": 3}, {}),
        pytest.param(
            {"num_workers": 1, "persistent": False, "epochs": 2},
            {"epochs": 2, "num_workers": 1},
            marks=pytest.mark.long,
        ),
        ({"transform": "normalise"}, {"transform": "normalise", "transform_at": "batch"}),
        ({"products": 1}, {}),
        pytest.param(
            {"num_workers": 2, "main_cpus": "one"},
            {"num_workers": 2, "main_cpus": "one", "worker_cpus": "node"},
            marks=pytest.mark.long,
        ),
        ({"num_workers": 2, "main_cpus": "one"}, {}),
        ({"transform": "python", "num_workers": 1, "worker_kind": "thread"}, {"transform": "python"}),
    ],
)
def test_sides_see_the_same_batches_to_the_bit(tmp_path, before, after):
    one, other = _features(tmp_path / "a", **before), _features(tmp_path / "b", **after)
    assert np.array_equal(one["features"], other["features"])
    assert not np.array_equal(one["features"], _features(tmp_path / "c", seed=8, **after)["features"])


@pytest.mark.parametrize("transform", ["normalise", "augment", "recolour"])
def test_a_transform_on_the_device_agrees_with_the_one_on_each_sample(tmp_path, transform):
    one = _features(tmp_path / "a", transform=transform, transform_at="sample")["features"]
    other = _features(tmp_path / "b", transform=transform, transform_at="device")["features"]
    assert np.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_the_batched_augmentation_mirrors_and_crops_each_sample_as_it_was_drawn():
    shape = [3, 32, 40]
    pixels = np.random.default_rng(0).integers(0, 256, (8, *shape), dtype=np.uint8)
    drawn = np.stack([images.draws(1, i, shape=shape) for i in range(8)])
    assert 0 < drawn[:, 2].sum() < 8, "both mirrored and plain samples"
    alone = np.stack([images.augment(p, d, crop=28) for p, d in zip(pixels, drawn, strict=True)])
    together = images.augment_batch(torch.from_numpy(pixels), torch.from_numpy(drawn), crop=28)
    assert np.allclose(alone, together.numpy(), atol=1e-5)
    drawn[0, 2] = 1 - drawn[0, 2]
    other = images.augment_batch(torch.from_numpy(pixels), torch.from_numpy(drawn), crop=28)
    assert not np.allclose(alone[0], other[0].numpy(), atol=1e-2)


def test_tokens_in_a_file_are_those_that_the_text_gives(tmp_path):
    text = {"sample_shape": [24], "transform": "none"}
    online = _features(tmp_path / "a", source="text", **text)
    mapped = _features(tmp_path / "b", source="tokens", **text)
    assert np.array_equal(online["features"], mapped["features"])
    thread = _features(tmp_path / "c", source="text", num_workers=1, worker_kind="thread", **text)
    assert np.array_equal(online["features"], thread["features"])


def test_tokens_spell_the_document_that_they_came_from(tmp_path):
    texts = datasets.Texts("text", count=1, length=50, seed=1, folder=tmp_path)
    names = {token: piece for piece, token in texts.pieces.items()}
    spelled = "".join(names[int(t)] for t in texts[0])
    document = texts.documents[0].numpy().tobytes().decode().lower()
    assert "".join(document.split()).startswith(spelled)
    assert len(texts[0]) == 50
    assert any(c.isupper() for c in texts.documents[0].numpy().tobytes().decode())


def test_every_stage_ends_with_the_same_last_batch(tmp_path):
    stages = ("all", "loader_only", "copy_only", "compute_only")
    found = [_features(tmp_path / s, stage=s, watch="last_batch", transform="normalise") for s in stages]
    assert all(np.array_equal(found[0]["last_batch"], other["last_batch"]) for other in found)


def test_threads_keep_the_order_and_no_more_batches_in_flight_than_asked():
    most, open_now = 0, 0

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, index):
            nonlocal most, open_now
            open_now += 1
            most = max(most, open_now)
            return torch.tensor(index)

    how = feeds.Feeding(2, 2, "thread", 1, True, False)
    batches, end = feeds.feed(Slow(), how)
    seen = []
    for batch in batches:
        open_now -= len(batch)
        seen += batch.tolist()
    end()
    assert seen == list(range(9))
    assert most <= 2 * 3


def test_batches_that_would_not_fit_the_shared_memory_skip_the_side(tmp_path):
    with pytest.raises(SkipSide, match="/dev/shm"):
        _side(tmp_path, num_workers=1, prefetch_factor=1 << 40)


def test_work_counts_every_epoch_and_every_sample(tmp_path):
    work = _side(tmp_path, epochs=2, transform="none").work
    assert (work.items, work.bytes) == (12, 12 * 768 * 4)
    assert work.flops == 12 * 2 * 768 * 64


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"source": "text"}, "sample_shape of one number"),
        ({"sample_shape": [16]}, "images need"),
        ({"transform_at": "batch"}, "needs transform normalise"),
        ({"transform_at": "device", "transform": "none"}, "normalise, augment or recolour"),
        ({"source": "synthetic", "transform_at": "device"}, "transformed already"),
        ({"stage": "copy_only"}, "watch last_batch"),
        ({"stage": "copy_only", "watch": "last_batch", "epochs": 2}, "one epoch"),
        ({"pinned": True}, "need a GPU"),
        ({"copy_stream": True}, "need a GPU"),
        ({"heavy": 0}, "1 or more"),
        ({"heavy_every": -1}, "0 or more"),
        ({"heavy": 2}, "heavy_every"),
        ({"heavy": 2, "heavy_every": 2, "transform": "none"}, "which it repeats"),
        ({"heavy": 2, "heavy_every": 2, "transform": "normalise", "transform_at": "batch"}, "which it repeats"),
        ({"heavy": 2, "heavy_every": 2, "source": "synthetic"}, "which it repeats"),
        ({"worker_cpus": "node", "num_workers": 1}, "on every side"),
        ({"main_cpus": "one"}, "worker processes"),
        ({"main_cpus": "one", "num_workers": 1, "worker_kind": "thread"}, "worker processes"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(tmp_path, params, message):
    with pytest.raises(ValueError, match=message):
        _side(tmp_path, **params)


@pytest.mark.parametrize("persistent", [True, pytest.param(False, marks=pytest.mark.long)])
def test_workers_inherit_the_consumers_cpu_or_take_those_of_its_node_and_tell(tmp_path, monkeypatch, persistent):
    before = os.sched_getaffinity(0)
    first, near = min(before), sorted(before)[:2]
    monkeypatch.setattr(loader_cpus, "nodes", lambda: {0: {first + 10**6}, 1: {*near, 10**6}})
    for worker_cpus, wanted in (("inherited", [first]), ("node", near)):
        one = _side(tmp_path, num_workers=2, main_cpus="one", worker_cpus=worker_cpus, persistent=persistent)
        assert os.sched_getaffinity(0) == {first}
        assert (one.facts["main_cpus"], one.facts["cores"], one.facts["threads"]) == ([first], len(before), 1)
        assert one.facts["worker_cpus"] == [wanted, wanted]
        one.step()
        assert one.counters() == {"loader_cpus": len(wanted)}
        one.close()
        assert os.sched_getaffinity(0) == before
    assert _side(tmp_path, num_workers=1).counters is None


def test_what_a_gpu_side_cannot_mean_is_refused_before_any_gpu_is_touched(tmp_path):
    with pytest.raises(ValueError, match="non_blocking"):
        data.loader(Context(device="cuda:0", scratch=tmp_path), **SMALL, copy_stream=True, pinned=True)


def test_a_heavy_sample_is_really_transformed_so_often(tmp_path, monkeypatch):
    seen, plain = [], images.augment

    def counted(image, drawn, *, crop):
        seen.append(image.tobytes())
        return plain(image, drawn, crop=crop)

    monkeypatch.setattr(images, "augment", counted)
    workload = _side(tmp_path, heavy_every=3, heavy=4)
    seen.clear()
    workload.step()
    pixels = workload.inputs()["pixels"].numpy()
    assert [seen.count(image.tobytes()) for image in pixels] == [1, 1, 4, 1, 1, 4]


def test_the_consumer_really_multiplies_and_keeps_to_one_thread(tmp_path, monkeypatch):
    made, plain = [], torch.bmm

    def counted(a, b, **options):
        made.append(tuple(a.shape))
        return plain(a, b, **options)

    monkeypatch.setattr(torch, "bmm", counted)
    workload = _side(tmp_path, products=5)
    workload.step()
    assert workload.facts["threads"] == torch.get_num_threads() == 1
    assert workload.facts["consumer"] == "on the CPUs of the loader"
    assert made == [(5, 256, 256)] * SMALL["batches"]
