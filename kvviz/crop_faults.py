"""Caches that go back the wrong way, each one a real mistake: `PagedKVCache`, its `crop` changed.

`GALLERY` holds them by name, as that of `kvviz.faults` does. A cache that only grows never shows
any of them.

>>> cache = GALLERY["only some layers cropped"].cache_class(4)
>>> logits = kv.Forge.small()(ids, cache)
>>> cache.crop(-2)
>>> [cache.get(layer).keys.shape[2] for layer in range(4)]
[4, 6, 6, 6]
"""

from math import ceil

from kvviz.faults import Fault
from kvviz.forge import Forge, KVEntry
from kvviz.paged import PagedKVCache

GALLERY: dict[str, Fault] = {}


def _crop_that(base=PagedKVCache):
    """Replace `crop`, in a new subclass, with the function below, which names the fault."""

    def broken(function):
        name, says = function.__name__.replace("_", " "), function.__doc__
        kind = type(function.__name__, (base,), {"crop": function, "__doc__": says})
        GALLERY[name] = Fault(name, name, kind, Forge, says)
        return GALLERY[name]

    return broken


class Counting(PagedKVCache):
    """Counts what it was fed, as a cache must that drops tokens."""

    next_position = 0

    def update(self, layer, entry):
        """Write the columns that are new, and count them once."""
        if layer == 0:
            self.next_position += entry.keys.shape[2] - self.held
        super().update(layer, entry)

    def crop(self, n):
        """Take the last tokens out, and count them no more."""
        super().crop(n)
        self.next_position += n

    def reset(self):
        """Give all pages back, and count from 0."""
        super().reset()
        self.next_position = 0


@_crop_that()
def nothing_cropped(self, n):
    """It returns a shorter cache and leaves this one as it was, and the loop goes on with this."""
    return self.fork(self.held + n)


@_crop_that()
def crop_counts_differently(self, n):
    """Its number is how many tokens stay, whatever its sign: of eight, crop(-3) leaves three."""
    PagedKVCache.crop(self, min(0, abs(n) - self.held))


@_crop_that()
def crop_takes_too_few(self, n):
    """The bonus token is counted among those that go, so one wrong token stays."""
    PagedKVCache.crop(self, min(0, n + 1))


@_crop_that()
def cropped_at_the_wrong_end(self, n):
    """The first tokens go instead of the last: what is left is the wrong part of the text."""
    left = [KVEntry(*(x[:, :, -n:] for x in self.get(layer))) for layer in range(len(self))]
    self.reset()
    for layer, entry in enumerate(left):
        self.update(layer, entry)


@_crop_that()
def only_some_layers_cropped(self, n):
    """The first layer is taken back, since its length is the cache's, and the others stay long."""
    self._fill[0] += n


@_crop_that(Counting)
def counter_not_taken_back(self, n):
    """The tokens go, and a counter beside them still counts them: positions go on from there."""
    PagedKVCache.crop(self, n)


@_crop_that()
def freed_page_still_read(self, n):
    """The page where the text now ends is given back too, though its first tokens are needed."""
    last = self.table[ceil((self.held + n) / self.pool.page_size) - 1 :]
    PagedKVCache.crop(self, n)
    if n and self.held and last[0] in self.table and self.pool.owners[last[0]] == 1:
        self.pool.give_back(last[0])


@_crop_that()
def pages_not_given_back(self, n):
    """The table gets shorter, and nobody tells the pool: each crop loses a page or more."""
    left = self.held + n
    self.table = self.table[: ceil(left / self.pool.page_size)]
    self._fill = [left] * len(self)
