"""The legend under a picture: a swatch and a word for every state that is drawn."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from kvviz.drawing import fonts, marks, style

LINE = 24  # pixels
SWATCH = 18  # pixels


def draw_legend(ax: Axes, states: Iterable[str], *, width: float, lines: int = 1) -> list:
    """A swatch and a word for every state, on an Axes of `width` x `lines` * 24 pixels."""
    ax.set_axis_off()
    ax.set(xlim=(0, width), ylim=(LINE * lines, 0))
    states = set(states)
    words = {state: name for state, name in style.STATES.items() if state in states}
    for size in (9, 8.5, 8, 7.5, 7, 6.5):
        wide = {state: _measure_entry(state, name, size) for state, name in words.items()}
        flow = _flow(wide, width)
        if len(flow) <= lines:
            break
    artists = []
    for row, entries in enumerate(flow):
        x, y = (width - sum(wide[state] for state in entries) + 20) / 2, LINE * row + 3
        for state in entries:
            artists += draw_swatch(ax, state, x, y)
            after = x + (61 if state == "ink" else 25)
            artists.append(marks.write(ax, after, y + 9, words[state], size=size))
            x += wide[state]
    return artists


def _measure_entry(state: str, words: str, size: float) -> float:
    """Width of a swatch, its words and the space after them, in pixels."""
    font = fonts.get_font(fonts.REGULAR, size)
    return 48 + 36 * (state == "ink") + fonts.measure(words, font) / 0.75


def _flow(wide: dict[str, float], width: float) -> list[list[str]]:
    """States in as few lines as fit `width` pixels, all about as long."""
    flow = _fill(wide, width)
    while width > 20 and len(_fill(wide, width - 20)) == len(flow):
        flow, width = _fill(wide, width - 20), width - 20
    return flow


def _fill(wide: dict[str, float], width: float) -> list[list[str]]:
    flow: list[list[str]] = [[]]
    for state in wide:
        if flow[-1] and sum(wide[s] for s in (*flow[-1], state)) - 20 > width:
            flow.append([])
        flow[-1].append(state)
    return flow


def draw_swatch(ax: Axes, state: str, x: float, y: float) -> list:
    """Draw one swatch, with its top left at x, y, using the marks it explains."""
    fill, line, hatch, dash = {
        "masked": (style.PAPER, style.LINE, marks.HATCH, None),
        "not computed": ("none", "#a9a9b3", None, [marks.DASH]),
        "not kept": (style.FIRST_INK, None, None, None),
        "to come": (style.TO_COME, style.LINE, None, None),
        "not held": (style.TO_COME, style.QUIET, None, marks.NOT_HELD["linestyles"]),
        "empty": (style.PAPER, style.LINE, None, None),
        "cropped": (style.PAPER, style.KEYS, None, None),
        "missing": (style.PAPER, style.ALARM, None, [marks.DASH]),
        "wrong": (style.PAPER, style.ALARM, None, None),
        "extra": (style.PAPER, style.ALARM, None, None),
        "ink": (style.ink(np.linspace(0, 1, 6)), None, None, None),
    }.get(state, (style.fill("keys", state), None, None, None))
    spots, wide = [x], SWATCH
    if state == "ink":
        spots, wide = x + SWATCH / 2 * np.arange(6), SWATCH / 2
    box = PolyCollection(
        marks.make_boxes(spots, y, wide, SWATCH),
        facecolors=fill,
        edgecolors=line,
        linewidths=0 if line is None else style.get_width(state),
        linestyles="solid" if dash is None else dash,
        hatch=hatch,
    )
    make = marks.make_flaw if state in style.FLAWS else marks.make_mark
    mark = make("keys", state, [x + SWATCH / 2], [y + SWATCH / 2], SWATCH)
    for artist in (box, *mark):
        artist.set_gid(f"legend:{state}")
    return marks.add(ax, [box, *mark])
