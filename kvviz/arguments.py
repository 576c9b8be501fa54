"""Check arguments, and say in an error what came: never a whole model or tensor."""

from __future__ import annotations

from numbers import Integral, Number
from pathlib import Path

SHOWN = 40  # characters of a value in an error


def is_whole(value) -> bool:
    """Whether `value` is an integer; True and False are not.

    >>> is_whole(4), is_whole(4.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_whole(name: str, value, least: int | None = None) -> int:
    """`value` as an int.

    Raises:
        ValueError: it isn't a whole number, or it is below `least`.

    >>> check_whole("step", 4, least=0)
    4
    """
    at_least = "" if least is None else f" of at least {least}"
    if not is_whole(value) or (least is not None and value < least):
        raise ValueError(f"{name}: expected a whole number{at_least}, but got {describe(value)}")
    return int(value)


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
    return value is None or isinstance(value, Number | range | slice | Path)
