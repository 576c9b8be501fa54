"""Check whole-number arguments, in one place."""

from __future__ import annotations

from numbers import Integral


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
        raise ValueError(f"{name}: expected a whole number{at_least}, but got {value!r}")
    return int(value)
