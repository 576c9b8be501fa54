"""The names at a heat map's edges, and the marks on what stands out."""

from __future__ import annotations

from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from kvviz.drawing import style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.heatmap_facts import Table
from kvviz.drawing.heatmap_plan import SIDE, TURN, Plan
from kvviz.drawing.marks import add, make_boxes, write
from kvviz.drawing.names import spread_out

LINE = 13  # pixels from one row's name to the next
ROUND = (2, 5, 10, 20, 25, 50, 100, 200, 500)
POINT = np.array([[0, 0], [-5, 9], [5, 9]])  # pixels: a triangle that points up


def label_rows(ax: Axes, table: Table, plan: Plan) -> None:
    looks = {"size": style.SMALL, "color": style.QUIET, "ha": "right"}
    write(ax, plan.left - 8, plan.top - 10, table.labels[0], gid="ylabel", **looks)
    every = _choose_every(table.names[0], plan.row / plan.pool[0], LINE)
    for i in range(0, len(plan.names[0]), every):
        y = plan.find_row(i) + plan.row / 2
        write(ax, plan.left - 8, y, plan.names[0][i], gid=f"row:{i}", **looks)


def label_columns(ax: Axes, table: Table, plan: Plan) -> None:
    looks = {"size": style.SMALL, "color": style.QUIET}
    write(ax, plan.left, plan.top - plan.header - 7, table.labels[1], gid="xlabel", **looks)
    needed = 14 if plan.is_turned else measure_names(plan.names[1], style.SMALL, bold=False) + 7
    every = _choose_every(table.names[1], plan.cell / plan.pool[1], needed)
    for j in range(0, len(plan.names[1]), every):
        x, y = plan.find_column(j) + plan.cell / 2, plan.top - 10
        if plan.is_turned:
            x, y = x + 4, plan.top - 7
            turned = {"rotation": TURN, "rotation_mode": "anchor", "va": "baseline"}
        else:
            turned = {"ha": "center"}
        write(ax, x, y, plan.names[1][j], gid=f"column:{j}", **turned, **looks)


def _choose_every(names: list[str] | None, size: float, needed: float) -> int:
    """Every which name is written: of numbers, a round one."""
    every = max(1, ceil(needed / size - 1e-6))
    if names is not None or every < 2:
        return every
    return next((step for step in ROUND if step >= every), every)


def mark(ax: Axes, table: Table, plan: Plan) -> None:
    """A triangle at the edge for each marked row and column, with its name; a frame for a cell."""
    rows, columns, cells = table.marked
    right, bottom = plan.left + plan.width, plan.top + plan.height
    points = [POINT[:, ::-1] + (right + 2, plan.find_row(i) + plan.row / 2) for i in rows]
    _draw_points(ax, points, "marked:row")
    names, spots = [plan.names[0][i] for i in rows], [at[0, 1] for at in points]
    for i, y in _place(names, spots, LINE, (plan.top + 5, bottom - 5)):
        write(ax, right + 16, y, names[i], bold=True, size=style.SMALL, gid=f"marked:row:{rows[i]}")
    points = [POINT + (plan.find_column(j) + plan.cell / 2, bottom + 2) for j in columns]
    _draw_points(ax, points, "marked:column")
    names, spots = [plan.names[1][j] for j in columns], [at[0, 0] for at in points]
    wide = measure_names(names, style.SMALL)
    ends = SIDE + wide / 2, max(right, plan.left + wide) - wide / 2 + SIDE
    looks = {"bold": True, "size": style.SMALL, "ha": "center"}
    for i, x in _place(names, spots, wide + 6, ends):
        write(ax, x, bottom + 20, names[i], gid=f"marked:column:{columns[i]}", **looks)
    corners = [(plan.find_column(j), plan.find_row(i)) for i, j in cells]
    draw_frames(ax, corners, plan.cell, plan.row)


def _place(names, spots, needed: float, ends) -> list[tuple[int, float]]:
    """(index, spot) of each name, apart and between the `ends`; none if they don't fit."""
    low, high = ends
    if not names or needed * (len(names) - 1) > max(high - low, 0):
        return [] if len(names) > 1 else [(0, spots[0])] if names else []
    placed = spread_out(spots, needed)
    least, most = placed[0][1], placed[-1][1]
    shift = max(0, low - least) - max(0, most - high)
    return [(i, at + shift) for i, at in placed]


def _draw_points(ax: Axes, points, gid: str) -> None:
    if points:
        add(ax, [PolyCollection(points, facecolors=style.ALARM, linewidths=0, gid=gid)])


def draw_frames(ax: Axes, corners, wide: float, high: float) -> None:
    """Draw a frame, on a pale ground, around each cell with its top left corner there."""
    if not corners:
        return
    boxes = [make_boxes(x, y, wide, high, inset=-1)[0] for x, y in corners]
    around = [np.r_[box, box[:2]] for box in boxes]  # two corners twice: the last is no stub
    for color, line, gid in ((style.PAPER, 3.6, "frame:ground"), (style.ALARM, 1.8, "frame")):
        add(ax, [LineCollection(around, colors=color, linewidths=line, zorder=3, gid=gid)])


def draw_swatch(ax: Axes, kind: str, x: float, y: float) -> None:
    """The mark of a `triangle` or a `frame`, for the legend."""
    if kind == "triangle":
        _draw_points(ax, [POINT + (x + 8, y - 5)], "legend:triangle")
    else:
        draw_frames(ax, [(x + 1, y - 5)], 14, 10)
