"""Paint a table of numbers as a heat map, with its scale and its legend."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from kvviz.drawing import style
from kvviz.drawing.axes import make_canvas, measure_names, write_number
from kvviz.drawing.heatmap_facts import Table
from kvviz.drawing.heatmap_labels import draw_swatch, label_columns, label_rows, mark
from kvviz.drawing.heatmap_plan import SIDE, Plan
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.drawing.number_cells import SWATCH, draw_scale, get_gap, paint_numbers

SHADES, DARK = 20, 10  # tints of ink in the table; in the scale


def paint(table: Table, plan: Plan, title: str, marked: str, nothing: str) -> Figure:
    """The heat map; `marked` and `nothing` are the legend's words."""
    legend = _list_legend(table, marked, nothing)
    low = plan.top + plan.height + (34 if table.marked[1] else 14)
    wide = max(
        plan.left + plan.width + plan.right,
        plan.left + SWATCH * 11 + 20 + measure_names(["slit: below zero"], style.SMALL),
        plan.left + sum(44 + measure_names([words]) for _, words in legend),
        2 * SIDE + measure_names([title], style.TITLE),
        2 * SIDE + measure_names([plan.note], bold=False),
    )
    figure, ax = make_canvas(title, (wide, low + 36 + 24 * bool(legend)))
    write(ax, SIDE, 44, plan.note, color=style.QUIET, gid="note")
    at, there = (plan.left, plan.top, plan.cell, plan.row), ~np.isnan(plan.values)
    if table.signed:
        paint_numbers(ax, plan.values, table.limit, at, there)
        draw_scale(ax, table.limit, plan.left, low, table.goes_beyond)
    else:
        _paint_ink(ax, plan, table.limit, there)
        _draw_ink_scale(ax, table, plan.left, low)
    _paint_nothing(ax, ~there, at)
    if plan.is_written:
        _write_numbers(ax, table, plan)
    label_rows(ax, table, plan)
    label_columns(ax, table, plan)
    mark(ax, table, plan)
    _draw_legend(ax, legend, plan.left, low + 46)
    return figure


def _shade(value, limit: float):
    return np.rint(np.clip(np.nan_to_num(value) / limit, 0, 1) * SHADES).astype(int)


def _paint_ink(ax: Axes, plan: Plan, limit: float, there: np.ndarray) -> None:
    shades = _shade(plan.values, limit)
    across, down = get_gap(plan.cell), min(1.0, get_gap(plan.row))
    for shade in np.unique(shades[there]):
        k, j = np.nonzero((shades == shade) & there)
        x, y = plan.left + plan.cell * j + across / 2, plan.top + plan.row * k + down / 2
        boxes = make_boxes(x, y, plan.cell - across, plan.row - down)
        places = list(zip(k.tolist(), j.tolist(), strict=True))
        add(ax, [Cells("ink", str(shade), places, boxes, facecolors=style.ink(shade / SHADES))])


def _paint_nothing(ax: Axes, gone: np.ndarray, at) -> None:
    """Cells without a number are paper, crossed by a thin line."""
    (left, top, cell, row), (k, j) = at, np.nonzero(gone)
    if not len(k):
        return
    x, y, room = left + cell * j, top + row * k, min(2, cell / 4, row / 4)
    places = list(zip(k.tolist(), j.tolist(), strict=True))
    boxes = make_boxes(x, y, cell, row)
    lines = np.stack([np.c_[x + room, y + row - room], np.c_[x + cell - room, y + room]], 1)
    color = style.tint(style.FAINT, 0.66)
    add(
        ax,
        [
            Cells("nothing", "nothing", places, boxes, facecolors=style.PAPER),
            LineCollection(lines, colors=color, linewidths=0.7, gid="nothing:mark"),
        ],
    )


def _write_numbers(ax: Axes, table: Table, plan: Plan) -> None:
    for (k, j), value in np.ndenumerate(plan.values):
        if np.isnan(value):
            continue
        x, y = plan.left + plan.cell * (j + 0.5), plan.top + plan.row * (k + 0.5)
        color = style.text_on(style.ink(_shade(value, table.limit) / SHADES))
        looks = {"size": style.SMALL, "color": color, "ha": "center"}
        write(ax, x, y, table.write(value), gid=f"number:{k},{j}", **looks)


# -- the scale and the legend --------------------------------------------------------------------


def _draw_ink_scale(ax: Axes, table: Table, x: float, y: float) -> None:
    """The ink of each tenth of the limit, with numbers at its ends and in the middle."""
    for i in range(DARK + 1):
        box = make_boxes(x + SWATCH * i, y, SWATCH, 11, inset=0.5)
        add(ax, [Cells("scale", str(i), [i], box, facecolors=style.ink(i / DARK))])
    for share in (0, 0.5, 1):
        value = table.limit * share
        words = f"{100 * value:.3g}%" if table.percent else write_number(value)
        words += " or more" if share == 1 and table.goes_beyond else ""
        middle = x + SWATCH * (DARK * share + 0.5)
        write(ax, middle, y + 22, words, size=style.SMALL, color=style.QUIET, ha="center")


def _list_legend(table: Table, marked: str, nothing: str) -> list[tuple[str, str]]:
    """(mark, words) of everything that is drawn beside the numbers."""
    rows, columns, cells = table.marked
    legend = [("nothing", nothing)] if np.isnan(table.values).any() else []
    legend += [("triangle", marked)] if rows or columns else []
    return legend + ([("frame", marked)] if cells else [])


def _draw_legend(ax: Axes, legend: list[tuple[str, str]], x: float, y: float) -> None:
    for kind, words in legend:
        if kind == "nothing":
            _paint_nothing(ax, np.ones((1, 1), dtype=bool), (x, y - 6, 16, 12))
        else:
            draw_swatch(ax, kind, x, y)
        write(ax, x + 24, y, words, size=style.SMALL, color=style.QUIET, gid=f"legend:{kind}")
        x += 24 + measure_names([words], style.SMALL) + 20
