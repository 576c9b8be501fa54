"""`draw_flow`: one step through the whole model, with one layer drawn open."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Polygon

from kvviz.arguments import check_texts
from kvviz.count import in_units
from kvviz.drawing import flow_layer, fonts, legend, marks, style
from kvviz.drawing.axes import make_canvas, measure_names
from kvviz.drawing.figures import pick_square
from kvviz.drawing.flow_facts import Flow, describe_flow, read_flow, summarize_slots
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.drawing.picture import Picture
from kvviz.recording.square import Square
from kvviz.words import pluralize

TOP, CHIP, BOX, ARROW, NAMES = 50, 26, 22, 15, 24  # pixels: the first chip; heights
MIDDLE, BAR, SLOTS, SLOT = 72, 56, 122, 76  # pixels: the stream's x, a layer's width, the slots
PANEL = SLOTS + 2 * SLOT + 8 + 34  # the open layer's left
THINNEST = 6.4, 4.0  # pixels: a layer, of at most FEW or of more
FEW = 40


def draw_flow(
    run,
    *,
    step: int = 0,
    layer: int | None = None,
    head: int = 0,
    sequence: int = 0,
    title: str | None = None,
) -> Picture:
    """Draw one step from the tokens fed to the next token, up through all layers.

    Every layer is a bar with its slot in the cache beside it: pale columns are read, strong ones
    written. One layer is drawn open, with one head's query, attention and output.

    Args:
        run: a recording. If it kept "keys" or "values", the picture also shows which key/value head
            is read; if it kept "logits", the last step's next token is known, too.
        step, layer, head, sequence: which step, and which head is drawn open, counted from 0; by
            default, the first layer kept.
        title: by default, the step and what goes through.

    Raises:
        TypeError: `run` isn't a recording.
        ValueError: there is no such step, layer, head or sequence.

    >>> kv.draw_flow(run, step=3, layer=1, head=2)
    step 3, layer 1, head 2: ... one token, goes through ...; in each layer, 8 columns are read ...
    """
    check_texts(title=title, optional=["title"])
    if isinstance(run, Square):
        raise TypeError("expected a recording made by kv.record, but got one step's Square")
    flow = read_flow(run, pick_square(run, step, layer, head, sequence))
    start = flow_layer.find_start(flow.square)
    with style.scope():
        figure = _paint(flow, start, title or _write_title(flow))
    return Picture(figure, describe_flow(flow, start))


def _write_title(flow: Flow) -> str:
    n, square = len(flow.fed), flow.square
    what = "one token goes" if n == 1 else f"{n} tokens go"
    rest = "through every layer" if square.cached else "through every layer, without a cache"
    return f"Step {square.step}: {what} {rest}"


def _paint(flow: Flow, start: int, title: str):
    plan = flow_layer.plan(flow, start)
    outside, n_layers = 2 * (CHIP + BOX) + 4 * ARROW + NAMES, len(flow.slots)
    thinnest = THINNEST[n_layers > FEW]
    pitch = max(thinnest, min(26.0, (plan.height - outside) / n_layers))
    tall = max(plan.height, outside + pitch * n_layers)
    wide = max(PANEL + plan.width + 16, 32 + measure_names([title], style.TITLE))
    figure, ax = make_canvas(title, (wide, TOP + tall + 50))
    off = (tall - outside - pitch * n_layers) / 2
    low = TOP + tall - off
    middle = _paint_stack(ax, flow, low, pitch)
    _paint_wedge(ax, middle, pitch, tall, plan.width)
    flow_layer.paint(ax, flow, plan, left=PANEL, top=TOP + (tall - plan.height) / 2)
    states = {state for slot in flow.slots if slot for each in slot for state in each[start:]}
    states |= flow.square.legend(0, start) - {"not computed", "to come"}
    box = (10 / wide, 10 / (TOP + tall + 50), 1 - 20 / wide, 24 / (TOP + tall + 50))
    legend.draw_legend(figure.add_axes(box), states, width=wide - 20)
    return figure


# -- the stack -----------------------------------------------------------------------------------


def _paint_stack(ax: Axes, flow: Flow, y: float, pitch: float) -> float:
    """Draw the stream from its first token at the bottom, at `y`; returns the open layer's y."""
    n_layers, square = len(flow.slots), flow.square
    first = _name_token(flow.fed[0]) if len(flow.fed) == 1 else f"{len(flow.fed)} tokens"
    position = square.row_positions[square.real_rows[-1]] if square.real_rows else 0
    note = f"fed: {pluralize(len(flow.fed), 'token')}"
    note += f", at position {position}" if len(flow.fed) == 1 else ""
    y = _draw_chip(ax, first, y - CHIP, note)
    y = _draw_box(ax, "embedding", _draw_arrow(ax, y) - BOX)
    bottom = _draw_arrow(ax, y)
    _draw_layers(ax, flow, bottom, pitch)
    _number_layers(ax, square.layer, n_layers, bottom, pitch)
    y = bottom - pitch * n_layers
    _name_slots(ax, flow, y, bottom)
    y = _draw_box(ax, "output layer", _draw_arrow(ax, y, ARROW + NAMES) - BOX)
    following, note = "?", "next token: not recorded"
    if flow.following is not None:
        following = _name_token(flow.following)
        note = "next token" if flow.is_fed else "likeliest next token"
    _draw_chip(ax, following, _draw_arrow(ax, y) - CHIP, note)
    return bottom - pitch * (square.layer + 0.5)


def _name_token(token: str) -> str:
    return fonts.make_label(token, bold=True, size=style.LABEL, width=66)[0]


def _draw_chip(ax: Axes, words: str, top: float, note: str) -> float:
    """Draw a token in a rounded box, with a note beside it; returns its top."""
    wide = max(46, measure_names([words]) + 18)
    _draw_round(ax, MIDDLE - wide / 2, top, wide, CHIP, face=style.TEXT, edge=style.TEXT)
    middle = top + CHIP / 2
    write(ax, MIDDLE, middle, words, bold=True, color=style.PAPER, ha="center", gid="token")
    write(ax, max(SLOTS, MIDDLE + wide / 2 + 8), middle, note, color=style.QUIET, gid="note")
    return top


def _draw_box(ax: Axes, words: str, top: float) -> float:
    wide = measure_names([words]) + 14
    _draw_round(ax, MIDDLE - wide / 2, top, wide, BOX, face=style.PAPER, edge=style.FAINT)
    write(ax, MIDDLE, top + BOX / 2, words, ha="center", gid=f"box:{words}")
    return top


def _draw_round(ax: Axes, x: float, y: float, wide: float, high: float, face: str, edge: str):
    looks = {"boxstyle": "round,pad=0,rounding_size=5", "facecolor": face, "edgecolor": edge}
    ax.add_patch(FancyBboxPatch((x, y), wide, high, linewidth=1, **looks))


def _draw_arrow(ax: Axes, y: float, long: float = ARROW) -> float:
    """Draw an arrow of `long` pixels upwards from `y`; returns where it ends."""
    flow_layer.draw_arrow(ax, (MIDDLE, y), (MIDDLE, y - long))
    return y - long


def _draw_layers(ax: Axes, flow: Flow, bottom: float, pitch: float) -> None:
    """Draw a bar for each layer from the bottom up, and its slot in the cache beside it."""
    n, gap, opened = len(flow.slots), 2 if pitch >= 7 else 1, flow.square.layer
    tops = bottom - pitch * (np.arange(n) + 1) + gap / 2
    for state, fill in (("open", style.TEXT), ("closed", "#b4b4bb")):
        here = [layer for layer in range(n) if (layer == opened) == (state == "open")]
        if here:
            bars = make_boxes(MIDDLE - BAR / 2, tops[here], BAR, pitch - gap)
            add(ax, [Cells("layers", state, here, bars, facecolors=fill)])
    found: dict[tuple, tuple[list, list]] = {}  # (role, state) -> places and boxes
    for layer, slot in enumerate(flow.slots):
        for k, role in enumerate(("keys", "values")):
            left = SLOTS + (SLOT + 8) * k
            for state, columns, x, wide in _group(slot[k], left) if flow.kept[layer] else ():
                places, boxes = found.setdefault((role, state), ([], []))
                places += [(layer, tuple(columns))]
                boxes.append(make_boxes(x, tops[layer], wide, pitch - gap))
    for (role, state), (places, boxes) in found.items():
        fill = style.fill(role, state)
        looks = {"edgecolors": style.LINE, "linewidths": 0.6} if fill == style.PAPER else {}
        corners = np.concatenate(boxes)
        add(ax, [Cells(f"slots:{role}", state, places, corners, facecolors=fill, **looks)])


def _group(states, left: float, wide: float = SLOT) -> list[tuple]:
    """(state, columns, lefts, widths) of a slot's cells, each at least 3 pixels wide.

    Where cells would be thinner, neighbours in one state become one block.
    """
    runs: list[list] = []
    thin = wide / len(states) < 5
    for j, state in enumerate(states):
        if thin and runs and runs[-1][0] == state:
            runs[-1][1].append(j)
        else:
            runs.append([state, [j]])
    widths = np.array([max(3.0, wide * len(places) / len(states)) for _, places in runs])
    widths *= wide / widths.sum()
    edges = left + np.r_[0, np.cumsum(widths)]
    return [
        (state, places, edges[i], max(widths[i] - 1, 1)) for i, (state, places) in enumerate(runs)
    ]


def _number_layers(ax: Axes, opened: int, n_layers: int, bottom: float, pitch: float) -> None:
    """Number the first, the last, the open layer, and every tenth that has room."""
    apart, shown = 13 / pitch, [opened]
    for layer in (0, n_layers - 1, *range(0, n_layers, 5 if n_layers < 40 else 10)):
        if all(abs(layer - other) >= apart for other in shown):
            shown.append(layer)
    for layer in shown:
        bold = layer == opened
        color = style.TEXT if bold else style.QUIET
        y = bottom - pitch * (layer + 0.5)
        write(
            ax, MIDDLE - BAR / 2 - 5, y, str(layer), bold=bold, color=color,
            size=style.LABEL if bold else style.SMALL, ha="right", gid=f"layer:{layer}",
        )  # fmt: skip


def _name_slots(ax: Axes, flow: Flow, top: float, bottom: float) -> None:
    """Name the slots over them, and say under them what each layer does with its own."""
    write(
        ax, MIDDLE - BAR / 2 - 5, top - 9, "layer", size=style.SMALL, color=style.QUIET, ha="right"
    )
    middle = SLOTS + SLOT + 4
    write(ax, SLOTS, bottom + 13, summarize_slots(flow), color=style.QUIET, gid="work")
    if not any(flow.kept):
        box = make_boxes(SLOTS, top + 1, 2 * SLOT + 8, bottom - top - 2)
        add(ax, [marks.make_dashes([[*side] for side in _sides(box[0])], "no cache")])
        write(ax, middle, (top + bottom) / 2 - 9, "no cache", bold=True, ha="center", gid="cache")
        under = (top + bottom) / 2 + 9
        write(ax, middle, under, "nothing is kept", color=style.QUIET, ha="center")
        return
    for k, role in enumerate(("keys", "values")):
        x = SLOTS + (SLOT + 8) * k
        write(ax, x, top - 10, role, bold=True, color=style.ROLES[role], gid=f"slots:{role}")
    held = f"the cache, {in_units(flow.square.bytes)}" if flow.square.bytes else "the cache"
    write(ax, SLOTS, top - 26, held, bold=True, gid="cache")


def _sides(box) -> list:
    return [(box[i], box[(i + 1) % 4]) for i in range(4)]


def _paint_wedge(ax: Axes, middle: float, pitch: float, tall: float, wide: float) -> None:
    """Draw the open layer's ground, and how it grows out of its bar."""
    left, half = SLOTS + 2 * SLOT + 11, pitch / 2
    corners = [(left, middle - half), (PANEL, TOP), (PANEL, TOP + tall), (left, middle + half)]
    looks = {"facecolor": style.TO_COME, "edgecolor": "none"}
    ax.add_patch(Polygon(corners, zorder=0.4, **looks))
    box = [(PANEL, TOP), (PANEL + wide, TOP), (PANEL + wide, TOP + tall), (PANEL, TOP + tall)]
    ax.add_patch(Polygon(box, zorder=0.4, **looks))
