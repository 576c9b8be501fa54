"""How a row is written: a call with one bad value in it, the error's type, what it must say."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from kvviz.arguments import describe


class Row(NamedTuple):
    """One bad value, the error it's answered with, and a pattern of what the error says.

    `error` is None where a check of an exercise answers with feedback instead.
    """

    value: object
    error: type[Exception] | None
    says: str


class Of(str):
    """Stands for something that is recorded once for all rows: its name in `given`."""


class Rows(NamedTuple):
    """A call, the values that it must refuse, and a good one (tensors of it are taken, too)."""

    call: Callable
    rows: list[Row]
    good: object = None


class Odd:
    """Something whose repr would fill a page, as a model's does."""

    def __repr__(self):
        return "many lines\n" * 200


NAN, INF, HUGE, HALF = float("nan"), float("inf"), 10**400, "\ud800"


def refuse(says: str, *values, error=ValueError) -> list[Row]:
    """Rows for values that are all answered alike; {} in `says` is what came."""
    return [Row(value, error, _fill(says, value)) for value in values]


def _fill(says: str, value) -> str:
    came = ".*" if isinstance(value, Of) else re.escape(describe(value))
    return says.replace("{}", came)


def whole(name: str, *more, least=None, none=False, negative=True) -> list[Row]:
    """What no whole number is; `more` are numbers that are too small or too large."""
    says = f"{name}: expected a whole number.* but got {{}}"
    rows = refuse(says, True, np.True_, 1.5, NAN, INF, "1", HALF, b"1", [1], {1: 1}, Odd())
    rows += refuse(says, torch.tensor([1, 2]), torch.tensor(True), torch.tensor(1.0), np.ones(2))
    rows += refuse(f"{name}: expected a whole number below 2\\*\\*63.* but got int of", HUGE)
    rows += [] if none else refuse(says, None)
    return rows + (refuse(says, -1) if negative else []) + refuse(says, *more)


def number(name: str, *more, none=False) -> list[Row]:
    """What is no number above (or from) 0."""
    says = f"{name}: expected .*but got {{}}"
    rows = refuse(says, True, NAN, INF, -1, "1", HALF, [1], Odd(), torch.tensor([1.0, 2]), HUGE)
    return rows + ([] if none else refuse(says, None)) + refuse(says, *more)


def flag(name: str) -> list[Row]:
    """What is neither True nor False."""
    return refuse(f"{name}: expected True or False, but got {{}}", None, 1, "yes", [], Odd(), NAN)


def text(name: str, none=False) -> list[Row]:
    """What is no text."""
    rows = refuse(f"{name}: expected text, but got {{}}", 3, True, b"x", ["x"], {}, Odd(), NAN)
    return rows + ([] if none else refuse(f"{name}: expected text, but got None", None))


def several(name: str, says: str = "expected") -> list[Row]:
    """What can't be listed."""
    return refuse(f"{name}: {says}.* but got {{}}", 3, "x", b"x", {}, Odd(), torch.tensor(1), NAN)


def file_name(ending: str) -> list[Row]:
    """What can't be written to: no name, another ending, no such folder, a folder."""
    rows = refuse(
        "path: expected the name of a file, but got {}", None, 3, b"x", Odd(), error=TypeError
    )
    rows += refuse(f"path: expected a name that ends in {ending}, but got", "x.txt", "", "日本")
    rows += refuse("path: expected the name of a file, but got", f"\ud800{ending}", f"a\0b{ending}")
    rows += [
        Row(f"no/such/{ending}x{ending}", FileNotFoundError, "expected a folder to write into")
    ]
    return rows + [Row(f"folder{ending}", IsADirectoryError, "expected the name of a file")]
