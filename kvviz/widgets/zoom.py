"""Draw early steps larger, in frames of one size.

A column keeps its place as long as the room stays the same, and the room changes rarely: there's
room for 12 columns, then 24, then 48 and so on, up to the longest step's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from kvviz.drawing import layout, style
from kvviz.drawing.marks import SMALL_CELL
from kvviz.recording.square import Square

LEAST = 12  # columns there's always room for, if any step has as many


@dataclass(frozen=True)
class Zoomed(layout.Plan):
    """A plan with larger cells and room for fewer columns, as large as the plan `whole`."""

    whole: layout.Plan

    @property
    def panel_width(self) -> int:
        return self.whole.panel_width

    @property
    def panel_height(self) -> int:
        return self.whole.panel_height


def plan_zoomed(squares: Sequence[Square], room: layout.Room) -> layout.Plan:
    """The plan of a frame with `room` for the longest step, zoomed to what its own step needs."""
    whole = layout.plan(squares, room)
    span = choose_span(max(square.n_columns for square in squares), whole.span)
    if whole.start or span == whole.span:
        return whole
    edges = 2 * (whole.edge - whole.gap)
    square = edges + whole.span * whole.cell
    cell = square / (span + 2)  # the edges are as thick as a cell, but not too thin
    cell = cell if cell >= SMALL_CELL else (square - 2 * SMALL_CELL) / span
    cell = int(min(style.CELL, cell) * style.SHARPNESS) / style.SHARPNESS
    given = {each.name: getattr(whole, each.name) for each in fields(whole)}
    return Zoomed(**(given | {"cell": cell, "span": span}), whole=whole)


def choose_span(n_columns: int, most: int) -> int:
    """Columns to leave room for: 12, doubled until `n_columns` fit, but never over `most`.

    >>> [choose_span(n, 40) for n in (6, 12, 13, 24, 25, 40)]
    [12, 12, 24, 24, 40, 40]
    """
    span = LEAST
    while span < n_columns:
        span *= 2
    return min(span, most)


def find_first_cell(plan: layout.Plan, i: int) -> list[float]:
    """Left, top and width of the first cell of square `i`, in pixels as displayed."""
    left, bottom = plan.corner(i)
    left += (plan.panel_width - plan.span * plan.cell) / 2
    top = plan.height - bottom - plan.panel_height + plan.above + plan.edge
    return [round(float(number), 2) for number in (left, top, plan.cell)]
