"""Broken caches in pages, each one a real mistake: `PagedKVCache` with one method changed.

`GALLERY` holds them by name, as that of `kvviz.faults` does.

>>> pool = kv.PagePool(n_pages=8, page_size=4)
>>> cache = GALLERY["shared page written without a copy"].cache_class(4, pool=pool)
>>> logits = kv.Forge.small()(ids, cache)
>>> logits = kv.Forge.small()(ids[:, :1], cache.fork())
>>> pool.owners  # of the page that both write to
[2, 2, 0, 0, 0, 0, 0, 0]
"""

from math import ceil

from kvviz.faults import Fault
from kvviz.forge import Forge
from kvviz.paged import PagedKVCache

GALLERY: dict[str, Fault] = {}


def _override(method):
    """Replace this method, in a new subclass, with the function below, which names the fault."""

    def broken(function):
        name, says = function.__name__.replace("_", " "), function.__doc__
        parts = {method.__name__: function, "__doc__": says}
        kind = type(function.__name__, (PagedKVCache,), parts)
        GALLERY[name] = Fault(name, name, kind, Forge, says)
        return GALLERY[name]

    return broken


@_override(PagedKVCache.locate)
def page_table_off_by_one(self, positions):
    """A page's first token is looked up in the page before it, and lies over another token."""
    pages, _ = PagedKVCache.locate(self, (positions - 1).clamp(min=0))
    return pages, positions % self.pool.page_size


@_override(PagedKVCache.make_room)
def shared_page_written_without_a_copy(self, held, end):
    """Whoever shares a page writes to it, and the others read what isn't theirs."""
    self.table += self.pool.take(max(0, ceil(end / self.pool.page_size) - len(self.table)))


@_override(PagedKVCache.reset)
def freed_page_still_read(self):
    """Pages are given back, and stay in the table: whoever is given them next writes over them."""
    for page in self.table:
        self.pool.give_back(page)
    self._fill = [0] * len(self)
