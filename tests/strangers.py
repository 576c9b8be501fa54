"""Caches and forges, written with knowledge of the forge's interface but not of its check.

`WRONG`: the name that the check must give each; "not recognised" where no name fits. `RIGHT`:
unusual but right.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kvviz.forge import Forge, KVCache, KVEntry

CAP = 256  # columns in a preallocated buffer


def both(change, entry):
    """The same change to keys and values: a helper, nothing wrong."""
    return KVEntry(change(entry.keys), change(entry.values))


class Buffered(KVCache):
    """Nothing wrong: one buffer per layer; new columns are copied in, and views are handed out."""

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.reset()

    def reset(self):
        self._buffers, self.counts = [None] * len(self), [0] * len(self)

    def allocate(self, entry):
        return both(lambda x: x.new_zeros(*x.shape[:2], CAP, x.shape[3]), entry)

    def get(self, layer):
        count = self.counts[layer]
        return both(lambda x: x[:, :, :count], self._buffers[layer]) if count else None

    def update(self, layer, entry):
        if self._buffers[layer] is None:
            self._buffers[layer] = self.allocate(entry)
        old, self.counts[layer] = self.counts[layer], entry.keys.shape[2]
        self.write(layer, self._buffers[layer], both(lambda x: x[:, :, old:], entry), old)

    def write(self, layer, buffer, new, start):
        end = start + new.keys.shape[2]
        buffer.keys[:, :, start:end] = new.keys
        buffer.values[:, :, start:end] = new.values


# -- wrong caches ----------------------------------------------------------------------------------


class OffByOneWrite(Buffered):
    """Writes later tokens one column early: the last old one is lost, and a zero column ends it."""

    def write(self, layer, buffer, new, start):
        super().write(layer, buffer, new, max(start - 1, 0))


class OneBufferForBoth(Buffered):
    """`keys = values = zeros(...)`: one memory, so the keys are overwritten by the values."""

    def allocate(self, entry):
        buffer = super().allocate(entry).keys
        return KVEntry(buffer, buffer)


class ValuesNotCopied(Buffered):
    """After the first call, only keys are copied in: later values stay zero."""

    def write(self, layer, buffer, new, start):
        super().write(layer, buffer, new, start)
        if start:
            buffer.values[:, :, start:] = 0


class CursorOfLayerZero(Buffered):
    """The write cursor is `held`, which layer 0 has already moved when the others write."""

    def write(self, layer, buffer, new, start):
        end = start + new.keys.shape[2]
        super().write(layer, buffer, new, start if layer == 0 else end)


class RingOfTen(Buffered):
    """A ring of ten columns read as if nothing had been overwritten."""

    def get(self, layer):
        if not self.counts[layer]:
            return None
        slots = torch.arange(self.counts[layer]) % 10
        return both(lambda x: x[:, :, slots], self._buffers[layer])

    def write(self, layer, buffer, new, start):
        for i in range(new.keys.shape[2]):
            super().write(layer, buffer, both(lambda x, i=i: x[:, :, [i]], new), (start + i) % 10)


class PagesRunOver(KVCache):
    """A pool of four pages a layer: the fifth page is the next layer's first."""

    def update(self, layer, entry):
        super().update(layer, entry)
        over = entry.keys.shape[2] - 16
        following = self._slots[(layer + 1) % len(self)]
        if over > 0 and following is not None:
            following.keys[:, :, :over] = entry.keys[:, :, 16:]
            following.values[:, :, :over] = entry.values[:, :, 16:]


class HeadsFlipped(KVCache):
    """Hands the two key/value heads out in the other order."""

    def get(self, layer):
        entry = super().get(layer)
        return entry and both(lambda x: x.flip(1), entry)


class ValuesFromBelow(KVCache):
    """Odd layers hand out the values of the layer below."""

    def get(self, layer):
        entry = super().get(layer)
        if entry is None or layer % 2 == 0:
            return entry
        return KVEntry(entry.keys, super().get(layer - 1).values[:, :, : entry.keys.shape[2]])


class SlotsRotate(KVCache):
    """After each pass, the list of slots rotates by one: every layer gets another's past."""

    def update(self, layer, entry):
        super().update(layer, entry)
        if layer == len(self) - 1:
            self._slots.append(self._slots.pop(0))


class SwapsInOneLayer(KVCache):
    """Layer 2 stores (values, keys): the order is mixed up, so it flips at each call."""

    def update(self, layer, entry):
        super().update(layer, KVEntry(entry.values, entry.keys) if layer == 2 else entry)


class WindowOfEight(KVCache):
    """Keeps the last eight tokens, so `held` and all later positions stand still."""

    def update(self, layer, entry):
        super().update(layer, both(lambda x: x[:, :, -8:], entry))


class EvictsSmallest(KVCache):
    """Above nine tokens, each layer throws out the one with its smallest values."""

    def update(self, layer, entry):
        size = entry.values.norm(dim=3).sum(dim=(0, 1))
        keep = size.topk(min(9, len(size))).indices.sort().values
        super().update(layer, both(lambda x: x[:, :, keep], entry))


class EveryOther(KVCache):
    """Keeps only every other call's tokens."""

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.calls = [0] * n_layers

    def update(self, layer, entry):
        self.calls[layer] += 1
        if self.calls[layer] % 2:
            super().update(layer, entry)


class WriteBehind(KVCache):
    """Hands out the last entry but one: a write shows only after the next one."""

    def __init__(self, n_layers):
        super().__init__(n_layers)
        self.waiting = [None] * n_layers

    def update(self, layer, entry):
        self._slots[layer], self.waiting[layer] = self.waiting[layer], entry


class FrozenPrompt(KVCache):
    """Keeps the first call's entry forever: each later call sees the prompt and itself."""

    def update(self, layer, entry):
        if self.get(layer) is None:
            super().update(layer, entry)


class EightBitKeys(KVCache):
    """Keys go through eight bits, one scale for all, again at every call; values do not."""

    def update(self, layer, entry):
        step = entry.keys.abs().max() / 127
        super().update(layer, KVEntry((entry.keys / step).round() * step, entry.values))


class OneTokenRounded(KVCache):
    """One head of one token's values in one layer is kept in bfloat16."""

    def update(self, layer, entry):
        if layer == 2 and entry.values.shape[2] > 4:
            entry = both(torch.clone, entry)
            entry.values[:, 1, 4] = entry.values[:, 1, 4].bfloat16().float()
        super().update(layer, entry)


class NormsInPlace(KVCache):
    """Scales the keys it is given to the mean length, in place: the past changes at each call."""

    def update(self, layer, entry):
        entry.keys.div_(entry.keys.norm(dim=3, keepdim=True) / entry.keys.norm(dim=3).mean())
        super().update(layer, entry)


class ValuesSlip(KVCache):
    """In layer 3, past values are one column off from their keys."""

    def get(self, layer):
        entry = super().get(layer)
        if entry is None or layer != 3:
            return entry
        return KVEntry(entry.keys, entry.values.roll(1, dims=2))


# -- wrong forges ----------------------------------------------------------------------------------


class PositionsClamped(Forge):
    """The rotary table has eleven rows: later positions are clamped to the last."""

    def positions(self, t, held):
        return super().positions(t, held).clamp(max=10)


class PairsInDecode(Forge):
    """Single tokens are rotated in adjacent pairs, longer feeds in halves."""

    def rotate(self, x, turns):
        if len(turns[0]) > 1:
            return super().rotate(x, turns)
        halves = torch.cat([x[..., ::2], x[..., 1::2]], dim=-1)
        return torch.stack(super().rotate(halves, turns).chunk(2, -1), -1).flatten(-2)


class SharedScratch(Forge):
    """All layers join past and new in one scratch buffer, and the entries are views of it."""

    scratch = None

    def append(self, past, new):
        if past is None:
            return new
        if self.scratch is None:
            self.scratch = both(lambda x: x.new_zeros(*x.shape[:2], CAP, x.shape[3]), new)
        held, end = past.keys.shape[2], past.keys.shape[2] + new.keys.shape[2]
        for scratch, old, more in zip(self.scratch, past, new, strict=True):
            scratch[:, :, :held], scratch[:, :, held:end] = old, more
        return both(lambda x: x[:, :, :end], self.scratch)


class ChunkSeesAhead(Forge):
    """No mask once something is held: rows of a chunk see the rows after them."""

    def mask(self, t, pos_start, pos_end, device):
        return None if pos_start else super().mask(t, pos_start, pos_end, device)


class ChunkAlone(Forge):
    """A chunk of several rows sees only itself and nothing of the past."""

    def mask(self, t, pos_start, pos_end, device):
        seen = super().mask(t, pos_start, pos_end, device)
        return seen if seen is None else seen & (torch.arange(pos_end) >= pos_start)


class NoScaleInDecode(Forge):
    """The path for one row forgets to divide by the root of the width."""

    def attend(self, layer, query, keys, values, mask):
        root = query.shape[-1] ** 0.5 if mask is None else 1
        return super().attend(layer, query * root, keys, values, mask)


class SoftmaxTwice(Forge):
    """Layer 1 takes the softmax of the softmax when one row is fed."""

    def attend(self, layer, query, keys, values, mask):
        output, weights = super().attend(layer, query, keys, values, mask)
        if mask is None and layer == 1:
            weights = weights.softmax(-1)
            output = weights @ values.repeat_interleave(query.shape[1] // values.shape[1], 1)
        return output, weights


class TiledHeads(Forge):
    """With one row, key/value heads are tiled 0 1 0 1 where 0 0 0 1 1 1 is right."""

    def attend(self, layer, query, keys, values, mask):
        if mask is None:
            times = query.shape[1] // keys.shape[1]
            keys, values = keys.repeat(1, times, 1, 1), values.repeat(1, times, 1, 1)
        return super().attend(layer, query, keys, values, mask)


class SinksAndWindow(Forge):
    """Attention sees the first two columns and the last eight, but the cache keeps all."""

    def attend(self, layer, query, keys, values, mask):
        n = keys.shape[2]
        keep = [i for i in range(n) if i < 2 or i >= n - 8]
        mask = mask if mask is None else mask[:, keep]
        return super().attend(layer, query, keys[:, :, keep], values[:, :, keep], mask)


class OneRowAgain(Forge):
    """Right logits, but the last token held is cropped off and computed again each call."""

    def forward(self, ids, cache=None):
        again = ids
        if cache is not None and cache.held > 1:
            for i in range(len(cache)):
                cache.update(i, both(lambda x: x[:, :, :-1], cache.get(i)))
            again = torch.cat([self.last, ids], dim=1)
        self.last = ids[:, -1:]
        return super().forward(again, cache)[:, -ids.shape[1] :]


WRONG = {
    OffByOneWrite: "not recognised",
    OneBufferForBoth: "not recognised",
    ValuesNotCopied: "not recognised",
    CursorOfLayerZero: "not recognised",
    RingOfTen: "write in the wrong position",
    PagesRunOver: "not recognised",
    HeadsFlipped: "not recognised",
    ValuesFromBelow: "values of another layer",
    SlotsRotate: "another layer's slot",
    SwapsInOneLayer: "keys and values swapped",
    WindowOfEight: "moved but not rotated again",
    EvictsSmallest: "moved but not rotated again",
    EveryOther: "write missing",
    WriteBehind: "not recognised",
    FrozenPrompt: "write missing",
    EightBitKeys: "precision",
    OneTokenRounded: "not recognised",
    NormsInPlace: "not recognised",
    ValuesSlip: "keys apart from their values",
    PositionsClamped: "position miscounted",
    PairsInDecode: "not recognised",
    SharedScratch: "one slot for all layers",
    ChunkSeesAhead: "mask missing",
    ChunkAlone: "not recognised",
    NoScaleInDecode: "not recognised",
    SoftmaxTwice: "not recognised",
    TiledHeads: "not recognised",
    SinksAndWindow: "mask with a hole",
    OneRowAgain: "not recognised",
}


# -- right but unusual -----------------------------------------------------------------------------


class SingleTokens(KVCache):
    """Right: a list of single tokens per layer, joined on get."""

    def get(self, layer):
        slot = super().get(layer)
        return slot and KVEntry(*(torch.cat(part, dim=2) for part in zip(*slot, strict=True)))

    def update(self, layer, entry):
        slot = self._slots[layer] or []
        new = both(lambda x: x[:, :, len(slot) :], entry)
        parts = zip(new.keys.split(1, 2), new.values.split(1, 2), strict=True)
        super().update(layer, slot + list(parts))


class PagesOfFour(SingleTokens):
    """Right: pages of four tokens, the last one not full."""

    def update(self, layer, entry):
        parts = zip(entry.keys.split(4, 2), entry.values.split(4, 2), strict=True)
        KVCache.update(self, layer, list(parts))


class NewestFirst(KVCache):
    """Right: internally, kept in reverse order."""

    def get(self, layer):
        slot = super().get(layer)
        return slot and both(lambda x: x.flip(2), slot)

    def update(self, layer, entry):
        super().update(layer, both(lambda x: x.flip(2), entry))


class Stranger:
    """Right: no KVCache, a dict by layer, head and part; `held` is a plain counter."""

    def __init__(self, n_layers):
        self.n_layers, self.held, self.parts = n_layers, 0, {}

    def __len__(self):
        return self.n_layers

    def reset(self):
        self.held, self.parts = 0, {}

    def get(self, layer):
        mine = [v for (number, _), v in sorted(self.parts.items()) if number == layer]
        return KVEntry(*(torch.stack(x, 1) for x in zip(*mine, strict=True))) if mine else None

    def update(self, layer, entry):
        for head in range(entry.keys.shape[1]):
            self.parts[layer, head] = (entry.keys[:, head], entry.values[:, head])
        self.held = entry.keys.shape[2]


class FusedAttention(Forge):
    """Right: torch's own attention, with the weights computed separately."""

    def attend(self, layer, query, keys, values, mask):
        out = F.scaled_dot_product_attention(query, keys, values, mask, enable_gqa=True)
        return out, super().attend(layer, query, keys, values, mask)[1]


class Grouped(Forge):
    """Right: query heads grouped by einsum, with no keys repeated; even one row gets a mask."""

    def mask(self, t, pos_start, pos_end, device):
        return torch.ones(t, pos_end, dtype=torch.bool).tril(pos_start)

    def attend(self, layer, query, keys, values, mask):
        grouped = query.unflatten(1, (keys.shape[1], -1)) / query.shape[-1] ** 0.5
        scores = torch.einsum("bgsqd,bgkd->bgsqk", grouped, keys)
        scores = scores + torch.zeros(mask.shape).masked_fill(~mask, -1e30)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        output = torch.einsum("bgsqk,bgkd->bgsqd", weights, values)
        return output.flatten(1, 2), weights.flatten(1, 2)


RIGHT = {
    "buffered": (Buffered, Forge),
    "single tokens": (SingleTokens, Forge),
    "pages of four": (PagesOfFour, Forge),
    "newest first": (NewestFirst, Forge),
    "another class": (Stranger, Forge),
    "fused attention": (KVCache, FusedAttention),
    "grouped queries": (KVCache, Grouped),
    "buffered and fused": (Buffered, FusedAttention),
}
