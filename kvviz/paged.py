"""A cache in pages: `PagedKVCache` behind the `get`, `update` and `reset` of a `KVCache`.

Memory is cut into pages of `page_size` tokens (PagedAttention, arXiv 2309.06180). A cache has a
table of page numbers, takes another page from the pool when its last one is full, and gives it back
when nothing of its own is left there. Pages of a text's beginning can be in several tables at once.
Axes: B batch, G key/value heads, D head width; the 2 is keys and values.
"""

from __future__ import annotations

from copy import copy
from math import ceil

import torch
from torch import Tensor

from kvviz.arguments import check_whole, describe
from kvviz.forge import KVCache, KVEntry
from kvviz.page_pool import PagePool
from kvviz.words import pluralize


class PagedKVCache(KVCache):
    """A `KVCache` that keeps its columns in pages. All layers use the same page table.

    Sequences of a batch lie side by side in each page: they're as long as one another, so one
    table does for all. A page then holds `page_size` tokens of each.

    >>> cache = PagedKVCache(4, page_size=4, n_pages=8)
    >>> logits = kv.Forge.small()(ids, cache)
    >>> cache, cache.table
    (PagedKVCache(4), 6 tokens held in 2 pages of 4, [0, 1])

    Raises:
        TypeError: `pool` isn't a `PagePool`.
        ValueError: no number of layers, tokens or pages; in the methods, a layer or a position that
            the cache doesn't have.
    """

    def __init__(
        self, n_layers: int, page_size: int = 16, n_pages: int = 64, pool: PagePool | None = None
    ):
        if not isinstance(pool, PagePool | None):
            raise TypeError(f"pool: expected a PagePool, but got {describe(pool)}")
        self.pool = PagePool(n_pages, page_size) if pool is None else pool
        self.table: list[int] = []  # page numbers, in the order of the text
        self._fill = [0] * check_whole("n_layers", n_layers, 1, 10_000)  # tokens in each layer

    def locate(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The page and the cell in it where each position's key and value are.

        >>> cache = PagedKVCache(1, page_size=4)
        >>> cache.table = [7, 2]
        >>> cache.locate(torch.tensor([0, 3, 4]))
        (tensor([7, 7, 2]), tensor([0, 3, 0]))
        """
        size, room = self.pool.page_size, len(self.table) * self.pool.page_size
        is_whole = isinstance(positions, Tensor) and positions.dtype in (torch.int64, torch.int32)
        if not is_whole or not bool(((positions >= 0) & (positions < room)).all()):
            expected = f"a tensor of positions, 0 to {room - 1}"
            raise ValueError(f"positions: expected {expected}, but got {describe(positions)}")
        return torch.tensor(self.table)[positions // size], positions % size

    def get(self, layer: int) -> KVEntry | None:
        """A layer's entry, gathered from its pages; None before the first call.

        >>> cache, entry = PagedKVCache(1), KVEntry(*torch.rand(2, 1, 2, 20, 14))
        >>> cache.update(0, entry)
        >>> torch.equal(cache.get(0).keys, entry.keys)
        True
        """
        if not self._fill[layer := self._check_layer(layer)]:
            return None
        pages, cells = self.locate(torch.arange(self._fill[layer]))
        columns = self.pool.pages[pages, layer, :, :, :, cells]  # (held, 2, B, G, D)
        return KVEntry(*columns.movedim(0, 3))

    def update(self, layer: int, entry: KVEntry) -> None:
        """Write the columns that are new. Those before them are in their pages already.

        Raises:
            RuntimeError: more pages are needed than are free; nothing is written then.
            TypeError: an entry that isn't keys and values.
            ValueError: no such layer, a shorter entry than the one held, or another size than the
                pool's pages.

        >>> cache, entry = PagedKVCache(1, page_size=16), KVEntry(*torch.zeros(2, 1, 2, 33, 14))
        >>> cache.update(0, entry)
        >>> cache.table
        [0, 1, 2]
        """
        layer = self._check_layer(layer)
        columns = torch.stack(tuple(_check_entry(entry)))  # (2, B, G, tokens, D)
        held, end = self._fill[layer], columns.shape[3]
        if end < held:
            raise ValueError(f"expected at least the {held} tokens held, got {end}: reset it first")
        if end == held:
            return
        self.pool.fit(len(self), columns)
        self.make_room(held, end)
        pages, cells = self.locate(torch.arange(held, end))
        self.pool.pages[pages, layer, :, :, :, cells] = columns[:, :, :, held:].movedim(3, 0)
        self._fill[layer] = end

    def make_room(self, held: int, end: int) -> None:
        """Own each page that positions held to end - 1 are written to, and be the only owner.

        Raises:
            ValueError: no whole numbers of at least 0.
            RuntimeError: as `PagePool.take`.

        >>> cache = PagedKVCache(1, page_size=4)
        >>> cache.make_room(0, 6)
        >>> cache.table
        [0, 1]
        """
        held, end = check_whole("held", held, least=0), check_whole("end", end, least=0)
        size, pool = self.pool.page_size, self.pool
        written = range(held // size, min(-(-end // size), len(self.table)))  # of those it has
        shared = [n for n in written if pool.owners[self.table[n]] > 1]
        taken = pool.take(len(shared) + max(0, -(-end // size) - len(self.table)))
        for n in shared:  # copy on write
            page, self.table[n] = self.table[n], taken.pop(0)
            pool.pages[self.table[n]] = pool.pages[page]
            pool.give_back(page)
        self.table += taken

    def fork(self, tokens: int | None = None) -> PagedKVCache:
        """A second cache that begins with the same tokens, in the same pages: nothing is copied.

        Whoever writes to a page with two owners gets a copy of it first; see `make_room`.

        Args:
            tokens: how many of those held, from the first one on; all of them by default.

        Raises:
            ValueError: `tokens` is negative, or more than are held.

        >>> cache = PagedKVCache(4, page_size=4)
        >>> logits = kv.Forge.small()(ids, cache)
        >>> cache.fork(4).table, cache.pool.owners[:3]
        ([0], [2, 1, 0])
        """
        tokens = self.held if tokens is None else check_whole("tokens", tokens, least=0)
        if tokens > self.held:
            raise ValueError(f"tokens: expected at most the {self.held} held, got {tokens}")
        other = copy(self)
        other.table = self.table[: ceil(tokens / self.pool.page_size)]
        other._fill = [tokens] * len(self)
        for page in other.table:
            self.pool.share(page)
        return other

    def crop(self, n: int) -> None:
        """Take the last tokens out: crop(-3) takes three. Pages that held only those go back.

        Nothing is written, so a page that other caches read stays as it is for them.

        Raises:
            ValueError: `n` is positive, or takes out more than are held.

        >>> cache = PagedKVCache(4, page_size=4)
        >>> logits = kv.Forge.small()(ids, cache)
        >>> cache.crop(-3)
        >>> cache.held, cache.table
        (3, [0])
        """
        left = self.held + (n := check_whole("n", n, least=-self.held))
        if left > self.held:
            raise ValueError(f"n: expected 0 or a negative number, of tokens to take out, got {n}")
        needed = ceil(left / self.pool.page_size)
        for page in self.table[needed:]:
            self.pool.give_back(page)
        self.table, self._fill = self.table[:needed], [left] * len(self)

    def reset(self) -> None:
        """Give all pages back.

        >>> cache = PagedKVCache(4)
        >>> logits = kv.Forge.small()(ids, cache)
        >>> cache.reset()
        >>> cache.held, cache.table
        (0, [])
        """
        for page in self.table:
            self.pool.give_back(page)
        self.table, self._fill = [], [0] * len(self)

    def _check_layer(self, layer) -> int:
        return check_whole("layer", layer, least=-len(self._fill), most=len(self._fill) - 1)

    def __len__(self):
        return len(self._fill)

    def __repr__(self):
        n, size = pluralize(len(self.table), "page"), self.pool.page_size
        return f"{super().__repr__()} in {n} of {size}"


def _check_entry(entry):
    """`entry`, if it is keys and values, else a TypeError."""
    tensors = isinstance(entry, tuple | list) and all(isinstance(each, Tensor) for each in entry)
    if not tensors or len(entry) != 2 or any(each.ndim != 4 for each in entry):
        expected = "expected keys and values, each (B, G, held, D)"
        raise TypeError(f"entry: {expected}, but got {describe(entry)}")
    return entry
