"""Numbers with their words."""

from __future__ import annotations


def pluralize(n: int, one: str, many: str = "") -> str:
    """`n` things in words; `many` is their plural, by default with an s.

    >>> pluralize(1, "row"), pluralize(1200, "pass", "passes")
    ('1 row', '1,200 passes')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"
