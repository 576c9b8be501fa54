"""`draw_waste`: the cells that requests are given and don't fill, in slabs and in pages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from kvviz.arguments import check_texts, check_whole
from kvviz.drawing import marks, style, swatches
from kvviz.drawing.axes import make_canvas, measure_names
from kvviz.drawing.marks import Cells, add, make_boxes, write
from kvviz.drawing.picture import Picture
from kvviz.drawing.requests import CHIP, Look, choose_looks, draw_name, list_names, pick_step
from kvviz.drawing.sentences import percent
from kvviz.words import pluralize

SIDE, TOP, HEAD, LINE, BAR, APART = 16, 46, 46, 26, 16, 44  # pixels
LONG, CELL, THINNEST = 330, 12, 5  # pixels: a bar at most; a cell at most; a page at least
STATES = {
    "filled": "filled",
    "elsewhere": "shared: filled once, in another's page",
    "empty": "given, and empty",
}


@dataclass(frozen=True)
class Bar:
    """A request's cells: those filled, those of them counted with another request, and all."""

    look: Look
    held: int
    shared: int
    given: int


def draw_waste(
    serving, *, step: int = 0, slab: int | None = None, title: str | None = None
) -> Picture:
    """Draw what requests are given and what they fill: a slab for each, beside pages.

    A slab is as long as the longest text may get, because it can't grow. A page that several
    requests share is counted with the first of them.

    Args:
        serving: a recording made by `kv.record_serving`.
        step: which step, counted from 0.
        slab: tokens that a slab has room for; by default, the most that any request of this
            recording ever holds.
        title: by default, how much of each is empty.

    Raises:
        TypeError: `serving` isn't such a recording.
        ValueError: there is no such step, or a request holds more than a slab has room for.

    >>> kv.draw_waste(served, step=1, slab=16)
    step 1: a slab of 16 cells for each request: 14 of 32 cells filled, 56% empty; pages of 4 ...
    """
    check_texts(title=title, optional=["title"])
    taken, looks = pick_step(serving, step), choose_looks(list_names(serving))
    most = max((each.held for every in serving for each in every.holding), default=1)
    slab = most if slab is None else check_whole("slab", slab, least=1)
    too_long = [each for each in taken.holding if each.held > slab]
    for each in too_long[:1]:
        raise ValueError(f"slab: expected at least {each.held}, which {each.name!r} holds")
    slabs = [Bar(looks[each.name], each.held, 0, slab) for each in taken.holding]
    pages = _read_pages(taken, looks)
    words = _describe_layout(slabs, pages, slab, taken.page_size)
    empty = f"{_say_empty(slabs)} in slabs, {_say_empty(pages)} in pages"
    title = title or f"Step {taken.index}: {empty}"
    with style.scope():
        figure = _paint(title, slabs, pages, slab, taken.page_size)
    return Picture(figure, f"step {taken.index}: {words}")


def _read_pages(step, looks: dict[str, Look]) -> list[Bar]:
    """Each request's pages; those that an earlier one of them has are counted there."""
    bars, counted = [], set()
    for each in step.holding:
        n = sum(page in counted for page in each.pages)
        counted |= {*each.pages}
        given = step.page_size * len(each.pages)
        bars.append(Bar(looks[each.name], each.held, n * step.page_size, given))
    return bars


# -- words ---------------------------------------------------------------------------------------


def _count(bars: list[Bar]) -> tuple[int, int]:
    """Cells filled and cells given, each counted once."""
    return sum(bar.held - bar.shared for bar in bars), sum(bar.given - bar.shared for bar in bars)


def _say_empty(bars: list[Bar]) -> str:
    filled, given = _count(bars)
    return f"{percent((given - filled) / max(1, given))}% empty"


def _describe_layout(slabs: list[Bar], pages: list[Bar], slab: int, size: int) -> str:
    parts = []
    for words, bars in (
        (f"a slab of {pluralize(slab, 'cell')} for each request", slabs),
        (f"pages of {pluralize(size, 'cell')}", pages),
    ):
        filled, given = _count(bars)
        parts.append(f"{words}: {filled:,} of {given:,} cells filled, {_say_empty(bars)}")
    for bar, page in zip(slabs, pages, strict=True):
        shared = f", {page.shared} of them shared" if page.shared else ""
        parts.append(
            f"{bar.look.name} holds {pluralize(bar.held, 'token')}: {bar.given - bar.held:,} empty "
            f"in its slab, {page.given - page.held} in its pages{shared}"
        )
    return "; ".join(parts)


# -- painting ------------------------------------------------------------------------------------


def _paint(title: str, slabs: list[Bar], pages: list[Bar], slab: int, size: int) -> Figure:
    longest = max([bar.given for bar in (*slabs, *pages)], default=1)
    cell = min(CELL, LONG / longest)
    left = SIDE + CHIP + 18 + measure_names([bar.look.name for bar in slabs])
    heads = [f"A slab of {slab:,} cells each", f"Pages of {pluralize(size, 'cell')}"]
    counts = [_write_counts(bars) for bars in (slabs, pages)]
    words = max(measure_names(heads), measure_names(counts, bold=False))
    columns = [left, left + max(slab * cell, words) + APART]
    right = columns[1] + max(max([bar.given for bar in pages], default=1) * cell, words)
    wide = max(right + SIDE, 2 * SIDE + measure_names([title], style.TITLE), 560)
    high = TOP + HEAD + LINE * len(slabs) + 40
    figure, ax = make_canvas(title, (wide, high))
    for k, bars in enumerate((slabs, pages)):
        write(ax, columns[k], TOP + 12, heads[k], bold=True, gid=f"head:{k}")
        write(ax, columns[k], TOP + 30, counts[k], color=style.QUIET, gid=f"count:{k}")
        for i, bar in enumerate(bars):
            y = TOP + HEAD + LINE * (i + 0.5)
            _paint_bar(ax, (k, i), bar, (columns[k], y - BAR / 2), cell, size if k else slab)
    for i, bar in enumerate(slabs):
        draw_name(ax, SIDE, TOP + HEAD + LINE * (i + 0.5), bar.look)
    words = {k: v for k, v in STATES.items() if k != "elsewhere" or any(b.shared for b in pages)}
    lines = swatches.flow(words, wide - 2 * SIDE)
    swatches.draw_lines(ax, lines, words, _draw_swatch, left=SIDE, top=high - 36)
    return figure


def _write_counts(bars: list[Bar]) -> str:
    filled, given = _count(bars)
    return f"{filled:,} of {given:,} cells filled, {_say_empty(bars)}"


def _paint_bar(ax: Axes, place: tuple, bar: Bar, at, cell: float, unit: int) -> None:
    """Draw a request's cells in boxes of `unit`; neighbours in one state are one block."""
    x, y = at
    parts = (
        ("elsewhere", 0, bar.shared),
        ("filled", bar.shared, bar.held),
        ("empty", bar.held, bar.given),
    )
    for state, first, end in parts:
        edges = [first, *(k for k in range(0, bar.given, unit) if first < k < end), end]
        starts, ends = np.array(edges[:-1]), np.array(edges[1:])
        if end <= first:
            continue
        corners = make_boxes(x + cell * starts, y, cell * (ends - starts), BAR)
        places = [(*place, int(start)) for start in starts]
        add(ax, [Cells("waste", state, places, corners, **_choose_looks(state, bar.look.color))])
    unit = unit if cell * unit >= THINNEST else bar.given  # thinner pages are one block
    lines = make_boxes(x + cell * np.arange(0, bar.given, unit), y, cell * unit, BAR)
    looks = {"facecolors": "none", "edgecolors": style.QUIET, "linewidths": 0.9}
    add(ax, [PolyCollection(lines, gid="unit", **looks)])


def _choose_looks(state: str, color: str) -> dict:
    if state == "filled":
        return {"facecolors": color}
    if state == "elsewhere":
        return {"facecolors": style.fill_request(color, False)}
    return {"facecolors": style.PAPER, "edgecolors": "#b4b4bb", "hatch": marks.HATCH}


def _draw_swatch(ax: Axes, state: str, x: float, y: float) -> None:
    looks = _choose_looks(state, style.REQUESTS[0])
    edge = looks.get("edgecolors")
    swatches.draw_box(ax, state, x, y, looks["facecolors"], edge=edge, hatch="hatch" in looks)
