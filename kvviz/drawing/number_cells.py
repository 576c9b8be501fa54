"""Numbers as coloured cells: the colour is a number's size, and a slit says it's below zero."""

from __future__ import annotations

from math import floor, log10

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from kvviz.drawing import style
from kvviz.drawing.axes import write_number
from kvviz.drawing.marks import Cells, add, make_boxes, write

SWATCH = 24  # pixels
SLIT = 2.0  # pixels: the mark of a number below zero


def choose_limit(values: np.ndarray, share: float = 0.96, steps=(1, 2, 3, 5, 10)) -> float:
    """A round number that this share of the sizes is under: a step times a power of ten."""
    size = float(np.quantile(np.abs(values), share)) if values.size else 0.0
    if not np.isfinite(size) or size <= 0:
        return 1.0
    power = 10.0 ** floor(log10(size))
    return next(step * power for step in steps if step * power >= size * 0.999)


def get_levels(values: np.ndarray, limit: float) -> np.ndarray:
    """-5 to 5: how far each number is from zero, in fifths of `limit`."""
    most = len(style.LEVELS)
    return np.clip(np.rint(np.nan_to_num(values) / limit * most), -most, most).astype(int)


def paint_numbers(ax: Axes, values: np.ndarray, limit: float, at, there=None) -> None:
    """Draw a cell for each number; those below zero have a white slit.

    `at` is their left, their top, and a cell's width and height; `there`, a mask of `values`, says
    which of them are drawn: by default, all.
    """
    left, top, cell, row = at
    levels, gap = get_levels(values, limit), get_gap(cell)
    there = np.ones(values.shape, dtype=bool) if there is None else there
    for level in np.unique(levels[there]):
        k, j = np.nonzero((levels == level) & there)
        x, y = left + cell * j, top + row * k
        places = list(zip(k.tolist(), j.tolist(), strict=True))
        fill = style.tint_number(int(level))
        boxes = make_boxes(x + gap / 2, y, cell - gap, row)
        add(ax, [Cells("numbers", str(level), places, boxes, facecolors=fill)])
        if level < 0:
            draw_slits(ax, x + cell / 2, y, y + row, min(SLIT, cell / 4))


def get_gap(cell: float) -> float:
    """Pixels between two cells that are `cell` pixels wide."""
    return 1.5 if cell >= 10 else 0.5 if cell >= 5 else 0


def draw_slits(ax: Axes, x, top, bottom, wide: float) -> None:
    lines = np.stack([np.c_[x, top], np.c_[x, bottom]], 1)
    slits = LineCollection(lines, colors=style.PAPER, linewidths=0.75 * wide, capstyle="butt")
    slits.set_gid("below zero")
    add(ax, [slits])


def draw_scale(ax: Axes, limit: float, x: float, y: float, beyond: bool = True) -> None:
    """Draw the colour of each level, with the numbers at its ends and in the middle.

    `beyond`: whether there may be larger numbers than `limit`.
    """
    most = len(style.LEVELS)
    for i, level in enumerate(range(-most, most + 1)):
        left = x + SWATCH * i
        box = make_boxes(left, y, SWATCH, 11, inset=0.5)
        add(ax, [Cells("scale", str(level), [level], box, facecolors=style.tint_number(level))])
        if level < 0:
            draw_slits(ax, [left + SWATCH / 2], [y], [y + 11], SLIT)
    end, less, more = write_number(limit), " or less" * beyond, " or more" * beyond
    marks = {-most: f"−{end}{less}", 0: "0", most: f"{end}{more}"}
    for level, words in marks.items():
        middle = x + SWATCH * (level + most + 0.5)
        write(ax, middle, y + 22, words, size=style.SMALL, color=style.QUIET, ha="center")
    right = x + SWATCH * (2 * most + 1) + 10
    write(ax, right, y + 6, "slit: below zero", size=style.SMALL, color=style.QUIET)
