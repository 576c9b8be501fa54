"""What a chart takes: numbers in any form, and names of any length."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kvviz.arguments import check_number, check_texts, describe

LONGEST = 48  # characters of a name


def to_numbers(name: str, values) -> np.ndarray:
    """`values` as float64: a number, a list, an array, or a tensor of any kind.

    Raises:
        ValueError: they are no numbers.

    >>> to_numbers("x", torch.tensor([1, 2], dtype=torch.bfloat16))
    array([1., 2.])
    """
    given = values
    try:
        if hasattr(values, "detach") and not values.is_complex():  # numpy may not know its kind
            values = values.detach().cpu().double()
        elif isinstance(values, list | tuple):
            values = [np.nan if each is None else to_numbers(name, each) for each in values]
        kind = np.asarray(values).dtype.kind
        if given is not None and kind in "biufO":  # text could be read as a number
            return np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        if "expected numbers" in str(error):  # of something in a list
            raise
    raise ValueError(f"{name}: expected numbers, but got {describe(given)}")


def shorten_names(name: str, values) -> dict[str, object]:
    """`values` {name: value} with names as text, long ones cut.

    Raises:
        ValueError: no mapping, or two names that look the same.

    >>> shorten_names("values", {1: 2.0})
    {'1': 2.0}
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{name}: expected {{name: numbers}}, but got {describe(values)}")
    named = {shorten(key): value for key, value in values.items()}
    if len(named) < len(values):
        raise ValueError(f"{name}: expected names that differ where they are drawn")
    return named


def read_levels(levels, log: bool = False) -> dict[str, float]:
    """Levels {name: number}, with names as `shorten_names` makes them; none for None.

    Raises:
        ValueError: no mapping, or something that isn't a finite number, above 0 on a `log` axis.

    >>> read_levels({"limit": 3})
    {'limit': 3}
    """
    named = shorten_names("levels", {} if levels is None else levels)
    above = 0 if log else None
    return {key: check_number(f"levels, {key!r}", each, above=above) for key, each in named.items()}


def check_words(title, sentence=None, **labels) -> None:
    """Check the words of a chart: a title and labels are text, a sentence can be None.

    Raises:
        ValueError: one of them isn't text.

    >>> check_words("Rows", None, xlabel="step")
    """
    check_texts(title=title, sentence=sentence, **labels, optional=["sentence"])


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
