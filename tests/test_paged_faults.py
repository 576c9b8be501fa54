"""Faults of a cache in pages are named, at any page size; what looks like one isn't called one."""

import copy
from copy import deepcopy
from math import ceil

import pytest
import torch

import kvviz as kv
from kvviz.forge import KVCache, KVEntry
from kvviz.paged import PagedKVCache
from kvviz.paged_faults import GALLERY

OFF, UNCOPIED, FREED = GALLERY
WRONG = "write in the wrong position"


def sized(kind, page_size):
    """The same class with other pages, in a form that `check_cache` can make."""

    def init(self, n_layers):
        PagedKVCache.__init__(self, n_layers, page_size, n_pages=96)

    return type(kind.__name__, (kind,), {"__init__": init})


# A page of one token is full, so nobody writes to it again: there, no copy is missing.
SIZES = [(name, size) for name in GALLERY for size in (1, 4, 16) if (name, size) != (UNCOPIED, 1)]


@pytest.mark.parametrize(("name", "page_size"), SIZES)
def test_each_fault_is_named(name, page_size):
    fault = GALLERY[name]
    verdict = kv.check_cache(sized(fault.cache_class, page_size))
    assert not verdict.passed
    assert verdict.cause == fault.name, verdict.headline
    assert verdict.advice


def test_pages_of_one_token_need_no_copy():
    assert kv.check_cache(sized(GALLERY[UNCOPIED].cache_class, 1)).passed


class WritesOff(PagedKVCache):
    """Only `update` looks a page's first token up in the page before it."""

    is_writing = False

    def update(self, layer, entry):
        self.is_writing = True
        super().update(layer, entry)
        self.is_writing = False

    def locate(self, positions):
        pages, cells = super().locate(positions)
        return (
            super().locate((positions - 1).clamp(min=0))[0] if self.is_writing else pages
        ), cells


class ReadsOff(WritesOff):
    """Only `get` does."""

    def locate(self, positions):
        self.is_writing, was = not self.is_writing, self.is_writing
        found = super().locate(positions)
        self.is_writing = was
        return found


class Uncounted(PagedKVCache):
    """A fork lists the pages and isn't counted as their owner."""

    def fork(self, tokens=None):
        other = super().fork(tokens)
        for page in other.table:
            self.pool.give_back(page)
        return other


class Leaking(PagedKVCache):
    """`reset` gives nothing back."""

    def reset(self):
        self.table, self._fill = [], [0] * len(self)


class OverTheFirst(PagedKVCache):
    """The token at position 6 is written over the first: 6 isn't a page's first cell here."""

    def locate(self, positions):
        return super().locate(torch.where(positions == 6, 0, positions))


class Plain(KVCache):
    """No pages: the newest token of a long text is written over the first."""

    page_size = 4

    def update(self, layer, entry):
        held = entry.keys.shape[2]
        if held > 6:
            entry = KVEntry(*(torch.cat([x[:, :, 6:7], x[:, :, 1:]], dim=2) for x in entry))
        super().update(layer, entry)


@pytest.mark.parametrize(
    ("kind", "page_size", "cause"),
    [
        (WritesOff, 1, OFF),
        (WritesOff, 4, OFF),
        (ReadsOff, 4, OFF),
        (Uncounted, 4, UNCOPIED),
        (Uncounted, 5, FREED),
        (Leaking, 4, "pages not given back"),
        (OverTheFirst, 4, WRONG),
        (OverTheFirst, 16, WRONG),
    ],
)
def test_look_alikes_and_relatives_have_their_own_names(kind, page_size, cause):
    verdict = kv.check_cache(sized(kind, page_size))
    assert (verdict.passed, verdict.cause) == (False, cause), verdict.headline


def test_a_page_size_alone_makes_no_page_of_a_write_that_went_wrong():
    assert kv.check_cache(Plain).cause == WRONG


# -- a learner's own -------------------------------------------------------------------------------


class Own:
    """Pages in dicts, without a pool: about what a learner writes first."""

    def __init__(self, n_layers):
        self.n_layers = n_layers
        self.reset()

    def reset(self):
        self.pages = [[] for _ in range(self.n_layers)]

    def get(self, layer):
        if not self.pages[layer]:
            return None
        return KVEntry(*(torch.cat(parts, dim=2) for parts in zip(*self.pages[layer])))  # noqa: B905

    def update(self, layer, entry):
        self.pages[layer] = [*zip(*(x.split(4, dim=2) for x in entry))]  # noqa: B905


class OwnWithFork(Own):
    def fork(self):
        return deepcopy(self)


class Aliased(Own):
    def fork(self):
        return self


class Ellipsed(Own):
    def fork(self): ...


class Copying(PagedKVCache):
    """Its fork takes pages at once, though nobody has written yet."""

    def fork(self, tokens=None):
        other = super().fork(tokens)
        for n, page in enumerate(other.table):
            (other.table[n],) = self.pool.take(1)
            self.pool.pages[other.table[n]] = self.pool.pages[page]
            self.pool.give_back(page)
        return other


def test_a_learners_own_cache_in_pages_is_judged_with_or_without_a_fork():
    plain, forked = kv.check_cache(Own), kv.check_cache(OwnWithFork)
    assert plain.passed and forked.passed
    assert "fork" not in plain.remarks[0]
    assert "a fork and the cache it came from" in forked.remarks[0]


def test_a_fork_not_written_yet_is_not_tried():
    assert kv.check_cache(Ellipsed).passed


def test_a_fork_that_is_the_same_cache_is_no_fork():
    assert not kv.check_cache(Aliased).passed


class DeepCopied(PagedKVCache):
    def fork(self, tokens=None):
        return copy.deepcopy(self)


def test_the_exercise_asks_for_a_fork_that_shares():
    check = kv.exercises.shared_pages
    assert check(PagedKVCache).passed
    assert check(OwnWithFork).passed  # its pages can't be seen from outside
    assert check(Ellipsed).state == "not done yet"
    assert "has no `fork`" in check(Own).message
    copied = check(Copying)
    assert "after a fork the tables are [0, 1, 2] and [3, 4, 5]" in copied.message
    assert len(copied.hints) == 2
    assert "a memory of its own" in check(DeepCopied).message
    assert not check(GALLERY[UNCOPIED].cache_class).passed


class CopiesItsLastPage(PagedKVCache):
    """As the engine does it: full pages are shared, and the rest is copied at once."""

    def fork(self, tokens=None):
        other = super().fork(tokens)
        if self.held % self.pool.page_size:
            other.make_room(self.held, self.held + 1)
        return other


class CopiesAll(PagedKVCache):
    """Before any write, it copies each page that it shares."""

    def make_room(self, held, end):
        super().make_room(0, end)


class CountsNoneDown(PagedKVCache):
    """A page that was copied keeps the owner that it lost."""

    def make_room(self, held, end):
        before = self.table[:]
        super().make_room(held, end)
        for old, new in zip(before, self.table, strict=False):
            if old != new:
                self.pool.share(old)


class OneTable(PagedKVCache):
    def fork(self, tokens=None):
        return copy.copy(self)


def test_the_exercise_takes_a_copy_of_the_last_page_at_once():
    verdict = kv.exercises.shared_pages(CopiesItsLastPage)
    assert verdict.passed, verdict.headline


def test_the_exercise_says_that_full_pages_stay_shared():
    message = kv.exercises.shared_pages(CopiesAll).message
    assert "once both have written a token the tables are" in message
    assert "full pages are never written again" in message


def test_a_copied_page_that_keeps_its_owner_is_never_free_again():
    verdict = kv.check_cache(CountsNoneDown)
    assert (verdict.passed, verdict.cause) == (False, "pages not given back"), verdict.headline


def test_the_exercise_says_that_a_fork_has_the_same_list():
    message = kv.exercises.shared_pages(OneTable).message
    assert message.startswith("`table`"), message
    assert "one and the same list" in message


class TakesTheLast(PagedKVCache):
    """Frees all its pages, whoever reads them, and is given them again in another order."""

    def make_room(self, held, end):
        more = max(0, ceil(end / self.pool.page_size) - len(self.table))
        for n in range(held // self.pool.page_size, len(self.table)):
            if self.pool.owners[self.table[n]] > 1:
                new = self.pool.free[-1]
                self.pool.owners[new] = 1
                self.pool.pages[new] = self.pool.pages[self.table[n]]
                self.pool.give_back(self.table[n])
                self.table[n] = new
        taken = self.pool.free[-more:] if more else []
        for page in taken[:: -1 if hasattr(self.pool, "was_emptied") else 1]:
            self.pool.owners[page] = 1
            self.table.append(page)

    def reset(self):
        for page in self.table:
            self.pool.owners[page] = 0
        self.pool.was_emptied = True
        self.table, self._fill = [], [0] * len(self)


@pytest.mark.parametrize("page_size", [1, 2, 4])
def test_freed_pages_are_named_in_whatever_order_they_are_taken(page_size):
    verdict = kv.check_cache(sized(TakesTheLast, page_size))
    assert (verdict.passed, verdict.cause) == (False, FREED), verdict.headline
