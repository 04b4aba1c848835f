"""An answer whose keys and values are lost on the way: computed again from the prompt on, or read back from a snapshot.

What must not live here: the model, other ways to decode, what is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aiperf.workloads.decoder.caches import Contiguous
from aiperf.workloads.decoder.generate import choose, greedy, prefill
from aiperf.workloads.decoder.model import Decoder


class Snapshots:
    """What a cache holds, added to a file piece by piece."""

    def __init__(self, cache: Contiguous, path: Path) -> None:
        self._cache, self._path = cache, path
        self.restart()

    def restart(self) -> None:
        """The file is emptied."""
        self._path.write_bytes(b"")
        self._ends: list[int] = []

    def add(self) -> None:
        """Write the tokens that came since the last time."""
        start, end = self._ends[-1] if self._ends else 0, self._cache.length
        piece = self._cache.kv[..., start:end, :].to("cpu", memory_format=torch.contiguous_format)
        with self._path.open("ab", buffering=0) as file:
            file.write(piece.contiguous().view(torch.uint8).numpy().reshape(-1).data)
        self._ends.append(end)

    def restore(self) -> int:
        """Fill the emptied cache with all that was written; how many tokens it is. Raises OSError for a file that is
        shorter than what was written."""
        kv, start = self._cache.kv, 0
        whole = torch.frombuffer(bytearray(self._path.read_bytes()), dtype=kv.dtype)
        if len(whole) != kv[..., : self._ends[-1], :].numel():
            raise OSError(f"{self._path} has {len(whole)} values of {kv[..., : self._ends[-1], :].numel()}")
        for end in self._ends:
            into = kv[..., start:end, :]
            piece, whole = whole[: into.numel()], whole[into.numel() :]
            into.copy_(piece.view(into.shape))
            start = end
        self._cache.truncate(start)
        return start


class Interrupted:
    """Greedy decoding of one sequence whose cache is lost after ``at`` tokens. With ``every`` the cache is written to a
    file after the prompt and after each so many tokens; without, the prompt is computed again, and each token."""

    def __init__(self, model: Decoder, cache: Contiguous, path: Path, *, at: int, every: int) -> None:
        self._model, self._cache, self._at, self._every = model, cache, at, every
        self._kept = Snapshots(cache, path) if every else None
        self.again = 0
        """Tokens, the prompt's among them, that the latest answer computed twice."""

    def tokens(self, prompt: Any, first: Any, *, count: int, each: Callable[[], object]) -> tuple[Any, Any]:
        """``count`` tokens after ``first`` [1], which follows ``prompt`` in the cache; with margins, as [1, count]."""
        parts: list[tuple[Any, Any]] = []
        if self._kept is not None:
            self._kept.restart()
            self._kept.add()
        done, newest = 0, first
        while done < self._at:
            size = min(self._every or self._at, self._at - done)
            parts.append(greedy(self._model, newest, self._cache, count=size, each=each))
            newest, done = parts[-1][0][:, -1], done + size
            if self._kept is not None and size == self._every:
                self._kept.add()
        self._cache.kv.zero_()
        self._cache.truncate(0)
        known, newest = self._recovered(prompt, parts, first)
        self.again = prompt.shape[1] + self._at - (0 if self._kept is None else prompt.shape[1] + known)
        parts = [(tokens[:, :known], margins[:, :known]) for tokens, margins in [_joined(parts)] if known]
        parts.append(greedy(self._model, newest, self._cache, count=count - known, each=each))
        return _joined(parts)

    def _recovered(self, prompt: Any, parts: list[tuple[Any, Any]], first: Any) -> tuple[int, Any]:
        """How many tokens of the answer need not be decoded again, and the newest of them."""
        if self._kept is None:
            return 0, choose(prefill(self._model, prompt, self._cache))[0]
        known = self._kept.restore() - prompt.shape[1]
        return known, _joined(parts)[0][:, known - 1] if known else first


def _joined(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    return torch.cat([tokens for tokens, _ in parts], dim=1), torch.cat([margins for _, margins in parts], dim=1)
