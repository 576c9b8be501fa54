"""Check arguments, and say in an error what came: never a whole model or tensor.

A whole number can be an int, a numpy integer, or a tensor or an array without axes; each check
returns a plain Python value. True and False are flags, and never numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from numbers import Integral, Number, Real
from pathlib import Path

SHOWN = 40  # characters of a value in an error
LARGEST = 2**63 - 1  # of a whole number: what an int64 holds


def is_whole(value) -> bool:
    """Whether `value` is an integer; True and False are not.

    >>> is_whole(4), is_whole(4.0), is_whole(True), is_whole(torch.tensor(4))
    (True, False, False, True)
    """
    return isinstance(_unwrap(value), Integral) and not _is_flag(value)


def is_number(value) -> bool:
    """Whether `value` is a finite number; True and False are not.

    >>> is_number(0.5), is_number(float("nan")), is_number(True), is_number(torch.tensor(0.5))
    (True, False, False, True)
    """
    number = _unwrap(value)
    if not isinstance(number, Real) or _is_flag(value):
        return False
    return abs(number) <= LARGEST if isinstance(number, Integral) else isfinite(number)


def check_whole(name: str, value, least: int | None = None, most: int | None = None) -> int:
    """`value` as an int.

    Raises:
        ValueError: it isn't a whole number, it is below `least`, or it is above `most`.

    >>> check_whole("step", 4, least=0)
    4
    """
    number = int(_unwrap(value)) if is_whole(value) else None
    if number is not None and abs(number) > LARGEST:
        raise ValueError(f"{name}: expected a whole number below 2**63, but got {describe(number)}")
    if number is None or not _is_between(number, least, most):
        is_above = most is not None and number is not None and number > most
        reach = f" of at most {most:,}" if is_above else _say_reach(least)
        raise ValueError(f"{name}: expected a whole number{reach}, but got {describe(value)}")
    return number


def check_number(name: str, value, *, above: float | None = None, least: float | None = None):
    """`value` as an int or a float.

    Raises:
        ValueError: it isn't a finite number, it isn't above `above`, or it is below `least`.

    >>> check_number("floor", torch.tensor(0.5), above=0)
    0.5
    """
    number = _unwrap(value) if is_number(value) else None
    if number is None or above is not None and number <= above or not _is_between(number, least):
        reach = f" above {above}" if above is not None else _say_reach(least)
        raise ValueError(f"{name}: expected a number{reach}, but got {describe(value)}")
    return int(number) if isinstance(number, Integral) else float(number)


def check_flag(name: str, value) -> bool:
    """`value` as a bool.

    Raises:
        ValueError: it's neither True nor False.

    >>> check_flag("cached", True)
    True
    """
    if not _is_flag(value):
        raise ValueError(f"{name}: expected True or False, but got {describe(value)}")
    return bool(value)


def check_text(name: str, value) -> str:
    """`value`, if it is text.

    Raises:
        ValueError: it isn't.

    >>> check_text("title", "A step")
    'A step'
    """
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, but got {describe(value)}")
    return value


def check_texts(*, optional=(), **given) -> None:
    """Check that each of these is text; those whose names are `optional` can be None.

    Raises:
        ValueError: one of them isn't.

    >>> check_texts(title="A step", sentence=None, optional=["sentence"])
    """
    for name, value in given.items():
        if value is not None or name not in optional:
            check_text(name, value)


def is_iterable(value) -> bool:
    """Whether `value` can be gone through; a tensor without axes can't.

    >>> is_iterable([1]), is_iterable(torch.tensor(1))
    (True, False)
    """
    return isinstance(value, Iterable) and getattr(value, "shape", None) != ()


def list_several(name: str, values, expected: str) -> list:
    """`values` as a list, each read once: a generator is used up.

    Raises:
        ValueError: it is text, a mapping, or something that can't be listed.

    >>> list_several("steps", (n for n in range(2)), "several, such as range(3)")
    [0, 1]
    """
    if isinstance(values, str | bytes | Mapping) or not is_iterable(values):
        raise ValueError(f"{name}: expected {expected}, but got {describe(values)}")
    return list(values)


def describe(value) -> str:
    """What came, for an error: a short plain value as it is, else its type, with any shape.

    >>> describe(3), describe("x"), describe([1, 2]), describe("x" * 99)
    ('3', "'x'", '[1, 2]', 'str of 99 characters')
    >>> describe(torch.zeros(2, 3)), describe(model)
    ('Tensor of shape (2, 3)', 'LlamaForCausalLM')
    """
    name = type(value).__name__
    if _is_plain(value) and len(text := repr(value)) <= SHOWN:
        return text
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):  # a torch.Size is one, too
        return f"{name} of shape {tuple(shape)}"
    if isinstance(value, str | bytes):
        return f"{name} of {len(value)} characters"
    if isinstance(value, int):
        return f"{name} of {value.bit_length()} bits"
    if isinstance(value, list | tuple | set | dict):
        return f"{name} of length {len(value)}"
    return f"the class {value.__name__}" if isinstance(value, type) else name


def _is_plain(value, depth: int = 2) -> bool:
    """Whether a value is a number, text, a name or None, or a short collection of these."""
    if isinstance(value, list | tuple | set | dict):
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        short = len(value) <= SHOWN and depth > 0
        return short and all(_is_plain(each, depth - 1) for each in inner)
    if isinstance(value, str | bytes):
        return len(value) <= SHOWN
    if isinstance(value, int):
        return value.bit_length() < 4 * SHOWN  # Python doesn't write thousands of digits
    return value is None or isinstance(value, Number | range | slice | Path)


def _unwrap(value):
    """The Python number in a tensor or an array without axes; anything else as it is."""
    has_no_axes = getattr(value, "shape", None) == () and hasattr(value, "item")
    return value.item() if has_no_axes else value


def _is_flag(value) -> bool:
    return isinstance(_unwrap(value), bool)


def _is_between(number, least=None, most=None) -> bool:
    return (least is None or number >= least) and (most is None or number <= most)


def _say_reach(least=None) -> str:
    return "" if least is None else f" of at least {least}"
