"""Name the bands of `draw_memory`: each inside its band, or on a pole above the stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from kvviz.drawing import style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.marks import write
from kvviz.drawing.names import ROW, find_clear_spots


def name_bands(ax: Axes, names: Sequence[str], edges, tops, *, flags: Sequence, highest) -> None:
    """Write each band's name inside it, or on a pole above the stack if the band is too thin.

    A band that is left and comes back has its name in every piece with room for it.

    `edges` (n + 1) bound the moments, and `tops` (bands + 1, n) the bands. The y axis shows at
    least up to `highest`, below the poles' names. `flags` [(words, (x, y))] get poles too, in red.
    """
    height = ax.bbox.height
    for rows in range(len(names) + len(flags) + 1):  # as few rows of poles as will do
        ax.set_ylim(0, highest * height / (height - 10 - ROW * rows))
        inside, over = _sort_names(ax, names, edges, tops)
        over += [(spot, words, style.ALARM) for words, spot in flags]
        over.sort(reverse=True)  # from right to left, names to the right of their poles
        spots = [ax.transData.transform(spot) for spot, *_ in over]
        base = ax.transData.transform((0, highest))[1] + 18
        tries = [[(x + 5, base + ROW * row) for row in range(len(over))] for x, _ in spots]
        found = find_clear_spots([words for _, words, _ in over], spots, tries)
        if all(y < base + ROW * rows for _, y in found):
            break
    for name, spot in inside:
        write(ax, *spot, name, bold=True, ha="center", gid=f"name:{name}")
    for ((x, y), words, color), spot in zip(over, found, strict=True):
        left, up = ax.transData.inverted().transform(spot)
        ax.plot([x, x], [y, up], color=color, linewidth=0.8, marker=".", markevery=[0], zorder=4)
        write(ax, left, up, words, bold=True, color=color, gid=f"name:{words}")


def _sort_names(ax: Axes, names: Sequence[str], edges, tops) -> tuple[list, list]:
    """[(name, spot)] of names that fit their band, [(spot, name, colour)] of those that don't."""
    inside, over = [], []
    for name, low, top in zip(names, tops, tops[1:], strict=False):
        widest = (top - low).argmax()
        spots = [
            _find_inside(ax, name, edges[a : b + 1], low[a:b], top[a:b])
            for a, b in _find_pieces(top > low)
        ]
        if any(spots):
            inside += [(name, spot) for spot in spots if spot]
        elif top[widest] > low[widest]:
            spot = edges[widest : widest + 2].mean(), (top + low)[widest] / 2
            over.append((spot, name, style.TEXT))
    return inside, over


def _find_pieces(there: np.ndarray) -> list[tuple[int, int]]:
    """[(first, end)] of each run of moments at which a band is there."""
    turns = np.flatnonzero(np.diff(np.r_[False, there, False]))
    return list(zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True))


def _find_inside(ax: Axes, name: str, edges, low, top) -> tuple[float, float] | None:
    """Where `name` fits between the steps `low` and `top`, as near the middle as space allows."""
    left = ax.transData.transform(np.c_[edges, edges])[:, 0]
    centres = (left[:-1] + left[1:]) / 2
    middle = np.average(centres, weights=top - low) if (top > low).any() else 0
    spots, scale = [], ax.bbox.height / np.ptp(ax.get_ylim())
    for i, end in enumerate(np.searchsorted(left, left[:-1] + measure_names([name]) + 10)):
        if end < len(left) and (floor := low[i:end].max()) < (ceiling := top[i:end].min()):
            off = abs((left[i] + left[end]) / 2 - middle)
            spot = (edges[i] + edges[end]) / 2, (floor + ceiling) / 2
            spots.append((min(scale * (ceiling - floor), 40), -off, spot))
    deep, _, spot = max(spots, default=(0, 0, None))
    return spot if deep >= ROW + 2 else None
