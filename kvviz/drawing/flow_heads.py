"""The heading over `draw_flow`'s open layer: which head it is, among all heads."""

from __future__ import annotations

from matplotlib.axes import Axes

from kvviz.drawing import fonts, style
from kvviz.drawing.flow_facts import Flow
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.words import pluralize

WIDE = 170  # pixels: all heads


def write_heading(ax: Axes, flow: Flow, x: float, y: float) -> None:
    """Say which layer and head are open, over the head's place among all heads."""
    square = flow.square
    words = f"Layer {square.layer}, query head {square.head}"
    write(ax, x, y, words, size=10.5, bold=True, gid="open")
    wide = fonts.measure(words, fonts.get_font(fonts.BOLD, 10.5)) / 0.75
    write(ax, x + wide + 8, y, "drawn open", color=style.QUIET)
    n, groups = flow.n_heads, flow.n_kv_heads
    if not n:
        return
    apart = min(11.0, (WIDE - 4 * (groups or 0)) / n)
    end = _draw_map(ax, flow, x, y + 17, apart) + 10 if apart >= 4 else x
    words = pluralize(n, "query head")
    words += f", {pluralize(groups, 'key/value head')}" if groups else ""
    write(ax, end, y + 24, words, size=style.SMALL, color=style.QUIET, gid="heads")


def _draw_map(ax: Axes, flow: Flow, x: float, y: float, apart: float) -> float:
    """Draw a square for each query head, over the key/value head that it reads; returns the end."""
    n, groups = flow.n_heads, flow.n_kv_heads
    size, opened = min(9.0, apart - 1), flow.square.head
    group = [head * groups // n if groups else 0 for head in range(n)]
    spots = [x + apart * head + 4 * group[head] for head in range(n)]
    for state, heads in (("open", [opened]), ("closed", [h for h in range(n) if h != opened])):
        if heads:
            fill = style.fill("queries", "new" if state == "open" else "read")
            boxes = make_boxes([spots[head] for head in heads], y, size, size)
            add(ax, [Cells("heads", state, heads, boxes, facecolors=fill)])
    for each in range(groups or 0):
        inside = [spots[head] for head in range(n) if group[head] == each]
        fill = style.fill("keys", "new" if each == flow.kv_head else "read")
        box = make_boxes(inside[0], y + size + 2, inside[-1] + size - inside[0], 4)
        add(ax, [Cells("key/value heads", str(each), [each], box, facecolors=fill)])
    return spots[-1] + size
