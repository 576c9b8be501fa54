"""What `draw_heatmap` shows: a checked table of numbers, and the sentence that describes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvviz import tokens
from kvviz.arguments import check_number, describe, is_whole, list_several
from kvviz.drawing.axes import write_number
from kvviz.drawing.inputs import shorten, to_numbers
from kvviz.drawing.number_cells import choose_limit
from kvviz.words import join, pluralize

STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
LARGE = 4  # times the middle column's size: such a column stands out
MANY = 400  # numbers; in a table of fewer, none is beyond the scale's end
FEW = 8  # names in a sentence; beyond that, they are counted


@dataclass(frozen=True)
class Table:
    """Numbers (rows, columns), NaN where there is nothing, with what they are called.

    Attributes:
        names: of the rows and of the columns; None where they are numbered from 0.
        labels: what a row and a column are, such as ("layer", "head"); may be empty.
        percent: whether the numbers are shares of 1.
        limit: the number that has the darkest colour.
        marked: rows, columns and cells that stand out.
    """

    values: np.ndarray
    names: tuple[list[str] | None, list[str] | None]
    labels: tuple[str, str]
    percent: bool
    limit: float
    marked: tuple[list[int], list[int], list[tuple[int, int]]]

    @property
    def signed(self) -> bool:
        return bool(np.nanmin(self.values) < 0)

    @property
    def goes_beyond(self) -> bool:
        """Whether a number is larger than the scale's end."""
        return bool(np.nanmax(np.abs(self.values)) > self.limit * 1.001)

    def write(self, value: float) -> str:
        """A number in two digits, or as a whole percent."""
        if self.percent:
            return f"{100 * value:.0f}%"
        if float(value).is_integer():
            return write_number(value).replace("-", "−")
        return write_number(float(f"{value:.2g}")).replace("-", "−")

    def name(self, axis: int, number: int) -> str:
        """`layer 3`; with a name, `row 'keys'`; with one of several alike, `token 3 (' at')`."""
        names, own = self.names[axis], str(number)
        if names is not None:
            own = tokens.quoted(names[number])
            own = own if names.count(names[number]) == 1 else f"{number} ({own})"
        return f"{self.label(axis)} {own}"

    def label(self, axis: int) -> str:
        """What a row (0) or a column (1) is."""
        return self.labels[axis] or ("row", "column")[axis]


def read_table(values, names, labels, percent, limit, marked) -> Table:
    """Check what `draw_heatmap` was given.

    Raises:
        ValueError: see `draw_heatmap`.
    """
    numbers = _read_numbers(values, percent)
    shape = numbers.shape
    names = tuple(
        _read_names(*each) for each in zip(("rows", "columns"), names, shape, strict=True)
    )
    if limit is None:
        limit = 1.0 if percent else _choose_limit(numbers[~np.isnan(numbers)])
    limit = check_number("limit", limit, above=0)
    labels = tuple(shorten(each) for each in labels)
    return Table(numbers, names, labels, percent, float(limit), _read_marked(*marked, shape))


def _choose_limit(there: np.ndarray) -> float:
    """All sizes are under it; in a large table with signs, all but a few."""
    few_beyond = there.min() < 0 and there.size >= MANY
    return choose_limit(there, 0.995 if few_beyond else 1, STEPS)


def _read_numbers(values, percent: bool) -> np.ndarray:
    try:
        numbers = to_numbers("values", values)
    except ValueError as error:
        uneven = isinstance(values, list | tuple) and str(error).endswith(describe(values))
        raise ValueError("values: expected rows of one length" if uneven else str(error)) from None
    if numbers.ndim != 2 or not numbers.size:
        raise ValueError(f"values: expected a table (rows, columns), but got shape {numbers.shape}")
    if np.isinf(numbers).any() or np.isnan(numbers).all():
        raise ValueError("values: expected finite numbers, and NaN where there is nothing")
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    if percent and not -1e-6 <= low <= high <= 1 + 1e-6:
        raise ValueError(
            f"percent=True: expected shares 0 to 1, but they are {low:.3g} to {high:.3g}"
        )
    return np.clip(numbers, 0, 1) if percent else numbers


def _read_names(what: str, names, n: int) -> list[str] | None:
    if names is None:
        return None
    listed = list_several(what, names, pluralize(n, "name"))
    if len(listed) != n:
        raise ValueError(f"{what}: expected {pluralize(n, 'name')}, but got {describe(names)}")
    return [shorten(each) for each in listed]


def _read_marked(highlight, rows, shape) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    columns, cells = [], []
    for each in _list_marked("highlight", highlight):
        kind = cells if isinstance(each, tuple) and len(each) == 2 else columns
        kind.append(_check_marked("highlight", each, shape))
    rows = _list_marked("highlight_rows", rows)
    rows = [_check_marked("highlight_rows", each, shape) for each in rows]
    return tuple(sorted(set(each)) for each in (rows, columns, cells))


def _list_marked(what: str, given) -> list:
    """What is to be marked, with tensors and arrays as numbers or, of several, tuples."""
    return [
        tuple(map(_to_plain, each)) if isinstance(each, tuple | list) else each
        for each in map(_to_plain, list_several(what, given, "a list of numbers"))
    ]


def _to_plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


def _check_marked(what: str, each, shape):
    """A number of a row or column, or a cell's (row, column), that is within `shape`."""
    is_cell = what == "highlight" and isinstance(each, tuple)
    sizes = shape if is_cell else shape[:1] if what == "highlight_rows" else shape[1:]
    at = each if is_cell else (each,)
    if len(at) != len(sizes) or not all(map(is_whole, at)):
        form = "a column's number, or a cell's (row, column)"
        form = "a row's number" if what == "highlight_rows" else form
        raise ValueError(f"{what}: expected {form}, but got {describe(each)}")
    if not all(0 <= i < n for i, n in zip(at, sizes, strict=True)):
        raise ValueError(f"{what}: {describe(each)} is outside {shape[0]} x {shape[1]}")
    return each


# -- the sentence --------------------------------------------------------------------------------


def describe_table(table: Table, words: str = "") -> str:
    """How large the table is, where the largest number is, and what stands out."""
    values = table.values
    n_rows, n_columns = values.shape
    clauses = [f"{_count(table, 0, n_rows)} by {_count(table, 1, n_columns)}"]
    there = values[~np.isnan(values)]
    if there.min() == there.max():
        all_of = "both" if len(there) == 2 else f"all {len(there):,}"
        clauses.append(f"{all_of if len(there) > 1 else 'it'} {'are' if len(there) > 1 else 'is'} "
                       f"{table.write(there[0])}")  # fmt: skip
    else:
        clauses += _describe_sizes(table, there)
    if nothing := values.size - len(there):
        clauses.append(f"nothing in {pluralize(nothing, 'cell')}")
    if any(table.marked):
        clauses.append(f"{words or 'marked'}: {describe_marked(table)}")
    return "; ".join(clauses)


def _count(table: Table, axis: int, n: int) -> str:
    return pluralize(n, table.label(axis))


def _describe_sizes(table: Table, there: np.ndarray) -> list[str]:
    values = table.values
    sizes = np.nan_to_num(np.abs(values), nan=-1)
    row, column = map(int, np.unravel_index(sizes.argmax(), values.shape))
    where = f"at {table.name(0, row)}, {table.name(1, column)}"
    clauses = [
        f"the largest{' in size' * table.signed} is {table.write(values[row, column])}, {where}"
    ]
    if table.percent:
        clauses.append(f"{(there > 0.5).sum():,} of {len(there):,} are over 50%")
    for axis in (1, 0):
        found = find_large(values, axis)
        if found:
            names = [table.name(axis, i) for i in found]
            label = table.label(axis)
            clauses.append(
                f"{_list(names, label)} stand{'s' * (len(found) == 1)} out, at least {LARGE} times "
                f"the size of the middle {label}"
            )
    return clauses


def find_large(values: np.ndarray, axis: int) -> list[int]:
    """The few columns (axis 1) or rows (axis 0) that are several times as large as most."""
    filled = values[:, ~np.isnan(values).all(0)] if axis else values[~np.isnan(values).all(1)]
    kept = np.flatnonzero(~np.isnan(values).all(1 - axis))
    if len(kept) < 4:
        return []
    sizes = np.nanmean(np.abs(filled), axis=1 - axis)
    large = kept[sizes >= LARGE * np.median(sizes)]
    return large.tolist() if np.median(sizes) > 0 and 4 * len(large) <= len(kept) else []


def describe_marked(table: Table) -> str:
    rows, columns, cells = table.marked
    names = [[table.name(axis, i) for i in table.marked[axis]] for axis in (0, 1)]
    parts = [_list(each, table.label(axis))
             for axis, each in ((1, names[1]), (0, names[0])) if each]  # fmt: skip
    pairs = [f"{table.name(0, row)}, {table.name(1, column)}" for row, column in cells]
    parts += ["; ".join(pairs) if len(pairs) <= FEW else f"{len(pairs)} cells"] if pairs else []
    return "; ".join(parts)


def _list(names: Sequence[str], label: str) -> str:
    """`channels 3, 7 and 40`; if there are many, only how many."""
    if len(names) > FEW:
        return pluralize(len(names), label)
    if len(names) == 1:
        return names[0]
    own = [name.removeprefix(f"{label} ") for name in names]
    return f"{label}s {join(own)}"
