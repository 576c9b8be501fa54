"""Curves as stairs: a filled step for each x, and what the areas under them come to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from kvviz.drawing import style
from kvviz.drawing.axes import measure_names, style_axis
from kvviz.drawing.marks import write

FEW = 40  # steps set apart by white lines
DEEP = 22  # pixels that an area needs for its sum


def paint_stairs(ax: Axes, x, lines: Mapping) -> list[tuple]:
    """Fill a step for each x, the largest area at the back; returns its ends."""
    edges, ends = _find_edges(x), []
    series = dict(zip(lines, range(len(lines)), strict=True))
    for name, y in sorted(lines.items(), key=lambda line: -np.nansum(line[1])):
        color, dash, _ = style.SERIES[series[name] % len(style.SERIES)]
        fill = style.tint(color, 0.66 if series[name] % 2 else 0.33)
        ax.stairs(y, edges, fill=True, facecolor=fill, linewidth=0, gid=f"area:{name}")
        if len(x) <= FEW:
            ax.vlines(edges[1:-1], 0, np.fmax(y[:-1], y[1:]), style.PAPER, linewidth=1)
        top = ax.stairs(y, edges, baseline=None, color=color, linewidth=1.6, gid=f"line:{name}")
        top.set_linestyle(dash)
        ends += [(float(y[k]), name, color, True) for k in np.flatnonzero(np.isfinite(y))[-1:]]
    _set_ticks(ax, x, whole=all((y == y.round()).all() for y in lines.values()))
    return ends


def _set_ticks(ax: Axes, x, whole: bool) -> None:
    """Set ticks at the steps: at each one if they are few."""
    style_axis(ax.xaxis, whole=bool((x == x.round()).all()))
    spots = x if len(x) <= 12 else ax.xaxis.get_major_locator().tick_values(x[0], x[-1])
    ax.xaxis.set_major_locator(FixedLocator([at for at in spots if x[0] <= at <= x[-1]]))
    style_axis(ax.yaxis, whole=whole)


def _find_edges(x) -> np.ndarray:
    """The ends (n + 1) of steps centred on `x`."""
    half = np.diff(x) / 2 if len(x) > 1 else np.array([0.5])
    return np.r_[x[0] - half[0], x[:-1] + half[: len(x) - 1], x[-1] + half[-1]]


def write_sums(ax: Axes, x, lines: Mapping, sums: Mapping) -> list[tuple]:
    """Write each sum inside its area; returns (y, words, colour, bold) of those that don't fit."""
    outside, edges = [], _find_edges(x)
    for i, (name, words) in enumerate(sums.items()):
        y = lines[name]
        front = [other for other in lines.values() if np.nansum(other) < np.nansum(y)]
        floor = np.max([np.zeros(len(y)), *front], axis=0)
        if spot := _find_inside(ax, words, edges, floor, y):
            write(ax, *spot, words, size=style.TITLE, bold=True, ha="center", gid=f"sum:{name}")
        else:
            color, below = style.SERIES[i % len(style.SERIES)][0], 1e-3 * np.ptp(ax.get_ylim())
            outside.append((float(y[-1]) - below, words, color, False))
    return outside


def _find_inside(ax: Axes, words: str, edges, low, top) -> tuple[float, float] | None:
    """Where `words` fit between the steps `low` and `top`: where it's deep, near the middle."""
    scale = ax.bbox.width / np.ptp(ax.get_xlim()), ax.bbox.height / np.ptp(ax.get_ylim())
    wide = (measure_names([words], style.TITLE) + 20) / scale[0]
    middle = np.average((edges[:-1] + edges[1:]) / 2, weights=np.fmax(top - low, 0) + 1e-9)
    spots = []
    for i, end in enumerate(np.searchsorted(edges, edges[:-1] + wide)):
        if end < len(edges):
            bottom, ceiling = low[i:end].max(), top[i:end].min()
            deep, x = scale[1] * (ceiling - bottom), (edges[i] + edges[end]) / 2
            spots.append((min(deep, 3 * DEEP), -abs(x - middle), x, (bottom + ceiling) / 2))
    deep, _, *spot = max(spots, default=(0, 0, 0, 0))
    return tuple(spot) if deep >= DEEP else None
