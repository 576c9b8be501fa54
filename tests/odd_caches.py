"""Caches and forges that go wrong in ways that look alike: each with its name, and what is said.

`WRONG`: class -> (cause, a part of the headline). `RIGHT`: unusual, and nothing wrong.
"""

from __future__ import annotations

import sys

import torch

from kvviz.forge import Forge, KVCache, KVEntry

WRONG: dict[type, tuple[str, str]] = {}
RIGHT: dict[str, tuple[type, type]] = {}
SHAPE = (1, 2, 1, 14)


def wrong(cause, says):
    """Put a class into `WRONG`."""

    def keep(kind):
        WRONG[kind] = cause, says
        return kind

    return keep


def right(kind):
    """Put a class into `RIGHT`."""
    RIGHT[kind.__doc__] = (KVCache, kind) if issubclass(kind, Forge) else (kind, Forge)
    return kind


def both(change, entry):
    """The same change to keys and values."""
    return KVEntry(*(change(x) for x in entry))


class Reads(KVCache):
    """Hands out what it holds, changed: the change is the mistake."""

    def get(self, layer):
        entry = super().get(layer)
        return entry and self.read(layer, entry)


# -- another layer's, another cache's, another sequence's ------------------------------------------


@wrong("another layer's slot", "layer 3 was given what layer 0 had just stored")
class OneSlotLower(KVCache):
    def update(self, layer, entry):
        super().update(layer - 1, entry)


@wrong("another layer's slot", "had just stored")
class OneSlotHigher(KVCache):
    def get(self, layer):
        return super().get(layer - 1)


@wrong("one slot for all layers", "every layer was given")
class OneSlot(KVCache):
    def __init__(self, n_layers):
        self._slots = [None]

    def __len__(self):
        return 4

    def get(self, layer):
        return self._slots[0]

    def update(self, layer, entry):
        self._slots[0] = entry

    def reset(self):
        self._slots = [None]


@wrong("keys of another layer", "layer 1 was given the keys of layer 0, and its own values")
class KeysOfLayerZero(Reads):
    def read(self, layer, entry):
        keys = KVCache.get(self, 0).keys
        return KVEntry(keys[:, :, : entry.keys.shape[2]], entry.values)


@wrong("state shared between caches", "the logits of cache 0 differ at position 3")
class SharedBuffers:
    buffers = {}

    def __init__(self, n_layers):
        self.counts = [0] * n_layers

    def get(self, layer):
        n = self.counts[layer]
        return KVEntry(*(x[:, :, :n] for x in self.buffers[layer])) if n else None

    def update(self, layer, entry):
        held = self.buffers.get(layer)
        if held is None or held[0].shape[0] != entry.keys.shape[0]:
            held = [x.new_zeros(len(x), 2, 128, 14) for x in entry]
        start, self.counts[layer] = self.counts[layer], entry.keys.shape[2]
        for buffer, x in zip(held, entry, strict=True):
            buffer[:, :, start : x.shape[2]] = x[:, :, start:]
        self.buffers[layer] = held

    def reset(self):
        self.counts = [0] * len(self.counts)


@wrong("state shared between caches", "the logits of cache 0 differ at position 5")
class ResetsThemAll(KVCache):
    made = []

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.made.append(self)

    def reset(self):
        for cache in self.made:
            KVCache.reset(cache)


@wrong("state kept in the forge", "with a forge for each, all is right")
class PastsInTheForge(Forge):
    def forward(self, ids, cache=None):
        if cache is None or cache.get(0) is None:
            self.pasts = {}
        self.number = 0
        return super().forward(ids, cache)

    def append(self, past, new):
        self.pasts[self.number] = entry = super().append(self.pasts.get(self.number), new)
        self.number += 1
        return entry


@wrong("another sequence's entry", "sequence 1 was given keys that sequence 0 had stored")
class FirstSequenceForAll(Reads):
    def read(self, layer, entry):
        return both(lambda x: x[:1].expand_as(x), entry)


@wrong("another sequence's entry", "sequence 1 was given values that sequence 0 had stored")
class FirstSequencesValues(Reads):
    def read(self, layer, entry):
        return KVEntry(entry.keys, entry.values[:1].expand_as(entry.values))


# -- what is missing, and since when ---------------------------------------------------------------


@wrong("write missing", "step 2, layer 2: the cache did not hold position 6")
class LosesSinglesInOneLayer(KVCache):
    def update(self, layer, entry):
        old = self.get(layer)
        single = old is not None and entry.keys.shape[2] - old.keys.shape[2] == 1
        if not (layer == 2 and single):
            super().update(layer, entry)


@wrong("write missing", "step 1, layer 3: this layer held nothing of the 6 fed before, and others")
class NeverTheLastLayer(KVCache):
    def update(self, layer, entry):
        if layer < 3:
            super().update(layer, entry)


@wrong("write missing", "step 11: the cache held nothing of the 16 fed before")
class EmptiedAtSixteen(KVCache):
    def update(self, layer, entry):
        super().update(layer, entry if entry.keys.shape[2] < 16 else None)


@wrong("write missing", "with more tokens: step 10: the cache did not hold positions 32 to 36")
class FullAtThirtyTwo(KVCache):
    def update(self, layer, entry):
        super().update(layer, both(lambda x: x[:, :, :32], entry))


@wrong("moved but not rotated again", "step 17: the cache held positions 1 to 64 of the 65 fed")
class LastSixtyFour(KVCache):
    def update(self, layer, entry):
        super().update(layer, both(lambda x: x[:, :, -64:], entry))


@wrong("moved but not rotated again", "position 6 was rotated for position 5")
class WithoutTheFirst(KVCache):
    """The oldest token goes, but once: no window, and what is left is renumbered."""

    def update(self, layer, entry):
        first = self.get(layer) is None
        super().update(layer, both(lambda x: x[:, :, 1:], entry) if first else entry)


@wrong("write never happens", "step 1: the cache held nothing of the 6 fed before")
class ReturnsNone(KVCache):
    def get(self, layer):
        return None


@wrong("cache not used", "forward never called `get`")
class CacheNotPassedOn(Forge):
    def forward(self, ids, cache=None):
        return super().forward(ids)


@wrong("past not appended", "the cache returned 6 tokens, and attention saw only position 6")
class OnlyTheNew(Forge):
    def append(self, past, new):
        return new


@wrong("new token not appended", "positions 4 to 5, just fed")
class DropsChunks(Forge):
    def append(self, past, new):
        return past if past is not None and new.keys.shape[2] > 1 else super().append(past, new)


@wrong("empty columns", "the cache returned 24 columns, 18 of them zeros")
class WholeBuffer(KVCache):
    def update(self, layer, entry):
        room = max(24 - entry.keys.shape[2], 0)
        super().update(layer, both(lambda x: torch.nn.functional.pad(x, (0, 0, 0, room)), entry))


# -- what was dropped, and where the next call starts ----------------------------------------------


class Drops(KVCache):
    """Drops columns, and starts the next call where the text is: the positions are right."""

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.reset()

    def reset(self):
        self._slots, self.next_position = [None] * len(self), 0

    def update(self, layer, entry):
        if layer == 0:
            self.next_position += entry.keys.shape[2] - self.held
        super().update(layer, both(lambda x: x[:, :, self.keep(layer, x.shape[2])], entry))


@wrong("window nobody asked for", "step 1: the cache did not hold positions 0 to 1 of the 6 fed")
class LastFour(Drops):
    def keep(self, layer, n):
        return [*range(n)][-4:]


@wrong("window nobody asked for", "step 17: the cache did not hold position 0 of the 65 fed")
class LastSixtyFourOfTheText(Drops):
    def keep(self, layer, n):
        return [*range(n)][-64:]


@wrong("window nobody asked for", "step 1: the cache did not hold position 2 of the 6 fed before")
class SinksAndLastThree(Drops):
    def keep(self, layer, n):
        return [i for i in range(n) if i < 2 or i >= n - 3]


@wrong("first column dropped", "step 1: the cache did not hold position 0 of the 6 fed before")
class FirstDropped(Drops):
    def keep(self, layer, n):
        return [*range(n)][int(self.next_position == n) :]  # when nothing is missing yet


@wrong("first column dropped", "step 1, layer 2: the cache did not hold position 0 of the 6 fed")
class FirstDroppedInOneLayer(KVCache):
    def update(self, layer, entry):
        first = layer == 2 and self.get(layer) is None
        super().update(layer, both(lambda x: x[:, :, int(first) :], entry))


@wrong("write missing", "step 1: the cache did not hold position 1 of the 6 fed before")
class SecondDropped(Drops):
    def keep(self, layer, n):
        return [i for i in range(n) if i != 1 or self.next_position > n]


@wrong("write missing", "step 1: the cache did not hold positions 0 to 1 of the 6 fed before")
class FirstTwoDropped(Drops):
    def keep(self, layer, n):
        return [*range(n)][2 * (self.next_position == n) :]


@wrong("new token not appended", "attention did not see the keys and values of position 6")
class NewestDropped(Forge):
    def append(self, past, new):
        return super().append(past, new) if past is None or new.keys.shape[2] > 1 else past


class Rerotates(Drops):
    """Drops the oldest tokens, renumbers the rest, and rotates their keys for that."""

    forge = Forge.small()

    def reset(self):
        super().reset()
        del self.next_position  # a call starts at what is held

    def update(self, layer, entry):
        keep, forge = self.keep(layer, entry.keys.shape[2]), self.forge
        entry = both(lambda x: x[:, :, keep], entry)
        back = torch.arange(len(keep)) - torch.tensor(keep)
        keys = forge.rotate(entry.keys, forge.rotation(back))
        KVCache.update(self, layer, KVEntry(keys, entry.values))


@wrong("window nobody asked for", "step 1: the cache did not hold positions 0 to 1 of the 6 fed")
class LastFourRerotated(Rerotates):
    def keep(self, layer, n):
        return [*range(n)][-4:]


@wrong("window nobody asked for", "step 1: the cache did not hold position 1 of the 6 fed before")
class SinkAndLastFourRerotated(Rerotates):
    def keep(self, layer, n):
        return [i for i in range(n) if i < 1 or i >= n - 4]


@wrong("moved but not rotated again", "step 1: the cache held positions 0, 2, 3, 4, 5 of the 6 fed")
class SinkAndLastFourNotRotated(KVCache):
    def update(self, layer, entry):
        n = entry.keys.shape[2]
        keep = [i for i in range(n) if i < 1 or i >= n - 4]
        super().update(layer, both(lambda x: x[:, :, keep], entry))


@wrong("mask with a hole", "step 1: position 1 was masked, although it is held")
class SecondHidden(Forge):
    def mask(self, t, pos_start, pos_end, device):
        seen = torch.ones(t, pos_end, dtype=torch.bool).tril(pos_start)
        seen[:, 1] &= pos_start == 0
        return seen


@wrong("first column dropped", "step 0: position 0, the first, was masked, although it is held")
class FirstTakenForPadding(Forge):
    """The first token is the padding token too: no later row sees it."""

    def mask(self, t, pos_start, pos_end, device):
        seen = torch.ones(t, pos_end, dtype=torch.bool).tril(pos_start)
        seen[int(pos_start == 0) :, 0] = False
        return seen


@wrong("first column dropped", "step 1, layer 2: position 0, the first, was masked, although it")
class FirstHiddenInOneLayer(Forge):
    def attend(self, layer, query, keys, values, mask):
        start = int(layer == 2 and query.shape[2] < keys.shape[2])
        mask = mask if mask is None else mask[:, start:]
        return super().attend(layer, query, keys[:, :, start:], values[:, :, start:], mask)


@wrong("window nobody asked for", "step 1: the row saw only the last 6 columns")
class WindowOfSixInDecode(Forge):
    """In its first step, it hides the first column alone."""

    def mask(self, t, pos_start, pos_end, device):
        rows, columns = torch.arange(pos_start, pos_end)[:, None], torch.arange(pos_end)
        return (columns <= rows) & ((rows - columns < 6) | (pos_start == 0))


# -- whole numbers and their scale -----------------------------------------------------------------


def in_whole_numbers(x, levels, *dims):
    """As whole numbers up to `levels`, with one scale along these axes."""
    scale = x.abs().amax(dims, keepdim=True).clamp_min(1e-30) / levels
    return (x / scale).round() * scale


@wrong("precision", "came back rounded to 8 bits, with one scale for each token and head, off by")
class InEightBits(KVCache):
    def update(self, layer, entry):
        super().update(layer, both(lambda x: in_whole_numbers(x, 127, 3), entry))


@wrong("precision", "came back rounded to 4 bits, with one scale for each token and head, off by")
class InFourBits(KVCache):
    def update(self, layer, entry):
        super().update(layer, both(lambda x: in_whole_numbers(x, 7, 3), entry))


@wrong("precision", "came back rounded to 8 bits, with one scale for all numbers, off by")
class OneScaleForAll(KVCache):
    def update(self, layer, entry):
        super().update(layer, both(lambda x: in_whole_numbers(x, 127, 1, 2, 3), entry))


@wrong("precision", "the keys to 8 bits, with one scale for each channel, over all tokens and the")
class KeysPerChannel(KVCache):
    """A good choice: channels of keys differ more than tokens do."""

    def update(self, layer, entry):
        keys = in_whole_numbers(entry.keys, 127, 2)
        super().update(layer, KVEntry(keys, in_whole_numbers(entry.values, 127, 3)))


@wrong("scale along the wrong axis", "rounded, the values to 4 bits, with one scale for each chan")
class ValuesPerChannel(KVCache):
    def update(self, layer, entry):
        super().update(layer, KVEntry(entry.keys, in_whole_numbers(entry.values, 7, 2)))


@wrong(
    "precision", "came back rounded to 8 bits, with one scale for each channel, over all tokens,"
)
class PerChannelOnce(KVCache):
    """Only the prompt is rounded: its scales stay as they are."""

    def update(self, layer, entry):
        is_first = self.get(layer) is None
        kept = both(lambda x: in_whole_numbers(x, 127, 2), entry) if is_first else entry
        super().update(layer, kept)


# -- at first, and after a reset -------------------------------------------------------------------


@wrong("not empty at first", "get(0) returned KVEntry of None, None before anything was written")
class EmptyEntry(KVCache):
    def get(self, layer):
        return super().get(layer) or KVEntry(None, None)


@wrong("not empty after reset", "held 1 token before the first was fed, and they are zeros")
class ResetToZeros(KVCache):
    def reset(self):
        self._slots = [KVEntry(*torch.zeros(2, *SHAPE)) for _ in self._slots]


@wrong("not empty after reset", "some slots were not empty after a reset: layer 2")
class OneSlotToZeros(KVCache):
    def reset(self):
        super().reset()
        self._slots[2] = KVEntry(*torch.zeros(2, *SHAPE))


@wrong("stale cache", "some slots were not empty after a reset: layers 1, 2, 3")
class EmptiesTheFirstSlot(KVCache):
    def reset(self):
        self._slots[0] = None


@wrong("raised", "it raised KeyError: 0, in get(0), at step 0 of the first text")
class NoKeyAtFirst(KVCache):
    def __init__(self, n_layers):
        self._slots = {}

    def __len__(self):
        return 4


# -- rotation --------------------------------------------------------------------------------------


@wrong("query not rotated", "the query at position 6 was not rotated, and its key was")
class QueryNotRotated(Forge):
    def rotate(self, x, rotation):
        return x if x.shape[1:3] == (6, 1) else super().rotate(x, rotation)


@wrong("rotation skipped", "position 6 was rotated as if it were at position 0")
class SinglesNotRotated(Forge):
    def rotate(self, x, rotation):
        return x if x.shape[2] == 1 else super().rotate(x, rotation)


@wrong("rotated backwards", "position 1 was rotated as if it were at position -1")
class Backwards(Forge):
    def rotate(self, x, rotation):
        return super().rotate(x, (rotation[0], -rotation[1]))


@wrong("query rotated backwards", "the query at position 1 was rotated as if it were at")
class QueryBackwards(Forge):
    def rotate(self, x, rotation):
        sign = -1 if x.shape[1] == 6 else 1
        return super().rotate(x, (rotation[0], sign * rotation[1]))


@wrong("key at another position", "the key of position 0 was rotated as if it were at position 1")
class KeyOneFurther(Forge):
    def rotate(self, x, rotation):
        x = super().rotate(x, rotation)
        return x if x.shape[1] == 6 else super().rotate(x, self.rotation(torch.tensor([1])))


@wrong("position miscounted", "position 0 was rotated as if it were at position 7")
class SevenTooMany(Forge):
    """As many as the earlier text had: and no counter was left behind."""

    def positions(self, t, held):
        return super().positions(t, held + 7)


@wrong("not recognised", "position 1 was rotated as if it were at position 2")
class TwiceTheAngle(Forge):
    def rotation(self, positions):
        return super().rotation(2 * positions)


@wrong("position miscounted", "position 1 was rotated as if it were at position 0")
class OnePositionForAll(Forge):
    def positions(self, t, held):
        return torch.arange(held, held + 1)


# -- numbers ---------------------------------------------------------------------------------------


@wrong("not a number", "layer 1: the key of position 2 came out of the cache as not a number")
class NanInAKey(KVCache):
    def update(self, layer, entry):
        keys = entry.keys.clone()
        keys[:, 0, 2, 3] = torch.nan if layer == 1 else keys[:, 0, 2, 3]
        super().update(layer, KVEntry(keys, entry.values))


@wrong("not a number", "attention gave the row of position 6 no number")
class MaskUpsideDown(Forge):
    def mask(self, *arguments):
        mask = super().mask(*arguments)
        return mask if mask is None else ~mask


@wrong("precision", "came back rounded to float8_e4m3fn")
class InFloat8(KVCache):
    def update(self, layer, entry):
        super().update(layer, both(lambda x: x.to(torch.float8_e4m3fn).float(), entry))


@wrong("two reads differ", "get(0) was called twice in a row")
class PopsWhenRead(KVCache):
    def get(self, layer):
        entry, self._slots[layer] = self._slots[layer], None
        return entry


@wrong("two reads differ", "get(0) was called twice in a row")
class Noise(Reads):
    def read(self, layer, entry):
        return both(lambda x: x + 0.01 * torch.randn_like(x), entry)


@wrong("wrong order", "harmless to the text")
class HistoryReversed(Reads):
    def read(self, layer, entry):
        return both(lambda x: x.flip(2), entry)


@wrong("mask looks ahead", "each row could see 1 position after its own")
class OneAhead(Forge):
    def mask(self, t, pos_start, pos_end, device):
        return torch.ones(t, pos_end, dtype=torch.bool).tril(pos_start + 1)


@wrong("held miscounts", "held is 0, and 90 tokens were fed")
class HeldIsZero(KVCache):
    held = 0


@wrong("not recognised", "14 rows were computed for 7 fed")
class FedTwice(Forge):
    def forward(self, ids, cache=None):
        super().forward(ids, cache)
        return super().forward(ids, cache)


# -- what a method takes and returns ---------------------------------------------------------------


@wrong("unexpected return value", "get(0) returned dict, expected a KVEntry of two tensors")
class AsDict(Reads):
    def read(self, layer, entry):
        return entry._asdict()


@wrong("unexpected return value", "get(0) returned list of Tensor, Tensor, expected a KVEntry")
class AsList(Reads):
    def read(self, layer, entry):
        return list(entry)


@wrong("unexpected return value", "get(0) returned KVEntry of ndarray, ndarray, expected")
class AsArrays(Reads):
    def read(self, layer, entry):
        return both(lambda x: x.numpy(), entry)


@wrong("entry in another dtype", "get(0) returned float64; update was given float32")
class AsFloat64(Reads):
    def read(self, layer, entry):
        return both(lambda x: x.double(), entry)


@wrong("entry of another shape", "keys of shape (1, 6, 6, 14); update was given (1, 2, 6, 14)")
class SixHeads(KVCache):
    def update(self, layer, entry):
        super().update(layer, both(lambda x: x.repeat_interleave(3, 1)[:, :6], entry))


@wrong("entry of another shape", "keys of shape (2, 6, 14); update was given (1, 2, 6, 14)")
class WithoutTheBatch(KVCache):
    def update(self, layer, entry):
        super().update(layer, both(lambda x: x[0], entry))


@wrong("keys and values of unequal length", "get(3) returned 6 keys and 5 values; update was given")
class ValuesShort(KVCache):
    def update(self, layer, entry):
        cut = entry.values[:, :, :-1] if layer == 3 else entry.values
        super().update(layer, KVEntry(entry.keys, cut))


@wrong("keys and values of unequal length", "append returned 7 keys and 6 values")
class AppendsKeysOnly(Forge):
    def append(self, past, new):
        return new if past is None else KVEntry(super().append(past, new).keys, past.values)


@wrong("unexpected return value", "attend returned a tensor of float32")
class WithoutWeights(Forge):
    def attend(self, *arguments):
        return super().attend(*arguments)[0]


@wrong("unexpected return value", "mask returned a tensor of float32, shape (7, 7), expected bool")
class FloatMask(Forge):
    def mask(self, *arguments):
        mask = super().mask(*arguments)
        return mask if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)


@wrong("unexpected return value", "shape (3, 3), expected shape (3, 9)")
class FirstMaskOfItsSize(Forge):
    def mask(self, t, *rest):
        self.masks = getattr(self, "masks", {})
        if t not in self.masks:
            self.masks[t] = super().mask(t, *rest)
        return self.masks[t]


@wrong("unexpected return value", "forward returned tuple of Tensor, KVCache, expected logits")
class ReturnsTheCacheToo(Forge):
    def forward(self, ids, cache=None):
        return super().forward(ids, cache), cache


@wrong("unexpected return value", "len(cache) is 0, expected 4, the number of layers")
class LengthIsTokens(KVCache):
    def __len__(self):
        return self.held

    def reset(self):
        self._slots = [None] * 4


@wrong("raised", "missing 1 required positional argument: 'values', in update(0)")
class UpdateTakesThree(KVCache):
    def update(self, layer, keys, values):
        super().update(layer, KVEntry(keys, values))


@wrong("raised", "takes 1 positional argument but 2 were given, while the cache was made")
class MadeOfNothing(KVCache):
    def __init__(self):
        super().__init__(4)


@wrong("ids changed", "forward changed the ids it was given")
class ChangesIds(Forge):
    def forward(self, ids, cache=None):
        logits = super().forward(ids, cache)
        ids.zero_()
        return logits


@wrong("unexpected return value", "get(0) returned generator, expected a KVEntry")
class Yields(KVCache):
    def get(self, layer):
        yield super().get(layer)


# -- whatever it raises ----------------------------------------------------------------------------


@wrong("raised", "it raised NotImplementedError: evict, in update(0), at step 7")
class EvictsOneDay(KVCache):
    def update(self, layer, entry):
        if entry.keys.shape[2] > 12:
            raise NotImplementedError("evict")
        super().update(layer, entry)


@wrong("raised", "it raised NotImplementedError")
class NotInTorch(KVCache):
    def update(self, layer, entry):
        torch.special.bessel_j0(entry.keys.to(torch.complex64))


@wrong("raised", "it raised SystemExit: 3, in update(0)")
class Exits(KVCache):
    def update(self, layer, entry):
        sys.exit(3)


@wrong("raised", "(its message can't be shown), in update(0)")
class RaisesTheUnspeakable(KVCache):
    def update(self, layer, entry):
        class Unspeakable(Exception):
            def __str__(self):
                raise ValueError

        raise Unspeakable


@wrong("raised", "it raised RecursionError")
class CallsItself(KVCache):
    def get(self, layer):
        return self.get(layer)


# -- right but unusual -----------------------------------------------------------------------------


@right
class Layers:
    """tensors in an attribute called layers"""

    def __init__(self, n_layers):
        self.layers = [{} for _ in range(n_layers)]

    def get(self, layer):
        return KVEntry(**self.layers[layer]) if self.layers[layer] else None

    def update(self, layer, entry):
        self.layers[layer] = entry._asdict()

    def reset(self):
        self.layers = [{} for _ in self.layers]


@right
class PlainTuples(Reads):
    """a tuple of keys and values"""

    def read(self, layer, entry):
        return tuple(entry)


@right
class FeedsInChunks(Forge):
    """a forward that feeds a prompt in chunks by itself"""

    def forward(self, ids, cache=None):
        if cache is None or ids.shape[1] < 4:
            return super().forward(ids, cache)
        return torch.cat([Forge.forward(self, part, cache) for part in ids.split(3, dim=1)], dim=1)


@right
class WithoutAttend(Forge):
    """a forward that never calls attend"""

    def forward(self, ids, cache=None):
        return Forge.small()(ids, cache)


@right
class Delegates:
    """a cache that hands every call to another"""

    def __init__(self, n_layers):
        self.inner = KVCache(n_layers)

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)


@right
class TellsTheCacheItself(Forge):
    """a forward that has its own way to the slots"""

    def forward(self, ids, cache=None):
        class Slots:
            get = staticmethod(lambda layer: cache._slots[layer])
            update = staticmethod(lambda layer, entry: cache._slots.__setitem__(layer, entry))

        return super().forward(ids, Slots() if cache is not None else None)


@right
class NeverWritten:
    """buffers of what is not a number, where nothing was written"""

    def __init__(self, n_layers):
        self.n_layers = n_layers
        self.reset()

    def reset(self):
        self.buffers, self.counts = [None] * self.n_layers, [0] * self.n_layers

    def get(self, layer):
        n = self.counts[layer]
        return KVEntry(*(x[:, :, :n] for x in self.buffers[layer])) if n else None

    def update(self, layer, entry):
        if self.buffers[layer] is None:
            self.buffers[layer] = [x.new_full((len(x), 2, 97, 14), torch.nan) for x in entry]
        start, self.counts[layer] = self.counts[layer], entry.keys.shape[2]
        for buffer, x in zip(self.buffers[layer], entry, strict=True):
            buffer[:, :, start : x.shape[2]] = x[:, :, start:]


@right
class FalseWhenEmpty(KVCache):
    """a cache that is never true"""

    def __bool__(self):
        return False


@right
class AddedMask(Forge):
    """a mask of floats, and an attention that takes it"""

    def mask(self, t, pos_start, pos_end, device):
        allowed = torch.ones(t, pos_end).tril(pos_start).bool()
        return torch.zeros(t, pos_end).masked_fill(~allowed, -torch.inf)

    def attend(self, layer, query, keys, values, mask):
        return super().attend(layer, query, keys, values, mask == 0)


class RotatesOnRead(Forge):
    """Keys kept before rotation, and rotated each time they are read: right by design."""

    def rotate(self, x, rotation):
        return x if x.shape[1] == self.config.n_kv_heads else super().rotate(x, rotation)

    def attend(self, layer, query, keys, values, mask):
        rotated = super().rotate(keys, self.rotation(torch.arange(keys.shape[2])))
        return super().attend(layer, query, rotated, values, mask)


@wrong("not recognised", "with an earlier prompt of the same length: step 1, layer 0")
class PrefixByLength(KVCache):
    """a prefix cache that finds a prompt by its length"""

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.prefixes = {}

    def update(self, layer, entry):
        if self.get(layer) is None:
            entry = self.prefixes.setdefault((layer, entry.keys.shape[2]), entry)
        super().update(layer, entry)
