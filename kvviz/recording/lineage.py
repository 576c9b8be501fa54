"""Find where the columns of a forward pass came from, by the keys and values in them.

A cache may be copied, its sequences may be reordered, and a faulty one may put a token in the wrong
column. So columns are recognised by what is in them; see `witness`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kvviz.recording.cropped import CacheNumbers
from kvviz.recording.orders import Order, Written, gather
from kvviz.recording.witness import compare_witnesses

_ROOT = 0x9E3779B97F4A7C15  # the hash that every prefix starts from


@dataclass(frozen=True)
class Lineage:
    """Where the columns and rows of one forward pass came from.

    Attributes:
        parents: for each sequence, the (step, sequence) that left the cache it read, if known.
        keys_known, values_known: (B, held before) bool, columns whose key, or value, is the one
            that the parent left there.
        recomputed: (B, Tq) bool, rows that an earlier step computed too.
        key_order, value_order: what is in each column; None where all are in order.
        cache: the number of the cache object that the pass left; None if it left none, or one that
            can't be told from others.
    """

    parents: list[tuple[int, int] | None]
    keys_known: torch.Tensor
    values_known: torch.Tensor
    recomputed: torch.Tensor
    key_order: Order | None = None
    value_order: Order | None = None
    cache: int | None = None

    def select_orders(self, sequence: int) -> tuple[Order | None, Order | None]:
        """What is in one sequence's columns, keys and values, where they are out of order."""
        both = self.key_order, self.value_order
        return tuple(order and order.select(sequence) for order in both)


@dataclass(frozen=True)
class Pass:
    """What tracing needs of one finished forward pass.

    Attributes:
        token_ids, position_ids: (B, Tq) int64.
        held: tokens in the cache before this pass.
        keys, values: (B, Tk, 2) witnesses, of one layer.
        cache: the number of the cache object that the pass left, if it's known.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    held: int
    keys: torch.Tensor
    values: torch.Tensor
    cache: int | None = None

    @property
    def fed(self) -> int:
        return self.token_ids.shape[1]

    @property
    def visible(self) -> int:
        return self.held + self.fed


class History:
    """The passes of one recording so far; `trace` finds what the next one took from them."""

    def __init__(self):
        self.caches = CacheNumbers()
        self._passes: list[Pass] = []
        self._parents: list[list[tuple[int, int] | None]] = []  # for each pass
        self._hashes: list[list[list[int]]] = []  # for each pass, sequence and row: of its prefix
        self._computed: dict[int, torch.Tensor | None] = {}  # a prefix's hash -> last key's witness
        self._keys, self._values = Written(), Written()

    def trace(self, now: Pass) -> Lineage:
        """Where this pass's columns and rows came from; the pass then counts among the earlier."""
        parents, keys_known = self._find_parents(now)
        values_known = self._compare_values(now, parents)
        key_order, value_order = self._find_orders(now, keys_known, values_known)
        recomputed = self._find_repeats(now, parents)
        # One number is enough to see whether a value is where it was; finding it takes both.
        self._passes.append(replace(now, values=now.values[..., :1].clone()))
        return Lineage(
            parents=parents,
            keys_known=keys_known,
            values_known=values_known,
            recomputed=recomputed,
            key_order=key_order,
            value_order=value_order,
            cache=now.cache,
        )

    def _find_parents(self, now):
        """Which earlier pass left the cache that this one reads, and which keys it shares.

        Of passes that left equal keys it's one that left this very cache object, or else the last.
        """
        n_sequences = now.token_ids.shape[0]
        parents: list[tuple[int, int] | None] = [None] * n_sequences
        known = torch.zeros(n_sequences, now.held, dtype=torch.bool)
        if not now.held:
            return parents, known
        for sequence in range(n_sequences):
            for index in self._list_latest(now.cache):
                past = self._passes[index]
                if past.visible < now.held:  # more than it left, where a cache was cropped since
                    continue
                n_rows = past.token_ids.shape[0]
                for row in sorted(range(n_rows), key=lambda row: row != sequence):  # its own first
                    same = compare_witnesses(now, now.keys[sequence], past, past.keys[row])
                    if same.sum() > known[sequence].sum():
                        parents[sequence], known[sequence] = (index, row), same
                if known[sequence].all():
                    break
        return parents, known

    def _list_latest(self, cache):
        """Every pass, the last first, but those that left this cache object before all others."""
        indexes = range(len(self._passes))[::-1]
        if cache is None:
            yield from indexes
            return
        for is_own in (True, False):
            yield from (n for n in indexes if (self._passes[n].cache == cache) is is_own)

    def _compare_values(self, now, parents):
        """(B, held) bool: columns whose values are those that the parent left there."""
        known = torch.zeros(len(parents), now.held, dtype=torch.bool)
        for sequence, parent in enumerate(parents):
            if parent is not None:
                past = self._passes[parent[0]]
                values = now.values[sequence, :, :1]
                known[sequence] = compare_witnesses(now, values, past, past.values[parent[1]])
        return known

    def _find_orders(self, now, keys_known, values_known):
        """What is in each column, where keys or values are not as the parent left them."""
        key_orders, value_orders = {}, {}
        if now.keys.shape[1] != now.visible:
            return None, None  # a window, or slots that are still empty
        for sequence, fed in enumerate(now.token_ids):
            keys, values = now.keys[sequence], now.values[sequence]
            keys_stayed = bool(keys_known[sequence].all())
            values_stayed = bool(values_known[sequence].all())
            if not keys_stayed and (found := self._keys.find(keys, fed)):
                key_orders[sequence] = found
            if not values_stayed and (found := self._values.find(values, fed)):
                value_orders[sequence] = found
            if sequence == 0:
                self._keys.add(keys, fed, key_orders.get(0))
                self._values.add(values, fed, value_orders.get(0))
        return gather(key_orders, now), gather(value_orders, now)

    def _find_repeats(self, now, parents):
        """Which rows an earlier pass computed: same tokens, positions and key, nothing else before.

        Returns:
            (B, Tq) bool.
        """
        recomputed = torch.zeros(now.token_ids.shape, dtype=torch.bool)
        keys = now.keys[:, : now.visible][:, -now.fed :]  # empty slots come after the filled ones
        scale = keys.abs().max()
        hashes = []
        for sequence, parent in enumerate(parents):
            prefix = self._hash_prefix(parent, now.held)
            hashes.append([])
            tokens, positions = now.token_ids[sequence], now.position_ids[sequence]
            pairs = zip(tokens.tolist(), positions.tolist(), strict=True)
            for row, token_and_position in enumerate(pairs):
                prefix = hash((prefix, *token_and_position))
                hashes[-1].append(prefix)
                key = keys[sequence, row] if keys.shape[1] == now.fed else None
                before = self._computed.get(prefix)
                if before is None:
                    self._computed[prefix] = key
                elif key is not None:
                    recomputed[sequence, row] = bool((key - before).abs().max() <= 1e-3 * scale)
        self._parents.append(parents)
        self._hashes.append(hashes)
        return recomputed

    def _hash_prefix(self, parent, held: int) -> int:
        """The hash of the tokens that are held before a pass; no two are alike if it's unknown."""
        while held and parent is not None:
            index, sequence = parent
            if (row := held - self._passes[index].held - 1) >= 0:  # it was cropped to this row
                return self._hashes[index][sequence][row]
            parent = self._parents[index][sequence]
        return hash((_ROOT, len(self._hashes))) if held else _ROOT
