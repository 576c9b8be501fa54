"""The one way of comparing tokens, logits, keys and values, and work with an uncached pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kvviz.checking.verdict import Finding
from kvviz.recording.step import Step
from kvviz.words import pluralize

GATE = 1e-5  # largest gap allowed in float32, relative to the largest number of the right result
SEEN = ("queries", "keys", "values", "outputs")  # what `record` must keep of every layer


@dataclass(frozen=True)
class Reference:
    """What is right for one text: the greedy tokens, and one pass over them without a cache.

    Attributes:
        ids: (1, p + n), the prompt and the new tokens.
        n_prompt: p.
        logits: (1, p + n - 1, vocabulary), of every token but the last.
        whole: that pass, with `SEEN` kept.
        gate: largest gap allowed, relative to the largest number.
        hidden: last hidden states of the same tokens, (p + n - 1, width); None if not seen.
        seconds: what it took to compute.
    """

    ids: Tensor
    n_prompt: int
    logits: Tensor
    whole: Step
    gate: float = GATE
    hidden: Tensor | None = None
    seconds: float = 0.0

    @property
    def n_new(self) -> int:
        return self.ids.shape[1] - self.n_prompt

    @property
    def prompt(self) -> Tensor:
        return self.ids[:, : self.n_prompt]


@dataclass
class Comparison:
    """The largest gap found so far, and the first place where it is over the gate."""

    gate: float
    gap: float = 0.0  # relative to the largest number of the right result
    count: int = 0
    trouble: str = ""
    step: int | None = None
    layer: int | None = None
    position: int | None = None

    def add(self, ours: Tensor, right: Tensor, positions: Tensor, scale, step, layer=None):
        """Compare tensors (heads or 1, positions, numbers) of one step."""
        self.count += 1
        if ours.shape != right.shape:
            gap, position, trouble = float("inf"), None, f"shape {tuple(ours.shape)}"
            trouble += f" where {tuple(right.shape)} was expected"
        else:
            gaps = (ours - right).abs().amax((0, 2)) / scale  # one for each position
            over = (~(gaps <= self.gate)).nonzero()  # a gap that is no number is over every gate
            gap = float("inf") if gaps.isnan().any() else float(gaps.max())
            trouble = (
                "not a number" if gap == float("inf") else f"off by {gap:.0e} of the largest number"
            )
            position = int(positions[over[0, 0]]) if len(over) else None
        self.gap = max(self.gap, gap)
        if gap > self.gate and self.step is None:
            self.step, self.layer, self.position, self.trouble = step, layer, position, trouble

    def finding(self, name: str, what: str) -> Finding:
        """The comparison in one line; `what` says how much was compared."""
        if not self.count:
            return Finding(name, None, "nothing left to compare")
        if self.step is None:
            return Finding(name, True, f"{what}: within {self.gate:.0e} of the largest number")
        found = {"step": self.step, "layer": self.layer, "position": self.position}
        where = ", ".join(
            f"{part} {number}" for part, number in found.items() if number is not None
        )
        return Finding(name, False, f"first at {where}: {self.trouble}")


def count_common(one, other) -> int:
    """How many items, from the first, are the same in both.

    >>> count_common([5, 6, 7, 8], [5, 6, 9, 8])
    2
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def compare_tokens(ours: list[int], right: list[int], label=str, ends=()) -> Finding:
    """New tokens, one by one; `ends` are tokens at which a text may stop early."""
    first = count_common(ours, right)
    if first < min(len(ours), len(right)):
        came, expected = label(ours[first]), label(right[first])
        return Finding("tokens", False, f"new token {first} is {came!r}, expected {expected!r}")
    stopped = len(ours) < len(right) and ours[-1:] and ours[-1] in ends
    if len(ours) != len(right) and not stopped:
        n = pluralize(len(ours), "new token")
        return Finding("tokens", False, f"{n}, expected {len(right)}")
    return Finding("tokens", True, f"all {len(ours)} new tokens equal")


def compare_logits(rows, reference: Reference, until: int | None = None) -> Comparison:
    """Logits `rows`, each (step, positions, logits (1, positions, vocabulary))."""
    compared, right = Comparison(reference.gate), reference.logits
    scale, end = right.abs().max(), right.shape[1] if until is None else until
    for step, positions, ours in rows:
        if positions[-1] < min(end, right.shape[1]):
            compared.add(ours, right[:, positions], positions, scale, step)
    return compared


def compare_entries(run, reference: Reference, until: int | None = None) -> Comparison:
    """Every step's keys and values, each column with the right one for its position."""
    compared, whole = Comparison(reference.gate), _AllLayers(reference)
    for step in run:
        positions = {layer: step.column_positions(layer) for layer in step.layers}
        gap = whole.find_gap(step, positions, until)
        if gap is not None and gap <= compared.gate:
            compared.gap, compared.count = max(compared.gap, gap), compared.count + 1
            continue
        for layer, at in positions.items():
            for name in ("keys", "values"):
                ours, right = (each.kept[name][layer][0] for each in (step, reference.whole))
                known = (at >= 0) & (at < _end(right, until))
                if known.any():
                    columns = ours[:, known], right[:, at[known]]
                    compared.add(*columns, at[known], right.abs().max(), step.index, layer)
    return compared


def _end(right: Tensor, until: int | None) -> int:
    return right.shape[1] if until is None else min(until, right.shape[1])


class _AllLayers:
    """The right keys and values of all layers in one tensor each: one comparison for a step."""

    def __init__(self, reference: Reference):
        self.kept, self.sides = reference.whole.kept, {}

    def find_gap(self, step, positions, until) -> float | None:
        """The largest gap of a step's columns that stand in order from 0; None if they don't."""
        at = [*positions.values()]
        n = len(at[0]) if at else 0
        if not n or not torch.equal(at[0], torch.arange(n)):
            return None
        if not all(torch.equal(each, at[0]) for each in at[1:]):
            return None
        found = [self._gap(name, step, tuple(positions), n, until) for name in ("keys", "values")]
        return None if None in found else max(found)

    def _gap(self, name, step, layers, n, until) -> float | None:
        ours = [step.kept[name][layer][0] for layer in layers]
        right, scale = self._right(name, layers)
        if right is None or n > _end(right[0], until):
            return None
        if any(x.shape != right[0, :, :n].shape for x in ours):
            return None
        gaps = (torch.stack(ours) - right[:, :, :n]).abs().amax((1, 2, 3)) / scale
        return None if gaps.isnan().any() else float(gaps.max())

    def _right(self, name, layers):
        """(layers, heads, positions, width), and the largest number of each layer."""
        if (name, layers) not in self.sides:
            rights = [self.kept[name][layer][0] for layer in layers]
            alike = len({x.shape for x in rights}) == 1
            right = torch.stack(rights) if alike else None
            self.sides[name, layers] = right, right.abs().amax((1, 2, 3)) if alike else None
        return self.sides[name, layers]


def compare_work(rows: list[int], needed: int, spare: int = 0) -> Finding:
    """Rows computed in each step, with the number of rows that the text needs."""
    if sum(rows) <= needed + spare:
        return Finding("work", True, f"{pace(rows)}; {sum(rows)} rows in all")
    shown = rows if len(rows) < 6 else [*rows[:4], "..."]
    listed = ", ".join(map(str, shown))
    return Finding("work", False, f"rows {listed}: {sum(rows)} in all, {needed} needed")


def pace(rows: list[int]) -> str:
    """How many rows a step computes, in words."""
    return "1 row a step" if rows[-1] == 1 else f"{rows[-1]} rows in the last step"
