"""`draw_pages`: the memory of a serving engine, page by page, under each request's page table."""

from __future__ import annotations

from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvviz.arguments import check_texts
from kvviz.drawing import marks, pages_facts, style, swatches
from kvviz.drawing.axes import make_canvas, measure_names
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.drawing.pages_facts import Memory
from kvviz.drawing.picture import Picture
from kvviz.drawing.requests import CHIP, draw_chip, draw_name, make_bands, make_pattern

SIDE, WIDTH = 16, 880  # pixels: the margins; how wide a picture gets
TITLE, HEAD, LINE = 46, 40, 25  # pixels: over the tables; their heads; a line of them
ENTRY, HELD = 34, 66  # pixels: a page's number in a table at least; how many tokens are held
CELL, SMALLEST, ACROSS = 15, 5, 8  # pixels: a cell, and a cell at least; cells in a line
NUMBER, APART, BETWEEN = 17, 16, 10  # pixels: over a page; between pages across and down


def draw_pages(serving, *, step: int = 0, title: str | None = None) -> Picture:
    """Draw the page tables of a serving engine, and under them its memory, page by page.

    A page table says in which page of memory a request's positions are. A page is a box of cells,
    with a cell for each token it has room for: strong where this step wrote, pale where an earlier
    one did, white where it is empty.

    Args:
        serving: a recording made by `kv.record_serving`.
        step: which step, counted from 0.
        title: by default, how many pages are in use.

    Raises:
        TypeError: `serving` isn't such a recording.
        ValueError: there is no such step.

    >>> kv.draw_pages(served, step=1)
    step 1: 4 of 16 pages of 4 cells in use, 2 of their cells empty; req_1 holds 8 tokens in ...
    """
    check_texts(title=title, optional=["title"])
    memory = pages_facts.read_memory(serving, step)
    with style.scope():
        figure = make_figure(memory, title or pages_facts.write_title(memory))
    return Picture(figure, pages_facts.describe_memory(memory))


def measure(memory: Memory, title: str) -> tuple[float, float]:
    """Width and height of the picture in pixels."""
    return _Plan(memory, title).size


def make_figure(memory: Memory, title: str, room: tuple[float, float] = (0, 0)) -> Figure:
    """The picture as a figure, at least as large as `room` in pixels."""
    plan = _Plan(memory, title)
    figure, ax = make_canvas(title, np.maximum(plan.size, room))
    _paint_tables(ax, memory, TITLE)
    y = TITLE + HEAD + LINE * len(memory.lines)
    write(ax, SIDE, y + 16, plan.example, color=style.QUIET, gid="example")
    write(ax, SIDE, y + 52, "Memory", bold=True, gid="memory")
    said = pages_facts.summarize_memory(memory)
    write(ax, SIDE + 66, y + 52, said, color=style.QUIET, gid="summary")
    for i, page in enumerate(memory.pages):
        down, across = divmod(i, plan.across)
        at = SIDE + across * (plan.wide + APART), plan.top + down * plan.tall + NUMBER
        _paint_page(ax, memory, page, at, plan)
    words, bottom = {state: pages_facts.STATES[state] for state in plan.states}, plan.bottom
    swatches.draw_lines(ax, plan.legend, words, _draw_swatch, left=SIDE, top=bottom + 10)
    return figure


class _Plan:
    """How the pages are laid out, in pixels."""

    def __init__(self, memory: Memory, title: str):
        size, n = memory.step.page_size, len(memory.pages)
        self.columns = min(size, ACROSS if size <= 32 else ceil(size**0.5))
        self.rows = ceil(size / self.columns)
        self.cell = max(SMALLEST, min(CELL if n <= 36 else 13, 150 / self.columns))
        self.wide = max(self.columns * self.cell, memory.widest * (CHIP - 1) + 24)
        self.tall = NUMBER + self.rows * self.cell + BETWEEN
        room = max(1, (WIDTH - 2 * SIDE + APART) // (self.wide + APART))
        self.across = ceil(n / ceil(n / room))
        self.top = TITLE + HEAD + LINE * len(memory.lines) + 72
        self.bottom = self.top + self.tall * ceil(n / self.across)
        self.example = pages_facts.explain_entry(memory)
        words = measure_names([title], style.TITLE), measure_names([self.example], bold=False)
        wide = self.across * (self.wide + APART) - APART + 2 * SIDE
        wide = max(wide, _measure_tables(memory), 2 * SIDE + max(words), 560)
        self.states = pages_facts.list_states(memory)
        said = {state: pages_facts.STATES[state] for state in self.states}
        self.legend = swatches.flow(said, wide - 2 * SIDE)
        self.size = wide, self.bottom + 18 + swatches.LINE * len(self.legend)


# -- the tables ----------------------------------------------------------------------------------


def _measure_tables(memory: Memory) -> float:
    entries = len(memory.heads) * _measure_entry(memory)
    return 2 * SIDE + _measure_looks(memory) + HELD + max(entries, 150)


def _measure_looks(memory: Memory) -> float:
    return CHIP + 22 + measure_names([line.look.name for line in memory.lines])


def _measure_entry(memory: Memory) -> float:
    return max(ENTRY, 12 + measure_names(memory.heads, style.SMALL))


def _paint_tables(ax: Axes, memory: Memory, top: float) -> None:
    x = SIDE + _measure_looks(memory)
    wide, first = _measure_entry(memory), x + HELD
    write(ax, SIDE, top + 9, "Page tables", bold=True, gid="tables")
    write(ax, x, top + 28, "tokens held", size=style.SMALL, color=style.QUIET)
    if memory.heads:
        write(ax, first + 8, top + 9, "which page these positions are in", color=style.QUIET)
    for k, head in enumerate(memory.heads):
        at = first + wide * (k + 0.5)
        write(ax, at, top + 28, head, size=style.SMALL, color=style.QUIET, ha="center")
    for i, line in enumerate(memory.lines):
        y = top + HEAD + LINE * (i + 0.5)
        draw_name(ax, SIDE, y, line.look)
        if line.entries:
            write(ax, x + 30, y, str(line.held), ha="right", gid=f"held:{line.look.name}")
            _paint_entries(ax, line, first, y, wide)
        else:
            write(ax, x, y, line.status, color=style.QUIET, gid=f"status:{line.look.name}")


def _paint_entries(ax: Axes, line, first: float, y: float, wide: float) -> None:
    """Draw a request's page table, an entry for each page; `y` is its middle."""
    for k, entry in enumerate(line.entries):
        if entry.page is None:
            x = first + wide * (k + 0.5)
            write(ax, x, y, "…", ha="center", color=style.QUIET, gid="left out")
            continue
        box = first + wide * k + 2, y - LINE / 2 + 2, wide - 4, LINE - 4
        state = "new" if entry.new else "read"
        bands = make_bands(*box, len(entry.looks), line=0)  # a line would cross the number
        for look, band in zip(entry.looks, bands, strict=True):
            corners = make_boxes(*band)
            fill = style.fill_request(look.color, entry.new)
            place = (line.look.name, k, entry.page, look.name)
            add(ax, [Cells("entry", state, [place], corners, facecolors=fill)])
        color = style.PAPER if entry.new else style.TEXT
        write(
            ax, box[0] + box[2] / 2, y, str(entry.page), bold=True, color=color, ha="center",
            gid=f"entry:{line.look.name}:{k}",
        )  # fmt: skip


# -- the pages -----------------------------------------------------------------------------------


def _paint_page(ax: Axes, memory: Memory, page: int, at, plan: _Plan) -> None:
    """Draw one page: its number, its owners' letters and its cells; `at` is its left and top."""
    left, top = at
    looks, state = memory.owners(page), memory.states[page]
    color = style.TEXT if looks else style.QUIET
    write(ax, left, top - 8, str(page), bold=bool(looks), color=color, gid=f"page:{page}")
    for i, look in enumerate(looks):
        x = left + plan.wide - (len(looks) - i) * (CHIP - 1)
        draw_chip(ax, x, top - 8, look, size=CHIP - 3)
    if state in ("free", "reserved", "lent"):
        return _paint_unused(ax, page, state, at, plan)
    places = np.arange(memory.step.page_size)
    x = left + plan.cell * (places % plan.columns)
    y = top + plan.cell * (places // plan.columns)
    new, filled = memory.written(page), places < memory.step.fill.get(page, 0)
    for name, here in (("new", filled & new), ("read", filled & ~new), ("empty", ~filled)):
        if here.any():
            spots = [(page, int(place)) for place in places[here]]
            _paint_cells(ax, name, spots, (x[here], y[here], plan.cell), looks)
    return None


def _paint_cells(ax: Axes, state: str, spots: list, at, looks) -> None:
    """Draw cells of a page, in as many bands as it has owners."""
    x, y, cell = at
    inset = 0.75 if cell >= 8 else 0.5
    if state == "empty":
        corners = make_boxes(x, y, cell, cell, inset)
        box = {"facecolors": style.PAPER, "edgecolors": style.LINE, "linewidths": 0.8}
        add(ax, [Cells("page", "empty", spots, corners, **box)])
        return
    if not looks:
        corners = make_boxes(x, y, cell, cell, inset)
        add(ax, [Cells("page", "cached", spots, corners, facecolors=style.KEPT)])
        return
    bands = make_bands(x + inset, y + inset, cell - 2 * inset, cell - 2 * inset, len(looks))
    for n, (look, (_, down, wide, high)) in enumerate(zip(looks, bands, strict=True)):
        fill = style.fill_request(look.color, state == "new")
        corners = make_boxes(x + inset, down, wide, high)
        role = "page" if n == 0 else f"page:{n}"
        add(ax, [Cells(role, state, spots, corners, facecolors=fill)])
        color = style.PAPER if state == "new" else look.color
        add(ax, make_pattern(look, x + cell / 2, down + high / 2, cell, high, color=color))


def _paint_unused(ax: Axes, page: int, state: str, at, plan: _Plan) -> None:
    """Draw a page without cells: only an outline, or hatched."""
    wide, tall = plan.columns * plan.cell, plan.rows * plan.cell
    corners = make_boxes(*at, wide, tall, 0.75)
    looks = {"facecolors": style.PAPER, "edgecolors": "none"}
    if state != "free":
        looks |= {"hatch": marks.HATCH, "edgecolors": "#c4c4cb"}
    add(ax, [Cells("page", state, [page], corners, **looks)])
    swatches.draw_dashed(ax, *at, wide, tall, f"page:{state}:dash")


def _draw_swatch(ax: Axes, state: str, x: float, y: float) -> None:
    one, other = style.REQUESTS[:2]
    fill, edge = {
        "new": (style.fill_request(one, True), None),
        "read": (style.fill_request(one, False), None),
        "shared": ([style.fill_request(each, False) for each in (one, other)], None),
        "empty": (style.PAPER, style.LINE),
        "free": (style.PAPER, None),
        "cached": (style.KEPT, None),
        "lent": (style.PAPER, "#c4c4cb"),
    }[state]
    swatches.draw_box(ax, state, x, y, fill, edge=edge, hatch=state == "lent")
    if state == "free":
        swatches.draw_dashed(ax, x, y, swatches.WIDE, swatches.HIGH, "swatch:free:dash")
