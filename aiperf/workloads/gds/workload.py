"""Reading a file from storage into GPU memory, through the host or cuFile. Workload: gds.read; it has no kernels.

What must not live here: copies without a file (transfer/), a path under the name of another one.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared import page_cache

_BLOCK = 4096
_DRAWN = 16 << 20
_STILL_CACHED = 0.01
"""Share of a file's pages that may stay in the page cache after it was dropped."""


class StillCachedError(RuntimeError):
    """A file's pages stayed in the page cache, so the next read would not be cold."""


def read(
    context: Context,
    *,
    path: Literal["pageable", "pinned_overlap", "gds", "cufile_compat", "kvikio_compat"] = "pageable",
    size: Size = 64 << 20,
    read_size: Size = 4 << 20,
    cache: Literal["cold", "warm"] = "cold",
) -> Workload:
    """Read a file of ``size`` bytes into GPU memory; both sides of a pair read the same file.

    ``pageable`` reads into ordinary memory and then copies; ``pinned_overlap`` reads pieces of ``read_size`` into two
    page-locked buffers while the previous piece is copied; ``gds`` needs GPUDirect Storage to be active;
    ``cufile_compat`` is cuFile's own fallback through host memory; ``kvikio_compat`` is KvikIO's, without cuFile.
    Bytes: the file once. Source: book chapter 13, appendix.
    """
    if size < _BLOCK or size % _BLOCK or read_size < _BLOCK or read_size % _BLOCK:
        raise ValueError(f"size {size} and read_size {read_size} must be multiples of {_BLOCK} bytes above 0")
    context.use_gpu("reading into GPU memory needs a GPU")
    target = torch.empty(size, dtype=torch.uint8, device=context.device)
    file = shared_file(context.shared_scratch, size=size, seed=context.seed)
    facts: dict[str, Any] = {"path": path, "file_cache": cache, "most_resident_pages": 0}
    if path in ("pageable", "pinned_overlap"):
        step, close = _through_host(file, target, read_size=read_size, overlap=path == "pinned_overlap")
    else:
        step, close = _through_kvikio(file, target, path=path, read_size=read_size, facts=facts)
    prepare = _cold(file, facts) if cache == "cold" else (lambda: _read_once(file))
    try:
        prepare()
    except StillCachedError as error:
        raise SkipSide(str(error)) from None
    return Workload(
        step=step,
        # No disk peak: several requests in flight may outrun the single reader by which that peak is measured.
        work=Work(bytes=size, peaks={"h2d": float(size)}),
        outputs=lambda: {"target": target},
        fixed_inputs="reads a file that set-up wrote for every side of the pair",
        prepare=prepare,
        counters=lambda: {"requests": float(-(-size // read_size)) if path != "pageable" else 1.0},
        facts=facts,
        close=close,
    )


def shared_file(folder: Path, *, size: int, seed: int) -> Path:
    """A file of seeded random bytes that all sides of a pair share; whoever comes first writes it."""
    source = np.random.Generator(np.random.SFC64(seed))
    return page_cache.random_file(folder / f"payload-{size}-{seed}.bin", size, source, piece=_DRAWN)


def gds_problem() -> str:
    """Why GPUDirect Storage is not active here, asked of cuFile through KvikIO; empty when it is."""
    import kvikio.cufile_driver

    try:
        active = bool(kvikio.cufile_driver.get("is_gds_available"))
    except (RuntimeError, OSError) as error:
        return f"cuFile's driver does not open ({error})"
    return "" if active else "GPUDirect Storage is not active: cuFile sees no nvidia-fs driver"


def _cold(file: Path, facts: dict[str, Any]) -> Callable[[], None]:
    """A preparation that drops the file from the page cache and checks that it is gone."""
    pages = -(-file.stat().st_size // mmap.PAGESIZE)

    def prepare() -> None:
        left = page_cache.drop([file], enough=_STILL_CACHED)
        resident = round(left * pages)
        facts["most_resident_pages"] = max(facts["most_resident_pages"], resident)
        if left > _STILL_CACHED:
            raise StillCachedError(
                f"the page cache of {file.parent} cannot be dropped: {resident} of {pages} pages stay"
            )

    return prepare


def _read_once(file: Path) -> None:
    with file.open("rb", buffering=0) as opened:
        buffer = bytearray(_DRAWN)
        while opened.readinto(buffer):
            pass


def _through_host(
    file: Path, target: Any, *, read_size: int, overlap: bool
) -> tuple[Callable[[], None], Callable[[], None]]:
    descriptor = os.open(file, os.O_RDONLY)
    size = target.numel()
    if not overlap:
        whole = torch.zeros(size, dtype=torch.uint8)
        window = memoryview(whole.numpy())

        def bounce() -> None:
            page_cache.read_whole(descriptor, window, 0, most=size)
            target.copy_(whole)

        return bounce, lambda: os.close(descriptor)
    staging = [torch.zeros(read_size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    windows = [memoryview(buffer.numpy()) for buffer in staging]
    copied = [torch.cuda.Event() for _ in range(2)]

    def overlapped() -> None:
        for index, start in enumerate(range(0, size, read_size)):
            turn = index % 2
            length = min(read_size, size - start)
            copied[turn].synchronize()
            page_cache.read_whole(descriptor, windows[turn][:length], start, most=length)
            target[start : start + length].copy_(staging[turn][:length], non_blocking=True)
            copied[turn].record()

    return overlapped, lambda: os.close(descriptor)


def _through_kvikio(
    file: Path, target: Any, *, path: str, read_size: int, facts: dict[str, Any]
) -> tuple[Callable[[], None], Callable[[], None]]:
    try:
        import cupy
        import kvikio
        import kvikio.cufile_driver
        import kvikio.defaults
    except ImportError as error:
        raise SkipSide(f"cuFile is reached through kvikio, which cannot be imported ({error})") from error
    problem = gds_problem()
    if problem and path == "gds":
        raise SkipSide(problem)
    if path == "gds" and bool(kvikio.cufile_driver.get("allow_compat_mode")):
        raise SkipSide("cuFile may fall back unseen; set CUFILE_ALLOW_COMPAT_MODE to false on this side")
    if path == "cufile_compat" and not problem and os.environ.get("CUFILE_FORCE_COMPAT_MODE", "").lower() != "true":
        raise SkipSide("GPUDirect Storage is active; set CUFILE_FORCE_COMPAT_MODE to true to measure the fallback")
    mode = kvikio.CompatMode.ON if path == "kvikio_compat" else kvikio.CompatMode.OFF
    kvikio.defaults.set("compat_mode", mode)
    # Shares the tensor's memory: nothing is copied between the two libraries.
    buffer = cupy.from_dlpack(target)
    size = target.numel()
    try:
        opened = kvikio.CuFile(file, "r")
        got = opened.read(buffer, size, 0, read_size)
    except (RuntimeError, OSError) as error:
        raise SkipSide(f"{path}: cuFile does not read here ({error})") from error
    if got != size:
        raise OSError(f"cuFile read {got} of {size} bytes")
    facts |= {
        "gds_active": path == "gds",
        "gds_available": not problem,
        "gds_problem": problem,
        "kvikio_compat_mode": str(kvikio.defaults.get("compat_mode")),
        "kvikio_posix_path": bool(kvikio.defaults.is_compat_mode_preferred()),
        "kvikio_threads": int(kvikio.defaults.get("num_threads")),
    }

    def step() -> None:
        done = opened.read(buffer, size, 0, read_size)
        if done != size:
            raise OSError(f"cuFile read {done} of {size} bytes")

    return step, opened.close
