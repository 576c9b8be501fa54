"""What `draw_rotation` shows: how far each pair of a key's numbers turns, and how long it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvviz.arguments import check_whole, describe, is_whole, list_several
from kvviz.drawing.inputs import to_numbers
from kvviz.words import join, pluralize

MOST = 8  # pairs
SAME = 0.01  # of its length: a pair that changes by less has kept its length
TINY = 1e-3  # of the longest pair: a pair that is shorter points nowhere
FASTEST = 1.0  # radians per position: the first pair's rate, whatever the base
NEAR = 0.03  # radians: angles closer than that are the same but for rounding


@dataclass(frozen=True)
class Pair:
    """Two numbers of a key or value at n positions, as arrows.

    Attributes:
        number: i, which pairs number i with number i + D/2.
        arrows: (n, 2), x and y.
        angles: degrees turned since the first position, with whole turns if `rate` is known, and
            the nearest way if no rate fits; None where an arrow is too short to point anywhere.
        rate: degrees per position if all angles fit one rate and no other; else None.
        is_even: whether some rate fits all angles.
    """

    number: int
    arrows: np.ndarray
    angles: list[int | None]
    rate: float | None
    is_even: bool

    @property
    def lengths(self) -> np.ndarray:
        return np.hypot(*self.arrows.T)

    def write_rate(self) -> str:
        """`57° per position`, or why that isn't known."""
        if self.rate is None:
            return "whole turns not counted" if self.is_even else "at no steady rate"
        if self.rate < 0.01:
            return "under 0.01° per position"
        return (
            f"{self.rate:.2g}° per position" if self.rate < 10 else f"{self.rate:.0f}° per position"
        )


def read_vectors(name: str, given) -> tuple[list[int], np.ndarray]:
    """Positions, and numbers (n, D).

    Raises:
        ValueError: see `draw_rotation`.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{name}: expected {{position: D numbers}}, but got {describe(given)}")
    if len(given) < 2:
        raise ValueError(f"{name}: expected at least two positions, but got {len(given)}")
    positions = [check_whole(f"{name}, position", each, 0) for each in given]
    vectors = []
    for position, numbers in given.items():
        numbers = to_numbers(f"{name}[{position}]", numbers)
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            came = f"shape {numbers.shape}" if numbers.ndim != 1 else "some that aren't finite"
            raise ValueError(f"{name}[{position}]: expected D finite numbers, but got {came}")
        vectors.append(numbers)
    sizes = sorted({len(each) for each in vectors})
    if len(sizes) > 1 or sizes[0] < 2 or sizes[0] % 2:
        raise ValueError(
            f"{name}: expected an even number of numbers at each position, got {sizes}"
        )
    return positions, np.stack(vectors)


def choose_pairs(pairs, width: int) -> list[int]:
    """The pairs asked for or, by default, the fastest, one of the middle and the slowest."""
    half = width // 2
    if pairs is None:
        return sorted({0, half // 4, half - 1})
    listed = list_several("pairs", pairs, "a list of numbers")
    numbers = list(dict.fromkeys(int(i) for i in listed if is_whole(i) and 0 <= i < half))
    if not 0 < len(numbers) <= MOST or not all(is_whole(i) and 0 <= i < half for i in listed):
        raise ValueError(
            f"pairs: expected 1 to {MOST} of 0 to {half - 1}, but got {describe(pairs)}"
        )
    return numbers


def read_pair(number: int, positions: Sequence[int], vectors: np.ndarray) -> Pair:
    """One pair of numbers as arrows, with the angles between them."""
    half = vectors.shape[1] // 2
    arrows = vectors[:, [number, number + half]]
    longest = np.hypot(vectors[:, :half], vectors[:, half:]).max()
    points = np.hypot(*arrows.T) > TINY * longest
    if not points[0]:
        return Pair(number, arrows, [None] * len(arrows), None, True)
    directions = np.arctan2(arrows[:, 1], arrows[:, 0])
    steps = np.array(positions) - positions[0]
    turns = _wrap(np.where(steps < 0, -1, 1) * (directions - directions[0]))
    rates = _find_rates(np.abs(steps[points]), turns[points])
    rate = rates[0] if len(rates) == 1 else None
    if rate is not None:
        turns = turns + 2 * np.pi * np.rint((rate * np.abs(steps) - turns) / (2 * np.pi))
    degrees = np.rint(np.degrees(turns)).astype(int)
    if rate is None:
        degrees = degrees % 360 if rates else (degrees + 179) % 360 - 179
    degrees = degrees * np.where(steps < 0, -1, 1)
    angles = [int(a) if there else None for a, there in zip(degrees, points, strict=True)]
    rate = None if rate is None else float(np.degrees(rate))
    return Pair(number, arrows, angles, rate, len(rates) > 0)


def _wrap(turns: np.ndarray) -> np.ndarray:
    """Radians in one turn, from about 0 up: just under a whole turn is just under zero."""
    turns = np.mod(turns, 2 * np.pi)
    return np.where(turns > 2 * np.pi - 1e-3, turns - 2 * np.pi, turns)


def _find_rates(steps: np.ndarray, turns: np.ndarray) -> list[float]:
    """Each rate, in radians per position, that turns by `turns` over those `steps`.

    Rotary positions turn by a radian at most; only if no such rate fits, it may be half a turn.
    """
    moved = steps > 0
    if not moved.any():
        return []
    shortest = int(np.flatnonzero(moved)[steps[moved].argmin()])
    step, turn = int(steps[shortest]), turns[shortest]
    rates = (turn + 2 * np.pi * np.arange(step // 2 + 1)) / step
    rates = rates[rates <= np.pi]
    gaps = rates[:, None] * steps - turns
    fits = np.abs(gaps - 2 * np.pi * np.rint(gaps / (2 * np.pi))).max(1) < NEAR
    fitting = [max(0.0, float(rate)) for rate in rates[fits]]
    return [rate for rate in fitting if rate <= FASTEST + NEAR] or fitting


def find_changes(vectors: np.ndarray) -> dict[int, float]:
    """{pair: change}: the pairs whose length changes, relative to their length at first."""
    half = vectors.shape[1] // 2
    lengths = np.hypot(vectors[:, :half], vectors[:, half:])
    floor = max(TINY * lengths.max(), 1e-30)
    changes = np.abs(lengths - lengths[0]).max(0) / np.maximum(lengths[0], floor)
    return {int(i): float(changes[i]) for i in np.flatnonzero(changes > SAME)}


def is_same(vectors: np.ndarray) -> bool:
    """Whether the numbers are the same at every position, but for rounding."""
    return bool(np.abs(vectors - vectors[0]).max() <= SAME * max(np.abs(vectors[0]).max(), 1e-30))


# -- the sentence --------------------------------------------------------------------------------


def describe_lengths(vectors: np.ndarray) -> str:
    changes, n = find_changes(vectors), vectors.shape[1] // 2
    if not changes:
        return "its length never changes" if n == 1 else f"each of its {n} pairs keeps its length"
    largest = max(changes, key=changes.get)
    most = changes[largest]
    by = f"by {100 * most:.0f}%" if most < 10 else "by more than ten times"
    which = pluralize(len(changes), "pair")
    verb = "changes its" if len(changes) == 1 else "change their"
    return f"{which} of {n} {verb} length, pair {largest} {by}: that isn't a rotation alone"


def describe_pair(pair: Pair, half: int) -> str:
    """How far a pair turns per position, and how far it has turned at each."""
    name = f"pair {pair.number} (numbers {pair.number} and {pair.number + half})"
    angles = ", ".join(map(write_angle, pair.angles))
    if all(angle is None for angle in pair.angles):
        return f"{name} is too short to have a direction"
    if pair.rate is not None:
        return f"{name} turns {pair.write_rate()}: {angles}"
    return f"{name} turns {angles}, {pair.write_rate()}"


def write_angle(angle: int | None) -> str:
    """`401°`; a pair that points nowhere has none."""
    return "–" if angle is None else f"{angle:,}°".replace("-", "−")


def describe_rotation(positions, vectors, pairs: Sequence[Pair], values) -> str:
    half = vectors.shape[1] // 2
    clauses = [f"at positions {join([str(each) for each in positions])}"]
    clauses += [describe_pair(pair, half) for pair in pairs]
    clauses.append(describe_lengths(vectors))
    if values is not None:
        same = "is the same at every position" if is_same(values) else "differs between positions"
        clauses.append(f"the value {same}")
    return "; ".join(clauses)
