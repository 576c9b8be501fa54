"""The boxes and marks of a schedule: what a request does in one step.

`plan.box(line, step, rows)` gives a box's left, top, width and height in pixels.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from kvviz.drawing import marks, style, swatches
from kvviz.drawing.axes import measure_names
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.drawing.schedule_facts import FED, Line, Slot

SIZES = style.SMALL, 6.5  # points: a number in its box


def paint_slot(ax: Axes, plan, line: Line, i: int, step: int, slot: Slot) -> None:
    """Draw what a request does in a step."""
    look, place = line.look, [(i, step)]
    if slot.state in FED or slot.state == "padding":
        x, y, wide, high = plan.box(i, step, slot.rows + slot.padding)
        low = high * slot.padding / (slot.rows + slot.padding)
        if slot.padding:
            low = min(low, high - 13) if slot.rows else low
            _add_hatched(ax, place, (x, y, wide, low))
        strong = slot.state != "decode"
        fill = style.fill_request(look.color, strong)
        if slot.rows:
            corners = make_boxes(x, y + low, wide, high - low)
            state = "again" if slot.again else slot.state
            add(ax, [Cells("schedule", state, place, corners, facecolors=fill)])
        if slot.rows:
            color = style.PAPER if strong else style.TEXT
            box = x, y + low, wide, high - low
            _write_rows(
                ax, str(slot.rows), box, color, bold=strong, dot=slot.again, gid=f"{i}:{step}"
            )
        return
    if slot.state:
        _paint_wait(ax, plan, slot.state, i, step)


def _write_rows(ax: Axes, words: str, box, color: str, *, bold: bool, dot: bool, gid: str) -> None:
    """Write a number into a box: small, or upright, or not at all, if there's no room for it."""
    x, y, wide, high = box
    if dot:
        add_dot(ax, x + min(5, wide / 2), y + 5)
        x, wide, y, high = (x + 8, wide - 8, y, high) if wide > 26 else (x, wide, y + 7, high - 7)
    looks = {"bold": bold, "color": color, "ha": "center", "gid": f"rows:{gid}"}
    for size in SIZES if high >= 10 else ():
        if measure_names([words], size) <= wide:
            write(ax, x + wide / 2, y + high / 2, words, size=size, **looks)
            return
    if measure_names([words], style.SMALL) <= high - 2 and wide >= 9:
        middle = x + wide / 2 + 1, y + high / 2
        write(ax, *middle, words, size=SIZES[-1], rotation=90, va="center", **looks)


def _paint_wait(ax: Axes, plan, state: str, i: int, step: int) -> None:
    """Draw a step in which a request isn't fed."""
    x, y, wide, high = plan.box(i, step, 1)
    box = make_boxes(x, y, wide, high)
    add(ax, [Cells("schedule", state, [(i, step)], box, facecolors="none")])
    draw_wait(ax, state, x, y, wide, high)


def draw_wait(ax: Axes, state: str, x: float, y: float, wide: float, high: float):
    """A dotted line while it waits, an outline while it keeps its pages, a cross if put back."""
    middle, color = y + high / 2, style.FAINT
    if state == "idle":
        return swatches.draw_dashed(ax, x, y, wide, high, "idle:mark")
    dots = {"colors": color, "linewidths": 1.2, "linestyles": [(0, (1, 2.5))]}
    if state == "waiting":
        line = LineCollection([[(x, middle), (x + wide, middle)]], gid="waiting:mark", **dots)
        return add(ax, [line])
    half, at = 4.5, x + wide / 2
    cross = [
        [(at - half, middle - half), (at + half, middle + half)],
        [(at - half, middle + half), (at + half, middle - half)],
    ]
    looks = {"colors": style.ALARM, "linewidths": 2.2, "capstyle": "round"}
    return add(ax, [LineCollection(cross, gid="put back:mark", **looks)])


def _add_hatched(ax: Axes, place: list, box) -> None:
    looks = {"facecolors": style.PAPER, "edgecolors": "#b4b4bb", "hatch": marks.HATCH}
    add(ax, [Cells("padding", "padding", place, make_boxes(*box), linewidths=0.6, **looks)])


def add_dot(ax: Axes, x: float, y: float) -> None:
    around = np.linspace(0, 2 * np.pi, 17)[:-1]
    dot = 2.2 * np.c_[np.cos(around), np.sin(around)] + (x, y)
    add(ax, [PolyCollection([dot], facecolors=style.PAPER, linewidths=0, gid="again:mark")])


def paint_tokens(ax: Axes, plan, line: Line, i: int) -> None:
    """A dot over each step in which a token comes out, and a flag over the first; an end."""
    for step in line.tokens:
        x, y, wide, _ = plan.box(i, step, line.slots[step].rows + line.slots[step].padding)
        draw_token(ax, x + wide / 2, y - 4, first=step == line.tokens[0])


def draw_token(ax: Axes, x: float, y: float, first: bool) -> None:
    around = np.linspace(0, 2 * np.pi, 17)[:-1]
    shape = 1.7 * np.c_[np.cos(around), np.sin(around)]
    if first:
        shape = np.array([(-4.2, -4.0), (4.2, -4.0), (0, 2.8)])
    gid = "token:first" if first else "token"
    add(ax, [PolyCollection([shape + (x, y)], facecolors=style.TEXT, linewidths=0, gid=gid)])
