"""The open layer of `draw_flow`: one head's query, keys, attention, values and output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from kvviz.drawing import fonts, marks, sentences, style
from kvviz.drawing.axes import measure_names
from kvviz.drawing.flow_facts import Flow, count_written
from kvviz.drawing.flow_heads import write_heading
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.drawing.square_drawing import find_ink
from kvviz.recording.square import Square

WIDEST = 80  # columns; beyond that, only the newest are drawn
WIDE, HIGH, CELL = 236, 190, 25  # pixels: all columns, all rows, and a cell at most
HEADS, LABELS, GAP, UNDER = 60, 62, 18, 80  # pixels: the heading, the tokens, between, and below
SIDE, AFTER = 94, 132  # pixels: left of the columns for query and label; right of them
LEAST = 420  # pixels: the width of an open layer


@dataclass(frozen=True)
class Plan:
    """The open layer in pixels; `wide` and `high` are a cell's, `thick` an edge's."""

    start: int
    wide: float
    high: float
    thick: float
    n: int
    rows: tuple[int, ...]

    @property
    def width(self) -> float:
        return max(LEAST, SIDE + self.n * self.wide + AFTER)

    @property
    def height(self) -> float:
        square = 2 * (self.thick + GAP) + self.high * max(1, len(self.rows))
        return HEADS + LABELS + square + UNDER


def find_start(square: Square) -> int:
    """The first column drawn."""
    return max(0, square.n_columns - WIDEST)


def plan(flow: Flow, start: int) -> Plan:
    square = flow.square
    n = square.n_columns - start
    rows = tuple(r for r in square.real_rows if square.row_positions[r] >= start)
    cell = min(CELL, WIDE / n)
    if len(rows) > 1:
        cell = min(cell, HIGH / len(rows))
    thick = min(CELL, max(cell, 16.0))
    return Plan(start, cell, cell if len(rows) > 1 else thick, thick, n, rows)


def draw_arrow(ax: Axes, start, end) -> None:
    looks = {"arrowstyle": "-|>", "mutation_scale": 9, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.3}
    ax.add_patch(FancyArrowPatch(start, end, color=style.QUIET, zorder=2, **looks))


def draw_bracket(ax: Axes, ends, y: float, words: str, *, within, gid: str) -> None:
    """Draw a bracket under `ends` (x0, x1), named in bold under it, if possible `within` (x0, x1).

    A bracket and its name take 26 pixels.
    """
    (left, right), long = ends, measure_names([words])
    bracket = [(left, y), (left, y + 4), (right, y + 4), (right, y)]
    ax.plot(*np.transpose(bracket), color=style.QUIET, linewidth=1)
    start = max(within[0], min((left + right - long) / 2, within[1] - long / 2))
    write(ax, start, y + 15, words, bold=True, gid=gid)


def paint(ax: Axes, flow: Flow, plan: Plan, *, left: float, top: float) -> None:
    """Draw the open layer with its top left corner there."""
    write_heading(ax, flow, left + 16, top + 18)
    x, keys = left + SIDE, top + HEADS + LABELS
    rows = keys + plan.thick + GAP
    values = rows + plan.high * max(1, len(plan.rows)) + GAP
    _draw_columns(ax, flow.square, plan, x, keys, values)
    _draw_rows(ax, flow.square, plan, x, rows)
    _label_columns(ax, flow.square, plan, x, keys)
    _note_work(ax, flow, plan, x, values + plan.thick)
    _draw_stream(ax, flow, plan, (left, top), rows)


# -- keys, values and rows -----------------------------------------------------------------------


def _draw_columns(ax: Axes, square: Square, plan: Plan, x: float, keys: float, values: float):
    for role, y in (("keys", keys), ("values", values)):
        states = square.edge_states(role)[plan.start :]
        spots = [(x + plan.wide * j, y, plan.wide, plan.thick) for j in range(plan.n)]
        _draw_edge(ax, role, range(plan.start, square.n_columns), states, spots, plan)
        end = x + plan.wide * plan.n + 8
        color = style.ROLES[role]
        write(ax, end, y + plan.thick / 2, role, bold=True, color=color, gid=f"name:{role}")


def _draw_edge(ax: Axes, role: str, places, states, spots: list, plan: Plan) -> None:
    inset = 0.75 if plan.wide >= 7 else 0
    for state in dict.fromkeys(states):
        here = [i for i, other in enumerate(states) if other == state]
        x, y, wide, high = np.array([spots[i] for i in here], dtype=float).T
        fill = style.fill(role, state)
        edge = style.find_outline(role, state) or (style.LINE if fill == style.PAPER else None)
        boxes = make_boxes(x, y, wide, high, inset)
        cells = Cells(
            role, state, [places[i] for i in here], boxes, facecolors=fill, edgecolors=edge,
            linewidths=style.get_width(state) if edge else 0,
        )  # fmt: skip
        size = min(plan.thick, 2 * plan.wide)
        add(ax, [cells, *marks.make_mark(role, state, x + wide / 2, y + high / 2, size)])


def _draw_rows(ax: Axes, square: Square, plan: Plan, x: float, y: float) -> None:
    """Draw each row's query, its attention over the columns, and its output."""
    if not plan.rows:
        return
    inset = 0.75 if plan.wide >= 7 else 0.5 if plan.wide >= 4 else 0
    down = {row: y + plan.high * k for k, row in enumerate(plan.rows)}
    for state, (rows, columns) in square.attention_cells(plan.start).items():
        if not rows:
            continue
        spots = [(down[r], j) for r, j in zip(rows, columns, strict=True)]
        tops, across = np.array(spots).T
        boxes = make_boxes(x + plan.wide * (across - plan.start), tops, plan.wide, plan.high, inset)
        places = [(square.row_positions[r], j) for r, j in zip(rows, columns, strict=True)]
        looks = {"facecolors": style.FIRST_INK}
        if state == "masked":
            looks = {"facecolors": style.PAPER, "edgecolors": "#d3d3da", "hatch": marks.HATCH}
        elif state == "ink":
            looks = {"facecolors": find_ink(square, rows, columns)}
        add(ax, [Cells("attention", state, places, boxes, **looks)])
    _write_shares(ax, square, plan, x, down)
    edge_states = square.edge_states("queries")
    states = [edge_states[r] for r in plan.rows]
    positions = [square.row_positions[r] for r in plan.rows]
    for role, name, left in (
        ("queries", "query", x - GAP - plan.thick),
        ("outputs", "output", x + plan.wide * plan.n + GAP),
    ):
        spots = [(left, down[r], plan.thick, plan.high) for r in plan.rows]
        _draw_edge(ax, role, positions, states, spots, plan)
        middle, color = left + plan.thick / 2, style.ROLES[role]
        name = name if len(plan.rows) == 1 else role
        under = y + plan.high * len(plan.rows) + 10
        write(ax, middle, under, name, bold=True, color=color, ha="center", gid=f"name:{role}")
    _label_rows(ax, square, plan, x - GAP - plan.thick - 7, down)


def _write_shares(ax: Axes, square: Square, plan: Plan, x: float, down: dict) -> None:
    if square.weights is None or square.newest not in down or plan.wide < 19:
        return
    for j in range(plan.start, square.n_columns):
        share = square.weights[square.newest, j]
        if share >= style.SMALLEST_NUMBER:
            words = "1" if sentences.percent(share) >= 100 else f".{sentences.percent(share):02d}"
            spot = x + plan.wide * (j - plan.start + 0.5), down[square.newest] + plan.high / 2
            color = style.text_on(find_ink(square, [square.newest], [j])[0])
            write(ax, *spot, words, size=7.5, color=color, ha="center", gid=f"share:{j}")


def _label_rows(ax: Axes, square: Square, plan: Plan, x: float, down: dict) -> None:
    every = int(np.ceil(12 / plan.high))
    for k, row in enumerate(reversed(plan.rows)):
        if k % every == 0:
            bold = row == square.newest
            words, font = fonts.make_label(
                square.token_of(row), bold=bold, size=style.SMALL, width=30
            )
            y = down[row] + plan.high / 2
            write(ax, x, y, words, font=font, ha="right", gid=f"row:{row}")


def _label_columns(ax: Axes, square: Square, plan: Plan, x: float, y: float) -> None:
    newest = None if square.newest is None else square.own_column(square.newest)
    last, every = square.n_filled - 1, int(np.ceil(14 / plan.wide))
    for j in range(plan.start, square.n_filled):
        if (last - j) % every:
            continue
        words, font = fonts.make_label(
            square.tokens[j], bold=j == newest, size=style.LABEL, width=44
        )
        at = x + plan.wide * (j - plan.start + 0.5) + 4, y - 6
        write(
            ax, *at, words, font=font, rotation=55, rotation_mode="anchor", va="baseline",
            gid=f"column:{j}",
        )  # fmt: skip


def _note_work(ax: Axes, flow: Flow, plan: Plan, x: float, y: float) -> None:
    """Bracket what was read and what was written, under the values."""
    square = flow.square
    states = square.column_states[plan.start :]
    n_read = sum(square.tally[state] for state in ("read", "earlier"))
    n_new = count_written(square.column_states)
    kinds = [(("read", "earlier"), f"{n_read} read from the cache")]
    again = f", {again} of them recomputed" if (again := square.tally["recomputed"]) else ""
    verb = "written" if flow.kept[square.layer] else "computed"
    kinds += [(("new", "recomputed"), f"{n_new} {verb}{again}")]
    down = y + 6
    for kind, words in kinds:
        here = [j for j, state in enumerate(states) if state in kind]
        if not here:
            continue
        ends = x + plan.wide * here[0] + 1, x + plan.wide * (here[-1] + 1) - 1
        long = (x, x + plan.wide * plan.n)
        draw_bracket(ax, ends, down, words, within=long, gid=f"work:{kind[0]}")
        down += 26


# -- the stream ----------------------------------------------------------------------------------


def _draw_stream(ax: Axes, flow: Flow, plan: Plan, corner, rows: float) -> None:
    """Draw where the layer's input comes from, and where its output goes."""
    (left, top), square = corner, flow.square
    if not plan.rows:
        return
    x, bottom = left + SIDE - GAP - plan.thick / 2, top + plan.height - 12
    under = rows + plan.high * len(plan.rows) + 20
    draw_arrow(ax, (x, bottom), (x, under))
    source = f"from layer {square.layer - 1}" if square.layer else "from the embedding"
    write(ax, x + 8, bottom - 3, source, size=style.SMALL, color=style.QUIET, gid="from")
    out = left + SIDE + plan.wide * plan.n + GAP + plan.thick
    y = rows + plan.high * (len(plan.rows) - 0.5)
    draw_arrow(ax, (out + 2, y), (out + 24, y))
    box = make_boxes(out + 25, y - 13, 42, 26)
    add(ax, [Cells("mlp", "open", [square.layer], box, facecolors=style.PAPER,
                   edgecolors=style.FAINT, linewidths=1)])  # fmt: skip
    write(ax, out + 46, y, "MLP", ha="center", gid="mlp")
    ends = top + HEADS + 14
    draw_arrow(ax, (out + 46, y - 14), (out + 46, ends))
    last = square.layer == len(flow.slots) - 1
    goal = "to the output" if last else f"to layer {square.layer + 1}"
    write(ax, out + 67, ends - 9, goal, size=style.SMALL, color=style.QUIET, ha="right", gid="to")
