"""`draw_pass`: the square of a whole pass, with several requests on its diagonal."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from kvviz.arguments import check_texts
from kvviz.drawing import marks, pass_facts, style, swatches
from kvviz.drawing.axes import make_canvas, measure_names
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.drawing.names import spread_out
from kvviz.drawing.pass_facts import Pass, Run
from kvviz.drawing.picture import Picture
from kvviz.drawing.requests import CHIP, draw_chip, draw_name, make_bands, make_pattern

SIDE, TITLE, ABOVE, EDGE, GAP = 16, 62, 46, 13, 9  # pixels
ACROSS, DOWN, LARGEST = 640, 460, 18  # pixels: the square at most; a cell at most
STATES = {
    "ink": "share of attention",
    "visible": "visible to its row",
    "masked": "masked: later in its own request",
    "other": "another request's: never read",
    "new": "key written in this step",
    "read": "key read from a page",
}


def draw_pass(
    serving, *, step: int = 0, layer: int | None = None, head: int = 0, title: str | None = None
) -> Picture:
    """Draw the square of a whole pass of a serving engine: the rows of all requests it was fed.

    Each request has a block of its own. Keys in a shared page stand here once, with a block of
    each request that has the page under them.

    Args:
        serving: a recording made by `kv.record_serving`. If it kept attention, the cells are in
            ink; otherwise they say which columns a row may see.
        step, layer, head: which pass, and which head of it, counted from 0; by default, the first
            layer kept.
        title: by default, how many requests are in the pass.

    Raises:
        TypeError: `serving` isn't such a recording.
        ValueError: there is no such step, layer or head.

    >>> kv.draw_pass(served)
    step 0: 8 rows by 8 columns; no row sees a column that isn't its own request's; req_1: 7 ...
    """
    check_texts(title=title, optional=["title"])
    one = pass_facts.read_pass(serving, step, layer, head)
    with style.scope():
        figure = make_figure(one, title or pass_facts.write_title(one))
    return Picture(figure, pass_facts.describe_pass(one))


class _Plan:
    """Where the square is, in pixels."""

    def __init__(self, one: Pass, title: str):
        n_rows, n = max(1, one.states.shape[0]), max(1, one.states.shape[1])
        self.wide = min(LARGEST, ACROSS / n)
        self.high = min(LARGEST, max(DOWN / n_rows, 4))
        names = [look.name for look, *_ in one.blocks]
        self.left = SIDE + CHIP + 6 + measure_names(names) + 74 + EDGE + GAP
        self.top = TITLE + ABOVE + EDGE + GAP
        self.right, self.bottom = self.left + n * self.wide, self.top + n_rows * self.high
        self.note = pass_facts.write_note(one)
        words = measure_names([title], style.TITLE), measure_names([self.note], bold=False)
        wide = max(self.right + SIDE + 12, 2 * SIDE + max(words), 560)
        self.legend = swatches.flow(_choose_words(one), wide - 2 * SIDE)
        self.size = wide, self.bottom + 24 + swatches.LINE * len(self.legend)

    def boxes(self, rows, columns) -> np.ndarray:
        """The cells of the square at these rows and columns."""
        inset = 0.5 if min(self.wide, self.high) >= 6 else 0
        x, y = self.left + self.wide * np.asarray(columns), self.top + self.high * np.asarray(rows)
        return make_boxes(x, y, self.wide, self.high, inset)


def measure(one: Pass, title: str) -> tuple[float, float]:
    """Width and height of the picture in pixels."""
    return _Plan(one, title).size


def make_figure(one: Pass, title: str, room: tuple[float, float] = (0, 0)) -> Figure:
    """The picture as a figure, at least as large as `room` in pixels."""
    plan = _Plan(one, title)
    figure, ax = make_canvas(title, np.maximum(plan.size, room))
    write(ax, SIDE, 46, plan.note, color=style.QUIET, gid="note")
    _paint_cells(ax, one, plan)
    _paint_keys(ax, one, plan)
    _paint_queries(ax, one, plan)
    _name_runs(ax, one, plan)
    _name_blocks(ax, one, plan)
    words, top = _choose_words(one), plan.bottom + 16
    swatches.draw_lines(ax, plan.legend, words, _draw_swatch, left=SIDE, top=top)
    return figure


def _paint_cells(ax: Axes, one: Pass, plan: _Plan) -> None:
    ground = make_boxes(plan.left, plan.top, plan.right - plan.left, plan.bottom - plan.top)
    add(ax, [PolyCollection(ground, facecolors=style.TO_COME, linewidths=0, gid="ground")])
    for state in pass_facts.STATES:
        rows, columns = np.nonzero(one.states == state)
        if not len(rows):
            continue
        places = list(zip(rows.tolist(), columns.tolist(), strict=True))
        looks: dict = {"facecolors": "none"}
        if state == "ink":
            looks = {"facecolors": style.ink(one.weights[rows, columns])}
        elif state == "visible":
            colors = [one.looks[one.rows[row]].color for row in rows]
            looks = {"facecolors": [style.fill_request(color, False) for color in colors]}
        elif state == "masked":
            looks = {"facecolors": style.PAPER, "edgecolors": "#d3d3da", "hatch": marks.HATCH}
        boxes = plan.boxes(rows, columns)
        add(ax, [Cells("pass", state, places, boxes, **looks)])
    _outline_blocks(ax, one, plan)


def _outline_blocks(ax: Axes, one: Pass, plan: _Plan) -> None:
    """Draw a line in a request's colour around its rows and the columns it has."""
    for look, first, end in one.blocks:
        has = np.array([False, *(look in looks for looks in one.column_looks), False])
        starts, ends = np.flatnonzero(~has[:-1] & has[1:]), np.flatnonzero(has[:-1] & ~has[1:])
        x, y = plan.left + plan.wide * starts, plan.top + plan.high * first
        boxes = make_boxes(x, y, plan.wide * (ends - starts), plan.high * (end - first), 0.5)
        looks = {"facecolors": "none", "edgecolors": look.color, "linewidths": 1.2}
        add(ax, [PolyCollection(boxes, gid=f"block:{look.name}", **looks)])


def _paint_keys(ax: Axes, one: Pass, plan: _Plan) -> None:
    """Draw a cell for each column over the square, in the colours of all that have it."""
    top = plan.top - GAP - EDGE
    for run in one.runs:
        new = one.new[run.start : run.end]
        for state, here in (("new", new), ("read", ~new)):
            columns = run.start + np.flatnonzero(here)
            x, inset = plan.left + plan.wide * columns, 0.5 if plan.wide >= 6 else 0
            bands = make_bands(x + inset, top, plan.wide - 2 * inset, EDGE, len(run.looks))
            for n, (look, (_, y, _, band)) in enumerate(zip(run.looks, bands, strict=True)):
                if not len(columns):
                    continue
                fill = style.fill_request(look.color, state == "new")
                corners = make_boxes(x + inset, y, plan.wide - 2 * inset, band)
                role = "keys" if n == 0 else f"keys:{n}"
                add(ax, [Cells(role, state, columns.tolist(), corners, facecolors=fill)])
                color = style.PAPER if state == "new" else look.color
                middle = x + plan.wide / 2, np.full(len(x), y + band / 2)
                add(ax, make_pattern(look, *middle, plan.wide, band, color=color))
    write(ax, plan.left - GAP - EDGE - 4, top + EDGE / 2, "keys", bold=True, ha="right", gid="keys")


def _paint_queries(ax: Axes, one: Pass, plan: _Plan) -> None:
    """Draw a cell for each row on the left, in its request's colour."""
    for look, first, end in one.blocks:
        rows = np.arange(first, end)
        inset = 0.5 if plan.high >= 6 else 0
        x, y = plan.left - GAP - EDGE, plan.top + plan.high * rows
        corners = make_boxes(x, y + inset, EDGE, plan.high - 2 * inset)
        add(ax, [Cells("queries", "new", rows.tolist(), corners, facecolors=look.color)])
        middle = np.full(len(y), x + EDGE / 2), y + plan.high / 2
        add(ax, make_pattern(look, *middle, EDGE, plan.high, color=style.PAPER))


def _name_runs(ax: Axes, one: Pass, plan: _Plan) -> None:
    """Write over each run of columns whose they are, and how many."""
    said = [_describe_run(run) for run in one.runs]
    wides = [
        len(run.looks) * (CHIP - 1) + 4 + measure_names([words], style.SMALL, bold=False)
        for run, words in zip(one.runs, said, strict=True)
    ]
    spots = [plan.left + plan.wide * (run.start + run.end) / 2 for run in one.runs]
    y, base = plan.top - GAP - EDGE - 28, plan.top - GAP - EDGE - 4
    placed = _place(spots, wides, plan.left - 40)
    for run, words, wide, x in zip(one.runs, said, wides, placed, strict=True):
        at = x - wide / 2
        for look in run.looks:
            draw_chip(ax, at, y, look, size=CHIP - 3)
            at += CHIP - 1
        gid = f"run:{run.start}"
        write(ax, at + 2, y, words, size=style.SMALL, color=style.QUIET, gid=gid)
        ends = plan.left + plan.wide * np.array([run.start, run.end]) + (1.5, -1.5)
        bracket = [[(ends[0], base), (ends[1], base)], [(x, y + 9), (ends.mean(), base)]]
        lines = LineCollection(bracket, colors=style.FAINT, linewidths=0.9, gid="bracket")
        add(ax, [lines])


def _place(spots, wides, low: float) -> list[float]:
    """Middles of words so wide, near their spots, that don't overlap; none is left of `low`."""
    placed, free = [], low
    for spot, wide in zip(spots, wides, strict=True):
        at = max(spot, free + wide / 2)
        placed.append(at)
        free = at + wide / 2 + 8
    return placed


def _describe_run(run: Run) -> str:
    n = run.end - run.start
    return f"{n} shared" if len(run.looks) > 1 else str(n)


def _name_blocks(ax: Axes, one: Pass, plan: _Plan) -> None:
    """Write beside each request's rows whose they are, and how many."""
    spots = [plan.top + plan.high * (first + end) / 2 for _, first, end in one.blocks]
    for (i, y), (look, first, end) in zip(
        sorted(spread_out(spots, CHIP + 3)), one.blocks, strict=True
    ):
        draw_name(ax, SIDE, y, look)
        words = "1 row" if end - first == 1 else f"{end - first} rows"
        x, gid = plan.left - GAP - EDGE - 8, f"rows:{i}"
        write(ax, x, y, words, size=style.SMALL, color=style.QUIET, ha="right", gid=gid)


# -- the legend ----------------------------------------------------------------------------------


def _choose_words(one: Pass) -> dict[str, str]:
    found = set(one.states.ravel().tolist())
    found |= {"new"} if one.new.any() else set()
    found |= {"read"} if not one.new.all() else set()
    return {state: words for state, words in STATES.items() if state in found}


def _draw_swatch(ax: Axes, state: str, x: float, y: float) -> None:
    color = style.REQUESTS[0]
    fill, edge = {
        "ink": (style.ink(np.linspace(0, 1, 6)), None),
        "visible": (style.fill_request(color, False), color),
        "masked": (style.PAPER, "#d3d3da"),
        "other": (style.TO_COME, style.LINE),
        "new": (style.fill_request(color, True), None),
        "read": (style.fill_request(color, False), None),
    }[state]
    swatches.draw_box(ax, state, x, y, fill, edge=edge, hatch=state == "masked")
