"""data.jpegs: workers cut, resize and normalise as the batched transform does; another image, or cut, is noticed."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from cpu_pairs import audit
from PIL import Image

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.data import feeds, jpegs

SMALL: dict[str, Any] = {"batches": 3, "batch_size": 4, "image": [96, 128], "crop": 48, "num_workers": 0}
BOUND = 2.55
"""That of the scenarios."""


def decoded(batch: Any) -> list[Any]:
    """The images of a batch of files, as nvJPEG would give them."""
    content, lengths, _ = batch
    files = [file.numpy().tobytes() for file in content.split(lengths.tolist())]
    images = [np.array(Image.open(io.BytesIO(file)).convert("RGB")) for file in files]
    return [torch.from_numpy(image.transpose(2, 0, 1).copy()) for image in images]


def files(data: jpegs.Jpegs) -> Any:
    return jpegs.together([data[i] for i in range(len(data))])


def dataset(at: str, crop: int = 48, count: int = 12, seed: int = 3) -> jpegs.Jpegs:
    return jpegs.Jpegs(count=count, shape=(96, 128), crop=crop, at=at, seed=seed)


def distance(one: Any, other: Any) -> float:
    found = jpegs.pixel_distance({"pixels": np.asarray(one)}, {"pixels": np.asarray(other)})
    assert found.passed
    assert found.value is not None
    return found.value


def test_workers_and_the_batched_transform_make_the_same_pixels() -> None:
    workload = jpegs.jpegs(Context(seed=3), **SMALL)
    data = dataset("device")
    for seed in (7, 8):
        found = audit(workload, seed=seed)["pixels"]
        data.redraw(seed)
        content, lengths, corners = files(data)
        images = decoded((content, lengths, corners))
        assert 0 < distance(found, jpegs.transformed(images, corners, 48)) < 0.5, "one side rounds to bytes"
        corners[3, 1] += 1 if corners[3, 1] < 8 else -1
        assert distance(found, jpegs.transformed(images, corners, 48)) > BOUND, "one pixel beside"
    assert workload.work.items == 12
    assert found.dtype == np.float32


def test_files_alone_are_decoded_whole() -> None:
    found = audit(jpegs.jpegs(Context(seed=3), **(SMALL | {"crop": 0})), seed=7)["pixels"]
    data = dataset("device", crop=0)
    data.redraw(7)
    batch = files(data)
    whole = jpegs.transformed(decoded(batch), batch[2], 0).numpy()
    assert found.dtype == np.uint8
    assert np.array_equal(found, whole)
    assert distance(found, np.roll(whole, 1, axis=3)) > BOUND
    assert distance(found, whole[[1, 0, *range(2, 12)]]) > 20


def test_worker_processes_see_redrawn_files() -> None:
    alone, two = (jpegs.jpegs(Context(seed=3), **(SMALL | {"num_workers": n})) for n in (0, 2))
    try:
        first = audit(two, seed=7)["pixels"]
        assert np.array_equal(first, audit(alone, seed=7)["pixels"])
        again = audit(two, seed=8)["pixels"]
        assert np.array_equal(again, audit(alone, seed=8)["pixels"])
        assert distance(first, again) > 20
    finally:
        assert two.close is not None
        two.close()


def test_the_cpu_seconds_of_a_step_are_those_of_this_process_and_of_its_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = dataset("device")
    data.used = torch.tensor([0.25, 0.5], dtype=torch.float64)
    clock = iter([1.0, 1.5, 7.0, 7.5])
    monkeypatch.setattr(jpegs.time, "process_time", lambda: next(clock))
    cpu = jpegs.HostCpu(data)
    for _ in range(2):
        cpu.during(lambda: None)
    assert cpu.values() == {"host_cpu": (0.5 + 0.5 + 0.75) / 2}
    assert cpu.values() == {"host_cpu": 0.0}


def test_every_worker_tells_its_cpu_seconds() -> None:
    data = jpegs.Jpegs(count=12, shape=(96, 128), crop=48, at="sample", seed=3, workers=2)
    loaded, end = feeds.feed(data, feeds.Feeding(4, 2, "process", 2, True, False))
    first = [data.used.clone() for _ in loaded][-1]
    list(loaded)
    assert bool((first > 0).all())
    assert bool((data.used > first).all())
    end()


def test_more_samples_than_files_are_the_same_cut_elsewhere() -> None:
    data = jpegs.Jpegs(count=130, shape=(96, 128), crop=8, at="device", seed=3)
    assert len(data.content) == 64
    assert torch.equal(data[0][0], data[64][0])
    corners = {data.corner(i)[:2] for i in range(130)}
    assert len(corners) > 50
    assert all(top + high <= 96 and left + wide <= 128 for top, left, high, wide in map(data.corner, range(130)))


@pytest.mark.parametrize(
    ("params", "message"),
    [({"batches": 0}, "1 or more"), ({"image": [0, 8]}, "1 or more"), ({"crop": -1}, "0 or more")],
)
def test_sizes_that_are_none_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jpegs.jpegs(Context(), **(SMALL | params))


def test_outputs_that_cannot_be_compared_fail() -> None:
    pixels = np.zeros((2, 3, 4, 4), np.float32)
    assert not jpegs.pixel_distance({"pixels": pixels}, {"pixels": pixels[:1]}).passed
    assert not jpegs.pixel_distance({"pixels": pixels}, {"pixels": pixels * np.nan}).passed


@pytest.mark.parametrize("at", ["device", "device_and_back"])
def test_nvjpeg_needs_a_gpu(at: Any) -> None:
    with pytest.raises(SkipSide, match="on a GPU"):
        jpegs.jpegs(Context(), **SMALL, decode_at=at)


class Stream:
    """A stream of a GPU that is not there; what is told of it is kept."""

    told: list[str]

    def __init__(self, device: str = "") -> None:
        self.told = []

    def __enter__(self) -> None:
        self.told.append("entered")

    def __exit__(self, *_: object) -> None:
        self.told.append("left")

    def synchronize(self) -> None:
        self.told.append("rests")

    def wait_stream(self, other: Stream) -> None:
        other.told.append("awaited")


@pytest.mark.parametrize("back", [False, True])
def test_a_batch_is_decoded_once_its_stream_rests_and_awaited_by_the_step(
    monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    vision = ModuleType("torchvision.io")
    vision.ImageReadMode = type("ImageReadMode", (), {"RGB": "RGB"})  # type: ignore[attr-defined]
    stream = Stream()

    def decode(parts: list[Any], *, mode: str, device: str) -> list[Any]:
        assert (mode, device) == ("RGB", "cpu")
        assert stream.told == ["entered", "rests"]
        return decoded((torch.cat(parts), torch.tensor([len(part) for part in parts]), None))

    vision.decode_jpeg = decode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision.io", vision)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda entered: entered)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, used: stream.told.append("recorded"))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    batch = files(dataset("device"))
    ready = jpegs.OnDevice("cpu", 48, back=back)(batch)
    assert stream.told == ["entered", "rests", "left", "awaited", "recorded"]
    assert torch.equal(ready, jpegs.transformed(decoded(batch), batch[2], 48))


@pytest.mark.parametrize("fault", [ImportError("no module"), RuntimeError("operator does not exist")])
def test_a_torchvision_that_is_not_there_or_of_another_torch_is_a_reason_to_skip(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, tmp_path: Path
) -> None:
    def refuse(name: str) -> None:
        assert name == "torchvision.io"
        raise fault

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(jpegs.importlib, "import_module", refuse)
    with pytest.raises(SkipSide, match="torchvision, which calls nvJPEG"):
        jpegs.OnDevice("cuda:0", 48, back=False)
