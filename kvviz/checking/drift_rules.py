"""The rule for what is held and comes back changed by less than any column would be told apart by.

In decode a little change in keys or values looks like any other small difference in the output. So
what attention saw is compared with what it saw at the same positions one step before.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kvviz.checking.causes import Cause
from kvviz.checking.columns import find_precision, name_positions
from kvviz.checking.evidence import LayerEvidence
from kvviz.words import pluralize

LEAST, MOST = 3e-7, 1e-3  # of the largest number: over float32's last digits, under other mistakes


class _Change(NamedTuple):
    """Keys or values at some positions: `was` one step before, `now` when they were read."""

    name: str
    was: Tensor
    now: Tensor
    positions: list[int]
    n_read: int


def held_came_back_changed(layer: LayerEvidence) -> Cause | None:
    """The first step at which what was held is no longer quite what it was."""
    if layer.output is not None and not follows_from_columns(layer):
        return None
    fed_before = layer.run[0].fed
    for index in range(1, layer.index + 1):
        before, step = layer.run[index - 1], layer.run[index]
        for number in (each for each in step.layers if each in before.layers):
            if changes := _list_changes(before, step, number, fed_before, layer.sequence):
                name, says = _describe(changes)
                at = f"step {index}" + f", layer {number}" * (number != step.layers[0])
                return Cause(name, f"{at}: {says}", index, number, changes[0].positions[0])
        fed_before += step.fed
    return None


def follows_from_columns(layer: LayerEvidence) -> bool:
    """Whether the output follows, under the right mask, from what attention saw, and not from what
    it should have seen."""
    if layer.output is None or layer.output.shape != layer.right_output.shape:
        return False
    n = len(layer.seen.positions)
    if layer.seen.keys.shape[1] != n or layer.seen.values.shape[1] != n:
        return False
    causal = torch.arange(layer.fed_before, layer.end)[:, None] >= layer.seen.positions[None]
    off = float((layer.output - layer.right_output).abs().max())
    return layer.blend_gap(causal, layer.output) < off / 3


def _list_changes(before, step, number: int, fed_before: int, sequence: int) -> list[_Change]:
    """What changed a little between two steps in one layer, of the columns that were held."""
    held = min(fed_before, step.before.get(number, fed_before))
    old, new = (each.column_positions(number).tolist() for each in (before, step))
    shared = [position for position in new if 0 <= position < held and position in old]
    changes = []
    for name in ("keys", "values") if shared else ():
        pairs = (before, old), (step, new)
        was, now = (
            each.kept[name][number][sequence][:, [at.index(position) for position in shared]]
            for each, at in pairs
        )
        if was.shape != now.shape:
            continue
        off = (now - was).abs().amax((0, 2)) / was.abs().max()
        changed = (off > LEAST).nonzero()[:, 0].tolist()
        if changed and off.max() <= MOST:
            positions = [shared[i] for i in changed]
            changes.append(_Change(name, was[:, changed], now[:, changed], positions, len(shared)))
    return changes


def _describe(changes: list[_Change]) -> tuple[str, str]:
    """The name of the cause, and what came back, in words."""
    what = " and ".join(change.name for change in changes)
    is_whole = len(changes[0].positions) == changes[0].n_read
    where = "" if is_whole else f" of {name_positions(changes[0].positions)}"
    what = f"the {what}{where} that were held came back"
    if all(find_precision(c.now) and not find_precision(c.was) for c in changes):
        return "precision", f"{what} rounded to {find_precision(changes[0].now)}"
    factors = [_find_factor(change.was, change.now) for change in changes]
    largest = max(float((c.now - c.was).abs().max() / c.was.abs().max()) for c in changes)
    if None in factors or (min(factors) < 1) != (max(factors) < 1):
        return "held changed a little", f"{what} changed, by up to {_count(largest)} of the largest"
    word = "larger" if factors[0] > 1 else "smaller"
    return "held changed a little", f"{what} {word} by {_count(max(abs(f - 1) for f in factors))}"


def _find_factor(was: Tensor, now: Tensor) -> float | None:
    """The one number that everything was multiplied by; None if that isn't what happened."""
    was, now = was.double(), now.double()
    factor = float((was * now).sum() / (was * was).sum())
    is_one = (now - factor * was).abs().max() <= (now - was).abs().max() / 3
    return factor if is_one else None


def _count(share: float) -> str:
    return pluralize(max(1, round(1e6 * share)), "millionth")
