"""storage.read: read a known set of bytes from disk in a stated layout, order and request size.

What must not live here: the reading itself (files.py, range_client.py), decoding (dataset/), GPU transfers, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared import page_cache
from aiperf.workloads.shared.cold import Cold, Fetched, Ranks
from aiperf.workloads.shared.seeded import memory_peak
from aiperf.workloads.storage import files
from aiperf.workloads.storage.mounts import PrivateMount
from aiperf.workloads.storage.range_client import RangeClient


def _check(asked: SimpleNamespace) -> None:
    size, samples, source, ranks = asked.bytes, asked.samples, asked.source, asked.context.world_size
    if asked.read_size < 1 or asked.depth < 1:
        raise ValueError("read_size and depth must be 1 or more")
    if source == "ram" and asked.depth > 1:
        raise ValueError("depth is about requests to files; source ram has none")
    if asked.layout != "single" and samples < 1:
        raise ValueError(f"layout {asked.layout} needs samples: 1 or more")
    unit = size // samples if samples else 4096
    parts = files.STARTS * ranks
    if size % parts or (size // parts) % unit or (samples and size % samples):
        raise ValueError(f"{size} bytes must divide into {parts} parts of whole samples ({unit} bytes each)")
    if asked.requests and (
        asked.order != "random" or asked.layout != "single" or source != "file" or ranks > 1 or size % asked.read_size
    ):
        raise ValueError("requests takes some of a file's blocks: order random, layout single, one rank, whole blocks")
    if not 0 <= asked.requests * asked.read_size <= size:
        raise ValueError(f"{asked.requests} requests of {asked.read_size} bytes are not 0 to {size} bytes")
    _check_preshuffled(asked)
    _check_mount(asked)
    if asked.advice == "ahead" and asked.window < files.PIECE:
        raise ValueError("window must be 128KiB or more, the size of the pieces that are asked for")
    if asked.advice == "ahead" and (asked.order != "sequential" or asked.depth > 1 or source != "file"):
        raise ValueError("advice ahead asks for what follows in a file: order sequential, depth 1")
    if asked.io == "direct" and asked.read_size % 4096:
        raise ValueError("io direct needs a read_size in whole blocks of 4 KiB")
    _check_assigned(asked)
    plain = {"layout": "single", "io": "buffered", "advice": "normal", "cache": "warm"}
    if source == "http" and any(getattr(asked, name) != value for name, value in plain.items()):
        listed = ", ".join(f"{name} {value}" for name, value in plain.items())
        raise ValueError(f"source http has one object, which its server holds in the page cache: {listed}")


def _check_assigned(asked: SimpleNamespace) -> None:
    if asked.assign != "slice" and asked.context.world_size == 1:
        raise ValueError(f"assign {asked.assign} needs ranks: 2 or more on this side; one rank reads all there is")
    odd = asked.source != "file" or asked.layout not in ("single", "per_reader") or not asked.samples
    if asked.assign == "round_robin" and odd:
        raise ValueError("assign round_robin needs samples, source file, and layout single or per_reader")
    if asked.layout == "per_reader" and asked.assign != "round_robin":
        raise ValueError("layout per_reader is for assign round_robin: the samples of each rank in a file of its own")


def _check_preshuffled(asked: SimpleNamespace) -> None:
    plain = {"layout": "single", "source": "file", "requests": 0}
    odd = any(getattr(asked, name) != value for name, value in plain.items()) or asked.context.world_size > 1
    if asked.order == "preshuffled" and (odd or asked.bytes // files.STARTS % asked.read_size):
        raise ValueError("order preshuffled is of one file, whole, by one rank, an eighth of it in whole requests")


def _check_mount(asked: SimpleNamespace) -> None:
    if asked.mount != "none" and (asked.source != "file" or asked.context.world_size > 1):
        raise ValueError("mount is a way to files, for one rank: source file")
    if asked.mounted == "anew" and asked.mount == "none":
        raise ValueError("mounted anew needs a mount: bind or overlay")


def read(
    context: Context,
    *,
    source: Literal["file", "ram", "http"] = "file",
    layout: Literal["single", "files", "shards", "per_reader"] = "single",
    bytes: Size = 256 << 20,
    samples: int = 0,
    shard_size: Size = 64 << 20,
    read_size: Size = 1 << 20,
    order: Literal["sequential", "random", "preshuffled"] = "sequential",
    requests: int = 0,
    depth: int = 1,
    io: Literal["buffered", "direct"] = "buffered",
    advice: Literal["normal", "sequential", "random", "willneed", "ahead"] = "normal",
    window: Size = 4 << 20,
    cache: Literal["warm", "cold"] = "warm",
    assign: Literal["slice", "round_robin", "all"] = "slice",
    mount: Literal["none", "bind", "overlay"] = "none",
    mounted: Literal["once", "anew"] = "once",
    epochs: int = 1,
) -> Workload:
    """Read ``bytes`` into one host buffer with requests of at most ``read_size`` bytes; a file is opened on each visit.

    ``preshuffled``: the file holds the blocks of the set in the order in which ``random`` would visit them, and is read
    from its start; each goes where it belongs. ``requests``: how many, each for another block; 0 for the whole set.
    ``advice`` is a hint of posix_fadvise for each file; ``ahead`` turns the kernel's read-ahead off and asks for the
    next ``window`` bytes by WILLNEED, in pieces of 128 KiB.

    ``cold`` evicts the set before every iteration: a page that stays is an error, and ``disk_bytes`` counts what the
    step then fetched from storage; of a cached set, what the process fetched since set-up, a step. ``depth``: requests
    in flight, each by a thread. ``ram``: the set was read in set-up, a step copies it in the same pieces. ``http``: a
    server process of this host answers GETs of ranges over loopback, from the page cache, on ``depth`` connections. A
    step makes ``epochs`` passes; of a cold set only the first is cold, unless ``io`` is direct. Several ranks begin a
    step together, each with an equal part, or with ``assign`` ``all`` with the whole set. ``round_robin`` gives
    samples to ranks in turn, each read by itself; with layout ``per_reader`` each rank's samples lie in a file of its
    own.

    ``mount``: the files are reached through a mount of their own, a bind mount of their folder or an overlay with it as
    the lower layer; ``anew`` mounts before every iteration, so that an overlay has looked up no name yet.

    Outputs: the buffer. Bytes: the set, or what is requested of it, in all passes, once for all ranks. Items: samples,
    where the set has any, else sets. Source: book chapters 2, 3 and 5, appendix.
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    ranks = Ranks(context)
    taken = requests * read_size or bytes
    from_disk = source == "file" and (cache == "cold" or io == "direct")
    with ranks.first_alone():
        data = files.data_set(asked)
        if from_disk and context.rank == 0:
            page_cache.require_evictable(data.paths)
        if source == "file" and cache == "warm" and context.rank == 0:
            # To see whether it can be evicted, a side that reads past the cache has done so, to the other one's harm.
            page_cache.bring_in(data.paths)
    seen = _mounted(asked, data)
    reader = files.Reader(data if seen is None else _through(seen, data), asked)
    once, close = _way(reader, data, asked)
    try:
        once()
    except OSError as error:
        if io == "direct":
            raise SkipSide(f"O_DIRECT does not work on {context.shared_scratch}: {error}") from error
        raise
    cold = Cold(data.paths, ranks if context.world_size > 1 else None)
    cached = Fetched() if source == "file" and cache == "warm" and context.world_size == 1 else None

    def step() -> None:
        ranks.meet()
        if cached is not None:
            cached.steps += 1
        for _ in range(epochs):
            once()

    def counters() -> dict[str, float]:
        asked_for = {name: count * epochs for name, count in reader.counters().items()}
        return {**asked_for, **(cold.counters() if cached is None else cached.counters())}

    return Workload(
        step=step,
        work=Work(
            bytes=float(taken * epochs),
            items=(samples or 1) * epochs,
            item="samples" if samples else "sets",
            peaks=_peaks(asked, taken, from_disk=from_disk),
        ),
        outputs=lambda: {"bytes": reader.out},
        redraw=lambda seed: reader.rotate(1 + seed % (files.STARTS - 1)),
        prepare=_prepare(asked, cold, seen),
        counters=counters,
        facts=_facts(asked, data, seen),
        close=close if seen is None else _each(close, seen.close),
    )


def _mounted(asked: SimpleNamespace, data: files.FileSet) -> PrivateMount | None:
    if asked.mount == "none":
        return None
    return PrivateMount(asked.mount, data.paths[0].parent, asked.context.scratch)


def _through(mount: PrivateMount, data: files.FileSet) -> files.FileSet:
    """The same files, by the mount."""
    return replace(data, paths=[mount.path / path.name for path in data.paths])


def _prepare(asked: SimpleNamespace, cold: Cold, mount: PrivateMount | None) -> Callable[[], None] | None:
    """What comes before every iteration."""
    steps = [cold.prepare] if asked.cache == "cold" and asked.source == "file" else []
    steps += [mount.renew] if mount is not None and asked.mounted == "anew" else []
    return _each(*steps) if steps else None


def _each(*steps: Callable[[], None] | None) -> Callable[[], None]:
    """One after the other."""

    def every() -> None:
        for step in steps:
            if step is not None:
                step()

    return every


def _way(
    reader: files.Reader, data: files.FileSet, asked: SimpleNamespace
) -> tuple[Callable[[], None], Callable[[], None] | None]:
    """One pass over the set, and what is to be closed in the end."""
    if asked.source == "ram":
        reader.load()
        return reader.copy, None
    if asked.source == "file":
        return reader.step, reader.pool.shutdown if reader.pool is not None else None
    client = RangeClient(data.paths[0], connections=asked.depth)

    def get() -> None:
        for _, requests in reader.visits:
            client.read(requests)

    return get, client.close


def _facts(asked: SimpleNamespace, data: files.FileSet, mount: PrivateMount | None) -> dict[str, Any]:
    if asked.source == "ram":
        return {"held": "in this process's memory"}
    if asked.source == "http":
        return {"server": "a process of this host, over loopback, from the page cache", "connections": asked.depth}
    given = {name: getattr(asked, name) for name in ("io", "cache", "assign")}
    given |= {"overlay": mount.is_overlay} if mount is not None else {}
    return {"folder": str(data.paths[0].parent), "files": len(data.paths), **given}


def _peaks(asked: SimpleNamespace, size: int, *, from_disk: bool) -> dict[str, float]:
    """Of all ranks together: the set comes off the disk once at least, whoever reads it."""
    epochs = asked.epochs
    if asked.source != "file":
        return {}
    if from_disk:
        if not page_cache.same_disk(asked.context.scratch, asked.context.shared_scratch):
            return {}  # the peak is that of the node's own disk
        return {"disk_read": float(size * (epochs if asked.io == "direct" else 1))}
    # The set and the buffer it is copied into must both lie past the caches to be held to a memory speed.
    cached = memory_peak("cpu", moved=float(size), working_set=2.0 * size)
    return {"page_cache_read": float(size * epochs)} if cached else {}
