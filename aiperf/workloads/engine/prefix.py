"""The prefix cache: whole pages of prompts, found by all tokens up to their end, kept until the pool needs them.

What must not live here: the pool's books, which requests run.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import takewhile

from aiperf.workloads.engine.pages import PagePool


def page_keys(tokens: Sequence[int], page: int) -> list[bytes]:
    """For each full page of ``tokens``, all tokens up to its end."""
    known, size = array("i", tokens).tobytes(), array("i").itemsize * page
    return [known[:end] for end in range(size, len(known) + 1, size)]


class PrefixCache:
    """Finds pages by the tokens that they and those before them hold; the cache itself is one of a page's holders.

    ``by_use``: whether the page unused for longest is given up first, else the one that came first."""

    def __init__(self, pool: PagePool, *, by_use: bool = True) -> None:
        self._pool, self._by_use = pool, by_use
        self._pages: dict[bytes, int] = {}
        """The next one to be given up comes first."""
        self.hits = 0
        """Tokens that were found instead of computed."""

    def clear(self) -> None:
        """Forget all; for a pool that was emptied too."""
        self._pages.clear()
        self.hits = 0

    @property
    def pages(self) -> list[int]:
        """What it holds."""
        return list(self._pages.values())

    def known(self, tokens: Sequence[int]) -> list[bytes]:
        """Which pages ``find`` would give."""
        return list(takewhile(self._pages.__contains__, page_keys(tokens[:-1], self._pool.page)))

    def find(self, tokens: Sequence[int]) -> list[int]:
        """Pages of the longest known beginning of ``tokens``, now shared; the last token is always left to compute."""
        known = self.known(tokens)
        for key in reversed(known) if self._by_use else ():  # a beginning is given up after what follows it
            self._pages[key] = self._pages.pop(key)
        found = [self._pages[key] for key in known]
        for page in found:
            self._pool.share(page)
        self.hits += len(found) * self._pool.page
        return found

    def keep(self, tokens: Sequence[int], pages: Sequence[int]) -> None:
        """Remember the full pages of ``tokens`` that are not known yet; nobody may write them from now on."""
        for key, page in reversed(list(zip(page_keys(tokens, self._pool.page), pages, strict=False))):
            if key not in self._pages:
                self._pages[key] = page
                self._pool.share(page)

    def give_up(self) -> bool:
        """Forget the next page of those that no request holds; False where there is none."""
        for key, page in self._pages.items():
            if self._pool.holders(page) == 1:
                del self._pages[key]
                self._pool.drop(page)
                return True
        return False
