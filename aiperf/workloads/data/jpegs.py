"""data.jpegs: JPEGs decoded, cropped, resized and normalised by workers on the CPU, on the GPU, or some on each.

What must not live here: how batches travel (feeds.py), the transforms of raw images (images.py), timing.
"""

from __future__ import annotations

import importlib
import io
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload
from aiperf.workloads.data import feeds
from aiperf.workloads.data.datasets import shared_bytes
from aiperf.workloads.data.images import MEAN, STD
from aiperf.workloads.shared.seeded import generator
from aiperf.workloads.shared.tried import attempt

METRICS = {"jpegs": {"host_cpu": ("s", "lower")}}

_DISTINCT = 64
"""JPEGs that are drawn; a longer epoch meets them again, cut elsewhere."""
_CELLS, _NOISE = (16, 48), 3.0
"""Pixels between the random values that brightness and colour run through, and what is added to each pixel."""
_QUALITY, _BYTES_A_PIXEL = 90, 2
"""What JPEGs are written with, and the room for one; these take a quarter of a byte."""


def _pillow() -> Any:
    """Pillow's Image. Raises SkipSide where it is not installed."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise SkipSide(f"Pillow, which writes the JPEGs, is not installed: {error}") from error


def drawn_image(draw: np.random.Generator, height: int, width: int) -> Any:
    """Bytes [height, width, 3] of large smooth shapes in soft colours, with a little noise, as a photograph has."""
    pillow = _pillow()

    def smooth(cell: int, channels: int) -> Any:
        coarse = draw.integers(0, 256, (height // cell + 3, width // cell + 3, channels), dtype=np.uint8)
        parts = [
            pillow.fromarray(coarse[:, :, c]).resize((width, height), pillow.Resampling.BICUBIC)
            for c in range(channels)
        ]
        return np.stack([np.asarray(part, dtype=np.float32) for part in parts], axis=2)

    light, colour = smooth(_CELLS[0], 1), smooth(_CELLS[1], 3)
    noise = draw.standard_normal((height, width, 1), dtype=np.float32) * np.float32(_NOISE)
    return np.clip(0.75 * light + 0.25 * colour + noise, 0, 255).astype(np.uint8)


class Jpegs(Dataset[Any]):
    """JPEGs in memory that workers share, decoded and transformed sample by sample, or handed on as they are."""

    def __init__(self, *, count: int, shape: tuple[int, int], crop: int, at: str, seed: int, workers: int = 0) -> None:
        self.count, self.shape, self.crop, self.at, self.seed = count, shape, crop, at, seed
        self.content = shared_bytes(min(count, _DISTINCT), shape[0] * shape[1] * _BYTES_A_PIXEL)
        self.lengths = shared_bytes(4 * len(self.content)).view(torch.int32)
        self.used = shared_bytes(8 * workers).view(torch.float64)
        """CPU seconds of each worker, as it last read them."""
        self.redraw(seed)

    def redraw(self, seed: int) -> None:
        """New images in place, which the workers see."""
        pillow, draw = _pillow(), generator(seed, "photographs")
        for index, row in enumerate(self.content):
            file = io.BytesIO()
            pillow.fromarray(drawn_image(draw, *self.shape)).save(file, "JPEG", quality=_QUALITY)
            encoded = np.frombuffer(file.getvalue(), np.uint8)
            row[: len(encoded)] = torch.from_numpy(encoded.copy())
            row[len(encoded) :] = 0
            self.lengths[index] = len(encoded)

    def inputs(self) -> dict[str, Any]:
        """What a step reads."""
        return {"jpegs": self.content, "lengths": self.lengths}

    def __len__(self) -> int:
        return self.count

    def corner(self, index: int) -> tuple[int, int, int, int]:
        """Top, left, height and width of what is cut out of sample ``index``: seven eighths of each side."""
        height, width = (side * 7 // 8 for side in self.shape)
        draw = np.random.default_rng((self.seed, index))
        top, left = draw.integers(0, self.shape[0] - height + 1), draw.integers(0, self.shape[1] - width + 1)
        return int(top), int(left), height, width

    def encoded(self, index: int) -> Any:
        """The bytes of the file of sample ``index``."""
        at = index % len(self.content)
        return self.content[at, : int(self.lengths[at])]

    def __getitem__(self, index: int) -> Any:
        found = self._made(index)
        if (worker := get_worker_info()) is not None:
            self.used[worker.id] = time.process_time()
        return found

    def _made(self, index: int) -> Any:
        if self.at == "device":
            return self.encoded(index), self.corner(index)
        pillow = _pillow()
        image = pillow.open(io.BytesIO(self.encoded(index).numpy().tobytes())).convert("RGB")
        if not self.crop:
            return torch.from_numpy(np.array(image).transpose(2, 0, 1).copy())
        top, left, height, width = self.corner(index)
        cut = image.crop((left, top, left + width, top + height))
        small = np.asarray(cut.resize((self.crop, self.crop), pillow.Resampling.BILINEAR), dtype=np.float32)
        return torch.from_numpy((small.transpose(2, 0, 1) / np.float32(255) - MEAN) / STD)


class HostCpu:
    """CPU seconds of this process in its steps, all threads, and of the loader's workers."""

    def __init__(self, data: Jpegs) -> None:
        self._data, self._own, self._steps, self._workers = data, 0.0, 0, 0.0

    def during(self, step: Callable[[], object]) -> None:
        """Run a step."""
        began = time.process_time()
        step()
        self._own, self._steps = self._own + time.process_time() - began, self._steps + 1

    def values(self) -> dict[str, float]:
        """The mean of a step since it was last asked for."""
        workers = float(self._data.used.sum())
        mean = (self._own + workers - self._workers) / max(self._steps, 1)
        self._own, self._steps, self._workers = 0.0, 0, workers
        return {"host_cpu": mean}


def together(samples: list[Any]) -> Any:
    """One batch of files: their bytes in a row, their lengths, and the corners."""
    files = [file for file, _ in samples]
    return (
        torch.cat(files),
        torch.tensor([len(file) for file in files]),
        torch.tensor([corner for _, corner in samples]),
    )


def transformed(images: list[Any], corners: Any, crop: int) -> Any:
    """Images [3, height, width] of bytes, cut, resized and normalised together, on the device where they are."""
    if not crop:
        return torch.stack(images)
    boxes = zip(images, corners.tolist(), strict=True)
    cut = torch.stack([image[:, top : top + high, left : left + wide] for image, (top, left, high, wide) in boxes])
    small = torch.nn.functional.interpolate(cut.float(), (crop, crop), mode="bilinear", antialias=True)
    mean, deviation = (torch.from_numpy(values).to(small.device) for values in (MEAN, STD))
    return (small / 255 - mean) / deviation


class OnDevice:
    """Batches of files become batches of pixels: decoded on the GPU, and transformed there or back on the CPU.

    torchvision's decoder writes on a stream of its own into memory that it takes from the current one, without waiting
    for what that stream still does with it. So images and all that is made of them have a stream to themselves here,
    which has come to rest before the next batch is decoded; the training step goes on beside it.
    """

    def __init__(self, device: str, crop: int, *, back: bool) -> None:
        self._device, self._crop, self._back = device, crop, back
        self._stream = torch.cuda.Stream(device)
        try:
            self._io = importlib.import_module("torchvision.io")
        except (ImportError, RuntimeError) as error:
            # A torchvision that was built for another torch fails as it registers its operators.
            raise SkipSide(f"torchvision, which calls nvJPEG, cannot be imported: {error}") from error

    def decoded(self, content: Any, lengths: Any) -> list[Any]:
        """The images of a batch on the GPU."""
        mode = self._io.ImageReadMode.RGB
        found: list[Any] = self._io.decode_jpeg(list(content.split(lengths.tolist())), mode=mode, device=self._device)
        return found

    def __call__(self, batch: Any) -> Any:
        """A batch as ``together`` makes it becomes one of pixels, which the current stream waits for."""
        content, lengths, corners = batch
        consumer = torch.cuda.current_stream()
        with torch.cuda.stream(self._stream):
            self._stream.synchronize()
            images = self.decoded(content, lengths)
            if self._back:
                images = list(torch.stack(images).cpu())
            ready = transformed(images, corners, self._crop)
            if self._back:
                ready = ready.pin_memory().to(self._device, non_blocking=True)
        consumer.wait_stream(self._stream)
        ready.record_stream(consumer)
        return ready


def pixel_distance(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """The largest root mean square difference of an image from before's, in steps of 1/255; 2.55 is a PSNR of 40 dB."""
    one, other = before["pixels"], after["pixels"]
    if one.shape != other.shape:
        return Outcome(False, f"pixels have shape {other.shape} against before's {one.shape}")
    unit = np.float32(1) if one.dtype == np.uint8 else np.float32(255) * STD
    worst, at = 0.0, 0
    for index, (first, second) in enumerate(zip(one, other, strict=True)):
        squares = np.square(np.subtract(second, first, dtype=np.float32) * unit)
        apart = float(np.sqrt(squares.mean(dtype=np.float64)))
        if not apart <= worst:
            worst, at = apart, index
    return Outcome(bool(np.isfinite(worst)), f"image {at} differs by {worst:.3g} of 255 steps", worst)


def _check(context: Context, decode_at: str, sizes: Iterable[int], crop: int) -> None:
    if min(sizes) < 1 or crop < 0:
        raise ValueError("batches, batch_size and the sides of an image must be 1 or more, crop 0 or more")
    if decode_at != "cpu" and not context.on_gpu:
        raise SkipSide("nvJPEG decodes on a GPU")


def jpegs(
    context: Context,
    *,
    decode_at: Literal["cpu", "device", "device_and_back"] = "cpu",
    batches: int = 4,
    batch_size: int = 64,
    image: list[int] = [375, 500],  # noqa: B006 - read only
    crop: int = 224,
    num_workers: int = 8,
    products: int = 4,
) -> Workload:
    """``batches`` batches of JPEGs in memory become pixels on the device: [3, height, width] bytes, or with ``crop``
    seven eighths of each side, cut at random, resized to a square of ``crop`` pixels (bilinear, antialiased) and
    normalised.

    ``cpu``: ``num_workers`` processes do all of that with Pillow, sample by sample; batches are page-locked and copied.
    ``device``: they pass on files, nvJPEG decodes a batch of them (torchvision), and torch does the rest on the GPU.
    ``device_and_back``: decoded there, the pixels return to the CPU for the rest and are copied again. On a GPU,
    ``products`` matrix products (4096^3, bfloat16) stand for the training step of a batch.

    The files hold drawn shapes (4:2:0, 64 of them; more samples are the same cut elsewhere). ``host_cpu``: CPU seconds
    of a step, those of the workers included. Items: images; bytes: the pixels of the batches. The named check
    ``pixel_distance`` is the largest root mean square difference of an image, in steps of 1/255.
    """
    _check(context, decode_at, (batches, batch_size, *image), crop)
    count, shape = batches * batch_size, (image[0], image[1])
    at = "sample" if decode_at == "cpu" else "device"
    data = Jpegs(count=count, shape=shape, crop=crop, at=at, seed=context.seed, workers=num_workers)
    how = feeds.Feeding(batch_size, num_workers, "process", 2, True, context.on_gpu)
    if at == "device":
        how = feeds.Feeding(batch_size, num_workers, "process", 2, True, False, together)
    sides, kind = ((crop, crop), torch.float32) if crop else (shape, torch.uint8)
    pixels = torch.zeros((count, 3, *sides), dtype=kind, device=context.device)
    feeds.require_shared_memory(how, pixels.nbytes // batches)
    arrive = _arriving(context, decode_at, data, crop)
    loaded, end = feeds.feed(data, how)
    train, cpu = _training(context, products), HostCpu(data)

    def step() -> None:
        first = 0
        for batch in loaded:
            ready = arrive(batch)
            pixels[first : first + len(ready)].copy_(ready)
            first += len(ready)
            train()

    return Workload(
        step=lambda: cpu.during(step),
        work=Work(bytes=float(pixels.nbytes), items=count, item="images"),
        outputs=lambda: {"pixels": pixels},
        inputs=data.inputs,
        redraw=data.redraw,
        values=cpu.values,
        checks={"pixel_distance": pixel_distance},
        facts={"file_bytes": float(data.lengths.float().mean()), "workers": num_workers, "decoder": decode_at},
        close=end,
    )


def _arriving(context: Context, decode_at: str, data: Jpegs, crop: int) -> Callable[[Any], Any]:
    """How a batch of the loader becomes pixels on the device. Raises SkipSide where no file can be decoded there."""
    if decode_at == "cpu":
        return lambda batch: feeds.move(batch, context.device, non_blocking=True)
    decoder = OnDevice(context.device, crop, back=decode_at == "device_and_back")
    file = data.encoded(0)
    attempt(lambda: decoder.decoded(file, torch.tensor([len(file)])), "torchvision decodes no JPEG on this GPU")
    torch.cuda.synchronize(context.device)
    return decoder


def _training(context: Context, products: int) -> Callable[[], None]:
    """What the GPU does with a batch beside its preparation."""
    if not context.on_gpu or not products:
        return lambda: None
    one = torch.full((4096, 4096), 1 / 4096, dtype=torch.bfloat16, device=context.device)
    out = torch.empty_like(one)

    def train() -> None:
        for _ in range(products):
            torch.mm(one, one, out=out)

    return train
