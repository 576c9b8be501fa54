"""A legend in the lines it needs: a swatch and a word for each state, from left to right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from kvviz.drawing import marks, style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.marks import add, make_boxes, write

LINE, WIDE, HIGH, APART = 24, 20, 14, 22  # pixels: a line; a swatch; between two entries
INK = 48  # pixels: the scale of attention


def flow(words: Mapping[str, str], width: float) -> list[list[str]]:
    """The states of `words` {state: words}, in lines of at most `width` pixels."""
    lines: list[list[str]] = [[]]
    x = 0.0
    for state in words:
        wide = _measure(state, words)
        if lines[-1] and x + wide - APART > width:
            lines.append([])
            x = 0.0
        lines[-1].append(state)
        x += wide
    return lines


def _measure(state: str, words: Mapping[str, str]) -> float:
    return _get_width(state) + 6 + measure_names([words[state]], bold=False) + APART


def _get_width(state: str) -> float:
    return INK if state == "ink" else WIDE


def draw_lines(
    ax: Axes,
    lines: Sequence[Sequence[str]],
    words: Mapping[str, str],
    draw: Callable[[Axes, str, float, float], None],
    *,
    left: float,
    top: float,
) -> None:
    """Draw `lines` of states; `draw(ax, state, x, y)` draws a swatch with its top left at x, y."""
    for row, states in enumerate(lines):
        x, y = left, top + LINE * (row + 0.5)
        for state in states:
            draw(ax, state, x, y - HIGH / 2)
            after = x + _get_width(state) + 6
            write(ax, after, y, words[state], color=style.QUIET, gid=f"legend:{state}")
            x += _measure(state, words)


def draw_box(ax: Axes, state: str, x: float, y: float, fill, *, edge=None, hatch=False) -> None:
    """Draw a plain swatch; of several fills, each gets a band, and the scale's stand in a row."""
    n = 1 if isinstance(fill, str) else len(fill)
    if state == "ink":
        boxes = make_boxes(x + INK / n * np.arange(n), y, INK / n, HIGH)
    else:
        high = (HIGH - (n - 1)) / n  # a line of one pixel between bands
        boxes = make_boxes(x, y + (high + 1) * np.arange(n), WIDE, high)
    looks = {"edgecolors": edge, "linewidths": 0.8} if edge else {"linewidths": 0}
    looks |= {"hatch": marks.HATCH} if hatch else {}
    add(ax, [PolyCollection(boxes, facecolors=fill, gid=f"swatch:{state}", **looks)])


def draw_dashed(ax: Axes, x: float, y: float, wide: float, high: float, gid: str) -> None:
    """Draw a dashed outline."""
    box = make_boxes(x, y, wide, high, 0.5)[0]
    sides = [[box[k], box[(k + 1) % 4]] for k in range(4)]
    looks = {"colors": "#a9a9b3", "linewidths": 0.8, "linestyles": [marks.DASH]}
    add(ax, [LineCollection(sides, gid=gid, **looks)])
