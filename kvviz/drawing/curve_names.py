"""Name the curves of `draw_curves`: at the right, or at the end of one that ends early."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from kvviz.drawing import style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.marks import write
from kvviz.drawing.names import spread_out

HALF = 9  # pixels: half of the height that a name takes
NEAR = 8  # pixels between a curve's end and its name


def name_ends(ax: Axes, ends: list[tuple], x, lines: Mapping) -> None:
    """Write the name of each of `ends` (y, name, colour, bold).

    Names are at the right, as near to their ends as space allows. If one of `lines` {name: y} ends
    before `x` does, its name is at its own end, where there's room.
    """
    ax.autoscale_view()  # or the limits aren't known yet, and a name's height is a wrong one
    taken = [_trace(ax, x, y) for y in lines.values()]
    left = []
    for end in ends:
        y, name, color, bold = end
        spot = _find_early(ax, x, lines.get(name, np.empty(0)), y, measure_names([name]), taken)
        if spot is None:
            left.append(end)
        else:
            at = ax.transData.inverted().transform(spot)
            write(ax, *at, name, color=color, bold=bold, gid=f"name:{name}")
            along = np.arange(0, measure_names([name]), 6)
            taken.append(np.c_[spot[0] + along, np.full(along.shape, spot[1])])
    height = ax.get_window_extent().height * style.PIXELS / ax.get_figure().dpi
    spots = [ax.transAxes.inverted().transform(ax.transData.transform((0, y)))[1] for y, *_ in left]
    for i, at in spread_out(spots, 16 / height):
        _, name, color, bold = left[i]
        write(
            ax, 1.015, at, name, color=color, bold=bold, transform=ax.transAxes, gid=f"name:{name}"
        )


def _trace(ax: Axes, x, y) -> np.ndarray:
    """Points in pixels (n, 2) along a curve, close to each other."""
    finite = np.isfinite(x) & np.isfinite(y) & ((y > 0) | (ax.get_yscale() != "log"))
    spots = ax.transData.transform(np.c_[x, y][finite])
    along = np.linspace(0, 1, 60)[:, None]
    pieces = [one + along * (two - one) for one, two in zip(spots, spots[1:], strict=False)]
    return np.concatenate([spots, *pieces])


def _find_early(ax: Axes, x, y, end: float, wide: float, taken: list) -> tuple | None:
    """Pixels (left, middle) of a name at its curve's own end; None if that isn't early, or full."""
    there = np.flatnonzero(np.isfinite(y))
    if not len(there) or there[-1] == len(x) - 1 or y[there[-1]] != end:
        return None
    at, up = ax.transData.transform((x[there[-1]], end))
    tries = [(at + NEAR, up + by) for by in (0, HALF + 5, -HALF - 5)]
    tries += [(at - wide, up + by) for by in (HALF + 8, -HALF - 8)]
    for left, middle in tries:
        low, high = np.array([(left - 3, middle - HALF), (left + wide + 3, middle + HALF)])
        inside = (low > ax.bbox.min).all() and (high < ax.bbox.max).all()
        if inside and not any(((low < line) & (line < high)).all(1).any() for line in taken):
            return left, middle
    return None
