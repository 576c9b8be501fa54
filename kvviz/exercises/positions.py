"""Notebook 09: move cached keys to other positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from kvviz.exercises.answers import to_tensor
from kvviz.exercises.feedback import Feedback, accept, reject, run_answer, with_hints
from kvviz.forge import KVEntry

TOLERANCE = 1e-3  # of an entry's size; float32 stays far below, and any mistake here is far above


class _Move(NamedTuple):
    """An entry to move, the same entry in the right place, and what the function is given."""

    name: str
    entry: KVEntry
    from_: Tensor
    to: Tensor
    frequencies: Tensor
    right: Tensor


def _rotate(keys: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Keys (B, G, held, D), each rotated to `positions` (held,); number i pairs with i + D/2."""
    cos, sin = _turn(positions, frequencies)
    first, second = keys.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _rotate_neighbours(keys: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    cos, sin = _turn(positions, frequencies)
    first, second = keys[..., ::2], keys[..., 1::2]
    return torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)


def _turn(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    angles = positions[:, None].double() * frequencies.double()
    return angles.cos(), angles.sin()


def _make_moves() -> list[_Move]:
    """Moves of random entries: several shapes, offsets, batches and frequencies."""
    shift, back = torch.arange(6), torch.arange(3, 10)
    cases = (
        ("6 keys moved 100 on", (1, 3, 6, 64), 1e5, shift, shift + 100),
        ("7 keys moved 3 back", (2, 2, 7, 14), 1e4, back, back - 3),
        ("5 keys in any order", (1, 1, 5, 22), 5e5, [0, 3, 4, 9, 12], [4, 0, 9, 1, 7]),
        ("1 key of 3 texts", (3, 2, 1, 8), 1e2, [7], [1000]),
        ("4 keys that stay", (1, 2, 4, 6), 1e4, [2, 3, 4, 5], [2, 3, 4, 5]),
    )
    seeded, moves = torch.Generator().manual_seed(0), []
    for name, shape, theta, from_, to in cases:
        from_, to = torch.as_tensor(from_), torch.as_tensor(to)
        frequencies = 1 / theta ** (torch.arange(0, shape[-1], 2) / shape[-1])
        keys, values = torch.randn(2, *shape, generator=seeded)
        unrotated = keys.double()
        entry = KVEntry(_rotate(unrotated, from_, frequencies).float(), values)
        right = _rotate(unrotated, to, frequencies)
        moves.append(_Move(name, entry, from_, to, frequencies, right))
    return moves


class _Mistake(NamedTuple):
    """What a typical mistake makes of the keys, and the hint."""

    make: Callable[[_Move], Tensor]
    hint: str


def _by(positions: Callable[[_Move], Tensor], rotate=_rotate) -> Callable[[_Move], Tensor]:
    return lambda move: rotate(move.entry.keys.double(), positions(move), move.frequencies)


def _difference(move: _Move) -> Tensor:
    return move.to - move.from_


def _by_angles(turn: Callable[[Tensor], Tensor]) -> Callable[[_Move], Tensor]:
    return lambda move: _rotate(
        move.entry.keys.double(), _difference(move), turn(move.frequencies.double())
    )


_RADIANS = (
    "you took degrees for radians, or radians for degrees. `frequencies` is in radians per "
    "position, and cos and sin take radians: there's nothing to convert."
)
_PAIRS = (
    "your pairs are neighbours, numbers 0 and 1, then 2 and 3. In this model, number i pairs with "
    "number i + D/2: x.chunk(2, dim=-1) gives you the two halves."
)
_MISTAKES = (
    _Mistake(lambda move: move.entry.keys.double(), "the keys are where they were: at from_"),
    _Mistake(
        _by(lambda move: move.to),
        "they're already rotated by from_, so rotating by `to` on top leaves them at from_ + to",
    ),
    _Mistake(
        _by(lambda move: -_difference(move)),
        "wrong direction: a key that should go from 3 to 0 went to 6. Check the sign.",
    ),
    _Mistake(
        _by(lambda move: -move.from_),
        "you undid the rotation by from_, so now they're all at position 0: rotate them by `to`",
    ),
    _Mistake(
        _by(lambda move: move.from_ + move.to),
        "they're already rotated by from_: how much further is it to `to`?",
    ),
    _Mistake(
        _by(lambda move: _difference(move)[:1].expand(move.to.shape)),
        "you moved all keys as far as the first one. Each has its own from_ and its own to.",
    ),
    _Mistake(
        _by_angles(torch.ones_like),
        "you rotated every pair by the same angle. Each pair has a frequency of its own.",
    ),
    _Mistake(_by_angles(torch.deg2rad), _RADIANS),
    _Mistake(_by_angles(torch.rad2deg), _RADIANS),
    _Mistake(
        _by(lambda move: move.to.sort().values - move.from_),
        "you sorted `to`. The first key goes to the first position in `to`, and so on, even where "
        "they don't rise.",
    ),
    _Mistake(
        lambda move: move.right[:, :, move.to.argsort()],
        "the keys are rotated right, but you sorted them by position. Each stays in its column.",
    ),
    _Mistake(_by(_difference, _rotate_neighbours), _PAIRS),
    _Mistake(_by(lambda move: move.to, _rotate_neighbours), _PAIRS),
    _Mistake(_by(lambda move: -_difference(move), _rotate_neighbours), _PAIRS),
)


@with_hints(
    "Two rotations in a row add up. What's left to rotate, if a key is at from_ and should be at "
    "`to`? And what in an entry carries a position?",
    "The angles are (to - from_)[:, None] * frequencies, (held, D/2). Split the keys into halves, "
    "a and b. The new halves are a * cos - b * sin and b * cos + a * sin. The values stay.",
)
def move(function) -> Feedback:
    """Notebook 09: `move(entry, from_, to, frequencies)`, a KVEntry at other positions.

    It's tried on entries (B, G, held, D) whose keys are rotated for the positions `from_`, (held,)
    int64, and judged at float32; `frequencies` is (D/2,), radians per position.

    >>> kv.exercises.move(lambda entry, from_, to, frequencies: entry)
    ✗ not right yet: 6 keys moved 100 on: the keys are where they were: at from_
    """
    moves, answers = _make_moves(), []
    for each in moves:
        entry = KVEntry(each.entry.keys.clone(), each.entry.values.clone())
        positions = each.from_.clone(), each.to.clone()
        answer, problem = run_answer(function, entry, *positions, each.frequencies.clone())
        if problem and problem.state == "not right yet":
            return reject(f"{each.name}: {problem.message}{_say_sizes(each, moves[0])}")
        if problem:
            return problem
        parts, problem = _read(answer, each)
        if problem:
            return problem
        answers.append(parts)
    return _judge(moves, answers) or accept(
        "right for 5 moves: forward, back, in any order, of a batch, and of none; the values stayed"
    )


def _say_sizes(move: _Move, first: _Move) -> str:
    """What differs from the first call, which has the default model's sizes; "" for that call."""
    d = move.entry.keys.shape[-1]
    if d == (before := first.entry.keys.shape[-1]):
        return ""
    return (
        f". In this call, D is {d}, not {before} as in the first call and in the default model. "
        f"Take the angles from `frequencies`, here ({d // 2},), not from the model."
    )


def _read(answer, move: _Move) -> tuple[tuple[Tensor, Tensor] | None, Feedback | None]:
    """The keys and values in an answer; or feedback, if it isn't an entry."""
    shape = tuple(move.entry.keys.shape)
    if isinstance(answer, torch.Tensor) and tuple(answer.shape) == shape:
        right = "the keys are right. " if _is_close(answer, move.right) else ""
        return None, reject(f"{move.name}: {right}Return an entry, kv.KVEntry(keys, values)")
    is_pair = isinstance(answer, tuple | list) and len(answer) == 2
    parts = [to_tensor(part) for part in answer] if is_pair else []
    if not is_pair or None in [part if part is None else 0 for part in parts]:
        got = type(answer).__name__
        return None, reject(f"{move.name}: return an entry, kv.KVEntry(keys, values); got {got}")
    for name, part in zip(("keys", "values"), parts, strict=True):
        if tuple(part.shape) != shape:
            found = f"expected {name} of shape {shape}, but got {tuple(part.shape)}"
            return None, reject(f"{move.name}: {found}")
    return tuple(parts), None


def _judge(moves: list[_Move], answers: list[tuple[Tensor, Tensor]]) -> Feedback | None:
    """The mistake that explains all the answers, else the first one that's wrong; or None."""
    right = [_is_close(keys, each.right) for each, (keys, _) in zip(moves, answers, strict=True)]
    if all(right):
        return _judge_values(moves, answers)
    first = right.index(False)
    for mistake in _MISTAKES:
        made = [mistake.make(each) for each in moves]
        pairs = zip(answers, made, strict=True)
        if all(_is_close(keys, wrong, 5 * TOLERANCE) for (keys, _), wrong in pairs):
            return reject(f"{moves[first].name}: {mistake.hint}")
    each, keys = moves[first], answers[first][0]
    off = (keys.double() - each.right).abs().amax(dim=(0, 1))  # (held, D)
    token, number = divmod(int(off.argmax()), off.shape[1])
    where = f"from {int(each.from_[token])} to {int(each.to[token])}"
    return reject(
        f"{each.name}: the key that goes {where} isn't right; number {number} of "
        f"{off.shape[1]} is furthest off. Which pair is it in, and by which angle should it rotate?"
    )


def _judge_values(moves, answers) -> Feedback | None:
    for each, (_, values) in zip(moves, answers, strict=True):
        if not _is_close(values, each.entry.values.double()):
            return reject(
                f"{each.name}: the keys are right, but the values changed. Values carry no "
                "position: return them as they are."
            )
    return None


def _is_close(ours: Tensor, right: Tensor, tolerance: float = TOLERANCE) -> bool:
    off = (ours.double() - right).abs().max()
    return bool(off <= tolerance * right.abs().max())
