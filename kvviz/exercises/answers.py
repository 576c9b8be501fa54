"""Take an answer in any form it can come in: what's right is right.

A number can be an int, a float, a tensor or a numpy number; several numbers can be a tuple, a list,
an array or a tensor; True and False can be 1 and 0. Each function returns None for anything else.
"""

from __future__ import annotations

from numbers import Real

import torch

from kvviz.checking.learner_code import to_tensor

__all__ = ["to_bool", "to_bools", "to_number", "to_numbers", "to_tensor"]


def to_number(answer) -> int | float | None:
    """One number, an int where it's whole; None if it isn't one.

    >>> from kvviz.exercises.answers import to_number
    >>> to_number(torch.tensor(6.0)), to_number(2.5), to_number("6")
    (6, 2.5, None)
    """
    answer = _unwrap(answer)
    if isinstance(answer, bool) or not isinstance(answer, Real):
        return None
    try:
        value = answer if isinstance(answer, int) else float(answer)
    except OverflowError:
        return float("inf")
    return int(value) if value == value // 1 and abs(value) != float("inf") else value


def to_numbers(answer, n: int) -> tuple[int | float, ...] | None:
    """`n` numbers, from a tuple, a list, an array or a tensor; None if it isn't that.

    >>> from kvviz.exercises.answers import to_numbers
    >>> to_numbers(torch.tensor([6, 6, 5]), 3), to_numbers((6, 6), 3)
    ((6, 6, 5), None)
    """
    answer = answer.tolist() if hasattr(answer, "tolist") else answer
    if not isinstance(answer, tuple | list) or len(answer) != n:
        return None
    numbers = tuple(map(to_number, answer))
    return None if None in numbers else numbers


def to_bool(answer) -> bool | None:
    """True or False, also from 1 and 0, a numpy bool or a tensor; None if it's neither.

    >>> from kvviz.exercises.answers import to_bool
    >>> to_bool(1), to_bool(torch.tensor(False)), to_bool("yes")
    (True, False, None)
    """
    answer = _unwrap(answer)
    is_one = isinstance(answer, bool | Real) and answer in (0, 1)
    return bool(answer) if is_one else None


def to_bools(answer, shape: tuple[int, ...]) -> torch.Tensor | None:
    """A bool tensor of this shape, also from 1 and 0, an array or lists; None if it isn't that.

    >>> from kvviz.exercises.answers import to_bools
    >>> to_bools([[1, 0], [1, 1]], (2, 2))
    tensor([[ True, False],
            [ True,  True]])
    """
    tensor = to_tensor(answer)
    if tensor is None or tuple(tensor.shape) != tuple(shape):
        return None
    is_bool = tensor.dtype == torch.bool or bool(((tensor == 0) | (tensor == 1)).all())
    return tensor.bool() if is_bool else None


def _unwrap(answer):
    """The Python number in a tensor or an array of one element."""
    if hasattr(answer, "item") and getattr(answer, "size", None) is not None:
        count = answer.numel() if hasattr(answer, "numel") else answer.size
        return answer.item() if count == 1 else answer
    return answer
