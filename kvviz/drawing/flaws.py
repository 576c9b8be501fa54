"""Mark what is wrong in a square: cells that differ, that are too many, and that are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from kvviz.drawing import marks, style
from kvviz.drawing.layout import WIDEST, Plan, Room, plan
from kvviz.drawing.marks import Canvas, Cells, add, make_boxes
from kvviz.drawing.painting import make_figure
from kvviz.drawing.picture import Picture
from kvviz.drawing.square_drawing import get_thickness
from kvviz.recording.square import Square

FEW = 8  # columns and rows too many that are drawn where not all fit


class Side(NamedTuple):
    """A square, its words, and its flaws: {(role, place): "wrong", "extra" or "missing"}.

    A place is a column of the "keys" or "values", a row's position of the "queries" or "outputs",
    or (row's position, column) of the "attention".
    """

    square: Square
    title: str
    note: str
    flaws: Mapping[tuple, str] = {}


def draw_comparison(yours: Side, expected: Side, sentence: str) -> Picture:
    """Two squares of the same size beside each other, with the flaws of each marked on it."""
    if (end := expected.square.n_columns + FEW) < yours.square.n_columns > WIDEST // 2:
        yours = _cut_off(yours, end)  # or the newest columns expected would be out of the picture
    sides, squares = (yours, expected), (yours.square, expected.square)
    kinds = frozenset(kind for side in sides for kind in side.flaws.values())
    with style.scope():
        made = plan(
            squares,
            Room(states=kinds),
            titles=[side.title for side in sides],
            said=[side.note for side in sides],
        )
        figure = make_figure(made)
        for side, ax in zip(sides, figure.axes, strict=False):
            draw_flaws(ax, made, side.flaws)
            _move_names(ax, made, side.flaws)
    return Picture(figure, sentence)


def draw_strip(squares, sentence: str) -> Picture:
    """Squares of several steps, small and in a line."""
    with style.scope():
        return Picture(make_figure(plan(squares, strip=len(squares))), sentence)


def _cut_off(side: Side, end: int) -> Side:
    """A side without its columns and rows from `end` on, which its note then says."""
    square = side.square
    rows = [r for r, position in enumerate(square.row_positions) if position < end]
    cut = replace(
        square,
        tokens=square.tokens[:end],
        column_states=square.column_states[:end],
        value_states=square.value_states and square.value_states[:end],
        value_tokens=square.value_tokens and square.value_tokens[:end],
        row_positions=tuple(square.row_positions[r] for r in rows),
        row_states=tuple(square.row_states[r] for r in rows),
        own_columns=tuple(min(square.own_column(r), end - 1) for r in rows),
        weights=None if square.weights is None else square.weights[rows, :end],
        masked=square.masked[rows, :end],
    )
    kept = {
        (role, place): kind
        for (role, place), kind in side.flaws.items()
        if max(place if role == "attention" else (place,)) < end
    }
    note = f"{side.note}; columns and rows from {end} on are left out"
    return Side(cut, side.title, note, kept)


def draw_flaws(ax: Canvas, made: Plan, flaws: Mapping[tuple, str]) -> list:
    """Draw the marks of a square's flaws over its cells, each role and kind as one collection."""
    artists, cell = [], marks.measure_cell(ax)
    for role, kind in dict.fromkeys((role, kind) for (role, _), kind in flaws.items()):
        places = [place for place in flaws if place[0] == role and flaws[place] == kind]
        spots = [spot for _, place in places if (spot := _find_spot(made, cell, role, place))]
        if spots:
            artists += _make_flaws(role, kind, [place for _, place in places], spots, cell)
    return add(ax, artists)


def _move_names(ax: Axes, made: Plan, flaws: Mapping[tuple, str]) -> None:
    """Put the names under queries and outputs below the rows that are missing there."""
    for words in ax.texts:
        role = (words.get_gid() or "").removeprefix("name:")
        if role in ("queries", "outputs"):
            x, y = words.get_position()
            rows = [place for each, place in flaws if each == role]
            under = [row - made.start + 1 + 12 / marks.measure_cell(ax) for row in rows]
            words.set_position((x, max([y, *under])))


def _find_spot(made: Plan, cell: float, role: str, place) -> tuple | None:
    """Left, top, width and height of a cell; None if its column or row is left out."""
    gap, thick, start, span = made.gap / cell, get_thickness(cell), made.start, made.span
    if role == "attention":
        row, column = (number - start for number in place)
        return (column, row, 1, 1) if min(row, column) >= 0 else None
    if (at := place - start) < 0:
        return None
    before = role in ("keys", "queries")
    off = -gap - thick if before else span + gap
    return (at, off, 1, thick) if role in ("keys", "values") else (off, at, thick, 1)


def _make_flaws(role: str, kind: str, places, spots, cell: float) -> list:
    x, y, width, height = np.array(spots, dtype=float).T
    inset = marks.get_inset(cell)
    frame = Cells(
        role,
        kind,
        places,
        make_boxes(x, y, width, height, inset),
        facecolors=style.PAPER if kind == "missing" else "none",
        edgecolors=style.ALARM,
        linewidths=1.2 if cell >= marks.SMALL_CELL else 0.8,
    )
    frame.set_zorder(2)
    if kind == "missing":
        frame.set_linestyle([marks.DASH])
        return [frame]
    return [frame, *marks.make_flaw(role, kind, x + width / 2, y + height / 2)]
