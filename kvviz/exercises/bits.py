"""Notebook 11: round keys and values to 4 bits, so that the loss moves as little as possible."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kvviz.arguments import check_number
from kvviz.checking.learner_code import is_unwritten
from kvviz.checking.loop_inputs import check_model, check_prompt
from kvviz.exercises.bit_shift import AXES, BITS, GROUP, Rounded, call_quantise, measure_shift
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, with_hints
from kvviz.exercises.leaderboard import Leaderboard

LINE_BYTES = 4  # of a scale and its zero point
SHARE = 0.85  # of the shift to beat, which an answer has to reach


@with_hints(
    "What do the smallest and the largest number of a line become? Use every whole number in "
    "between.",
    "Take the smallest number of a line as its zero point, and a scale of (largest - smallest) / "
    "(2**bits - 1). Then round (x - zero) / scale. In float16, the two take four bytes.",
)
def quantise(function, model, ids, *, to_beat: float) -> Feedback:
    """Notebook 11: `quantise(x, bits, axis)`: whole numbers, scales and zero points.

    `whole * scale + zero` should be near x, (B, G, 64, D), and whole is int8 or uint8. Every group
    of 64 tokens in a cache is rounded to 4 bits, keys with axis -2 and values with axis -1. The
    score is the shift: how far a token's loss moves, up or down, on average. It passes at 85% of
    `to_beat`.

    Args:
        model: one that `Forge.from_pretrained` takes.
        ids: (1, n) int64, a text of over 64 tokens.
        to_beat: a shift in nats, that of a scale alone.

    Raises:
        TypeError: `model` isn't a model of `transformers`.
        ValueError: `ids` isn't one text of over 64 tokens, `to_beat` isn't above 0, or `model`
            isn't a Llama.

    >>> def one_for_all(x, bits, axis):
    ...     scale = x.abs().max() / 7
    ...     return (x / scale).round(), scale, 0
    >>> kv.exercises.quantise(one_for_all, model, ids.repeat(1, 11), to_beat=0.11).message[:22]
    'one scale for 22 lines'
    """
    check_model(model)
    check_prompt(ids)
    if ids.shape[1] <= GROUP:
        raise ValueError(f"ids: expected (1, over {GROUP}), but got {tuple(ids.shape)}")
    to_beat = check_number("to_beat", to_beat, above=0)
    if is_unwritten(function):
        return NOT_DONE
    tried = []
    for bits in (BITS, 8):
        for axis in AXES:
            x = _make_group(axis)
            rounded, problem = call_quantise(function, x, bits, axis)
            if problem:
                return problem
            tried.append((rounded, x, bits, axis))
    for trial in tried:
        if problem := _find_flaw(*trial):
            return problem
    shift = measure_shift(function, model, ids)
    if isinstance(shift, Feedback):
        return shift
    board = _get_board(model, to_beat)
    board.add(function, shift)
    if shift <= SHARE * to_beat:
        found = f"a shift of {shift:.3f} in {BITS} bits, {shift / to_beat:.0%} of that to beat"
        return board.show(accept(f"{found}, at the same bytes"))
    wanted = f"expected at most {SHARE * to_beat:.3f}, and your shift is {shift:.3f}."
    return board.show(reject(f"{wanted} {_explain(tried)}"))


def _make_group(axis: int) -> Tensor:
    """(1, 1, 64, 22) floats whose lines have a size and a middle of their own, as keys have."""
    seeded = torch.Generator().manual_seed(0)
    n_lines = GROUP if axis == -1 else 22
    size = torch.rand(n_lines, generator=seeded) * 3 + 0.3
    middle = torch.randn(n_lines, generator=seeded) * 4
    x = torch.randn(n_lines, 22 if axis == -1 else GROUP, generator=seeded)
    x = x * size[:, None] + middle[:, None]
    return (x if axis == -1 else x.T)[None, None].contiguous()


def _find_flaw(rounded: Rounded, x: Tensor, bits: int, axis: int) -> Feedback | None:
    """What's wrong with an answer, whatever the loss says."""
    n_lines, line = x.numel() // x.shape[axis], AXES[axis]
    shape = (1,) * (x.ndim - rounded.scale.ndim) + tuple(rounded.scale.shape)
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
    if (size := rounded.whole.element_size()) > 1:
        came = str(rounded.whole.dtype).removeprefix("torch.")
        return reject(
            f"your whole numbers are right, but each takes {size} bytes, as {came}: what's held is "
            "as large as before, or larger. int8 and uint8 take one, and two in 4 bits share one"
        )
    return None


def _say_far_off(rounded: Rounded, x: Tensor, bits: int) -> str:
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


_boards: WeakKeyDictionary = WeakKeyDictionary()  # per model: {to_beat: the leaderboard}


def _get_board(model, to_beat: float) -> Leaderboard:
    boards, level = _boards.setdefault(model, {}), round(to_beat, 3)
    if level not in boards:
        boards[level] = Leaderboard("shift", digits=3, to_beat={"a scale alone": level})
    return boards[level]
