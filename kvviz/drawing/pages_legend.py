"""The legend of a serving engine's pictures: a swatch and a word for every state drawn."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from kvviz.drawing import marks, style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.marks import add, make_boxes, write
from kvviz.drawing.pages_facts import STATES

LINE, SWATCH = 24, 15  # pixels


def measure_legend(states: Sequence[str], width: float) -> list[list[str]]:
    """`states` in lines of at most `width` pixels."""
    lines: list[list[str]] = [[]]
    x = 0.0
    for state in states:
        wide = _measure(state)
        if lines[-1] and x + wide - 24 > width:
            lines.append([])
            x = 0
        lines[-1].append(state)
        x += wide
    return lines


def _measure(state: str) -> float:
    return SWATCH + 7 + measure_names([STATES[state]], bold=False) + 24


def draw_legend(ax: Axes, lines: Sequence[Sequence[str]], left: float, top: float) -> None:
    """Draw the lines of a legend from `left` and `top`, in pixels."""
    for row, states in enumerate(lines):
        x, y = left, top + LINE * (row + 0.5)
        for state in states:
            _draw_swatch(ax, state, x, y - SWATCH / 2)
            words = STATES[state]
            write(ax, x + SWATCH + 7, y, words, color=style.QUIET, gid=f"legend:{state}")
            x += _measure(state)


def _draw_swatch(ax: Axes, state: str, x: float, y: float) -> None:
    one, other = style.REQUESTS[0], style.REQUESTS[1]
    looks = {
        "new": {"facecolors": style.fill_request(one, True)},
        "read": {"facecolors": style.fill_request(one, False)},
        "empty": {"facecolors": style.PAPER, "edgecolors": style.LINE, "linewidths": 0.8},
        "cached": {"facecolors": style.KEPT},
        "free": {"facecolors": style.PAPER},
        "lent": {"facecolors": style.PAPER, "edgecolors": "#c4c4cb", "hatch": marks.HATCH},
        "shared": {"facecolors": [style.fill_request(each, False) for each in (one, other)]},
    }[state]
    boxes = make_boxes(x, y, SWATCH, SWATCH)
    if state == "shared":
        boxes = make_boxes(x, [y, y + SWATCH / 2], SWATCH, SWATCH / 2)
    swatch = PolyCollection(boxes, **{"linewidths": 0, **looks})
    swatch.set_gid(f"swatch:{state}")
    add(ax, [swatch])
    if state in ("free", "lent"):
        sides = [[boxes[0][i], boxes[0][(i + 1) % 4]] for i in range(4)]
        looks = {"colors": "#a9a9b3", "linewidths": 0.8, "linestyles": [marks.DASH]}
        add(ax, [LineCollection(sides, **looks)])
