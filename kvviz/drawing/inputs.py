"""What a chart takes: numbers in any form, and names of any length."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

LONGEST = 48  # characters of a name


def to_numbers(name: str, values) -> np.ndarray:
    """`values` as float64: a number, a list, an array, or a tensor of any kind.

    Raises:
        ValueError: they are no numbers.

    >>> to_numbers("x", torch.tensor([1, 2], dtype=torch.bfloat16))
    array([1., 2.])
    """
    if hasattr(values, "detach"):  # a tensor, whose kind numpy may not know
        values = values.detach().cpu().double()
    elif isinstance(values, list | tuple):
        values = [to_numbers(name, each) for each in values]
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected numbers, but got {type(values).__name__}") from None


def shorten_names(name: str, values) -> dict[str, object]:
    """`values` {name: value} with names as text, long ones cut.

    Raises:
        ValueError: no mapping.

    >>> shorten_names("values", {1: 2.0})
    {'1': 2.0}
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{name}: expected {{name: numbers}}, but got {type(values).__name__}")
    return {shorten(key): value for key, value in values.items()}


def shorten(name) -> str:
    """A name as text; of a long one, the beginning and an ellipsis."""
    text = str(name)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def check_finite(values: np.ndarray, log: bool = False) -> None:
    """Check that there is a number to draw.

    Raises:
        ValueError: none is finite, or with `log`, none is above zero.

    >>> check_finite(to_numbers("y", [0, float("nan")]))
    """
    if not np.isfinite(values).any():
        raise ValueError("expected at least one finite number to draw")
    if log and not (values[np.isfinite(values)] > 0).any():
        raise ValueError("log=True: expected at least one number above zero")
