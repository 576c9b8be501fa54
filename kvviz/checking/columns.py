"""Which of the right columns each column of keys and values is, wherever it stands.

Keys or values of one layer and sequence, (heads, columns, D).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

# The fewest bits first: what fits into 8 of them fits into 16 as well.
_COARSER = (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16)
CLOSE = 1e-4  # how far apart two equal columns may be, relative to their size


@dataclass(frozen=True)
class Columns:
    """Keys and values beside the right ones, which are those of `positions`."""

    keys: Tensor
    values: Tensor
    right_keys: Tensor
    right_values: Tensor
    positions: Tensor

    @property
    def pairs(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """(ours, right) of the keys, and of the values."""
        return (self.keys, self.right_keys), (self.values, self.right_values)

    @cached_property
    def keys_of(self) -> list[int]:
        """For each column, which of the right columns its key belongs to; -1 for none."""
        matches = match_columns(self.keys, self.right_keys)
        return identify(matches, range(self.keys.shape[1]))

    @cached_property
    def values_of(self) -> list[int]:
        """The same for its value; where several fit, the one its key belongs to."""
        preferred = [i if key < 0 else key for i, key in enumerate(self.keys_of)]
        return identify(match_columns(self.values, self.right_values), preferred)

    @property
    def is_known(self) -> bool:
        """Whether every key and value is one of the right ones, wherever it stands."""
        return all(column >= 0 for column in [*self.keys_of, *self.values_of])

    @property
    def is_paired(self) -> bool:
        """Whether, besides, every key stands with its own value."""
        return self.is_known and self.keys_of == self.values_of

    @cached_property
    def expected(self) -> list[int]:
        return self.positions.tolist()

    @cached_property
    def found(self) -> list[int]:
        """The position that each column belongs to, where all of them are paired."""
        return self.positions[self.keys_of].tolist()

    @property
    def missing(self) -> list[int]:
        return sorted(set(self.expected) - set(self.found))

    @property
    def repeated(self) -> list[int]:
        return sorted({position for position in self.found if self.found.count(position) > 1})


def match_columns(ours: Tensor, right: Tensor, within: float = CLOSE) -> Tensor:
    """(C, N) bool: which of `right`'s N columns each of our C columns equals."""
    if ours.shape[0] != right.shape[0] or ours.shape[2] != right.shape[2]:
        return torch.zeros(ours.shape[1], right.shape[1], dtype=torch.bool)
    a, b = (x.double().transpose(0, 1).flatten(1) for x in (ours, right))
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") <= within * b.norm(dim=1)


def identify(matches: Tensor, preferred) -> list[int]:
    """The match of each column: the preferred one if it fits, since tokens repeat; -1 for none."""
    fits = [row.nonzero()[:, 0].tolist() for row in matches]
    wished = zip(fits, preferred, strict=True)
    return [wish if wish in fit else fit[0] if fit else -1 for fit, wish in wished]


class Scale(NamedTuple):
    """Whole numbers times a scale: of how many bits, and what shares one scale, in words."""

    bits: int
    shared: str

    def __str__(self):
        return f"{self.bits} bits, with one scale {self.shared}"


ALL_TOKENS = "for each channel, over all tokens"
_SHARED = {  # the axes of (heads, columns, D) along which numbers share a scale
    (2,): "for each token and head",
    (0, 2): "for each token",
    (1,): ALL_TOKENS,
    (0,): "for each token and channel, over all heads",
    (0, 1): "for each channel, over all heads and tokens",
    (0, 1, 2): "for all numbers",
}


def find_precision(x: Tensor) -> str | None:
    """In words, the coarser kind of number that x (heads, columns, D) was kept in; else None."""
    for kind in _COARSER:
        if torch.equal(x.to(kind).to(x.dtype), x):
            return str(kind).removeprefix("torch.")
    return str(scale) if (scale := find_scale(x)) else None


def find_scale(x: Tensor) -> Scale | None:
    """The scale that x (heads, columns, D) was rounded with; None if no scale makes it whole.

    Some of those that share a scale are whole in any case: the largest, and with an offset the
    smallest too. So a scale is tried only where more numbers share it than that.
    """
    for dims, shared in _SHARED.items():
        n_shared = math.prod(x.shape[dim] for dim in dims)
        low, high = x.amin(dims, keepdim=True), x.amax(dims, keepdim=True)
        largest, spread = x.abs().amax(dims, keepdim=True), (high - low).clamp_min(1e-30)
        for levels in (127, 7):
            steps = x / largest.clamp_min(1e-30) * levels, (x - low) / spread * (2 * levels + 1)
            for each in steps[: max(0, n_shared - 1)]:
                if (each - each.round()).abs().max() < 0.01:
                    return Scale(levels.bit_length() + 1, shared)
    return None


def name_positions(positions: list[int]) -> str:
    """Positions in words: "position 3", "positions 2 to 5", "positions 1, 4, 6"."""
    first, last = positions[0], positions[-1]
    if len(positions) == 1:
        return f"position {first}"
    if positions == list(range(first, last + 1)):
        return f"positions {first} to {last}"
    return f"positions {list_positions(positions)}"


def list_positions(positions: list[int]) -> str:
    """The first eight positions, with commas."""
    return ", ".join(map(str, positions[:8])) + ", ..." * (len(positions) > 8)
