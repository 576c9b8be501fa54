"""Numbers with their words."""

from __future__ import annotations

from collections.abc import Sequence


def pluralize(n: int, one: str, many: str = "") -> str:
    """`n` things in words; `many` is their plural, by default with an s.

    >>> pluralize(1, "row"), pluralize(1200, "pass", "passes")
    ('1 row', '1,200 passes')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def join(words: Sequence[str]) -> str:
    """`words` in a line, as a person lists them.

    >>> join(["keys"]), join(["keys", "values", "queries"])
    ('keys', 'keys, values and queries')
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
