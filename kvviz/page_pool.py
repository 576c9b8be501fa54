"""The memory of caches in pages: `PagePool`, which counts who has each page.

Memory is cut into pages of `page_size` tokens (PagedAttention, arXiv 2309.06180). Pages of a text's
beginning can be in the tables of several caches at once: the pool counts their owners.
Axes: B batch, G key/value heads, D head width; the 2 is keys and values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.arguments import check_whole, describe
from kvviz.words import pluralize

MOST = 10_000_000  # pages


class PagePool:
    """All the pages there are, and how many page tables each one is in: 0 for a free page.

    `pages` is (n_pages, layers, 2, B, G, page_size, D), made by the first write; None before.

    >>> pool = PagePool(n_pages=4, page_size=16)
    >>> pool.take(2), pool.owners, pool.free
    ([0, 1], [1, 1, 0, 0], [2, 3])

    Raises:
        ValueError: no number of pages or tokens; in the methods, a page that the pool doesn't have.
    """

    def __init__(self, n_pages: int = 64, page_size: int = 16):
        self.page_size = check_whole("page_size", page_size, least=1)
        self.owners = [0] * check_whole("n_pages", n_pages, least=1, most=MOST)
        self.pages: Tensor | None = None

    @property
    def free(self) -> list[int]:
        """The pages without an owner, in order.

        >>> PagePool(n_pages=2).free
        [0, 1]
        """
        return [page for page, owners in enumerate(self.owners) if owners == 0]

    def take(self, n: int) -> list[int]:
        """Give out the first `n` free pages, each to one owner.

        Raises:
            ValueError: `n` isn't a whole number of at least 0.
            RuntimeError: fewer are free; none is given out then.

        >>> PagePool(n_pages=2).take(3)
        Traceback (most recent call last):
        RuntimeError: no room: this takes 3 more pages, and 2 of 2 are free
        """
        n = check_whole("n", n, least=0)
        if n > len(free := self.free):
            has = f"{len(free)} of {len(self.owners)} {'is' if len(free) == 1 else 'are'} free"
            raise RuntimeError(f"no room: this takes {pluralize(n, 'more page')}, and {has}")
        for page in free[:n]:
            self.owners[page] = 1
        return free[:n]

    def share(self, page: int) -> None:
        """Count one more owner.

        >>> pool = PagePool(n_pages=1)
        >>> pool.share(pool.take(1)[0])
        >>> pool.owners
        [2]
        """
        self.owners[self._check_page(page)] += 1

    def give_back(self, page: int) -> None:
        """Count one owner less; without any, the page is free, whatever is still written there.

        >>> pool = PagePool(n_pages=1)
        >>> pool.give_back(pool.take(1)[0])
        >>> pool.free
        [0]
        """
        self.owners[self._check_page(page)] -= 1

    def _check_page(self, page) -> int:
        return check_whole("page", page, least=0, most=len(self.owners) - 1)

    def fit(self, n_layers: int, columns: Tensor) -> None:
        """Make the pages, as wide as these columns (2, B, G, tokens, D); or see that they fit.

        Raises:
            TypeError: `columns` isn't a tensor of five axes.
            ValueError: no number of layers, or the pages that caches hold are of another size or
                dtype.

        >>> pool = PagePool(n_pages=8, page_size=16)
        >>> pool.fit(4, torch.zeros(2, 1, 3, 5, 64))
        >>> pool.pages.shape
        torch.Size([8, 4, 2, 1, 3, 16, 64])
        """
        if not isinstance(columns, Tensor) or columns.ndim != 5:
            expected = "a tensor (2, B, G, tokens, D)"
            raise TypeError(f"columns: expected {expected}, but got {describe(columns)}")
        n_layers = check_whole("n_layers", n_layers, least=1)
        *sides, _, width = columns.shape
        shape = (len(self.owners), n_layers, *sides, self.page_size, width)
        kind = shape, columns.dtype
        if self.pages is not None and (tuple(self.pages.shape), self.pages.dtype) == kind:
            return
        if any(self.owners):
            made = f"{tuple(self.pages.shape[1:])} of {self.pages.dtype}"
            raise ValueError(f"expected pages of {made}, got {shape[1:]} of {columns.dtype}")
        self.pages = torch.zeros(shape, dtype=columns.dtype, device=columns.device)

    def __repr__(self):
        size, free = pluralize(self.page_size, "token"), len(self.free)
        return f"PagePool({len(self.owners)} pages of {size}), {free} free"
