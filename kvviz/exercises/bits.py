"""Notebook 11: round keys and values to 4 bits, so that the loss moves as little as possible."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kvviz.checking.learner_code import is_unwritten
from kvviz.exercises.answers import to_tensor
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, run_answer, with_hints
from kvviz.exercises.leaderboard import Leaderboard
from kvviz.forge import Forge, KVCache, KVEntry

BITS, GROUP = 4, 64
LINE_BYTES = 4  # of a scale and its zero point
SHARE = 0.85  # of the shift to beat, which an answer has to reach
AXES = {-2: "channel", -1: "token"}


@with_hints(
    "What do the smallest and the largest number of a line become? Use every whole number in "
    "between.",
    "Take the smallest number of a line as its zero point, and a scale of (largest - smallest) / "
    "(2**bits - 1). Then round (x - zero) / scale. In float16, the two take four bytes.",
)
def quantise(function, model, ids, *, to_beat: float) -> Feedback:
    """Notebook 11: `quantise(x, bits, axis)`: whole numbers, scales and zero points.

    `whole * scale + zero` should be near x, (B, G, 64, D). Every group of 64 tokens in a cache is
    rounded to 4 bits, keys with axis -2 and values with axis -1. The score is the shift: how far a
    token's loss moves, up or down, on average. It passes at 85% of `to_beat`.

    Args:
        model: one that `Forge.from_pretrained` takes.
        ids: (1, n) int64, a text of over 64 tokens.
        to_beat: a shift in nats, that of a scale alone.

    >>> def one_for_all(x, bits, axis):
    ...     scale = x.abs().max() / 7
    ...     return (x / scale).round(), scale, 0
    >>> kv.exercises.quantise(one_for_all, model, ids, to_beat=0.11).message[:32]
    'one scale for 22 lines: a single'
    """
    if is_unwritten(function):
        return NOT_DONE
    tried = []
    for bits in (BITS, 8):
        for axis in AXES:
            x = _make_group(axis)
            rounded, problem = _call(function, x, bits, axis)
            if problem:
                return problem
            tried.append((rounded, x, bits, axis))
    for trial in tried:
        if problem := _find_flaw(*trial):
            return problem
    shift = _measure_shift(function, model, ids)
    if isinstance(shift, Feedback):
        return shift
    board = _get_board(model, to_beat)
    board.add(function, shift)
    if shift <= SHARE * to_beat:
        found = f"a shift of {shift:.3f} in {BITS} bits, {shift / to_beat:.0%} of that to beat"
        return board.show(accept(f"{found}, at the same bytes"))
    wanted = f"expected at most {SHARE * to_beat:.3f}, and your shift is {shift:.3f}."
    return board.show(reject(f"{wanted} {_explain(tried)}"))


class _Rounded(NamedTuple):
    """What the learner's function returned, as tensors."""

    whole: Tensor
    scale: Tensor
    zero: Tensor

    def restore(self) -> Tensor:
        return self.whole.double() * self.scale.double() + self.zero.double()


def _make_group(axis: int) -> Tensor:
    """(1, 1, 64, 22) floats whose lines have a size and a middle of their own, as keys have."""
    seeded = torch.Generator().manual_seed(0)
    n_lines = GROUP if axis == -1 else 22
    size = torch.rand(n_lines, generator=seeded) * 3 + 0.3
    middle = torch.randn(n_lines, generator=seeded) * 4
    x = torch.randn(n_lines, 22 if axis == -1 else GROUP, generator=seeded)
    x = x * size[:, None] + middle[:, None]
    return (x if axis == -1 else x.T)[None, None].contiguous()


def _call(function, x: Tensor, bits: int, axis: int):
    """What `function` returns for x, as `_Rounded`, and None; or None and feedback."""
    answer, problem = run_answer(function, x.clone(), bits, axis)
    if problem is NOT_DONE:
        return None, reject("your function returned nothing: return whole, scale, zero")
    if problem:
        return None, problem
    if not isinstance(answer, tuple | list) or len(answer) not in (2, 3):
        came = type(answer).__name__
        return None, reject(f"expected three things, whole, scale and zero, but got a {came}")
    answer = (*answer, torch.zeros((), dtype=torch.float16))[:3]  # a scale alone is fine, too
    parts = [to_tensor(part) for part in answer]
    for name, part in zip(_Rounded._fields, parts, strict=True):
        if part is None or part.is_complex():
            return None, reject(f"{name}: expected a tensor of numbers")
        if not torch.isfinite(part.double()).all():
            return None, reject(f"{name}: some numbers aren't finite. Is anything divided by 0?")
    rounded = _Rounded(*parts)
    if rounded.whole.shape != x.shape:
        shapes = f"{tuple(x.shape)}, the shape of x, but got {tuple(rounded.whole.shape)}"
        return None, reject(f"whole: expected {shapes}")
    if (rounded.whole != rounded.whole.round()).any():
        return None, reject("whole: expected whole numbers. Round after dividing by the scale.")
    try:
        fits = torch.broadcast_shapes(*(part.shape for part in rounded)) == x.shape
    except RuntimeError:
        fits = False
    if not fits:
        shapes = f"{tuple(rounded.scale.shape)} and {tuple(rounded.zero.shape)}"
        return None, reject(
            f"scale and zero, {shapes}, don't fit x, {tuple(x.shape)}: keepdim=True keeps the axis"
        )
    return rounded, None


def _find_flaw(rounded: _Rounded, x: Tensor, bits: int, axis: int) -> Feedback | None:
    """What's wrong with an answer, whatever the loss says."""
    n_lines, line = x.numel() // x.shape[axis], AXES[axis]
    shape = rounded.scale.expand(rounded.scale.shape or (1,)).shape
    if rounded.scale.numel() == 1:
        return reject(
            f"one scale for {n_lines} lines: a single large number spoils it for all of them. With "
            f"axis {axis}, each {line} has its own"
        )
    if shape[axis] != 1 and rounded.scale.numel() == x.numel() // x.shape[-3 - axis]:
        other = AXES[-3 - axis]
        return reject(
            f"axis {axis} means a scale for each {line}, and yours is for each {other}: take the "
            "largest along the axis you're given"
        )
    taken = sum(part.numel() * part.element_size() for part in rounded[1:])
    taken -= 0 if rounded.zero.numel() > 1 else rounded.zero.element_size()  # one for all
    if taken > LINE_BYTES * n_lines:
        return reject(
            f"the scale and the zero point of a {line} take {taken / n_lines:g} bytes, and "
            f"{LINE_BYTES} are allowed: they're part of what the cache holds. float16 takes two"
        )
    low, high = int(rounded.whole.min()), int(rounded.whole.max())
    if high - low >= 2**bits:
        return reject(
            f"your whole numbers go from {low} to {high}, and {bits} bits have {2**bits} of them"
        )
    error = (rounded.restore() - x).abs()
    if (error > 2.5 * rounded.scale.double().abs()).any():
        return reject(_say_far_off(rounded, x, bits))
    return None


def _say_far_off(rounded: _Rounded, x: Tensor, bits: int) -> str:
    whole, scale, zero = (part.double() for part in rounded)
    if (((whole - zero) * scale - x).abs() <= scale.abs()).all():
        return "zero is added after the scale: whole * scale + zero, not (whole - zero) * scale"
    if bits == 8 and not rounded.whole.is_floating_point() and whole.min() < -100:
        return "in 8 bits, some whole numbers wrapped round: int8 ends at 127, uint8 at 255"
    at = int((rounded.restore() - x).abs().argmax())
    ours, theirs = float(x.flatten()[at]), float(rounded.restore().flatten()[at])
    return f"in {bits} bits, {ours:.2f} became {theirs:.2f}: whole * scale + zero should be near x"


def _explain(tried) -> str:
    """Why the loss moves too far, judged by numbers whose rounding is known."""
    rounded, x, *_ = tried[0]
    off = (rounded.restore() - x) / rounded.scale.double().abs()  # in steps
    inside = (rounded.whole != rounded.whole.min()) & (rounded.whole != rounded.whole.max())
    if off[inside].abs().max() > 0.75:
        down = "down" if (off[inside] < 0.1).all() else "toward zero"
        return f"Your numbers are rounded {down}: round() goes to the nearest."
    if off.abs().max() > 0.75:
        return (
            "The largest numbers are cut off: the scale is too small for them. Where do your "
            "whole numbers end?"
        )
    if not rounded.zero.any():
        return "There's no zero point: which whole numbers does a channel above zero never use?"
    used = (rounded.whole.amax(-2) - rounded.whole.amin(-2)).double().mean() + 1
    if used < 2**BITS - 2:
        return f"Your whole numbers could be {2**BITS}, but a line uses {used:.0f} on average."
    return "Does the zero point lie at an end of the line's numbers, and the scale reach the other?"


# -- the score -------------------------------------------------------------------------------------

_exact: WeakKeyDictionary = WeakKeyDictionary()  # per model: {text: the losses as floats}
_boards: WeakKeyDictionary = WeakKeyDictionary()  # per model: {to_beat: the leaderboard}


def _get_board(model, to_beat: float) -> Leaderboard:
    boards, level = _boards.setdefault(model, {}), round(to_beat, 3)
    if level not in boards:
        boards[level] = Leaderboard("shift", digits=3, to_beat={"a scale alone": level})
    return boards[level]


class _RoundedCache(KVCache):
    """Every 64 tokens are rounded once, by the learner's function; the newest are floats."""

    def __init__(self, n_layers: int, function):
        super().__init__(n_layers)
        self.function, self.problem, self.done = function, None, [0] * n_layers

    def update(self, layer: int, entry: KVEntry) -> None:
        start = self.done[layer]
        while entry.keys.shape[2] - start >= GROUP and not self.problem:
            entry = KVEntry(*map(self._round, entry, AXES, [start] * 2))
            start += GROUP
        self.done[layer] = start
        super().update(layer, entry)

    def _round(self, x: Tensor, axis: int, start: int) -> Tensor:
        group = x[:, :, start : start + GROUP]
        rounded, problem = _call(self.function, group, BITS, axis)
        if problem:
            self.problem = self.problem or problem
            return x
        return torch.cat([x[:, :, :start], rounded.restore().to(x), x[:, :, start + GROUP :]], 2)


def _measure_shift(function, model, ids: Tensor) -> float | Feedback:
    """How far a token's loss moves, on average; feedback if the function fails on the model."""
    forge, known = Forge.from_pretrained(model), _exact.setdefault(model, {})
    text, n_layers = tuple(ids.flatten().tolist()), len(forge.layers)
    if text not in known:
        known[text] = _measure_losses(forge, KVCache(n_layers), ids)
    cache = _RoundedCache(n_layers, function)
    losses = _measure_losses(forge, cache, ids)
    return cache.problem or float((losses - known[text]).abs().mean())


def _measure_losses(forge: Forge, cache: KVCache, ids: Tensor) -> Tensor:
    logits = torch.cat([forge(chunk, cache) for chunk in ids.split(GROUP, dim=1)], dim=1)
    return torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
