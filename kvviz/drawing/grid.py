"""`draw_grid`: rows by columns of yes or no, such as which check catches which fault."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.path import Path

from kvviz.arguments import check_flag, describe, is_whole, list_several
from kvviz.drawing import style
from kvviz.drawing.axes import make_canvas, measure_names
from kvviz.drawing.inputs import check_words, shorten, shorten_names
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.drawing.picture import Picture
from kvviz.words import pluralize

TOP, ROW, BREAK = 48, 18, 9  # pixels: over the columns' names; a row; the space between groups
LINE, NARROW, SIDE = 14, 60, 16  # pixels: a line of a name; a column at least; the margins
MANY = 6  # rows; a larger group is counted instead of named
MARKED, DOT = style.SERIES[1][0], "#b4b4bb"
TICK = np.array([[-4.5, 0.3], [-1.5, 3.3], [4.5, -3.5]])  # pixels, downwards


def draw_grid(
    table: Mapping,
    *,
    title: str,
    columns: Sequence | None = None,
    sort: bool = True,
    marked: str = "caught",
    unmarked: str = "not caught",
    sentence: str | None = None,
) -> Picture:
    """Draw which rows are marked in which columns; rows with few marks stand out.

    Args:
        table: {row: {column: True or False}}.
        title: what the picture shows.
        columns: which columns, in which order; by default, those of the first row.
        sort: rows with the same marks go together, the fewest marks first; otherwise the rows stay
            in the table's order.
        marked, unmarked: what the legend calls True and False.
        sentence: replaces the sentence that says which rows are marked where.

    Raises:
        ValueError: nothing to draw, or a row that isn't True or False in each of the columns.

    >>> kv.draw_grid({"a": {"x": True, "y": False}, "b": {"x": True, "y": True}}, title="Found")
    Found: 2 rows by 2 columns; x only: a; in all: b
    """
    check_words(title, sentence, marked=marked, unmarked=unmarked)
    sort = check_flag("sort", sort)
    rows, columns, marks = _read_table(table, columns)
    groups = _group(marks)
    said = describe_grid(columns, [(marks[each[0]], each) for each in groups], rows)
    blocks = groups if sort else [list(range(len(rows)))]
    with style.scope():
        figure = _paint(title, rows, columns, marks, blocks, (marked, unmarked))
    return Picture(figure, sentence or f"{title}{'' if title.endswith('?') else ':'} {said}")


def _read_table(table, columns) -> tuple[list[str], list[str], np.ndarray]:
    """Names of rows and columns, and marks (rows, columns) as bool."""
    if not isinstance(table, Mapping) or not all(isinstance(r, Mapping) for r in table.values()):
        expected = "expected {row: {column: True or False}}"
        raise ValueError(f"table: {expected}, but got {describe(table)}")
    if columns is None:
        columns = list(next(iter(table.values()), {}))
    columns = list_several("columns", columns, "a list of names")
    if not columns or not table:
        raise ValueError("table: expected at least one row with at least one column")
    marks = [[_read_mark(name, row, column) for column in columns] for name, row in table.items()]
    return [*shorten_names("table", table)], [shorten(each) for each in columns], np.array(marks)


def _read_mark(name, row: Mapping, column) -> bool:
    if not isinstance(column, Hashable) or column not in row:
        came = f"column {describe(column)}, but it has {describe(list(row))}"
        raise ValueError(f"table, {name!r}: expected {came}")
    mark, where = row[column], f"table, {name!r}, {column!r}"
    return bool(mark) if is_whole(mark) and mark in (0, 1) else check_flag(where, mark)


def _group(marks: np.ndarray) -> list[list[int]]:
    """Rows that are marked alike, in groups; those with the fewest marks first."""

    def rank(row: int):
        return marks[row].sum(), (~marks[row]).tolist()

    return [list(group) for _, group in groupby(sorted(range(len(marks)), key=rank), key=rank)]


def _find_few(marks: np.ndarray) -> set[int]:
    """Rows marked in fewer than half of the columns, if most rows are marked in more."""
    few = np.flatnonzero(2 * marks.sum(1) < marks.shape[1])
    return set(few.tolist()) if 2 * len(few) < len(marks) else set()


# -- the sentence --------------------------------------------------------------------------------


def describe_grid(columns: Sequence[str], groups: Sequence, rows: Sequence[str]) -> str:
    """Which rows are marked in which columns; `groups` [(marks, row indexes)], each one pattern.

    The rows of the largest group, if there are many, are those that no other group names.
    """
    largest = max((rows for _, rows in groups), key=len)
    parts = []
    for marks, members in groups:
        names = ", ".join(rows[i] for i in members)
        if members is largest and len(members) > MANY:
            names = f"the {'other ' * (len(groups) > 1)}{len(members)} rows"
        parts.append(f"{describe_pattern(columns, marks)}: {names}")
    size = f"{pluralize(len(rows), 'row')} by {pluralize(len(columns), 'column')}"
    return "; ".join([size, *parts])


def describe_pattern(columns: Sequence[str], marks: Sequence[bool]) -> str:
    """Which columns are marked: `in all`, `all but work`, `chunks only`, `in none`."""
    there = [name for name, mark in zip(columns, marks, strict=True) if mark]
    gone = [name for name, mark in zip(columns, marks, strict=True) if not mark]
    if not there or not gone:
        return "in all" if there else "in none"
    if len(gone) < len(there):
        return f"all but {_join(gone)}"
    return f"{_join(there)} only"


def _join(names: Sequence[str]) -> str:
    """Names in a list; those that hold an "and" themselves are set apart by plus signs."""
    glue = " + " if any(" and " in name for name in names) else " and "
    return glue.join(names) if len(names) < 3 else ", ".join(names)


# -- painting ------------------------------------------------------------------------------------


def _paint(title: str, rows, columns, marks, blocks, legend) -> Figure:
    heads, few = [_wrap(name, NARROW - 4) for name in columns], _find_few(marks)
    notes = [_note(columns, marks, block) if len(blocks) > 1 else [""] for block in blocks]
    cell = max(NARROW, 4 + max(measure_names(lines, bold=False) for lines in heads))
    left = 2 * SIDE + max(measure_names([name], bold=i in few) for i, name in enumerate(rows))
    right = left + cell * len(columns)
    wide = max(
        right + 10 + max(measure_names(lines) for lines in notes) + SIDE,
        left + sum(57 + measure_names([words]) for words in legend),
        2 * SIDE + measure_names([title], style.TITLE),
    )
    y = TOP + LINE * max(map(len, heads)) + 4
    high = y + ROW * len(rows) + BREAK * (len(blocks) - 1) + 42
    figure, ax = make_canvas(title, (wide, high))
    for j, lines in enumerate(heads):
        _write_lines(ax, left + cell * (j + 0.5), y - 12, lines, ha="center", gid=f"column:{j}")
    for block, lines in zip(blocks, notes, strict=True):
        low = y + ROW * len(block) / 2 + LINE * (len(lines) - 1) / 2
        _write_lines(ax, right + 10, low, lines, bold=block[0] in few, gid=f"note:{block[0]}")
        for i in block:
            _paint_row(ax, i, rows[i], marks[i], (left, y, cell), i in few)
            y += ROW
        y += BREAK
        if block is not blocks[-1]:
            rule = [[(SIDE, y - BREAK / 2), (right, y - BREAK / 2)]]
            add(ax, [LineCollection(rule, colors=style.LINE, linewidths=0.8, gid="rule")])
    _draw_legend(ax, left, y + 8, legend)
    return figure


def _note(columns, marks, block) -> list[str]:
    """What a block's rows have in common, in as many lines as it has rows for."""
    note = describe_pattern(columns, marks[block[0]])
    if measure_names([note]) > 190:
        note = f"{marks[block[0]].sum()} of {len(columns)}"
    if len(block) > 2:
        return [note, f"{len(block)} rows"]
    return _wrap(note, 120) if len(block) == 2 else [note]


def _wrap(name: str, wide: float) -> list[str]:
    """A name in one line, or if it is wider than that, in two about as long as each other."""
    spaces = [i for i, letter in enumerate(name) if letter == " "]
    if not spaces or measure_names([name], bold=False) <= wide:
        return [name]
    at = min(spaces, key=lambda i: measure_names([name[:i], name[i + 1 :]]))
    return [name[:at], name[at + 1 :]]


def _write_lines(ax: Axes, x: float, low: float, lines: list[str], *, gid: str, **looks) -> None:
    for k, line in enumerate(reversed(lines)):
        write(ax, x, low - LINE * k, line, color=style.QUIET, gid=f"{gid}:{k}", **looks)


def _paint_row(ax: Axes, i: int, name: str, marks, at, bold: bool) -> None:
    """Write the row's name and draw its cells; `at` is their left, their top and a cell's width."""
    left, y, cell = at
    middle = y + ROW / 2
    write(ax, left - SIDE, middle, name, bold=bold, ha="right", gid=f"row:{i}")
    for there, state in ((marks, "marked"), (~marks, "unmarked")):
        j = np.flatnonzero(there)
        if not len(j):
            continue
        places, x = [(i, int(each)) for each in j], left + cell * j
        fills = MARKED if state == "marked" else style.TO_COME
        boxes = make_boxes(x, y, cell, ROW, inset=0.75)
        add(ax, [Cells("grid", state, places, boxes, facecolors=fills)])
        _draw_marks(ax, state, x + cell / 2, np.full(len(j), middle))


def _draw_marks(ax: Axes, state: str, x, y) -> None:
    """A tick or a dot centred on each x, y."""
    spots = np.c_[x, y]
    if state == "marked":
        lines = TICK + spots[:, None]
        ticks = LineCollection(lines, colors=style.PAPER, linewidths=1.6, capstyle="round")
        ticks.set_gid("grid:marked:mark")
        add(ax, [ticks])
        return
    around = np.linspace(0, 2 * np.pi, 17)[:-1]
    dots = 2 * np.c_[np.cos(around), np.sin(around)] + spots[:, None]
    path = Path.make_compound_path_from_polys(dots)
    add(ax, [PathCollection([path], facecolors=DOT, linewidths=0, gid="grid:unmarked:mark")])


def _draw_legend(ax: Axes, x: float, y: float, legend: Sequence[str]) -> None:
    for state, words in zip(("marked", "unmarked"), legend, strict=True):
        fills = MARKED if state == "marked" else style.TO_COME
        boxes = make_boxes([x], y - ROW / 2, 26, ROW, inset=0.75)
        add(ax, [Cells("legend", state, [0], boxes, facecolors=fills)])
        _draw_marks(ax, state, [x + 13], [y])
        write(ax, x + 33, y, words, color=style.QUIET, gid=f"legend:{state}")
        x += 33 + measure_names([words]) + 24
