"""Name what a `crop` did to a cache, from what each layer held before it and holds after it.

An entry is a copy of what `get` returned, or None. Columns are told apart by the first sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from kvviz.checking.causes import UNKNOWN, Cause
from kvviz.checking.columns import Columns, list_positions, match_columns
from kvviz.forge import KVEntry
from kvviz.words import pluralize

CLOSE = 1e-4  # how far apart equal numbers may be, relative to the largest
UNEQUAL = "keys and values of unequal length"


def length(entry) -> int:
    """How many tokens an entry holds; 0 if there is none."""
    return 0 if entry is None else entry.keys.shape[2]


def take_first(entry, n: int):
    """The first n columns of an entry; None if there is none."""
    return None if entry is None else KVEntry(*(x[:, :, :n] for x in entry))


def begins(entry, right, n: int) -> bool:
    """Whether an entry is the first `n` columns of the right one, keys and values."""
    if entry is None or right is None:
        return n == 0 and not length(entry)
    pairs = zip(entry, (x[:, :, :n] for x in right), strict=True)
    return all(x.shape == y.shape and torch.allclose(x, y, CLOSE, _room(y)) for x, y in pairs)


def _room(y) -> float:
    return CLOSE * float(y.abs().max()) if y.numel() else 0.0


@dataclass(frozen=True)
class Crop:
    """A call of crop(-n), with what each layer held before and after it."""

    n: int
    before: list
    after: list

    @property
    def call(self) -> str:
        return f"crop({-self.n})"

    @property
    def held(self) -> int:
        return length(self.before[0])

    @property
    def left(self) -> int:
        return self.held - self.n

    @property
    def expected(self) -> str:
        """What the call does by contract."""
        if not self.n:
            return "expected: crop(0) changes nothing"
        return f"expected: {self.call} takes the last {pluralize(self.n, 'token')} out"

    def layers_that_begin(self, n: int) -> list[int]:
        """The layers that hold the first n tokens of those before, and no others."""
        pairs = enumerate(zip(self.after, self.before, strict=True))
        return [layer for layer, pair in pairs if begins(*pair, n)]

    @property
    def is_right(self) -> bool:
        return len(self.layers_that_begin(self.left)) == len(self.before)

    def mistake(self) -> Cause | None:
        """What the crop did wrong; None if it did what it should."""
        if self.is_right:
            return None
        right = self.layers_that_begin(self.left)
        layer = next(i for i in range(len(self.before)) if i not in right)
        name, says = self._name(layer, right)
        return Cause(name, f"{says}; {self.expected}", layer=layer)

    def _name(self, layer: int, right: list[int]) -> tuple[str, str]:
        after, call = self.after[layer], self.call
        if after is not None and (n := after.keys.shape[2]) != (m := after.values.shape[2]):
            return UNEQUAL, f"{call} left {pluralize(n, 'key')} and {pluralize(m, 'value')}"
        as_before = self.layers_that_begin(self.held)
        if right and len(right) + len(as_before) == len(self.before):
            which = f"layer{'s' * (len(as_before) > 1)} {list_positions(as_before)}"
            return "only some layers cropped", f"{call} left {which} as before"
        if len(as_before) == len(self.before):
            return "nothing cropped", f"{call} left all {self.held} tokens"
        n = length(after)
        at = f"{call} left {pluralize(n, 'token')}" if n else f"{call} left nothing"
        if not self.n:
            return "crop of nothing", f"{at} of {self.held}"
        if begins(after, self.before[layer], n):
            if n == self.n != self.left:
                return "crop counts differently", f"{call} kept the first {n} of {self.held} tokens"
            name = "crop takes too few" if n > self.left else "crop takes too many"
            return name, f"{at} of {self.held}, expected {self.left}"
        return self._name_others(layer, n)

    def _name_others(self, layer: int, n: int) -> tuple[str, str]:
        """The columns are others than the first ones."""
        after, call, at = self.after[layer], self.call, f"layer {layer}"
        if n == self.held and begins(take_first(after, self.left), self.before[layer], self.left):
            if not any(x[:, :, self.left :].any() for x in after):
                says = f"{call} filled the last columns with zeros, and left them there"
                return "empty columns", says
        found = _identify(after, self.before[layer])
        if found == list(range(self.held - n, self.held)):
            which = f"positions {found[0]} to {found[-1]}"
            return "cropped at the wrong end", f"{call} left {which} of {self.held} tokens"
        if found:
            return UNKNOWN, f"after {call}, {at} held positions {list_positions(found)}"
        return UNKNOWN, f"after {call}, {at} held {pluralize(n, 'column')}, not all as before"


def _identify(entry, right) -> list[int]:
    """Which of the right columns each column is, key and value alike; empty if some is none."""
    rights = right.keys[0], right.values[0]
    columns = Columns(entry.keys[0], entry.values[0], *rights, torch.arange(length(right)))
    return columns.found if columns.is_paired else []


@dataclass
class Later:
    """What a layer holds once right tokens were fed after a crop.

    Attributes:
        after: how it's called, "after crop(-3)".
        entry, right: what the layer holds, and what it should.
        gone: what it held before the crop.
        taken_out: how many tokens each crop so far took out, the last one first.
        page_size: of a cache in pages.
    """

    after: str
    layer: int
    entry: object
    right: object
    gone: object
    taken_out: list[int] = field(default_factory=list)
    page_size: int | None = None

    def mistake(self, rotate) -> Cause:
        """What went wrong: tokens that came back, or weren't written, or other positions."""
        n, expected = length(self.entry), length(self.right)
        if self.entry is not None and (m := self.entry.values.shape[2]) != n:
            says = f"{pluralize(n, 'key')} and {pluralize(m, 'value')} were held"
            return self._cause(UNEQUAL, says)
        if n and (back := self._came_back()):
            says = f"column {back[0]} holds a token that had been taken out"
            return self._cause("cropped tokens came back", says, back[0])
        if n != expected:
            name = "write missing" if begins(self.entry, self.right, n) else UNKNOWN
            says = f"{pluralize(n, 'token')} were held, expected {expected}"
            return self._cause(name, says)
        return self._written_over() or self._at_another_position(rotate) or self._other()

    def _came_back(self) -> list[int]:
        """The columns whose value is that of a token taken out, and of no right one."""
        if self.gone is None:
            return []
        values = self.entry.values[0]
        own, gone = (match_columns(values, x.values[0]).any(1) for x in (self.right, self.gone))
        return (gone & ~own).nonzero()[:, 0].tolist()

    def _written_over(self) -> Cause | None:
        """Some columns hold other tokens of the text: written there, or read from there."""
        found = _identify(self.entry, self.right)
        moved = [(i, token) for i, token in enumerate(found) if token != i]
        if not moved:
            return None
        (column, token), size = moved[0], self.page_size
        says = f"column {column} holds position {token}"
        if size and all(token > i and (token - i) % size == 0 for i, token in moved):
            says = f"position {token} was written over position {column}: one page, listed twice"
            return self._cause("freed page still read", says, column)
        return self._cause("write in the wrong position", says, column)

    def _at_another_position(self, rotate) -> Cause | None:
        """The value is right, and the key is rotated for another position."""
        (keys, values), (right_keys, right_values) = self.entry, self.right
        wrong = ~match_columns(keys[0], right_keys[0]).diagonal()
        if not wrong.any() or not match_columns(values[0], right_values[0]).diagonal().all():
            return None
        column = int(wrong.nonzero()[0])
        moves = torch.arange(-column, 2 * len(wrong) + sum(self.taken_out))
        key = right_keys[:1, :, column : column + 1]
        every = rotate(key.expand(-1, -1, len(moves), -1), moves)[0]
        fits = moves[match_columns(keys[0, :, column : column + 1], every)[0]].tolist()
        if not fits:
            return None
        too_far = torch.tensor(self.taken_out).cumsum(0).tolist()
        name = "counter not taken back" if fits[0] in too_far else "position miscounted"
        says = f"the token at position {column} was rotated for position {column + fits[0]}"
        return self._cause(name, says, column)

    def _other(self) -> Cause:
        return self._cause(UNKNOWN, f"layer {self.layer} holds other numbers than without the crop")

    def _cause(self, name, says, position=None) -> Cause:
        return Cause(name, f"{self.after}, {says}", layer=self.layer, position=position)
