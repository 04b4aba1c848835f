"""What happens around a step that reads files: ranks begin together, and a set that is to be cold is evicted first.

What must not live here: reading (files.py), the page cache itself (page_cache.py), timing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiperf.workloads.contract import Context
from aiperf.workloads.shared import page_cache


class Ranks:
    """The ranks of a gang, or one process alone, for which all of this is nothing."""

    def __init__(self, context: Context) -> None:
        self.rank, self._alone = context.rank, context.world_size == 1
        self.first_here = context.local_rank == 0
        """Whether it is the first one of its node, whose page cache its ranks share."""
        if not self._alone:
            context.process_group("gloo")

    def meet(self) -> None:
        """Wait for all others."""
        if not self._alone:
            import torch.distributed as dist

            dist.barrier()

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """What the first rank does before the others begin with it."""
        if self.rank:
            self.meet()
        yield
        if not self.rank:
            self.meet()

    def total(self, value: float) -> float:
        """The sum of every rank's value, once all have come here."""
        if self._alone:
            return value
        import torch
        import torch.distributed as dist

        held = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(held)
        return float(held.item())


class Cold:
    """Evicts the set before an iteration and counts what was resident and what is fetched."""

    def __init__(self, paths: list[Path], ranks: Ranks | None = None) -> None:
        """``ranks``: those that read the set; the first of each node evicts it when all have finished a step."""
        self._paths, self._ranks = paths, ranks
        self._start: float | None = None
        self._counts: dict[str, float] = {}

    def prepare(self) -> None:
        """Drop every page of the set. Raises OSError when one stays."""
        if self._ranks is None:
            self._evict()
            self._start = page_cache.disk_bytes()
            return
        own = page_cache.disk_bytes()
        fetched = self._ranks.total(0.0 if self._start is None else own - self._start)
        if self._start is not None:
            self._counts["disk_bytes"] = fetched
        self._start = own
        if self._ranks.first_here:
            self._evict()
        self._ranks.meet()

    def _evict(self) -> None:
        if resident := page_cache.drop(self._paths):
            raise OSError(f"{resident:.2%} of the set is still in the page cache after it was dropped")
        self._counts["resident_share_before"] = resident

    def counters(self) -> dict[str, float]:
        """What was resident before the step, and what it has fetched; of several ranks, all of theirs in the step
        before the last. Nothing before the first eviction."""
        if self._ranks is None and self._start is not None:
            return {**self._counts, "disk_bytes": page_cache.disk_bytes() - self._start}
        return dict(self._counts)


class Fetched:
    """What a process that evicts nothing has fetched from storage since set-up: for a cached set, next to nothing."""

    def __init__(self) -> None:
        self.steps = 0
        """Begun so far."""
        self._start = _fetched()

    def counters(self) -> dict[str, float]:
        """All of it, whatever read it, over the steps. Nothing before the first, or where Linux does not tell."""
        now = _fetched()
        if not self.steps or now is None or self._start is None:
            return {}
        return {"disk_bytes": (now - self._start) / self.steps}


def _fetched() -> float | None:
    try:
        return page_cache.disk_bytes()
    except OSError:
        return None
