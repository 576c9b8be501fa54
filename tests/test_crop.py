"""A cache that goes back: what `crop` must do, and what each mistake in it is called."""

from copy import copy
from functools import cache

import odd_caches
import pytest
import small
import torch

import kvviz as kv
from kvviz.checking.cropping import cropped
from kvviz.checking.right_forge import RightForge
from kvviz.checking.trial import Trial
from kvviz.crop_faults import GALLERY, Counting
from kvviz.forge import Forge, KVCache, KVEntry
from kvviz.paged import PagedKVCache, PagePool


@cache
def _right():
    return RightForge()


def crop_trial(kind, forge=Forge):
    """The cause that trying `crop` alone finds, and why it was not tried."""
    trial = Trial(_right(), kind, forge)
    cause = cropped(trial)
    return cause, trial.not_cropped


def both(change, entry):
    return KVEntry(*(change(x) for x in entry))


def sized(kind, page_size):
    """The same class with other pages."""

    def init(self, n_layers):
        PagedKVCache.__init__(self, n_layers, page_size, n_pages=96)

    return type(kind.__name__, (kind,), {"__init__": init})


# -- PagedKVCache.crop -----------------------------------------------------------------------------


def held(cache):
    return [x for layer in range(4) for x in cache.get(layer)]


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_a_crop_leaves_what_was_there_before_and_gives_whole_pages_back(page_size):
    forge, cache = Forge.small(), PagedKVCache(4, page_size, n_pages=32)
    forge(small.prompt(7), cache)
    before, owners = held(cache), cache.pool.owners[:]
    forge(small.prompt(9, seed=1), cache)
    cache.crop(-9)
    assert all(map(torch.equal, held(cache), before))
    assert cache.pool.owners == owners and cache.held == 7
    assert len(cache.table) == kv.count.pages_needed(7, page_size)
    cache.crop(0)
    assert all(map(torch.equal, held(cache), before))
    cache.crop(-7)
    assert (cache.held, cache.table, cache.get(0)) == (0, [], None)
    assert len(cache.pool.free) == 32


def test_a_page_that_a_fork_reads_is_neither_written_nor_freed_by_a_crop():
    forge, pool = Forge.small(), PagePool(n_pages=8, page_size=4)
    one = PagedKVCache(4, pool=pool)
    forge(small.prompt(10), one)
    fork, before = one.fork(), held(one)
    fork.crop(-5)
    assert (fork.table, pool.owners[:3]) == ([0, 1], [2, 2, 1])
    forge(small.prompt(4, seed=3), fork)
    assert fork.table == [0, 3, 4] and pool.owners[:5] == [2, 1, 1, 1, 1]
    assert all(map(torch.equal, held(one), before))


def test_a_crop_refuses_what_it_does_not_mean():
    cache = PagedKVCache(4)
    Forge.small()(small.prompt(6), cache)
    with pytest.raises(ValueError, match="expected 0 or a negative number, of tokens to take out"):
        cache.crop(2)
    with pytest.raises(ValueError, match="n: expected a whole number of at least -6, but got -7"):
        cache.crop(-7)
    with pytest.raises(ValueError, match="n: expected a whole number"):
        cache.crop("2")
    assert cache.held == 6


# -- the gallery -----------------------------------------------------------------------------------

# In pages of one token, none is filled in part.
SIZES = [(name, 1 if n % 2 else 4) for n, name in enumerate(GALLERY)]
SIZES = [(name, 4 if name == "freed page still read" else size) for name, size in SIZES]


@pytest.mark.parametrize(("name", "page_size"), SIZES)
def test_each_fault_is_named_in_pages_of_any_size(name, page_size):
    """The page of faults has them in pages of 16."""
    cause, _ = crop_trial(sized(GALLERY[name].cache_class, page_size))
    assert cause is not None and cause.name == name, cause
    assert cause.advice


def test_what_the_faults_are_made_of_is_right():
    assert crop_trial(Counting) == (None, "")


def test_a_mistake_in_crop_is_the_verdict_of_the_whole_check():
    verdict = kv.check_cache(GALLERY["crop takes too few"].cache_class)
    assert (verdict.passed, verdict.cause) == (False, "crop takes too few")
    says = "with a crop: crop(-3) left 6 tokens of 8, expected 5; "
    assert verdict.headline == f"{says}expected: crop(-3) takes the last 3 tokens out"
    assert [finding.passed for finding in verdict.findings] == [True] * 5 + [False]


# -- right, in whatever form -----------------------------------------------------------------------


class Slots(KVCache):
    """A plain cache with a crop, as the library's."""

    def crop(self, n):
        if n > 0:
            raise ValueError("negative numbers only")
        if n < 0 and self.held:
            self._slots = [both(lambda x: x[..., :n, :], entry) for entry in self._slots]


class Tokens:
    """A list of tokens for each layer."""

    def __init__(self, n_layers):
        self.tokens = [[] for _ in range(n_layers)]

    def get(self, layer):
        held = self.tokens[layer]
        return KVEntry(*(torch.stack(x, 2) for x in zip(*held, strict=True))) if held else None

    def update(self, layer, entry):
        self.tokens[layer] = [*zip(*(x.unbind(2) for x in entry), strict=True)]

    def crop(self, n):
        for held in self.tokens:
            del held[len(held) + n :]

    def reset(self):
        self.tokens = [[] for _ in self.tokens]


class Buffers:
    """Room for 97 tokens, a length for each layer, and keys the other way round."""

    def __init__(self, n_layers):
        self.buffers, self.lengths = [None] * n_layers, [0] * n_layers

    def get(self, layer):
        n = self.lengths[layer]
        if not n:
            return None
        keys, values = self.buffers[layer]
        return KVEntry(keys[..., :n].transpose(2, 3), values[:, :, :n])

    def update(self, layer, entry):
        start, self.lengths[layer] = self.lengths[layer], entry.keys.shape[2]
        if self.buffers[layer] is None:
            room = [torch.full((len(x), 2, 97, 14), torch.nan) for x in entry]
            self.buffers[layer] = room[0].transpose(2, 3), room[1]
        keys, values = self.buffers[layer]
        keys[..., start : self.lengths[layer]] = entry.keys[:, :, start:].transpose(2, 3)
        values[:, :, start : self.lengths[layer]] = entry.values[:, :, start:]

    def crop(self, n):
        self.lengths = [length + n for length in self.lengths]

    def reset(self):
        self.__init__(len(self.lengths))


class Dicts:
    """A dict for each layer, and a crop that counts what is left."""

    def __init__(self, n_layers):
        self.layers = {layer: {} for layer in range(n_layers)}

    def get(self, layer):
        return KVEntry(**self.layers[layer]) if self.layers[layer] else None

    def update(self, layer, entry):
        self.layers[layer] = entry._asdict()

    def crop(self, tokens):
        for held in self.layers.values():
            for name, x in held.items():
                held[name] = x[:, :, : x.shape[2] - abs(tokens)]

    def reset(self):
        self.__init__(len(self.layers))


class Ring(Buffers):
    """The oldest token is at a place of its own, and the others go round."""

    start = 61

    def _places(self, begin, end):
        return (torch.arange(begin, end) + self.start) % 97

    def get(self, layer):
        places = self._places(0, self.lengths[layer])
        return both(lambda x: x[:, :, places], self.buffers[layer]) if len(places) else None

    def update(self, layer, entry):
        if self.buffers[layer] is None:
            self.buffers[layer] = KVEntry(*(x.new_zeros(len(x), 2, 97, 14) for x in entry))
        places = self._places(self.lengths[layer], entry.keys.shape[2])
        for buffer, x in zip(self.buffers[layer], entry, strict=True):
            buffer[:, :, places] = x[:, :, self.lengths[layer] :]
        self.lengths[layer] = entry.keys.shape[2]


class Pages:
    """Pages in lists, without a pool; one that is filled in part is cut."""

    def __init__(self, n_layers):
        self.pages = [[] for _ in range(n_layers)]

    def get(self, layer):
        pages = self.pages[layer]
        return KVEntry(*(torch.cat(x, 2) for x in zip(*pages, strict=True))) if pages else None

    def update(self, layer, entry):
        self.pages[layer] = [*zip(*(x.split(4, dim=2) for x in entry), strict=True)]

    def crop(self, n):
        for layer in range(len(self.pages)):
            if n and (entry := self.get(layer)):
                left = entry.keys.shape[2] + n
                self.update(layer, both(lambda x, left=left: x[:, :, :left], entry))
                self.pages[layer] = self.pages[layer] if left else []

    def reset(self):
        self.__init__(len(self.pages))

    def fork(self):
        other = copy(self)
        other.pages = [[*pages] for pages in self.pages]
        return other


class OldMeaning(Slots):
    """A positive number says how many stay, as it once did in the library."""

    def crop(self, n):
        super().crop(n if n <= 0 else n - self.held)


RIGHT = [PagedKVCache, Slots, Tokens, Buffers, Dicts, Ring, Pages, OldMeaning]


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_what_is_right_passes_in_whatever_form_it_is_kept(kind):
    assert crop_trial(kind) == (None, "")


def test_what_was_tried_is_said_only_of_a_cache_that_has_a_crop():
    says = "after a crop the cache goes on as if what was taken out had never been fed"
    assert says in kv.check_cache(Ring).remarks[0]
    assert "crop" not in kv.check_cache().remarks[0]


def test_keys_that_are_rotated_when_read_may_be_cropped():
    assert crop_trial(Slots, odd_caches.RotatesOnRead) == (None, "")


# -- wrong, and what it is called ------------------------------------------------------------------


def cuts(change):
    """A crop that leaves something else of each entry: change(x, n)."""

    def crop(self, n):
        self._slots = [both(lambda x: change(x, n), entry) for entry in self._slots]

    return type("Cuts", (KVCache,), {"crop": crop})


class OneSide(Slots):
    side = 0

    def crop(self, n):
        whole = self._slots
        super().crop(n)
        for layer, pair in enumerate(zip(self._slots, whole, strict=True)):
            self._slots[layer] = KVEntry(*(pair[i != self.side][i] for i in (0, 1)))


class OtherSide(OneSide):
    side = 1


class OwnHeld(Slots):
    """Counts by itself what it holds, and not what is taken out."""

    count = 0

    def update(self, layer, entry):
        self.count = entry.keys.shape[2]
        super().update(layer, entry)

    def crop(self, n):
        super().crop(n)
        self.count = self.count

    held = property(lambda self: self.count)

    def reset(self):
        self._slots, self.count = [None] * len(self), 0


class LengthIsTheNumber(Buffers):
    """The number is taken for the length that is left."""

    def crop(self, n):
        self.lengths = [n] * len(self.lengths)


class PositiveOnly(Slots):
    def crop(self, n):
        if n < 0:
            raise TypeError("a number of tokens is not negative")
        super().crop(-n)


class WrittenCount(Buffers):
    """Two counts, of what is shown and of what was written: one of them goes back."""

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.shown = [0] * n_layers

    def get(self, layer):
        keep, self.lengths[layer] = self.lengths[layer], self.shown[layer]
        entry = super().get(layer)
        self.lengths[layer] = keep
        return entry

    def update(self, layer, entry):
        self.shown[layer] = entry.keys.shape[2]
        if self.shown[layer] > self.lengths[layer]:
            super().update(layer, entry)

    def crop(self, n):
        self.shown = [shown + n for shown in self.shown]


class ZerosInPages(PagedKVCache):
    """Overwrites what it takes out, in pages that others read too."""

    def crop(self, n):
        if n:
            pages, cells = self.locate(torch.arange(self.held + n, self.held))
            self.pool.pages[pages, :, :, :, :, cells] = 0
        super().crop(n)


class ZerosLeftThere(Slots):
    def crop(self, n):
        for entry in self._slots if n else ():
            for x in entry:
                x[:, :, n:] = 0


class Everyone(Slots):
    """All caches are cropped together."""

    made = []

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.made.append(self)

    def crop(self, n):
        alike = [cache for cache in self.made if cache.held and cache.held >= -n]
        for each in alike:
            Slots.crop(each, n)


class Backwards(Slots):
    def crop(self, n):
        super().crop(n)
        if n:
            self._slots = [both(lambda x: x.flip(2), entry) for entry in self._slots]


class KeepsItsTable(PagedKVCache):
    """Its pages stay in its table: nobody else can have them."""

    def crop(self, n):
        self._fill = [self.held + n] * len(self)


class TakesNothing(Slots):
    def crop(self):
        self.reset()


WRONG = {  # kind -> name, a part of what is said
    cuts(lambda x, n: x[:, :, :n]): ("crop of nothing", "crop(0) left nothing of 6"),
    cuts(lambda x, n: x[:, :, : x.shape[2] + n - 1]): ("crop takes too many", "4 tokens of 8"),
    cuts(lambda x, n: x[:, :, : x.shape[2] - n]): ("crop counts differently", "takes the last two"),
    cuts(lambda x, n: x[:, :, -n:]): ("cropped at the wrong end", "left positions 3 to 7 of 8"),
    cuts(lambda x, n: x[:, :, n:]): ("cropped at the wrong end", "left positions 5 to 7 of 8"),
    OneSide: ("keys and values of unequal length", "crop(-3) left 5 keys and 8 values"),
    OtherSide: ("keys and values of unequal length", "crop(-3) left 8 keys and 5 values"),
    OwnHeld: ("held miscounts", "after crop(-3), held is 8, and 5 tokens are held"),
    LengthIsTheNumber: ("crop counts differently", "crop(2) keeps the first two"),
    PositiveOnly: ("crop counts differently", "expected: crop(-2) takes the last two tokens out"),
    WrittenCount: ("cropped tokens came back", "column 5 holds a token that had been taken out"),
    ZerosInPages: ("crop reaches another cache", "a fork was cropped, and layer 0"),
    ZerosLeftThere: ("empty columns", "filled the last columns with zeros"),
    Everyone: ("state shared between caches", "another cache was cropped"),
    Backwards: ("not recognised", "held positions 4, 3, 2, 1, 0"),
    KeepsItsTable: ("pages not given back", "the table lists"),
    TakesNothing: ("raised", "it raised TypeError"),
}


@pytest.mark.parametrize("kind", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_what_is_wrong_has_its_own_name(kind):
    name, says = WRONG[kind]
    cause, _ = crop_trial(sized(kind, 4) if issubclass(kind, PagedKVCache) else kind)
    assert cause is not None and cause.name == name and says in cause.says, cause
    assert cause.advice


# -- what is not tried -----------------------------------------------------------------------------


class Stub(KVCache):
    def crop(self, n): ...


class NotYet(KVCache):
    def crop(self, n):
        raise NotImplementedError("a ring can't go back")


class LikeAWindow(KVCache):
    def crop(self, n):
        if self.held:
            raise RuntimeError("the window has dropped tokens")


class OwnLists(PagedKVCache):
    """Inherits a crop of pages, and keeps its columns in lists."""

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.own = Tokens(n_layers)

    def get(self, layer):
        return self.own.get(layer)

    def update(self, layer, entry):
        self.own.update(layer, entry)

    def reset(self):
        self.own.reset()

    fork = None


class Inherits(PagedKVCache):
    """Passes its calls on, so the crop it inherits fits."""

    def get(self, layer):
        return super().get(layer)

    def update(self, layer, entry):
        super().update(layer, entry)


def test_a_crop_that_is_not_there_or_not_written_is_not_tried():
    assert crop_trial(KVCache) == crop_trial(Stub) == (None, "")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (NotYet, "it raised NotImplementedError: a ring can't go back, in crop(-3)"),
        (LikeAWindow, "it raised RuntimeError: the window has dropped tokens, in crop(-3)"),
        (OwnLists, "it is PagedKVCache's, and this class has a `get` and an `update` of its own"),
    ],
)
def test_a_cache_that_says_it_cannot_go_back_is_not_wrong_and_that_is_said(kind, says):
    assert crop_trial(kind) == (None, says)


def test_a_refusal_is_a_remark_of_the_verdict():
    verdict = kv.check_cache(NotYet)
    assert verdict.passed and "`crop` was not tried: it raised NotImpl" in verdict.remarks[0]
    assert "as if what was taken out" not in verdict.remarks[0]


def test_an_inherited_crop_that_fits_is_tried_and_a_broken_one_is_named():
    assert crop_trial(Inherits) == (None, "")
    mine = type("Mine", (GALLERY["only some layers cropped"].cache_class,), {})
    assert crop_trial(mine)[0].name == "only some layers cropped"
